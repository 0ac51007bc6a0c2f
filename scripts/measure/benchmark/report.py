"""What a run shows: tables, JSON lines, a plot, and the page in the documentation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from .contenders import CONTENDERS
from .ids import RANDOMISED, REFERENCE
from .machine import Machine
from .records import HEADLINE, EnvironmentSpeed, LeftOut, Line, Measurement, PlanningRun
from .workloads import PICK, PICK_HZ, WORKLOADS, Workload

DOCS = Path(__file__).parents[3] / "docs" / "performance.md"
BEGIN, END = "<!-- written by scripts/measure/benchmark.py -->", "<!-- until here -->"


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: above it.
        columns: their headings; all but the first are numbers.
        rows: of cells.
        notes: below it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def rich(self) -> RichTable:
        """For the terminal."""
        table = RichTable(title=self.title, title_justify="left", caption_justify="left")
        for i, column in enumerate(self.columns):
            table.add_column(
                column, justify="right" if i else "left", overflow="fold", no_wrap=not i
            )
        for row in self.rows:
            table.add_row(*row)
        if self.notes:
            table.caption = "\n".join(self.notes)
        return table

    def markdown(self) -> str:
        """For the documentation."""
        ruler = ("---", *["---:"] * (len(self.columns) - 1))
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, ruler, *self.rows)]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([f"### {self.title}", "", *lines, "", *notes, *[""] * bool(notes)])


@dataclass(frozen=True)
class Results:
    """All of a run.

    Attributes:
        machine: where it took place.
        measurements: what came out.
        left_out: what did not.
        environments: how fast each registered one is.
        plans: benchmarks of planning.
        gpu: whether there is a GPU.
    """

    machine: Machine
    measurements: Sequence[Measurement]
    left_out: Sequence[LeftOut]
    environments: Sequence[EnvironmentSpeed]
    plans: Sequence[PlanningRun]
    gpu: bool

    def find(self, workload: str, contender: str, batch: int | None = None) -> list[Measurement]:
        """Measurements of a contender, batches increasing."""
        return [
            m
            for m in self.measurements
            if (m.workload, m.contender) == (workload, contender) and batch in (None, m.batch)
        ]

    def json_lines(self) -> str:
        """One JSON object per line, `type` saying of what."""
        rows: list[tuple[str, Any]] = [("machine", self.machine)]
        rows += [("measurement", m) for m in self.measurements]
        rows += [("left_out", x) for x in self.left_out]
        rows += [("environment", x) for x in self.environments]
        rows += [("planning", x) for x in self.plans]
        text = [json.dumps({"type": kind, **asdict(row)}) for kind, row in rows]
        text += [
            json.dumps({"type": "line", **asdict(x), "verdict": x.verdict}) for x in self.lines()
        ]
        return "\n".join(text) + "\n"

    # --- targets ---

    def lines(self) -> list[Line]:
        """The figures that fraxenv is to reach."""
        dynamics = "panda-forward-dynamics"
        ours = "native"

        def speed(workload: str, contender: str) -> float | None:
            found = self.find(workload, contender, HEADLINE)
            return found[0].per_second if found else None

        def ratio(contender: str) -> float | None:
            mine, theirs = speed(dynamics, "native"), speed(dynamics, contender)
            return mine / theirs if mine and theirs else None

        def best(workload: str, contender: str) -> float | None:
            return max((m.per_second for m in self.find(workload, contender)), default=None)

        def compiled(workload: str) -> float | None:
            found = self.find(workload, ours)
            return found[0].compile_seconds if found else None

        step = self.find("gymnasium", "native", 1)
        memory = [m.peak_bytes for m in self.find("memory", ours, 65_536)]
        fd = f"Panda forward dynamics, batch {HEADLINE}"
        memory_mib = memory[0] / 2**20 if memory and memory[0] else None
        step_us = 1e6 / step[0].per_second if step else None
        g1 = compiled("g1-forward-dynamics")
        by_id = {x.name: x for x in self.environments if x.batch == HEADLINE}
        randomised = by_id.pop(RANDOMISED, None)
        least = min((x.relative for x in by_id.values()), default=None)
        cost = by_id[REFERENCE].per_second / randomised.per_second if randomised else None
        lines = [
            Line(f"{fd}, native / frax", ratio("frax"), 100, "x"),
            Line(f"{fd}, native / frax with its flags", ratio("frax-flags"), 60, "x"),
            Line(f"{fd}, native / abaInParallel", ratio("pinocchio-parallel"), 30, "x"),
            Line(f"{fd}, native / C of the folded program", ratio("c"), 0.5, "x"),
            Line(f"PandaReach, batch {HEADLINE}", speed("environment", "native"), 1e6, "steps/s"),
            Line("Compile time, Panda control step", compiled("control-step"), 3, "s", True),
            Line("Compile time, G1 forward dynamics", g1, 5, "s", True),
            Line("Gymnasium step() of one environment", step_us, 250, "us", True),
            Line("Memory of 100 steps, batch 65536", memory_mib, 1024, "MiB", True),
            Line("Slowest id, physics rate per degree of freedom / PandaReach", least, 0.5, "x"),
            Line("All kinds of randomisation, PandaReach without / with", cost, 1.5, "x", True),
        ]
        lines += self._contact_lines(ours)
        for name, title in (("pick-random", "random actions"), ("pick-expert", "the expert")):
            seconds = speed(name, ours)
            steps = seconds * PICK_HZ if seconds else None
            lines.append(Line(f"{PICK}, {title}, batch {HEADLINE}", steps, 1.5e5, "steps/s"))
        if self.gpu:
            lines += [
                Line("Panda forward dynamics, GPU", best(dynamics, ours), 1e9, "evaluations/s"),
                Line("PandaReach, GPU", best("environment", ours), 5e7, "steps/s"),
            ]
        return lines

    def _contact_lines(self, ours: str) -> list[Line]:
        """Steps in contact: on their own, and beside MuJoCo's on the CPU."""
        lines = []
        for name, title, target in (
            ("contact-cube-rest", "Cube at rest", 2.5e6),
            ("contact-grasp-lift", "Grasp and lift", 1.2e6),
            ("contact-quadruped-kicked", "Quadruped, kicked", 1e6),
        ):
            by_name = {
                c: found[0]
                for c in (ours, "mujoco-rollout", "mjx")
                if (found := self.find(name, c, HEADLINE))
            }
            mine = by_name.get(ours)
            speed = mine.per_second if mine else None
            lines.append(Line(f"{title}, batch {HEADLINE}", speed, target, "steps/s"))
            for peer, text, least in (("mujoco-rollout", "rollout", 8), ("mjx", "MJX", 300)):
                theirs = by_name.get(peer)
                ratio = mine.per_second / theirs.per_second if mine and theirs else None
                lines.append(Line(f"{title}, {ours} / {text}", ratio, least, "x"))
            seconds = mine.compile_seconds if mine else None
            lines.append(Line(f"Compile time, {title.lower()}", seconds, 10, "s", True))
        return lines

    # --- tables ---

    def tables(self) -> list[Table]:
        """The targets, and a table for each workload."""
        rows = tuple(
            (
                x.what,
                _value(x.value, 4),
                f"{'<=' if x.at_most else '>='} {_value(x.target)}",
                x.unit,
                x.verdict,
            )
            for x in self.lines()
        )
        tables = [Table("Targets", ("what", "measured", "target", "unit", ""), rows)]
        for workload in WORKLOADS.values():
            if any(m.workload == workload.name for m in self.measurements):
                tables.append(self._table(workload))
        if self.environments:
            tables.append(self._by_id())
        if self.plans:
            tables.append(self._of_plans())
        return tables

    def _of_plans(self) -> Table:
        rows = tuple(
            (f"{x.name}: {x.title}", "; ".join(x.commands), _or_dash(x.seconds, "{:.0f}"), x.reason)
            for x in self.plans
        )
        note = "What each printed is in the folder `planning`; docs/planning.md has the results."
        title = WORKLOADS["planning"].title
        return Table(title, ("", "command", "s", "left out"), rows, (note,))

    def _by_id(self) -> Table:
        workload = WORKLOADS["ids"]
        rows = tuple(
            (x.name, _speed(x, True), f"{x.relative:.2f}", f"{x.compile_seconds:.1f}")
            for x in self.environments
        )
        batch = self.environments[0].batch
        return Table(
            f"{workload.title}: {workload.unit} per second",
            ("", f"batch {batch}", "per degree of freedom", "compile, s"),
            rows,
            (
                f"Per degree of freedom: physics steps times degrees of freedom; {REFERENCE} is 1.",
                f"`{RANDOMISED}`: the preset of {REFERENCE} with all kinds of randomisation.",
            ),
        )

    def _table(self, workload: Workload) -> Table:
        of_it = [m for m in self.measurements if m.workload == workload.name]
        batches = sorted({m.batch for m in of_it})
        one_per_thread = workload.quantity in ("environment", "pick")
        few = {self.machine.threads} if one_per_thread else set()
        shown = sorted({batches[0], *few, HEADLINE, batches[-1]} & set(batches))
        headline = HEADLINE if HEADLINE in batches else batches[-1]
        wanted: list[tuple[str, Callable[[Measurement], str]]] = [
            ("compile, s", lambda m: _or_dash(m.compile_seconds, "{:.2f}")),
            ("peak, MiB", lambda m: _or_dash(m.peak_bytes, "{:.0f}", 2**-20)),
            ("ops", lambda m: _or_dash(m.operations, "{:.0f}")),
            ("Gop/s", lambda m: _or_dash(m.operations_per_second, "{:.2f}", 1e-9)),
            ("error", lambda m: _or_dash(m.error, "{:.0e}")),
        ]
        if workload.quantity == "contact":
            wanted[2:4] = [
                ("contacts", lambda m: _or_dash(m.contacts, "{:.1f}")),
                ("rounds", lambda m: _or_dash(m.rounds, "{:.1f}")),
                ("most", lambda m: _or_dash(m.most_rounds, "{:.0f}")),
                ("residual", lambda m: _or_dash(m.residual, "{:.0e}")),
                ("unsolved, %", lambda m: _or_dash(m.unsolved, "{:.2g}", 100)),
            ]
        names = [c for c in CONTENDERS if any(m.contender == c for m in of_it)]
        best = self.find(workload.name, "native", headline)
        rows = []
        for name in names:
            by_batch = {m.batch: m for m in of_it if m.contender == name}
            last = by_batch.get(headline) or by_batch[max(by_batch)]
            first = by_batch[min(by_batch)]
            speeds = [_speed(by_batch.get(b), b == headline) for b in shown]
            ratio = f"{best[0].per_second / last.per_second:.3g}" if best else "-"
            cells = [show(first if title.startswith("compile") else last) for title, show in wanted]
            rows.append(
                (CONTENDERS[name].title, last.dtype.replace("float", "f"), *speeds, ratio, *cells)
            )
        unit = f"{workload.unit} per second"
        columns = (
            "", "dtype", *[f"batch {b}" for b in shown], "fraxenv x",
            *[title for title, _ in wanted],
        )  # fmt: skip
        titled = f"{workload.title}: {unit}"
        return Table(titled, columns, tuple(rows), tuple(self._notes(workload, of_it)))

    def _notes(self, workload: Workload, of_it: Iterable[Measurement]) -> list[str]:
        noted: dict[str, dict[str, None]] = {}
        for m in of_it:
            if m.note:
                noted.setdefault(m.note, {})[CONTENDERS[m.contender].title] = None
        notes = [f"{'; '.join(titles)}: {note}." for note, titles in noted.items()]
        reasons: dict[tuple[str, str], list[str]] = {}
        for x in self.left_out:
            if x.workload == workload.name:
                batch = "" if x.batch is None else f"batch {x.batch}"
                reasons.setdefault((x.contender, x.reason), []).append(batch)
        for (name, reason), batches in reasons.items():
            of = f", {', '.join(b for b in batches if b)}" if any(batches) else ""
            notes.append(f"{CONTENDERS[name].title}{of}: left out, {reason}.")
        return notes

    def notes(self) -> str:
        """About the run, and who could not take part at all."""
        measured = {m.contender for m in self.measurements}
        absent = {x.contender: x.reason for x in self.left_out if x.contender not in measured}
        lines = [self.machine.text()]
        lines += [f"{CONTENDERS[n].title}: left out, {reason}." for n, reason in absent.items()]
        return "\n".join(lines)


