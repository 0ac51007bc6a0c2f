"""Replays: recorded actions taken again, and compared bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..envs import Environment, EnvParams, EnvState
from ..errors import CheckpointError
from ..making.make import make
from ..progress import progress as progress_bar
from ..storage.config import with_tuples
from ..storage.provenance import changes, provenance
from ..storage.state import (
    check_identity,
    check_precision,
    checked_contents,
    pack,
    restore,
    unpack_environment,
)
from .record import SERIES, Recording
from .stepping import begin, flat, split_final, step


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
    env, own, key, state = opened(recording, env, params)
    compare = _Comparison(recording)
    noted = metadata.get("annotations", ())
    reported = tuple(name for name in recording.infos if name not in noted)
    _, obs, fresh = begin(env, own, key, recording.num_envs)
    for name, array in pack("state", fresh).arrays.items():
        compare(f"start/{name}", -1, array, recording.start[name])
    compare.tree("observations", -1, jax.device_get(obs), 0)
    total = recording.num_steps
    with progress_bar("Replaying", total, extra="record", show=progress) as show:
        for t, action in enumerate(recording.actions):
            obs, state, out = step(env, key, t, state, jnp.asarray(action), own)
            final, out = split_final(jax.device_get(out), reported)
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


def opened(
    recording: Recording, env: Environment | None, params: EnvParams | None
) -> tuple[Environment, EnvParams, Array, EnvState]:
    """The environment of a recording, its parameters, its key, and its first states (N, ...).

    Args:
        recording: what was recorded.
        env: as of `replay`.
        params: as of `replay`.

    Raises:
        CheckpointError: as `replay`.
    """
    metadata = recording.metadata
    with checked_contents("the recording"):
        check_precision("the recording", metadata)
        env = _remade(metadata) if env is None else env
        check_identity("the recording", metadata, env)
        state, own = unpack_environment("the recording", recording.start, metadata, env, params)
        if params is not None:
            _check_same_params(params, own)
        about = metadata["trees"]["key"]
        key = restore("the recording", "key", recording.start, about, jax.random.key(0))
    return env, own, key, state


def visited(
    recording: Recording, env: Environment, params: EnvParams, key: Array, state: EnvState
) -> Iterator[EnvState]:
    """The states (N, ...) before each of the T steps, by taking the recorded actions again.

    Args:
        recording: what was recorded.
        env: as `opened` returns it.
        params: likewise.
        key: likewise.
        state: likewise.
    """
    for t, action in enumerate(recording.actions):
        yield state
        if t + 1 < recording.num_steps:
            _, state, _ = step(env, key, t, state, jnp.asarray(action), params)


class _Comparison:
    """Collects the differences from a recording."""

    def __init__(self, recording: Recording) -> None:
        names = (*SERIES, "final_observations")
        self._recorded = {k: v for n in names for k, v in flat(n, getattr(recording, n)).items()}
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
        for full, value in flat(name, now).items():
            self(full, step, value, self._recorded[full][index])

    def final(self, step: int, now: Any) -> None:
        """Compare the final observations of the episodes that ended at a step."""
        ended = np.flatnonzero(self._ends[step])
        if not ended.size:
            return
        part = slice(self._finals, self._finals + ended.size)
        self._finals += ended.size
        for full, value in flat("final_observations", now).items():
            self(full, step, value[ended], self._recorded[full][part], ended.tolist())


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
