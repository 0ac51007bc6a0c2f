"""Recordings of rollouts: made, stored and loaded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from ..envs import Environment, EnvParams, EnvState
from ..errors import CheckpointError, ConfigError, check_count
from ..making.make import make
from ..making.registry import list_envs
from ..progress import progress as progress_bar
from ..storage.config import with_tuples
from ..storage.provenance import provenance
from ..storage.state import (
    check_environment,
    check_identity,
    checked_contents,
    identity,
    pack,
    read,
    write,
)
from .policies import MemoryPolicy, Policy, with_memory
from .stepping import begin, flat, split_final, step, unescaped

FORMAT = "fraxenv recording"
VERSION = 3

SERIES = ("observations", "actions", "rewards", "terminations", "truncations", "infos")
"""The arrays of a recording that have a row for every step."""


@dataclass(frozen=True)
class Episode:
    """One episode of n steps; the names are those of Minari's `EpisodeData`.

    Attributes:
        id: its number in the recording.
        environment: the number of the environment it took place in.
        first_step: the step of the recording that it begins with.
        observations: (n + 1, m), or a dict of these; the last one is the final observation.
        actions: (n, k), as the policy gave them.
        rewards: (n,).
        terminations: (n,), bool.
        truncations: (n,), bool.
        infos: what the steps reported, (n, ...) each; a dict, nested.
    """

    id: int
    environment: int
    first_step: int
    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    infos: dict[str, Any]

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def success(self) -> bool:
        """Whether it ended in success, and did not diverge.

        Raises:
            ConfigError: the recording kept no `success`.
        """
        if "success" not in self.infos:
            raise ConfigError(
                f"the recording tells no success: it kept {', '.join(self.infos) or 'nothing'} of "
                "infos. Record with 'success' among them."
            )
        diverged = "diverged" in self.infos and self.infos["diverged"][-1]
        return bool(self.infos["success"][-1] and not diverged)


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """A rollout of N environments over T steps, side by side, with autoreset.

    Attributes:
        observations: (T + 1, N, m), or a dict of these: what the policy saw. After the step that
            ends an episode it is the first observation of the next one.
        actions: (T, N, k), as the policy gave them.
        rewards: (T, N).
        terminations: (T, N), bool.
        truncations: (T, N), bool.
        final_observations: (E, m), or a dict of these: the last ones of the E episodes that ended,
            in the order of steps, and of environments within a step.
        infos: what the steps reported, (T, N, ...) each; a dict, nested.
        start: initial states, parameters and key by name, such as `state.q` (N, nq).
        metadata: environment, options and provenance, as JSON can hold them.
    """

    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    final_observations: Any
    infos: dict[str, Any]
    start: dict[str, np.ndarray]
    metadata: dict[str, Any]

    def __repr__(self) -> str:
        name = self.metadata["environment"]["name"]
        return f"<Recording of {name}: {self.num_steps} steps, {self.num_envs} environments>"

    @property
    def num_steps(self) -> int:
        """T, of every environment."""
        return len(self.rewards)

    @property
    def num_envs(self) -> int:
        """N."""
        return int(self.rewards.shape[1])

    def episodes(self) -> Iterator[Episode]:
        """The episodes that ended, environment by environment.

        Where a number of episodes was recorded it is those, equally many of each environment:
        short episodes are no more frequent than they are. Where only successful ones were asked
        for, the others are left out.
        """
        only = self.metadata.get("successful", False)
        number = 0
        for episode in self._all_episodes():
            if not only or episode.success:
                yield dataclasses.replace(episode, id=number)
                number += 1

    @property
    def num_successful(self) -> tuple[int, int]:
        """How many episodes ended in success, and how many ended."""
        successes = [episode.success for episode in self._all_episodes()]
        return sum(successes), len(successes)

    def check_is_of(self, env: Environment, where: str | Path = "the recording") -> None:
        """Check that it is of an environment; `where` is what the message calls it.

        Raises:
            CheckpointError: it is of another one.
        """
        check_identity(where, self.metadata, env)

    def _all_episodes(self) -> Iterator[Episode]:
        ends = self.terminations | self.truncations
        position = np.cumsum(ends.ravel()).reshape(ends.shape) - 1
        number, limit = 0, self.metadata["episodes_per_env"]
        for n in range(self.num_envs):
            begin = 0
            for end in np.flatnonzero(ends[:, n])[:limit]:
                yield self._episode(number, n, slice(begin, end + 1), position[end, n])
                begin, number = end + 1, number + 1

    def _episode(self, number: int, n: int, steps: slice, final: int) -> Episode:
        own = {name: getattr(self, name)[steps, n] for name in SERIES[1:5]}
        seen = jax.tree.map(
            lambda x, last: np.concatenate([x[steps, n], last[final : final + 1]]),
            self.observations,
            self.final_observations,
        )
        infos = jax.tree.map(lambda x: x[steps, n], self.infos)
        place = {"environment": n, "first_step": steps.start}
        return Episode(id=number, **place, observations=seen, infos=infos, **own)

    def save(self, path: str | Path) -> None:
        """Save to an npz archive without pickles; atomic.

        The arrays have the names of the attributes; nested ones are joined by slashes, such as
        `infos/success`, and those of `start` are `start/state.q`.

        Raises:
            CheckpointError: the file cannot be written.
        """
        arrays: dict[str, np.ndarray] = {}
        for name in (*SERIES, "final_observations", "start"):
            arrays |= flat(name, getattr(self, name))
        write(path, arrays, self.metadata)


def record(
    env: Environment,
    params: EnvParams,
    policy: Policy | MemoryPolicy | None,
    key: Array,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    num_envs: int = 1,
    infos: Sequence[str] | None = None,
    successful: bool = False,
    recipe: Mapping[str, Any] | None = None,
    watch: Callable[[EnvState], bool] | None = None,
    watch_memory: Callable[[Any, EnvState], object] | None = None,
    progress: bool = False,
) -> Recording:
    """Record what a policy does in a batch of environments, with autoreset.

    >>> env, params = make("PandaReach-v0")
    >>> recording = record(env, params, None, jax.random.key(0), episodes=64, num_envs=64)

    Args:
        env: the environment.
        params: its parameters, shared by the whole batch.
        policy: action (k,) for an observation of one environment and a key, or a `MemoryPolicy`;
            compiled and batched here. None for uniformly random actions.
        key: decides everything that is drawn; typed or raw.
        steps: of every environment; or
        episodes: how many altogether, a multiple of `num_envs`; goes on until every environment has
            ended its share.
        num_envs: the batch.
        infos: names of the entries of `info` to keep; None for all.
        successful: whether `episodes()`, and with it every export, leaves out those that did not
            end in success. They are stored all the same: the recording replays as a whole.
        recipe: the arguments of `make` that `env` was made with, `id` among them, so that a replay
            can make it by itself; not needed for an id without overrides.
        watch: called with the states of the batch after every step, in order to draw them, for
            example; the recording ends early where it returns True.
        watch_memory: called before it with the memories of the batch, of which the actions of the
            step came, and these states.
        progress: whether to show a progress bar; needs the extra `record`.

    Raises:
        ConfigError: an argument has a value that it cannot have.
        ActionError: the policy's actions have the wrong shape or dtype.
        MissingExtraError: a progress bar is asked for, and the extra is not installed.
    """
    check_environment(env)
    env.check_params(params)
    _check_key(key)
    share = _episodes_per_env(steps, episodes, num_envs)
    if successful and infos is not None and "success" not in infos:
        raise ConfigError(
            f"successful=True with infos={tuple(infos)}, expected 'success' among them: it decides "
            "which episodes count."
        )
    recipe = checked_recipe(env, recipe)
    begins, act = _actor(env, params, policy)
    tape = Tape(env, params, key, num_envs, infos)
    memory = begins(tape.obs)
    over, ended = np.zeros(num_envs, bool), np.zeros(num_envs, int)
    total = steps or num_envs * (share or 0)
    with progress_bar("Recording", total, extra="record", show=progress) as show:
        while tape.steps != steps if share is None else ended.min() < share:
            action, memory = act(tape.key_policy, tape.steps, tape.obs, memory, over)
            over = tape.step(action)
            ended += over
            show(tape.steps if share is None else int(np.minimum(ended, share).sum()))
            if watch_memory is not None:
                watch_memory(memory, tape.state)
            if watch is not None and watch(tape.state):
                break
    return tape.recording(recipe, episodes_per_env=share, successful=successful)


def record_actions(
    env: Environment,
    params: EnvParams,
    actions: ArrayLike,
    key: Array,
    *,
    annotations: Mapping[str, ArrayLike] | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> Recording:
    """Record one episode of actions that are known already; it ends with the last of them.

    Args:
        env: the environment.
        params: its parameters; the time limit is replaced by the number of actions.
        actions: (n, k), in [-1, 1].
        key: decides everything that is drawn; as of `record`.
        annotations: what else is known of the steps, (n, ...) each, by name. They are kept among
            `infos`, and a replay does not compare them.
        recipe: as of `record`.

    Raises:
        ConfigError: an argument has a value that it cannot have, or an annotation has the name of
            something that steps report.
        ActionError: the actions have the wrong shape.
    """
    check_environment(env)
    env.check_params(params)
    _check_key(key)
    taken = np.asarray(actions)
    check_count("actions", len(taken))
    recipe = checked_recipe(env, recipe)
    # An array, as a replay loads it, and not a number, to which XLA gives another type.
    params = params.replace(max_steps_in_episode=np.asarray(len(taken)))
    tape = Tape(env, params, key, 1, None)
    for action in taken:
        tape.step(jnp.asarray(action)[None])
    recording = tape.recording(recipe, episodes_per_env=None, successful=False)
    notes = {name: np.asarray(note)[:, None] for name, note in (annotations or {}).items()}
    for name, note in notes.items():
        if name in recording.infos or len(note) != len(taken):
            raise ConfigError(
                f"annotation {name!r} of {len(note)} steps, expected {len(taken)}, and a name that "
                f"steps do not report: {', '.join(recording.infos)}."
            )
    recording.infos.update(notes)
    recording.metadata["annotations"] = sorted(notes)
    return recording


class Tape:
    """A rollout as it is recorded.

    Attributes:
        key_policy: of the policy's draws.
        obs: of the batch, now.
        state: likewise.
    """

    def __init__(
        self,
        env: Environment,
        params: EnvParams,
        key: Array,
        num_envs: int,
        infos: Sequence[str] | None,
    ) -> None:
        self._env, self._params, self._key, self._infos = env, params, key, infos
        self.key_policy, self.obs, self.state = begin(env, params, key, num_envs)
        self._start = {
            "params": pack("params", params),
            "state": pack("state", self.state),
            "key": pack("key", key),
        }
        self._seen = [jax.device_get(self.obs)]
        self._taken: list[np.ndarray] = []
        self._returned: list[Any] = []
        self._final: list[Any] = []

    @property
    def steps(self) -> int:
        """How many have been taken."""
        return len(self._taken)

    def step(self, action: Array) -> np.ndarray:
        """Take a step by the actions (N, k); returns which environments ended, (N,), bool."""
        args = self._env, self._key, self.steps, self.state, action, self._params
        self.obs, self.state, out = step(*args)
        last, out = split_final(jax.device_get(out), self._infos)
        over: np.ndarray = out["terminations"] | out["truncations"]
        self._seen.append(jax.device_get(self.obs))
        self._taken.append(np.asarray(action))
        self._returned.append(out)
        self._final.append(_rows(last, over))
        return over

    def recording(
        self, recipe: Mapping[str, Any] | None, *, episodes_per_env: int | None, successful: bool
    ) -> Recording:
        """What has been recorded."""
        env, params, start = self._env, self._params, self._start
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "environment": identity(env),
            "recipe": recipe,
            "episodes_per_env": episodes_per_env,
            "successful": successful,
            "observation_layout": [list(term) for term in env.observation_layout.items()],
            "spaces": {
                "observations": _space(env.observation_space(params)),
                "actions": _space(env.action_space(params)),
            },
            "trees": {name: part.about for name, part in start.items()},
            "provenance": {**provenance(), "backend": env.backend},
        }
        return Recording(
            observations=_stacked(self._seen),
            actions=np.stack(self._taken),
            final_observations=jax.tree.map(lambda *x: np.concatenate(x), *self._final),
            **_stacked(self._returned),
            start={name: array for part in start.values() for name, array in part.arrays.items()},
            metadata=metadata,
        )


def load_recording(path: str | Path) -> Recording:
    """Load what `Recording.save` saved.

    Raises:
        CheckpointError: the file is missing, damaged, of another format, or of another version.
    """
    arrays, metadata = read(path, FORMAT, VERSION)
    tree: dict[str, Any] = {"infos": {}}
    with checked_contents(path):
        for name, array in arrays.items():
            split = name.split("/", 1) if name.startswith("start/") else name.split("/")
            *folders, last = map(unescaped, split)
            branch = tree
            for folder in folders:
                branch = branch.setdefault(folder, {})
            branch[last] = array
        names = {field.name for field in dataclasses.fields(Recording)} - {"metadata"}
        if tree.keys() != names:
            raise CheckpointError(
                f"{path}: the recording lacks {sorted(names - tree.keys())} and has "
                f"{sorted(tree.keys() - names)} in addition. Use another copy of it."
            )
        recording = Recording(**tree, metadata=metadata)
        _check_consistent(path, recording)
    return recording


def _check_consistent(path: str | Path, recording: Recording) -> None:
    """Check that the arrays are of one number of steps, environments and episodes.

    Raises:
        CheckpointError: they are not.
    """
    steps, envs = recording.rewards.shape
    ended = int(np.sum(recording.terminations | recording.truncations))
    sizes: dict[str, tuple[int, ...]] = dict.fromkeys(SERIES, (steps, envs))
    sizes |= {"observations": (steps + 1, envs), "final_observations": (ended,)}
    for name, size in sizes.items():
        for array in jax.tree.leaves(getattr(recording, name)):
            if array.shape[: len(size)] != size:
                raise CheckpointError(
                    f"{path}: {name} are {list(array.shape)}, expected a shape that begins with "
                    f"{list(size)}. Use another copy of it."
                )
    limit = recording.metadata["episodes_per_env"]
    if not (limit is None or isinstance(limit, int)):
        raise CheckpointError(
            f"{path}: episodes_per_env={limit!r}, expected a whole number or null. Use another "
            "copy of it."
        )
    if recording.metadata.get("successful", False) and "success" not in recording.infos:
        raise CheckpointError(
            f"{path}: only successful episodes count, and infos have no success. Use another copy "
            "of it."
        )


def _space(space: Any) -> dict[str, Any]:
    """Gymnax's boxes, and dicts of them, as JSON can hold them."""
    if hasattr(space, "spaces"):
        return {name: _space(part) for name, part in space.spaces.items()}
    bounds = (
        np.broadcast_to(b, space.shape).astype(float).tolist() for b in (space.low, space.high)
    )
    low, high = bounds
    return {"box": [low, high, list(space.shape), str(np.dtype(space.dtype))]}


