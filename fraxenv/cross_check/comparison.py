"""Our numbers against those of the oracles: at random states, and along a trajectory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as JaxArray
from numpy.typing import DTypeLike, NDArray

from fraxenv import dynamics
from fraxenv.dynamics import Robot

from ..errors import ConfigError, unknown_name
from .mujoco import MujocoOracle
from .pinocchio import PinocchioOracle
from .quantities import States, motion, quantities

Array = NDArray[np.floating[Any]]
Errors = dict[str, float]
"""Quantity -> the worst relative error over all states."""

SOLVED = (
    "forward dynamics",
    "damped forward dynamics",
    "configuration after a step",
    "velocity after a step",
)
"""Quantities that are solved from the mass matrix."""

MAX_TOLERANCE = 1e-3
"""Largest tolerance of `SOLVED`, however badly the mass matrix is conditioned."""

SMALLEST = {
    "frame position": 1e-2,  # m
    "body position": 1e-2,
    "centre of mass": 1e-2,
    "centre of mass jacobian": 1e-2,  # m, and m/rad
    "frame jacobian dot": 1e-1,  # m/s, at 10 rad/s
}
"""Smallest scale of a quantity's relative error: it may vanish, and only rounding is left."""

SMALLEST_PART = 1e-2
PARTS = {
    "bias": "inverse dynamics",
    "bias with external forces": "inverse dynamics",
    "gravity": "inverse dynamics",
    "potential energy": "kinetic energy",
}
"""Quantity -> a larger one, of which `SMALLEST_PART` is the scale; it never vanishes."""

DAMPING_TIME = 0.1
"""s, within which a trajectory's joint damping slows down each joint on its own."""

TORQUE_ACCELERATION = 30.0
"""rad/s^2 or m/s^2, of each joint on its own under the largest torque of a trajectory."""

TORQUE_PERIOD = 0.1
"""s, for which a trajectory's torques stay what they are."""


def load_subject(name: str, floating_base: bool) -> tuple[Robot, Path]:
    """A robot by its name or its file, and that file.

    Raises:
        UnknownNameError: neither a bundled robot nor a file.
        ConfigError: a bundled robot cannot be made to float.
        RobotLoadError: the file cannot be read.
    """
    path = Path(name)
    if name in dynamics.list_robots():
        if floating_base:
            raise ConfigError(
                f"--floating-base with the bundled robot {name!r}, whose base is what its "
                "description says, expected it with a URDF file. Leave it out."
            )
        return dynamics.load_robot(name), Path(dynamics.__file__).parent / "robots" / f"{name}.urdf"
    if path.suffix != ".urdf" and not path.exists():
        raise unknown_name("robot or file", name, dynamics.list_robots())
    return dynamics.load_urdf(path, floating_base=floating_base), path


def comparable(robot: Robot) -> Robot:
    """The robot with the joint resistance that all can compute: viscous damping alone.

    Friction and soft stops, which are ours alone, are removed. Damping is raised to `M_ii / 0.1 s`
    (of the mass matrix at `q_default`) where it is less: with little damping robots are chaotic,
    rounding grows by orders of magnitude within seconds, and says nothing. Joints that float stay
    as they are.
    """
    zero = np.zeros(robot.nv)
    damping = np.where(driven(robot), _inertia(robot) / DAMPING_TIME, 0.0)
    return robot.replace(
        damping=np.maximum(np.broadcast_to(robot.damping, robot.nv), damping),
        friction=zero,
        stop_stiffness=zero,
        stop_damping=zero,
    )


def relative_errors(ours: Mapping[str, Array], reference: Mapping[str, Array]) -> Errors:
    """The worst relative error over the states, of each quantity that both have.

    An error is relative to the largest entry of the reference in the same state, or in the median
    state if that is larger: where energy happens to be about zero, nobody has its leading digits.
    What vanishes in all states, as gravity does along vertical axes, has a floor.

    Args:
        ours: quantity -> array (n, ...), of n states.
        reference: likewise; quantities that only one of the two has are left out.
    """
    return {
        name: _relative_error(np.asarray(value), reference[name], _floor(name, reference))
        for name, value in ours.items()
        if name in reference
    }


def _floor(name: str, reference: Mapping[str, Array]) -> float:
    """Smallest scale of a quantity's relative error."""
    if PARTS.get(name) in reference:
        return SMALLEST_PART * float(np.median(_largest(reference[PARTS[name]])))
    return SMALLEST.get(name, 0.0)


def _largest(x: Array) -> Array:
    """The largest entry (n,) in each of n states."""
    return np.asarray(np.abs(x).reshape(len(x), -1).max(axis=1))


def _relative_error(ours: Array, reference: Array, floor: float) -> float:
    error, scale = _largest(ours - reference), _largest(reference)
    scale = np.maximum(scale, max(float(np.median(scale)), floor))
    if np.isnan(error).any():
        return np.inf
    # A quantity that is zero in both is no error; one that is zero in the reference alone is.
    relative = np.divide(error, scale, out=np.where(error > 0, np.inf, 0.0), where=scale > 0)
    return float(relative.max())


