"""Mutation testing: how many small changes of the source the tests notice.

A mutant is a file of ours with one operator, comparison, number, condition, loop or decorator
changed, as Cosmic Ray changes it. A process imports it in place of the file, which stays as it is,
and runs tests of that file until one fails: the mutant is killed. Otherwise it survives, and is
shown. Mutants are a random share of each file's, the same in every run. Exits 1 if fewer than 85 %
are killed. The results are in docs/reliability.md.

    pip install -e ".[mutation]"
    python scripts/harden/mutants.py
    python scripts/harden/mutants.py --files dynamics/crba.py --share 1
    python scripts/harden/mutants.py --mutants dynamics/crba.py:NumberReplacer:3
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]

OPERATORS = (
    *(f"ReplaceBinaryOperator_{change}" for change in (
        "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Div", "Pow_Mul",
        "RShift_LShift", "LShift_RShift", "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitAnd",
    )),
    *(f"ReplaceComparisonOperator_{change}" for change in (
        "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt",
        "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt",
    )),
    *(f"ReplaceUnaryOperator_Delete_{deleted}" for deleted in ("USub", "Invert", "Not")),
    "AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr",
    "ReplaceOrWithAnd", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak",
    "ExceptionReplacer", "NumberReplacer", "RemoveDecorator", "ZeroIterationForLoop",
)  # fmt: skip
"""Of Cosmic Ray's. An operator becomes the nearest others: most of the rest would not even run."""

PRELOADED = ("jax", "flax", "chex", "hypothesis", "mujoco", "pinocchio", "quadprog", "sympy",
             "yourdfpy")  # fmt: skip
"""Packages that take long to import, and start no threads, so that a process with them may fork."""

ENOUGH = 0.85
PATIENCE, GRACE = 3, 20  # times what the tests take, and s more: a mutant may loop for ever

PINOCCHIO = "tests/dynamics/test_pinocchio.py::test_agrees_with_pinocchio"
DERIVATIVES = "tests/dynamics/test_pinocchio.py::test_derivatives_agree_with_pinocchio"
MECHANICS = (
    f"{PINOCCHIO}[tree-float64]", f"{PINOCCHIO}[joints-float64]",
    "tests/dynamics/test_identities.py",
)  # fmt: skip
GEOMETRY, CLEARANCE = "tests/dynamics/geometry", "tests/dynamics/test_clearance.py"
OPTIMA = "tests/dynamics/solvers/test_qp.py::test_against_quadprog"
PROGRAMS = (
    OPTIMA, *(f"tests/dynamics/solvers/test_qp.py::test_{name}" for name in (
        "units_do_not_matter", "units_of_rows_do_not_matter", "what_counts_as_met",
        "room_for_active_rows", "one_of_several_copies_is_enough", "sets_of_rows",
        "least_violation", "nothing_to_do_is_exactly_zero", "derivatives",
        "shapes_are_checked", "continuous_where_rows_cannot_be_met",
        "extreme_problems_are_finite", "small_changes_change_little",
    )),
)  # fmt: skip
TESTS = {
    "dynamics/actuation.py": ("tests/dynamics/test_actuation.py",),
    "dynamics/math/algebra.py": (
        "tests/dynamics/math/test_algebra.py", "tests/dynamics/math/test_rotation.py",
        MECHANICS[0], OPTIMA,
    ),
    "dynamics/body_motion.py": MECHANICS,
    "dynamics/model/bundled.py": (
        "tests/dynamics/model/test_urdf.py", "tests/dynamics/model/test_bundled.py",
    ),
    "dynamics/solvers/cholesky.py": (MECHANICS[0], OPTIMA),
    "dynamics/clearance.py": (CLEARANCE,),
    "dynamics/collision_geometry.py": ("tests/dynamics/test_collision_geometry.py", CLEARANCE),
    "dynamics/geometry/distance.py": (f"{GEOMETRY}/test_distance.py",),
    "dynamics/geometry/obstacles.py": (f"{GEOMETRY}/test_obstacles.py", CLEARANCE),
    "dynamics/geometry/shapes.py": (GEOMETRY, CLEARANCE),
    "dynamics/crba.py": MECHANICS,
    "dynamics/delay.py": ("tests/dynamics/test_actuation.py",),
    "dynamics/model/combine.py": ("tests/dynamics/model/test_combine.py",),
    "dynamics/derivatives.py": (f"{DERIVATIVES}[tree]", "tests/dynamics/test_derivatives.py"),
    "dynamics/energy.py": MECHANICS,
    "fraxenv/errors.py": ("tests/dynamics/test_robot.py", "tests/dynamics/model/test_urdf.py"),
    "dynamics/model/fingerprint.py": ("tests/dynamics/model/test_fingerprint.py",),
    "dynamics/forward_dynamics.py": (
        *MECHANICS, "tests/dynamics/test_integration.py::test_viscous_damping_is_implicit_euler",
    ),
    "dynamics/model/inertia.py": (
        "tests/dynamics/model/test_urdf.py", "tests/dynamics/test_robot.py",
    ),
    "dynamics/integration.py": ("tests/dynamics/test_integration.py",),
    "dynamics/joint_resistance.py": ("tests/dynamics/test_integration.py",),
    "dynamics/jacobian.py": (*MECHANICS, "tests/dynamics/test_robot.py"),
    "dynamics/kinematics.py": (*MECHANICS, "tests/dynamics/test_robot.py"),
    "dynamics/model/lock.py": ("tests/dynamics/model/test_lock.py",),
    "dynamics/manifold.py": ("tests/dynamics/test_manifold.py", *MECHANICS),
    "dynamics/momentum.py": MECHANICS,
    "dynamics/model/mount.py": ("tests/dynamics/model/test_mount.py",),
    "dynamics/rnea.py": MECHANICS,
    "dynamics/model/robot.py": (
        "tests/dynamics/test_robot.py", "tests/dynamics/model/test_urdf.py",
        "tests/dynamics/test_manifold.py::test_planar_axes_are_a_right_handed_frame",
        "tests/dynamics/test_collision_geometry.py", *MECHANICS,
    ),
    "dynamics/math/rotation.py": ("tests/dynamics/math/test_rotation.py",),
    "dynamics/math/spatial.py": (*MECHANICS, f"{DERIVATIVES}[tree]"),
    "dynamics/terms.py": ("tests/dynamics/test_robot.py",),
    "dynamics/model/tree.py": (*MECHANICS, f"{DERIVATIVES}[tree]"),
    "dynamics/model/urdf.py": ("tests/dynamics/model/test_urdf.py", "tests/dynamics/test_robot.py"),
    **dict.fromkeys((
        "dynamics/solvers/active_set.py", "dynamics/solvers/projected_newton.py",
        "dynamics/solvers/qp.py", "dynamics/solvers/rows.py",
    ), PROGRAMS),
}  # fmt: skip
"""Of each file, the tests that would notice, quick ones first."""


