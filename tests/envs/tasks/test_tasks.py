"""Tasks: tracking and its references, several hands, and a task of one's own."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import fraxenv
from fraxenv import dynamics
from fraxenv.dynamics import Obstacles, Robot
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.envs import (
    FigureEight,
    MinimumJerk,
    Motion,
    Reach,
    ReachObstacles,
    Sampled,
    Task,
    Track,
)
from fraxenv.envs.observation import task_inputs
from fraxenv.errors import ConfigError, EnvStateError

HOME = jnp.array([[0.4, 0.0, 0.4], [0.5, 0.1, 0.3]])
frame_pose = jax.jit(dynamics.frame_pose, static_argnums=2)
KEY = jax.random.key(0)


# --- References -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", [FigureEight(), FigureEight(plane="xy"), MinimumJerk()])
def test_velocity_is_the_derivative_of_the_position(x64: None, reference: Any) -> None:
    path = reference.sample(KEY, HOME.astype(float))

    def rates(t: Array) -> Any:
        return jax.jvp(lambda t: reference.at(path, t), (t,), (jnp.ones_like(t),))

    (position, velocity), (rate, _) = jax.jit(jax.vmap(rates))(jnp.linspace(0.013, 5.0, 23))
    assert position.shape == velocity.shape == (23, 2, 3)
    np.testing.assert_allclose(velocity, rate, atol=1e-9)


def test_figure_eight() -> None:
    reference = FigureEight(size=(0.2, 0.1), period=2.0, offset=0.03)
    centre, phase = reference.sample(KEY, HOME)
    assert np.abs(centre - HOME).max() <= 0.03
    np.testing.assert_array_equal(centre[:, 0], HOME[:, 0])  # in the plane y, z
    times = jnp.linspace(0.0, 2.0, 401)
    position, _ = jax.vmap(lambda t: reference.at((centre, phase), t))(times)
    away = np.asarray(position - centre)
    np.testing.assert_allclose(away.max((0, 1)), [0.0, 0.2, 0.1], atol=1e-4)
    np.testing.assert_allclose(away.min((0, 1)), [0.0, -0.2, -0.1], atol=1e-4)
    np.testing.assert_allclose(position[0], position[-1], atol=1e-5)
    # Gerono: (z / h)^2 = 4 (y / w)^2 (1 - (y / w)^2)
    y, z = away[..., 1] / 0.2, away[..., 2] / 0.1
    np.testing.assert_allclose(z**2, 4 * y**2 * (1 - y**2), atol=1e-4)


def test_minimum_jerk(x64: None) -> None:
    """At the way-points at rest and without acceleration; straight between them."""
    reference = MinimumJerk(duration=0.5, count=3)
    path = reference.sample(KEY, HOME.astype(float))
    assert path.shape == (4, 2, 3)
    np.testing.assert_array_equal(path[0], HOME)
    at = jax.jit(lambda t: reference.at(path, t))
    acceleration = jax.jit(jax.jacfwd(lambda t: reference.at(path, t)[1]))
    for i in range(4):
        position, velocity = at(0.5 * i)
        np.testing.assert_allclose(position, path[i], atol=1e-12)
        np.testing.assert_allclose(velocity, 0.0, atol=1e-12)
        np.testing.assert_allclose(acceleration(0.5 * i + 1e-9), 0.0, atol=1e-5)
    middle, _ = at(0.75)
    np.testing.assert_allclose(middle, 0.5 * (path[1] + path[2]), atol=1e-12)
    late, velocity = at(99.0)
    np.testing.assert_allclose(late, path[-1], atol=1e-12)
    assert not velocity.any()


def test_sampled() -> None:
    points = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.1, 0.2, 0.0]])
    once, loop = Sampled(points, 0.5), Sampled(points, 0.5, loop=True)
    for time, expected, velocity in (
        (0.0, (0, 0, 0), (0.2, 0, 0)),
        (0.25, (0.05, 0, 0), (0.2, 0, 0)),
        (0.75, (0.1, 0.1, 0), (0, 0.4, 0)),
        (1.0, (0.1, 0.2, 0), (0, 0, 0)),
        (9.0, (0.1, 0.2, 0), (0, 0, 0)),
    ):
        found = once.at((), jnp.asarray(time))
        np.testing.assert_allclose(found[0], [expected], atol=1e-6)
        np.testing.assert_allclose(found[1], [velocity], atol=1e-6)
    np.testing.assert_allclose(loop.at((), jnp.asarray(1.25))[0], [(0.05, 0.1, 0)], atol=1e-6)
    np.testing.assert_allclose(loop.at((), jnp.asarray(1.75))[0], [(0.05, 0, 0)], atol=1e-6)
    with pytest.raises(ConfigError, match=r"shape \(3, 2\), expected \(n, 3\)"):
        Sampled(points[:, :2], 0.5)
    with pytest.raises(ConfigError, match="plane='yy'"):
        FigureEight(plane="yy")
    with pytest.raises(ConfigError, match="count=0"):
        MinimumJerk(count=0)


# --- Track ----------------------------------------------------------------------------------------


def test_track_follows_its_reference_in_time() -> None:
    env, params = fraxenv.make("PandaTrack-v0", backend="vmap")
    obs, state = env.reset(KEY, params)
    task: Any = params.task
    for _ in range(3):
        obs, state, *_, info = env.step(KEY, state, jnp.zeros(6), params)
    at = task.reference.at(state.task_state.path, jnp.asarray(3 / 50))
    np.testing.assert_allclose(state.task_state.position, at[0], atol=1e-6)
    hand = frame_pose(env.robot, state.q, "hand")[0]
    error = np.linalg.norm(np.asarray(at[0][0] - hand))
    np.testing.assert_allclose(info["position_error"], error, atol=1e-6)
    ends = np.cumsum([0, *env.observation_layout.values()])
    where = dict(zip(env.observation_layout, itertools.pairwise(ends), strict=True))
    ahead, _ = task.reference.at(state.task_state.path, jnp.asarray(3 / 50 + 0.2))
    seen = obs[slice(*where["to_goal_ahead"])]
    np.testing.assert_allclose(seen, 10 * (ahead[0] - hand), atol=1e-4)
    np.testing.assert_allclose(obs[slice(*where["goal_velocity"])], at[1][0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "reference",
    [MinimumJerk(), pytest.param(Sampled(np.asarray(HOME), 0.5), marks=pytest.mark.slow)],
)
def test_track_takes_other_references(reference: Any) -> None:
    env, params = fraxenv.make(
        robot="panda", task=Track("hand", reference=reference), action="ee_delta_position"
    )
    assert env.name == "PandaTrack"
    _, state = env.reset(KEY, params)
    obs, state, *_ = env.step(KEY, state, jnp.zeros(3), params)
    assert bool(jnp.isfinite(obs).all())


@pytest.mark.slow
def test_a_simple_policy_tracks() -> None:
    """Move towards where the reference will be: within the tolerance most of the time."""
    env, params = fraxenv.make("PandaTrack-v0", action="ee_delta_position")
    ends = np.cumsum([0, *env.observation_layout.values()])
    start = ends[list(env.observation_layout).index("to_goal_ahead")]

    def step(carry: Any, key: Array) -> Any:
        obs, state = carry
        action = jnp.clip(2.0 * obs[:, start : start + 3], -1, 1)
        keys = jax.random.split(key, 32)
        obs, state, *_, info = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)
        return (obs, state), info["position_error"]

    @jax.jit
    def run() -> Array:
        first = jax.vmap(env.reset, (0, None))(jax.random.split(KEY, 32), params)
        return jax.lax.scan(step, first, jax.random.split(KEY, 149))[1]

    error = np.asarray(run())[75:]
    assert np.median(error) < 0.02


# --- Several hands --------------------------------------------------------------------------------


def test_two_hands_have_a_goal_each() -> None:
    env, params = fraxenv.make("G1Reach-v0", control_hz=100)
    task: Any = params.task
    _, state = env.reset(KEY, params)
    goals = np.asarray(state.task_state.position)
    assert goals.shape == (2, 3)
    assert (goals >= task.goal_low).all()
    assert (goals <= task.goal_high).all()
    _, motion, _ = task_inputs(env.robot, state)
    hands = [frame_pose(env.robot, state.q, n)[0] for n in ("left_hand", "right_hand")]
    errors = np.linalg.norm(goals - np.asarray(hands), axis=1)

    @jax.jit
    def told(goals: Any) -> Any:
        return [f(env.robot, motion, goals) for f in (task.measures, task.reward_terms)]

    measured, terms = told(state.task_state)
    np.testing.assert_allclose(measured["position_error"], errors.max(), atol=1e-6)
    np.testing.assert_allclose(terms["position_error"], errors.mean(), atol=1e-6)
    # Success is that of both.
    for at, success in ((hands, True), ([hands[0], goals[1]], False)):
        there = replace(state.task_state, position=jnp.asarray(np.array(at)))
        assert bool(told(there)[0]["success"]) == success
    assert len(task.markers(jax.tree.map(np.asarray, state.task_state))) == 2


def test_the_way_ahead_is_marked() -> None:
    env, params = fraxenv.make("G1Track-v0", control_hz=100)
    task: Any = params.task
    _, state = env.reset(KEY, params)
    now = jax.tree.map(np.asarray, state.task_state)
    later = jax.tree.map(np.asarray, task.advance(state.task_state, jnp.asarray(1.0)))
    here, soon = task.markers(now), task.markers(later)
    assert [m.size for m in here[:2]] == [(float(task.position_tolerance),)] * 2
    ahead, then = (np.array([m.position for m in x[2:]]).reshape(-1, 2, 3) for x in (here, soon))
    np.testing.assert_allclose(ahead[9], later.position, atol=1e-6)  # 1 s, in steps of 0.1 s
    np.testing.assert_allclose(then[:-10], ahead[10:], atol=1e-6)


# --- Obstacles of all kinds -----------------------------------------------------------------------


def test_capsules_and_boxes_are_placed_moved_and_seen() -> None:
    counts = {"sphere_count": 2, "capsule_count": 2, "box_count": 2, "moving_count": 3}
    env, params = fraxenv.make(
        "PandaReachObstacles-v0", task_options=counts, safety="none", backend="vmap"
    )
    task, robot = params.task, env.robot
    keys = jax.random.split(KEY, 100)
    _, state = jax.jit(jax.vmap(env.reset_env, (0, None)))(keys, params)
    around: Obstacles = state.world.obstacles
    every = [s.name for s in robot.topology.collision_shapes]
    gaps = jax.jit(jax.vmap(lambda q, o: dynamics.obstacle_distances(robot, q, o, shapes=every)))(
        state.q, around
    )
    assert gaps.shape[-1] == 6
    assert float(jnp.min(gaps)) > float(task.clearance) - 1e-4
    assert np.mean(around.active) > 0.5
    layout = env.observation_layout
    assert (layout["to_obstacles"], layout["obstacle_radius"]) == (18, 6)
    assert (layout["obstacle_axes"], layout["obstacle_velocity"]) == (2 * 3 + 2 * 9, 9)
    length = np.linalg.norm(np.asarray(around.capsules.end - around.capsules.start), axis=-1)
    assert length.min() >= 0.1 - 1e-5
    assert length.max() <= 0.3 + 1e-5
    half = np.asarray(around.boxes.half_extents)
    assert half.min() >= 0.03 - 1e-6
    assert half.max() <= 0.08 + 1e-6
    move = jax.jit(jax.vmap(lambda obstacles: dynamics.move_obstacles(obstacles, 0.1)))
    moved = move(replace(around, walls=None))
    start, end = (
        np.asarray(getattr(moved.capsules, n) - getattr(around.capsules, n))
        for n in ("start", "end")
    )
    np.testing.assert_allclose(start, 0.1 * np.asarray(around.velocity)[:, 2:4], atol=1e-6)
    np.testing.assert_allclose(start, end, atol=1e-6)  # they do not turn
    np.testing.assert_array_equal(moved.boxes.position, around.boxes.position)
    one = jax.tree.map(lambda x: np.asarray(x)[0], state)
    kinds = [m.kind for m in env.markers(one, params)]
    assert kinds.count("sphere") <= 3
    assert {"capsule", "box"} <= set(kinds)
    with pytest.raises(ConfigError, match="capsule_count=-1"):
        ReachObstacles(capsule_count=-1)


def test_a_collision_may_end_the_episode() -> None:
    env, params = fraxenv.make(
        "PandaReachObstacles-v0",
        safety="none",
        task_options={"collision_ends": True, "sphere_count": 1},
        backend="vmap",
    )
    _, state = env.reset(KEY, params)
    for inside in (False, True):
        hand = frame_pose(env.robot, state.q, "hand")[0]
        centre = hand[None] + (0.0 if inside else 3.0)
        obstacles = state.world.obstacles
        obstacles = replace(
            obstacles,
            spheres=replace(obstacles.spheres, position=centre),
            active=jnp.ones(1, bool),
        )
        there = state.replace(world=replace(state.world, obstacles=obstacles))
        *_, terminated, truncated, info = env.step(KEY, there, jnp.zeros(6), params)
        assert bool(terminated) == inside
        assert not bool(truncated)
        assert not bool(info["diverged"])
        assert (float(info["clearance"]) < 0) == inside


# --- One's own ------------------------------------------------------------------------------------


@pytree_dataclass
class PointAt(Task):
    """Turn the hand's z axis towards a random direction; the episode ends when it is there."""

    tolerance: float = 0.1

    def reset(self, key: Array, robot: Robot) -> tuple[Array, Array]:
        direction = jax.random.normal(key, (3,))
        return jnp.asarray(robot.q_default, float), direction / jnp.linalg.norm(direction)

    def _angle(self, robot: Robot, motion: Motion, state: Array) -> Array:
        rotation = dynamics.frame_pose(robot, motion.q, "hand", kin=motion.poses)[1]
        return jnp.arccos(jnp.clip(rotation[:, 2] @ state, -1.0, 1.0))

    def observation_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        return {"joints": motion.q, "direction": state}

    def reward_terms(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        return {"angle": -self._angle(robot, motion, state)}

    def measures(self, robot: Robot, motion: Motion, state: Any) -> dict[str, Array]:
        return {"success": self._angle(robot, motion, state) < jnp.asarray(self.tolerance)}

    def terminated(self, robot: Robot, motion: Motion, state: Any) -> Array:
        return self._angle(robot, motion, state) < jnp.asarray(self.tolerance)


def test_a_task_of_ones_own() -> None:
    env, params = fraxenv.make(
        robot="panda", task=PointAt(), action="joint_velocity", backend="vmap"
    )
    assert env.name == "PandaPointAt"
    assert env.observation_layout == {"joints": 7, "direction": 3}
    _, state = env.reset(KEY, params)
    obs, _, reward, terminated, _, info = env.step(KEY, state, jnp.zeros(7), params)
    assert obs.shape == (10,)
    np.testing.assert_allclose(reward, info["reward_terms"]["angle"])
    assert not bool(terminated)
    here = frame_pose(env.robot, state.q, "hand")[1][:, 2]
    *_, terminated, truncated, info = env.step(
        KEY, state.replace(task_state=here), jnp.zeros(7), params
    )
    assert bool(terminated)
    assert not bool(truncated)
    assert bool(info["success"])


def test_obstacles_that_nobody_would_ask_for_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Old\.obstacles: .* expected `world`"):

        class Old(Reach):
            def obstacles(self, key: Array, robot: Robot, q: Array, state: Any) -> Obstacles:
                return Obstacles()


def test_states_of_other_environments_are_refused() -> None:
    reach, params = fraxenv.make("PandaReach-v0")
    for other in ("UR10Reach-v0", "PandaTrack-v0", "PandaReachObstacles-v0"):
        state = jax.eval_shape(fraxenv.make(other)[0].reset, KEY)[1]
        state = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), state)
        with pytest.raises(EnvStateError, match=r"PandaReach-v0: state.*another environment's"):
            reach.step(KEY, state, jnp.zeros(6), params)
    with pytest.raises(EnvStateError, match="the state is a dict, expected an EnvState"):
        reach.step(KEY, {}, jnp.zeros(6), params)
    batch = jax.vmap(reach.reset, (0, None))(jax.random.split(KEY, 3), params)[1]
    with pytest.raises(EnvStateError, match=r"shape \(3, 7\).*without jax.vmap"):
        reach.step(KEY, batch, jnp.zeros(6), params)


def test_goals_that_are_not_boxes() -> None:
    for bad in ({"goal_low": (0.3, np.nan, 0.1)}, {"goal_low": (0.3, 0.1)}):
        with pytest.raises(ConfigError, match="goal_low="):
            fraxenv.make("PandaReach-v0", task_options=bad)
    with pytest.raises(ConfigError, match="end_effector="):
        Reach(end_effector=("hand", "hand"))
