"""`scripts/measure/validate_dynamics.py`, run as users run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mujoco")
pytest.importorskip("pinocchio")

SCRIPT = Path(__file__).parents[2] / "scripts" / "measure" / "validate_dynamics.py"
ALLOWED = {"float64": 1e-9, "float32": 1e-4}


@pytest.mark.slow
def test_tables_of_small_errors_are_written(tmp_path: Path) -> None:
    file = tmp_path / "validation.md"
    options = ["--robots", "cartpole", "--states", "3", "--seconds", "0.1", "--output", file]
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, check=True)
    assert done.stdout == file.read_bytes()
    sections = re.findall(
        r"^(float\d+) against (\w+):\n\n(.*\n)(.*\n)(.*)$", done.stdout.decode(), re.M
    )
    assert [section[:2] for section in sections] == [
        (precision, oracle) for precision in ALLOWED for oracle in ("Pinocchio", "MuJoCo")
    ]
    for precision, oracle, head, _, row in sections:
        name, base, nv, *errors = row.strip("| ").split(" | ")
        assert (name, base, nv) == ("`cartpole`", "fixed", "2")
        assert len(errors) == {"Pinocchio": 5, "MuJoCo": 7}[oracle] == head.count(" | ") - 2
        assert all(float(e) <= ALLOWED[precision] for e in errors)
        assert any(float(e) > 1e-9 for e in errors) == (precision == "float32")
