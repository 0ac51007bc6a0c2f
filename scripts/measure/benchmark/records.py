"""What a run leaves."""

from __future__ import annotations

from dataclasses import dataclass

HEADLINE = 4096
"""Batch size of the targets."""


@dataclass(frozen=True)
class Measurement:
    """A contender's result for one workload and batch.

    Attributes:
        workload: its name.
        contender: its name.
        batch: environments at once.
        dtype: what it computes in.
        per_second: evaluations, or environment steps, per second: the median.
        low: the lower quartile.
        high: the upper quartile.
        samples: number of timings.
        compile_seconds: folding, tracing and compiling; None if nothing is compiled.
        peak_bytes: the most memory, beyond what the process had after its imports.
        operations: per evaluation, if somebody counts them.
        operations_per_second: of these.
        error: largest difference to the reference, relative to the reference's largest entry.
        note: what the reader should know.
        contacts: of an environment where the steps begin, the mean; None if it is not about them.
        rounds: of the solver in a step, the mean; None if nobody says.
        most_rounds: in any step.
        residual: norm of the gradient over the trace of the mass matrix, the largest of all steps.
        unsolved: the part of the steps whose solver says that it did not converge.
    """

    workload: str
    contender: str
    batch: int
    dtype: str
    per_second: float
    low: float
    high: float
    samples: int
    compile_seconds: float | None
    peak_bytes: int | None
    operations: float | None
    operations_per_second: float | None
    error: float | None
    note: str
    contacts: float | None = None
    rounds: float | None = None
    most_rounds: float | None = None
    residual: float | None = None
    unsolved: float | None = None


@dataclass(frozen=True)
class EnvironmentSpeed:
    """How fast a registered environment is.

    Attributes:
        name: its id, and what is special.
        batch: environments at once.
        per_second: environment steps per second: the median.
        low: the lower quartile.
        high: the upper quartile.
        relative: physics steps times degrees of freedom per second, PandaReach's being one.
        compile_seconds: folding, tracing and compiling.
    """

    name: str
    batch: int
    per_second: float
    low: float
    high: float
    relative: float
    compile_seconds: float


@dataclass(frozen=True)
class PlanningRun:
    """One of planning's benchmarks.

    Attributes:
        name: of it.
        title: for people.
        commands: that were run.
        seconds: that all of it took; None if it failed or did not begin.
        reason: why not.
        output: what it printed.
    """

    name: str
    title: str
    commands: tuple[str, ...]
    seconds: float | None
    reason: str
    output: str


@dataclass(frozen=True)
class LeftOut:
    """Something that was not measured, and why.

    Attributes:
        workload: its name.
        contender: its name.
        batch: environments at once; None for all.
        reason: why not.
    """

    workload: str
    contender: str
    batch: int | None
    reason: str


@dataclass(frozen=True)
class Line:
    """A figure that fraxenv is to reach.

    Attributes:
        what: is compared.
        value: what was measured; None if it was not.
        target: what it should be.
        unit: of both.
        at_most: whether smaller is better.
    """

    what: str
    value: float | None
    target: float
    unit: str
    at_most: bool = False

    @property
    def verdict(self) -> str:
        """Whether the target is reached."""
        if self.value is None:
            return "not measured"
        reached = self.value <= self.target if self.at_most else self.value >= self.target
        return "reached" if reached else "missed"
