"""The viewer: what it simulates, its page in a real browser, recordings, and `human` mode."""

from __future__ import annotations

import functools
import io
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray
from pages import browsed, free_port, wait
from support import with_slow

import fraxenv
from fraxenv.controllers import SafetyFilter
from fraxenv.controllers.safety.barriers import end_effector_box
from fraxenv.dynamics import frame_pose, rotation_exp
from fraxenv.envs import Environment, EnvParams, EnvState
from fraxenv.envs.world import world_shapes
from fraxenv.errors import ConfigError, MissingExtraError
from fraxenv.rendering import Camera, default_camera, env_scene, render, scene

viser = pytest.importorskip("viser")

from fraxenv.viewer import Viewer, open_viewer, watch
from fraxenv.viewer.simulation import RANDOM, Simulation, with_obstacle
from fraxenv.viewer.stage import _capsule, quaternions, rotation_of

FAST = {"control_hz": 250, "physics_hz": 250}

Made = tuple[Environment, EnvParams]


@pytest.fixture(scope="module")
def reach() -> Made:
    return fraxenv.make("PandaReach-v0", **FAST)


@pytest.fixture(scope="module")
def crowd() -> tuple[EnvParams, EnvState]:
    """An environment with an obstacle of each kind."""
    counts = {"sphere_count": 1, "capsule_count": 1, "box_count": 1}
    env, params = fraxenv.make("PandaReachObstacles-v0", task_options=counts, **FAST)
    return params, jax.device_get(env.reset(jax.random.key(0), params)[1])


@pytest.fixture
def opened(reach: Made) -> Iterator[Viewer]:
    viewer = open_viewer(*reach, port=free_port())
    wait(lambda: viewer.snapshot is not None and viewer.snapshot.info is not None)
    yield viewer
    viewer.close()


@functools.cache
def hand_of(env: Environment) -> Callable[[Any], Any]:
    return jax.jit(lambda q: frame_pose(env.robot, q, "hand")[0])


def hand(env: Environment, state: EnvState) -> NDArray[np.float64]:
    return np.asarray(hand_of(env)(state.q), float)


def shown(viewer: Viewer) -> Any:
    assert viewer.snapshot is not None
    return viewer.snapshot


# --- the simulation -------------------------------------------------------------------------------


@pytest.mark.parametrize("action", with_slow(["ee_delta_pose", "joint_delta"], "joint_delta"))
def test_the_hand_follows_the_target(reach: Made, action: str) -> None:
    env, params = reach if action == "ee_delta_pose" else fraxenv.make(
        "PandaReach-v0", action=action, **FAST
    )  # fmt: skip
    simulation = Simulation(env, params)
    snapshot = simulation.reset()
    aim = hand(env, snapshot.state) + np.array([0.1, -0.15, 0.1])
    turn = (
        np.asarray(rotation_exp(np.array([0.0, 0.4, 0.0])))
        @ simulation.targets(snapshot.state)[0][1]
    )
    state = simulation.with_target(snapshot.state, 0, (aim, turn))
    np.testing.assert_allclose(state.task_state.position[0], aim, atol=1e-6)  # it is the goal
    snapshot = replace(snapshot, state=state)
    for _ in range(200):  # longer than an episode: who drags has all time
        snapshot = simulation.step(snapshot)
    assert snapshot.step == 200
    position, rotation = frame_pose(env.robot, snapshot.state.q, "hand")
    np.testing.assert_allclose(position, aim, atol=2e-3)
    np.testing.assert_allclose(rotation, turn, atol=2e-2)
    assert snapshot.info is not None
    assert snapshot.info["position_error"] < 2e-3


