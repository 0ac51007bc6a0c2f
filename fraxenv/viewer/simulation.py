"""The simulation of one environment, with a target and obstacles that can be moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fraxenv.controllers import OSC, ArmWithGripper, Controller, PoseTarget
from fraxenv.controllers.hands import EndEffectors, Hands
from fraxenv.dynamics import Robot, Shape, compute_terms
from fraxenv.dynamics.geometry.obstacles import replace_obstacle
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.envs import ActionAxis, Environment, EnvParams, EnvState, WithGripper
from fraxenv.envs.actions.hand import HandAction
from fraxenv.envs.steering import steering
from fraxenv.errors import ConfigError, check_choice

from ..recording import MemoryPolicy, Policy
from ..recording.policies import PlanningPolicy, with_memory
from ..recording.stepping import begin, split_final
from ..recording.stepping import step as recorded_step
from .snapshots import Snapshot, default_filter, hands_of
from .teleoperation import Command

TARGET, KEYS, POLICY, RANDOM = "the target", "keys or gamepad", "the policy", "random actions"
SHARED = "the policy, and keys"
"""What can move the robot. `SHARED` is the policy, where no keys are held."""

BY_KEYS = (KEYS, SHARED)
"""Of these, those that listen to keys and gamepad."""

UNTIL_STOPPED = np.asarray(2**31 - 1)
"""Policy steps of an episode that ends when a person says so."""

_Pose = tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]
_Program = Callable[..., Any]


@pytree_dataclass
class Follow(HandAction):
    """An action space without actions: the hands' targets are written into its state."""

    def axes(self, robot: Robot) -> tuple[ActionAxis, ...]:
        """None."""
        return ()

    def _goal(self, i: int, action: Array, here: PoseTarget, before: PoseTarget) -> PoseTarget:
        return before


