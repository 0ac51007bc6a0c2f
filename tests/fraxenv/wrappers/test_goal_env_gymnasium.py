"""Goal environments, and composed ones, through Gymnasium's two interfaces."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as vector_wrappers
from numpy.typing import NDArray
from support import assert_alike, with_slow

import fraxenv
from fraxenv.errors import ArrayError, ConfigError, EnvStateError, UnknownNameError
from fraxenv.wrappers import GymnasiumEnv, GymnasiumVectorEnv

ID = "PandaReach-v0"
NAME = f"fraxenv/{ID}"
FAST: dict[str, Any] = {"control_hz": 100, "physics_hz": 100, "action": "joint_velocity"}
STEPS = 3
NUM_ENVS = 3
KEYS = ["achieved_goal", "desired_goal", "observation"]


def single(**options: Any) -> GymnasiumEnv:
    defaults = {"goal_env": True, "max_steps_in_episode": STEPS, **FAST}
    return GymnasiumEnv(ID, **{**defaults, **options})


def batch(mode: AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any) -> GymnasiumVectorEnv:
    defaults = {"num_envs": NUM_ENVS, "goal_env": True, "max_episode_steps": STEPS, **FAST}
    return GymnasiumVectorEnv(ID, autoreset_mode=mode, **{**defaults, **options})


def actions(count: int, num_envs: int | None = None) -> NDArray[np.float32]:
    shape = (count, 7) if num_envs is None else (count, num_envs, 7)
    return np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)


def goals(count: int, size: int = 3) -> list[NDArray[np.float32]]:
    """Pairs of goals that are near each other as often as not."""
    rng = np.random.default_rng(1)
    achieved = rng.uniform(-1.0, 1.0, (count, size)).astype(np.float32)
    near = 0.012 * rng.standard_normal((count, size))
    return [achieved, (achieved + near).astype(np.float32)]


def row(tree: Any, i: int) -> Any:
    return {name: x[i] for name, x in tree.items()}


# --- One environment ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "options"),
    [
        (ID, {}),
        pytest.param("PandaReachPose-v0", {"goal_reward": "dense"}, marks=pytest.mark.slow),
    ],
)
def test_gymnasiums_checker_is_content(id: str, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(
            f"fraxenv/{id}",
            **{**FAST, "goal_env": True, "render_mode": "rgb_array", **options},
            width=32,
            height=24,
        )
        check_env(env.unwrapped)
        env.reset(seed=0)
        obs, *_ = env.step(env.action_space.sample())  # through the passive checker
        assert obs in env.observation_space
        env.close()


def test_spaces_are_dicts_of_boxes() -> None:
    one, many = single(), batch()
    for space, lead in ((one.observation_space, ()), (many.observation_space, (NUM_ENVS,))):
        assert isinstance(space, gym.spaces.Dict)
        shapes = {name: box.shape for name, box in space.items()}
        expected = {"observation": (24,), "achieved_goal": (3,), "desired_goal": (3,)}
        assert shapes == {name: (*lead, *shape) for name, shape in expected.items()}
        assert {box.dtype for box in space.values()} == {np.dtype(np.float32)}
    assert many.single_observation_space == one.observation_space


@pytest.mark.parametrize("reward", with_slow(["sparse", "dense"], "dense"))
def test_reward_is_that_of_compute_reward(reward: str) -> None:
    """To the last bit, alone and among others; and what the environment says itself."""
    env = single(goal_reward=reward)
    rewards, seen = [], []
    obs, _ = env.reset(seed=0)
    for action in actions(STEPS):
        obs, own, _, _, info = env.step(action)
        assert type(own) is float
        assert own == env.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
        assert info["is_success"] is info["success"]
        rewards.append(own)
        seen.append(obs)
    achieved, desired = (np.stack([o[k] for o in seen]) for k in KEYS[:2])
    np.testing.assert_array_equal(env.compute_reward(achieved, desired, [{}] * STEPS), rewards)
    ours = env.environment.compute_reward(achieved, desired)  # type: ignore[attr-defined]
    np.testing.assert_allclose(rewards, ours, rtol=1e-5)


@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_compute_reward_of_batches(reward: str) -> None:
    env = single(goal_reward=reward)
    achieved, desired = goals(700)
    many = env.compute_reward(achieved, desired, None)
    assert (type(many), many.shape, many.dtype) == (np.ndarray, (700,), np.float64)
    one = [env.compute_reward(a, d) for a, d in zip(achieved, desired, strict=True)]
    assert {type(r) for r in one} == {float}
    np.testing.assert_array_equal(many, one)
    near = np.linalg.norm(achieved.astype(float) - desired, axis=1) / 0.02
    clear = np.abs(near - 1.0) > 1e-4
    expected = np.where(near < 1.0, 0.0, -1.0) if reward == "sparse" else -near
    np.testing.assert_allclose(many[clear], expected[clear], rtol=1e-4)
    assert 0.2 < np.mean(near < 1.0) < 0.8
    square = env.compute_reward(achieved.reshape(35, 20, 3), desired.reshape(35, 20, 3))
    np.testing.assert_array_equal(square, many.reshape(35, 20))
    to_one = env.compute_reward(achieved, desired[0])
    np.testing.assert_array_equal(to_one, [env.compute_reward(a, desired[0]) for a in achieved])
    np.testing.assert_array_equal(env.compute_reward(achieved.tolist(), desired.tolist()), many)
    assert env.compute_reward(achieved[:0], desired[:0]).shape == (0,)


def test_wrong_goals_are_refused() -> None:
    env = single()
    good = np.zeros((4, 3))
    for achieved, desired, parts in [
        (np.zeros(2), np.zeros(3), ["achieved_goal of shape (2,)", "expected (..., 3)", "Pass"]),
        (good, np.zeros((4, 1)), ["desired_goal of shape (4, 1)", "expected (..., 3)"]),
        (good, np.zeros((5, 3)), ["(4, 3)", "(5, 3)", "expected as many", "belong together"]),
        (good, np.full((4, 3), "a"), ["dtype <U1", "numbers"]),
        ([[0.0], [0.0, 1.0]], good, ["achieved_goal=[[0.0], [0.0, 1.0]]", "NumPy array"]),
        (0.0, good, ["achieved_goal of shape ()"]),
    ]:
        with pytest.raises(ArrayError) as caught:
            env.compute_reward(achieved, desired)
        for part in (NAME, "compute_reward()", *parts):
            assert part in str(caught.value)


def test_other_environments_have_no_compute_reward() -> None:
    """Stable-Baselines3 takes every environment that has one for a goal environment."""
    for env in (single(goal_env=False), batch(goal_env=False)):
        assert not hasattr(env, "compute_reward")
        with pytest.raises(AttributeError, match="goal_env=True"):
            env.compute_reward(np.zeros(3), np.zeros(3))


def test_arrays_are_fresh() -> None:
    env, twin = single(), single()
    (obs, _), (same, _) = env.reset(seed=0), twin.reset(seed=0)
    for action in actions(2):
        for x in obs.values():
            assert x.flags.writeable
            x[...] = 7.0
        (obs, *rest), (same, *others) = env.step(action), twin.step(action)
        for name in KEYS:
            np.testing.assert_array_equal(obs[name], same[name])
        assert rest[0] == others[0]


def test_copies_and_pickles_go_on_alike() -> None:
    env = single()
    env.reset(seed=0)
    expected = copy.deepcopy(env).step(actions(1)[0])
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        obs, reward, *_ = other.step(actions(1)[0])
        np.testing.assert_array_equal(obs["observation"], expected[0]["observation"])
        assert reward == expected[1]


def test_gymnasiums_wrappers() -> None:
    env: Any = gym.make(NAME, goal_env=True, max_episode_steps=STEPS, **FAST)
    flat = gym.wrappers.FlattenObservation(gym.wrappers.RecordEpisodeStatistics(env))
    assert flat.observation_space.shape == (30,)
    flat.reset(seed=0)
    total = 0.0
    for action in actions(STEPS):
        obs, reward, _, truncated, info = flat.step(action)
        assert (obs.shape, obs.dtype) == ((30,), np.float32)
        total += reward
    assert truncated
    assert (info["episode"]["l"], info["episode"]["r"]) == (STEPS, pytest.approx(total))
    assert flat.get_wrapper_attr("compute_reward")(np.zeros(3), np.zeros(3)) == 0.0
    only = gym.wrappers.FilterObservation(gym.make(NAME, goal_env=True, **FAST), ["achieved_goal"])
    assert list(only.reset(seed=0)[0]) == ["achieved_goal"]


# --- A batch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", with_slow(AutoresetMode, AutoresetMode.DISABLED))
def test_behaves_as_sync_vector_env(mode: AutoresetMode) -> None:
    ours, sync = batch(mode), SyncVectorEnv([single] * NUM_ENVS, autoreset_mode=mode)
    both: tuple[Any, Any] = (ours, sync)
    assert ours.observation_space == sync.observation_space
    assert_alike(*[e.reset(seed=3) for e in both])
    ends = 0
    for t, action in enumerate(actions(2 * STEPS + 2, NUM_ENVS)):
        if t == 1:  # one of them diverges
            ours.state = ours.state.replace(v=ours.state.v.at[1].add(1e20))  # type: ignore[union-attr]
            one: Any = sync.envs[1]
            one.state = one.state.replace(v=one.state.v + 1e20)
        steps = [e.step(action.copy()) for e in both]
        assert_alike(*steps)
        _, _, terminated, truncated, _ = steps[0]
        over = terminated | truncated
        ends += over.sum()
        if mode == AutoresetMode.DISABLED and over.any():
            assert_alike(*[e.reset(options={"reset_mask": over.copy()}) for e in both])
    assert ends >= 6


def test_final_obs_are_those_of_the_episode_that_is_over() -> None:
    envs, on = batch(AutoresetMode.SAME_STEP), batch(AutoresetMode.NEXT_STEP)
    envs.reset(seed=0)
    on.reset(seed=0)
    for action in actions(STEPS, NUM_ENVS):
        obs, reward, _, truncated, info = envs.step(action)
        last, *rest = on.step(action)
    assert truncated.all()
    np.testing.assert_array_equal(reward, rest[0])
    begun, *_ = on.step(action)
    final = info["final_obs"]
    for i in range(NUM_ENVS):
        for name in KEYS:
            np.testing.assert_array_equal(final[i][name], last[name][i])
            np.testing.assert_array_equal(obs[name][i], begun[name][i])
            assert not np.array_equal(obs[name][i], last[name][i])
        # What SAC with hindsight bootstraps from and rewards.
        assert reward[i] == envs.compute_reward(final[i]["achieved_goal"], final[i]["desired_goal"])


def test_rewards_of_a_batch_are_those_of_compute_reward() -> None:
    envs = batch(goal_reward="dense", num_envs=2)
    envs.reset(seed=0)
    for action in actions(STEPS - 1, 2):
        obs, reward, *_, info = envs.step(action)
        alone = [envs.compute_reward(*(obs[k][i] for k in KEYS[:2])) for i in range(2)]
        np.testing.assert_array_equal(reward, alone)
        np.testing.assert_array_equal(info["is_success"], info["success"])
        assert reward.dtype == np.float64


def test_vector_wrappers() -> None:
    envs = vector_wrappers.FlattenObservation(vector_wrappers.RecordEpisodeStatistics(batch()))
    wrapped = vector_wrappers.NormalizeObservation(envs)
    obs, _ = wrapped.reset(seed=0)
    for action in actions(STEPS, NUM_ENVS):
        obs, *_, info = wrapped.step(action)
    assert obs.shape == (NUM_ENVS, 30)
    np.testing.assert_array_equal(info["episode"]["l"], [STEPS] * NUM_ENVS)


def test_out_of_order_and_closed() -> None:
    envs = batch()
    with pytest.raises(EnvStateError, match="before reset"):
        envs.step(np.zeros((NUM_ENVS, 7)))
    envs.reset()
    envs.close()
    for call in (lambda: envs.step(np.zeros((NUM_ENVS, 7))), envs.reset):
        with pytest.raises(EnvStateError, match="after close"):
            call()


# --- Composed environments ------------------------------------------------------------------------


def test_composed_environments() -> None:
    assert "Custom-v0" not in fraxenv.list_envs()
    options = {"robot": "ur10", "task": "track", "action": "joint_velocity", "control_hz": 100}
    env = gym.make("fraxenv/Custom-v0", **options)
    envs = gym.make_vec("fraxenv/Custom-v0", num_envs=2, **options)
    assert isinstance(env.unwrapped, GymnasiumEnv)
    assert isinstance(envs, GymnasiumVectorEnv)
    assert env.unwrapped.environment.name == "UR10Track"
    assert env.spec is not None
    assert env.spec.max_episode_steps == 150
    assert envs.environment.default_params.max_steps_in_episode == 150
    assert env.unwrapped.environment == GymnasiumEnv(None, time_limit=False, **options).environment
    one, _ = env.reset(seed=0)
    many, _ = envs.reset(seed=0)
    assert env.action_space.shape == (6,)
    np.testing.assert_allclose(one, many[0], atol=1e-5)
    assert gym.make("fraxenv/Custom-v0", max_episode_steps=7, **options).spec.max_episode_steps == 7  # type: ignore[union-attr]


@pytest.mark.slow
def test_composed_goal_environments() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make("fraxenv/Custom-v0", robot="iiwa14", task="reach", goal_env=True, **FAST)
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({}, ConfigError, "robot=None, expected"),
        ({"robot": "ur10"}, ConfigError, "has no task.*task="),
        ({"robot": "ur11", "task": "track"}, UnknownNameError, "Did you mean 'ur10'"),
        ({"robot": "ur10", "task": "tracking"}, UnknownNameError, "'track'"),
        (
            {"robot": "ur10", "task": "track", "max_steps_in_episode": 200},
            ConfigError,
            "Custom-v0.*max_episode_steps=200",
        ),
        ({"robot": "ur10", "task": "track", "goal_reward": "dense"}, ConfigError, "goal_env=True"),
    ],
)
@pytest.mark.parametrize("make", [gym.make, gym.make_vec])
def test_what_cannot_be_composed(
    make: Any, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make("fraxenv/Custom-v0", **options)


def test_resets_come_from_the_pool() -> None:
    envs = batch(reset_pool=4, goal_env=False)
    starts = []
    for seed in (5, None, None, None):
        envs.reset(seed=seed)
        assert envs.state is not None
        starts.append(np.asarray(envs.state.q))
    assert 1 < len(np.unique(np.concatenate(starts), axis=0)) <= 4
    for action in actions(STEPS + 1, NUM_ENVS):
        envs.step(action)
    assert envs.state is not None
    assert {tuple(q) for q in np.asarray(envs.state.q)} <= {
        tuple(q) for q in envs.environment.default_params.reset_pool[1].q
    }


@pytest.mark.slow
def test_randomisation_follows_the_seed() -> None:
    options: dict[str, Any] = {
        "randomisation": {
            "observation_noise": 0.01,
            "action_delay": (0.0, 0.04),
        },
    }
    envs, one = batch(**options), single(**options)
    many, alone = envs.reset(seed=5)[0], one.reset(seed=5)[0]
    for action in actions(STEPS, NUM_ENVS):
        for name in KEYS:
            np.testing.assert_allclose(alone[name], many[name][0], atol=1e-4)
        many, alone = envs.step(action)[0], one.step(action[0])[0]
    twin = batch(**options)
    first = twin.reset(seed=5)[0]["observation"]
    np.testing.assert_array_equal(first, envs.reset(seed=5)[0]["observation"])
    assert len(np.unique(first, axis=0)) == NUM_ENVS
    assert not np.array_equal(first, twin.reset()[0]["observation"])
