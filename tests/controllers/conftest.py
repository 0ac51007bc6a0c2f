"""Pinocchio's terms of the equations of motion, to compute control laws from in plain NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fraxenv.dynamics.model.bundled import bundled_urdf

pin = pytest.importorskip("pinocchio")


@dataclass
class Terms:
    """M (nv, nv); bias, gravity (nv,); for k frames poses, J (6 k, nv) and `Jdot v` (6 k,)."""

    M: np.ndarray
    bias: np.ndarray
    gravity: np.ndarray
    poses: list[Any]
    J: np.ndarray
    drift: np.ndarray


class Model:
    """A bundled robot, fixed at its base, in Pinocchio."""

    def __init__(self, name: str) -> None:
        self.model = pin.buildModelFromUrdf(str(bundled_urdf(name)))
        self.data = self.model.createData()

    def terms(self, q: np.ndarray, v: np.ndarray, frames: tuple[str, ...]) -> Terms:
        model, data = self.model, self.data
        pin.forwardKinematics(model, data, q, v)
        pin.computeJointJacobiansTimeVariation(model, data, q, v)
        pin.updateFramePlacements(model, data)
        M = pin.crba(model, data, q)
        J, drift = [], []
        ids = [model.getFrameId(f) for f in frames]
        for i in ids:
            J.append(pin.getFrameJacobian(model, data, i, pin.LOCAL_WORLD_ALIGNED))
            rate = pin.getFrameJacobianTimeVariation(model, data, i, pin.LOCAL_WORLD_ALIGNED)
            drift.append(rate @ v)
        return Terms(
            np.triu(M) + np.triu(M, 1).T,
            pin.nonLinearEffects(model, data, q, v).copy(),
            pin.computeGeneralizedGravity(model, data, q).copy(),
            [data.oMf[i].copy() for i in ids],
            np.concatenate(J),
            np.concatenate(drift),
        )


def rotation_vector(desired: np.ndarray, actual: np.ndarray) -> np.ndarray:
    return np.asarray(pin.log3(desired @ actual.T))


@pytest.fixture(scope="session")
def pinocchio() -> Any:
    """`pinocchio(name)` loads a robot; `pinocchio.log3(desired, actual)` is the turn between."""
    models: dict[str, Model] = {}

    def load(name: str) -> Model:
        if name not in models:
            models[name] = Model(name)
        return models[name]

    load.rotation_vector = rotation_vector  # type: ignore[attr-defined]
    return load
