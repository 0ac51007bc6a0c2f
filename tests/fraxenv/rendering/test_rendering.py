"""Pictures: by either renderer, of one environment or many, with the filter's state in them."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import fraxenv
from fraxenv.controllers import SafetyFilter
from fraxenv.controllers.safety.barriers import joint_velocity
from fraxenv.envs import Environment, EnvParams, EnvState
from fraxenv.errors import ConfigError, MissingExtraError, RenderError
from fraxenv.media.drawers import drawers, render_each
from fraxenv.rendering import Camera, Shape, opengl, render, render_env, render_envs, scene, tile

CAMERA = Camera(eye=(1.6, -1.2, 1.1), target=(0.0, 0.0, 0.4))
BLACK = (0.0, 0.0, 0.0, 1.0)
FINE = {"min_barrier": 0.05, "intervened": False}
BUSY = {"min_barrier": 0.02, "intervened": True}
BROKEN = {"min_barrier": -0.01, "intervened": True}

with_gl = pytest.mark.skipif(opengl.gl_stack() is None, reason="no GL stack that MuJoCo can use")


@pytest.fixture(scope="module")
def batch() -> tuple[Environment, EnvState, EnvParams]:
    """Five environments that have just been reset."""
    env, params = fraxenv.make("PandaReachPose-v0")
    states = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), 5), params)[1]
    return env, states, params


@pytest.fixture
def fresh_stack() -> Iterator[None]:
    """A GL stack that is looked for anew, and again after the test."""
    opengl.gl_stack.cache_clear()
    yield
    opengl.gl_stack.cache_clear()


def turned() -> NDArray[np.float64]:
    q, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))
    return np.asarray(q * np.sign(np.linalg.det(q)))


# --- MuJoCo's renderer ----------------------------------------------------------------------------


@with_gl
@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("sphere", (0.2,)),
        ("capsule", (0.1, 0.4)),
        ("cylinder", (0.12, 0.4)),
        ("box", (0.5, 0.2, 0.3)),
    ],
)
def test_both_renderers_draw_the_same_outline(kind: Any, size: tuple[float, ...]) -> None:
    # Black, and so far up that its shadow is out of the picture.
    shape = Shape(kind, size, np.array([0.1, -0.1, 5.1]), turned(), BLACK)
    camera = Camera(eye=(1.6, -1.2, 5.6), target=(0.0, 0.0, 5.0))
    seen = [
        render([shape], camera, 240, 200, renderer).max(axis=2) < 128  # type: ignore[arg-type]
        for renderer in ("mujoco", "raycast")
    ]
    assert seen[0].any()
    # They may differ in which pixels of the outline are more than half covered.
    perimeter = 4 * np.sqrt(seen[1].sum() * np.pi)
    assert (seen[0] ^ seen[1]).sum() < 0.25 * perimeter


@with_gl
def test_mujocos_renderer_casts_shadows_and_hides_what_is_behind() -> None:
    ball = Shape("sphere", (0.2,), np.array([0.0, 0.0, 0.5]), np.eye(3), (0.9, 0.1, 0.1, 1.0))
    behind = dataclasses.replace(ball, size=(0.1,), position=np.array([-0.8, 0.6, 0.1]))
    empty, one, two = (render(s, CAMERA, 200, 200, "mujoco") for s in ([], [ball], [ball, behind]))
    darker = one.astype(int).sum(axis=2) < empty.astype(int).sum(axis=2) - 60
    red = one[..., 0].astype(int) - one[..., 1] > 60
    assert (darker & ~red).sum() > 200  # the shadow
    np.testing.assert_array_equal(one, two)


@with_gl
def test_a_picture_is_the_same_in_every_thread_and_size_is_what_was_asked_for() -> None:
    shapes = [
        Shape("box", (0.3, 0.3, 0.3), np.array([0.0, 0.0, 0.3]), turned(), (0.2, 0.4, 0.9, 1))
    ]

    def draw(size: tuple[int, int]) -> NDArray[np.uint8]:
        return render(shapes, CAMERA, *size, renderer="mujoco")

    sizes = [(64, 48), (900, 700), (64, 48), (31, 17)] * 3
    with ThreadPoolExecutor(4) as pool:
        pictures = list(pool.map(draw, sizes))
    for (width, height), picture in zip(sizes, pictures, strict=True):
        assert (picture.shape, picture.dtype) == ((height, width, 3), np.uint8)
        np.testing.assert_array_equal(picture, draw((width, height)))


@with_gl
def test_bad_shapes_are_refused_alike() -> None:
    bad = Shape("sphere", (-1.0,), np.zeros(3), np.eye(3), BLACK)
    for renderer in ("mujoco", "raycast"):
        with pytest.raises(RenderError, match=r"shapes\[0\]\.size"):
            render([bad], CAMERA, renderer=renderer)  # type: ignore[arg-type]


# --- where there is none --------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["disable", "osmesa"])
def test_without_a_gl_stack_it_falls_back(
    asked: str, monkeypatch: pytest.MonkeyPatch, fresh_stack: None
) -> None:
    monkeypatch.setenv("MUJOCO_GL", asked)
    # An OSMesa that crashes as soon as it is loaded.
    monkeypatch.setattr(opengl, "_PROBE", "import os; os.abort()")
    assert opengl.gl_stack() is None
    by_default = render([], CAMERA, 40, 30)
    np.testing.assert_array_equal(by_default, render([], CAMERA, 40, 30, "raycast"))
    if "mujoco" in sys.modules or opengl.importlib.util.find_spec("mujoco"):
        with pytest.raises(RenderError, match=r"no GL stack.*renderer='raycast'"):
            render([], CAMERA, renderer="mujoco")


@with_gl
@pytest.mark.parametrize(
    ("asked", "card", "drawn"),
    [("", False, False), ("", True, True), ("egl", False, True), ("disable", True, False)],
)
def test_mujocos_renderer_draws_with_a_card_or_if_asked(
    asked: str, card: bool, drawn: bool, monkeypatch: pytest.MonkeyPatch, fresh_stack: None
) -> None:
    monkeypatch.setenv("MUJOCO_GL", asked)
    monkeypatch.setattr(opengl, "has_card", lambda: card)
    assert opengl.preferred() == drawn
    by_default = render([], CAMERA, 40, 30)
    np.testing.assert_array_equal(
        by_default, render([], CAMERA, 40, 30, "mujoco" if drawn else "raycast")
    )


def test_without_mujoco_it_falls_back(monkeypatch: pytest.MonkeyPatch, fresh_stack: None) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    assert opengl.gl_stack() is None
    assert render([], CAMERA, 40, 30).shape == (30, 40, 3)
    with pytest.raises(MissingExtraError, match=r"fraxenv\[mujoco\]"):
        render([], CAMERA, renderer="mujoco")


def test_processes_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opengl, "preferred", lambda: False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    ball = Shape("sphere", (0.2,), np.array([0.0, 0.0, 0.3]), np.eye(3), BLACK)
    scenes = [[], [ball], [ball, ball]]
    with drawers(1000) as pool:
        assert pool is not None
        side_by_side = list(render_each(scenes, CAMERA, 60, 40, pool))
    one_by_one = list(render_each(scenes, CAMERA, 60, 40))
    np.testing.assert_array_equal(side_by_side, one_by_one)
    with drawers(10) as pool:
        assert pool is None


def test_unknown_renderer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"renderer='vulkan', expected one of 'auto', 'mujoco'"):
        render([], CAMERA, renderer="vulkan")  # type: ignore[arg-type]


# --- one of a batch, and many ---------------------------------------------------------------------


def test_one_of_a_batch(batch: tuple[Environment, EnvState, EnvParams]) -> None:
    env, states, params = batch
    third = jax.tree.map(lambda x: x[3], states)
    alone = render_env(env, third, params, 60, 50, renderer="raycast")
    picked = render_env(env, states, params, 60, 50, index=3, renderer="raycast")
    np.testing.assert_array_equal(picked, alone)
    other = render_env(env, states, params, 60, 50, index=2, renderer="raycast")
    assert np.any(other != alone)


def test_many_in_one_picture(batch: tuple[Environment, EnvState, EnvParams]) -> None:
    env, states, params = batch
    reports = {"min_barrier": np.linspace(-0.1, 0.1, 5), "intervened": np.ones(5, bool)}
    each = [
        render_env(
            env, states, params, 40, 30, index=i, renderer="raycast",
            safety=reports,
        )
        for i in range(5)
    ]  # fmt: skip
    options: dict[str, Any] = {"safety": reports, "renderer": "raycast"}
    sheet = render_envs(env, states, params, 40, 30, **options)
    np.testing.assert_array_equal(sheet, tile(each))
    row = render_envs(env, states, params, 40, 30, count=3, columns=3, **options)
    np.testing.assert_array_equal(row, tile(each[:3], columns=3))


@pytest.mark.parametrize("index", [-1, 5, 1.0, True])
def test_there_is_no_such_environment(
    batch: tuple[Environment, EnvState, EnvParams], index: Any
) -> None:
    env, states, params = batch
    with pytest.raises(RenderError, match=r"index=.*expected a whole number >= 0 and <= 4"):
        render_env(env, states, params, index=index)


def test_an_index_into_no_batch_is_refused(
    batch: tuple[Environment, EnvState, EnvParams],
) -> None:
    env, states, params = batch
    one = jax.tree.map(lambda x: x[0], states)
    for call in (
        lambda: render_env(env, one, params, index=0),
        lambda: render_envs(env, one, params),
    ):
        with pytest.raises(RenderError, match=r"shape \(7,\), expected \(n, nq\)"):
            call()
    with pytest.raises(RenderError, match="count=0, expected"):
        render_envs(env, states, params, count=0)


# --- the safety filter ----------------------------------------------------------------------------


def hue(pixel: NDArray[np.uint8]) -> str:
    red, green, blue = pixel.astype(int)
    if max(red, green) < blue + 40:
        return "grey"
    if red < green:
        return "green"
    return "amber" if green > 0.4 * red else "red"


@pytest.mark.parametrize(
    ("report", "color", "share"), [(FINE, "green", 0.5), (BUSY, "amber", 0.2), (BROKEN, "red", 1.0)]
)
def test_the_bar_shows_the_smallest_barrier(
    batch: tuple[Environment, EnvState, EnvParams],
    report: dict[str, Any],
    color: str,
    share: float,
) -> None:
    env, states, params = batch
    picture = render_env(env, states, params, 200, 120, index=0, safety=None)
    shown = render_env(env, jax.tree.map(lambda x: x[0], states), params, 200, 120, safety=report)
    hues = [hue(p) for p in shown[-1]]
    assert hues.count(color) == pytest.approx(200 * share, abs=1)
    assert all(h == color for h in hues[: hues.count(color)])
    assert "grey" in hues or share == 1.0
    top = (shown[:-4] != picture[:-4]).any()
    assert top == (color != "green")  # the hand glows


def test_hands_glow_where_they_are(batch: tuple[Environment, EnvState, EnvParams]) -> None:
    env, states, _ = batch
    q = np.asarray(states.q[0])
    place, _ = fraxenv.dynamics.frame_pose(env.robot, q, "hand")
    plain, *glowing = (len(scene(env.robot, q, safety=r)) for r in (FINE, BUSY, BROKEN))
    assert [n - plain for n in glowing] == [1, 1]
    ball = scene(env.robot, q, safety=BUSY)[-1]
    np.testing.assert_allclose(ball.position, place, atol=1e-6)
    assert ball.rgba[3] < 1


@pytest.mark.parametrize("report", [None, {"min_barrier": np.inf, "intervened": False}])
def test_without_a_filter_nothing_is_shown(
    batch: tuple[Environment, EnvState, EnvParams], report: Any
) -> None:
    env, states, params = batch
    one = jax.tree.map(lambda x: x[0], states)
    picture = render_env(env, one, params, 40, 30, safety=report, renderer="raycast")
    np.testing.assert_array_equal(picture, render_env(env, one, params, 40, 30, renderer="raycast"))


# --- through Gymnasium ----------------------------------------------------------------------------


@pytest.mark.slow
def test_gymnasium_shows_the_filter_and_batches_show_their_environments() -> None:
    import gymnasium as gym

    options: dict[str, Any] = {
        "control_hz": 100,
        "physics_hz": 100,
        "safety": SafetyFilter(barriers=(joint_velocity(),)),
        "width": 60,
        "height": 60,
        "renderer": "raycast",
    }
    envs: Any = gym.make_vec(
        "fraxenv/PandaReach-v0", num_envs=3, render_mode="rgb_array", render_envs=2, **options
    )
    envs.reset(seed=0)
    assert "green" not in [hue(p) for p in envs.render_one(1)[-1]]  # nothing was filtered yet
    envs.step(np.zeros((3, 6), np.float32))
    frames = envs.render()
    for i in range(2):
        np.testing.assert_array_equal(envs.render_one(i), frames[i])
        assert "green" in [hue(p) for p in frames[i][-1]]
    assert (frames[2] == 255).all()
    assert (envs.render_one(2) != 255).any()
    np.testing.assert_array_equal(envs.render_tiled(columns=1), tile(frames[:2], columns=1))
    with pytest.raises(RenderError, match=r"index=3, .*<= 2"):
        envs.render_one(3)

    env: Any = gym.make("fraxenv/PandaReach-v0", render_mode="rgb_array", **options)
    env.reset(seed=0)
    assert "green" not in [hue(p) for p in env.render()[-1]]
    env.step(np.zeros(6, np.float32))
    assert "green" in [hue(p) for p in env.render()[-1]]
    with pytest.raises(ConfigError, match="-v0: renderer='vulkan', expected one of"):
        gym.make("fraxenv/PandaReach-v0", **{**options, "renderer": "vulkan"})
