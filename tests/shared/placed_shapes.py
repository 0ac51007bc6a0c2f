"""Shapes at random poses, as this library and as others want them, and points on them."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fraxenv.dynamics import Box, Capsule, HalfSpace, Obstacles, Sphere


@dataclasses.dataclass(frozen=True)
class Placed:
    """n shapes of one kind, as pose and dimensions, which is how other libraries want them."""

    kind: type
    position: np.ndarray
    rotation: np.ndarray
    size: np.ndarray

    @property
    def ours(self) -> Any:
        """The same, as this library wants them."""
        axis = self.rotation[:, :, 2]
        if self.kind is Sphere:
            return Sphere(self.position, self.size[:, 0])
        if self.kind is Capsule:
            half = axis * self.size[:, 1:2]
            return Capsule(self.position - half, self.position + half, self.size[:, 0])
        if self.kind is Box:
            return Box(self.position, self.rotation, self.size)
        return HalfSpace(axis, np.sum(axis * self.position, axis=1))


def place(kind: type, n: int, seed: int, *, aligned: bool = False) -> Placed:
    """Random shapes; aligned ones have faces, edges, axes and centres in common."""
    rng = np.random.default_rng(seed)
    if aligned:
        position = 0.1 * rng.integers(-4, 5, (n, 3))
        quarter_turns = 0.5 * np.pi * rng.integers(0, 4, (n, 3))
        rotation = np.round(Rotation.from_euler("xyz", quarter_turns).as_matrix())
        size = 0.1 * rng.integers(1, 4, (n, 3))
    else:
        position = rng.uniform(-0.5, 0.5, (n, 3))
        rotation = Rotation.random(n, random_state=seed).as_matrix()
        size = rng.uniform(0.03, 0.4, (n, 3))
    return Placed(kind, position, rotation, size)


def obstacles(n: int = 2) -> Obstacles:
    """n random obstacles of each kind, the same in every call."""
    return Obstacles(
        spheres=place(Sphere, n, 1).ours,
        capsules=place(Capsule, n, 2).ours,
        boxes=place(Box, n, 3).ours,
        half_spaces=place(HalfSpace, n, 4).ours,
    )


def surface(kind: str, size: np.ndarray, n: int = 2000) -> np.ndarray:
    """Points (n, 3), m, on the surface of a shape, in its own frame."""
    rng = np.random.default_rng(3)
    way = rng.normal(size=(n, 3))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    if kind == "sphere":
        return size[0] * way
    if kind == "box":
        return 0.5 * size * way / np.abs(way).max(axis=1, keepdims=True)
    if kind == "capsule":
        return size[0] * way + 0.5 * size[1] * np.sign(way[:, 2:]) * np.array([0.0, 0.0, 1.0])
    around = way[:, :2] / np.linalg.norm(way[:, :2], axis=1, keepdims=True)
    return np.column_stack([size[0] * around, size[1] * rng.uniform(-0.5, 0.5, n)])


@lru_cache
def coal_library() -> Any:
    """Coal, once it has been asked for the distance to a box that lies askew.

    For the rest of the process, its boxes keep what the first direction that they are asked about
    decides: `static const CoalScalar inflate = (dir.array() == 0).any() ? 1 + 1e-10 : 1.` in its
    support_functions.cpp. Inflated, they are 5e-11 m off, and a depth in 2000 is by 0.2 m.
    """
    coal = pytest.importorskip("coal")
    askew = coal.Transform3s(Rotation.random(random_state=0).as_matrix(), np.ones(3))
    asked = coal.DistanceRequest(), coal.DistanceResult()
    coal.distance(coal.Capsule(0.1, 0.2), coal.Transform3s(), coal.Box(*np.ones(3)), askew, *asked)
    return coal
