"""The Gymnasium environments against Gymnasium's own checkers, wrappers and vector environment.

Physics does not matter here, so that most environments step it at 100 Hz only.
"""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as vector_wrappers
from numpy.typing import NDArray
from support import assert_alike

import fraxenv
from fraxenv.errors import ActionError, ConfigError, EnvStateError, UnknownNameError
from fraxenv.making.registration import register_envs
from fraxenv.wrappers import GymnasiumEnv, GymnasiumVectorEnv

ID = "PandaReach-v0"
NAME = f"fraxenv/{ID}"
RATES = {"control_hz": 100, "physics_hz": 100}
FAST: dict[str, Any] = {"action": "joint_velocity", **RATES}
STEPS = 4
NUM_ENVS = 3

Step = tuple[NDArray[Any], Any, Any, Any, dict[str, Any]]


def single(**options: Any) -> GymnasiumEnv:
    return GymnasiumEnv(ID, **{"max_steps_in_episode": STEPS, **FAST, **options})


def batch(mode: AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any) -> GymnasiumVectorEnv:
    options = {"num_envs": NUM_ENVS, "max_episode_steps": STEPS, **FAST, **options}
    return GymnasiumVectorEnv(ID, autoreset_mode=mode, **options)


@pytest.fixture
def env() -> Iterator[GymnasiumEnv]:
    env = single(render_mode="rgb_array", width=32, height=24)
    yield env
    env.close()


@pytest.fixture
def envs() -> Iterator[GymnasiumVectorEnv]:
    envs = batch(render_mode="rgb_array", width=32, height=24)
    yield envs
    envs.close()


