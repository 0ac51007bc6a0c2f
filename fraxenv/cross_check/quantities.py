"""What is compared: everything that `fraxenv.dynamics` computes at one state, by name."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import DTypeLike

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.pytree import pytree_dataclass


@pytree_dataclass
class States:
    """Random states, stacked along the first axis (or one state, without it).

    Attributes:
        q: (nq,), over the whole joint range.
        v: (nv,), several times the usual speeds.
        a: (nv,).
        tau: (nv,).
        forces: (nb, 6), on the bodies, as `rnea` takes them.
    """

    q: ArrayLike
    v: ArrayLike
    a: ArrayLike
    tau: ArrayLike
    forces: ArrayLike


def random_states(robot: Robot, count: int, dtype: DTypeLike, seed: int = 0) -> States:
    """States over the whole joint range with large velocities, the same in every precision."""
    rng = np.random.default_rng(seed)
    topology = robot.topology
    lower, upper = np.clip(robot.position_limits, -np.pi, np.pi).T
    x = rng.uniform(lower, upper, (count, robot.nv))
    q = np.zeros((count, robot.nq))
    scalar = topology.dof_coordinate >= 0
    q[:, topology.dof_coordinate[scalar]] = x[:, scalar]
    for _, start, _ in topology.quaternions:
        four = rng.normal(size=(count, 4))
        q[:, start : start + 4] = four / np.linalg.norm(four, axis=1, keepdims=True)
    return States(
        q=q.astype(dtype),
        v=rng.uniform(-10.0, 10.0, (count, robot.nv)).astype(dtype),
        a=rng.uniform(-30.0, 30.0, (count, robot.nv)).astype(dtype),
        tau=rng.uniform(-100.0, 100.0, (count, robot.nv)).astype(dtype),
        forces=rng.uniform(-50.0, 50.0, (count, robot.nb, 6)).astype(dtype),
    )


def compared_frames(robot: Robot, count: int = 6) -> tuple[str, ...]:
    """Names of the frames that are compared: the first, the last, and some between."""
    names = robot.frame_names
    return tuple(names[i] for i in np.unique(np.linspace(0, len(names) - 1, count).astype(int)))


def quantities(robot: Robot, s: States) -> dict[str, Array]:
    """All quantities at one state, from one forward kinematics."""
    kin = dynamics.compute_kinematics(robot, s.q)
    bodies = dynamics.forward_kinematics(robot, s.q)
    q, v = s.q, s.v

    names = compared_frames(robot)

    def frames(f: Callable[..., Array], *args: ArrayLike) -> Array:
        return jnp.stack([f(robot, q, *args, name, kin=kin) for name in names])

    poses = [dynamics.frame_pose(robot, q, name, kin=kin) for name in names]
    return {
        "frame position": jnp.stack([p for p, _ in poses]),
        "frame rotation": jnp.stack([R for _, R in poses]),
        "frame jacobian": frames(dynamics.frame_jacobian),
        "frame jacobian dot": frames(dynamics.frame_jacobian_dot, v),
        "frame velocity": frames(dynamics.frame_velocity, v),
        "frame acceleration": frames(dynamics.frame_acceleration, v, s.a),
        "body position": bodies.position,
        "body rotation": bodies.rotation,
        "inverse dynamics": dynamics.rnea(robot, q, v, s.a, s.forces, kin=kin),
        "mass matrix": dynamics.crba(robot, q, kin=kin),
        "bias": dynamics.bias_forces(robot, q, v, kin=kin),
        "bias with external forces": dynamics.bias_forces(robot, q, v, s.forces, kin=kin),
        "gravity": dynamics.gravity_forces(robot, q, kin=kin),
        "forward dynamics": dynamics.forward_dynamics(robot, q, v, s.tau, s.forces, kin=kin),
        "centre of mass": dynamics.center_of_mass(robot, q, kin=kin),
        "centre of mass jacobian": dynamics.center_of_mass_jacobian(robot, q, kin=kin),
        "centroidal momentum": dynamics.centroidal_momentum(robot, q, v, kin=kin),
        "centroidal momentum matrix": dynamics.centroidal_momentum_matrix(robot, q, kin=kin),
        "kinetic energy": dynamics.kinetic_energy(robot, q, v, kin=kin),
        "potential energy": dynamics.potential_energy(robot, q, kin=kin),
    }


def motion(robot: Robot, s: States, timestep: float) -> dict[str, Array]:
    """Damped forward dynamics, integration and one step of the physics, at one state."""
    speeds = jnp.asarray(s.v)
    damped = jnp.asarray(s.tau) - jnp.asarray(robot.damping, speeds.dtype) * speeds
    q, v = dynamics.step(robot, s.q, s.v, s.tau, timestep, s.forces)
    return {
        "damped forward dynamics": dynamics.forward_dynamics(robot, s.q, s.v, damped, s.forces),
        "integrated configuration": dynamics.integrate(robot, s.q, s.v, timestep),
        "configuration after a step": q,
        "velocity after a step": v,
    }
