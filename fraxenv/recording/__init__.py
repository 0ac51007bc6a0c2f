"""Recordings of rollouts: for learning from them, and to be replayed bit for bit."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..errors import CheckpointError, ConfigError, import_extra
from ..registry import NAMESPACE, list_envs, make, with_tuples
from ..storage.provenance import changes, provenance
from ..storage.state import (
    as_written,
    check_environment,
    check_identity,
    check_precision,
    identity,
    is_key,
    pack,
    read,
    restore,
    unpack_environment,
    write,
)

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams, EnvState

FORMAT = "fraxenv recording"
VERSION = 1

Policy = Callable[[Any, Array], Array]
"""Action (k,) for the observation of one environment and a random key."""

_SERIES = ("observations", "actions", "rewards", "terminations", "truncations", "infos")
_NOT_INFOS = ("terminated", "truncated", "final_observation")


@dataclass(frozen=True)
class Episode:
    """One episode of n steps; the names are those of Minari's `EpisodeData`.

    Attributes:
        id: its number in the recording.
        environment: the number of the environment it took place in.
        observations: (n + 1, m), or a dict of these; the last one is the final observation.
        actions: (n, k), as the policy gave them.
        rewards: (n,).
        terminations: (n,), bool.
        truncations: (n,), bool.
        infos: what the steps reported, (n, ...) each; a dict, nested.
    """

    id: int
    environment: int
    observations: Any
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    infos: dict[str, Any]

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """What N environments did in T steps, side by side, with autoreset.

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
        metadata: how it came about; what JSON can hold.
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
        short episodes are no more frequent than they are.
        """
        ends = self.terminations | self.truncations
        position = np.cumsum(ends.ravel()).reshape(ends.shape) - 1
        number, limit = 0, self.metadata["episodes_per_env"]
        for n in range(self.num_envs):
            begin = 0
            for end in np.flatnonzero(ends[:, n])[:limit]:
                yield self._episode(number, n, slice(begin, end + 1), position[end, n])
                begin, number = end + 1, number + 1

    def _episode(self, number: int, n: int, steps: slice, final: int) -> Episode:
        own = {name: getattr(self, name)[steps, n] for name in _SERIES[1:5]}
        seen = jax.tree.map(
            lambda x, last: np.concatenate([x[steps, n], last[final : final + 1]]),
            self.observations,
            self.final_observations,
        )
        infos = jax.tree.map(lambda x: x[steps, n], self.infos)
        return Episode(id=number, environment=n, observations=seen, infos=infos, **own)

    def save(self, path: str | Path) -> None:
        """Save to an npz archive without pickles; atomic.

        The arrays have the names of the attributes; nested ones are joined by slashes, such as
        `infos/success`, and those of `start` are `start/state.q`.

        Raises:
            CheckpointError: the file cannot be written.
        """
        arrays: dict[str, np.ndarray] = {}
        for name in (*_SERIES, "final_observations", "start"):
            arrays |= _flat(name, getattr(self, name))
        write(path, arrays, self.metadata)


def record(
    env: Environment,
    params: EnvParams,
    policy: Policy | None,
    key: Array,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    num_envs: int = 1,
    infos: Sequence[str] | None = None,
    recipe: Mapping[str, Any] | None = None,
    watch: Callable[[EnvState], bool] | None = None,
    progress: bool = False,
) -> Recording:
    """Record what a policy does in a batch of environments, with autoreset.

    >>> env, params = make("PandaReach-v0")
    >>> recording = record(env, params, None, jax.random.key(0), episodes=64, num_envs=64)

    Args:
        env: the environment.
        params: its parameters, shared by the whole batch.
        policy: action (k,) for an observation of one environment and a key; compiled and batched
            here. None for uniformly random actions.
        key: decides everything that is drawn; typed or raw.
        steps: of every environment; or
        episodes: how many altogether, a multiple of `num_envs`; goes on until every environment has
            ended its share.
        num_envs: the batch.
        infos: names of the entries of `info` to keep; None for all.
        recipe: the arguments of `make` that `env` was made with, `id` among them, so that a replay
            can make it by itself; not needed for an id without overrides.
        watch: called with the states of the batch after every step, in order to draw them, for
            example; the recording ends early where it returns True.
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
    recipe = _checked_recipe(env, recipe)
    key_policy, obs, state = _begin(env, params, key, num_envs)
    start = {
        "params": pack("params", params),
        "state": pack("state", state),
        "key": pack("key", key),
    }
    act = _actor(env, params, policy)

    seen = [jax.device_get(obs)]
    taken: list[np.ndarray] = []
    returned, final = [], []
    ended = np.zeros(num_envs, int)
    with _bar("Recording", progress, steps or num_envs * (share or 0)) as show:
        while len(taken) != steps if share is None else ended.min() < share:
            action = act(key_policy, len(taken), obs)
            obs, state, out = _step(env, key, len(taken), state, action, params)
            last, out = _split_final(jax.device_get(out), infos)
            over = out["terminations"] | out["truncations"]
            ended += over
            seen.append(jax.device_get(obs))
            taken.append(np.asarray(action))
            returned.append(out)
            final.append(_rows(last, over))
            show(len(taken) if share is None else int(np.minimum(ended, share).sum()))
            if watch is not None and watch(state):
                break

    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "environment": identity(env),
        "recipe": recipe,
        "episodes_per_env": share,
        "spaces": {
            "observations": _space(env.observation_space(params)),
            "actions": _space(env.action_space(params)),
        },
        "trees": {name: part.about for name, part in start.items()},
        "provenance": {**provenance(), "backend": env.backend},
    }
    return Recording(
        observations=_stacked(seen),
        actions=np.stack(taken),
        final_observations=jax.tree.map(lambda *x: np.concatenate(x), *final),
        **_stacked(returned),
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
    with as_written(path):
        for name, array in arrays.items():
            *folders, last = name.split("/", 1) if name.startswith("start/") else name.split("/")
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
    sizes: dict[str, tuple[int, ...]] = dict.fromkeys(_SERIES, (steps, envs))
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


# --- replay ---


@dataclass(frozen=True)
class Difference:
    """How an array that is computed anew differs from the recorded one.

    Attributes:
        name: of the array, such as `rewards` or `infos/success`.
        step: the first step at which it differs, from 0; -1 for what a reset gives.
        environment: the first environment that does so.
        recorded: the first number that differs.
        replayed: what it is now.
        largest: difference of all its numbers; 1 for flags, and inf if one is not a number.
    """

    name: str
    step: int
    environment: int
    recorded: float
    replayed: float
    largest: float

    def __str__(self) -> str:
        when = f"step {self.step}" if self.step >= 0 else "the reset"
        return (
            f"{self.name} at {when} of environment {self.environment}: {self.recorded!r} recorded, "
            f"{self.replayed!r} now; by {self.largest:.3g} at most"
        )


@dataclass(frozen=True)
class ReplayReport:
    """How a replay compares with the recording.

    Attributes:
        num_steps: replayed, of every environment.
        num_envs: replayed.
        differences: one for every array that is not the same bit for bit, the earliest first.
        changes: what is not as it was when the recording was made, such as
            `jax 0.10.1 -> 0.10.2`. Equal bits are promised only where there are none.
    """

    num_steps: int
    num_envs: int
    differences: tuple[Difference, ...]
    changes: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether all is the same, bit for bit."""
        return not self.differences

    def within(self, tolerance: float) -> bool:
        """Whether all flags are the same, and all numbers to a tolerance.

        For replays on other machines and backends; rounding that differs grows with the steps.
        """
        return all(d.largest <= tolerance for d in self.differences)

    def __str__(self) -> str:
        size = f"{self.num_steps} steps of {self.num_envs} environments"
        elsewhere = f" Not as when recorded: {'; '.join(self.changes)}." if self.changes else ""
        if self.identical:
            return f"{size}: the same, bit for bit.{elsewhere}"
        largest = max(d.largest for d in self.differences)
        promise = (
            " Equal bits are promised only where nothing has changed."
            if self.changes
            else " Nothing has changed since: the environment itself must have."
        )
        return (
            f"{size}: {len(self.differences)} arrays differ, by {largest:.3g} at most. First: "
            f"{self.differences[0]}.{elsewhere}{promise}"
        )


def replay(
    recording: Recording,
    env: Environment | None = None,
    params: EnvParams | None = None,
    *,
    watch: Callable[[EnvState], object] | None = None,
    progress: bool = False,
) -> ReplayReport:
    """Take the recorded actions again, from the recorded initial states, and compare everything.

    The reset is compared too, and the steps go on from the recorded states whatever it gives.

    Args:
        recording: what was recorded.
        env: the environment, needed where the recording cannot tell how to make it.
        params: its parameters, needed where their structure is not that of `env.default_params`;
            must be the recorded ones.
        watch: called with the states of the batch after every step.
        progress: whether to show a progress bar; needs the extra `record`.

    Raises:
        CheckpointError: the environment or the parameters are not those of the recording, its
            precision is another, or it cannot tell how to make the environment.
        MissingExtraError: a progress bar is asked for, and the extra is not installed.
    """
    metadata = recording.metadata
    with as_written("the recording"):
        check_precision("the recording", metadata)
        env = _remade(metadata) if env is None else env
        check_identity("the recording", metadata, env)
        state, own = unpack_environment("the recording", recording.start, metadata, env, params)
        if params is not None:
            _check_same_params(params, own)
        about = metadata["trees"]["key"]
        key = restore("the recording", "key", recording.start, about, jax.random.key(0))

    compare = _Comparison(recording)
    _, obs, fresh = _begin(env, own, key, recording.num_envs)
    for name, array in pack("state", fresh).arrays.items():
        compare(f"start/{name}", -1, array, recording.start[name])
    compare.tree("observations", -1, jax.device_get(obs), 0)
    with _bar("Replaying", progress, recording.num_steps) as show:
        for t, action in enumerate(recording.actions):
            obs, state, out = _step(env, key, t, state, jnp.asarray(action), own)
            final, out = _split_final(jax.device_get(out), tuple(recording.infos))
            compare.tree("observations", t, jax.device_get(obs), t + 1)
            for name, value in out.items():
                compare.tree(name, t, value, t)
            compare.final(t, final)
            show(t + 1)
            if watch is not None:
                watch(state)
    now = {**provenance(), "backend": env.backend}
    return ReplayReport(
        recording.num_steps,
        recording.num_envs,
        tuple(sorted(compare.found.values(), key=lambda d: d.step)),
        tuple(changes(metadata["provenance"], now)),
    )


class _Comparison:
    """Collects the differences from a recording."""

    def __init__(self, recording: Recording) -> None:
        names = (*_SERIES, "final_observations")
        self._recorded = {k: v for n in names for k, v in _flat(n, getattr(recording, n)).items()}
        self._ends = recording.terminations | recording.truncations
        self._finals = 0
        self.found: dict[str, Difference] = {}

    def __call__(
        self,
        name: str,
        step: int,
        now: np.ndarray,
        then: np.ndarray,
        environments: Sequence[int] | None = None,
    ) -> None:
        """Compare arrays (n, ...) of some environments."""
        if now.dtype == then.dtype and now.tobytes() == then.tobytes():
            return
        a, b = (x.astype(float).reshape(len(x), -1) for x in (then, now))
        # Not-a-numbers and signed zeros that differ in their bits only count as equal numbers.
        unequal = (a != b) & ~(np.isnan(a) & np.isnan(b))
        gaps = np.where(unequal, np.abs(a - b), 0.0)
        largest = float(np.nan_to_num(gaps, nan=np.inf, posinf=np.inf).max())
        if name in self.found:
            first = self.found[name]
            largest = max(first.largest, largest)
            self.found[name] = dataclasses.replace(first, largest=largest)
            return
        row, column = np.argwhere(unequal)[0] if unequal.any() else (0, 0)
        environment = int(row) if environments is None else int(environments[row])
        self.found[name] = Difference(
            name, step, environment, float(a[row, column]), float(b[row, column]), largest
        )

    def tree(self, name: str, step: int, now: Any, index: int) -> None:
        """Compare one step's arrays (N, ...)."""
        for full, value in _flat(name, now).items():
            self(full, step, value, self._recorded[full][index])

    def final(self, step: int, now: Any) -> None:
        """Compare the final observations of the episodes that ended at a step."""
        ended = np.flatnonzero(self._ends[step])
        if not ended.size:
            return
        part = slice(self._finals, self._finals + ended.size)
        self._finals += ended.size
        for full, value in _flat("final_observations", now).items():
            self(full, step, value[ended], self._recorded[full][part], ended.tolist())


# --- export ---


def to_minari(recording: Recording, dataset_id: str, **options: Any) -> Any:
    """Export the episodes that ended as a Minari dataset, into Minari's own folder.

    Steps are numbered as Minari does it: `observations` and `infos` have one more than `actions`.
    The first entry of `infos` belongs to the reset, which reports nothing: it is zero.

    Args:
        recording: with one episode that ended, at least.
        dataset_id: such as `panda/reach/random-v0`.
        **options: of `minari.create_dataset_from_buffers`, such as `author` or `algorithm_name`.

    Returns:
        The `minari.MinariDataset`. Where the recording knows the id of its environment, its
        `recover_environment()` makes it.

    Raises:
        MissingExtraError: the extra `record` is not installed.
        CheckpointError: there is a dataset of this id already.
        ConfigError: no episode ended in the recording.
    """
    minari = import_extra("minari", "record", "Export to Minari")
    buffers = import_extra("minari.data_collector", "record", "Export to Minari")
    local = import_extra("minari.storage", "record", "Export to Minari")
    folder = Path(local.get_dataset_path(dataset_id))
    if folder.exists():
        raise CheckpointError(
            f"{folder}: there is a dataset {dataset_id!r} already. Choose another id, or "
            f"minari.delete_dataset({dataset_id!r}) first."
        )
    episodes = [_buffer(buffers.EpisodeBuffer, episode) for episode in recording.episodes()]
    if not episodes:
        raise ConfigError(
            f"no episode ended within the {recording.num_steps} steps of the recording, expected "
            "one at least. Record with episodes=..., or more steps."
        )
    spaces = recording.metadata["spaces"]
    spec = _gymnasium_spec(recording.metadata["recipe"])
    try:
        dataset = minari.create_dataset_from_buffers(
            dataset_id,
            episodes,
            env=spec,
            eval_env=spec,
            observation_space=_gymnasium_space(spaces["observations"]),
            action_space=_gymnasium_space(spaces["actions"]),
            **options,
        )
        dataset.storage.update_metadata({"fraxenv": json.dumps(recording.metadata)})
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return dataset


def _buffer(kind: Any, episode: Episode) -> Any:
    infos = jax.tree.map(lambda x: np.concatenate([np.zeros_like(x[:1]), x]), episode.infos)
    fields = {name: getattr(episode, name) for name in _SERIES[:5]}
    return kind(id=episode.id, **fields, infos=infos)


def _gymnasium_spec(recipe: Mapping[str, Any] | None) -> Any:
    if recipe is None or recipe.get("id") is None:
        return None
    import gymnasium

    spec = gymnasium.spec(f"{NAMESPACE}/{recipe['id'].removeprefix(f'{NAMESPACE}/')}")
    own = ("id", "backend", "max_steps_in_episode")  # which Gymnasium has other means for
    overrides = {name: value for name, value in recipe.items() if name not in own}
    limit = recipe.get("max_steps_in_episode", spec.max_episode_steps)
    kwargs = {**spec.kwargs, **overrides}
    return dataclasses.replace(spec, kwargs=kwargs, max_episode_steps=limit)


def _space(space: Any) -> dict[str, Any]:
    """Gymnax's boxes, and dicts of them, as JSON can hold them."""
    if hasattr(space, "spaces"):
        return {name: _space(part) for name, part in space.spaces.items()}
    bounds = (
        np.broadcast_to(b, space.shape).astype(float).tolist() for b in (space.low, space.high)
    )
    low, high = bounds
    return {"box": [low, high, list(space.shape), str(np.dtype(space.dtype))]}


def _gymnasium_space(space: Mapping[str, Any]) -> Any:
    from gymnasium import spaces

    if "box" not in space:
        return spaces.Dict({name: _gymnasium_space(part) for name, part in space.items()})
    low, high, shape, dtype = space["box"]
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), tuple(shape), np.dtype(dtype))