@pytest.mark.slow
def test_a_target_that_is_nobodys_goal() -> None:
    env, params = fraxenv.make("PandaTrack-v0", **FAST)
    simulation = Simulation(env, params)
    snapshot = simulation.reset()
    np.testing.assert_allclose(
        simulation.targets(snapshot.state)[0][0], hand(env, snapshot.state), atol=1e-6
    )
    aim = hand(env, snapshot.state) + np.array([0.05, 0.1, 0.0])
    pose = aim, simulation.targets(snapshot.state)[0][1]
    snapshot = replace(snapshot, state=simulation.with_target(snapshot.state, 0, pose))
    for _ in range(150):
        snapshot = simulation.step(snapshot)
    np.testing.assert_allclose(hand(env, snapshot.state), aim, atol=2e-3)


def test_episodes_repeat_and_go_on_where_they_were(reach: Made) -> None:
    simulation = Simulation(*reach, seed=3)
    first = simulation.reset()
    other = simulation.reset()
    assert np.any(first.state.q != other.state.q)
    np.testing.assert_array_equal(simulation.restart().state.q, first.state.q)
    simulation.driver = RANDOM
    steps = [simulation.step(first) for _ in range(2)]
    np.testing.assert_array_equal(steps[0].state.q, steps[1].state.q)
    snapshot = steps[0]
    for _ in range(150):
        snapshot = simulation.step(snapshot)
    assert snapshot.state.time < 150  # a new episode has begun


def test_a_policy_drives(reach: Made) -> None:
    env, params = reach

    def policy(obs: Any, key: Any) -> Any:
        return jax.numpy.zeros(6).at[2].set(1.0)  # up

    simulation = Simulation(env, params, policy)
    snapshot = simulation.reset()
    before = hand(env, snapshot.state)
    for _ in range(20):
        snapshot = simulation.step(snapshot)
    assert hand(env, snapshot.state)[2] > before[2] + 0.03
    with pytest.raises(ConfigError, match="driver='magic'"):
        simulation.driver = "magic"


class Rising:
    """A policy that remembers how often it has acted."""

    def begin(self, obs: Any) -> Any:
        return jax.numpy.zeros(())

    def __call__(self, obs: Any, key: Any, memory: Any) -> Any:
        return jax.numpy.zeros(6).at[2].set(0.1 * memory), memory + 1


def test_a_policy_remembers(reach: Made) -> None:
    """Also where somebody goes back, and steps again."""
    simulation = Simulation(*reach, Rising())
    snapshots = [simulation.reset()]
    for _ in range(3):
        snapshots.append(simulation.step(snapshots[-1]))
    rises = [s.action[2] for s in snapshots[1:]]
    np.testing.assert_allclose(rises, [0.0, 0.1, 0.2], rtol=1e-6)
    np.testing.assert_allclose(simulation.step(snapshots[1]).action[2], 0.1, rtol=1e-6)
    assert simulation.step(simulation.reset()).action[2] == 0.0


@pytest.mark.slow
class Planning(Rising):
    """Whose plan is a way straight up, longer from step to step."""

    def path(self, memory: Any, state: Any) -> Any:
        up = jnp.linspace(0.0, 0.1, 5)[:, None] * jnp.array([0.0, 0.0, 1.0])
        return jnp.asarray(memory, float) * up[None] + 0.5


def test_where_a_policy_has_the_hand_go_is_shown(reach: Made) -> None:
    simulation = Simulation(*reach, Planning())
    snapshot = simulation.reset()
    assert snapshot.path is None
    heights = []
    for _ in range(3):
        snapshot = simulation.step(snapshot)
        assert snapshot.path is not None
        heights.append(snapshot.path[0, -1, 2])
    assert heights == sorted(set(heights))
    simulation.driver = RANDOM
    assert simulation.step(snapshot).path is None
    viewer = open_viewer(*reach, policy=Planning(), port=free_port())
    wait(lambda: viewer.snapshot is not None and viewer.snapshot.path is not None)
    bare = len(env_scene(reach[0], shown(viewer).state, reach[1]))
    wait(lambda: len(viewer._stage._nodes) >= bare + 5)
    viewer.close()


