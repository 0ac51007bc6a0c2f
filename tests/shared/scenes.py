"""Scenes that several tests share: MJCF of many kinds, and how two scenes are compared."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np

MODELS = Path(__file__).parents[1] / "models"

SOURCES = {
    name: MODELS / f"{name}.xml"
    for name in (
        "gripper_arm",
        "quadruped",
        "hand",
        "many_joints",
        "balls",
        "servos",
        "welded",
        "equalities",
        "gantry",
        "family",
    )
}


def compiled(name: str) -> mujoco.MjModel:
    """MuJoCo's model of one of `SOURCES`."""
    return mujoco.MjModel.from_xml_path(str(SOURCES[name]))


def random_state(
    model: mujoco.MjModel, rng: np.random.Generator, spread: float = 1.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A configuration around the reference, a velocity, and controls."""
    q = model.qpos0.copy()
    mujoco.mj_integratePos(model, q, spread * rng.normal(size=model.nv), 1.0)
    return q, rng.normal(size=model.nv), 2 * rng.normal(size=model.nu)


def mass_matrix(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """MuJoCo's dense mass matrix."""
    columns = np.zeros((model.nv, model.nv))
    for column, unit in zip(columns, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, column, unit)
    return columns


def differences(one: Any, other: Any, tolerance: float, path: str = "scene") -> list[str]:
    """Where two scenes differ, static parts and numbers alike."""
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        if type(one) is not type(other):
            return [f"{path}: {type(one)} and {type(other)}"]
        pairs = [
            (f.name, getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)
        ]
        return [d for n, a, b in pairs for d in differences(a, b, tolerance, f"{path}.{n}")]
    if isinstance(one, tuple | list):
        if len(one) != len(other):
            return [f"{path}: {len(one)} and {len(other)} entries"]
        pairs = [(k, a, b) for k, (a, b) in enumerate(zip(one, other, strict=True))]
        return [d for k, a, b in pairs for d in differences(a, b, tolerance, f"{path}[{k}]")]
    if isinstance(one, np.ndarray | np.generic | float | jax.Array):
        a, b = np.asarray(one), np.asarray(other)
        same = a.shape == b.shape and np.allclose(a, b, rtol=tolerance, atol=tolerance)
        return [] if same else [f"{path}: {a} and {b}"]
    return [] if one == other else [f"{path}: {one} and {other}"]
