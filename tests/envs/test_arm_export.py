"""An environment's arm as a library: its torques are the environment's."""

from __future__ import annotations

import ctypes
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv.cli import main
from fraxenv.envs import arm_library

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


class Arm:
    """A library of an arm through ctypes, in JAX's trees."""

    def __init__(self, made: Any, library: Any) -> None:
        self._shared = ctypes.CDLL(str(library.library))
        self._name, self._functions = library.header.stem, made["fn"]
        self._shapes: dict[str, Any] = {}

    def __call__(self, name: str, *arguments: Any) -> Any:
        if name not in self._shapes:
            self._shapes[name] = jax.eval_shape(self._functions[name], *arguments)
        shapes = self._shapes[name]
        given = [np.ascontiguousarray(x) for x in jax.tree.leaves(arguments)]
        found = [np.zeros(x.shape, x.dtype) for x in jax.tree.leaves(shapes)]
        pointers = [(ctypes.c_void_p * len(xs))(*[x.ctypes.data for x in xs])
                    for xs in (given, found)]  # fmt: skip
        getattr(self._shared, f"{self._name}_{name}_")(*pointers)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)


WITH_OBSERVER = {"observer": {"late": 2}, "randomisation": {"payload": (1.0, 1.0)}}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("PandaReach-v0", {}),
        pytest.param("PandaReach-v0", WITH_OBSERVER, marks=pytest.mark.slow),
        pytest.param("PandaReachObstacles-v0", {}, marks=pytest.mark.slow),
        pytest.param("PandaReachObstacles-v0", {"safety": "robust"}, marks=pytest.mark.slow),
    ],
    ids=["plain", "observer", "filter", "robust"],
)
def test_torques_are_the_environments(
    tmp_path: Path, name: str, options: Any, request: pytest.FixtureRequest
) -> None:
    """Every policy step is one control step here, so that all torques are seen.

    An observer divides what momenta are rounded by by the time of a step: in float64. It takes for
    a load by how much the torque is not the one that moved the environment's arm, and the robust
    filter answers, so that rounding errors would grow by half in each step. So each step begins
    with the environment's observer.
    """
    observed = "observer" in options or options.get("safety") == "robust"
    tolerance = 1e-9 if observed else 2e-3
    close = partial(np.testing.assert_allclose, rtol=0, atol=tolerance)
    if observed:
        request.getfixturevalue("x64")
    rates = {"policy_hz": 500, "control_hz": 500, "physics_hz": 500}
    env, params = fraxenv.make(name, **rates, **options, max_steps_in_episode=1000)
    made = arm_library(env, params)
    arm = Arm(made, fraxenv.export(**made, name="arm", output=tmp_path))
    _, state = env.reset(jax.random.key(8 if observed else 3), params)
    memory = arm("begin", state.q, state.v)
    step = jax.jit(env.step_env)
    filtered = 0
    for k in range(600):
        action = np.asarray(jax.random.uniform(jax.random.key(k // 150), (6,), minval=-1, maxval=1))
        q, v = state.q, state.v
        memory = arm("aim", memory, q, action)
        around = [] if params.safety is None else [state.world.obstacles]
        tau, memory, *report = arm("control", memory, q, v, params.controller, *around)
        _, state, *_, info = step(jax.random.key(k), state, action, params)
        assert np.abs(tau - np.asarray(info["controller"]["torque"])).max() < tolerance
        jax.tree.map(close, memory.observer, state.observer_state)
        memory = memory._replace(observer=state.observer_state)
        filtered += bool(report and report[0]["intervened"])
    assert filtered > 5 or params.safety is None


@pytest.fixture(scope="module")
def reach() -> tuple[Any, Any]:
    env, _ = fraxenv.make("PandaReach-v0")
    weights = jnp.asarray(np.random.default_rng(0).normal(size=env.num_actions))

    def policy(observation: Any) -> Any:
        return jnp.tanh(weights * observation[0])

    return env, arm_library(env, policy=policy)


def test_terms_are_the_robots(reach: tuple[Any, Any]) -> None:
    env, made = reach
    q, v = made["example_args"]["terms"]
    terms = jax.jit(made["fn"]["terms"])(q, v)
    position, rotation = jax.jit(lambda q: fraxenv.dynamics.frame_pose(env.robot, q, "hand"))(q)
    assert np.array_equal(terms["hand"]["position"], position)
    assert np.array_equal(terms["hand"]["rotation"], rotation)
    expected = jax.jit(fraxenv.dynamics.crba)(env.robot, q)
    assert np.allclose(terms["mass_matrix"], expected, atol=1e-6)


def test_a_policy_comes_along(reach: tuple[Any, Any]) -> None:
    env, made = reach
    act, (observation,) = made["fn"]["policy"], made["example_args"]["policy"]
    assert act(observation).shape == (env.num_actions,)
    assert "The observation: joint_position" in act.__doc__


@pytest.mark.slow
def test_the_command_line_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--kind", "object", "--target", "aarch64", "--name", "ur", "--output", str(tmp_path)]
    assert main(["export", "UR10Reach-v0", *words]) == 0
    said = capsys.readouterr().out
    assert "ur_begin(), ur_aim(), ur_control(), ur_terms(), for aarch64" in said
    assert "ur.o, ur.h, ur_test.c" in said
    assert {p.name for p in tmp_path.iterdir()} == {"ur.o", "ur.h", "ur_test.c"}
    assert main(["export", "UR10Reach-v0", "--name", "a b", "--output", str(tmp_path)]) == 1
    assert "name='a b', expected a name as C has it" in capsys.readouterr().err
