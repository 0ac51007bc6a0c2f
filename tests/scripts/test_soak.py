"""`scripts/harden/soak.py` on scenes in contact, small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from support import load_script, with_slow

pytest.importorskip("mujoco")


def soaked(script: Any, tmp_path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and the counts."""
    file = tmp_path / "soak.json"
    status = script.main(["--ids", "--batch", "16", "--output", str(file), *options])
    [counts] = json.loads(file.read_text())
    return status, counts


@pytest.mark.slow
@pytest.mark.parametrize("name", with_slow(["cube", "grasp", "quadruped"], "grasp", "quadruped"))
def test_scenes_stay_finite(name: str, tmp_path: Path) -> None:
    script = load_script("harden/soak")
    status, counts = soaked(script, tmp_path, "--scenes", name, "--steps", "20000")
    assert status == 0
    assert counts["id"] == name
    assert counts["steps"] >= 20_000
    assert 0 < counts["in contact"] < counts["steps"]
    assert 0 < counts["rounds"] < 15 * counts["steps"]
    assert counts["non-finite"] == counts["scene diverged"] == 0
    assert counts["not converged"] < 0.01 * counts["steps"]


def test_what_is_not_finite_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("harden/soak")
    real = script.scene_step

    def broken(scene: Any, q: Any, v: Any, *rest: Any) -> Any:
        q, v, solution = real(scene, q, v, *rest)
        return q, jnp.where(q[2] > 0.1, jnp.nan, v), solution

    monkeypatch.setattr(script, "scene_step", broken)
    status, counts = soaked(script, tmp_path, "--scenes", "cube", "--steps", "8000")
    assert status == 1
    assert counts["non-finite"] > 0
