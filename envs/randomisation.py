"""Domain randomisation, noise and delay.

Peng et al., "Sim-to-real transfer of robotic control with dynamics randomization", ICRA 2018.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.controllers import ArmWithGripper, Controller
from fraxenv.dynamics import Actuators, Payload, Robot, with_payload
from fraxenv.dynamics.delay import Delay, delay_of
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, is_concrete

from .tasks.base import Task

_RANGES = (
    "link_mass",
    "link_inertia",
    "damping",
    "friction",
    "armature",
    "motor_gain",
    "kp",
    "damping_ratio",
    "payload",
    "motor_delay",
    "action_delay",
    "observation_delay",
)
OF_SCENES = ("object_mass", "contact_friction", "pad_compliance", "object_size")
"""Ranges of factors, of environments with a scene."""

_POSITIVE = ("link_mass", "link_inertia", "object_mass", "pad_compliance", "object_size")
_SIZES = ("link_com", "payload_offset", "gravity", "start_velocity", "observation_noise")
_RESISTANCES = ("damping", "friction", "armature")


@pytree_dataclass
class Randomisation:
    """Ranges of uniform distributions, drawn from anew for every episode; None for no change.

    The physics has the drawn robot, and the controller and the safety filter have the nominal one,
    as on a real machine. Ranges are `(smallest, largest)`, and may be batched like all parameters:
    a curriculum is a change of `params.randomisation`.

    Attributes:
        link_mass: range of factors of every link's mass, and of its inertia with it.
        link_com: m, largest shift of every link's centre of mass along each axis.
        link_inertia: range of factors of every link's inertia, besides.
        payload: kg, range of a point mass in each hand, unknown to the controller.
        payload_offset: m, largest distance of the payload from the hand's origin along each axis.
        damping: N m s/rad or N s/m, range of viscous damping, added to that of every joint.
        friction: N m or N, range of Coulomb friction, added to that of every joint.
        armature: kg m^2 or kg, range of rotor inertia, added to that of every joint.
        motor_gain: range of factors between the torques commanded and applied, of each joint.
        motor_delay: s, range of the time from a torque command to the torque, in whole steps of the
            controller.
        gravity: m/s^2, largest change of gravity along each axis.
        kp: range of factors of the controller's stiffness.
        damping_ratio: range of factors of the controller's damping ratio.
        start_velocity: rad/s or m/s, largest initial velocity of each joint.
        observation_noise: standard deviation of Gaussian noise on every number of the observation,
            scalar or one for each; drawn at every step.
        observation_delay: s, range of the age of observations, in whole policy steps.
        action_delay: s, range of the time from an action to its effect, in whole policy steps.
        object_mass: range of factors of the mass of every object of a scene, and of its inertia.
        contact_friction: range of factors of all friction between a scene's geoms.
        pad_compliance: range of factors of the time constants, `solref`, of the robot's geoms in a
            scene: the greater, the softer what it touches is to it.
        object_size: range of factors of the size of every object of a scene that moves freely; its
            mass stays, and its task's numbers follow, `Task.resized`.
        end_effectors: the hands that carry payloads.
        steps: lengths of the longest delays of motors, observations and actions, in steps; None to
            have the environment work them out from the ranges.

    Raises:
        ConfigError: a range or a size is not possible.
    """

    link_mass: ArrayLike | None = None
    link_com: ArrayLike | None = None
    link_inertia: ArrayLike | None = None
    payload: ArrayLike | None = None
    payload_offset: ArrayLike | None = None
    damping: ArrayLike | None = None
    friction: ArrayLike | None = None
    armature: ArrayLike | None = None
    motor_gain: ArrayLike | None = None
    motor_delay: ArrayLike | None = None
    gravity: ArrayLike | None = None
    kp: ArrayLike | None = None
    damping_ratio: ArrayLike | None = None
    start_velocity: ArrayLike | None = None
    observation_noise: ArrayLike | None = None
    observation_delay: ArrayLike | None = None
    action_delay: ArrayLike | None = None
    object_mass: ArrayLike | None = None
    contact_friction: ArrayLike | None = None
    pad_compliance: ArrayLike | None = None
    object_size: ArrayLike | None = None
    end_effectors: tuple[str, ...] = static(default=())
    steps: tuple[int, int, int] | None = static(default=None)

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Check all numbers, except traced ones.

        Raises:
            ConfigError: a range or a size is not possible.
        """
        room = self.steps
        three = isinstance(room, tuple) and len(room) == 3
        if room is not None and not (three and all(isinstance(n, int) and n >= 0 for n in room)):
            raise ConfigError(
                f"Randomisation: steps={room!r}, expected three whole numbers at least zero, or "
                "None for those that are needed."
            )
        for name in (*_RANGES, *OF_SCENES, *_SIZES):
            value = getattr(self, name)
            if value is None or not is_concrete(value):
                continue
            try:
                numbers = np.asarray(value, float)
            except (OverflowError, TypeError, ValueError):
                numbers = np.array(np.nan)
            if name not in _SIZES:
                valid = numbers.shape[-1:] == (2,) and bool(
                    np.all(numbers[..., 0] <= numbers[..., 1])
                )
                expected = "(smallest, largest)"
            else:
                valid, expected = True, "a number"
            if not (valid and np.isfinite(numbers).all() and (numbers >= 0).all()):
                raise ConfigError(
                    f"Randomisation: {name}={value!r}, expected {expected}, finite and at least "
                    "zero; None leaves it out."
                )
            if name in _POSITIVE and not (numbers > 0).all():
                raise ConfigError(
                    f"Randomisation: {name}={value!r}, expected factors greater than zero: nothing "
                    "massless can move, and nothing is without give or size."
                )

    @property
    def of_scenes(self) -> tuple[str, ...]:
        """Names of what is drawn of a scene."""
        return tuple(name for name in OF_SCENES if getattr(self, name) is not None)

    def sized(self, control_hz: int, policy_hz: int) -> Randomisation:
        """A copy with `steps` for the longest delays of the ranges.

        Raises:
            ConfigError: `steps` is set, and too short.
        """
        rates = (control_hz, policy_hz, policy_hz)
        ranges = (self.motor_delay, self.observation_delay, self.action_delay)
        motor, observation, action = (
            0 if r is None else math.ceil(round(float(np.max(np.asarray(r))) * rate, 6))
            for r, rate in zip(ranges, rates, strict=True)
        )
        needed = (motor, observation, action)
        if self.steps is not None:
            longer = [n > have for n, have in zip(needed, self.steps, strict=True)]
            if any(longer):
                raise ConfigError(
                    f"Randomisation: delays of up to {needed} steps (motors, observations, "
                    f"actions), but steps={self.steps} is what there is room for. Make the "
                    "environment with the longest delays that will be used, or with steps=..."
                )
            return self
        return dataclasses.replace(self, steps=needed)


