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

from fraxenv.controllers import OSC, Controller, PoseTarget
from fraxenv.controllers.hands import Hands
from fraxenv.dynamics import Robot, Shape, compute_terms
from fraxenv.dynamics.geometry.obstacles import replace_obstacle
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.envs import ActionAxis, Environment, EnvParams, EnvState
from fraxenv.envs.actions.hand import HandAction
from fraxenv.errors import check_choice

from ..recording import Policy
from .snapshots import Snapshot, default_filter, hands_of

TARGET, POLICY, RANDOM = "the target", "the policy", "random actions"
"""What can move the robot."""

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
    """Steps one environment by what the hands are told, by a policy, or at random.

    Programs are compiled when they are first needed. Not for several threads.

    Args:
        env: the environment.
        params: its parameters.
        policy: as of `fraxenv.record`; None for none.
        seed: decides the episodes.

    Attributes:
        driver: what moves the robot: `TARGET`, `POLICY` or `RANDOM`.
        filtered: whether the safety filter changes anything.
        seed: of the next reset.
    """

    def __init__(
        self, env: Environment, params: EnvParams, policy: Policy | None = None, seed: int = 0
    ) -> None:
        self.env, self.params, self.seed = env, params, seed
        self.hands = hands_of(env, params)
        self.drivers = (TARGET, RANDOM) if policy is None else (TARGET, POLICY, RANDOM)
        self._driver = TARGET if policy is None else POLICY
        self.filtered = params.safety is not None and params.safety.enabled
        self._policy = policy
        self._act = None if policy is None else jax.jit(policy)
        self._episode = 0
        self._free: list[_Pose] = []  # targets that are nobody's goals
        self._programs: dict[Any, _Program] = {}

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
        return ("step", self._driver == TARGET, self.filtered) in self._programs

    def reset(self, step: int = 0) -> Snapshot:
        """The first snapshot of a new episode, of a seed always the same ones."""
        key = jax.random.fold_in(jax.random.key(self.seed), self._episode)
        self._episode += 1
        obs, state, hands = self._program("reset", self.params)(key)
        self._free = _rows(hands)
        return Snapshot(step, state, obs=obs)

    def restart(self, step: int = 0) -> Snapshot:
        """The first snapshot of the seed's first episode."""
        self._episode = 0
        return self.reset(step)

    def step(self, snapshot: Snapshot) -> Snapshot:
        """The next snapshot; where the episode has ended, the first of the next one.

        A time limit ends it only where a policy acts: who drags the target has all time.
        """
        driver, state, env = self._driver, snapshot.state, self.env
        key = jax.random.fold_in(jax.random.key(self.seed), 1_000_000 + snapshot.step)
        action = np.zeros(env.num_actions, state.q.dtype)
        if driver == POLICY and self._act is not None:
            action = np.asarray(self._act(snapshot.obs, key), state.q.dtype)
        elif driver == RANDOM:
            generator = np.random.default_rng([self.seed, snapshot.step])
            action = generator.uniform(-1.0, 1.0, env.num_actions).astype(state.q.dtype)
        params = self._params()
        state = self._adapted(state, params)
        obs, new, reward, ended, truncated, info = self._program("step", params)(key, state, action)
        if ended or (truncated and driver != TARGET):
            return self.reset(snapshot.step + 1)
        return Snapshot(snapshot.step + 1, new, float(reward), info, obs)

    # --- what can be moved ---

    def targets(self, state: EnvState) -> list[_Pose]:
        """Position and rotation of each hand's target."""
        goals = self.params.task.goals(state.task_state)
        return [(np.asarray(p), np.asarray(r)) for p, r in goals] or self._free

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

    def _params(self) -> EnvParams:
        """The parameters for what moves the robot now."""
        safety = self.params.safety
        if self.filtered:
            safety = dataclasses.replace(safety or default_filter(self.env), enabled=True)
        elif safety is not None:
            safety = dataclasses.replace(safety, enabled=False)
        params: EnvParams = self.params.replace(safety=safety)
        if self._driver != TARGET:
            return params
        own = params.controller
        controller = own if isinstance(own, OSC) else OSC(self.hands)
        followed: EnvParams = params.replace(action=Follow(self.hands), controller=controller)
        return followed

    def _adapted(self, state: EnvState, params: EnvParams) -> EnvState:
        """The state as the controller and the action space of these parameters have it."""
        if self._driver == TARGET:
            position, rotation = zip(*self.targets(state), strict=True)
            target = PoseTarget(jnp.stack(position), jnp.stack(rotation))
            target = Hands.of(self.hands).without_axis(target)
            state = state.replace(action_state=jax.device_get(target))
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

    def _reset(self, params: EnvParams) -> _Program:
        def reset(key: Array) -> Any:
            obs, state = self.env.reset_env(key, params)
            return obs, state, Follow(self.hands).init(self.env.robot, state.q)

        return reset

    def _step(self, params: EnvParams) -> _Program:
        def step(key: Array, state: EnvState, action: Array) -> Any:
            obs, new, reward, ended, info = self.env.step_env(key, state, action, params)
            return obs, new, reward, ended, self.env.is_truncated(new, params), info

        return step

    def _init(self, params: EnvParams) -> _Program:
        robot, action = self.env.robot, params.action
        controller: Controller[Any] = params.controller
        return lambda q, v: {
            "action_state": action.init(robot, q),
            "controller_state": controller.init(robot, compute_terms(robot, q, v)),
        }


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
