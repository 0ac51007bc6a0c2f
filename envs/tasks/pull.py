"""Pull: a robot that stands on its feet pulls a sled by a handle, and its feet do not slip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot, Shape
from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from .base import Motion
from .measures import Measure
from .trot import Trot, TrotState
from .walking import SLED

PULL_WEIGHTS = {
    "pull": 0.5,
    "pull_fine": 0.5,
    "feet": 0.1,
    "upright": 0.2,
    "height": 0.1,
    "heading": 0.1,
    "slip": -0.5,
    "posture": -0.02,
    "action_rate": -5e-3,
    "joint_velocity": -2e-4,
}

SUNK = 0.001
"""m, how deep in the floor feet begin: about as deep as they stand, so that they carry at once."""

FAR, NEAR = 0.2, 0.02
"""m, of the way that the sled has to go, where the rewards for it fall to a quarter."""


@pytree_dataclass
class PullState(TrotState):
    """How far to pull, and how far feet have slipped.

    Attributes:
        distance: (), m, to pull.
        slipped: (n,), m, of each foot.
    """

    distance: Array
    slipped: Array


@pytree_dataclass
class Pull(Trot):
    """Pull a sled that resists with a constant force by a random distance, standing on all feet.

    Success is the sled within `pull_tolerance` of where it has to be, no foot slipped by more than
    `slip_tolerance` in the whole episode, and no fall.

    Attributes:
        hand: name of the frame that holds the sled's handle.
        object: name of the sled.
        distance_low: m, how far it has to be pulled, at least.
        distance_high: m, at most.
        pull_tolerance: m, of the sled from where it has to be.
        slip_tolerance: m, of the foot that slips most.
    """

    hand: str = static(default="hand")
    object: str = static(default=SLED)
    duty: ArrayLike = 1.0
    start_noise: ArrayLike = 0.0
    goal_low: ArrayLike = (0.0, 0.0)
    goal_high: ArrayLike = (0.0, 0.0)
    distance_low: ArrayLike = 0.25
    distance_high: ArrayLike = 0.35
    pull_tolerance: ArrayLike = 0.02
    slip_tolerance: ArrayLike = 0.005
    reward_weights: Any = field(default_factory=lambda: dict(PULL_WEIGHTS))

    state_type: ClassVar[type | None] = PullState

    observation_units: ClassVar[Mapping[str, str]] = {
        **Trot.observation_units,
        "pulled": "m, of the sled",
        "pull_speed": "m/s",
        "to_pull": "m, that lack",
    }

    def check(self, robot: Robot) -> None:
        """Check that the robot has these frames, and that the numbers are possible.

        Raises:
            UnknownNameError: it lacks one.
            ConfigError: a number is not possible.
        """
        super().check(robot)
        robot.frame(self.hand)

    def reset(self, key: Array, robot: Robot) -> tuple[Array, PullState]:
        """The default configuration (nq,), standing; how far to pull, m."""
        key_trot, key_far = jax.random.split(key)
        q, trot = super().reset(key_trot, robot)
        low, high = (jnp.asarray(x, q.dtype) for x in (self.distance_low, self.distance_high))
        far = low + (high - low) * jax.random.uniform(key_far, (), q.dtype)
        slipped = jnp.zeros(len(self.feet), q.dtype)
        return q.at[2].add(-SUNK), PullState(**vars(trot), distance=far, slipped=slipped)

    def after(self, robot: Robot, motion: Motion, state: Any) -> Any:
        """What feet did counts."""
        contacts = motion.world.contacts
        speed = jnp.stack([contacts.between(f, self.floor).slip_speed[0] for f in self.feet])
        slipped = state.slipped + (state.time - state.seen) * speed
        after: Any = super().after(robot, motion, state)
        return replace(after, slipped=slipped)

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """The terms of `Trot`, and how far and fast the sled was pulled, and what lacks."""
        sled = motion.world.objects[self.object]
        return {
            **super().observation_terms(robot, motion, state),
            "pulled": sled.q,
            "pull_speed": sled.v,
            "to_pull": state.distance - sled.q,
        }

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """The terms of `Trot` but those of the place, and `pull` and `pull_fine`.

        1 - tanh(d / 0.2 m) and 1 - tanh(d / 0.02 m) of the sled from where it has to be.
        """
        off = self._off(motion, state)
        terms = super().reward_terms(robot, motion, state)
        return {
            "pull": 1.0 - jnp.tanh(off / FAR),
            "pull_fine": 1.0 - jnp.tanh(off / NEAR),
            **{name: x for name, x in terms.items() if name not in ("goal", "goal_fine")},
        }

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """`pull_error` (m), `slipped` (m, of the worst foot), `tilt`, `fallen` and `success`."""
        off, worst = self._off(motion, state), jnp.max(state.slipped)
        stands = super().measures(robot, motion, state)
        near, fast = (
            off < jnp.asarray(self.pull_tolerance),
            worst < jnp.asarray(self.slip_tolerance),
        )
        return {
            "pull_error": off,
            "slipped": worst,
            "tilt": stands["tilt"],
            "fallen": stands["fallen"],
            "success": near & fast & ~stands["fallen"],
        }

    @property
    def reported(self) -> tuple[Measure, ...]:
        """What lacks, and how far feet have slipped."""
        return (
            Measure("pull_error", "m", shown="mm", label="lacks", below="pull_tolerance"),
            Measure("slipped", "m", shown="mm", below="slip_tolerance"),
        )

    def markers(self, state: Any) -> list[Shape]:
        """Nothing."""
        return []

    def _off(self, motion: Motion, state: Any) -> Array:
        """How far the sled is from where it has to be (), m."""
        sled: Any = motion.world.objects[self.object]
        off: Array = jnp.abs(state.distance - sled.q[0])
        return off