@dataclass(frozen=True)
class Mutant:
    """A file with one change: the `occurrence`-th that the operator can make."""

    file: str
    operator: str
    occurrence: int

    @property
    def name(self) -> str:
        """What `--mutants` takes."""
        return f"{self.file}:{self.operator}:{self.occurrence}"


def operator_of(name: str) -> Any:
    from cosmic_ray.plugins import get_operator

    return get_operator(f"core/{name}")()


def find_mutants(file: str) -> list[Mutant]:
    """All of a file's, but those of annotations and signatures, which do nothing."""
    from cosmic_ray.ast import ast_nodes, get_ast

    source = (ROOT / file).read_text("utf-8")
    tree = list(ast.walk(ast.parse(source)))
    hints = [getattr(n, "annotation", None) or getattr(n, "returns", None) for n in tree]
    hinted = {id(part) for hint in hints if hint is not None for part in ast.walk(hint)}
    sums = [n for n in tree if isinstance(n, ast.BinOp) and id(n) not in hinted]
    signs = [
        ((n.left.end_lineno, n.left.end_col_offset), (n.right.lineno, n.right.col_offset))
        for n in sums
    ]
    nodes = list(ast_nodes(get_ast(source)))
    found = []
    for name in OPERATORS:
        operator = operator_of(name)
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, place in enumerate(places):
            if "Binary" not in name or any(a <= place < b for a, b in signs):
                found.append(Mutant(file, name, occurrence))
    return found


def changed_source(mutant: Mutant) -> str:
    from cosmic_ray.mutating import mutate_code

    source = (ROOT / mutant.file).read_text("utf-8")
    return str(mutate_code(source, operator_of(mutant.operator), mutant.occurrence))


def difference(mutant: Mutant) -> str:
    """The lines that change, with their numbers."""
    before = (ROOT / mutant.file).read_text("utf-8").splitlines()
    after = changed_source(mutant).splitlines()
    return "\n".join(difflib.unified_diff(before, after, lineterm="", n=0)).partition("\n@@ ")[2]


# --- running ---


