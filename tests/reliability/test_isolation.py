"""A poisoned environment of a batch leaves the others bitwise as they were, in every executor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_motion import SCENES, arguments, motion
from jax import Array
from pushing import Push, scene_of_arm
from support import bits, with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.envs import EnvState
from fraxenv.kernels import fuse

ROBOT = dynamics.lock_joints(
    dynamics.load_robot("ur10"),
    ["shoulder_pan_joint", "elbow_joint", "wrist_1_joint", "wrist_2_joint"],
)
Poison = Callable[[Any, Array, np.ndarray], tuple[Any, Array]]

POISONS: dict[str, Poison] = {
    "positions": lambda s, a, i: (s.replace(q=s.q.at[i].set(jnp.nan)), a),
    "one position": lambda s, a, i: (s.replace(q=s.q.at[i, 3].set(jnp.inf)), a),
    "velocities": lambda s, a, i: (s.replace(v=s.v.at[i].set(1e30)), a),
    "one velocity": lambda s, a, i: (s.replace(v=s.v.at[i, 0].set(-3e3)), a),
    "action": lambda s, a, i: (s, a.at[i, 1].set(jnp.nan)),
}


def _object(name: str, i: np.ndarray, value: float) -> Callable[[EnvState], EnvState]:
    """Spoils one number of the cube's `q` or `v`."""

    def spoilt(state: EnvState) -> EnvState:
        cube = state.world.objects["cube"]
        cube = dataclasses.replace(cube, **{name: getattr(cube, name).at[i, 2].set(value)})
        scene = dataclasses.replace(state.world.scene, objects={"cube": cube})
        return state.replace(world=dataclasses.replace(state.world, scene=scene))

    return spoilt


SCENE_POISONS: dict[str, Poison] = {
    "positions": POISONS["positions"],
    "one velocity": POISONS["one velocity"],
    "an object's position": lambda s, a, i: (_object("q", i, jnp.nan)(s), a),
    "an object's velocity": lambda s, a, i: (_object("v", i, 1e30)(s), a),
    "action": POISONS["action"],
}
CHEAP = {"control_hz": 50, "physics_hz": 50, "action": "torque"}
# To compile a scalar program takes XLA long; native does the whole thing.
CASES: dict[str, dict[str, Any]] = {
    "native": {"control_hz": 100, "physics_hz": 100},
    "xla": CHEAP,
    "vmap": CHEAP,
    "pallas": CHEAP,
}
STEPS = 3


def check(
    backend: str,
    overrides: dict[str, Any],
    n: int,
    poisoned: np.ndarray,
    poisons: dict[str, Poison] = POISONS,
) -> None:
    env, params = fraxenv.make(**{"id": "PandaReach-v0", "backend": backend, **overrides})
    keys = jax.random.split(jax.random.key(0), n)
    reset = jax.jit(jax.vmap(env.reset, (0, None)))
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    actions = jax.random.uniform(jax.random.key(1), (STEPS, n, env.num_actions), minval=-1.0)
    start = reset(keys, params)[1]

    def run(poison: Poison | None) -> list[Any]:
        state, returned = start, []
        for t in range(STEPS):
            action = actions[t]
            if t == 0 and poison is not None:
                state, action = poison(state, action, poisoned)
            returned.append(step(keys, state, action, params))
            state = returned[-1][1]
        return returned

    healthy = run(None)
    others = np.setdiff1d(np.arange(n), poisoned)
    for name, poison in poisons.items():
        returned = run(poison)
        for t, (before, now) in enumerate(zip(healthy, returned, strict=True)):
            expected, found = bits(before), bits(now)
            for leaf, value in expected.items():
                where = f"{name}, step {t}, {leaf}"
                np.testing.assert_array_equal(found[leaf][others], value[others], err_msg=where)
        *_, terminated, _, info = returned[0]
        np.testing.assert_array_equal(info["diverged"], np.isin(np.arange(n), poisoned))
        np.testing.assert_array_equal(terminated, info["diverged"])
        for t in range(STEPS):
            obs, state, reward, *_ = returned[t]
            assert all(bool(jnp.isfinite(x).all()) for x in (obs, state.q, state.v, reward))


SLOW = ("xla", "vmap", "pallas")