@pytest.mark.slow
def test_the_filter_can_be_switched_on_and_off() -> None:
    wall = SafetyFilter(
        barriers=(end_effector_box("hand", (-1.0, -1.0, 0.0), (1.0, 0.1, 1.5)),),
        end_effectors=("hand",),
        enabled=False,
    )
    env, params = fraxenv.make("PandaReach-v0", safety=wall, **FAST)
    farthest = {}
    for on in (False, True):
        simulation = Simulation(env, params)
        assert simulation.filtered is False
        simulation.filtered = on
        snapshot = simulation.reset()
        kept = simulation.targets(snapshot.state)[0][1]
        aim = hand(env, snapshot.state) + np.array([0.0, 0.3, 0.0])
        snapshot = replace(snapshot, state=simulation.with_target(snapshot.state, 0, (aim, kept)))
        for _ in range(50):
            snapshot = simulation.step(snapshot)
        farthest[on] = hand(env, snapshot.state)[1]
    assert farthest[False] > 0.15
    assert farthest[True] < 0.101


# --- obstacles ------------------------------------------------------------------------------------


def test_obstacles_of_all_kinds_can_be_moved(crowd: tuple[EnvParams, EnvState]) -> None:
    _, state = crowd
    found = world_shapes(state.world)
    assert [shape.kind for shape in found.values()] == ["sphere", "capsule", "box"]
    place = np.array([0.7, 0.1, 0.5])
    turn = np.asarray(rotation_exp(np.array([0.3, -0.2, 0.5])))
    for i, shape in found.items():
        moved = with_obstacle(state, i, replace(shape, position=place, rotation=turn))
        there = world_shapes(moved.world)[i]
        np.testing.assert_allclose(there.position, place, atol=1e-6)
        np.testing.assert_allclose(there.size, shape.size, rtol=1e-5)
        if shape.kind == "box":
            np.testing.assert_allclose(there.rotation, turn, atol=1e-6)
        if shape.kind == "capsule":
            np.testing.assert_allclose(there.rotation[:, 2], turn[:, 2], atol=1e-6)
        assert jax.tree.map(np.dtype, jax.tree.map(lambda x: x.dtype, moved)) == jax.tree.map(
            np.dtype, jax.tree.map(lambda x: x.dtype, state)
        )
        for j in found.keys() - {i}:
            np.testing.assert_array_equal(world_shapes(moved.world)[j].position, found[j].position)


def test_obstacles_that_were_left_out_are_not_offered(crowd: tuple[EnvParams, EnvState]) -> None:
    _, state = crowd
    left = replace(state.world.obstacles, active=np.array([True, False, True]))
    state = state.replace(world=replace(state.world, obstacles=left))
    assert list(world_shapes(state.world)) == [0, 2]


def test_without_obstacles_there_are_none(reach: Made) -> None:
    env, params = reach
    assert world_shapes(env.reset(jax.random.key(0), params)[1].world) == {}


def test_quaternions_are_those_of_the_rotations() -> None:
    angles = [0.3, -1.2, 0.5], [np.pi, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, -1.8, 2.5]
    turns = np.array([rotation_exp(np.array(angle)) for angle in angles], float)
    found = np.array([rotation_of(wxyz) for wxyz in quaternions(turns)])
    np.testing.assert_allclose(found, turns, atol=1e-6)


def test_a_capsule_is_closed_and_faces_outward() -> None:
    radius, length = 0.1, 0.5
    mesh = trimesh.Trimesh(*_capsule(radius, length), process=False)
    exact = np.pi * radius**2 * (length + 4 / 3 * radius)
    assert 0.97 * exact < mesh.volume < exact  # inscribed; negative where faces look inward
    np.testing.assert_allclose(mesh.bounds[1], [radius, radius, length / 2 + radius])
    edges = np.sort(mesh.edges, axis=1)
    counts = np.unique(edges, axis=0, return_counts=True)[1]
    assert np.sum(counts == 1) == 2 * 24  # the poles' rings, of which each is one point
    assert set(counts) == {1, 2}