def _actor(
    env: Environment, params: EnvParams, policy: Policy | MemoryPolicy | None
) -> tuple[Callable[[Any], Any], Callable[..., tuple[Array, Any]]]:
    """The policy, compiled, of the batch: its first memory, and its actions and next memory.

    Actions are for a key, the number of the step, observations, the memory, and which environments
    have begun a new episode (n,).
    """
    space = env.action_space(params)
    one = with_memory((lambda _, key: space.sample(key)) if policy is None else policy)

    def act(key: Array, t: Array, obs: Any, memory: Any, begun: Array) -> tuple[Array, Any]:
        keys = jax.random.split(jax.random.fold_in(key, t), len(begun))

        def of_one(obs: Any, key: Array, memory: Any, begun: Array) -> tuple[Array, Any]:
            first = one.begin(obs)
            return one(obs, key, jax.tree.map(lambda a, b: jnp.where(begun, a, b), first, memory))

        return jax.vmap(of_one)(obs, keys, memory, begun)

    return jax.jit(jax.vmap(one.begin)), jax.jit(act)


def _rows(tree: Any, which: np.ndarray) -> Any:
    return jax.tree.map(lambda x: x[which], tree)


def _stacked(steps: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *x: np.stack(x), *steps)


def _check_key(key: Any) -> None:
    dtype = getattr(key, "dtype", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not ((typed and key.ndim == 0) or (dtype == np.uint32 and key.ndim == 1)):
        raise ConfigError(
            f"key={key!r}, expected one random key, such as jax.random.key(0) returns."
        )


def _episodes_per_env(steps: Any, episodes: Any, num_envs: Any) -> int | None:
    for name, value in (("steps", steps), ("episodes", episodes), ("num_envs", num_envs)):
        if value is not None or name == "num_envs":
            check_count(name, value)
    if (steps is None) == (episodes is None):
        raise ConfigError(
            f"steps={steps} and episodes={episodes}, expected one of the two. Leave the other out."
        )
    if episodes is None:
        return None
    if episodes % num_envs:
        raise ConfigError(
            f"episodes={episodes} is not a multiple of num_envs={num_envs}: every environment "
            f"records equally many. Choose e.g. episodes={num_envs * -(-episodes // num_envs)}."
        )
    return int(episodes // num_envs)


def checked_recipe(env: Environment, recipe: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The recipe as JSON holds it; None if there is none.

    Raises:
        ConfigError: JSON cannot hold it, or it does not make this environment.
    """
    if recipe is None:
        known = env.name in list_envs() and make(env.name)[0] == env
        return {"id": env.name} if known else None
    for name, value in recipe.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"recipe: {name}={value!r} cannot be written as JSON ({error}), expected names, "
                "numbers, lists and dicts. Leave the recipe out, and pass env=... and params=... "
                "to replay."
            ) from error
    plain: dict[str, Any] = json.loads(json.dumps(dict(recipe)))
    if make(**with_tuples(plain))[0] != env:
        raise ConfigError(
            f"recipe={plain} does not make this {env.name}, expected the arguments of make that "
            "it was made with. Pass all of them."
        )
    return plain
