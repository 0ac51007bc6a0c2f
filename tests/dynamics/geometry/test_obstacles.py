"""Obstacles as shapes and as numbers."""

from __future__ import annotations

import dataclasses

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from placed_shapes import obstacles, surface
from scipy.spatial.transform import Rotation

from fraxenv import dynamics
from fraxenv.dynamics import ArrayError, Obstacles, Sphere
from fraxenv.dynamics.geometry.obstacles import (
    bounded,
    obstacle_centres,
    place_obstacles,
    replace_obstacle,
)
from fraxenv.dynamics.geometry.shapes import rounded_box


def test_obstacles_are_shapes_where_they_are(x64: None) -> None:
    """A shape's conversion to numbers is the inverse of theirs to shapes."""
    world = obstacles()
    drawn = dynamics.obstacle_shapes(world, (0.1, 0.2, 0.3, 0.4))
    assert [s.kind for s in drawn.values()] == ["sphere"] * 2 + ["capsule"] * 2 + ["box"] * 2
    assert {s.rgba for s in drawn.values()} == {(0.1, 0.2, 0.3, 0.4)}
    ball, rod, brick = drawn[1], drawn[3], drawn[5]
    assert world.spheres is not None
    assert world.capsules is not None
    assert world.boxes is not None
    np.testing.assert_array_equal(ball.position, world.spheres.position[1])
    np.testing.assert_array_equal(ball.size, (world.spheres.radius[1],))
    tip = rod.position + 0.5 * rod.size[1] * rod.rotation[:, 2]
    np.testing.assert_allclose(tip, world.capsules.end[1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(rod.rotation), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(brick.size, 2 * world.boxes.half_extents[1])
    for i, shape in drawn.items():
        same = replace_obstacle(world, i, shape)
        chex.assert_trees_all_close(same, world, rtol=0, atol=1e-12)
    active = np.arange(8) % 3 == 0
    assert list(dynamics.obstacle_shapes(dataclasses.replace(world, active=active))) == [0, 3]
    with pytest.raises(IndexError, match="obstacle 6, expected less than 6"):
        replace_obstacle(world, 6, ball)


def test_one_obstacle_is_replaced(x64: None) -> None:
    world = obstacles()
    for i, shape in dynamics.obstacle_shapes(world).items():
        turn = Rotation.from_rotvec([0.3, 0.1 * i, -0.5]).as_matrix()
        there = dataclasses.replace(shape, position=np.array([0.1, 0.2, 0.3]), rotation=turn)
        after = dynamics.obstacle_shapes(replace_obstacle(world, i, there))
        np.testing.assert_allclose(after[i].position, there.position, rtol=0, atol=1e-12)
        np.testing.assert_allclose(after[i].size, shape.size, rtol=0, atol=1e-12)
        if shape.kind != "sphere":
            axis = after[i].rotation[:, 2]
            np.testing.assert_allclose(axis, turn[:, 2], rtol=0, atol=1e-12)
        for j, other in dynamics.obstacle_shapes(world).items():
            if j != i:
                np.testing.assert_array_equal(after[j].position, other.position)


def test_obstacles_are_placed_by_their_centres(x64: None) -> None:
    world, centres = obstacles(), np.arange(18.0).reshape(6, 3)
    placed = place_obstacles(world, jnp.asarray(centres))
    np.testing.assert_allclose(obstacle_centres(placed), centres, rtol=0, atol=1e-12)
    before, after = (dynamics.obstacle_shapes(o) for o in (world, placed))
    for i, shape in before.items():
        np.testing.assert_allclose(after[i].position, centres[i], rtol=0, atol=1e-12)
        np.testing.assert_allclose(after[i].size, shape.size, rtol=0, atol=1e-12)
        np.testing.assert_allclose(after[i].rotation, shape.rotation, rtol=0, atol=1e-12)


def test_bounding_spheres_and_half_axes(x64: None) -> None:
    """The corners, or the ends, are at the half axes, and the farthest point is as far."""
    shapes = dynamics.obstacle_shapes(obstacles())
    kinds = bounded(obstacles()).values()
    radii = np.concatenate([kind.bounding_radius for kind in kinds])
    axes = [row for kind in kinds for row in np.asarray(kind.half_axes)]
    for i, shape in shapes.items():
        farthest = np.linalg.norm(surface(shape.kind, np.array(shape.size)), axis=1).max()
        assert farthest <= radii[i] + 1e-12
        assert farthest > 0.95 * radii[i]
        half, _ = rounded_box(shape.kind, shape.size)
        columns = (shape.rotation * half)[:, np.array(half) > 0]
        np.testing.assert_allclose(axes[i], columns.T, rtol=0, atol=1e-12)


def test_obstacles_are_counted() -> None:
    assert dynamics.obstacle_count(obstacles()) == 8
    assert dynamics.obstacle_count(Obstacles()) == 0


def test_velocities_have_to_fit() -> None:
    world = dataclasses.replace(obstacles(), velocity=np.zeros((3, 3)))
    expected = r"velocity of Obstacles has shape \(3, 3\), expected \(8, 3\)"
    with pytest.raises(ArrayError, match=expected):
        dynamics.obstacle_rates(world)


def test_walls_have_to_fit() -> None:
    world = dataclasses.replace(obstacles(), velocity=np.zeros((8, 3)), walls=np.zeros(3))
    with pytest.raises(ArrayError, match=r"walls of Obstacles has shape \(3,\), expected \(2, 3\)"):
        dynamics.move_obstacles(world, 0.1)


@pytest.mark.parametrize("time", [0.0, 0.3, 1.0, 5.0])
def test_walls_turn_obstacles_back(time: float, x64: None) -> None:
    """As ever so small steps do, after each of which who is outside turns."""
    rng = np.random.default_rng(0)
    low, high = np.array([-0.3, -0.4, 0.0]), np.array([0.5, 0.4, 0.9])
    centre = rng.uniform(low, high, (6, 3))
    velocity = rng.uniform(-0.6, 0.6, (8, 3))
    velocity[1] = 0.0
    world = place_obstacles(obstacles(), jnp.asarray(centre))
    world = dataclasses.replace(world, velocity=velocity, walls=np.stack([low, high]))
    later = dynamics.move_obstacles(world, time)
    there, v = centre.copy(), velocity[:6].copy()
    steps = 20_000
    for _ in range(steps):
        there += v * time / steps
        v = np.where(there < low, np.abs(v), np.where(there > high, -np.abs(v), v))
    assert (v != velocity[:6]).any() == (time > 0)
    np.testing.assert_allclose(obstacle_centres(later), there, rtol=0, atol=3e-3 * time + 1e-15)
    np.testing.assert_array_equal(later.velocity, np.concatenate([v, velocity[6:]]))
    away = later.half_spaces.offset - world.half_spaces.offset
    straight = time * np.sum(world.half_spaces.normal * velocity[6:], -1)
    np.testing.assert_allclose(away, straight, rtol=0, atol=1e-15)
    again = dynamics.move_obstacles(dynamics.move_obstacles(world, 0.3 * time), 0.7 * time)
    np.testing.assert_allclose(obstacle_centres(again), obstacle_centres(later), atol=1e-12)


def test_who_is_outside_of_walls_turns_or_comes_in() -> None:
    walls = np.array([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])
    places = np.array([[1.2, 0.0, 0.0], [1.2, 0.0, 0.0], [-1.2, 0.0, 0.0], [1.2, 0.0, 0.0]])
    velocity = np.array([[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0], [-0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    world = Obstacles(Sphere(places, np.full(4, 0.1)), velocity=velocity, walls=walls)
    later = dynamics.move_obstacles(world, 0.2)
    np.testing.assert_allclose(obstacle_centres(later)[:, 0], [1.1, 1.1, -1.1, 1.2], atol=1e-6)
    np.testing.assert_array_equal(later.velocity[:, 0], [-0.5, -0.5, 0.5, 0.0])


def test_where_no_wall_is_hit_nothing_changes() -> None:
    """Bit for bit."""
    rng = np.random.default_rng(1)
    velocity = rng.uniform(-0.5, 0.5, (8, 3)).astype(np.float32)
    free = dataclasses.replace(obstacles(), velocity=velocity)
    world = dataclasses.replace(free, walls=np.array([[-50.0] * 3, [50.0] * 3]))
    moved = dynamics.move_obstacles(world, 0.07)
    chex.assert_trees_all_equal(
        dataclasses.replace(moved, walls=None), dynamics.move_obstacles(free, 0.07)
    )
    still = dataclasses.replace(world, velocity=None)
    assert dynamics.move_obstacles(still, 0.07) is still