# --- the viewer without a browser -----------------------------------------------------------------


def test_targets_resets_and_time(opened: Viewer, reach: Made) -> None:
    env, _ = reach
    aim = hand(env, shown(opened).state) + np.array([0.05, -0.1, 0.05])
    opened.move_target(aim)
    wait(lambda: np.linalg.norm(hand(env, shown(opened).state) - aim) < 3e-3)

    opened.pause()
    wait(lambda: not opened.playing)
    late = shown(opened)
    opened.seek(10)
    wait(lambda: shown(opened).step == 10)
    opened.play()  # from here
    wait(lambda: shown(opened).step > 10)
    opened.pause()
    wait(lambda: not opened.playing)
    assert shown(opened).step < late.step + 10_000

    opened.reset(seed=7)
    expected = Simulation(*reach, seed=7).reset()
    wait(lambda: np.array_equal(shown(opened).state.q, expected.state.q))


def test_what_cannot_be_done_is_refused(opened: Viewer, reach: Made) -> None:
    with pytest.raises(ConfigError, match="driver='the policy', expected one of 'the target'"):
        opened.drive("the policy")
    with pytest.raises(ConfigError, match="hand=1, expected a whole number >= 0 and <= 0"):
        opened.move_target(np.zeros(3), hand=1)
    with pytest.raises(ConfigError, match=r"speed=-1\.0"):
        opened.set_speed(-1.0)
    with pytest.raises(ConfigError, match="no recording"):
        opened.show_env(1)
    with pytest.raises(ConfigError, match="port=0, expected"):
        open_viewer(*reach, port=0)


def test_it_survives_a_task_that_fails(opened: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("this task is broken")

    opened.pause()
    wait(lambda: not opened.playing)
    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "step", broken)
        opened.play()
        wait(lambda: "broken" in opened._panel._status.content)
    step = shown(opened).step
    opened.play()
    wait(lambda: shown(opened).step > step)


def test_run_ends_with_close_and_the_port_is_free_again(reach: Made) -> None:
    port = free_port()
    viewer = open_viewer(*reach, port=port)
    assert viewer.url == f"http://127.0.0.1:{port}"
    runner = threading.Thread(target=viewer.run)
    runner.start()
    viewer.close()
    viewer.close()
    runner.join(30)
    assert not runner.is_alive()
    with socket.socket() as s:
        s.bind(("127.0.0.1", port))


def test_a_recording_is_scrubbed(reach: Made) -> None:
    env, params = reach
    recording = fraxenv.record(env, params, None, jax.random.key(1), steps=12, num_envs=2)
    states: list[EnvState] = []
    fraxenv.replay(recording, env, params, watch=states.append)
    viewer = open_viewer(env, params, recording=recording, port=free_port())
    try:
        for env_index in (0, 1):
            viewer.show_env(env_index)
            for step in (3, 12, 1):
                viewer.seek(step)
                expected = np.asarray(states[step - 1].q[env_index])
                wait(lambda q=expected: np.array_equal(shown(viewer).state.q, q))
                info = shown(viewer).info
                np.testing.assert_array_equal(
                    info["controller"]["torque"],
                    recording.infos["controller"]["torque"][step - 1, env_index],
                )
        viewer.play()
        wait(lambda: shown(viewer).step == 12 and not viewer.playing)  # and stays at the end
        with pytest.raises(ConfigError, match="steps nothing"):
            viewer.move_target(np.zeros(3))
    finally:
        viewer.close()
    with pytest.raises(ConfigError, match="a policy and a recording"):
        open_viewer(env, params, recording=recording, policy=lambda obs, key: obs)


def test_without_viser_it_says_what_to_install(
    reach: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "viser", None)
    with pytest.raises(MissingExtraError, match=r"fraxenv\[viewer\]"):
        open_viewer(*reach)


