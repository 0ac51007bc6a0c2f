"""Environment states on disk: what follows is what would have followed, and misfits are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import fraxenv
from fraxenv import load_state, save_state
from fraxenv.envs import Environment, EnvParams, EnvState
from fraxenv.errors import CheckpointError, ConfigError
from fraxenv.storage.files import load_arrays, save_arrays

RANDOMISED: dict[str, Any] = {
    "link_mass": (0.8, 1.2),
    "kp": (0.8, 1.2),
    "motor_delay": (0.0, 0.002),
    "action_delay": (0.0, 0.04),
    "observation_delay": (0.0, 0.04),
    "observation_noise": 0.01,
}
MOVING = {"sphere_count": 2, "moving_count": 2, "obstacle_speed": 0.3}
QUICK = {"xla_backend_optimization_level": 0}  # to compile
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "randomised": ("PandaReach-v0", {"randomisation": RANDOMISED}),
    "goals": ("PandaReach-v0", {"goal_env": True, "randomisation": RANDOMISED}),
    "pool": ("PandaReach-v0", {"reset_pool": 4}),
    "moving obstacles": (
        "PandaReachObstacles-v0",
        {"task_options": MOVING, "safety": "none", "backend": "vmap"},
    ),
    "safety filter": ("PandaReachObstacles-v0", {"task_options": MOVING, "backend": "vmap"}),
}
SLOW = ("randomised", "pool", "safety filter")
BATCH, BEFORE, AFTER = 3, 9, 6


def make(case: str) -> tuple[Environment, EnvParams]:
    id, overrides = CASES.get(case, ("PandaReach-v0", {}))
    return fraxenv.make(id, max_steps_in_episode=5, **overrides)


def start(env: Environment, params: EnvParams) -> EnvState:
    keys = jax.random.split(jax.random.key(1), BATCH)
    state: EnvState = jax.vmap(env.reset, (0, None))(keys, params)[1]
    return state


def follow(
    env: Environment, params: EnvParams, state: EnvState, key: Array, steps: int
) -> tuple[EnvState, Array, dict[str, np.ndarray]]:
    """Some random steps: the state and key at their end, and all that was returned."""
    quick = QUICK if env.backend == "vmap" else None
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)), compiler_options=quick)
    returned = {}
    for t in range(steps):
        key, key_action, key_step = jax.random.split(key, 3)
        action = jax.random.uniform(key_action, (BATCH, env.num_actions), minval=-1.0)
        obs, state, *rest = step(jax.random.split(key_step, BATCH), state, action, params)
        for path, leaf in jax.tree_util.tree_leaves_with_path((obs, state, rest)):
            returned[f"{t}{jax.tree_util.keystr(path)}"] = np.asarray(leaf)
    return state, key, returned


@pytest.fixture(scope="module")
def panda() -> tuple[Environment, EnvParams, EnvState]:
    env, params = make("plain")
    return env, params, start(env, params)


def run_on(folder: Path, cases: list[str]) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What follows in this process, and what follows in another one that loads the state."""
    expected = {}
    for case in cases:
        env, params = make(case)
        state, key, _ = follow(env, params, start(env, params), jax.random.key(2), BEFORE)
        save_state(folder / f"{case}.npz", env, state, params, key)
        *_, expected[case] = follow(env, params, state, key, AFTER)
    command = [sys.executable, __file__, folder, *cases]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    return {case: (expected[case], load_arrays(folder / f"{case}.out")[0]) for case in cases}


@pytest.fixture(scope="module")
def futures(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_on(tmp_path_factory.mktemp("states"), [case for case in CASES if case not in SLOW])


def assert_same_bits(expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].tobytes() == value.tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case not in SLOW])
def test_another_process_continues_bit_for_bit(case: str, futures: Any) -> None:
    expected, found = futures[case]
    over = [value for name, value in expected.items() if "truncated" in name]
    assert np.any(over)
    assert not np.all(over)
    assert_same_bits(expected, found)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW)
def test_another_process_continues_bit_for_bit_with(case: str, tmp_path: Path) -> None:
    assert_same_bits(*run_on(tmp_path, [case])[case])


def test_state_parameters_and_key_come_back_as_they_were(panda: Any, tmp_path: Path) -> None:
    env, params, states = panda
    path = tmp_path / "deep" / "state.npz"
    pooled = params.replace(reset_pool=env.draw_pool(jax.random.key(0), params, 2))
    changes = {
        "own": params,
        "numbers": params.replace(max_steps_in_episode=7),
        "batched": params.replace(max_steps_in_episode=jnp.arange(1, 1 + BATCH)),
        "robot": params.replace(robot=env.robot),
        "pool": pooled,
    }
    single = jax.tree.map(lambda x: x[0], states)
    squares = jax.tree.map(lambda x: jnp.stack([x, x]), states)
    keys = (None, jax.random.key(3), jax.random.PRNGKey(3), jax.random.key(3, impl="rbg"))
    for state in (single, states, squares):
        for changed in changes.values():
            save_state(path, env, state, changed)
            chex.assert_trees_all_equal((state, changed, None), load_state(path, env))
    for key in (*keys, jax.random.split(jax.random.key(3), (2, 2))):
        save_state(path, env, states, params, key)
        chex.assert_trees_all_equal((states, params, key), load_state(path, env))