@pytest.mark.parametrize(
    "backend", [pytest.param(b, marks=[pytest.mark.slow] * (b in SLOW)) for b in CASES]
)
def test_poison_stays_where_it_is(backend: str) -> None:
    # Neither a whole number of vectors nor of blocks; first, last and neighbours are poisoned.
    check(backend, CASES[backend], 67, np.array([0, 16, 17, 33, 66]))


@pytest.mark.parametrize("backend", CASES)
def test_poison_stays_where_it_is_in_a_kernel(backend: str) -> None:
    """Of a robot of two joints, which every executor compiles quickly."""
    rng = np.random.default_rng(0)
    n, bad = 133, [0, 5, 64, 127, 128, 132]
    q, v, tau = rng.uniform(-2, 2, (3, n, 2)).astype(np.float32)
    step = fuse(lambda q, v, tau: dynamics.step(ROBOT, q, v, tau, 1e-3), backend)
    healthy = bits(step(q, v, tau))
    others = np.setdiff1d(np.arange(n), bad)
    for poison in (np.nan, np.inf, 1e38):
        for spoilt in (q, v, tau):
            before = spoilt[bad].copy()
            spoilt[bad] = poison
            found = bits(step(q, v, tau))
            spoilt[bad] = before
            for leaf, value in healthy.items():
                np.testing.assert_array_equal(found[leaf][others], value[others])


@pytest.mark.slow
@pytest.mark.parametrize("n", [67, 4096])
def test_poison_stays_where_it_is_in_a_scene(n: int) -> None:
    """Of an arm or of a cube that it could push, and in some environments does."""
    scene = {"id": None, "robot": scene_of_arm(), "task": Push(), "action": "joint_velocity"}
    bad = np.array([0, 16, 17, 33, 66])
    check("native", scene, n, bad, SCENE_POISONS)


@pytest.mark.parametrize("scene", with_slow(SCENES, *SCENES[1:]))
def test_poison_stays_where_it_is_in_a_contact_kernel(scene: str) -> None:
    """Some touch and some do not, beside each other; solvers take as many rounds as they need."""
    n, bad = 133, np.array([0, 5, 64, 127, 128, 132])
    others = np.setdiff1d(np.arange(n), bad)
    healthy = motion(scene, range(n))
    touching = np.asarray(healthy[0][2].touching).any(axis=1)
    assert len(set(touching[:16])) == 2 or scene == "stack"
    assert len(set(np.asarray(healthy[0][2].rounds)[:16].tolist())) > 2
    names = ("configuration", "velocity", "force", "warm start", "controls")
    given_size = [x.shape[1] for x in arguments(scene)]
    for k, name in enumerate(names):
        for value in (np.nan, np.inf, 1e38):

            def poison(given: list[np.ndarray], k: int = k, value: float = value) -> None:
                given[k][bad] = value

            found = motion(scene, range(n), poison)
            for t, (expected, step) in enumerate(zip(healthy, found, strict=True)):
                now = bits(step)
                for leaf, row in bits(expected).items():
                    where = f"{name} {value}, step {t}, {leaf}"
                    np.testing.assert_array_equal(now[leaf][others], row[others], err_msg=where)
            solution = found[0][2]
            if name == "warm start":  # it is passed over
                assert np.asarray(solution.converged).all()
                a, b = (np.asarray(x[0][1])[bad] for x in (found, healthy))
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
            elif np.isnan(value) and given_size[k]:
                # In the air there is nothing to solve, and nothing that is finite either.
                finite = np.isfinite(np.asarray(solution.acceleration)).all(axis=1)
                assert not (np.asarray(solution.converged) & finite)[bad].any(), name


@pytest.mark.slow
@pytest.mark.parametrize("backend", CASES)
def test_one_in_4096(backend: str) -> None:
    check(backend, CASES[backend], 4096, np.array([1234]))


@pytest.mark.slow
def test_one_in_4096_with_the_safety_filter() -> None:
    """As it is registered, in the executor that users have."""
    env, params = fraxenv.make("PandaReachObstacles-v0")
    n, bad = 4096, 1234
    keys = jax.random.split(jax.random.key(0), n)
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    actions = jax.random.uniform(jax.random.key(1), (n, env.num_actions), minval=-1.0)
    healthy = bits(step(keys, state, actions, params))
    others = np.arange(n) != bad
    for name, poison in POISONS.items():
        found = bits(step(keys, *poison(state, actions, np.array([bad])), params))
        for leaf, value in healthy.items():
            np.testing.assert_array_equal(found[leaf][others], value[others], err_msg=name + leaf)