class Replacement(SourceFileLoader):
    """Loads a module of ours from other source, and finds itself."""

    def __init__(self, file: str, source: str):
        super().__init__(f"fraxenv.{file.removesuffix('.py').replace('/', '.')}", str(ROOT / file))
        self.source = source

    def find_spec(  # noqa: D102
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:  # noqa: D102
        return self.source_to_code(self.source, self.path)


def run_tests(file: str, source: str, log: Path) -> None:
    """In a process of its own: exits 0 if all pass with `source` in place of the file."""
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    replacement = Replacement(file, source)
    sys.meta_path.insert(0, replacement)
    os.chdir(ROOT)
    status = pytest.main(["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *TESTS[file]])
    if replacement.name not in sys.modules:
        raise RuntimeError(f"no test imports {replacement.name}")
    sys.exit(status)


def try_source(file: str, source: str, log: Path, limit: float) -> tuple[str, float]:
    """What came of it, "killed", "late" or "survived", and the seconds that took."""
    began = time.monotonic()
    process = multiprocessing.get_context("fork").Process(
        target=run_tests, args=(file, source, log)
    )
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return "late", time.monotonic() - began
    return "survived" if process.exitcode == 0 else "killed", time.monotonic() - began


def interval(killed: int, count: int) -> tuple[float, float]:
    """Wilson's, of 95 %, of the share that `killed` of a random sample of `count` show."""
    z = 1.96
    middle = (killed + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * math.sqrt(killed * (count - killed) / count + z * z / 4)
    return middle - half, middle + half


@dataclass(frozen=True)
class Options:
    """Options of the mutation testing."""

    files: tuple[str, ...] = tuple(TESTS)
    """What to change."""
    share: float = 0.1
    """Of each file's mutants that are tried."""
    seed: int = 1
    """Of the choice."""
    mutants: tuple[str, ...] = ()
    """Names of mutants to try, in place of a share of them."""
    output: Path = Path("runs/mutants.json")
    """File for what came of each."""


def chosen(options: Options) -> dict[str, list[Mutant]]:
    """Mutants to try, of each file."""
    if options.mutants:
        named = [name.rsplit(":", 2) for name in options.mutants]
        mutants = [Mutant(file, operator, int(number)) for file, operator, number in named]
        return {m.file: [n for n in mutants if n.file == m.file] for m in mutants}
    return {file: sample(file, options.share, options.seed) for file in options.files}


def sample(file: str, share: float, seed: int) -> list[Mutant]:
    """A random share; a larger one has the same mutants, and more."""
    mutants = find_mutants(file)
    count = math.ceil(share * len(mutants))
    random.Random(f"{seed} {file}").shuffle(mutants)
    return mutants[:count]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options, args=argv)
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    folder = tempfile.TemporaryDirectory(prefix="fraxenv-mutants-", ignore_cleanup_errors=True)
    # Programs that a change does not reach are compiled once.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    for package in PRELOADED:
        importlib.import_module(package)

    options.output.parent.mkdir(parents=True, exist_ok=True)
    log = Path(folder.name) / "log.txt"
    todo, results, limits = chosen(options), [], {}
    with Progress(transient=True) as progress:
        task = progress.add_task("", total=sum(map(len, todo.values())))
        for file, mutants in todo.items():
            progress.update(task, description=file)
            if TESTS[file] not in limits:
                source = (ROOT / file).read_text("utf-8")
                outcome, seconds = try_source(file, source, log, 3600)
                if outcome != "survived":
                    raise SystemExit(f"The tests of {file} fail as it is:\n{log.read_text()}")
                limits[TESTS[file]] = PATIENCE * seconds + GRACE
            for mutant in mutants:
                outcome, seconds = try_source(
                    file, changed_source(mutant), log, limits[TESTS[file]]
                )
                results.append({"mutant": mutant.name, "outcome": outcome, "seconds": seconds})
                if outcome == "survived":
                    text = f"{mutant.name}\n{difference(mutant)}\n"
                    progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
                progress.advance(task)
            options.output.write_text(json.dumps(results, indent=1))
    return report(results)


def report(results: list[dict[str, Any]]) -> int:
    """Print what came of each file's mutants; returns the exit status."""
    table = Table("file", "mutants", "tried", "killed", "killed, %")
    files = list(dict.fromkeys(r["mutant"].rsplit(":", 2)[0] for r in results))
    for file in files:
        outcomes = [r["outcome"] for r in results if r["mutant"].startswith(f"{file}:")]
        killed = len(outcomes) - outcomes.count("survived")
        share = f"{100 * killed / len(outcomes):.0f}"
        table.add_row(file, str(len(find_mutants(file))), str(len(outcomes)), str(killed), share)
    killed = sum(r["outcome"] != "survived" for r in results)
    low, high = interval(killed, len(results))
    Console().print(table)
    print(
        f"{killed} of {len(results)} killed, {killed / len(results):.1%}; of all mutants, with a "
        f"confidence of 95 %, {low:.1%} to {high:.1%}"
    )
    return 0 if killed >= ENOUGH * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
