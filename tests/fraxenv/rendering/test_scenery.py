"""What pictures of environments show, against the kinematics and the goals they are made of."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import fraxenv
from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.envs import Environment, EnvParams, Reach
from fraxenv.envs.tasks.reach import ReachState
from fraxenv.errors import RenderError
from fraxenv.rendering import Camera, Shape, default_camera, render, render_env, scene

GREEN = (0.1, 0.75, 0.3, 0.6)
SIZE = 96

SLIDER = """
<robot name="slider">
  <link name="base"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="cart"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="slide" type="prismatic"><parent link="base"/><child link="cart"/>
    <origin xyz="0 0 0.5"/><axis xyz="1 0 0"/><limit effort="1" velocity="1" lower="-2" upper="2"/>
  </joint>
</robot>
"""


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


@pytest.fixture(scope="module")
def pose_env() -> tuple[Environment, EnvParams]:
    return fraxenv.make("PandaReachPose-v0")


def without(robot: Robot, *kinds: str) -> Robot:
    return robot.replace(topology=replace(robot.topology, **dict.fromkeys(kinds, ())))


def configuration(robot: Robot) -> NDArray[np.float64]:
    return np.asarray(robot.q_default) + np.linspace(-0.3, 0.4, robot.nq)


def project(points: NDArray[np.float64], camera: Camera) -> NDArray[np.float64]:
    """Image coordinates (n, 2), the picture being the square [-1, 1]."""
    forward = np.subtract(camera.target, camera.eye)
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    x, y, z = np.stack([right, np.cross(right, forward), forward]) @ (points - camera.eye).T
    assert np.all(z > 0)
    return np.stack([x, y], axis=1) / z[:, None] / math.tan(math.radians(camera.fov) / 2)


def test_shapes_move_with_their_bodies(panda: Robot) -> None:
    q = configuration(panda)
    bodies = panda.topology.visual_shapes
    shapes = scene(panda, q)
    body_position, body_rotation = (np.asarray(x) for x in dynamics.forward_kinematics(panda, q))
    for body_shape, shape in zip(bodies, shapes, strict=False):
        position, rotation = body_shape.position, body_shape.rotation
        if body_shape.body != dynamics.WORLD:
            R = body_rotation[body_shape.body]
            position, rotation = body_position[body_shape.body] + R @ position, R @ rotation
        np.testing.assert_allclose(shape.position, position, atol=1e-6)
        np.testing.assert_allclose(shape.rotation, rotation, atol=1e-6)
        assert (shape.kind, shape.size, shape.rgba) == (
            body_shape.kind,
            body_shape.size,
            body_shape.rgba,
        )
    assert {s.body for s in bodies} == set(range(-1, panda.nv))  # all bodies were looked at
    assert len(shapes) == len(bodies) + 3


def test_hand_carries_a_triad(panda: Robot) -> None:
    q = configuration(panda)
    position, rotation = (np.asarray(x) for x in dynamics.frame_pose(panda, q, "hand"))
    for axis, arrow in enumerate(scene(panda, q)[-3:]):
        assert arrow.rgba[axis] == max(arrow.rgba[:3])  # x red, y green, z blue
        along = arrow.position - position
        np.testing.assert_allclose(
            along, np.linalg.norm(along) * rotation[:, axis], atol=1e-6, rtol=0
        )
        assert 0.02 < np.linalg.norm(along) < 0.06


def test_markers_are_drawn_after_the_robot(panda: Robot) -> None:
    q = configuration(panda)
    bare = len(scene(panda, q))
    position = jnp.array([0.4, -0.1, 0.3])
    (ball,) = scene(panda, q, [Shape("sphere", (0.03,), position, rgba=GREEN)])[bare:]
    assert (ball.kind, ball.size, ball.rgba) == ("sphere", (0.03,), GREEN)
    assert isinstance(ball.position, np.ndarray)
    np.testing.assert_array_equal(ball.position, position)


@pytest.mark.parametrize("turned", [True, False])
def test_goals_are_translucent_balls_and_have_axes_if_their_orientation_counts(
    turned: bool,
) -> None:
    position, rotation = np.array([0.4, -0.1, 0.3]), np.roll(np.eye(3), 1, axis=1)
    task = Reach(end_effector="hand", orientation=turned)
    ball, *arrows = task.markers(ReachState(position[None], rotation[None]))
    assert ball.kind == "sphere"
    assert ball.rgba[3] < 1.0
    np.testing.assert_array_equal(ball.position, position)
    assert [s.kind for s in arrows] == ["capsule"] * (3 if turned else 0)
    for axis, arrow in enumerate(arrows):
        along = arrow.position - position
        np.testing.assert_allclose(along / np.linalg.norm(along), rotation[:, axis], atol=1e-9)


@pytest.mark.parametrize("view", ["goals", "robot"])
def test_default_camera_sees(panda: Robot, view: str) -> None:
    camera = default_camera(panda)
    if view == "goals":
        task = Reach()
        points = np.array(list(itertools.product(*zip(task.goal_low, task.goal_high, strict=True))))
    else:
        points = np.array([s.position for s in scene(panda, panda.q_default)])
    seen = project(points, camera)
    assert np.all(np.abs(seen) < 0.92)
    assert np.ptp(seen, axis=0).max() > 0.9  # and not from miles away


def test_default_camera_looks_from_the_front_and_above(panda: Robot) -> None:
    camera = default_camera(panda)
    x, y, z = np.subtract(camera.eye, camera.target)
    assert x > abs(y) > 0.3 * x
    assert 0.2 * x < z < x


def test_every_goal_shows(panda: Robot) -> None:
    camera, q, task = default_camera(panda), panda.q_default, Reach()
    empty = render(scene(panda, q), camera, SIZE, SIZE)
    for corner in itertools.product(*zip(task.goal_low, task.goal_high, strict=True)):
        marked = scene(panda, q, [Shape("sphere", (0.02,), np.array(corner), rgba=GREEN)])
        assert np.any(render(marked, camera, SIZE, SIZE) != empty)


def test_render_env_is_a_fresh_picture_of_the_state(
    pose_env: tuple[Environment, EnvParams],
) -> None:
    env, params = pose_env
    _, state = env.reset(jax.random.key(0), params)
    picture = render_env(env, state, params, 120, SIZE)
    assert (picture.shape, picture.dtype) == ((SIZE, 120, 3), np.uint8)
    again = render_env(env, state, params, 120, SIZE)
    np.testing.assert_array_equal(picture, again)
    assert not np.shares_memory(picture, again)

    goal = state.task_state
    moved = replace(goal, position=goal.position + np.float32(0.1))
    turned = replace(goal, rotation=np.roll(np.asarray(goal.rotation), 1, axis=1))
    for other in (
        state.replace(q=state.q + 0.2),
        state.replace(task_state=moved),
        state.replace(task_state=turned),
    ):
        assert np.any(render_env(env, other, params, 120, SIZE) != picture)
    near = Camera(eye=(1.0, 0.0, 0.5), target=(0.3, 0.0, 0.4))
    assert np.any(render_env(env, state, params, 120, SIZE, camera=near) != picture)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_configuration_that_is_not_finite_is_refused(
    pose_env: tuple[Environment, EnvParams], bad: float
) -> None:
    env, params = pose_env
    _, state = env.reset(jax.random.key(0), params)
    broken = state.replace(q=state.q.at[3].set(bad))
    with pytest.raises(RenderError) as caught:
        render_env(env, broken, params, SIZE, SIZE)
    for part in ("'panda'", f"q[3] = {bad}", "expected finite", "reset"):
        assert part in str(caught.value)


def test_batch_of_states_is_refused(pose_env: tuple[Environment, EnvParams]) -> None:
    env, params = pose_env
    _, states = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), 2), params)
    with pytest.raises(RenderError) as caught:
        render_env(env, states, params, SIZE, SIZE)
    for part in ("shape (2, 7)", "expected (7,)", "jax.tree.map(lambda x: x[0], state)"):
        assert part in str(caught.value)


def test_collision_shapes_stand_in_for_visual_ones(panda: Robot) -> None:
    shapes = scene(without(panda, "visual_shapes"), panda.q_default)
    assert [s.size for s in shapes[:-3]] == [s.size for s in panda.topology.collision_shapes]


def test_cylinders_between_joints_stand_in_for_shapes(panda: Robot) -> None:
    robot, q = without(panda, "visual_shapes", "collision_shapes"), configuration(panda)
    joints = np.asarray(dynamics.forward_kinematics(panda, q).position)
    hand, _ = dynamics.frame_pose(panda, q, "hand")
    chain = np.stack([np.zeros(3), *joints, np.asarray(hand)])
    expected = [
        np.sort([a, b], axis=0)
        for a, b in itertools.pairwise(chain)
        if np.linalg.norm(b - a) > 0.012
    ]
    bones = [s for s in scene(robot, q) if s.kind == "cylinder"]
    assert len(bones) == len(expected) >= 4
    for bone, ends in zip(bones, expected, strict=True):
        half = bone.rotation[:, 2] * bone.size[1] / 2
        drawn = np.sort([bone.position - half, bone.position + half], axis=0)
        np.testing.assert_allclose(drawn, ends, atol=1e-6)
    render_of(robot, q)


def render_of(robot: Robot, q: NDArray[np.float64]) -> NDArray[np.uint8]:
    shapes: list[Shape] = scene(robot, q)
    return render(shapes, default_camera(robot), SIZE, SIZE)


def test_robot_without_shapes_follows_sliding_joints(tmp_path: Path) -> None:
    path = tmp_path / "slider.urdf"
    path.write_text(SLIDER)
    robot = dynamics.load_urdf(path)
    (bone,) = (s for s in scene(robot, [1.2]) if s.kind == "cylinder")
    assert bone.size[1] == pytest.approx(math.hypot(0.5, 1.2), abs=1e-6)
    assert np.any(render_of(robot, np.array([0.5])) != render_of(robot, np.array([-0.5])))


def test_no_bone_leads_to_a_robot_that_floats(tmp_path: Path) -> None:
    path = tmp_path / "slider.urdf"
    path.write_text(SLIDER)
    slider, free = (dynamics.load_urdf(path, floating_base=floats) for floats in (False, True))
    forest = dynamics.combine(slider, free, prefixes=("a_", "b_"))
    q = np.array([1.2, 3.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.7])  # side by side, 3 m apart
    in_forest, alone = scene(forest, q), scene(free, q[1:])
    bones = [s for s in in_forest if s.kind == "cylinder"]
    assert [b.size[1] for b in bones] == pytest.approx([math.hypot(0.5, 1.2), math.hypot(0.5, 0.7)])
    np.testing.assert_allclose(bones[1].position, [3.35, 0.0, 1.25], atol=1e-6)
    balls = [s.position for s in in_forest if s.kind == "sphere"]
    np.testing.assert_allclose(
        balls, [[1.2, 0, 0.5], [3, 0, 1], [3.7, 0, 1.5], [0, 0, 0]], atol=1e-6
    )
    assert sum(s.kind == "sphere" for s in alone) == 2  # none at the world's origin


def test_kinematics_are_compiled_once(panda: Robot, compilations: Callable[[], list[str]]) -> None:
    robot = panda.replace(damping=np.full(panda.nv, 0.123))  # a robot that nobody drew before
    scene(robot, configuration(robot))
    assert len(compilations()) == 1
    scene(robot, np.asarray(robot.q_default, np.float32))
    scene(robot, np.asarray(robot.q_default, np.float64))
    assert len(compilations()) == 1


@pytest.fixture
def compilations(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What JAX has compiled since the test began."""
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        yield lambda: [
            r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling")
        ]