class Simulation:
    """Steps one environment by what the hands are told, by a person, by a policy, or at random.

    Programs are compiled when they are first needed. Not for several threads.

    Args:
        env: the environment.
        params: its parameters.
        policy: as of `fraxenv.record`; None for none.
        seed: decides the episodes.

    Attributes:
        driver: what moves the robot: `TARGET`, `KEYS`, `POLICY`, `SHARED` or `RANDOM`; at first the
            policy, or else the first of those that there are.
        drivers: those that there are here.
        filtered: whether the safety filter changes anything.
        seed: of the next reset.
        has_gripper: whether the environment's actions have a number for it.
        no_keys: why keys and gamepad cannot move the robot; None where they can.
    """

    def __init__(
        self,
        env: Environment,
        params: EnvParams,
        policy: Policy | MemoryPolicy | None = None,
        seed: int = 0,
    ) -> None:
        self.env, self.params, self.seed = env, params, seed
        self.hands = hands_of(env, params)
        self.has_gripper = isinstance(params.action, WithGripper)
        self.no_keys = _no_steering(env, params, self.hands)
        policies = () if policy is None else (POLICY,)
        if self.no_keys is None:
            policies = (KEYS, *policies, *((SHARED,) if policies else ()))
        # Where the base floats, hands that follow targets have nothing to stand on.
        stands = len(env.robot.topology.driven) == env.robot.nv
        self.drivers = (*((TARGET,) if stands else ()), *policies, RANDOM)
        self._driver = self.drivers[0] if policy is None else POLICY
        self.filtered = params.safety is not None and params.safety.enabled
        self._act = None if policy is None else jax.jit(with_memory(policy))
        self._begin = None if policy is None else jax.jit(with_memory(policy).begin)
        self._path = jax.jit(policy.path) if isinstance(policy, PlanningPolicy) else None
        self._episode = 0
        self._free: list[_Pose] = []  # targets that are nobody's goals
        self._programs: dict[Any, _Program] = {}
        self._compiled: set[Any] = set()

    @property
    def driver(self) -> str:
        """What moves the robot."""
        return self._driver

    @driver.setter
    def driver(self, driver: str) -> None:
        check_choice("driver", driver, self.drivers)
        self._driver = driver

    @property
    def compiled(self) -> bool:
        """Whether the next step needs no new program, which can take a minute to compile."""
        return (self._driver == TARGET, self.filtered) in self._compiled

    def reset(self, step: int = 0) -> Snapshot:
        """The first snapshot of a new episode, of a seed always the same ones."""
        key = jax.random.fold_in(jax.random.key(self.seed), self._episode)
        self._episode += 1
        _, obs, state = jax.device_get(begin(self.env, self.own_params, key, 1))
        obs, state = jax.tree.map(lambda x: x[0], (obs, state))
        self.aim_here(state)
        return Snapshot(step, state, obs=obs, key=key)

    def restart(self, step: int = 0) -> Snapshot:
        """The first snapshot of the seed's first episode."""
        self._episode = 0
        return self.reset(step)

    def step(self, snapshot: Snapshot, command: Command | None = None) -> Snapshot:
        """The next snapshot; where the episode has ended, the first of the next one.

        A time limit ends it only where nobody but a policy acts, or chance: people have all time.

        Args:
            snapshot: now.
            command: of a person; None for none.
        """
        command = Command() if command is None else command
        target = self._driver == TARGET
        new = self._follow(snapshot, command) if target else self._act_by(snapshot, command)
        self._compiled.add((target, self.filtered))
        return self.reset(snapshot.step + 1) if new is None else new

    def _follow(self, snapshot: Snapshot, command: Command) -> Snapshot | None:
        """The next snapshot of hands that follow their targets; None where the episode has ended.

        Their actions are not the environment's own.
        """
        closed = snapshot.closed ^ command.toggles
        params, state = self._params(), snapshot.state
        key = jax.random.fold_in(snapshot.key, 1 + int(state.time))
        state = self._adapted(state, params)
        action = np.zeros(self.env.num_actions, state.q.dtype)
        if self.has_gripper:
            action[-1] = -1.0 if closed else 1.0
        obs, new, reward, ended, info = self._program("step", params)(key, state, action)
        if ended:
            return None
        return Snapshot(
            snapshot.step + 1, new, float(reward), info, obs, key=snapshot.key, closed=closed
        )

    def _act_by(self, snapshot: Snapshot, command: Command) -> Snapshot | None:
        """The next snapshot by one of the environment's actions; None where the episode has ended.

        It is the program that recordings are replayed by, so that what is seen can be recorded.
        """
        params, key, t = self._params(), snapshot.key, int(snapshot.state.time)
        state = self._adapted(snapshot.state, params)
        action, memory, closed, intervention = self._action(snapshot, command)
        batch = jax.tree.map(lambda x: np.asarray(x)[None], (state, action))
        out = jax.device_get(recorded_step(self.env, key, t, *batch, params))
        obs, new, out = jax.tree.map(lambda x: x[0], out)
        timed = self._driver not in BY_KEYS
        if out["terminations"] or (timed and new.time >= self.params.max_steps_in_episode):
            return None
        return Snapshot(
            snapshot.step + 1,
            new,
            float(out["rewards"]),
            split_final(out, None)[1]["infos"],
            obs,
            key=key,
            action=action,
            intervention=intervention,
            closed=closed,
            memory=memory,
            path=self._planned(memory, new, intervention),
        )

    def _planned(self, memory: Any, state: EnvState, intervention: bool) -> NDArray[Any] | None:
        """Where a policy that plans has the hands go, if it is what moves them."""
        if self._path is None or memory is None or intervention or self._driver == RANDOM:
            return None
        return np.asarray(self._path(memory, state))

    def _action(
        self, snapshot: Snapshot, command: Command
    ) -> tuple[NDArray[np.floating[Any]], Any, bool, bool]:
        """The action (k,), the policy's memory, whether the action closes the gripper, and whether
        it is the person's.
        """
        q, step = snapshot.state.q, snapshot.step
        if self._driver == KEYS or (self._driver == SHARED and command.given):
            closed = snapshot.closed ^ command.toggles
            action = self._program("steer", self.params)(
                q, *_of_hands(command, Hands.of(self.hands).count, q.dtype), np.asarray(closed)
            )
            return action, None, closed, True
        memory = snapshot.memory
        if self._act is not None and self._begin is not None and self._driver != RANDOM:
            key = jax.random.fold_in(jax.random.key(self.seed), 1_000_000 + step)
            memory = self._begin(snapshot.obs) if memory is None else memory
            action, memory = jax.device_get(self._act(snapshot.obs, key, memory))
            action = np.asarray(action, q.dtype)
        else:
            generator = np.random.default_rng([self.seed, step])
            action = generator.uniform(-1.0, 1.0, self.env.num_actions).astype(q.dtype)
        return action, memory, self.has_gripper and bool(action[-1] < 0), False

    # --- what can be moved ---

    def targets(self, state: EnvState) -> list[_Pose]:
        """Position and rotation of each hand's target."""
        goals = self.params.task.goals(state.task_state)
        return [(np.asarray(p), np.asarray(r)) for p, r in goals] or self._free

    def shows_targets(self, state: EnvState) -> bool:
        """Whether targets mean anything: as goals, or to who follows them."""
        return self._driver == TARGET or bool(self.params.task.goals(state.task_state))

    def aim_here(self, state: EnvState) -> None:
        """Put targets that are nobody's goals where the hands are."""
        self._free = _rows(self._program("poses", self.params)(state.q))

    def with_target(self, state: EnvState, hand: int, pose: _Pose) -> EnvState:
        """The state with the target of a hand elsewhere; its goal, where goals can be moved."""
        dtype, task = state.q.dtype, self.params.task
        position, rotation = (np.asarray(x, dtype) for x in pose)
        if not task.goals(state.task_state):
            self._free[hand] = position, rotation
            return state
        moved = jax.device_get(task.with_goal(state.task_state, hand, position, rotation))
        changed: EnvState = state.replace(task_state=moved)
        return changed

    # --- programs ---

    @property
    def own_params(self) -> EnvParams:
        """The parameters, with the filter as it is switched, and without a time limit."""
        safety = self.params.safety
        if self.filtered:
            safety = dataclasses.replace(safety or default_filter(self.env), enabled=True)
        elif safety is not None:
            safety = dataclasses.replace(safety, enabled=False)
        params: EnvParams = self.params.replace(safety=safety, max_steps_in_episode=UNTIL_STOPPED)
        return params

    def _params(self) -> EnvParams:
        """The parameters for what moves the robot now."""
        params = self.own_params
        if self._driver != TARGET:
            return params
        own, space = params.controller, params.action
        arm = own.arm if isinstance(own, ArmWithGripper) else own
        controller: Any = arm if isinstance(arm, OSC) else OSC(self.hands)
        action: Any = Follow(self.hands)
        if isinstance(space, WithGripper):
            # The servo goes on holding the fingers as far apart as they are told to be.
            action = dataclasses.replace(space, space=action)
            servo: Any = own if isinstance(own, ArmWithGripper) else space.controller()
            controller = dataclasses.replace(servo, arm=controller)
        followed: EnvParams = params.replace(action=action, controller=controller)
        return followed

    def _adapted(self, state: EnvState, params: EnvParams) -> EnvState:
        """The state as the controller and the action space of these parameters have it."""
        if self._driver == TARGET:
            position, rotation = zip(*self.targets(state), strict=True)
            target = PoseTarget(jnp.stack(position), jnp.stack(rotation))
            target = jax.device_get(Hands.of(self.hands).without_axis(target))
            own = (target, state.action_state[1]) if self.has_gripper else target
            state = state.replace(action_state=own)
        if isinstance(self.params.action, HandAction):
            return state
        fresh = self._program("init", params)(state.q, state.v)
        changes = {n: x for n, x in fresh.items() if not _alike(x, getattr(state, n))}
        adapted: EnvState = state.replace(**changes)
        return adapted

    def _program(self, what: str, params: EnvParams) -> _Program:
        """A compiled function of one environment's arrays, for one environment's on the host."""
        key = what, self._driver == TARGET, self.filtered
        if key not in self._programs:
            # A batch of one, because it is batches that the quick kernels are of.
            batch = jax.jit(jax.vmap(getattr(self, f"_{what}")(params)))

            def program(*args: Any) -> Any:
                out = batch(*jax.tree.map(lambda x: x[None], args))
                return jax.tree.map(lambda x: x[0], jax.device_get(out))

            self._programs[key] = program
        return self._programs[key]

    def _poses(self, params: EnvParams) -> _Program:
        """Of the hands."""
        return lambda q: Follow(self.hands).init(self.env.robot, q)

    def _steer(self, params: EnvParams) -> _Program:
        """The action for the hands' ways, and a gripper that is closed or open."""
        steer, space = steering(self.env, params, Hands.of(self.hands).names), params.action

        def action(q: Array, move: Array, turn: Array, closed: Array) -> Array:
            width = None
            if isinstance(space, WithGripper):
                width = jnp.where(closed, 0.0, jnp.asarray(space.max_width, q.dtype))
            return steer(q, list(zip(move, turn, strict=True)), width)

        return action

    def _step(self, params: EnvParams) -> _Program:
        def step(key: Array, state: EnvState, action: Array) -> Any:
            return self.env.step_env(key, state, action, params)

        return step

    def _init(self, params: EnvParams) -> _Program:
        robot, action = self.env.robot, params.action
        controller: Controller[Any] = params.controller
        return lambda q, v: {
            "action_state": action.init(robot, q),
            "controller_state": controller.init(robot, compute_terms(robot, q, v)),
        }


