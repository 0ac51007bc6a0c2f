"""Capsules around shapes, and boxes with rounded edges."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from placed_shapes import surface
from scipy.spatial.transform import Rotation

from fraxenv.dynamics import Robot
from fraxenv.dynamics.geometry.shapes import (
    SIZES,
    Shape,
    ShapeKind,
    enclosing_capsule,
    rounded_box,
)


@pytest.mark.parametrize("size", [(0.3, 0.08, 0.1), (0.2, 0.2, 0.2), (0.01, 0.5, 0.3), (1, 0, 0)])
def test_shapes_are_enclosed(arm: Robot, size: tuple[float, float, float]) -> None:
    shape = dataclasses.replace(arm.topology.collision_shapes[3], size=size)
    capsule = enclosing_capsule(shape)
    start, end, radius = capsule.start, capsule.end, capsule.radius
    corners = np.stack(np.meshgrid(*[(-0.5, 0.5)] * 3), axis=-1).reshape(-1, 3) * size
    corners = shape.position + corners @ shape.rotation.T
    along = np.clip(
        (corners - start) @ (end - start) / max((end - start) @ (end - start), 1e-9), 0, 1
    )
    gap = np.linalg.norm(corners - start - along[:, None] * (end - start), axis=1)
    assert gap.max() == pytest.approx(radius, abs=1e-9)


@pytest.mark.parametrize("size", [(0.3, 0.08, 0.1), (0.2, 0.25, 0.2), (0.01, 0.5, 0.3)])
def test_enclosing_capsules_are_of_least_volume(arm: Robot, size: tuple[float, ...]) -> None:
    shape = dataclasses.replace(arm.topology.collision_shapes[3], size=size)
    capsule = enclosing_capsule(shape)
    start, end, radius = capsule.start, capsule.end, capsule.radius

    def volume(length: Any, radius: Any) -> Any:
        return np.pi * radius**2 * (length + 4 / 3 * radius)

    *others, longest = np.sort(size) / 2
    inset = np.linspace(0, longest, 20001)  # of the axis' end, from the face
    least = volume(2 * (longest - inset), np.sqrt(np.sum(np.square(others)) + inset**2)).min()
    assert least <= volume(np.linalg.norm(end - start), radius) * (1 + 1e-9) <= least * (1 + 1e-3)


@pytest.mark.parametrize("kind", SIZES)
def test_rounded_boxes_and_capsules_contain_shapes(kind: ShapeKind) -> None:
    size = np.array([0.1, 0.25, 0.2])[: len(SIZES[kind])]
    points = surface(kind, size)
    half, radius = rounded_box(kind, tuple(size))
    outside = np.linalg.norm(np.maximum(np.abs(points) - half, 0.0), axis=1)
    assert outside.max() == pytest.approx(radius, abs=1e-3)
    assert (np.abs(points).max(axis=0) <= np.array(half) + radius + 1e-12).all()

    turned = Rotation.from_rotvec([0.3, -0.4, 0.5]).as_matrix()
    shape = Shape(kind, tuple(size), np.array([0.1, 0.2, 0.3]), turned)
    capsule = enclosing_capsule(shape)
    start, end = np.asarray(capsule.start), np.asarray(capsule.end)
    along = (end - start) / max(np.linalg.norm(end - start), 1e-12)
    at = points @ turned.T + shape.position - start
    foot = np.clip(at @ along, 0.0, np.linalg.norm(end - start))
    gap = np.linalg.norm(at - foot[:, None] * along, axis=1) - float(np.asarray(capsule.radius))
    assert gap.max() < 1e-12
    assert kind in ("box", "cylinder") or gap.min() > -1e-12
