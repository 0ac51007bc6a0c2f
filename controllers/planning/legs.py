"""Residuals of what walks, and when its feet are in the air.

Source: MuJoCo MPC's quadruped (`mjpc/tasks/quadruped`, Howell et al., "Predictive sampling:
real-time behaviour synthesis with MuJoCo", arXiv 2212.00541): names, formulas and scales are its.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import (
    Robot,
    Terms,
    center_of_mass,
    center_of_mass_jacobian,
    centroidal_momentum_derivative,
    frame_jacobian,
    frame_pose,
)
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.errors import ConfigError, is_concrete

from .residuals import Residual, Slopes, of_q, residual

GRAVITY = 9.81
"""m/s^2, of the time that a fall takes."""


def upright(frame: str, weight: ArrayLike = 1.0, **options: Any) -> Residual:
    """The cosine of a frame's tilt, less one (1,): of its z axis against the world's.

    Args:
        frame: name of a link or of an end effector.
        weight: (1,) or ().
        **options: `norm` and `each`, as of `residual`.
    """
    return residual(_Upright(frame), (), weight, **options)


def height(
    frame: str, feet: Sequence[str], value: ArrayLike, weight: ArrayLike = 1.0, **options: Any
) -> Residual:
    """How far above the mean of its feet a frame is (1,), m, less what is wanted.

    Args:
        frame: name of a link or of an end effector.
        feet: names of frames.
        value: (), m.
        weight: (1,) or ().
        **options: `norm` and `each`, as of `residual`.

    Raises:
        ConfigError: `feet` is no sequence of names.
    """
    return residual(_Height(frame, _known(feet)), jnp.asarray(value), weight, **options)


def swing(
    feet: Sequence[str], heights: ArrayLike, weight: ArrayLike = 1.0, *, sole: float, **options: Any
) -> Residual:
    """Heights of feet (n,), m, less those wanted; zero for feet whose wanted height is zero.

    Those stand, and are where the ground lets them be. `swing_heights` says when.

    Args:
        feet: names of frames.
        heights: (n,), m, above where they stand; with `each`, (N, n).
        weight: (n,) or ().
        sole: world height of the frames where feet stand, m: the ground's and a foot's radius.
        **options: `norm` and `each`, as of `residual`.

    Raises:
        ConfigError: `feet` is no sequence of names.
    """
    return residual(_Swing(_known(feet), float(sole)), jnp.asarray(heights), weight, **options)


def balance(
    feet: Sequence[str], height: float, weight: ArrayLike = 1.0, **options: Any
) -> Residual:
    """From the middle of the feet to the capture point (2,), m: where a step would stop a fall.

    It is the centre of mass, moved by its velocity for as long as a fall takes.

    Args:
        feet: names of frames.
        height: of the centre of mass, m.
        weight: (2,) or (); () for norms of both together.
        **options: `norm` and `each`, as of `residual`.

    Raises:
        ConfigError: the height is not positive, or `feet` is no sequence of names.
    """
    if not height > 0:
        raise ConfigError(f"balance: height={height!r}, expected a positive number, m.")
    return residual(
        _Balance(_known(feet), float(np.sqrt(2 * height / GRAVITY))), (), weight, **options
    )


def swing_heights(
    time: ArrayLike, phases: ArrayLike, cadence: ArrayLike, amplitude: ArrayLike, duty: ArrayLike
) -> Array:
    """Heights of feet (..., n), m, in a periodic gait; zero where a foot is to stand.

    Args:
        time: (...), s.
        phases: (n,), of the feet, as shares of a period: (0, 0.5, 0.5, 0) is a trot.
        cadence: (), periods per second.
        amplitude: (), height of a step, m.
        duty: (), share of a period for which a foot stands; 1 for standing still.

    Raises:
        ConfigError: `duty` is not between 0 and 1.
    """
    if is_concrete(duty) and not 0 <= float(np.asarray(duty)) <= 1:
        raise ConfigError(f"swing_heights: duty={duty!r}, expected a share from 0 to 1.")
    t, phases, duty = jnp.asarray(time, float), jnp.asarray(phases, float), jnp.asarray(duty, float)
    # From the middle of a step, in parts of a period, -0.5 to 0.5.
    part = jnp.mod(t[..., None] * cadence - phases + 0.5, 1.0) - 0.5
    up = jnp.abs(part) < 0.5 * (1.0 - duty)
    angle = jnp.pi * part / jnp.where(up, 1.0 - duty, 1.0)
    heights: Array = jnp.asarray(amplitude) * jnp.where(up, jnp.cos(angle), 0.0)
    return heights


def _known(feet: Sequence[str]) -> tuple[str, ...]:
    if isinstance(feet, str) or not len(feet):
        raise ConfigError(f"feet={feet!r}, expected names of frames, such as ('FL', 'FR').")
    return tuple(feet)


def _positions(robot: Robot, terms: Terms, feet: tuple[str, ...]) -> Array:
    """(n, 3), m."""
    return jnp.stack([frame_pose(robot, terms.q, f, kin=terms.kin)[0] for f in feet])


def _moved(robot: Robot, terms: Terms, feet: tuple[str, ...]) -> Array:
    """Derivatives (n, 3, nv) of their positions by the configuration."""
    return jnp.stack([frame_jacobian(robot, terms.q, f, kin=terms.kin)[:3] for f in feet])


@dataclass(frozen=True)
class _Upright:
    frame: str

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",)

    def __call__(self, robot: Robot, terms: Terms, tau: Array, _: Any) -> Array:
        return frame_pose(robot, terms.q, self.frame, kin=terms.kin)[1][2, 2:] - 1

    def slopes(self, robot: Robot, terms: Terms, tau: Array, _: Any) -> Slopes:
        z = frame_pose(robot, terms.q, self.frame, kin=terms.kin)[1][:, 2]
        turned = frame_jacobian(robot, terms.q, self.frame, kin=terms.kin)[3:]
        return of_q((turned[0] * z[1] - turned[1] * z[0])[None])


@dataclass(frozen=True)
class _Height:
    frame: str
    feet: tuple[str, ...]

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",)

    def __call__(self, robot: Robot, terms: Terms, tau: Array, wanted: Array) -> Array:
        own = frame_pose(robot, terms.q, self.frame, kin=terms.kin)[0][2]
        return (own - jnp.mean(_positions(robot, terms, self.feet)[:, 2]) - wanted)[None]

    def slopes(self, robot: Robot, terms: Terms, tau: Array, _: Array) -> Slopes:
        own = frame_jacobian(robot, terms.q, self.frame, kin=terms.kin)[2]
        return of_q((own - jnp.mean(_moved(robot, terms, self.feet)[:, 2], axis=0))[None])


@dataclass(frozen=True)
class _Swing:
    feet: tuple[str, ...]
    sole: float

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",)

    def __call__(self, robot: Robot, terms: Terms, tau: Array, wanted: Array) -> Array:
        above = _positions(robot, terms, self.feet)[:, 2] - self.sole
        return jnp.where(wanted > 0, above - wanted, 0.0)

    def slopes(self, robot: Robot, terms: Terms, tau: Array, wanted: Array) -> Slopes:
        risen = _moved(robot, terms, self.feet)[:, 2]
        return of_q(jnp.where((wanted > 0)[:, None], risen, 0.0))


@dataclass(frozen=True)
class _Balance:
    feet: tuple[str, ...]
    fall: float

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q", "v")

    def __call__(self, robot: Robot, terms: Terms, tau: Array, _: Any) -> Array:
        J = center_of_mass_jacobian(robot, terms.q, kin=terms.kin)
        point = center_of_mass(robot, terms.q, kin=terms.kin) + self.fall * matmul(J, terms.v)
        return (point - jnp.mean(_positions(robot, terms, self.feet), axis=0))[:2]

    def slopes(self, robot: Robot, terms: Terms, tau: Array, _: Any) -> Slopes:
        J = center_of_mass_jacobian(robot, terms.q, kin=terms.kin)
        momentum = centroidal_momentum_derivative(robot, terms.q, terms.v, kin=terms.kin)
        faster = momentum[:3] / jnp.sum(jnp.asarray(robot.mass, J.dtype))
        by_q = J + self.fall * faster - jnp.mean(_moved(robot, terms, self.feet), axis=0)
        by_v = self.fall * J[:2]
        return jnp.concatenate([by_q[:2], by_v], axis=1), jnp.zeros_like(by_v)
