"""Peers that are JAX programs, and what all JAX programs have in common."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from . import contact
from .contenders import Case, Prepare
from .workloads import Workload, inputs, robot

TIMESTEP = 1e-3
"""Of a step that is differentiated, s."""

WITHOUT_FUSION = {"xla_disable_hlo_passes": "fusion"}
"""XLA's fusion on the CPU computes shared subexpressions again wherever they are used."""


def dynamics_case(
    workload: Workload, batch: int, program: Any, adapt: Callable[..., Any] | None = None
) -> Case:
    """A jitted function of batches, called with the workload's inputs.

    Args:
        workload: what to compute.
        batch: how many at once.
        program: the jitted function.
        adapt: of the inputs, what it takes.
    """
    dtype = jnp.result_type(float)
    arrays = inputs(workload, batch)
    arguments = [jnp.asarray(x, dtype) for x in (adapt(*arrays) if adapt else arrays)]
    latest: list[Any] = [None]

    def call() -> None:
        latest[0] = jax.block_until_ready(program(*arguments))

    def result() -> np.ndarray:
        leaves = [np.asarray(x).reshape(batch, -1) for x in jax.tree.leaves(latest[0])]
        return np.concatenate(leaves, axis=1)

    def operations() -> float | None:
        lower = program.lower if hasattr(program, "lower") else jax.jit(program).lower
        counted = lower(*arguments).cost_analysis() or {}
        return counted["flops"] / batch if "flops" in counted else None

    return Case(call, result, batch, operations=operations)


def frax() -> Prepare:
    """`jit(vmap)` of frax's own functions, with our robot's URDF."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it advises flags, which are another contender's
        import frax as package

    from fraxenv.dynamics import frame_pose, orientation_error
    from fraxenv.dynamics.model.bundled import bundled_urdf

    def load(name: str) -> Any:
        ours, path = robot(name), str(bundled_urdf(name))
        if ours.nq != ours.nv:
            order = list(ours.joint_names)[1:]
            return package.Robot(path, joint_ordering=order, floating_base="quaternion")
        plain = package.Manipulator(path)
        last = np.asarray(plain.joint_to_world_transforms(np.zeros(plain.nq))[-1], float)
        hand = np.eye(4)
        position, rotation = frame_pose(ours, np.zeros(ours.nq), "hand")
        hand[:3, 3], hand[:3, :3] = position, rotation
        return package.Manipulator(path, ee_offset=np.linalg.solve(last, hand))

    def functions(workload: Workload) -> Callable[..., Any]:
        theirs, ours = load(workload.robot), robot(workload.robot)

        def osc(q: Array, v: Array, position: Array, rotation: Array) -> Array:
            # The law of our `OSC` in its default configuration, less its limits of speed and its
            # damping near singularities, which do nothing at these inputs.
            kp, posture_kp = 150.0, 10.0
            J, J_dot = theirs.ee_jacobian_and_derivative(q, v)
            hand, M = theirs.ee_transform(q), theirs.crba(q)
            turn = orientation_error(rotation, hand[:3, :3])
            error = jnp.concatenate([position - hand[:3, 3], turn])
            u = posture_kp * (ours.q_default - q) - 2 * posture_kp**0.5 * v
            wanted = kp * error - 2 * kp**0.5 * (J @ v) - J_dot @ v - J @ u
            inverse = J @ jax.scipy.linalg.solve(M, J.T, assume_a="pos")
            force = jax.scipy.linalg.solve(inverse, wanted, assume_a="pos")
            limit = ours.effort_limits
            return jnp.clip(J.T @ force + M @ u + theirs.nonlinear_bias(q, v), -limit, limit)

        def control_step(q: Array, v: Array, position: Array, rotation: Array) -> Any:
            v = v + 1e-3 * theirs.forward_dynamics(q, v, osc(q, v, position, rotation), None)
            return q + 1e-3 * v, v

        gravity = np.array([0, 0, 9.81, 0, 0, 0])
        known = {
            "forward_dynamics": lambda q, v, tau: theirs.forward_dynamics(q, v, tau, None),
            "rnea": lambda q, v, a: theirs.rnea(q, v, a, jnp.asarray(gravity, q.dtype), None),
            "crba": theirs.crba,
            "osc": osc,
            "control_step": control_step,
        }
        return known[workload.quantity]

    def prepare(workload: Workload, batch: int, threads: int) -> Case:
        return dynamics_case(workload, batch, jax.jit(jax.vmap(functions(workload))))

    return prepare


def mjx() -> Prepare:
    """MuJoCo's JAX version, with our robot's model."""
    from mujoco import mjx as package

    def prepare(workload: Workload, batch: int, threads: int) -> Case:
        if workload.quantity == "contact":
            return contact.mjx(workload, batch)
        oracle = _mujoco(workload)
        model = package.put_model(oracle.model)
        start = package.make_data(model)

        def forward(q: Array, v: Array, tau: Array) -> Array:
            state = start.replace(qpos=q, qvel=v, qfrc_applied=tau)
            return package.forward(model, state).qacc

        cpu = jax.default_backend() == "cpu"
        options = WITHOUT_FUSION if cpu else None
        function = _asked(workload, oracle, forward)
        program = jax.jit(jax.vmap(function), compiler_options=options)
        case = dynamics_case(workload, batch, program, _ordered(oracle))
        case.note = "without XLA's fusion, with which it is hundreds of times slower" if cpu else ""
        return case

    return prepare


def brax() -> Prepare:
    """Brax's generalized pipeline, less its constraints, with our robot's model."""
    from brax import kinematics
    from brax.generalized import dynamics, mass
    from brax.generalized.base import State
    from brax.io import mjcf

    def prepare(workload: Workload, batch: int, threads: int) -> Case:
        oracle = _mujoco(workload)
        system = mjcf.load_model(oracle.model)

        def forward(q: Array, v: Array, tau: Array) -> Array:
            state = State.init(q, v, *kinematics.forward(system, q, v))
            state = mass.matrix_inv(system, dynamics.transform_com(system, state), 0)
            return state.mass_mx_inv @ dynamics.forward(system, state, tau)

        program = jax.jit(jax.vmap(_asked(workload, oracle, forward)))
        return dynamics_case(workload, batch, program, _ordered(oracle))

    return prepare


def _mujoco(workload: Workload) -> Any:
    from fraxenv.cross_check.mujoco import MujocoOracle

    return MujocoOracle.from_robot(robot(workload.robot))


def _asked(workload: Workload, oracle: Any, forward: Callable[..., Array]) -> Callable[..., Any]:
    """What is asked for, from a peer's accelerations in its own order."""
    if workload.quantity == "forward_dynamics":
        return lambda q, v, tau: forward(q, v, tau)[oracle.dofs]

    def stepped(q: Array, v: Array, tau: Array) -> Array:
        faster = v + TIMESTEP * forward(q, v, tau)
        return jnp.sum(q + TIMESTEP * faster) + jnp.sum(faster)

    def gradients(q: Array, v: Array, tau: Array) -> Any:
        by_q, by_v, by_tau = jax.grad(stepped, (0, 1, 2))(q, v, tau)
        return by_q[oracle.coordinates], by_v[oracle.dofs], by_tau[oracle.dofs]

    return gradients


def _ordered(oracle: Any) -> Callable[..., Any]:
    """The inputs in MuJoCo's order."""

    def adapt(q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> Any:
        theirs = tuple(np.empty_like(x) for x in (q, v, tau))
        theirs[0][:, oracle.coordinates] = q
        theirs[1][:, oracle.dofs], theirs[2][:, oracle.dofs] = v, tau
        return theirs

    return adapt
