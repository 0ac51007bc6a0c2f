"""Planning: its thirteen benchmarks and some more, each a test or a script, one after the other.

They differ in what they count (iterations, costs, digits, successes), and are not in one table:
what each prints is kept. Crocoddyl, Ipopt, Fatrop and MuJoCo's `mjd_transitionFD` take part from
within the scripts, beside us and in turns.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from .records import PlanningRun

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "scripts" / "measure"


@dataclass(frozen=True)
class Benchmark:
    """One of them.

    Attributes:
        name: B1 to B13, or what it is about.
        title: for people.
        commands: to run, of Python: a script of `scripts/measure` or `pytest`, and its options.
        quick: options to add, by which a command takes a minute or so; as many as commands.
        needs: modules without which there is nothing to compare with.
    """

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    quick: tuple[tuple[str, ...], ...]
    needs: tuple[str, ...] = ()


_PEERS = "planning_peers.py"
_ROUNDS = ("--rounds", "3")
_CROCODDYL = ("crocoddyl", "example_robot_data")

_TESTS = ("pytest", "-q")
_DDP = "tests/controllers/planning/test_ddp.py"
_TESTED = ("pytest", "hypothesis", "pinocchio")

BENCHMARKS = {
    b.name: b
    for b in (
        Benchmark(
            "B1",
            "Derivatives of the step, and second ones, against differences and automatic ones",
            (
                (
                    *_TESTS,
                    "tests/dynamics/test_derivatives.py",
                    "tests/dynamics/test_transition_hessian.py",
                ),
            ),
            (("-m", "not slow"),),
            _TESTED,
        ),
        Benchmark(
            "B2",
            "The gradient of a plan's cost is that of its rollout",
            ((*_TESTS, f"{_DDP}::test_the_slope_of_the_cost_is_that_of_the_rollout"),),
            ((),),
            _TESTED,
        ),
        Benchmark(
            "B3",
            "A linear problem takes one iteration, and has the gains of its Riccati equation",
            ((*_TESTS, f"{_DDP}::test_a_linear_robot_takes_one_step"),),
            ((),),
            _TESTED,
        ),
        Benchmark(
            "B4",
            "Crocoddyl's reaching arm",
            ((_PEERS, "--only", "kinova"),),
            (_ROUNDS,),
            _CROCODDYL,
        ),
        Benchmark(
            "B5",
            "An iteration of a Panda, 50 knots",
            ((_PEERS, "--only", "panda"),),
            (_ROUNDS,),
            _CROCODDYL,
        ),
        Benchmark(
            "B6",
            "1024 Pandas at once",
            ((_PEERS, "--only", "many", "--most", "20"),),
            (("--problems", "64", "--theirs", "8"),),
            _CROCODDYL,
        ),
        Benchmark(
            "B7",
            "Torques at their limits",
            ((_PEERS, "--only", "limits"),),
            (_ROUNDS,),
            _CROCODDYL,
        ),
        Benchmark(
            "B8",
            "Around obstacles, beside Ipopt",
            ((_PEERS, "--only", "around"),),
            (_ROUNDS,),
            ("casadi", "pinocchio"),
        ),
        Benchmark(
            "B9",
            "Model-predictive control of a hand in environments",
            (("predictive_control.py",),),
            (("--episodes", "8"),),
        ),
        Benchmark(
            "B10, B11",
            "Plans by samples, inverse kinematics, motions among obstacles",
            (("planning_speed.py",),),
            (("--calls", "5", "--poses", "200", "--motions", "4"),),
        ),
        Benchmark(
            "B12",
            "Crocoddyl's trot",
            (("gaits.py",),),
            (("--rounds", "1"),),
            _CROCODDYL,
        ),
        Benchmark(
            "B13",
            "First calls; a problem without numbers in a batch",
            (
                ("planning_compile.py",),
                (*_TESTS, f"{_DDP}::test_a_plan_in_a_batch_is_the_plan_alone"),
            ),
            (("--only", "ik"), ("-m", "not slow")),
            _TESTED,
        ),
        Benchmark(
            "trot",
            "MuJoCo MPC's trot, by exact derivatives, differences and mjd_transitionFD",
            (("trot.py",),),
            (("--plans", "3"),),
            ("mujoco",),
        ),
        Benchmark(
            "arm on legs",
            "A quadruped with an arm, beside Fatrop",
            (("loco_manipulation.py", "--ticks", "81"),),
            (("--ticks", "36"),),
            ("casadi", "pinocchio"),
        ),
        Benchmark(
            "push and pick",
            "Plans through contact",
            (("push_by_plan.py", "--seed", "1"), ("pick_by_plan.py", "--seed", "1")),
            (("--ways", "dragged", "--episodes", "2"), ("--ways", "planned", "--episodes", "2")),
        ),
    )
}


def measure(
    names: Collection[str], quick: bool, folder: Path, show: Callable[[str], None]
) -> list[PlanningRun]:
    """Run benchmarks, and keep what they print in a file each.

    Args:
        names: of some of `BENCHMARKS`; of all if there are none.
        quick: whether they work, not what comes out.
        folder: for the files.
        show: called with the title of each before it runs, and with what it printed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for benchmark in BENCHMARKS.values():
        if names and benchmark.name not in names:
            continue
        show(f"{benchmark.name}: {benchmark.title}")
        run = _run(benchmark, quick)
        (folder / f"{benchmark.name.replace(', ', '-')}.txt").write_text(run.output, "utf-8")
        show(run.output or run.reason)
        runs.append(run)
    return runs


def _run(benchmark: Benchmark, quick: bool) -> PlanningRun:
    """Run a benchmark's commands until one fails, in `sys.executable`'s environment."""
    missing = [name for name in benchmark.needs if importlib.util.find_spec(name) is None]
    reason = f"not installed: {', '.join(missing)}" if missing else ""
    commands = [
        (*command, *(more if quick else ()))
        for command, more in zip(benchmark.commands, benchmark.quick, strict=True)
    ]
    began, outputs = time.perf_counter(), []
    for program, *options in commands:
        if reason:
            break
        first = ["-m", program] if program == "pytest" else [str(SCRIPTS / program)]
        done = subprocess.run(
            [sys.executable, *first, *options],
            cwd=ROOT,
            env=os.environ | {"COLUMNS": "150"},
            capture_output=True,
            text=True,
        )
        outputs.append(f"$ {' '.join((program, *options))}\n{done.stdout}")
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            reason = f"{program} ended with status {done.returncode}: {''.join(said)[:200]}"
    return PlanningRun(
        name=benchmark.name,
        title=benchmark.title,
        commands=tuple(" ".join(command) for command in commands),
        seconds=None if reason else time.perf_counter() - began,
        reason=reason,
        output="\n".join(outputs),
    )
