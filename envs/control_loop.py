"""The control loop: from a controller's target to motion, between two actions of a policy.

    controller        (terms, target) -> nominal torque
    safety filter     the nearest torque within the actuators' range that keeps every barrier
    actuators         limits, gain, delay -> applied torque
    physics           one or more integration steps; the world moves along

All of it is one pure function of small arrays; data flow one way.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from fraxenv.controllers import Controller, MomentumObserver
from fraxenv.controllers.observer import ObserverState
from fraxenv.controllers.safety.filter import (
    SafetyFilter,
    SafetyReport,
    no_safety_report,
    worse_report,
)
from fraxenv.controllers.safety.foresight import WayOut, closer_way, way_out
from fraxenv.dynamics import (
    Actuators,
    ActuatorState,
    MemberSlices,
    Robot,
    Shape,
    Terms,
    compute_terms,
    move_obstacles,
    terms_with_payload,
    with_payload,
)
from fraxenv.dynamics import step as dynamics_step
from fraxenv.dynamics.actuation import felt_velocity
from fraxenv.dynamics.manifold import driven_part
from fraxenv.errors import ConfigError, check_count

from .payload import Load, carried
from .state import EnvParams
from .world import SceneState, World


@dataclass(frozen=True)
class Rates:
    """Rates, Hz, each a multiple of the one before.

    Attributes:
        policy: actions.
        control: updates of the controller.
        physics: integration steps.

    Raises:
        ConfigError: a rate is no whole number, or no multiple.
    """

    policy: int
    control: int
    physics: int

    def __post_init__(self) -> None:
        rates = {f"{name}_hz": rate for name, rate in vars(self).items()}
        for name, rate in rates.items():
            check_count(name, rate, of="Hz")
        for slow, fast in pairwise(rates):
            if rates[fast] % rates[slow]:
                raise ConfigError(
                    f"{fast}={rates[fast]} is not a multiple of {slow}={rates[slow]}. Choose a "
                    f"{fast} that is, e.g. {rates[slow] * max(1, rates[fast] // rates[slow])}."
                )


class Physics(ABC):
    """How a robot, and the objects around it, move under joint torques.

    It is a part of an environment's identity: hashable by content, and constant in its programs.
    The methods that are not abstract are those of a robot without a scene.
    """

    differentiable: ClassVar[bool]
    """Whether a step has derivatives."""

    @property
    def objects(self) -> Mapping[str, MemberSlices]:
        """Objects by name, and their entries in the arrays of a scene."""
        return {}

    @property
    def loose(self) -> tuple[str, ...]:
        """Names of the objects that are one body each, and move freely."""
        return ()

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Names of the geoms of each pair that may touch, in the order of `World.contacts`."""
        return ()

    def check(self, where: str, params: EnvParams) -> None:
        """Check that this physics has what an environment's parameters need.

        Args:
            where: name of the environment.
            params: its parameters.

        Raises:
            ConfigError: it has not.
        """
        if params.scene is not None:
            raise ConfigError(
                f"{where}: params.scene is set, expected None: the environment has a robot, and no "
                "scene. Make it of one: fraxenv.make(robot=scene, ...)."
            )
        random = params.randomisation
        if random is not None and random.of_scenes:
            raise ConfigError(
                f"{where}: randomisation of {', '.join(random.of_scenes)}, expected none of these: "
                "the environment has a robot, and no scene. Leave them out."
            )

    def nominal(self, robot: Robot, params: EnvParams) -> Robot:
        """The robot as the parameters have it; `robot` is the environment's own."""
        return robot if params.robot is None else params.robot

    def model(
        self,
        robot: Robot,
        true_robot: Robot | None,
        params: EnvParams,
        drawn: Mapping[str, Any],
    ) -> Any:
        """What is moved: the robot, or the true one if it is another, or a scene of it.

        `drawn` are the factors of a scene, `RandomisedEpisode.scene`; none of a robot.
        """
        return robot if true_robot is None else true_robot

    def begin(self, where: str, world: World, dtype: DTypeLike) -> World:
        """A task's initial world, with all that the physics moves.

        Args:
            where: name of what gave the world.
            world: the world.
            dtype: of the arrays.

        Raises:
            ConfigError: it has objects that the physics does not.
        """
        if world.scene is not None:
            raise ConfigError(
                f"{where} has the objects {', '.join(world.objects)}, expected none: the "
                "environment has no scene. Make it of one: fraxenv.make(robot=scene, ...)."
            )
        return world

    def at_action(self, scene: SceneState | None) -> SceneState | None:
        """The scene's state at the beginning of a policy step."""
        return scene

    def terms(
        self, model: Any, q: Array, v: Array, scene: SceneState | None
    ) -> tuple[Terms, Terms]:
        """Terms of the robot, for the controller; and of the model, for `step`."""
        terms = compute_terms(model, q, v)
        return terms, terms

    @abstractmethod
    def step(
        self,
        model: Any,
        q: Array,
        v: Array,
        tau: Array,
        dt: Array,
        terms: Terms | None,
        scene: SceneState | None,
    ) -> tuple[Array, Array, SceneState | None]:
        """Configuration (nq,) and velocity (nv,) after `dt`, s, under the torques `tau` (nv,).

        Args:
            model: what is moved, as `model` returns it.
            q: (nq,), of the robot, rad and m.
            v: (nv,), likewise, rad/s and m/s.
            tau: (nv,), N m and N.
            dt: s.
            terms: the model's at this state; None for the physics to compute them.
            scene: `World.scene`, the rest of what is moved.

        Returns:
            Configuration, velocity, and the scene's next state.
        """

    def report(self, world: World) -> dict[str, Any]:
        """Entries of `info` about the last policy step."""
        return {}

    def shapes(self, world: World, sizes: Mapping[str, ArrayLike] | None = None) -> list[Shape]:
        """Shapes of the world besides obstacles, to be drawn; the arrays are on the host.

        Args:
            world: the world.
            sizes: `EnvState.sizes`; None where all objects are as they are.
        """
        return []

    def force_shapes(
        self, q: ArrayLike, world: World, sizes: Mapping[str, ArrayLike] | None = None
    ) -> list[Shape]:
        """Shapes of the contact forces, to be drawn; the arrays are on the host.

        Of each pair that touches, a ball in the middle of its points, and from there a line along
        the normal force on the second geom, the longer the stronger: 1 cm at 1 N, 15 cm at 30 N,
        never 30 cm.

        Args:
            q: (nq,), of the robot, rad and m.
            world: at the same moment.
            sizes: `EnvState.sizes`; None where all objects are as they are.
        """
        return []


