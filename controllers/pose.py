"""Targets for one or several end effectors, and how far the robot is from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Terms, frame_jacobian, frame_pose, orientation_error
from fraxenv.dynamics.math.algebra import norm
from fraxenv.errors import ConfigError

from .base import Telemetry, check_target, numbers, spread
from .interpolation import Ramp, advance, ramp_at

EndEffectors = str | tuple[str, ...]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PoseTarget:
    """Where the hand should be, and how.

    For a controller of several end effectors every array has a leading axis, one row for each.

    Attributes:
        position: (3,), m, world.
        rotation: (3, 3), hand to world.
        velocity: (6,), `[linear; angular]`, m/s and rad/s, world axes; zero if None.
        acceleration: (6,), m/s^2 and rad/s^2, world axes; zero if None.
        wrench: (6,), `[force; torque]`, N and N m, world axes, at the hand's origin: what the hand
            should exert on its surroundings besides; zero if None.
        kp: (6,), stiffness in the place of the controller's, which holds if None; a negative one
            counts as zero.
        damping_ratio: (6,), likewise.
    """

    position: Array
    rotation: Array
    velocity: Array | None = None
    acceleration: Array | None = None
    wrench: Array | None = None
    kp: Array | None = None
    damping_ratio: Array | None = None


_SHAPES = {
    "position": (3,),
    "rotation": (3, 3),
    "velocity": (6,),
    "acceleration": (6,),
    "wrench": (6,),
    "kp": (6,),
    "damping_ratio": (6,),
}


class Errors(NamedTuple):
    """Of k end effectors: `position` (k, 3), m, and `rotation` (k, 3), rad, world axes."""

    position: Array
    rotation: Array


def names_of(end_effector: EndEffectors) -> tuple[str, ...]:
    """Names of the end effectors, one or several."""
    return (end_effector,) if isinstance(end_effector, str) else end_effector


def check_end_effector(end_effector: object) -> None:
    """Check an option that names end effectors.

    Raises:
        ConfigError: it is neither a name nor a tuple of different ones.
    """
    names = (end_effector,) if isinstance(end_effector, str) else end_effector
    valid = isinstance(names, tuple) and names and all(isinstance(n, str) for n in names)
    if not (valid and len(set(names)) == len(names)):  # type: ignore[arg-type, call-overload]
        raise ConfigError(
            f"end_effector={end_effector!r}, expected the name of a frame, or a tuple of different "
            "ones such as ('left_hand', 'right_hand')."
        )


def check_frames(robot: Robot, end_effector: EndEffectors) -> None:
    """Raise UnknownNameError if the robot lacks an end effector."""
    for name in names_of(end_effector):
        robot.frame(name)


def stacked(
    controller: object, end_effector: EndEffectors, target: PoseTarget, dtype: jnp.dtype
) -> PoseTarget:
    """The target with every array checked and with a leading axis, one row per end effector.

    Raises:
        ConfigError: it is no `PoseTarget`.
        ArrayError: an array has the wrong shape.
    """
    check_target(controller, target, PoseTarget)
    names = names_of(end_effector)
    several = not isinstance(end_effector, str)
    note = f": one row for each of {', '.join(map(repr, names))}" if several else ""
    rows = {}
    for name, shape in _SHAPES.items():
        value = getattr(target, name)
        if value is not None:
            expected = (len(names), *shape) if several else shape
            what = f"{type(controller).__name__}: target.{name}"
            rows[name] = numbers(what, value, expected, dtype, note).reshape(len(names), *shape)
    return PoseTarget(**rows)


def measured_poses(robot: Robot, terms: Terms, end_effector: EndEffectors) -> tuple[Array, Array]:
    """Poses of k end effectors: positions (k, 3), m, and rotations (k, 3, 3), to world."""
    poses = [frame_pose(robot, terms.q, n, kin=terms.kin) for n in names_of(end_effector)]
    return jnp.stack([p for p, _ in poses]), jnp.stack([r for _, r in poses])


def stay(target: PoseTarget, position: Array, rotation: Array, **gains: ArrayLike) -> PoseTarget:
    """A target with the same arrays as the other, but to come to rest at these poses.

    Args:
        target: `stacked`.
        position: (k, 3), m.
        rotation: (k, 3, 3).
        **gains: for the gains in the target, those of the controller.
    """
    rest: PoseTarget = jax.tree.map(jnp.zeros_like, target)
    own = {
        name: None if (x := getattr(target, name)) is None else spread(name, gain, x.shape, x.dtype)
        for name, gain in gains.items()
    }
    return dataclasses.replace(rest, position=position, rotation=rotation, **own)


def jacobians(robot: Robot, terms: Terms, end_effector: EndEffectors, rows: int) -> Array:
    """The first rows of the Jacobians of all end effectors, one below the other."""
    names = names_of(end_effector)
    return jnp.concatenate([frame_jacobian(robot, terms.q, n, kin=terms.kin)[:rows] for n in names])


def pose_errors(
    robot: Robot, terms: Terms, end_effector: EndEffectors, target: PoseTarget
) -> Errors:
    """The way from the measured poses to those of a `stacked` target."""
    position, rotation = measured_poses(robot, terms, end_effector)
    turn = jnp.stack([orientation_error(*r) for r in zip(target.rotation, rotation, strict=True)])
    return Errors(target.position - position, turn)


def error_lengths(end_effector: EndEffectors, errors: Errors) -> Telemetry:
    """Lengths of the errors, m and rad: () each, or (k,) for several end effectors."""
    lengths = {
        "position_error": jnp.stack([norm(e) for e in errors.position]),
        "orientation_error": jnp.stack([norm(e) for e in errors.rotation]),
    }
    return per_end_effector(end_effector, lengths)


def per_end_effector(end_effector: EndEffectors, rows: Telemetry) -> Telemetry:
    """Telemetry with one row per end effector, without that axis where there is only one."""
    one = isinstance(end_effector, str)
    return {name: x[0] if one else x for name, x in rows.items()}


def first_ramp(robot: Robot, terms: Terms, end_effector: EndEffectors) -> Ramp:
    """Set-points that have arrived where the end effectors are."""
    return ramp_at(*measured_poses(robot, terms, end_effector))


def interpolated(
    target: PoseTarget, ramp: Ramp | None, duration: ArrayLike | None, dt: Array
) -> tuple[PoseTarget, Ramp | None]:
    """The `stacked` target with the set-points in the place of its poses, and their new state.

    Both are as they were where targets are not interpolated: where `duration` is None.

    Raises:
        ConfigError: there is no ramp in the state.
    """
    if duration is None:
        return target, ramp
    if ramp is None:
        raise ConfigError(
            "interpolation_time is set, and the state has no set-point, expected a state of this "
            "controller's init(robot, terms), or of its last step."
        )
    ramp = advance(ramp, target.position, target.rotation, duration, dt)
    return dataclasses.replace(target, position=ramp.position, rotation=ramp.rotation), ramp