# --- stepping ---


def _begin(
    env: Environment, params: EnvParams, key: Array, num_envs: int
) -> tuple[Array, Any, EnvState]:
    """The policy's key, and the batch's first observations and states."""
    key_reset, key_policy = jax.random.split(jax.random.fold_in(key, 0))
    obs, state = _reset(env, jax.random.split(key_reset, num_envs), params)
    return key_policy, obs, state


@functools.partial(jax.jit, static_argnames=("env",))
def _reset(env: Environment, keys: Array, params: EnvParams) -> Any:
    return jax.vmap(env.reset_env, (0, None))(keys, params)


@functools.partial(jax.jit, static_argnames=("env",))
def _step(
    env: Environment, key: Array, t: int, state: EnvState, action: Array, params: EnvParams
) -> tuple[Any, EnvState, dict[str, Any]]:
    """One step of the batch; a program of its own, so that a replay runs the very same one."""
    keys = jax.random.split(jax.random.fold_in(key, 1 + t), action.shape[0])
    obs, state, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
        keys, state, action, params
    )
    out = {
        "rewards": reward,
        "terminations": terminated,
        "truncations": truncated,
        "infos": info,
    }
    return obs, state, out


def _actor(env: Environment, params: EnvParams, policy: Policy | None) -> Callable[..., Array]:
    """The policy, compiled, for a key, the number of the step and observations of the batch."""
    space = env.action_space(params)
    one = (lambda _, key: space.sample(key)) if policy is None else policy

    def act(key: Array, t: Array, obs: Any) -> Array:
        keys = jax.random.split(jax.random.fold_in(key, t), len(jax.tree.leaves(obs)[0]))
        return jax.vmap(one)(obs, keys)

    return jax.jit(act)