@dataclass(frozen=True)
class RigidBodyPhysics(Physics):
    """`fraxenv.dynamics.step`: semi-implicit Euler, with implicit damping, friction and stops."""

    differentiable: ClassVar[bool] = True

    def step(
        self,
        model: Any,
        q: Array,
        v: Array,
        tau: Array,
        dt: Array,
        terms: Terms | None,
        scene: SceneState | None,
    ) -> tuple[Array, Array, SceneState | None]:
        """Configuration (nq,) and velocity (nv,) after `dt`, s."""
        return *dynamics_step(model, q, v, tau, dt, terms=terms), scene


class LoopState(NamedTuple):
    """The part of an environment's state that the control loop changes.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        world: the robot's surroundings.
        controller: state of the controller.
        actuators: state of the motors.
        observer: state of the observer; None without one.
    """

    q: Array
    v: Array
    world: World
    controller: Any
    actuators: ActuatorState
    observer: ObserverState | None = None


class LoopParts(NamedTuple):
    """The parts of the control loop.

    Attributes:
        robot: the model that controller, filter and motors have.
        model: what the physics moves, `Physics.model`.
        nominal: whether the robot that moves has the numbers of `robot`.
        controller: the control law.
        safety: the filter of its torques; None for none.
        actuators: the motors.
        physics: how it moves.
        load: what the first model carries besides; None for nothing.
        observer: of torques that the first model lacks; None for none.
    """

    robot: Robot
    model: Any
    nominal: bool
    controller: Controller[Any]
    safety: SafetyFilter | None
    actuators: Actuators
    physics: Physics
    load: Load | None = None
    observer: MomentumObserver | None = None


def loaded(
    robot: Robot, terms: Terms, load: Load | None, scene: SceneState | None
) -> tuple[Robot, Terms]:
    """The robot with what it carries, and its terms."""
    if load is None:
        return robot, terms
    payload = carried(load, robot, terms, scene)
    return with_payload(robot, payload), terms_with_payload(robot, terms, payload)


def informed(
    observer: MomentumObserver | None,
    robot: Robot,
    terms: Terms,
    state: ObserverState | None,
    dt: Array,
) -> tuple[ObserverState | None, tuple[Terms, Terms]]:
    """The observer's state of this moment, and the terms of controller and of filter."""
    if observer is None:
        return None, (terms, terms)
    state = observer(robot, terms, cast(ObserverState, state), dt)
    seen = observer.ahead(robot, terms, state, dt)
    each = {"both": (seen, seen), "controller": (seen, terms), "safety": (terms, seen)}
    return state, each[observer.informs]


def steps_ahead(observer: MomentumObserver | None) -> int:
    """How many control steps on the state is that the filter is given."""
    return 0 if observer is None or observer.informs == "controller" else observer.late


