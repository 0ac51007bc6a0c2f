"""Trot: a robot of four legs goes to a place in a trot, and trots on there.

Gait and what counts are those of MuJoCo MPC's quadruped (`mjpc/tasks/quadruped`, Howell et al.,
"Predictive sampling: real-time behaviour synthesis with MuJoCo", arXiv 2212.00541).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.controllers.hands import EndEffectors, Hands
from fraxenv.controllers.planning.legs import swing_heights
from fraxenv.dynamics import Robot, Shape, forward_kinematics, frame_pose
from fraxenv.dynamics.manifold import among_all, driven_part, scalar_coordinates
from fraxenv.dynamics.math.algebra import matmul, norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, is_concrete

from .base import Motion, Task
from .grasping import pad_forces
from .measures import Measure
from .pose_goals import GOAL_COLOR, near_default
from .walking import FLOOR, foot_radius

TROT_WEIGHTS = {
    "goal": 0.3,
    "goal_fine": 0.2,
    "feet": 0.5,
    "upright": 0.2,
    "height": 0.1,
    "heading": 0.2,
    "slip": -0.1,
    "posture": -0.1,
    "action_rate": -5e-3,
    "joint_velocity": -2e-4,
}

FAR, NEAR = 0.3, 0.05
"""m, of the way to go, where the rewards for it fall to a quarter."""

OFF = 0.015
"""m, of a foot from where it should be, likewise."""

LOW = 0.05
"""m, of the trunk from its height, likewise."""

DISC = 0.004
"""m, thickness of the marker of the place to go to."""


@pytree_dataclass
class TrotState:
    """Where to go, and the gait.

    Attributes:
        goal: (2,), m, where the head has to be, x and y, world.
        time: (), s, of the gait: its first period begins at zero.
        seen: (), s, the `time` that `foot_error` is of.
        foot_error: (), m, how far feet are from where they should be, in the mean of all of them
            and over about the last period.
    """

    goal: Array
    time: Array
    seen: Array
    foot_error: Array


@pytree_dataclass
class Trot(Task):
    """Go to a place in a trot: diagonal legs swing together, the others stand.

    Heights of feet are given by the gait at any time, which begins anywhere in its period; all else
    is free. An episode ends where the robot falls, which no success is. Success is the head near
    its place, and the feet near their heights over about the last period.

    Attributes:
        end_effector: name of the frame that is sent to places, the head.
        trunk: name of the frame that is to stay upright.
        feet: names of frames of feet, and of their geoms.
        floor: name of the geom that they stand on.
        phases: (n,), of the feet, as shares of a period.
        cadence: periods per second.
        amplitude: m, height of a step.
        duty: share of a period for which a foot stands.
        height: m, of the trunk above the mean of the feet.
        start_noise: rad, largest deviation of each joint from the default configuration.
        goal_low: (2,), m, corner of the box of places, from where the head begins.
        goal_high: (2,), m, the other corner.
        fallen_height: m, of the trunk above the floor, below which the robot has fallen.
        fallen_tilt: rad, of the trunk, beyond which it has.
        position_tolerance: m, of the head from its place.
        foot_tolerance: m, of `TrotState.foot_error`.
        reward_weights: term -> weight; see `reward_terms`.

    Raises:
        ConfigError: there is another number of phases than of feet.
    """

    end_effector: EndEffectors = static(default="head")
    trunk: str = static(default="trunk")
    feet: tuple[str, ...] = static(default=("FL_foot", "RL_foot", "FR_foot", "RR_foot"))
    floor: str = static(default=FLOOR)
    phases: ArrayLike = (0.0, 0.5, 0.5, 0.0)
    cadence: ArrayLike = 2.0
    amplitude: ArrayLike = 0.03
    duty: ArrayLike = 0.45
    height: ArrayLike = 0.25
    start_noise: ArrayLike = 0.05
    goal_low: ArrayLike = (-0.3, -0.3)
    goal_high: ArrayLike = (0.6, 0.3)
    fallen_height: ArrayLike = 0.12
    fallen_tilt: ArrayLike = 1.0
    position_tolerance: ArrayLike = 0.05
    foot_tolerance: ArrayLike = 0.01
    reward_weights: Any = field(default_factory=lambda: dict(TROT_WEIGHTS))

    state_type: ClassVar[type | None] = TrotState

    observation_units: ClassVar[Mapping[str, str]] = {
        "trunk_height": "dm, above what is wanted",
        "trunk_axes": "1, two columns of the rotation matrix",
        "trunk_velocity": "m/s, trunk's axes",
        "trunk_turning": "rad/s, trunk's axes",
        "joint_position": "1 in the limits",
        "joint_velocity": "10 rad/s",
        "to_goal": "m, from the head, trunk's axes",
        "gait": "1, cosine and sine of the gait's phase",
        "swing": "1, wanted heights of feet, in parts of a step's",
        "foot_force": "50 N, of each foot on the floor",
        "last_action": "1",
    }

    def __post_init__(self) -> None:
        if not self.hands.alone:
            raise ConfigError(
                f"Trot: end_effector={self.end_effector!r}, expected one frame, such as 'head'."
            )
        if is_concrete(self.phases) and np.shape(self.phases) != (len(self.feet),):
            raise ConfigError(
                f"Trot: phases={self.phases!r}, expected one number for each of the feet "
                f"{', '.join(self.feet)}."
            )

    @property
    def hands(self) -> Hands:
        """The frame that is sent to places."""
        return Hands.of(self.end_effector)

    def check(self, robot: Robot) -> None:
        """Check that the robot has these frames, and that the numbers are possible.

        Raises:
            UnknownNameError: it lacks one.
            ConfigError: a number is not positive, the duty no share, or a box inside out.
        """
        for name in (self.hands.names[0], self.trunk):
            robot.frame(name)
        for name in self.feet:
            foot_radius(robot, name)
        for name in ("cadence", "amplitude", "height", "position_tolerance", "foot_tolerance"):
            value = getattr(self, name)
            if is_concrete(value) and not 0 < float(np.asarray(value)) < np.inf:
                raise ConfigError(f"Trot: {name}={value!r}, expected a positive number.")
        if is_concrete(self.duty) and not 0 < float(np.asarray(self.duty)) <= 1:
            raise ConfigError(f"Trot: duty={self.duty!r}, expected a share above 0, at most 1.")
        if is_concrete((self.goal_low, self.goal_high)):
            low, high = np.asarray(self.goal_low, float), np.asarray(self.goal_high, float)
            finite = np.isfinite([low, high]).all()
            if low.shape != (2,) or high.shape != (2,) or not (finite and (low <= high).all()):
                raise ConfigError(
                    f"Trot: goal_low={low.tolist()}, goal_high={high.tolist()} m; expected two "
                    "numbers each, x and y, the lower ones first."
                )

    def reset(self, key: Array, robot: Robot) -> tuple[Array, TrotState]:
        """Initial configuration (nq,) near the default one, standing; a place; a time."""
        key_start, key_goal, key_time = jax.random.split(key, 3)
        joints = len(robot.topology.driven)
        noise = jnp.broadcast_to(jnp.asarray(self.start_noise, float), (joints,))
        q = near_default(key_start, robot, among_all(robot, noise))
        poses = forward_kinematics(robot, q)
        above = [frame_pose(robot, q, foot, kin=poses)[0][2] for foot in self.feet]
        lowest = jnp.min(jnp.stack(above) - jnp.asarray(self._radii(robot), q.dtype))
        q = q.at[2].add(-lowest)
        head, _ = frame_pose(robot, q, self.hands.names[0])
        low, high = jnp.asarray(self.goal_low, q.dtype), jnp.asarray(self.goal_high, q.dtype)
        goal = head[:2] + low + (high - low) * jax.random.uniform(key_goal, (2,), q.dtype)
        time = jax.random.uniform(key_time, (), q.dtype) / jnp.asarray(self.cadence, q.dtype)
        return q, TrotState(goal, time, time, jnp.asarray(self.amplitude, q.dtype))

    def advance(self, state: TrotState, dt: Array) -> TrotState:
        """The gait goes on."""
        return replace(state, time=state.time + dt)

    def after(self, robot: Robot, motion: Motion, state: Any) -> TrotState:
        """What feet did counts."""
        off = jnp.mean(jnp.abs(self._feet_off(robot, motion, state)))
        share = jnp.minimum((state.time - state.seen) * jnp.asarray(self.cadence), 1.0)
        error = state.foot_error + share.astype(off.dtype) * (off - state.foot_error)
        seen: TrotState = replace(state, seen=state.time, foot_error=error)
        return seen

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Trunk, joints, the way to go, the gait, forces on the feet, the last action."""
        position, R = frame_pose(robot, motion.q, self.trunk, kin=motion.poses)
        dtype, floating = position.dtype, motion.v[:6]
        lower, upper = driven_part(robot, jnp.asarray(robot.position_limits, dtype)).T
        joints = driven_part(robot, scalar_coordinates(robot, motion.q))
        way = jnp.concatenate([self._way(robot, motion, state), jnp.zeros(1, dtype)])
        angle = 2 * jnp.pi * jnp.asarray(self.cadence, dtype) * state.time
        return {
            "trunk_height": 10.0 * (position[2] - self.standing(robot))[None],
            "trunk_axes": R[:, :2].T.ravel(),
            "trunk_velocity": matmul(R.T, floating[:3]),
            "trunk_turning": floating[3:],
            "joint_position": (joints - 0.5 * (lower + upper)) / (0.5 * (upper - lower)),
            "joint_velocity": 0.1 * driven_part(robot, motion.v),
            "to_goal": matmul(R.T, way),
            "gait": jnp.stack([jnp.cos(angle), jnp.sin(angle)]),
            "swing": self.heights(state.time) / jnp.asarray(self.amplitude, dtype),
            "foot_force": 0.02 * pad_forces(motion.world.contacts, self.feet, self.floor),
            "last_action": motion.action,
        }

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """Reward terms.

        `goal` and `goal_fine` (1 - tanh(d / 0.3 m) and 1 - tanh(d / 0.05 m) of the head from its
        place), `feet` (1 - tanh(off / 15 mm), mean of the feet), `upright` (cosine of the trunk's
        tilt), `height` (1 - tanh(off / 5 cm) of the trunk), `heading` (x of the trunk's x axis),
        `slip` (sum of the speeds at which feet slip, m/s), `posture` (squared deviation from the
        default configuration, rad^2), `action_rate` (squared change of the action),
        `joint_velocity` (squared, rad^2/s^2).
        """
        _, R = frame_pose(robot, motion.q, self.trunk, kin=motion.poses)
        way = norm(self._way(robot, motion, state))
        off = jnp.abs(self._feet_off(robot, motion, state))
        home = scalar_coordinates(robot, jnp.asarray(robot.q_default, motion.q.dtype))
        bent = driven_part(robot, scalar_coordinates(robot, motion.q) - home)
        joints = driven_part(robot, motion.v)
        change = motion.action - motion.previous_action
        slips = motion.world.contacts.between(self.feet, self.floor).slip_speed
        return {
            "goal": 1.0 - jnp.tanh(way / FAR),
            "goal_fine": 1.0 - jnp.tanh(way / NEAR),
            "feet": jnp.mean(1.0 - jnp.tanh(off / OFF)),
            "upright": R[2, 2],
            "height": 1.0 - jnp.tanh(jnp.abs(self._too_high(robot, motion)) / LOW),
            "heading": R[0, 0],
            "slip": jnp.sum(slips),
            "posture": jnp.sum(bent * bent),
            "action_rate": jnp.sum(change * change),
            "joint_velocity": jnp.sum(joints * joints),
        }

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        """`position_error` (m), `foot_error` (m), `tilt` (rad), `fallen` and `success` (bool)."""
        _, R = frame_pose(robot, motion.q, self.trunk, kin=motion.poses)
        way = norm(self._way(robot, motion, state))
        there = way < jnp.asarray(self.position_tolerance)
        trots = state.foot_error < jnp.asarray(self.foot_tolerance)
        fallen = self.terminated(robot, motion, state)
        across = norm(R[2, :2])
        return {
            "position_error": way,
            "foot_error": state.foot_error,
            "tilt": jnp.arctan2(across, R[2, 2]),
            "fallen": fallen,
            "success": there & trots & ~fallen,
        }

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Distance from the place, and how far off the feet are."""
        return (
            Measure(
                "position_error", "m", shown="cm", label="distance", below="position_tolerance"
            ),
            Measure("foot_error", "m", shown="mm", label="feet off", below="foot_tolerance"),
        )

    def terminated(self, robot: Robot, motion: Motion, state: Any) -> Array:
        """Whether the robot has fallen."""
        position, R = frame_pose(robot, motion.q, self.trunk, kin=motion.poses)
        low = position[2] < jnp.asarray(self.fallen_height)
        return low | (R[2, 2] < jnp.cos(jnp.asarray(self.fallen_tilt, position.dtype)))

    def heights(self, time: Array) -> Array:
        """Heights (..., n), m, that the gait asks for of the feet at times (...), s."""
        gait = (self.phases, self.cadence, self.amplitude, self.duty)
        return swing_heights(time, *(jnp.asarray(x, time.dtype) for x in gait)).astype(time.dtype)

    def standing(self, robot: Robot) -> Array:
        """Height of the trunk above the floor (), m, on feet that stand."""
        return jnp.asarray(self.height) + float(np.mean(self._radii(robot)))

    def goals(self, state: TrotState) -> list[tuple[Array, Array]]:
        """The place, on the floor."""
        return [(jnp.append(state.goal, 0.0), jnp.eye(3, dtype=state.goal.dtype))]

    def with_goal(self, state: Any, i: int, position: ArrayLike, rotation: ArrayLike) -> TrotState:
        """The state with another place."""
        goal = jnp.asarray(position, state.goal.dtype)[:2]
        moved: TrotState = replace(state, goal=goal)
        return moved

    def markers(self, state: Any) -> list[Shape]:
        """A disc on the floor, below where the head has to be."""
        radius = float(np.asarray(self.position_tolerance))
        place = np.array([*np.asarray(state.goal, float), 0.5 * DISC])
        return [Shape("cylinder", (radius, DISC), place, rgba=GOAL_COLOR)]

    def _feet_off(self, robot: Robot, motion: Motion, state: TrotState) -> Array:
        """How far above where they should be feet (n,) are, m."""
        feet = [frame_pose(robot, motion.q, f, kin=motion.poses)[0][2] for f in self.feet]
        soles = jnp.stack(feet) - jnp.asarray(self._radii(robot), motion.q.dtype)
        return soles - self.heights(state.time)

    def _too_high(self, robot: Robot, motion: Motion) -> Array:
        """How far above its height the trunk () is, m."""
        position, _ = frame_pose(robot, motion.q, self.trunk, kin=motion.poses)
        return position[2] - self.standing(robot)

    def _way(self, robot: Robot, motion: Motion, state: TrotState) -> Array:
        """From the head to its place (2,), m, world."""
        head, _ = frame_pose(robot, motion.q, self.hands.names[0], kin=motion.poses)
        return state.goal - head[:2]

    def _radii(self, robot: Robot) -> list[float]:
        return [foot_radius(robot, foot) for foot in self.feet]