@pytree_dataclass
class RandomisedEpisode:
    """An episode's draws from a `Randomisation`, and its delayed signals; None without a delay.

    Attributes:
        robot: draws by the name of their range: factors (nb,) of masses and of inertias, shifts
            (nb, 3), m, of centres of mass, masses (), kg, and offsets (3,), m, of payloads by hand,
            what is added (nv,) to what resists joints, and to gravity (3,), m/s^2. The robot
            itself, nearly twice the numbers, would have to be carried from step to step.
        controller: the controller's fields with other values than the nominal ones.
        actuators: the actuators', likewise.
        observations: (m,), on their way to the policy.
        actions: (k,), on their way to the controller.
        scene: factors by kind: of friction () and time constants (), and of masses and sizes of
            objects, () each by name.
    """

    robot: dict[str, Any]
    controller: dict[str, Array]
    actuators: dict[str, Array]
    observations: Delay | None = None
    actions: Delay | None = None
    scene: dict[str, Any] = field(default_factory=dict)

    def true_robot(self, nominal: Robot) -> Robot | None:
        """The robot of the physics; None for the nominal one."""
        return _with_draws(nominal, self.robot) if self.robot else None

    def own_controller(self, nominal: Controller[Any]) -> Controller[Any]:
        """The controller with this episode's gains; a gripper's servo keeps its own."""
        if isinstance(nominal, ArmWithGripper):
            return dataclasses.replace(nominal, arm=_with_fields(nominal.arm, self.controller))
        return _with_fields(nominal, self.controller)

    def own_actuators(self, nominal: Actuators) -> Actuators:
        """The actuators with this episode's gain and delay."""
        return _with_fields(nominal, self.actuators)

    def own_task(self, nominal: Task) -> Task:
        """The task of this episode's objects."""
        return nominal.resized(self.sizes) if self.sizes else nominal

    @property
    def sizes(self) -> Mapping[str, Array]:
        """Factors () of the sizes of objects by name; none where they are as they are."""
        sizes: Mapping[str, Array] = self.scene.get("object_size", {})
        return sizes