def look_ahead(
    parts: LoopParts, state: LoopState, rates: Rates, way: WayOut | None = None
) -> WayOut | None:
    """The way out of what moves, for the control steps of one policy step; None without foresight.

    Args:
        parts: see `control_loop`.
        state: at the beginning of the policy step.
        rates: of policy, controller and physics.
        way: what this function returned, for the second stage: the way without a margin.
    """
    safety, observer = parts.safety, parts.observer
    if safety is None or safety.foresight is None or not safety.barriers:
        return None
    terms = compute_terms(parts.robot, state.q, state.v)
    scene, late = state.world.scene, steps_ahead(observer)
    robot, terms = loaded(parts.robot, terms, parts.load, scene)
    dt = jnp.asarray(1.0 / rates.control, state.q.dtype)
    # By the observer's last estimate: a load that it knows of leaves less to brake with.
    if observer is not None and observer.informs != "controller":
        terms = observer.ahead(robot, terms, cast(ObserverState, state.observer), dt)
    obstacles = state.world.obstacles
    obstacles = move_obstacles(obstacles, dt * late) if late else obstacles
    # All of them: what is far away now may be the nearest at the end of a way.
    here = robot, terms, safety.barriers, obstacles, safety.foresight
    return way_out(*here, scene) if way is None else closer_way(*here, way, scene)


def control_loop(
    parts: LoopParts, state: LoopState, target: Any, rates: Rates, way: WayOut | None = None
) -> tuple[LoopState, dict[str, Array], SafetyReport]:
    """The control steps of one policy step.

    Args:
        parts: robot, controller, filter, motors, physics.
        state: at the beginning of the policy step.
        target: of the controller, for the whole policy step.
        rates: of policy, controller and physics.
        way: of `look_ahead`, from this state.

    Returns:
        The state afterwards; the telemetry of the last control step, with `torque` (nv,), N m and
        N, commanded, and `saturation`, the fraction of the joints of which the controller asked for
        more than the motors' range; the worst of the filter's reports.
    """
    bare, model, nominal, controller, safety, actuators, physics, load, observer = parts
    dtype = state.q.dtype
    dt = jnp.asarray(1.0 / rates.physics, dtype)
    control_dt = jnp.asarray(1.0 / rates.control, dtype)
    policy_dt = jnp.asarray(1.0 / rates.policy, dtype)
    late = steps_ahead(observer)
    if safety is not None:
        nearby = safety.look_around(bare, state.q, state.world.obstacles)

    def control_step(carry: tuple[Any, ...], k: Array) -> tuple[tuple[Any, ...], dict[str, Array]]:
        q, v, scene, controller_state, actuator_state, observed, worst = carry
        known: Terms | None = None
        if nominal:
            terms, known = physics.terms(model, q, v, scene)
        else:
            terms = compute_terms(bare, q, v)
        robot, terms = loaded(bare, terms, load, scene)
        observed, told = informed(observer, robot, terms, observed, control_dt)
        tau, controller_state, telemetry = controller(
            robot, told[0], target, controller_state, control_dt
        )
        felt = felt_velocity(robot, v, terms.mass_matrix, control_dt)
        lower, upper = actuators.range(robot, felt, actuator_state, control_dt)
        saturated = driven_part(robot, (tau < lower) | (tau > upper))
        if safety is not None:
            then = k + late if late else k
            obstacles = move_obstacles(nearby, control_dt * then.astype(dtype))
            error = None if safety.robust is None or observed is None else observed.error
            bounds = lower, upper
            tau, report = safety(robot, told[1], tau, dt, obstacles, bounds, scene, error, way)
            worst = worse_report(worst, report)
        applied, commanded, actuator_state = actuators(robot, tau, felt, actuator_state, control_dt)
        if observer is not None:
            there = cast(ObserverState, observed)
            observed = observer.after(robot, terms, commanded, there, control_dt, dt)
        q, v, scene = physics.step(model, q, v, applied, dt, known, scene)

        def again(moving: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
            q, v, scene = moving
            return physics.step(model, q, v, applied, dt, None, scene), None

        moving, others = (q, v, scene), rates.physics // rates.control - 1
        if others > 1:  # one step's program, however many follow
            moving, _ = jax.lax.scan(again, moving, None, others)
        elif others == 1:
            moving, _ = again(moving, None)
        q, v, scene = moving
        telemetry |= {"saturation": jnp.mean(saturated.astype(dtype)), "torque": commanded}
        carry = (q, v, scene, controller_state, actuator_state, observed, worst)
        return carry, telemetry

    scene = physics.at_action(state.world.scene)
    safe = no_safety_report(dtype)
    start = (state.q, state.v, scene, state.controller, state.actuators, state.observer, safe)
    steps = jnp.arange(rates.control // rates.policy, dtype=jnp.int32)
    # Derivatives keep the state between control steps, and compute each of them again.
    remembering = jax.checkpoint(control_step, prevent_cse=False)
    carry, telemetry = jax.lax.scan(remembering, start, steps)
    q, v, scene, controller_state, actuator_state, observed, worst = carry
    obstacles = move_obstacles(state.world.obstacles, policy_dt)
    world = dataclasses.replace(state.world, obstacles=obstacles, scene=scene)
    last = jax.tree.map(lambda x: x[-1], telemetry)
    return LoopState(q, v, world, controller_state, actuator_state, observed), last, worst
