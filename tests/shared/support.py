"""What tests of several files use: scripts, slow parameters, rollouts, comparison of results."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from fraxenv import dynamics
from fraxenv.dynamics import Actuators, Robot
from fraxenv.kernels import fusible

MOTORS = Actuators()


def load_script(name: str) -> ModuleType:
    """A module of `scripts/`, by its path there without the ending: "measure/compare_qp"."""
    path = Path(__file__).parents[2] / "scripts" / f"{name}.py"
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def with_slow(values: Iterable[Any], *slow: Any) -> list[Any]:
    """Values of a parameter, with which tests are slow if the value is one of `slow`."""
    values = list(values)
    assert all(value in values for value in slow), f"{slow} are not all of {values}"
    return [pytest.param(v, marks=pytest.mark.slow) if v in slow else v for v in values]


def dtype_with_slow(*slow: str) -> pytest.MarkDecorator:
    """Decorates tests that take the fixture `dtype`, and are slow in these precisions."""
    return pytest.mark.parametrize("dtype", with_slow(["float32", "float64"], *slow), indirect=True)


def packaged(distribution: str, ending: str) -> Path:
    """A file of an installed distribution, by the end of its path; skips the test without it."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")
    return Path(next(f for f in files if f.as_posix().endswith(ending)).locate())


def colours(picture: Path) -> int:
    """How many a picture has: an empty one has few."""
    with Image.open(picture) as image:
        counts: list[Any] = image.convert("RGB").getcolors(image.width * image.height)
    return len(counts)


def rollout(
    robot: Robot,
    controller: Any,
    target: Any,
    seconds: float,
    dt: float = 1e-3,
    actuators: Actuators = MOTORS,
) -> Any:
    """From rest at the default posture: q, v, the torque applied and telemetry of every step."""

    def step(carry: Any, _: None) -> Any:
        q, v, state, motors = carry
        terms = dynamics.compute_terms(robot, q, v)
        tau, state, telemetry = controller(robot, terms, target, state, dt)
        tau, _, motors = actuators(robot, tau, v, motors, dt)
        q, v = dynamics.step(robot, q, v, tau, dt, terms=terms)
        return (q, v, state, motors), (q, v, tau, telemetry)

    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(robot.nv)
    terms = dynamics.compute_terms(robot, q, v)
    start = (q, v, controller.init(robot, terms), actuators.init(robot, terms.bias, dt))
    return jax.lax.scan(fusible(step), start, None, round(seconds / dt))[1]


def assert_alike(one: Any, other: Any, path: str = "") -> None:
    """Alike in structure, types, shapes and dtypes; floating-point numbers only nearly equal."""
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert set(one) == set(other), path
        for key in one:
            assert_alike(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, np.ndarray) and one.dtype != object:
        assert (one.shape, one.dtype) == (other.shape, other.dtype), path
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3, err_msg=path)
    elif isinstance(one, np.ndarray | tuple):
        assert len(one) == len(other), path
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_alike(a, b, f"{path}/{i}")
    elif one is not None:
        assert one == pytest.approx(other, rel=1e-3, abs=1e-3), path


def bits(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a batch by their paths, (n, bytes), so that every bit of them counts."""

    def row_bytes(x: Any) -> np.ndarray:
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        x = np.ascontiguousarray(x)
        return x.view(np.uint8).reshape(len(x), -1)

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): row_bytes(x) for path, x in leaves}


def episode_of(env: Any, params: Any, policy: Any) -> Any:
    """A compiled function of a key: `terminated` and `info` of the steps of one episode.

    The policy has a memory; nothing is reset at the end.
    """

    @jax.jit
    def episode(key: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            obs, state, memory = carry
            action, memory = policy(obs, key, memory)
            obs, state, _, terminated, info = env.step_env(key, state, action, params)
            return (obs, state, memory), (terminated, info)

        obs, state = env.reset_env(key, params)
        steps = int(params.max_steps_in_episode) - 1
        return jax.lax.scan(step, (obs, state, policy.begin(obs)), None, steps)[1]

    return episode
