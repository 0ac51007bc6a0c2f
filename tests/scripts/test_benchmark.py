"""`scripts/measure/benchmark.py`, run as users run it; and the C that it emits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support import colours

from fraxenv import fuse

SCRIPTS = Path(__file__).parents[2] / "scripts" / "measure"


def benchmark(tmp_path: Path, *options: str, broken: str = "") -> list[dict[str, Any]]:
    """Results of a quick run, in which a package may be broken."""
    path = tmp_path / "broken"
    path.mkdir()
    if broken:
        (path / f"{broken}.py").write_text("raise ImportError('broken on purpose')\n")
    out = tmp_path / "out"
    command = [sys.executable, SCRIPTS / "benchmark.py", "--quick", "--out", out, *options]
    environment = os.environ | {"PYTHONPATH": str(path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def of(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["type"] == kind]


@pytest.mark.slow
def test_a_quick_run_measures_compares_and_draws(tmp_path: Path) -> None:
    contenders = ["native", "vmap", "pinocchio-parallel", "mujoco-rollout"]
    contenders += ["c"] if shutil.which("gcc") else []
    rows = benchmark(
        tmp_path, "--workloads", "panda-forward-dynamics", "--peers", *contenders, "frax",
        broken="frax",
    )  # fmt: skip
    measured = {(m["contender"], m["batch"]): m for m in of(rows, "measurement")}
    assert set(measured) == {(c, batch) for c in contenders for batch in (1, 64)}
    for m in measured.values():
        assert m["error"] < (1e-4 if m["dtype"] == "float32" else 1e-10), m
        assert 0 < m["low"] <= m["per_second"] <= m["high"]
    native = measured["native", 1]
    assert 1000 < native["operations"] < 5000
    assert native["operations_per_second"] == native["operations"] * native["per_second"]
    assert 0 < native["compile_seconds"] < 60
    assert native["peak_bytes"] > 0

    [missing] = of(rows, "left_out")
    assert missing["contender"] == "frax"
    assert "broken on purpose" in missing["reason"]
    [machine] = of(rows, "machine")
    assert machine["versions"]["numpy"] == np.__version__
    assert {line["verdict"] for line in of(rows, "line")} == {"not measured"}
    assert colours(tmp_path / "out" / "throughput.png") > 50


@pytest.mark.slow
def test_steps_in_contact_arrive_where_mujoco_s_do(tmp_path: Path) -> None:
    """From the same states, with contacts, rounds and residuals beside the rates."""
    rows = benchmark(
        tmp_path, "--contact", "--workloads", "contact-cube-rest", "contact-quadruped-kicked",
        "panda-forward-dynamics", "--peers", "native", "mujoco", "mujoco-rollout",
    )  # fmt: skip
    measured = {(m["workload"], m["contender"]): m for m in of(rows, "measurement")}
    assert len(measured) == 6
    for (workload, contender), m in measured.items():
        assert m["batch"] == 64
        assert m["error"] < (1e-4 if contender == "native" else 1e-6), m
        assert 0 < m["contacts"] <= 4
        assert 0 <= m["rounds"] <= m["most_rounds"] < 15
        assert m["residual"] < 1e-2
        if workload == "contact-cube-rest":
            assert m["contacts"] == 4
    assert measured["contact-cube-rest", "native"]["unsolved"] == 0


@pytest.mark.slow
def test_picks_are_counted_in_simulated_time(tmp_path: Path) -> None:
    peers = "native", "mujoco-rollout"
    names = "pick-random", "pick-expert"
    rows = benchmark(tmp_path, "--workloads", *names, "--peers", *peers)
    measured = {(m["workload"], m["contender"], m["batch"]): m for m in of(rows, "measurement")}
    assert {(w, c) for w, c, _ in measured} == {(w, c) for w in names for c in peers}
    for m in measured.values():
        assert 0 < m["low"] <= m["per_second"] <= m["high"]
    assert measured["pick-random", "native", 64]["compile_seconds"] > 0
    judged = {x["what"]: x["value"] for x in of(rows, "line") if "PandaPick" in x["what"]}
    assert list(judged.values()) == [None, None]  # of 4096 only


@pytest.mark.slow
def test_benchmarks_of_planning_leave_what_they_print(tmp_path: Path) -> None:
    """One passes, and the peer of the other does not work, which is told."""
    plans = "--workloads", "planning", "--plans", "B3", "B8"
    passed, missing = of(benchmark(tmp_path, *plans, broken="casadi"), "planning")
    assert (passed["name"], missing["name"]) == ("B3", "B8")
    assert 0 < passed["seconds"] < 300
    assert "passed" in passed["output"]
    assert (tmp_path / "out" / "planning" / "B3.txt").read_text("utf-8") == passed["output"]
    assert missing["seconds"] is None
    assert "broken on purpose" in missing["reason"]


@pytest.mark.slow
def test_targets_are_judged(tmp_path: Path) -> None:
    rows = benchmark(tmp_path, "--workloads", "gymnasium", "--peers", "native")
    judged = {x["what"]: x for x in of(rows, "line") if x["value"] is not None}
    [(what, line)] = judged.items()
    assert what == "Gymnasium step() of one environment"
    assert line["verdict"] == ("reached" if line["value"] <= line["target"] else "missed")


@pytest.mark.slow
def test_environments_are_compared_by_id(tmp_path: Path) -> None:
    rows = benchmark(tmp_path, "--workloads", "ids", "--batches", "4096")
    reference, mobile, randomised = of(rows, "environment")
    assert [reference["name"], mobile["name"]] == ["PandaReach-v0", "MobileReach-v0"]
    assert randomised["name"] == "panda-reach-everything"
    assert reference["relative"] == 1
    for x in (reference, mobile, randomised):
        assert 0 < x["low"] <= x["per_second"] <= x["high"]
        assert x["compile_seconds"] > 0
    freedoms = 5 / 7
    assert mobile["relative"] == pytest.approx(
        freedoms * mobile["per_second"] / reference["per_second"]
    )
    least, cost = (x["value"] for x in of(rows, "line") if x["value"] is not None)
    assert least == min(1, mobile["relative"])
    assert cost == pytest.approx(reference["per_second"] / randomised["per_second"])


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_c_computes_what_the_kernel_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And loading it changes nothing else: subnormal numbers stay what they are."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from benchmark.c_limit import CProgram

    def fn(x: Any, y: Any, z: Any) -> Any:
        s = jnp.where(x > y, jnp.sin(x) / (1 + y * y), jnp.abs(x - 2) * jnp.cos(y))
        finite = jnp.where(jnp.isfinite(z), 1.0, -1.0)
        rest = jnp.sqrt(1 + x * x).sum(), jnp.maximum(s, x) - jnp.round(y)
        return jnp.minimum(s, 0.5), *rest, finite

    rng = np.random.default_rng(0)
    x, y, z = (rng.normal(size=(37, 5)).astype(np.float32) for _ in range(3))
    z[::3, 0], z[::4, 1], z[::5, 2] = np.inf, -np.inf, np.nan
    program = CProgram.best(fn, [x[0], y[0], z[0]])
    assert np.nextafter(0.0, 1.0) > 0
    packed, out = program.pack([x, y, z]), program.output(len(x))
    program(packed, out, 2)
    expected = [np.asarray(a).reshape(len(x), -1) for a in fuse(fn, "vmap")(x, y, z)]
    np.testing.assert_allclose(
        program.unpack(out)[: len(x)], np.concatenate(expected, axis=1), rtol=1e-5, atol=1e-6
    )
