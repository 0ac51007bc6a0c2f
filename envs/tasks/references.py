"""References: paths in time for hands to follow."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_count


class Reference(Protocol):
    """A family of paths in time, of which every episode draws one. An immutable pytree."""

    def sample(self, key: Array, home: Array) -> Any:
        """The parameters of one path, a pytree of arrays. `home` (k, 3), m, is the hands' place."""

    def at(self, path: Any, time: Array) -> tuple[Array, Array]:
        """Positions (k, 3), m, and velocities (k, 3), m/s, in the world, at `time`, s."""


@pytree_dataclass
class FigureEight:
    """A figure eight (Gerono's lemniscate) in a plane, at a random place and phase.

    Attributes:
        size: (2,), m, half of the width, along the first axis, and half of the height.
        period: s, of the whole figure.
        offset: m, largest distance of the centre from the hand's home, along each axis.
        plane: two axes, "yz" for upright in front of the robot.
    """

    size: ArrayLike = (0.12, 0.06)
    period: ArrayLike = 4.0
    offset: ArrayLike = 0.05
    plane: str = static(default="yz")

    def __post_init__(self) -> None:
        if sorted(set(self.plane)) != sorted(self.plane) or not set(self.plane) < set("xyz"):
            raise ConfigError(f"plane={self.plane!r}, expected two of x, y and z, such as 'yz'.")

    def sample(self, key: Array, home: Array) -> tuple[Array, Array]:
        """Centres (k, 3), m, and the phase (), rad."""
        key_place, key_phase = jax.random.split(key)
        away = jax.random.uniform(key_place, home.shape, home.dtype, -1.0, 1.0)
        used = jnp.asarray([float(a in self.plane) for a in "xyz"], home.dtype)
        centre = home + jnp.asarray(self.offset, home.dtype) * used * away
        phase = jax.random.uniform(key_phase, (), home.dtype, 0.0, 2 * np.pi)
        return centre, phase

    def at(self, path: tuple[Array, Array], time: Array) -> tuple[Array, Array]:
        """Positions and velocities on the figure."""
        centre, phase = path
        rate = 2 * np.pi / jnp.asarray(self.period, centre.dtype)
        width, height = jnp.asarray(self.size, centre.dtype)
        angle = phase + rate * time
        sin, cos = jnp.sin(angle), jnp.cos(angle)
        along = jnp.stack([width * sin, height * 2 * sin * cos])
        speed = rate * jnp.stack([width * cos, height * 2 * (cos * cos - sin * sin)])
        axes = jnp.asarray(np.eye(3)[["xyz".index(a) for a in self.plane]], centre.dtype)
        return centre + along @ axes, jnp.broadcast_to(speed @ axes, centre.shape)


@pytree_dataclass
class MinimumJerk:
    """Random way-points, from the hand's home on, joined by motions of least jerk.

    Each motion starts and ends at rest (Flash and Hogan, "The coordination of arm movements: an
    experimentally confirmed mathematical model", J. Neuroscience 5(7), 1985). After the last
    way-point the reference stays there.

    Attributes:
        low: (3,), m, corner of the box of way-points, relative to the hand's home.
        high: (3,), m, the other corner.
        duration: s, of the motion between two way-points.
        count: number of way-points after home.
    """

    low: ArrayLike = (-0.1, -0.2, -0.15)
    high: ArrayLike = (0.15, 0.2, 0.15)
    duration: ArrayLike = 1.0
    count: int = static(default=4)

    def __post_init__(self) -> None:
        check_count("MinimumJerk: count", self.count, of="way-points")

    def sample(self, key: Array, home: Array) -> Array:
        """Way-points (count + 1, k, 3), m; the first is `home`."""
        low, high = jnp.asarray(self.low, home.dtype), jnp.asarray(self.high, home.dtype)
        shape = (self.count, *home.shape)
        points = home + low + (high - low) * jax.random.uniform(key, shape, home.dtype)
        return jnp.concatenate([home[None], points])

    def at(self, path: Array, time: Array) -> tuple[Array, Array]:
        """Positions and velocities between the way-points."""
        duration = jnp.asarray(self.duration, path.dtype)
        begun = jnp.arange(self.count, dtype=path.dtype)
        s = jnp.clip(time / duration - begun, 0.0, 1.0)[:, None, None]
        ways = path[1:] - path[:-1]
        position = path[0] + jnp.sum(ways * s**3 * (10 - 15 * s + 6 * s**2), axis=0)
        velocity = jnp.sum(ways * 30 * s**2 * (1 - s) ** 2, axis=0) / duration
        return position, velocity


@pytree_dataclass
class Sampled:
    """A recorded or computed path: positions, joined by straight lines.

    Attributes:
        positions: (n, 3), m, world; or (n, k, 3) for k hands.
        dt: s, between two positions.
        loop: whether the first position follows the last; if not, the reference stays at the last.
    """

    positions: ArrayLike
    dt: ArrayLike
    loop: bool = static(default=False)

    def __post_init__(self) -> None:
        shape = np.shape(self.positions)
        if len(shape) not in (2, 3) or shape[-1] != 3 or shape[0] < 2:
            raise ConfigError(
                f"Sampled: positions have shape {shape}, expected (n, 3), or (n, k, 3) for k "
                "hands, with n >= 2."
            )

    def sample(self, key: Array, home: Array) -> tuple[()]:
        """No parameters: there is one path."""
        return ()

    def at(self, path: tuple[()], time: Array) -> tuple[Array, Array]:
        """Positions and velocities on the lines."""
        points = jnp.asarray(self.positions, time.dtype)
        if points.ndim == 2:
            points = points[:, None]
        if self.loop:
            points = jnp.concatenate([points, points[:1]])
        last = len(points) - 1
        dt = jnp.asarray(self.dt, time.dtype)
        passed = time / dt
        if self.loop:
            passed = passed - last * jnp.floor(passed / last)
        index = jnp.clip(jnp.floor(passed), 0, last - 1).astype(jnp.int32)
        ways = points[1:] - points[:-1]
        way = ways[index]
        moving = (passed < last).astype(time.dtype)
        part = jnp.clip(passed - index.astype(time.dtype), 0.0, 1.0)
        return points[index] + part * way, moving * way / dt
