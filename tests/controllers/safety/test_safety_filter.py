"""The safety filter: what it keeps, what it leaves alone, and what it does when it cannot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import dtype_with_slow, with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import Barrier, SafetyFilter, SafetyReport, Situation, barriers
from fraxenv.controllers.safety.barriers import NO_OBSTACLES
from fraxenv.controllers.safety.filter import no_safety_report, worse_report
from fraxenv.dynamics import Box, Obstacles, Robot, Sphere
from fraxenv.errors import ConfigError
from fraxenv.kernels import explain, fuse, fusible

QUICK = {"xla_backend_optimization_level": 0}  # to compile
FAST = {"xla_backend_optimization_level": 3}  # to run, however the suite is compiled
DT = 1e-3
STEPS = 2000
"""Of a rollout: 2 s."""

HAND = SafetyFilter(end_effectors=("hand",))
APART = SafetyFilter(
    (
        barriers.joint_position(),
        barriers.obstacles(margin=0.002),
        barriers.self_collision(margin=0.002),
    ),
    end_effectors=("hand",),
)
"""Without velocity limits, which are met exactly at most times and would be the least of all."""


def panda() -> Robot:
    return dynamics.load_robot("panda")


def world(rng: np.random.Generator, size: int, around: Any, spread: float = 0.15) -> Obstacles:
    """Three spheres and a box, moving, near a place of each of `size` robots."""
    place = np.asarray(around)[:, None] + spread * rng.normal(size=(size, 4, 3))
    turn = np.broadcast_to(np.linalg.qr(rng.normal(size=(3, 3)))[0], (size, 1, 3, 3))
    return Obstacles(
        Sphere(place[:, :3], rng.uniform(0.03, 0.25, (size, 3))),
        boxes=Box(place[:, 3:], turn, rng.uniform(0.02, 0.2, (size, 1, 3))),
        active=rng.random((size, 4)) < 0.7,
        velocity=0.5 * rng.normal(size=(size, 4, 3)),
    )


class States(NamedTuple):
    """Arguments of many filters."""

    q: Array
    v: Array
    tau: Array
    obstacles: Obstacles


def states(robot: Robot, size: int, seed: int = 0, frame: str = "hand") -> States:
    """Anywhere within the position limits, faster than allowed, with obstacles in the hand."""
    rng = np.random.default_rng(seed)
    lower, upper = np.clip(np.asarray(robot.position_limits), -np.pi, np.pi).T
    q = rng.uniform(lower, upper, (size, robot.nv))
    v = rng.uniform(-1.2, 1.2, (size, robot.nv)) * np.asarray(robot.velocity_limits)
    tau = rng.uniform(-1.5, 1.5, (size, robot.nv)) * np.asarray(robot.effort_limits)
    q = jnp.asarray(q, float)
    hand = jax.jit(jax.vmap(lambda q: dynamics.frame_pose(robot, q, frame)[0]))(q)
    around = jax.tree.map(jnp.asarray, world(rng, size, hand))
    return States(q, jnp.asarray(v, float), jnp.asarray(tau, float), around)


def calm_states(robot: Robot, size: int, seed: int, spread: float) -> States:
    """Near the default configuration, slow, held against gravity, obstacles around the hand."""
    rng = np.random.default_rng(seed)
    q, v, a = rng.normal(size=(3, size, robot.nv)) * [[[0.1]], [[0.1]], [[2.0]]]
    q, v, a = jnp.asarray(robot.q_default + q, float), jnp.asarray(v, float), jnp.asarray(a, float)

    def held(q: Array, v: Array, a: Array) -> tuple[Array, Array]:
        terms = dynamics.compute_terms(robot, q, v)
        return terms.bias + terms.mass_matrix @ a, dynamics.frame_pose(robot, q, "hand")[0]

    tau, hand = jax.jit(jax.vmap(held), compiler_options=QUICK)(q, v, a)
    return States(q, v, tau, jax.tree.map(jnp.asarray, world(rng, size, hand, spread)))


def filtered(
    safety: SafetyFilter, robot: Robot, q: Array, v: Array, tau: Array, obstacles: Obstacles
) -> tuple[Array, SafetyReport]:
    return safety(robot, dynamics.compute_terms(robot, q, v), tau, DT, obstacles)


one = jax.jit(filtered, compiler_options=QUICK)
many = jax.jit(jax.vmap(filtered, (None, None, 0, 0, 0, 0)), compiler_options=QUICK)


# --- Nothing to do --------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_near_changes_nothing(dtype: np.dtype) -> None:
    robot = panda()
    given = calm_states(robot, 50, 0, 0.3)
    far = given.obstacles
    far = dataclasses.replace(
        far, spheres=dataclasses.replace(far.spheres, position=far.spheres.position + 3),
        boxes=dataclasses.replace(far.boxes, position=far.boxes.position + 3),
    )  # fmt: skip
    safe, report = many(HAND, robot, *given._replace(obstacles=far))
    np.testing.assert_array_equal(safe, given.tau)
    assert not report["intervened"].any()
    assert not report["deviation"].any()
    assert report["feasible"].all()
    assert (report["min_barrier"] > 0.005).all()
    assert {k: (x.dtype.name, x.shape) for k, x in report.items()} == {
        "min_barrier": (dtype.name, (50,)),
        "min_barrier_row": ("int32", (50,)),
        "slack": (dtype.name, (50,)),
        "deviation": (dtype.name, (50,)),
        "residual": (dtype.name, (50,)),
        "intervened": ("bool", (50,)),
        "feasible": ("bool", (50,)),
    }


def test_no_barriers_pass_through() -> None:
    robot = panda()
    q, v, tau, around = jax.tree.map(lambda x: x[0], states(robot, 1))
    safety, limit = SafetyFilter(barriers=()), np.asarray(robot.effort_limits)

    def velocity(asked: Array) -> Any:
        return safety.filter_velocity(robot, dynamics.compute_terms(robot, q, v), asked, around)

    for safe, report in (
        one(safety, robot, q, v, tau, around),
        jax.jit(velocity)(0.01 * tau),
    ):
        assert (report["min_barrier"], report["min_barrier_row"]) == (np.inf, -1)
        assert not report["intervened"]
        assert np.isfinite(safe).all()
    safe, _ = one(safety, robot, q, v, tau, around)
    np.testing.assert_array_equal(safe, np.clip(tau, -limit, limit))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole", "planar_mobile_manipulator"])
def test_barriers_without_rows(name: str) -> None:
    """Robots without self-collision pairs, in an empty world."""
    robot = dynamics.load_robot(name)
    zero = jnp.zeros(robot.nv)
    for chosen in (SafetyFilter(), SafetyFilter(barriers=(barriers.self_collision(),))):
        safe, report = one(chosen, robot, zero, zero, zero, NO_OBSTACLES)
        np.testing.assert_array_equal(safe, 0)
        assert report["min_barrier"] > 0
        assert not report["intervened"]


# --- Limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", with_slow([True, False], True))
@dtype_with_slow("float64")
def test_torques_are_within_limits(dtype: np.dtype, enabled: bool) -> None:
    """To the last bit, in many states of which many ask for what cannot be."""
    robot = panda()
    given = states(robot, 2000 if dtype == np.float32 else 400)
    broken = given.tau.at[::10, 3].set(jnp.nan).at[5::10, 2].set(jnp.inf)
    safety = dataclasses.replace(HAND, enabled=enabled)
    safe, report = many(safety, robot, *given._replace(tau=broken))
    limit = np.asarray(robot.effort_limits, dtype)
    assert safe.dtype == dtype
    assert (np.abs(safe) <= limit).all()
    assert all(np.isfinite(x).all() for x in report.values())
    feasible, intervened = np.mean(report["feasible"]), np.mean(report["intervened"])
    if enabled:
        assert 0.02 < feasible < 0.9
        assert intervened > 0.3
        np.testing.assert_allclose(
            report["deviation"][1], np.linalg.norm(safe[1] - np.clip(broken[1], -limit, limit)),
            rtol=1e-4,
        )  # fmt: skip
    else:
        assert not intervened
        assert (report["min_barrier"] < 0).any()


@pytest.mark.slow
def test_own_bounds(dtype: np.dtype) -> None:
    """They replace the limits, and need not be symmetric."""
    robot = panda()
    given = states(robot, 200, seed=1)
    upper = 0.4 * jnp.asarray(robot.effort_limits, float)
    lower = -0.1 * upper

    def bounded(q: Array, v: Array, tau: Array, obstacles: Obstacles) -> Array:
        terms = dynamics.compute_terms(robot, q, v)
        return HAND(robot, terms, tau, DT, obstacles, (lower, upper))[0]

    safe = jax.jit(jax.vmap(bounded), compiler_options=QUICK)(*given)
    assert (safe <= upper).all()
    assert (safe >= lower).all()


@pytest.mark.slow
def test_torques_that_are_not_finite_hold_the_robot() -> None:
    robot, size = panda(), 50  # as many as above, to compile once
    q, v = jnp.tile(jnp.asarray(robot.q_default, float), (size, 1)), jnp.zeros((size, 7))
    around = world(np.random.default_rng(0), size, [[3.0] * 3] * size)
    bad = jnp.tile(jnp.array([np.nan, np.inf, -np.inf])[:, None], (size, 7))[:size]
    safe, report = many(HAND, robot, q, v, bad, jax.tree.map(jnp.asarray, around))
    held = jax.jit(lambda: dynamics.compute_terms(robot, q[0], v[0]).bias)()
    np.testing.assert_allclose(safe, np.tile(held, (size, 1)), rtol=1e-6, atol=1e-6)
    assert report["feasible"].all()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["q", "v", "obstacles"])
def test_rows_that_are_not_numbers_are_not_met(where: str) -> None:
    robot, size = panda(), 50  # as many as above, to compile once
    q, v = jnp.tile(jnp.asarray(robot.q_default, float), (size, 1)), jnp.zeros((size, 7))
    around = jax.tree.map(jnp.asarray, world(np.random.default_rng(0), size, [[3.0] * 3] * size))
    around = dataclasses.replace(around, active=jnp.ones((size, 4), bool))
    given = {"q": q, "v": v, "obstacles": around}
    given[where] = jax.tree.map(
        lambda x: x if x.dtype == bool else x.at[::2].set(jnp.nan), given[where]
    )
    _, report = many(HAND, robot, given["q"], given["v"], 0 * v, given["obstacles"])
    np.testing.assert_array_equal(report["feasible"], np.arange(size) % 2 == 1)


# --- Closed loops ---------------------------------------------------------------------------------


class Drive(NamedTuple):
    """Where a robot starts, where it is driven, and what is in its way."""

    start: Array
    goal: Array
    obstacles: Obstacles


DRIVES = ("sphere", "moving sphere", "box", "joint limit", "self-collision", "within a sphere")


def drives(robot: Robot) -> Drive:
    """One of each kind: what is in the way is where the hand would be."""
    rng = np.random.default_rng(0)
    start = np.asarray(robot.q_default, float)
    lower, upper = np.asarray(robot.position_limits).T
    goals = np.stack([start] * len(DRIVES))
    goals[0, 0] += 0.9  # rad
    goals[2, 0] -= 0.9
    goals[3] = start
    goals[3, 5] = upper[5] + 0.5
    folded = jnp.asarray(rng.uniform(lower, upper, (4000, 7)), float)
    apart = jax.jit(jax.vmap(lambda q: jnp.min(dynamics.self_distances(robot, q))))(folded)
    goals[4] = folded[jnp.argmin(apart)]
    hand = np.asarray(jax.vmap(lambda q: dynamics.frame_pose(robot, q, "hand")[0])(goals))

    far = np.array([0.0, 0.0, 9.0])
    sphere, box = np.tile(far, (2, len(DRIVES), 1, 1))
    velocity = np.zeros((len(DRIVES), 2, 3))
    sphere[0, 0], box[2, 0] = hand[0], hand[2]
    sphere[1, 0], velocity[1, 0] = hand[1] + [0.4, 0, 0], [-0.25, 0, 0]  # m, m/s
    sphere[5, 0] = hand[5] + [0.03, 0.01, 0]
    eye = np.broadcast_to(np.eye(3), (len(DRIVES), 1, 3, 3))
    obstacles = Obstacles(
        Sphere(sphere, np.full((len(DRIVES), 1), 0.08)),
        boxes=Box(box, eye, np.full((len(DRIVES), 1, 3), 0.06)),
        velocity=velocity,
    )
    made = Drive(np.stack([start] * len(DRIVES)), goals, obstacles)
    return jax.tree.map(lambda x: jnp.asarray(x, float), made)


def rollout(safety: SafetyFilter, robot: Robot, drive: Drive) -> dict[str, Array]:
    """Reports, torques and configurations of all steps."""

    def step(state: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Any]:
        q, v = state
        terms = dynamics.compute_terms(robot, q, v)
        tau = terms.bias + terms.mass_matrix @ (100 * (drive.goal - q) - 20 * v)
        around = dynamics.move_obstacles(drive.obstacles, DT * k)
        safe, report = safety(robot, terms, tau, DT, around)
        state = dynamics.step(robot, q, v, safe, DT, terms=terms)
        return state, {**report, "torque": safe, "q": q}

    start = (drive.start, jnp.zeros_like(drive.start))
    steps = jnp.arange(STEPS, dtype=drive.start.dtype)
    _, found = jax.lax.scan(fusible(step), start, steps)
    return found


def kinematic_rollout(safety: SafetyFilter, robot: Robot, drive: Drive) -> dict[str, Array]:
    """The same of a robot that moves as it is told, at 200 Hz."""
    dt = 5 * DT

    def step(q: Array, k: Array) -> tuple[Array, Any]:
        terms = dynamics.compute_terms(robot, q, jnp.zeros_like(q))
        around = dynamics.move_obstacles(drive.obstacles, dt * k)
        v, report = safety.filter_velocity(robot, terms, 5 * (drive.goal - q), around)
        return q + dt * v, {**report, "velocity": v, "q": q}

    _, found = jax.lax.scan(step, drive.start, jnp.arange(STEPS // 5, dtype=drive.start.dtype))
    return found


Rollouts = dict[bool, dict[str, np.ndarray]]


def both(run: Any) -> Rollouts:
    """With the filter, and without."""
    robot = panda()
    given, found = drives(robot), {}
    for enabled in (True, False):
        safety = dataclasses.replace(APART, enabled=enabled)
        together = jax.jit(jax.vmap(lambda d, s=safety: run(s, robot, d)), compiler_options=FAST)
        found[enabled] = jax.tree.map(np.asarray, together(given))
    return found


@pytest.fixture(scope="module")
def rollouts() -> Rollouts:
    return both(rollout)


@pytest.fixture(scope="module")
def kinematic_rollouts() -> Rollouts:
    return both(kinematic_rollout)


@pytest.mark.parametrize("name", with_slow(DRIVES[:-1], *DRIVES[:-1]))
def test_barriers_hold(rollouts: Rollouts, name: str) -> None:
    k, limit = DRIVES.index(name), np.asarray(panda().effort_limits, np.float32)
    with_filter, without = rollouts[True], rollouts[False]
    assert with_filter["min_barrier"][k, 0] > 0.01
    assert with_filter["min_barrier"][k].min() >= 0
    assert without["min_barrier"][k].min() < -0.01
    assert with_filter["intervened"][k].any()
    assert with_filter["feasible"][k].all()
    assert (np.abs(with_filter["torque"][k]) <= limit).all()
    row = without["min_barrier_row"][k, np.argmin(without["min_barrier"][k])]
    obstacles = jax.tree.map(lambda x: x[k], drives(panda()).obstacles)
    kind = APART.row_names(panda(), obstacles)[row]
    expected = {"joint limit": "joint position: panda_joint6 upper", "box": "boxes[0]"}
    assert expected.get(name, "self-collision" if "self" in name else "spheres[0]") in kind


@pytest.mark.slow
def test_an_obstacle_within_the_robot_is_reported_and_left(rollouts: Rollouts) -> None:
    k = DRIVES.index("within a sphere")
    with_filter, without = (rollouts[b]["min_barrier"][k] for b in (True, False))
    assert with_filter[0] < -0.02
    assert without[-1] < -0.02
    assert with_filter[-1] >= 0
    for x in rollouts[True].values():
        assert np.isfinite(x[k]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", DRIVES[:-1])
def test_velocities_keep_barriers(kinematic_rollouts: Rollouts, name: str) -> None:
    k, limit = DRIVES.index(name), np.asarray(panda().velocity_limits, np.float32)
    with_filter, without = kinematic_rollouts[True], kinematic_rollouts[False]
    assert with_filter["min_barrier"][k].min() >= -1e-5
    assert without["min_barrier"][k].min() < -0.01
    assert with_filter["intervened"][k].any()
    for found in (with_filter, without):
        assert (np.abs(found["velocity"][k]) <= limit).all()


@pytest.mark.slow
def test_velocities_that_are_not_finite_stop_the_robot() -> None:
    robot = panda()
    q = jnp.asarray(robot.q_default, float)
    around = jax.tree.map(
        lambda x: jnp.asarray(x[0]), world(np.random.default_rng(0), 1, [[3.0] * 3])
    )

    def velocity(v: Array) -> Array:
        terms = dynamics.compute_terms(robot, q, jnp.zeros(7))
        return HAND.filter_velocity(robot, terms, v, around)[0]

    safe = jax.jit(velocity, compiler_options=QUICK)(jnp.full(7, 0.1).at[2].set(jnp.nan))
    np.testing.assert_allclose(safe, np.where(np.arange(7) == 2, 0, 0.1), rtol=1e-6)


# --- The objective --------------------------------------------------------------------------------


def height(robot: Robot, x: Situation, barrier: Barrier) -> Array:
    position, _ = dynamics.frame_pose(robot, x.q, "hand", kin=x.kin)
    return (position[2] - barrier.parameters)[None]


@pytest.mark.slow
def test_without_a_task_the_change_is_gauss_least(x64: None) -> None:
    """One row: the change of acceleration is along `M^-1 A^T`, and just enough."""
    robot = panda()
    q = jnp.asarray(robot.q_default, float)

    def solve() -> Any:
        down = -dynamics.frame_jacobian(robot, q, "hand")[2]
        terms = dynamics.compute_terms(robot, q, 0.2 * down / (down @ down))  # 0.2 m/s
        hand, _ = dynamics.frame_pose(robot, q, "hand")
        safety = SafetyFilter((Barrier(height, 2, parameters=hand[2] - 0.001),))
        problem = safety.quadratic_program(robot, terms, terms.bias, DT)
        return terms, safety(robot, terms, terms.bias, DT), problem

    terms, (safe, report), problem = jax.jit(solve)()
    A, lacking = problem.A[0], problem.b[0]
    assert lacking > 0
    along = np.linalg.solve(terms.mass_matrix, A)
    change = along * lacking / (A @ along)
    np.testing.assert_allclose(safe - terms.bias, problem.C @ change, rtol=1e-4, atol=1e-6)
    assert report["feasible"]
    assert report["intervened"]


@pytest.mark.slow
def test_the_task_is_kept_where_the_nullspace_can_give_way(x64: None) -> None:
    """A ball at the elbow: the hand is accelerated less the more its task weighs."""
    robot = panda()
    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(7)

    @jax.jit
    def here() -> Any:
        elbow, _ = dynamics.frame_pose(robot, q, "panda_link4")
        J = dynamics.frame_jacobian(robot, q, "hand")
        return dynamics.compute_terms(robot, q, v), elbow, J

    terms, elbow, J = here()
    ball = Obstacles(
        Sphere(elbow[None] + jnp.array([[0.0, 0.2, 0.0]]), jnp.array([0.08])),
        velocity=jnp.array([[0.0, -0.8, 0.0]]),
    )
    hand = []
    for weight in (1.0, 10.0, 100.0):
        safety = SafetyFilter(
            (barriers.obstacles(("link4_1", "link4_2")),), ("hand",), task_weight=weight
        )
        safe, report = one(safety, robot, q, v, terms.bias, ball)
        assert report["intervened"]
        assert report["feasible"]
        hand.append(np.linalg.norm(J @ np.linalg.solve(terms.mass_matrix, safe - terms.bias)))
    assert hand[0] > 2 * hand[1]
    assert hand[1] > 2 * hand[2]


# --- Reports --------------------------------------------------------------------------------------


def test_the_worse_of_two_reports() -> None:
    none = no_safety_report(jnp.dtype(np.float32))
    bad = {
        **none,
        "min_barrier": jnp.asarray(-0.1),
        "min_barrier_row": jnp.asarray(3),
        "slack": jnp.asarray(2.0),
        "deviation": jnp.asarray(5.0),
        "residual": jnp.asarray(1e-3),
        "intervened": jnp.asarray(True),
        "feasible": jnp.asarray(False),
    }
    for both_ways in (worse_report(none, bad), worse_report(bad, none), worse_report(bad, bad)):
        assert both_ways == bad
    assert worse_report(none, none) == none


# --- Looking around -------------------------------------------------------------------------------


@pytest.mark.slow
def test_looking_around_finds_what_matters() -> None:
    """The torque is that among all obstacles, as long as no shape is crowded by more."""
    robot = panda()
    given = calm_states(robot, 50, 6, 0.3)
    crowd = jax.tree.map(lambda x: x[:, :3], given.obstacles.spheres)
    far = Sphere(crowd.position + jnp.array([0.0, 0.0, 3.0]), crowd.radius)
    both = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), crowd, far)
    given = given._replace(obstacles=Obstacles(both))
    looking = dataclasses.replace(HAND, nearest=3)

    def among_the_nearest(q: Array, v: Array, tau: Array, around: Obstacles) -> Any:
        terms = dynamics.compute_terms(robot, q, v)
        return looking(robot, terms, tau, DT, looking.look_around(robot, q, around))

    expected, report = many(HAND, robot, *given)
    safe, its_report = fuse(among_the_nearest)(*given)
    met = np.asarray(report["feasible"])
    assert report["intervened"][met].any()
    np.testing.assert_allclose(safe[met], expected[met], rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(its_report["min_barrier"], report["min_barrier"], atol=1e-6)
    names = looking.row_names(robot, jax.tree.map(lambda x: x[0], given.obstacles))
    everywhere = HAND.row_names(robot, jax.tree.map(lambda x: x[0], given.obstacles))
    for row, of_all in zip(its_report["min_barrier_row"], report["min_barrier_row"], strict=True):
        assert names[row].split("nearest")[0] == everywhere[of_all].split("spheres")[0]


def test_looking_around_for_nothing() -> None:
    with pytest.raises(ConfigError, match=r"SafetyFilter: nearest=0.*None for all"):
        SafetyFilter(nearest=0)


# --- Transformations ------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_by_one_as_together() -> None:
    robot = panda()
    given = calm_states(robot, 50, 2, 0.3)  # as many as above, to compile once
    safe, report = many(HAND, robot, *given)
    for k in range(8):
        alone, its_report = one(HAND, robot, *jax.tree.map(lambda x, k=k: x[k], given))
        assert its_report["feasible"] == report["feasible"][k]
        if its_report["feasible"]:
            np.testing.assert_allclose(alone, safe[k], rtol=1e-3, atol=1e-2)
            expected = report["slack"][k]
            np.testing.assert_allclose(its_report["slack"], expected, rtol=1e-2, atol=1e-2)
        assert its_report["min_barrier_row"] == report["min_barrier_row"][k]


@pytest.mark.slow
def test_gradients_by_the_torque(
    precision: Callable[[str], AbstractContextManager[Any]],
) -> None:
    """Of what passes, the unit matrix; of what is changed, a projection; finite everywhere."""
    with precision("float64"):
        robot = dynamics.load_robot("planar_mobile_manipulator")
        given = calm_states(robot, 30, 3, 0.3)

        def both_modes(q: Array, v: Array, tau: Array, around: Obstacles) -> Any:
            def torque(tau: Array) -> Array:
                return filtered(HAND, robot, q, v, tau, around)[0]

            (safe, push), ones = jax.linearize(torque, tau), jnp.ones_like(tau)
            return safe, push(ones), jax.linear_transpose(push, tau)(ones)[0]

        differentiate = jax.jit(jax.vmap(both_modes), compiler_options=QUICK)
        safe, forward, backward = differentiate(*given)
        assert np.isfinite(forward).all()
        assert np.isfinite(backward).all()
        np.testing.assert_allclose(forward.sum(axis=1), backward.sum(axis=1), rtol=1e-6, atol=1e-8)
        untouched = (safe == given.tau).all(axis=1)
        assert 0 < untouched.sum() < 30
        np.testing.assert_array_equal(forward[untouched], 1)
        assert (np.abs(forward[~untouched] - 1).max(axis=1) > 1e-3).any()


@pytest.mark.slow
def test_fused() -> None:
    robot = dynamics.load_robot("planar_mobile_manipulator")
    given = calm_states(robot, 33, 4, 0.3)
    ball = dataclasses.replace(
        given.obstacles, boxes=None, active=None, velocity=given.obstacles.velocity[:, :3]
    )
    given = given._replace(obstacles=ball)

    def fn(q: Array, v: Array, tau: Array, obstacles: Obstacles) -> tuple[Array, SafetyReport]:
        return filtered(HAND, robot, q, v, tau, obstacles)

    expected, report = many(HAND, robot, *given)
    safe, its_report = fraxenv.fuse(fn, "native")(*given)
    limit = np.asarray(robot.effort_limits, np.float32)
    assert (np.abs(safe) <= limit).all()
    np.testing.assert_array_equal(its_report["feasible"], report["feasible"])
    np.testing.assert_allclose(its_report["min_barrier"], report["min_barrier"], atol=1e-5)
    met = np.asarray(report["feasible"])
    assert report["intervened"][met].any()
    np.testing.assert_allclose((safe / limit)[met], (expected / limit)[met], atol=1e-3)
    assert explain(fn, "native")(*given).fallbacks == []


# --- Other robots ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["g1", "ur10", "iiwa14"])
def test_other_robots(name: str) -> None:
    robot = dynamics.load_robot(name, floating_base=False)
    frames = ("left_hand", "right_hand") if name == "g1" else ("hand",)
    safety, given = SafetyFilter(end_effectors=frames), states(robot, 30, 5, frames[0])
    safe, report = many(safety, robot, *given)
    assert (np.abs(safe) <= np.asarray(robot.effort_limits, np.float32)).all()
    assert all(np.isfinite(x).all() for x in report.values())
    assert report["intervened"].any()
    around = jax.tree.map(lambda x: x[0], given.obstacles)
    assert (report["min_barrier_row"] < len(safety.row_names(robot, around))).all()