def _split_final(out: dict[str, Any], infos: Sequence[str] | None) -> tuple[Any, dict[str, Any]]:
    """The final observations, and the rest with the entries of `info` that are asked for."""
    info = out["infos"]
    own = [name for name in info if name not in _NOT_INFOS]
    for name in infos or ():
        if name not in own:
            raise ConfigError(
                f"infos={tuple(infos or ())}: steps do not report {name!r}, expected names among "
                f"{', '.join(own)}."
            )
    kept = {name: info[name] for name in (own if infos is None else infos)}
    return info["final_observation"], {**out, "infos": kept}


def _rows(tree: Any, which: np.ndarray) -> Any:
    return jax.tree.map(lambda x: x[which], tree)


def _stacked(steps: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *x: np.stack(x), *steps)


def _flat(name: str, tree: Any) -> dict[str, np.ndarray]:
    if not isinstance(tree, Mapping):
        return {name: np.asarray(tree)}
    return {k: v for part, x in tree.items() for k, v in _flat(f"{name}/{part}", x).items()}


@contextmanager
def _bar(title: str, show: bool, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar that is told how far things are."""
    if not show:
        yield lambda done: None
        return
    progress = import_extra("rich.progress", "record", "The progress bar")
    with progress.Progress() as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


# --- arguments ---


def _check_key(key: Any) -> None:
    raw = getattr(key, "dtype", None) == np.uint32
    if not ((is_key(key) and key.ndim == 0) or (raw and key.ndim == 1)):
        raise ConfigError(
            f"key={key!r}, expected one random key, such as jax.random.key(0) returns."
        )


def _episodes_per_env(steps: Any, episodes: Any, num_envs: Any) -> int | None:
    for name, value in (("steps", steps), ("episodes", episodes), ("num_envs", num_envs)):
        optional = value is None and name != "num_envs"
        if not optional and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(f"{name}={value!r}, expected a whole number >= 1.")
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


def _checked_recipe(env: Environment, recipe: Mapping[str, Any] | None) -> dict[str, Any] | None:
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


def _remade(metadata: Mapping[str, Any]) -> Environment:
    if metadata["recipe"] is None:
        raise CheckpointError(
            f"the recording cannot tell how to make its {metadata['environment']['name']}: it was "
            "recorded without recipe=..., or from a Robot or a Task of its own. Pass env=..., made "
            "as then."
        )
    return make(**with_tuples(metadata["recipe"]))[0]


def _check_same_params(given: EnvParams, recorded: EnvParams) -> None:
    own, stored = (pack("params", p).arrays for p in (given, recorded))
    for name, array in stored.items():
        if name not in own or not np.array_equal(own[name], array):
            raise CheckpointError(
                f"the recording was made with another {name} than that of params. Pass the "
                "parameters it was made with, or leave them out to take the recorded ones."
            )