@pytest.fixture
def compilations(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What JAX has compiled since the test began."""
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        yield lambda: [
            r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling")
        ]


def actions(count: int, seed: int = 0, num_envs: int | None = None) -> NDArray[np.float32]:
    shape = (count, 7) if num_envs is None else (count, num_envs, 7)
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape).astype(np.float32)


def assert_says(caught: pytest.ExceptionInfo[Exception], *parts: str) -> None:
    for part in parts:
        assert part in str(caught.value)


def assert_equal(one: Any, other: Any) -> None:
    """Equal bit for bit, with types, shapes and dtypes."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, tuple | list):
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    elif isinstance(one, np.ndarray):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one.tobytes() == other.tobytes()
    else:
        assert one == other


# --- Registration ---------------------------------------------------------------------------------


def test_every_id_is_registered_with_both_entry_points() -> None:
    for id in fraxenv.list_envs():
        spec = gym.spec(f"fraxenv/{id}")
        assert spec.entry_point == "fraxenv.wrappers.gymnasium:GymnasiumEnv"
        assert spec.vector_entry_point == "fraxenv.wrappers.gymnasium:GymnasiumVectorEnv"
        assert spec.max_episode_steps == 150


def test_registering_again_changes_nothing() -> None:
    before = dict(gym.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Gymnasium warns of what it overrides
        register_envs()
    assert all(gym.registry[name] is spec for name, spec in before.items())


def test_registration_leaves_others_alone() -> None:
    mine = gym.registry.pop(NAME)
    theirs = gym.envs.registration.EnvSpec(NAME, entry_point="somewhere:Else")
    try:
        gym.registry[NAME] = theirs
        register_envs()
        assert gym.registry[NAME] is theirs
    finally:
        gym.registry[NAME] = mine


def test_make_imports_the_module() -> None:
    code = f"""
import gymnasium
assert "{NAME}" not in gymnasium.registry
env = gymnasium.make("fraxenv:{NAME}")
assert env.observation_space.shape == (29,), env.observation_space
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# --- One environment ------------------------------------------------------------------------------


CHECKED = ("PandaReach-v0", "PandaPush-v0", "A1Trot-v0")


@pytest.mark.parametrize(
    "id",
    [pytest.param(i, marks=() if i in CHECKED else pytest.mark.slow) for i in fraxenv.list_envs()],
)
def test_gymnasiums_checker_is_content(id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(f"fraxenv/{id}", render_mode="rgb_array", width=32, height=24, **RATES)
        check_env(env.unwrapped, skip_render_check=False, skip_close_check=False)
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(3):
            env.step(env.action_space.sample())  # through the passive checker
        env.close()


def test_spaces_are_bounded_boxes_of_the_environments_dtype(env: GymnasiumEnv) -> None:
    for space, shape, bound in ((env.action_space, (7,), 1), (env.observation_space, (30,), 10)):
        assert isinstance(space, gym.spaces.Box)
        assert (space.shape, space.dtype) == (shape, np.float32)
        assert np.all(space.high == bound)
        assert np.all(space.low == -bound)


def test_metadata_tells_the_policy_rate() -> None:
    slow = single(policy_hz=25)
    assert slow.metadata["render_fps"] == 25
    assert single().metadata["render_fps"] == GymnasiumEnv.metadata["render_fps"] == 50
    assert slow.metadata["render_modes"] == ["rgb_array", "human"]


def test_values_are_plain_and_arrays_fresh(env: GymnasiumEnv) -> None:
    def arrays(x: Any) -> list[NDArray[Any]]:
        if isinstance(x, dict):
            return [a for value in x.values() for a in arrays(value)]
        return [x] if isinstance(x, np.ndarray) else []

    obs, info = env.reset(seed=0)
    assert info == {}
    action = np.zeros(7, np.float32)
    seen = [obs, action]
    for _ in range(2):
        obs, reward, terminated, truncated, info = env.step(action)
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert not {"terminated", "truncated", "final_observation"} & set(info)
        assert (type(info["success"]), type(info["position_error"])) == (bool, float)
        for part in ("reward_terms", "safety", "controller"):
            assert info[part]
            assert {type(v) for v in info[part].values()} <= {float, int, bool, np.ndarray}
        for array in (obs, *arrays(info)):
            assert array.flags.writeable
            assert not any(np.shares_memory(array, other) for other in seen)
            array[...] = 7  # must not reach the environment
            seen.append(array)
    twin = single()
    twin.reset(seed=0)
    for _ in range(2):
        twin.step(np.zeros(7, np.float32))
    assert_equal(env.step(np.zeros(7)), twin.step(np.zeros(7)))


def test_step_is_the_environments_own(env: GymnasiumEnv) -> None:
    env.reset(seed=0)
    state, params = env.state, env.environment.default_params
    action = actions(1)[0]
    obs, reward, terminated, truncated, info = env.step(action)
    step = jax.jit(env.environment.step_env)(jax.random.key(0), state, action, params)
    np.testing.assert_allclose(obs, step[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(reward, step[2], rtol=1e-5)
    assert (terminated, truncated) == (bool(step[3]), False)
    np.testing.assert_allclose(info["controller"]["torque"], step[4]["controller"]["torque"], 1e-3)


def test_seed_decides_everything(env: GymnasiumEnv) -> None:
    def play(env: gym.Env[Any, Any], seed: int) -> list[Any]:
        trajectory: list[Any] = [env.reset(seed=seed)]
        for _ in range(2):
            trajectory += [env.step(action) for action in actions(STEPS)]
            trajectory.append(env.reset())
        return trajectory

    one = play(env, 3)
    assert_equal(one, play(env, 3))
    assert_equal(one, play(single(), 3))
    assert not np.array_equal(one[0][0], one[-1][0])  # a later episode is another one
    assert not np.array_equal(one[0][0], play(env, 4)[0][0])


def test_episodes_come_from_np_random(env: GymnasiumEnv) -> None:
    env.np_random = np.random.default_rng(5)
    first, _ = env.reset()
    second, _ = env.reset()
    env.np_random = np.random.default_rng(5)
    assert_equal(first, env.reset()[0])
    assert not np.array_equal(first, second)


def test_compiles_once(
    compilations: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["fraxenv.kernels.direct"]
    called_by_python: list[str] = []
    usual = module._compiled  # type: ignore[attr-defined]

    def compiled(fn: Any, *given: Any) -> Any:
        called_by_python.append(fn.__name__)
        return usual(fn, *given)

    monkeypatch.setattr(module, "_compiled", compiled)
    env = single(max_steps_in_episode=5)  # one that no other test has made
    before = len(compilations())
    for seed, dtype in ((0, np.float32), (None, np.float64), (1, np.float16)):
        env.reset(seed=seed)
        for action in actions(5):
            env.step(action.astype(dtype))
    other = single(max_steps_in_episode=5)
    other.reset()
    other.step([0.0] * 7)
    assert [c.split()[1] for c in compilations()[before:]] == ["jit(reset)"]
    assert called_by_python == ["step_packed"]


def test_copies_and_pickles_go_on_alike(
    env: GymnasiumEnv, compilations: Callable[[], list[str]]
) -> None:
    env.reset(seed=0)
    env.step(actions(1)[0])

    def compiled() -> int:
        return sum("jit(step)" in c or "jit(reset)" in c for c in compilations())

    before = compiled()
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert_equal(other.step(actions(1)[0])[0], copy.deepcopy(env).step(actions(1)[0])[0])
        assert_equal(other.reset(), copy.deepcopy(env).reset())
    assert compiled() == before


def test_actions_out_of_range_are_clipped(env: GymnasiumEnv) -> None:
    env.reset(seed=0)
    limit = env.step(np.array([1.0, -1.0, 0, 0, 0, 0, 0]))
    for action in (
        [5.0, -5.0, 0, 0, 0, 0, 0],
        np.array([1e300, -1e300, 0, 0, 0, 0, 0], np.float64),
    ):
        env.reset(seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_equal(env.step(action), limit)


BAD_ACTIONS: list[tuple[Any, Sequence[str]]] = [
    (
        np.zeros(3),
        ["shape (3,)", "expected (7,)", "v_panda_joint1, v_panda_joint2", "Pass one number"],
    ),
    (np.zeros((1, 7)), ["shape (1, 7)", "expected (7,)"]),
    (0.5, ["shape ()", "expected (7,)"]),
    ([[0.0], [0.0, 1.0]], ["[[0.0], [0.0, 1.0]]", "expected an array", "NumPy array"]),
    (np.zeros(7, int), ["dtype int64", "expected a floating-point", "astype(np.float32)"]),
    (np.zeros(7, bool), ["dtype bool", "expected a floating-point"]),
    (np.array(["a"] * 7), ["dtype <U1", "expected a floating-point"]),
    (
        np.array([0, 0, np.nan, 0, 0, np.inf, 0]),
        ["not finite at [2], [5]", "nan, inf", "Check what"],
    ),
]


@pytest.mark.parametrize(("action", "parts"), BAD_ACTIONS)
def test_bad_actions_are_refused(env: GymnasiumEnv, action: Any, parts: Sequence[str]) -> None:
    env.reset(seed=0)
    with pytest.raises(ActionError) as caught:
        env.step(action)
    assert_says(caught, NAME, *parts)
    twin = single()
    twin.reset(seed=0)
    assert_equal(env.step(np.zeros(7)), twin.step(np.zeros(7)))  # nothing had happened


def test_calls_out_of_order_are_refused(env: GymnasiumEnv) -> None:
    for call, name in ((lambda: env.step(np.zeros(7)), "step"), (env.render, "render")):
        with pytest.raises(EnvStateError) as caught:
            call()
        assert_says(caught, NAME, f"{name}() was called before reset()", "Call reset() first")
    env.reset()
    for _ in range(STEPS):
        _, _, terminated, truncated, _ = env.step(np.zeros(7))
    assert (terminated, truncated) == (False, True)
    with pytest.raises(EnvStateError) as caught:
        env.step(np.zeros(7))
    assert_says(caught, NAME, "step() was called after the end", "Call reset() first")
    env.reset()
    env.step(np.zeros(7))
    env.close()
    env.close()
    for closed in (lambda: env.step(np.zeros(7)), env.reset, env.render):
        with pytest.raises(EnvStateError) as caught:
            closed()
        assert_says(caught, NAME, "() was called after close()", "Make a new one")


def test_diverged_environment_terminates(env: GymnasiumEnv) -> None:
    env.reset(seed=0)
    assert env.state is not None
    env.state = env.state.replace(v=env.state.v + 1e20)
    obs, reward, terminated, truncated, info = env.step(np.zeros(7))
    assert (terminated, truncated, reward, info["diverged"]) == (True, False, 0.0, True)
    assert obs in env.observation_space
    with pytest.raises(EnvStateError):
        env.step(np.zeros(7))
    env.reset()
    assert env.step(np.zeros(7))[2] is False


def test_bad_arguments_are_refused(env: GymnasiumEnv) -> None:
    with pytest.raises(ConfigError) as caught:
        single(render_mode="ansi")
    assert_says(caught, NAME, "'ansi'", "expected one of 'rgb_array'")
    for argument in ("width", "height"):
        for value in (0, -3, 1.5, True):
            with pytest.raises(ConfigError) as caught:
                single(**{argument: value})
            assert_says(caught, NAME, f"{argument}={value!r}", "expected a whole number >= 1")
    with pytest.raises(UnknownNameError, match="Did you mean 'policy_hz'"):
        single(policy_hx=3)
    with pytest.raises(UnknownNameError, match="PandaReach-v0"):
        GymnasiumEnv("PandaReech-v0")
    with pytest.raises(UnknownNameError) as caught_option:
        env.reset(options={"goal": 1})
    assert_says(caught_option, f"option 'goal' of reset() of {NAME}", "Known: none")


def test_render(env: GymnasiumEnv) -> None:
    env.reset(seed=0)
    picture = env.render()
    assert picture is not None
    assert (picture.shape, picture.dtype) == ((24, 32, 3), np.uint8)
    assert_equal(picture, env.render())
    env.step(np.ones(7))
    assert not np.array_equal(picture, env.render())


@pytest.mark.parametrize("make", [single, batch])
def test_render_without_a_mode_warns(make: Callable[[], Any]) -> None:
    env = make()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match='render_mode="rgb_array"'):
        assert env.render() is None


# --- gymnasium.make -------------------------------------------------------------------------------


def length(env: gym.Env[Any, Any], at_most: int = 200) -> int:
    env.reset(seed=0)
    for step in range(1, at_most + 1):
        _, _, terminated, truncated, _ = env.step(np.zeros(7, np.float32))
        assert not terminated
        if truncated:
            return step
    return -1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 150),
        ({"max_episode_steps": 3}, 3),
        ({"max_episode_steps": 170}, 170),  # longer than the registered one
        ({"max_steps_in_episode": STEPS}, STEPS),
        ({"max_episode_steps": -1}, -1),  # Gymnasium's way to say: never
    ],
)
def test_make_limits_episodes(options: dict[str, Any], expected: int) -> None:
    env = gym.make(NAME, **FAST, **options)
    assert length(env) == expected


def test_limit_that_gymnasium_would_cut_short_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        gym.make(NAME, max_steps_in_episode=151)
    assert_says(caught, ID, "max_steps_in_episode=151", "after", "150", "max_episode_steps=151")
    with pytest.raises(ConfigError, match="max_episode_steps=151"):
        gym.make_vec(NAME, max_steps_in_episode=151)


@pytest.mark.parametrize(("options", "expected"), [({}, 150), ({"max_steps_in_episode": 160}, 160)])
def test_made_directly_it_limits_episodes_itself(options: dict[str, int], expected: int) -> None:
    assert GymnasiumEnv(ID, **options).environment.default_params.max_steps_in_episode == expected
    env: Any = gym.make(NAME, max_episode_steps=-1, time_limit=True, **options).unwrapped
    assert env.environment.default_params.max_steps_in_episode == expected


def test_make_collects_frames() -> None:
    env = gym.make(NAME, render_mode="rgb_array_list", width=32, height=24, **FAST)
    env.reset(seed=0)
    env.step(np.zeros(7, np.float32))
    assert [f.shape for f in env.render()] == [(24, 32, 3)] * 2  # type: ignore[union-attr]


def test_record_video(tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    env: gym.Env[Any, Any] = gym.make(
        NAME, render_mode="rgb_array", width=32, height=24, max_episode_steps=STEPS, **FAST
    )
    env = gym.wrappers.RecordVideo(env, str(tmp_path / "one"), episode_trigger=lambda _: True)
    length(env)
    env.close()
    assert [p.stat().st_size > 0 for p in (tmp_path / "one").glob("*.mp4")] == [True]

    envs: gym.vector.VectorEnv[Any, Any, Any] = batch(render_mode="rgb_array", width=32, height=24)
    envs = vector_wrappers.RecordVideo(envs, str(tmp_path / "many"), video_length=2)
    envs.reset(seed=0)
    for action in actions(2, num_envs=NUM_ENVS):
        envs.step(action)
    envs.close()
    assert [p.stat().st_size > 0 for p in (tmp_path / "many").glob("*.mp4")] == [True]


# --- A batch of environments ----------------------------------------------------------------------


def test_make_vec_passes_its_arguments() -> None:
    envs = gym.make_vec(
        f"fraxenv:{NAME}",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        max_episode_steps=170,
        autoreset_mode=AutoresetMode.SAME_STEP,
        **FAST,
    )
    assert isinstance(envs, GymnasiumVectorEnv)
    assert envs.num_envs == 2
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert envs.environment.default_params.max_steps_in_episode == 170
    assert envs.environment.physics_hz == 100
    by_default = gym.make_vec(NAME)
    assert isinstance(by_default, GymnasiumVectorEnv)
    assert by_default.num_envs == 1
    assert by_default.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert by_default.environment.default_params.max_steps_in_episode == 150
    shorter = gym.make_vec(NAME, max_steps_in_episode=20)
    assert shorter.environment.default_params.max_steps_in_episode == 20  # type: ignore[attr-defined]
    without = GymnasiumVectorEnv(ID, time_limit=False)
    assert without.environment.default_params.max_steps_in_episode > 10**9


def test_make_vec_sync_agrees() -> None:
    envs = gym.make_vec(NAME, num_envs=2, vectorization_mode="sync", max_episode_steps=2, **FAST)
    envs.reset(seed=0)
    envs.step(envs.action_space.sample())
    assert envs.step(envs.action_space.sample())[3].all()


def test_batched_spaces_and_metadata(envs: GymnasiumVectorEnv) -> None:
    one = single()
    assert envs.single_action_space == one.action_space
    assert envs.single_observation_space == one.observation_space
    assert envs.action_space.shape == (NUM_ENVS, 7)
    assert envs.observation_space.shape == (NUM_ENVS, 30)
    assert envs.metadata["render_fps"] == 50
    assert batch(policy_hz=25).metadata["render_fps"] == 25
    assert GymnasiumVectorEnv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert batch("SameStep").metadata["autoreset_mode"] is AutoresetMode.SAME_STEP  # type: ignore[arg-type]


def disturb(envs: Any, i: int) -> None:
    """Have environment i diverge at the next step."""
    if isinstance(envs, SyncVectorEnv):
        one: Any = envs.envs[i]
        one.state = one.state.replace(v=one.state.v + 1e20)
    else:
        envs.state = envs.state.replace(v=envs.state.v.at[i].add(1e20))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_behaves_as_sync_vector_env(mode: AutoresetMode) -> None:
    """Episodes that end at different times, one by itself, one by divergence, and all at once."""
    ours = batch(mode)
    sync = SyncVectorEnv([single] * NUM_ENVS, autoreset_mode=mode)
    both: tuple[Any, Any] = (ours, sync)
    assert ours.metadata["autoreset_mode"] is sync.metadata["autoreset_mode"]

    def reset(**kwargs: Any) -> Any:
        # Gymnasium's takes the mask out of the caller's options.
        results = [e.reset(**copy.deepcopy(kwargs)) for e in both]
        assert_alike(*results)
        return results[0]

    seen = set()
    reset(seed=7)
    for t, action in enumerate(actions(18, num_envs=NUM_ENVS)):
        if t == 2:
            reset(options={"reset_mask": np.array([True, False, False])})
        if t == 6:
            for e in both:
                disturb(e, 1)
        steps: list[Step] = [e.step(action.copy()) for e in both]
        assert_alike(*steps)
        _, _, terminated, truncated, info = steps[0]
        over = terminated | truncated
        seen.add((over.any(), over.all(), terminated.any(), "success" in info))
        if mode == AutoresetMode.DISABLED and over.any():
            reset(options={"reset_mask": over})
        if t == 12:
            reset(seed=[5, 6, 7])
    expected = {(True, False, False, True), (True, False, True, True), (False, False, False, True)}
    expected.add((True, True, False, mode != AutoresetMode.SAME_STEP))
    assert expected <= seen


def test_next_step_autoreset() -> None:
    envs = batch(AutoresetMode.NEXT_STEP)
    first, info = envs.reset(seed=0)
    assert info == {}
    for t in range(1, STEPS + 1):
        obs, _, terminated, truncated, info = envs.step(np.zeros((NUM_ENVS, 7)))
        assert truncated.tolist() == [t == STEPS] * NUM_ENVS
        assert not terminated.any()
        assert info["_success"].all()
    last = obs
    obs, reward, terminated, truncated, info = envs.step(np.ones((NUM_ENVS, 7)))
    assert info == {}
    assert not np.any([terminated, truncated, reward])
    assert not np.any(np.all(np.isclose(obs, last), axis=1))
    assert not np.any(np.all(np.isclose(obs, first), axis=1))
    np.testing.assert_array_equal(obs[:, -7:], 0.0)  # no last action: the one given was ignored


def test_same_step_autoreset() -> None:
    envs, next_step = batch(AutoresetMode.SAME_STEP), batch(AutoresetMode.NEXT_STEP)
    envs.reset(seed=0)
    next_step.reset(seed=0)
    for action in actions(STEPS, num_envs=NUM_ENVS):
        obs, reward, _, truncated, info = envs.step(action)
        last = next_step.step(action)
    begun, *_ = next_step.step(action)
    assert truncated.all()
    np.testing.assert_array_equal(obs, begun)
    np.testing.assert_array_equal(np.stack(list(info["final_obs"])), last[0])
    np.testing.assert_array_equal(reward, last[1])
    assert_equal(info["final_info"], last[4])
    assert set(info) == {"final_obs", "_final_obs", "final_info", "_final_info"}
    assert info["_final_obs"].all()
    assert info["_final_info"].all()


def test_disabled_autoreset_wants_a_reset() -> None:
    envs = batch(AutoresetMode.DISABLED)
    envs.reset(seed=0)
    envs.step(np.zeros((NUM_ENVS, 7)))
    envs.step(np.zeros((NUM_ENVS, 7)))
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    for _ in range(2):
        obs, _, _, truncated, _ = envs.step(np.zeros((NUM_ENVS, 7)))
    assert truncated.tolist() == [True, False, True]
    with pytest.raises(EnvStateError) as caught:
        envs.step(np.zeros((NUM_ENVS, 7)))
    assert_says(caught, NAME, "environments 0, 2", "reset_mask", "DISABLED")
    options = {"reset_mask": truncated}
    after, info = envs.reset(options=options)
    assert options["reset_mask"] is truncated  # the caller's own
    assert info == {}
    np.testing.assert_array_equal(after[1], obs[1])
    assert not np.any(np.all(after[[0, 2]] == obs[[0, 2]], axis=1))
    assert envs.step(np.zeros((NUM_ENVS, 7)))[3].tolist() == [False] * 3
    assert envs.step(np.zeros((NUM_ENVS, 7)))[3].tolist() == [False, True, False]


def test_batch_seed_decides_everything(envs: GymnasiumVectorEnv) -> None:
    def play(envs: GymnasiumVectorEnv, seed: Any) -> list[Any]:
        steps = [envs.reset(seed=seed)]
        return steps + [envs.step(a) for a in actions(2 * STEPS, num_envs=NUM_ENVS)]

    one = play(envs, 11)
    assert_equal(one, play(envs, 11))
    assert_equal(one, play(batch(), 11))
    assert_equal(one, play(batch(), [11, 12, 13]))
    assert_equal(one, play(batch(), np.int64(11)))
    assert_equal(one, play(batch(), np.array([11, 12, 13])))
    assert not np.array_equal(one[0][0], play(envs, 12)[0][0])
    assert len(np.unique(one[0][0], axis=0)) == NUM_ENVS


def test_environment_of_a_batch_is_the_single_one_seeded_alike(envs: GymnasiumVectorEnv) -> None:
    many = [envs.reset(seed=[9, 4, 2])[0]] + [envs.reset()[0] for _ in range(2)]
    for i, seed in enumerate([9, 4, 2]):
        one = single()
        alone = [one.reset(seed=seed)[0]] + [one.reset()[0] for _ in range(2)]
        np.testing.assert_allclose(alone, [obs[i] for obs in many], rtol=1e-5, atol=1e-6)
    assert envs.np_random_seed == (9, 4, 2)
    dtypes = [[x.dtype for x in jax.tree.leaves(e.state)] for e in (envs, one)]
    assert dtypes[0] == dtypes[1]


def test_seed_none_goes_on(envs: GymnasiumVectorEnv) -> None:
    envs.reset(seed=0)
    on, _ = envs.reset()
    envs.reset(seed=0)
    some, _ = envs.reset(seed=[None, 77, None])
    np.testing.assert_array_equal(some[[0, 2]], on[[0, 2]])
    assert not np.array_equal(some[1], on[1])
    assert not np.array_equal(batch().reset()[0], batch().reset()[0])  # unseeded: entropy


def test_batch_values_are_fresh(envs: GymnasiumVectorEnv) -> None:
    twin = batch()
    for e in (envs, twin):
        e.reset(seed=0)
    for t, action in enumerate(actions(2 * STEPS, num_envs=NUM_ENVS)):
        returned = envs.step(action)
        expected = twin.step(action)
        assert_equal(returned, expected)
        assert returned[1].dtype == np.float64
        for array in [a for a in jax.tree.leaves(returned) if a.size]:
            assert array.flags.writeable, t
            array[...] = 1  # flags too: they must not set off an autoreset
    assert_equal(envs.reset(), twin.reset())


def test_batch_compiles_once(compilations: Callable[[], list[str]]) -> None:
    envs = batch(num_envs=2, max_episode_steps=6)
    before = len(compilations())
    for seed, dtype in ((0, np.float32), (None, np.float64), (1, np.float16)):
        envs.reset(seed=seed)
        for action in actions(8, num_envs=2):
            envs.step(action.astype(dtype))
    envs.reset(options={"reset_mask": np.array([True, False])})
    names = sorted(c.split()[1] for c in compilations()[before:])
    assert names == ["jit(reset_batch)", "jit(step)"]


BAD_BATCHES: list[tuple[Any, Sequence[str]]] = [
    (np.zeros(7), ["shape (7,)", "expected (3, 7)", "v_panda_joint1", "for each environment"]),
    (np.zeros((2, 7)), ["shape (2, 7)", "expected (3, 7)"]),
    (np.zeros((3, 7), int), ["dtype int64", "expected a floating-point"]),
    (np.full((3, 7), np.nan), ["not finite at [0, 0], [0, 1]", "(21 in all)", "Check what"]),
]


@pytest.mark.parametrize(("action", "parts"), BAD_BATCHES)
def test_bad_batches_are_refused(
    envs: GymnasiumVectorEnv, action: Any, parts: Sequence[str]
) -> None:
    envs.reset(seed=0)
    with pytest.raises(ActionError) as caught:
        envs.step(action)
    assert_says(caught, NAME, *parts)


def test_batch_calls_out_of_order_are_refused(envs: GymnasiumVectorEnv) -> None:
    zero = np.zeros((NUM_ENVS, 7))
    for call, name in ((lambda: envs.step(zero), "step"), (envs.render, "render")):
        with pytest.raises(EnvStateError) as caught:
            call()
        assert_says(caught, NAME, f"{name}() was called before reset()", "Call reset() first")
    with pytest.raises(EnvStateError) as caught:
        envs.reset(options={"reset_mask": np.array([True, False, False])})
    assert_says(caught, NAME, "leaves environments out", "Call reset() without reset_mask first")
    envs.reset(options={"reset_mask": np.ones(NUM_ENVS, bool)})
    envs.close()
    envs.close()
    assert envs.closed
    for closed in (lambda: envs.step(zero), envs.reset, envs.render):
        with pytest.raises(EnvStateError) as caught:
            closed()
        assert_says(caught, NAME, "() was called after close()", "Make a new one")


@pytest.mark.parametrize(
    ("mask", "given"),
    [
        ([True, False, False], "of type list"),
        (np.array([True]), "of shape (1,)"),
        (np.array([1, 0, 0]), "of shape (3,) and dtype int64"),
        (np.zeros(3, bool), "without a True"),
    ],
)
def test_bad_masks_are_refused(envs: GymnasiumVectorEnv, mask: Any, given: str) -> None:
    envs.reset()
    with pytest.raises(ConfigError) as caught:
        envs.reset(options={"reset_mask": mask})
    assert_says(caught, NAME, given, "expected a NumPy array of shape (3,) and dtype bool", "Pass")


@pytest.mark.parametrize("seed", [[1, 2], 1.5, [1, 2, 3, 4]])
def test_bad_seeds_are_refused(envs: GymnasiumVectorEnv, seed: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        envs.reset(seed=seed)
    assert_says(caught, NAME, f"seed={seed!r}", "expected None, an int, or 3 of these", "Pass one")


def test_bad_seed_changes_nothing(envs: GymnasiumVectorEnv) -> None:
    envs.reset(seed=0)
    on, _ = envs.reset()
    envs.reset(seed=0)
    with pytest.raises(gym.error.Error, match="greater or equal to zero"):
        envs.reset(seed=[5, 6, -1])
    assert_equal(envs.reset()[0], on)


@pytest.mark.parametrize(
    ("argument", "value", "parts"),
    [
        ("num_envs", 0, ["num_envs=0", "expected a whole number >= 1"]),
        ("num_envs", 2.0, ["num_envs=2.0"]),
        ("num_envs", True, ["num_envs=True"]),
        ("render_envs", 0, ["render_envs=0", ">= 1"]),
        ("max_episode_steps", 0, ["max_episode_steps=0", ">= 1"]),
        ("max_episode_steps", "9", ["max_episode_steps='9'", ">= 1"]),
        ("autoreset_mode", "later", ["'later'", "AutoresetMode.NEXT_STEP ('NextStep')"]),
        ("render_mode", "human", ["'human'", "expected one of 'rgb_array'"]),
    ],
)
def test_bad_batch_arguments_are_refused(argument: str, value: Any, parts: Sequence[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        GymnasiumVectorEnv(ID, **{argument: value})
    assert_says(caught, ID, *parts)


def test_unknown_batch_options_are_refused(envs: GymnasiumVectorEnv) -> None:
    with pytest.raises(UnknownNameError) as caught:
        envs.reset(options={"reset_musk": np.ones(NUM_ENVS, bool)})
    assert_says(caught, f"option 'reset_musk' of reset() of {NAME}", "Did you mean 'reset_mask'")


def test_batch_render_draws_the_first_ones() -> None:
    envs = batch(render_mode="rgb_array", render_envs=2, width=32, height=24)
    envs.reset(seed=[0, 1, 2])
    frames = envs.render()
    assert isinstance(frames, tuple)
    assert [(f.shape, f.dtype) for f in frames] == [((24, 32, 3), np.uint8)] * NUM_ENVS
    assert np.all(frames[2] == 255)
    for seed, frame in enumerate(frames[:2]):
        one = single(render_mode="rgb_array", width=32, height=24)
        one.reset(seed=seed)
        np.testing.assert_allclose(frame.astype(float), np.asarray(one.render(), float), atol=8)
    assert not np.array_equal(frames[0], frames[1])


# --- Gymnasium's own vector wrappers --------------------------------------------------------------


def test_vector_wrappers(envs: GymnasiumVectorEnv) -> None:
    statistics = vector_wrappers.RecordEpisodeStatistics(envs)
    wrapped: gym.vector.VectorEnv[Any, Any, Any] = vector_wrappers.ClipReward(
        vector_wrappers.NormalizeReward(vector_wrappers.NormalizeObservation(statistics)), -1, 1
    )
    twin = batch()
    wrapped.reset(seed=0)
    twin.reset(seed=0)
    total = np.zeros(NUM_ENVS)
    for t, action in enumerate(actions(2 * STEPS + 1, num_envs=NUM_ENVS)):
        obs, reward, _, truncated, info = wrapped.step(action)
        assert obs.shape == (NUM_ENVS, 30)
        assert np.all(np.abs(reward) <= 1)
        total += twin.step(action)[1] * (t < STEPS)
        if t == STEPS - 1:
            assert truncated.all()
            np.testing.assert_array_equal(info["episode"]["l"], [STEPS] * NUM_ENVS)
            np.testing.assert_allclose(info["episode"]["r"], total)
    assert list(statistics.length_queue) == [STEPS] * (2 * NUM_ENVS)


def test_dict_info_to_list_gives_the_infos_of_single_environments(
    envs: GymnasiumVectorEnv,
) -> None:
    listed = vector_wrappers.DictInfoToList(envs)
    listed.reset(seed=0)
    one = single()
    one.reset(seed=0)
    action = actions(1, num_envs=NUM_ENVS)
    *_, infos = listed.step(action[0])
    *_, info = one.step(action[0, 0])
    assert len(infos) == NUM_ENVS
    assert set(infos[0]) == set(info)
    assert infos[0]["position_error"] == pytest.approx(info["position_error"], rel=1e-4)
    assert data_equivalence(sorted(infos[0]["reward_terms"]), sorted(info["reward_terms"]))


def test_statistics_with_a_reset_mask() -> None:
    envs = vector_wrappers.RecordEpisodeStatistics(batch(AutoresetMode.DISABLED))
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(np.zeros((NUM_ENVS, 7)))
    envs.reset(options={"reset_mask": np.array([True, False, False])})
    for _ in range(2):
        *_, info = envs.step(np.zeros((NUM_ENVS, 7)))
    assert info["episode"]["l"].tolist() == [0, 4, 4]
    envs.reset(options={"reset_mask": np.array([False, True, True])})
    for _ in range(2):
        *_, info = envs.step(np.zeros((NUM_ENVS, 7)))
    assert info["episode"]["l"].tolist() == [4, 0, 0]