def test_parameters_of_another_structure_are_loaded_with_an_example(
    panda: Any, tmp_path: Path
) -> None:
    env, params, _ = panda
    changed = params.replace(randomisation=make("randomised")[1].randomisation)
    state = start(env, changed)
    save_state(tmp_path / "s.npz", env, state, changed)
    with pytest.raises(CheckpointError, match=r"the params of another .* with params=\.\.\."):
        load_state(tmp_path / "s.npz", env)
    chex.assert_trees_all_equal(
        (state, changed, None), load_state(tmp_path / "s.npz", env, changed)
    )


def test_a_failed_save_keeps_the_file_before(
    panda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, params, state = panda
    path = tmp_path / "s.npz"
    save_state(path, env, state, params)

    def disk_full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(CheckpointError, match=r"s\.npz: cannot be written: No space left"):
        save_state(path, env, state.replace(time=state.time + 1), params)
    chex.assert_trees_all_equal(load_state(path, env)[0], state)
    assert list(tmp_path.iterdir()) == [path]


# --- what is refused ---


@pytest.fixture
def saved(panda: Any, tmp_path: Path) -> Path:
    env, params, state = panda
    save_state(tmp_path / "s.npz", env, state, params)
    return tmp_path / "s.npz"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (lambda: fraxenv.make("PandaTrack-v0"), "of PandaReach-v0"),
        (lambda: make("goals"), "its kind is Environment, here GoalEnvironment"),
        (lambda: fraxenv.make("PandaReach-v0", policy_hz=25), r"rates are \[50, 1000, 1000\] Hz"),
        (lambda: fraxenv.make("PandaReach-v0", robot=heavier()), "other numbers"),
        (lambda: fraxenv.make("PandaReach-v0", action="torque"), "the params of another"),
        (lambda: fraxenv.make("PandaReach-v0", action_options={"frame": "ee"}), "other options"),
        (lambda: make("randomised"), r"lacks \['params.randomisation"),
    ],
)
def test_the_state_of_another_environment(saved: Path, other: Any, says: str) -> None:
    with pytest.raises(CheckpointError, match=rf"s\.npz.*{says}.*[Mm]ake|s\.npz.*{says}.*Load"):
        load_state(saved, other()[0])


def heavier() -> Any:
    robot = fraxenv.make("PandaReach-v0")[0].robot
    return robot.replace(mass=1.1 * np.asarray(robot.mass))


def test_files_that_cannot_be_read(panda: Any, saved: Path, tmp_path: Path) -> None:
    env = panda[0]
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_state(tmp_path / "none.npz", env)
    whole = saved.read_bytes()
    for keep in (0, 100, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:keep])
        with pytest.raises(CheckpointError, match=r"s\.npz: .*damaged"):
            load_state(saved, env)
    saved.write_text("what somebody wrote")
    with pytest.raises(CheckpointError, match="damaged"):
        load_state(saved, env)
    np.savez(saved, q=np.zeros(7))
    with pytest.raises(CheckpointError, match="not a checkpoint of fraxenv"):
        load_state(saved, env)
    save_arrays(saved, {"weights": np.zeros(3)})
    with pytest.raises(CheckpointError, match="another kind, expected a fraxenv state"):
        load_state(saved, env)


def rewrite(path: Path, change: Any) -> None:
    arrays, metadata = load_arrays(path)
    change(arrays, metadata)
    save_arrays(path, arrays, metadata)


def test_files_that_do_not_fit(panda: Any, saved: Path) -> None:
    env = panda[0]
    whole = saved.read_bytes()

    def refused(change: Any, says: str) -> None:
        saved.write_bytes(whole)
        rewrite(saved, change)
        with pytest.raises(CheckpointError, match=says):
            load_state(saved, env)

    refused(lambda a, m: m.update(version=99), "version 99 .* this one reads version 3")
    refused(lambda a, m: m["provenance"].update(x64=True), "jax_enable_x64=True")
    refused(lambda a, m: a.pop("state.q"), r"lacks \['state.q'\]")
    refused(lambda a, m: a.update({"state.z": a["state.q"]}), r"has \['state.z'\]")
    refused(lambda a, m: a.update({"state.q": a["state.q"][:, :6]}), r"float32\[3, 6\], expected")
    refused(lambda a, m: a.update({"state.q": a["state.q"][0]}), "of different batches")
    refused(lambda a, m: a.update({"state.time": np.ones(3, "f")}), r"float32\[3\], expected int32")


def test_what_cannot_be_saved(panda: Any, tmp_path: Path) -> None:
    env, params, state = panda
    path = tmp_path / "s.npz"
    other = fraxenv.make("UR10Reach-v0")
    with pytest.raises(CheckpointError, match=r"another|expected"):
        save_state(path, env, start(*other), params)
    with pytest.raises(ConfigError, match=r"state is a dict, expected the EnvState"):
        save_state(path, env, {}, params)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"params is a NoneType, expected EnvParams"):
        save_state(path, env, state, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="without wrappers"):
        save_state(path, "PandaReach-v0", state, params)  # type: ignore[arg-type]
    assert not path.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be written: .* Choose a folder"):
        save_state(tmp_path / "file" / "s.npz", env, state, params)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for case in sys.argv[2:]:
        env, params = make(case)
        state, params, key = load_state(folder / f"{case}.npz", env)
        assert key is not None
        save_arrays(folder / f"{case}.out", follow(env, params, state, key, AFTER)[2])