ConfigurationT = TypeVar("ConfigurationT")


def _with_fields(nominal: ConfigurationT, drawn: dict[str, Array]) -> ConfigurationT:
    return dataclasses.replace(nominal, **drawn) if drawn else nominal  # type: ignore[type-var]


def draw_episode(
    key: Array,
    randomisation: Randomisation,
    robot: Robot,
    controller: Controller[Any],
    actuators: Actuators,
    policy_hz: int,
    action: Array,
    observation: Array,
    scene: dict[str, Any],
) -> RandomisedEpisode:
    """Draw an episode.

    Args:
        key: decides all draws.
        randomisation: the ranges.
        robot: the nominal robot.
        controller: the nominal controller.
        actuators: the nominal actuators.
        policy_hz: actions per second.
        action: (k,), in effect until the first one arrives.
        observation: (m,), seen until the first one arrives.
        scene: what is drawn of the scene, `draw_scene`.

    Raises:
        ConfigError: there is a delay, and `randomisation.steps` is None.
    """
    ranges, dtype = randomisation, observation.dtype
    names = (*_RANGES, *_SIZES)
    keys = dict(zip(names, jax.random.split(key, len(names)), strict=True))
    arm = controller.arm if isinstance(controller, ArmWithGripper) else controller
    gains = {
        name: _between(keys[name], getattr(ranges, name), (), dtype)
        * jnp.asarray(getattr(arm, name), dtype)
        for name in ("kp", "damping_ratio")
        if getattr(ranges, name) is not None and hasattr(arm, name)
    }
    motors: dict[str, Array] = {}
    if ranges.motor_gain is not None:
        nominal = 1.0 if actuators.gain is None else actuators.gain
        factor = _between(keys["motor_gain"], ranges.motor_gain, (robot.nv,), dtype)
        motors["gain"] = factor * jnp.asarray(nominal, dtype)
    if ranges.motor_delay is not None:
        motors["delay"] = _between(keys["motor_delay"], ranges.motor_delay, (), dtype)

    def delayed(what: str, value: Array, longest: int) -> Delay | None:
        bounds = getattr(ranges, what)
        if bounds is None:
            return None
        return delay_of(value, _between(keys[what], bounds, (), dtype) * policy_hz, longest)

    delays = (ranges.motor_delay, ranges.observation_delay, ranges.action_delay)
    if ranges.steps is None and any(x is not None for x in delays):
        raise ConfigError(
            "Randomisation: a delay is set, and steps is None, expected how many steps there is "
            "room for. Make the environment with these ranges, or give them steps=..."
        )
    _, longest_observation, longest_action = ranges.steps or (0, 0, 0)
    return RandomisedEpisode(
        _draw_robot(keys, ranges, robot, dtype),
        gains,
        motors,
        delayed("observation_delay", observation, longest_observation),
        delayed("action_delay", action, longest_action),
        scene,
    )


def draw_scene(
    key: Array,
    randomisation: Randomisation,
    objects: Sequence[str],
    loose: Sequence[str],
    dtype: Any,
) -> dict[str, Any]:
    """Draw an episode's factors of a scene, `RandomisedEpisode.scene`.

    Args:
        key: the one of `draw_episode`.
        randomisation: the ranges.
        objects: names of those that the scene has.
        loose: names of those that move freely.
        dtype: of the factors.
    """
    drawn: dict[str, Any] = {}
    things = {"object_mass": objects, "object_size": loose}
    for i, name in enumerate(OF_SCENES, len((*_RANGES, *_SIZES))):
        if name not in randomisation.of_scenes:
            continue
        shape = (len(things[name]),) if name in things else ()
        # After those of `split`.
        factors = _between(jax.random.fold_in(key, i), getattr(randomisation, name), shape, dtype)
        drawn[name] = dict(zip(things[name], factors, strict=True)) if name in things else factors
    return drawn


