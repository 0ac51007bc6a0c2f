"""The loops in C and C++, compiled and run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CLANG = f"{sys.executable} -m ziglang"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cc", "cxx"), [("cc", "c++"), (f"{CLANG} cc", f"{CLANG} c++")], ids=["gcc", "clang"]
)
def test_the_hand_goes_up_by_five_centimetres(tmp_path: Path, cc: str, cxx: str) -> None:
    pytest.importorskip("mujoco")
    if CLANG in cc:
        pytest.importorskip("ziglang")
    if shutil.which(cc.split()[0]) is None or shutil.which(cxx.split()[0]) is None:
        pytest.skip("there is no compiler")
    script = [sys.executable, "scripts/examples/arm_in_c.py", "--output", str(tmp_path), "--fast"]
    ran = subprocess.run(
        [*script, "--cc", cc, "--cxx", cxx], cwd=ROOT, capture_output=True, text=True, check=True
    )
    moved = re.findall(r"moved by \((\S+), (\S+), (\S+)\) mm", ran.stdout)
    assert len(moved) == 2
    for x, y, z in moved:
        assert abs(float(x)) < 1
        assert abs(float(y)) < 1
        assert abs(float(z) - 50) < 1
    assert "franka.cpp compiles" in ran.stdout
    assert "ros2_controller.cpp compiles" in ran.stdout