def test_human_mode_shows_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    env: Any = gym.make("fraxenv/PandaReach-v0", render_mode="human", **FAST)
    env.reset(seed=0)
    viewer = env.unwrapped._viewer
    for _ in range(5):
        env.step(np.full(6, 0.5, np.float32))
    assert env.render() is None
    wait(lambda: shown(viewer).step == 5)
    np.testing.assert_array_equal(shown(viewer).state.q, env.unwrapped.state.q)
    assert shown(viewer).info["position_error"] > 0
    env.close()
    assert viewer._ended.is_set()


class Clock:
    """Of a machine that does nothing but sleep."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_show_holds_to_the_policys_rate(reach: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    env, params = reach
    _, state = env.reset(jax.random.key(0), params)
    clock = Clock()
    monkeypatch.setattr("fraxenv.viewer.viewer.time", clock)
    viewer = watch(env, params, port=free_port())
    try:
        for _ in range(25):
            viewer.show(state)
        assert clock.now == pytest.approx(25 / env.policy_hz)
        clock.now = late = 10.0  # something took long: 0.2 s are caught up, and no more
        for _ in range(20):
            viewer.show(state)
        assert clock.now == pytest.approx(late - 0.2 + 19 / env.policy_hz)
    finally:
        viewer.close()


# --- in a browser ---------------------------------------------------------------------------------


def drag(page: Any, start: NDArray[Any], end: NDArray[Any]) -> None:
    """With the mouse, as slowly as a hand."""
    page.mouse.move(*start)
    page.wait_for_timeout(1000)
    page.mouse.down()
    for part in np.linspace(0.2, 1.0, 5):
        page.mouse.move(*(start + part * (end - start)))
        page.wait_for_timeout(200)
    page.mouse.up()


def test_the_page(opened: Viewer, reach: Made) -> None:
    env, _ = reach
    opened.pause()
    with browsed(opened) as (page, box):
        # The robot is where it has to be: that place, and little else, changes without it.
        camera = page_camera(env)
        body = outline(env, shown(opened).state, camera, box)
        assert body.mean() > 0.05
        full = settled(page, box, lambda seen: (seen[body] < 200).mean() > 0.4)
        opened._stage.show([], range(0))
        empty = settled(page, box, lambda seen: (seen[body] < 200).mean() < 0.1)
        changed = np.abs(full.astype(int) - empty).max(axis=2) > 6
        assert changed[body].mean() > 0.9
        assert changed[~body].mean() < 0.15  # the shadow, and the green goal
        opened.seek(shown(opened).step)  # draws everything again
        settled(page, box, lambda seen: (seen[body] < 200).mean() > 0.4)

        # The controls do what they say.
        page.get_by_role("button", name="Play").dispatch_event("click")
        wait(lambda: opened.playing)
        page.get_by_role("button", name="Pause").dispatch_event("click")
        wait(lambda: not opened.playing)
        opened.play()
    # It does not mind a client that goes away without a word.
    step = shown(opened).step
    wait(lambda: shown(opened).step > step + 5)


@pytest.mark.slow
def test_the_target_is_dragged(opened: Viewer, reach: Made) -> None:
    """Along its red axis: the hand follows."""
    env, _ = reach
    opened.pause()
    with browsed(opened) as (page, box):
        camera = page_camera(env)
        body = outline(env, shown(opened).state, camera, box)
        settled(page, box, lambda seen: (seen[body] < 200).mean() > 0.4)
        simulation = opened._simulation
        assert simulation is not None
        (start, rotation), *_ = simulation.targets(shown(opened).state)
        drag(page, *project(start + np.outer((0.14, 0.24), rotation[:, 0]), camera, box))
        wait(lambda: np.linalg.norm(simulation.targets(shown(opened).state)[0][0] - start) > 0.08)
        wait(lambda: not opened._held)
        aim = simulation.targets(shown(opened).state)[0][0]
        np.testing.assert_allclose(aim - start, 0.1 * rotation[:, 0], atol=0.02)
        opened.play()
        wait(lambda: np.linalg.norm(hand(env, shown(opened).state) - aim) < 3e-3)


@pytest.mark.slow
def test_an_obstacle_is_clicked_and_dragged() -> None:
    env, params = fraxenv.make(
        "PandaReachObstacles-v0", safety="none", task_options={"sphere_count": 1}, **FAST
    )
    # Of a seed whose obstacle and its arrows no panel covers.
    viewer = open_viewer(env, params, port=free_port(), seed=7)
    try:
        viewer.pause()
        wait(lambda: viewer.snapshot is not None)
        place = world_shapes(shown(viewer).state.world)[0].position
        with browsed(viewer) as (page, box):
            camera = page_camera(env)
            middle, start, end = project(place + np.outer((0, 0.14, 0.24), (1, 0, 0)), camera, box)
            ball, arrow = (around(point - box[:2]) for point in (middle, start))
            without = settled(page, box, lambda seen: seen[ball][..., 0].min() > 100)
            wait(lambda: clicked(page, middle, viewer))
            settled(page, box, lambda seen: np.any(seen[arrow] != without[arrow]))
            drag(page, start, end)
            wait(lambda: world_shapes(shown(viewer).state.world)[0].position[0] > place[0] + 0.08)
            wait(lambda: not viewer._held)
            moved = world_shapes(shown(viewer).state.world)[0].position - place
            np.testing.assert_allclose(moved, [0.1, 0.0, 0.0], atol=0.02)
    finally:
        viewer.close()


def around(point: NDArray[Any]) -> tuple[slice, slice]:
    """Rows and columns of some pixels about a point of a picture."""
    column, row = np.round(point).astype(int)
    return slice(row - 4, row + 5), slice(column - 4, column + 5)


def clicked(page: Any, place: NDArray[Any], viewer: Viewer) -> bool:
    """Whether an obstacle is chosen, by a click if none is."""
    if viewer._obstacle is None:
        page.mouse.move(*place)
        page.wait_for_timeout(1000)
        page.mouse.click(*place, delay=100)
        page.wait_for_timeout(1000)
    return viewer._obstacle is not None


def page_camera(env: Environment) -> Camera:
    camera = default_camera(env.robot)
    eye = camera.target + 1.3 * np.subtract(camera.eye, camera.target)
    return Camera(tuple(eye), camera.target, camera.fov)


def outline(env: Environment, state: EnvState, camera: Camera, box: list[int]) -> Any:
    """Where the robot is seen (height, width), by our own ray caster."""
    black = [replace(s, rgba=(0.0, 0.0, 0.0, 1.0)) for s in scene(env.robot, state.q)]
    return render(black, camera, *box[2:]).max(axis=2) < 60


def project(points: NDArray[Any], camera: Camera, box: list[int]) -> NDArray[Any]:
    forward = np.subtract(camera.target, camera.eye)
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(right, forward), forward])
    x, y, z = axes @ (points - np.asarray(camera.eye)).T
    focal = box[3] / 2 / np.tan(np.radians(camera.fov) / 2)
    return np.stack([box[0] + box[2] / 2 + focal * x / z, box[1] + box[3] / 2 - focal * y / z], 1)


def settled(page: Any, box: list[int], condition: Callable[[NDArray[np.uint8]], bool]) -> Any:
    """A picture of the canvas that does not change any more, and for which something holds."""
    from PIL import Image

    seen: Any = None

    def look() -> bool:
        nonlocal seen
        before = seen
        x, y, width, height = box
        clip = {"x": x, "y": y, "width": width, "height": height}
        seen = np.asarray(Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB"))
        return before is not None and np.array_equal(seen, before) and condition(seen)

    wait(look)
    return seen