def tolerance(quantity: str, base: float, mass_matrices: Array) -> float:
    """The relative error that is allowed: `base`, or what no solver can do better.

    Accelerations are solved from the mass matrix, which multiplies the rounding of its entries by
    its condition number: in float32 that exceeds 1e-4 for arms with light wrists.

    Args:
        quantity: its name.
        base: for everything else.
        mass_matrices: (n, nv, nv), ours at all states, in the precision that is checked.
    """
    if quantity not in SOLVED or not np.isfinite(mass_matrices).all():
        return base
    condition = np.linalg.cond(mass_matrices.astype(float)).max()
    return max(base, min(MAX_TOLERANCE, float(np.finfo(mass_matrices.dtype).eps * condition)))


def our_quantities(robot: Robot, states: States, timestep: float) -> dict[str, Array]:
    """Everything that is compared, (n, ...) for n states, in the states' dtype."""

    @jax.jit
    @jax.vmap
    def program(s: States) -> dict[str, JaxArray]:
        return quantities(robot, s) | motion(robot, s, timestep)

    return {name: np.asarray(x) for name, x in program(states).items()}


def oracle_quantities(
    oracle: PinocchioOracle | MujocoOracle, states: Iterable[States]
) -> dict[str, Array]:
    """Everything that an oracle computes at the states, stacked."""
    rows = [
        oracle.quantities(*(np.asarray(x, float) for x in (s.q, s.v, s.a, s.tau, s.forces)))
        for s in states
    ]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def one_by_one(states: States) -> list[States]:
    """The states as oracles take them: one at a time."""
    return [jax.tree.map(lambda x, i=i: x[i], states) for i in range(len(np.asarray(states.q)))]


@dataclass(frozen=True)
class Trajectories:
    """The same torques applied to the same robot, here and by MuJoCo.

    Attributes:
        time: (n,), s.
        ours: (n, nq), configurations.
        theirs: (n, nq).
        difference: (n, nv), from theirs to ours, rad and m.
    """

    time: Array
    ours: Array
    theirs: Array
    difference: Array

    @property
    def error(self) -> float:
        """The largest difference, rad or m; infinite if anything is not finite."""
        return (
            float(np.abs(self.difference).max()) if np.isfinite(self.difference).all() else np.inf
        )


def random_torques(
    robot: Robot, seconds: float, timestep: float, dtype: DTypeLike, seed: int
) -> Array:
    """Torques (n, nv), new ones every 0.1 s, that accelerate single joints by 30 rad/s^2 at most.

    Joints that float have none.
    """
    steps, hold = max(1, round(seconds / timestep)), max(1, round(TORQUE_PERIOD / timestep))
    rng = np.random.default_rng(seed)
    drawn = rng.uniform(-TORQUE_ACCELERATION, TORQUE_ACCELERATION, (-(-steps // hold), robot.nv))
    torques = np.where(driven(robot), drawn * _inertia(robot), 0.0)
    return torques.repeat(hold, axis=0)[:steps].astype(dtype)


def trajectories(robot: Robot, oracle: MujocoOracle, torques: Array) -> Trajectories:
    """Apply torques (n, nv) from `q_default`, at rest, for n time steps of the oracle's model."""
    timestep = float(oracle.model.opt.timestep)
    q0 = np.asarray(robot.q_default, torques.dtype)

    @jax.jit
    def program(q0: JaxArray, torques: JaxArray) -> JaxArray:
        def step(
            state: tuple[JaxArray, JaxArray], tau: JaxArray
        ) -> tuple[tuple[JaxArray, JaxArray], JaxArray]:
            state = dynamics.step(robot, *state, tau, timestep)
            return state, state[0]

        return jax.lax.scan(step, (q0, jnp.zeros(robot.nv, q0.dtype)), torques)[1]

    ours = np.asarray(program(q0, torques), float)
    theirs = oracle.rollout(q0.astype(float), torques.astype(float))
    difference = jax.jit(jax.vmap(lambda a, b: dynamics.difference(robot, a, b)))
    time = timestep * np.arange(1, len(torques) + 1)
    return Trajectories(time, ours, theirs, np.asarray(difference(theirs, ours)))


def _inertia(robot: Robot) -> Array:
    """(nv,), kg m^2 or kg, that each joint feels at the default configuration."""
    M = jax.jit(lambda q: dynamics.crba(robot, q))(np.asarray(robot.q_default))
    return np.asarray(np.diagonal(M), float)


def damping_range(robot: Robot) -> str:
    """The range of the damping of driven joints, for people."""
    texts = []
    turns = robot.topology.dof_rotates
    for chosen, unit in ((turns, "N m s/rad"), (~turns, "N s/m")):
        values = np.asarray(robot.damping)[chosen & driven(robot)]
        if values.size:
            low, high = f"{values.min():.2g}", f"{values.max():.2g}"
            texts.append(f"{low} {unit}" if low == high else f"{low} to {high} {unit}")
    return ", ".join(texts) or "none"


def driven(robot: Robot) -> NDArray[np.bool_]:
    """(nv,), whether a motor could be there: everywhere but where a joint floats."""
    joints = [j for j in robot.topology.joints if not j.mimic]
    return np.array([j.kind != "floating" for j in joints for _ in j.rotates])