def _speed(m: Measurement | EnvironmentSpeed | None, spread: bool) -> str:
    if m is None:
        return "-"
    half = 50 * (m.high - m.low) / m.per_second
    return _value(m.per_second) + (f" ±{half:.0f}%" if spread else "")


def _value(x: float | None, digits: int = 3) -> str:
    if x is None:
        return "-"
    for size, name in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(x) >= size:
            scale = 1e3 if name == " k" else size
            return f"{x / scale:.{digits}g}{name}"
    return f"{x:.{digits}g}" if abs(x) < 1000 else f"{x:.0f}"


def _or_dash(x: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if x is None else form.format(x * scale)


# --- plot ---

_COLOURS = (
    "#d62728", "#d62728", "#ff7f0e", "#8c564b", "#000000", "#1f77b4", "#17becf", "#17becf",
    "#9467bd", "#e377c2", "#2ca02c", "#2ca02c", "#bcbd22", "#bcbd22", "#7f7f7f", "#aec7e8",
    "#c49c94", "#cccccc", "#98df8a", "#dbdb8d",
)  # fmt: skip
_DASHED = {"pallas", "c", "frax-flags-x64", "pinocchio", "mujoco"}


def plot(path: Path, results: Results) -> None:
    """Throughput over batch size, a panel for each workload; nothing if there is none."""
    from fraxenv.media.plots import picture  # not in the processes that measure: it imports JAX

    measurements = results.measurements
    names = [
        w
        for w in WORKLOADS.values()
        if not w.batches and any(m.workload == w.name for m in measurements)
    ]
    if not names:
        return
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    with picture(path, 6 * columns, 3.6 * rows + 1.4, 100) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        shown: dict[str, Any] = {}
        for panel, workload in zip(panels, names, strict=False):
            for name, colour in zip(CONTENDERS, _COLOURS, strict=True):
                found = results.find(workload.name, name)
                if not found:
                    continue
                x = [m.batch for m in found]
                style = "--" if name in _DASHED else "-"
                (line,) = panel.plot(
                    x, [m.per_second for m in found], style, color=colour, marker="o", markersize=3,
                    linewidth=2.4 if name in ("native", "pallas") else 1.3,
                )  # fmt: skip
                panel.fill_between(
                    x,
                    [m.low for m in found],
                    [m.high for m in found],
                    color=colour,
                    alpha=0.2,
                    lw=0,
                )
                shown[name] = line
            panel.set(xscale="log", yscale="log", title=workload.title)
            panel.set_xlabel("batch size")
            panel.set_ylabel(f"{workload.unit} per second")
        for panel in panels[len(names) :]:
            panel.set_visible(False)
        ordered = [name for name in CONTENDERS if name in shown]
        figure.legend(
            [shown[name] for name in ordered],
            [f"{CONTENDERS[n].title} ({CONTENDERS[n].dtype})" for n in ordered],
            loc="outside lower center",
            ncols=2 if columns == 1 else 3,
        )
        machine = results.machine
        figure.suptitle(f"{machine.gpu or machine.cpu}, {machine.threads} threads")


# --- documentation ---


def write_docs(results: Results, picture: Path) -> None:
    """Put the results where `docs/performance.md` has its marks."""
    page = DOCS.read_text("utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    tables = "\n".join(table.markdown() for table in results.tables())
    image = DOCS.with_suffix(".png")
    if picture.exists():
        shutil.copyfile(picture, image)
        tables += f"\n![Throughput over batch size]({image.name})\n"
    notes = results.notes().replace("\n", "\n\n")
    text = f"{before}{BEGIN}\n\n{notes}\n\n{tables}\n{END}{after}"
    DOCS.write_text(text, "utf-8")