def _no_steering(env: Environment, params: EnvParams, hands: EndEffectors) -> ConfigError | None:
    """Why keys cannot move the hands; None where they can."""
    still, names = jnp.zeros(3), Hands.of(hands).names
    ways = [(still, still)] * len(names)
    try:
        steer = steering(env, params, names)
        jax.eval_shape(steer, jnp.asarray(env.robot.q_default), ways, still[0])
    except ConfigError as error:
        return error
    return None


def _of_hands(command: Command, count: int, dtype: Any) -> NDArray[np.floating[Any]]:
    """Displacements and turns (2, k, 3) of all hands, of which one is told to move."""
    ways = np.zeros((2, count, 3), dtype)
    ways[:, command.hand] = command.move, command.turn
    return ways


def with_obstacle(state: EnvState, index: int, shape: Shape) -> EnvState:
    """The state with another shape for the obstacle of an index of `world_shapes`, of its kind."""
    moved = replace_obstacle(state.world.obstacles, index, shape)
    changed: EnvState = state.replace(world=dataclasses.replace(state.world, obstacles=moved))
    return changed


def _alike(a: Any, b: Any) -> bool:
    """Whether two trees have the same structure."""
    structure: Any = jax.tree.structure(a)
    return bool(structure == jax.tree.structure(b))


def _with_row(array: Any, i: int, row: Any) -> NDArray[Any]:
    changed = np.array(array)
    changed[i] = row
    return changed


def _rows(poses: Any) -> list[_Pose]:
    """Each of `position` (k, 3), or (3,), and `rotation`."""
    position = np.asarray(poses.position).reshape(-1, 3)
    return list(zip(position, np.asarray(poses.rotation).reshape(-1, 3, 3), strict=True))