def draw_velocity(key: Array, randomisation: Randomisation | None, v: Array) -> Array:
    """Initial velocity (nv,), rad/s and m/s; `v` without randomisation."""
    if randomisation is None or randomisation.start_velocity is None:
        return v
    return _within(key, randomisation.start_velocity, v.shape, v.dtype)


def with_noise(key: Array, randomisation: Randomisation | None, obs: Array) -> Array:
    """The observation (m,) with noise."""
    if randomisation is None or randomisation.observation_noise is None:
        return obs
    size = jnp.asarray(randomisation.observation_noise, obs.dtype)
    return obs + size * jax.random.normal(key, obs.shape, obs.dtype)


def _between(key: Array, bounds: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    low, high = jnp.asarray(bounds, dtype)
    drawn: Array = low + (high - low) * jax.random.uniform(key, shape, dtype)
    return drawn


def _within(key: Array, size: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """Draws from minus to plus a size."""
    return jnp.asarray(size, dtype) * jax.random.uniform(key, shape, dtype, -1.0, 1.0)


def _draw_robot(
    keys: dict[str, Array], ranges: Randomisation, robot: Robot, dtype: Any
) -> dict[str, Any]:
    """What is drawn of the robot, `RandomisedEpisode.robot`."""
    nb, nv = robot.nb, robot.nv
    drawn: dict[str, Any] = {}
    for name in ("link_mass", "link_inertia"):
        if getattr(ranges, name) is not None:
            drawn[name] = _between(keys[name], getattr(ranges, name), (nb,), dtype)
    if ranges.link_com is not None:
        drawn["link_com"] = _within(keys["link_com"], ranges.link_com, (nb, 3), dtype)
    hands = ranges.end_effectors
    if ranges.payload is not None and hands:
        loads = _between(keys["payload"], ranges.payload, (len(hands),), dtype)
        drawn["payload"] = dict(zip(hands, loads, strict=True))
        if ranges.payload_offset is not None:
            shape = len(hands), 3
            offsets = _within(keys["payload_offset"], ranges.payload_offset, shape, dtype)
            drawn["payload_offset"] = dict(zip(hands, offsets, strict=True))
    for name in _RESISTANCES:
        bounds = getattr(ranges, name)
        if bounds is not None:
            more = _between(keys[name], bounds, (nv,), dtype)
            drawn[name] = jnp.where(_in_joints(robot), more, 0.0)
    if ranges.gravity is not None:
        drawn["gravity"] = _within(keys["gravity"], ranges.gravity, (3,), dtype)
    return drawn


def _with_draws(nominal: Robot, drawn: Mapping[str, Any]) -> Robot:
    """The robot with an episode's draws."""
    dtype = jax.tree.leaves(drawn)[0].dtype
    changed: dict[str, Any] = {}

    def own(name: str) -> Array:
        value: Array = changed.get(name, jnp.asarray(getattr(nominal, name), dtype))
        return value

    if "link_mass" in drawn:
        factor = drawn["link_mass"]
        changed["mass"] = factor * own("mass")
        changed["inertia"] = factor[:, None, None] * own("inertia")
    if "link_inertia" in drawn:
        changed["inertia"] = drawn["link_inertia"][:, None, None] * own("inertia")
    if "link_com" in drawn:
        changed["com"] = own("com") + drawn["link_com"]
    for name in (*_RESISTANCES, "gravity"):
        if name in drawn:
            changed[name] = own(name) + drawn[name]
    robot = dataclasses.replace(nominal, **changed)
    for hand, load in drawn.get("payload", {}).items():
        offset = drawn["payload_offset"][hand] if "payload_offset" in drawn else jnp.zeros(3, dtype)
        robot = with_payload(robot, Payload(hand, load, offset))
    return robot


def _in_joints(robot: Robot) -> np.ndarray:
    """Mask (nv,) of the degrees of freedom of joints; a floating base has no friction."""
    joints = robot.topology.joints
    sizes = np.diff(robot.topology.v_index)
    return np.repeat([joint.kind != "floating" for joint in joints], sizes)
