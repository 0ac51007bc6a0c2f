"""What ends an episode and what is seen last of it; statistics; names that need other libraries."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import chex
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as vector_wrappers
from support import with_slow

import fraxenv
from fraxenv.errors import ConfigError, EnvStateError, MissingExtraError
from fraxenv.wrappers import EpisodeStatistics, FiveTuple, GymnasiumEnv, GymnasiumVectorEnv

ID = "PandaReach-v0"
FAST: dict[str, Any] = {"control_hz": 100, "physics_hz": 100, "action": "joint_velocity"}
STEPS = 3
CASES = ["ordinary", "terminated", "truncated", "both"]
NUM_ENVS = len(CASES)


@pytest.fixture(scope="module")
def made() -> tuple[Any, Any]:
    return fraxenv.make(ID, max_steps_in_episode=STEPS, **FAST)


def prepared(env: Any, params: Any, case: str) -> tuple[Any, jax.Array]:
    """A state and an action whose step ends as the case says."""
    _, state = env.reset(jax.random.key(0), params)
    if case in ("truncated", "both"):
        state = state.replace(time=jnp.asarray(STEPS - 1, jnp.int32))
    action = jnp.linspace(-0.5, 0.5, 7)
    if case in ("terminated", "both"):
        action = action.at[1].set(jnp.nan)
    return state, action


def stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def check_step(case: str, result: tuple[Any, ...], without: tuple[Any, ...]) -> None:
    """A step with autoreset against the same one without."""
    obs, state, reward, terminated, truncated, info = result
    last, _, own_reward, own_terminated, _ = without
    assert (bool(terminated), bool(truncated)) == (
        case in ("terminated", "both"),
        case in ("truncated", "both"),
    )
    assert bool(own_terminated) == bool(terminated)
    assert (bool(info["terminated"]), bool(info["truncated"])) == (
        bool(terminated),
        bool(truncated),
    )
    assert bool(info["diverged"]) == bool(terminated)
    np.testing.assert_allclose(info["final_observation"], last, atol=1e-5)
    np.testing.assert_allclose(reward, own_reward, atol=1e-5)
    assert np.all(np.isfinite(info["final_observation"]))
    over = case != "ordinary"
    assert np.array_equal(obs, info["final_observation"]) == (not over)
    assert int(state.time) == (0 if over else 1)
    assert np.all(np.asarray(state.action) == 0.0) == over  # of a new episode


# --- The last observation ------------------------------------------------------------------------


@pytest.mark.parametrize("how", with_slow(["jit", "vmap", "scan"], "jit", "scan"))
def test_final_observation(made: tuple[Any, Any], how: str) -> None:
    env, params = made
    key = jax.random.key(1)
    states, actions = zip(*[prepared(env, params, case) for case in CASES], strict=True)
    own_key, _ = jax.random.split(key)
    batch = stack(list(states)), jnp.stack(actions)
    without = jax.jit(jax.vmap(env.step_env, (None, 0, 0, None)))(own_key, *batch, params)
    if how == "jit":
        results = stack(
            [env.step(key, s, a, params) for s, a in zip(*batch_rows(batch), strict=True)]
        )
    elif how == "vmap":
        results = jax.jit(jax.vmap(env.step, (None, 0, 0, None)))(key, *batch, params)
    else:

        def step(carry: None, x: Any) -> tuple[None, Any]:
            return carry, env.step(key, *x, params)

        _, results = jax.jit(lambda: jax.lax.scan(step, None, batch))()
    for i, case in enumerate(CASES):
        check_step(case, *(jax.tree.map(lambda x, i=i: x[i], r) for r in (results, without)))


def batch_rows(batch: Any) -> Any:
    states, actions = batch
    rows = [jax.tree.map(lambda x, i=i: x[i], states) for i in range(NUM_ENVS)]
    return rows, list(actions)


@pytest.mark.parametrize(
    "options", with_slow([{"reset_pool": 4}, {"goal_env": True}], {"goal_env": True})
)
def test_final_observation_of_pools_and_goals(options: dict[str, Any]) -> None:
    env, params = fraxenv.make(ID, max_steps_in_episode=STEPS, **FAST, **options)
    key = jax.random.key(1)
    states, actions = zip(*[prepared(env, params, case) for case in CASES], strict=True)
    batch = stack(list(states)), jnp.stack(actions)
    results = jax.jit(jax.vmap(env.step, (None, 0, 0, None)))(key, *batch, params)
    own_key, _ = jax.random.split(key)
    last, *_ = jax.jit(jax.vmap(env.step_env, (None, 0, 0, None)))(own_key, *batch, params)
    obs, state, _, terminated, truncated, info = results
    chex.assert_trees_all_close(info["final_observation"], last, rtol=1e-7, atol=1e-5)
    assert terminated.tolist() == [False, True, False, True]
    assert truncated.tolist() == [False, False, True, True]
    assert state.time.tolist() == [1, 0, 0, 0]
    same = jax.tree.map(lambda a, b: np.all(np.asarray(a) == np.asarray(b), axis=-1), obs, last)
    seen = same["observation"] if isinstance(same, dict) else same
    assert seen.tolist() == [True, False, False, False]


@pytest.mark.parametrize("mode", with_slow(AutoresetMode, AutoresetMode.DISABLED))
def test_final_obs_of_gymnasiums_batches(mode: AutoresetMode) -> None:
    """All four ends in one step: states that diverge and time that is up."""
    envs = GymnasiumVectorEnv(ID, NUM_ENVS, autoreset_mode=mode, max_episode_steps=STEPS, **FAST)
    envs.reset(seed=0)
    state = envs.state
    assert state is not None
    ends = np.array([case in ("terminated", "both") for case in CASES])
    late = np.array([case in ("truncated", "both") for case in CASES])
    v = np.where(ends[:, None], 1e20, state.v).astype(np.float32)
    envs.state = state.replace(v=jnp.asarray(v), time=jnp.asarray(late * (STEPS - 1), jnp.int32))
    disturbed = envs.state
    obs, reward, terminated, truncated, info = envs.step(np.full((NUM_ENVS, 7), 0.5))
    assert terminated.tolist() == ends.tolist()
    assert truncated.tolist() == late.tolist()
    assert reward[ends].tolist() == [0.0, 0.0]
    over = ends | late
    env, params = envs.environment, envs.environment.default_params
    step = jax.jit(jax.vmap(env.step_env, (None, 0, 0, None)))
    last = np.asarray(step(jax.random.key(0), disturbed, jnp.full((NUM_ENVS, 7), 0.5), params)[0])
    if mode == AutoresetMode.SAME_STEP:
        assert info["_final_obs"].tolist() == over.tolist()
        assert info["final_info"]["diverged"].tolist() == ends.tolist()
        assert info["final_obs"][0] is None
        for i in np.flatnonzero(over):
            np.testing.assert_allclose(info["final_obs"][i], last[i], atol=1e-5)
            assert not np.array_equal(obs[i], info["final_obs"][i])
        np.testing.assert_allclose(obs[0], last[0], atol=1e-5)
        return
    np.testing.assert_allclose(obs, last, atol=1e-5)
    assert "final_obs" not in info
    if mode == AutoresetMode.DISABLED:
        begun, _ = envs.reset(options={"reset_mask": over})
    else:
        begun, *_ = envs.step(np.full((NUM_ENVS, 7), 0.5))
    assert np.all(begun[over][:, -7:] == 0.0)  # no last action
    assert not np.any(np.all(begun[over] == obs[over], axis=1))


def test_a_state_that_is_not_finite_ends_the_episode(made: tuple[Any, Any]) -> None:
    env, params = made
    _, state = env.reset(jax.random.key(0), params)
    broken = state.replace(q=state.q.at[2].set(jnp.nan))
    obs, new, reward, terminated, truncated, info = env.step(
        jax.random.key(1), broken, jnp.zeros(7), params
    )
    assert (bool(terminated), bool(truncated), float(reward)) == (True, False, 0.0)
    assert bool(info["diverged"])
    assert np.all(np.isfinite(obs))
    assert np.all(np.isfinite(new.q))


# --- Statistics of episodes ----------------------------------------------------------------------


def test_statistics_under_vmap_and_scan(made: tuple[Any, Any]) -> None:
    """Against sums over the steps themselves, of environments that end at different times."""
    plain, params = made
    env = EpisodeStatistics(plain)
    count, length = 3, 8
    keys = jax.random.split(jax.random.key(0), count)
    actions = jax.random.uniform(jax.random.key(1), (length, count, 7), minval=-1.0)
    actions = actions.at[1, 2, 0].set(jnp.nan)  # the third one diverges at its second step

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        keys, action = x
        obs, state, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
            keys, state, action, params
        )
        return state, (obs, reward, terminated | truncated, info)

    @jax.jit
    def run() -> Any:
        _, state = jax.vmap(env.reset, (0, None))(keys, params)
        step_keys = jax.random.split(jax.random.key(2), (length, count))
        return jax.lax.scan(step, state, (step_keys, actions))

    _, (_, reward, over, info) = jax.tree.map(np.asarray, run())
    assert over.T.tolist()[0] == [False, False, True] * 2 + [False, False]
    assert over.T.tolist()[2] == [False, True, False, False, True, False, False, True]
    for i in range(count):
        begin, ended, last = 0, 0, None
        for t in range(length):
            if over[t, i]:
                now = slice(begin, t + 1)
                terms = {k: x[now, i].mean() for k, x in info["reward_terms"].items()}
                last = (reward[now, i].sum(), t + 1 - begin, bool(info["success"][t, i]), terms)
                begin, ended = t + 1, ended + 1
            episode = jax.tree.map(lambda x, t=t, i=i: x[t, i], info["episode"])
            assert episode["count"] == ended
            if last is None:
                assert not any(np.any(x) for x in jax.tree.leaves(episode))
                continue
            np.testing.assert_allclose(episode["return"], last[0], rtol=1e-5)
            assert (episode["length"], episode["success"]) == last[1:3]
            for name, mean in last[3].items():
                np.testing.assert_allclose(episode["reward_terms"][name], mean, rtol=1e-5)


def test_success_rate(made: tuple[Any, Any]) -> None:
    env, params = made
    statistics = EpisodeStatistics(env)
    near, far = (
        params.replace(
            max_steps_in_episode=1, task=dataclass_replace(params.task, position_tolerance=x)
        )
        for x in (10.0, 1e-6)
    )
    _, state = statistics.reset(jax.random.key(0), near)
    rates = []
    for own in (near, far, far, near):
        *_, info = out = statistics.step(jax.random.key(1), state, jnp.zeros(7), own)
        state = out[1]
        rates.append(float(info["episode"]["success_rate"]))
    np.testing.assert_allclose(rates, [1.0, 1 / 2, 1 / 3, 1 / 2], rtol=1e-6)


def dataclass_replace(task: Any, **changes: Any) -> Any:
    import dataclasses

    return dataclasses.replace(task, **{k: np.float32(v) for k, v in changes.items()})


def test_statistics_in_a_five_tuple(made: tuple[Any, Any]) -> None:
    env, params = made
    wrapped = FiveTuple(EpisodeStatistics(env))
    key = jax.random.key(0)
    obs, state = wrapped.reset(key, params)
    np.testing.assert_array_equal(obs, env.reset(key, params)[0])
    for _ in range(STEPS):
        obs, state, _, done, info = wrapped.step(key, state, jnp.zeros(7), params)
    assert bool(done)
    assert int(info["episode"]["length"]) == STEPS
    assert wrapped.default_params is env.default_params
    assert wrapped.action_space(params).shape == (7,)


def test_wrappers_are_compared_by_content(made: tuple[Any, Any]) -> None:
    env, _ = made
    for wrapped in (EpisodeStatistics(env), FiveTuple(EpisodeStatistics(env))):
        for twin in (
            copy.deepcopy(wrapped),
            copy.copy(wrapped),
            pickle.loads(pickle.dumps(wrapped)),
        ):
            assert twin == wrapped
            assert hash(twin) == hash(wrapped)
        assert wrapped != env
        with pytest.raises(AttributeError):
            _ = wrapped.no_such_attribute
    assert EpisodeStatistics(env) != FiveTuple(env)


def test_statistics_refuse_what_they_cannot_count(made: tuple[Any, Any]) -> None:
    env, params = made
    with pytest.raises(ConfigError, match=r"FiveTuple\(EpisodeStatistics\(env\)\)"):
        EpisodeStatistics(FiveTuple(env))
    _, state = env.reset(jax.random.key(0), params)
    with pytest.raises(EnvStateError, match="EnvState, expected a StatisticsState"):
        EpisodeStatistics(env).step(jax.random.key(0), state, jnp.zeros(7), params)


def test_states_of_other_environments_are_refused(made: tuple[Any, Any]) -> None:
    env, params = made
    other, other_params = fraxenv.make("UR10Reach-v0", **FAST)
    _, foreign = other.reset(jax.random.key(0), other_params)
    with pytest.raises(EnvStateError, match=r"state\.q has shape \(6,\), expected \(7,\)"):
        env.step(jax.random.key(0), foreign, jnp.zeros(7), params)
    statistics = EpisodeStatistics(env)
    _, foreign = EpisodeStatistics(other).reset(jax.random.key(0), other_params)
    with pytest.raises(EnvStateError, match="another environment's"):
        statistics.step(jax.random.key(0), foreign, jnp.zeros(7), params)
    single = GymnasiumEnv(ID, **FAST)
    single.reset(seed=0)
    before = single.state
    with pytest.raises(EnvStateError, match="another environment's"):
        single.state = other.reset(jax.random.key(0), other_params)[1]
    assert single.state is before


# --- Gymnasium's wrappers ------------------------------------------------------------------------


def test_single_wrappers() -> None:
    env: Any = gym.make(f"fraxenv/{ID}", max_episode_steps=STEPS, **FAST)
    env = gym.wrappers.NormalizeReward(gym.wrappers.NormalizeObservation(env))
    zero, one = np.zeros(7, np.float32), np.ones(7, np.float32)
    env = gym.wrappers.TimeAwareObservation(gym.wrappers.RescaleAction(env, zero, one))
    env = gym.wrappers.FrameStackObservation(gym.wrappers.ClipAction(env), 2)
    obs, _ = env.reset(seed=0)
    assert obs.shape == env.observation_space.shape == (2, 31)
    for _ in range(STEPS):
        obs, reward, _, truncated, _ = env.step(np.full(7, 0.5, np.float32))
    assert truncated
    assert np.isfinite(reward)
    assert np.all(np.isfinite(obs))


def test_vector_wrappers() -> None:
    def make() -> Any:
        return GymnasiumVectorEnv(ID, 2, max_episode_steps=STEPS, **FAST)

    envs = vector_wrappers.RecordEpisodeStatistics(make())
    envs = vector_wrappers.ClipAction(vector_wrappers.RescaleAction(envs, 0.0, 1.0))
    envs = vector_wrappers.NormalizeReward(vector_wrappers.NormalizeObservation(envs))
    first, _ = envs.reset(seed=0)
    for _ in range(STEPS):
        obs, reward, _, truncated, info = envs.step(np.full((2, 7), 0.75))
    assert truncated.all()
    assert info["episode"]["l"].tolist() == [STEPS] * 2
    assert first.shape == obs.shape == (2, 30)
    assert np.all(np.isfinite(reward))
    plain = make()
    plain.reset(seed=0)
    for _ in range(STEPS):
        raw, *_ = plain.step(np.full((2, 7), 0.5))  # what 0.75 of [0, 1] is
    assert envs.unwrapped._obs is not None
    np.testing.assert_allclose(np.asarray(envs.unwrapped._obs), raw, atol=1e-5)
    low, high = np.full(30, -1.0, np.float32), np.full(30, 1.0, np.float32)
    scaled = vector_wrappers.RescaleObservation(make(), low, high)
    np.testing.assert_allclose(scaled.reset(seed=0)[0], make().reset(seed=0)[0] / 10.0, atol=1e-6)


# --- Other libraries -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("brax", "BraxEnv", "brax"),
        ("brax", "wrap_for_brax", "brax"),
        ("stable_baselines3", "StableBaselinesVecEnv", "sb3"),
    ],
)
def test_without_the_library_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str, name: str, extra: str
) -> None:
    import fraxenv.wrappers

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"fraxenv.wrappers.{package}", raising=False)
    with pytest.raises(MissingExtraError, match=rf'pip install "fraxenv\[{extra}\]"'):
        getattr(fraxenv.wrappers, name)


def test_import_loads_no_other_library() -> None:
    code = """
import sys
import fraxenv, fraxenv.wrappers
loaded = {"jax", "gymnasium", "gymnax"} & set(sys.modules)
assert not loaded, loaded
from fraxenv.wrappers import *
loaded = {"brax", "stable_baselines3", "torch"} & set(sys.modules)
assert not loaded, loaded
try:
    fraxenv.wrappers.BraxEmv
except AttributeError as error:
    assert "BraxEmv" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
