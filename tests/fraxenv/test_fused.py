"""The kernels of what they were made for: dynamics, controllers, environments.

Bounds are relative to the largest entry of a result in an environment: 1e-12 in float64; in
float32 5e-4, which is rounding (1.2e-7) times the condition of the Panda's mass matrix (1e3) and a
few operations, for `jax.vmap` rounds as much.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import dtype_with_slow, with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import OSC
from fraxenv.dynamics import Robot
from fraxenv.kernels import explain, fuse, get_threads, set_threads

BATCH = 21
BOUND = {"float32": 5e-4, "float64": 1e-12}

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "bias_forces": ("q", "v", "f"),
    "center_of_mass": ("q",),
    "center_of_mass_jacobian": ("q",),
    "centroidal_momentum": ("q", "v"),
    "compute_kinematics": ("q",),
    "coriolis_matrix": ("q", "v"),
    "crba": ("q",),
    "difference": ("q", "q2"),
    "forward_dynamics": ("q", "v", "tau", "f"),
    "forward_dynamics_derivatives": ("q", "v", "tau"),
    "forward_kinematics": ("q",),
    "frame_acceleration": ("q", "v", "tau", "frame"),
    "frame_jacobian_dot": ("q", "v", "frame"),
    "gravity_forces": ("q",),
    "integrate": ("q", "v", "dt"),
    "inverse_dynamics_derivatives": ("q", "v", "tau"),
    "kinetic_energy": ("q", "v"),
    "manipulability": ("q", "frame"),
    "potential_energy": ("q",),
    "rnea": ("q", "v", "tau", "f"),
    "self_distances": ("q",),
    "step": ("q", "v", "tau", "dt"),
    "transition_derivatives": ("q", "v", "tau", "dt"),
}


def states(robot: Robot, dtype: Any) -> dict[str, jax.Array]:
    rng = np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(0), 2 * BATCH)
    q = jax.vmap(lambda k: dynamics.random_configuration(robot, k))(keys).astype(dtype)
    shapes = {"v": (robot.nv,), "tau": (robot.nv,), "f": (robot.nb, 6)}
    other = {k: jnp.asarray(rng.uniform(-2, 2, (BATCH, *s)), dtype) for k, s in shapes.items()}
    return {"q": q[:BATCH], "q2": q[BATCH:], **other}


def largest_difference(actual: Any, expected: Any) -> float:
    def one(a: jax.Array, b: jax.Array) -> float:
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        x, y = (np.asarray(z).reshape(BATCH, -1) for z in (a, b))
        if x.dtype.kind != "f":
            return 0.0 if np.array_equal(x, y) else np.inf
        special = ~np.isfinite(y)
        np.testing.assert_array_equal(x[special], y[special])
        x, y = np.where(special, 0, x), np.where(special, 0, y)
        scale = np.abs(y).max(1, keepdims=True, initial=1e-3)
        return float(np.max(np.abs(x - y) / scale, initial=0))

    return max(jax.tree.leaves(jax.tree.map(one, actual, expected)))


DERIVATIVES = {n for n in FUNCTIONS if "derivatives" in n or n == "coriolis_matrix"}
LARGE = {"crba", "difference", "forward_dynamics", "integrate", "rnea", "step"}


def check(robot: Robot, names: set[str], dtype: Any) -> None:
    def everything(values: dict[str, jax.Array]) -> dict[str, Any]:
        known = {**values, "frame": robot.end_effectors[0], "dt": 1e-3}

        def result(n: str) -> Any:
            return getattr(dynamics, n)(robot, *(known[a] for a in FUNCTIONS[n]))

        return {n: result(n) for n in sorted(names)}

    values = states(robot, dtype)
    expected = jax.jit(jax.vmap(everything))(values)
    actual = fuse(everything, "native")(values)
    for n in sorted(names):
        a, b = actual[n], expected[n]
        if n == "manipulability":  # the root of a determinant that may be nearly zero
            a, b = a**2, b**2
        assert largest_difference(a, b) < BOUND[str(dtype)], n
    assert explain(everything, "native")(values).fallbacks == []


@pytest.mark.parametrize("name", with_slow(["double_pendulum", "panda"], "panda"))
@dtype_with_slow("float64")
def test_every_function_of_dynamics(dtype: np.dtype, name: str) -> None:
    check(dynamics.load_robot(name), set(FUNCTIONS) - DERIVATIVES, dtype)


@pytest.mark.slow
def test_derivatives(x64: None) -> None:
    check(dynamics.load_robot("panda"), DERIVATIVES, np.dtype(float))


@pytest.mark.slow
def test_planar_joints(x64: None) -> None:
    robot = dynamics.load_robot("planar_mobile_manipulator")
    check(robot, set(FUNCTIONS) - DERIVATIVES, np.dtype(float))


@pytest.mark.slow
def test_floating_base() -> None:
    check(dynamics.load_robot("g1"), LARGE, np.dtype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    with_slow([{}, {"task": "position"}, {"decoupling": "partial"}], {}, {"task": "position"}),
)
@dtype_with_slow("float64")
def test_operational_space_control(dtype: np.dtype, options: dict[str, Any]) -> None:
    robot = dynamics.load_robot("panda")
    controller = OSC(end_effector="hand", **options)

    def torque(values: dict[str, jax.Array]) -> Any:
        terms = dynamics.compute_terms(robot, values["q"], values["v"])
        from fraxenv.controllers import PoseTarget

        position, rotation = dynamics.frame_pose(robot, values["q2"], "hand")
        state = controller.init(robot, terms)
        return controller(robot, terms, PoseTarget(position, rotation), state, 1e-3)

    values = states(robot, dtype)
    expected = jax.jit(jax.vmap(torque))(values)
    actual = fuse(torque, "native")(values)
    # Near a singularity the task's inertia is worse conditioned than the joints'.
    assert largest_difference(actual, expected) < 20 * BOUND[str(dtype)]


def batch(env: Any, params: Any, size: int) -> tuple[jax.Array, Any, jax.Array]:
    keys = jax.random.split(jax.random.key(3), size)
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    action = jax.random.uniform(jax.random.key(4), (size, env.num_actions), minval=-1)
    return keys, state, action.astype(state.q.dtype)


def stepper(env: Any) -> Callable[..., Any]:
    return jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))


def without_residuals(results: Any) -> Any:
    """The residuals of solvers, which are made of rounding alone, are no results."""

    def kept(path: Any, x: jax.Array) -> jax.Array:
        return jnp.zeros_like(x) if "residual" in jax.tree_util.keystr(path) else x

    return jax.tree_util.tree_map_with_path(kept, results)


@pytest.mark.slow
@pytest.mark.parametrize("id", fraxenv.list_envs())
def test_every_environment(dtype: np.dtype, id: str) -> None:
    """Some are compiled for minutes without a kernel."""
    results = {}
    for backend in ("vmap", "native"):
        env, params = fraxenv.make(id, backend=backend, max_steps_in_episode=3)
        keys, state, action = batch(env, params, BATCH)
        # Half of the episodes end in this step.
        half = jnp.arange(BATCH) % 2 == 0
        state = state.replace(time=jnp.where(half, 2, 0).astype(state.time.dtype))
        results[backend] = without_residuals(stepper(env)(keys, state, action, params))
    assert largest_difference(results["native"], results["vmap"]) < 10 * BOUND[str(dtype)]
    assert explain(env.step, "native", (0, 0, 0, None))(keys, state, action, params).fallbacks == []


@pytest.fixture
def threads() -> Iterator[None]:
    before = get_threads()
    yield
    set_threads(before)


def test_an_environment_does_not_depend_on_its_batch(threads: None) -> None:
    env, params = fraxenv.make("PandaReach-v0", backend="native")
    keys, state, action = batch(env, params, 1000)
    step = stepper(env)
    expected = step(keys, state, action, params)
    for count in (1, 3):
        set_threads(count)
        for first, size in ((0, 1), (17, 1), (5, 16), (984, 16), (100, 333)):
            rows = slice(first, first + size)
            part = step(*jax.tree.map(lambda x, r=rows: x[r], (keys, state, action)), params)
            chex.assert_trees_all_equal(part, jax.tree.map(lambda x, r=rows: x[r], expected))


@pytest.mark.slow
def test_randomised_parameters_are_lanes() -> None:
    results = {}
    for backend in ("vmap", "native"):
        env, params = fraxenv.make("PandaReach-v0", backend=backend)
        keys, state, action = batch(env, params, BATCH)
        mass = jnp.asarray(env.robot.mass) * jnp.linspace(0.8, 1.2, BATCH)[:, None]
        params = params.replace(robot=env.robot.replace(mass=mass))
        axes = jax.tree.map(lambda _: None, params)
        axes = axes.replace(robot=dataclass_axes(params.robot, mass=0))
        step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, axes)))
        results[backend] = step(keys, state, action, params)
    assert largest_difference(results["native"], results["vmap"]) < 10 * BOUND["float32"]


def dataclass_axes(robot: Robot, **axes: int) -> Robot:
    return jax.tree.map(lambda _: None, robot).replace(**axes)


def test_one_bad_lane_stays_alone() -> None:
    env, params = fraxenv.make("PandaReach-v0", backend="native")
    keys, state, action = batch(env, params, BATCH)
    expected = stepper(env)(keys, state, action, params)
    bad = stepper(env)(keys, state, action.at[4].set(jnp.nan), params)
    assert bool(bad[5]["diverged"][4])
    assert np.isfinite(bad[0][4]).all()
    others = np.arange(BATCH) != 4
    chex.assert_trees_all_equal(*jax.tree.map(lambda x: np.asarray(x)[others], (bad, expected)))


def test_signatures_are_those_of_dynamics() -> None:
    for name in FUNCTIONS:
        assert "robot" in inspect.signature(getattr(dynamics, name)).parameters
