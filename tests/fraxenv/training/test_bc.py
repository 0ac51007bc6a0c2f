"""Behaviour cloning: what it learns from, that it learns it, and that runs resume."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv import Recording
from fraxenv.cli import main
from fraxenv.errors import CheckpointError, ConfigError, UnknownNameError
from fraxenv.recording.scripted import scripted_policy
from fraxenv.training import BCConfig, load_policy, read_metrics, save_config, train
from fraxenv.training.algorithms import create_algorithm, init_state, policy_of, with_demonstrations
from fraxenv.training.bc import Demonstrations
from fraxenv.training.demonstrations import demonstrations, joined

LOOSE = {"position_tolerance": 0.1}
EASY: dict[str, Any] = {
    "control_hz": 100,
    "physics_hz": 100,
    "max_steps_in_episode": 40,
    "task_options": LOOSE,
}
SMALL = BCConfig(
    env="PandaReach-v0",
    overrides=EASY,
    total_timesteps=3 * 300 * 64,
    updates_per_round=300,
    learning_rate=3e-3,
    hidden_layer_sizes=(32,),
    demonstrations=20,
    chunk=3,
    batch_size=64,
    eval_episodes=50,
    final_episodes=50,
)


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Of a policy that moves straight to the goal, and of others beside it that do not."""
    recipe = {"id": "PandaReach-v0", **EASY}
    env, params = fraxenv.make(**recipe)
    straight = scripted_policy(env, params)
    names, sizes = zip(*env.observation_layout.items(), strict=True)
    aside = sum(sizes[: names.index("goal_position")]) + 1

    def at_times(obs: Any, key: Any) -> Any:
        return jnp.where(obs[aside] > -0.15, straight(obs, key), 0.0)

    return fraxenv.record(
        env, params, at_times, jax.random.key(2), episodes=40, num_envs=40, recipe=recipe,
        infos=["success"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def config(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> BCConfig:
    path = tmp_path_factory.mktemp("recorded") / "recording.npz"
    recording.save(path)
    return dataclasses.replace(SMALL, recording=str(path))


def test_chunks_are_a_plain_loops() -> None:
    """And end where demonstrations do."""
    actions = jnp.arange(7.0)[:, None]
    steps = Demonstrations(jnp.zeros((7, 1)), actions, jnp.array([2, 2, 2, 6, 6, 6, 6]))
    chunks = steps.chunk(jnp.arange(7), 3)[..., 0]
    assert chunks.tolist() == [
        [0, 1, 2], [1, 2, 2], [2, 2, 2], [3, 4, 5], [4, 5, 6], [5, 6, 6], [6, 6, 6],
    ]  # fmt: skip


def test_learns_from_the_first_that_succeed(config: BCConfig, recording: Recording) -> None:
    env, params = fraxenv.make(config.env, **config.overrides)
    found = demonstrations(config, env, params)
    episodes = list(recording.episodes())
    succeeded = [e for e in episodes if e.success]
    assert [e.success for e in episodes[:20]] != [True] * 20
    expected = succeeded[:20]
    np.testing.assert_array_equal(found.actions, np.concatenate([e.actions for e in expected]))
    seen = np.concatenate([e.observations[:-1] for e in expected])
    np.testing.assert_array_equal(found.observations, seen)
    np.testing.assert_array_equal(found.last, np.repeat(40 * np.arange(1, 21) - 1, 40))


@pytest.mark.slow
def test_the_expert_is_drawn_by_the_seed() -> None:
    config = BCConfig(
        env="PandaPick-v0", overrides={"max_steps_in_episode": 100}, demonstrations=2, seed=4
    )
    env, params = fraxenv.make(config.env, **config.overrides)
    one, again, other = (
        demonstrations(dataclasses.replace(config, seed=seed), env, params) for seed in (4, 4, 5)
    )
    assert one.actions.shape == (200, 7)
    np.testing.assert_array_equal(one.observations, again.observations)
    assert not np.array_equal(one.observations[0], other.observations[0])


def test_what_cannot_be_learnt_from_is_explained(
    config: BCConfig, recording: Recording, tmp_path: Path
) -> None:
    env, params = fraxenv.make(config.env, **config.overrides)
    with pytest.raises(ConfigError, match=r"successful episodes, expected demonstrations=41"):
        demonstrations(dataclasses.replace(config, demonstrations=41), env, params)
    with pytest.raises(ConfigError, match="has no expert, expected a task among"):
        demonstrations(SMALL, env, params)
    other = fraxenv.make("UR10Reach-v0")
    with pytest.raises(CheckpointError, match="it is of PandaReach-v0"):
        demonstrations(config, *other)
    blind = dataclasses.replace(recording, infos={})
    blind.save(tmp_path / "blind.npz")
    with pytest.raises(ConfigError, match="tells no success"):
        demonstrations(
            dataclasses.replace(config, recording=str(tmp_path / "blind.npz")), env, params
        )


def test_observations_are_scaled_by_the_demonstrations(
    config: BCConfig, recording: Recording
) -> None:
    env, params = fraxenv.make(config.env, **config.overrides)
    algorithm = create_algorithm(config, env, params)
    algorithm = with_demonstrations(algorithm, config, env, params)
    scale = init_state(algorithm, 0).actor_ts.params["scale"]
    seen = np.asarray(joined([e for e in recording.episodes() if e.success][:20]).observations)
    np.testing.assert_allclose(scale["mean"], seen.mean(0), atol=1e-4)
    names = [n for n, size in env.observation_layout.items() for _ in range(size)]
    hidden = np.isin(names, ["joint_velocity", "last_action"])
    assert np.isinf(scale["deviation"][hidden]).all()
    assert hidden.sum() == 7 + 6
    varies = (seen.std(0) > 1e-3) & ~hidden
    np.testing.assert_allclose(scale["deviation"][varies], seen.std(0)[varies], rtol=1e-3)
    assert (np.asarray(scale["deviation"])[~varies & ~hidden] == 1.0).all()


def test_what_is_hidden_is_not_seen(config: BCConfig) -> None:
    env, params = fraxenv.make(config.env, **config.overrides)
    algorithm = create_algorithm(config, env, params)
    weights = init_state(with_demonstrations(algorithm, config, env, params), 0).actor_ts.params
    policy = policy_of(config, algorithm, weights)
    slope = np.asarray(jax.jacobian(policy)(jnp.zeros(29)))
    names = [n for n, size in env.observation_layout.items() for _ in range(size)]
    hidden = np.isin(names, ["joint_velocity", "last_action"])
    np.testing.assert_array_equal(slope[:, hidden], 0.0)
    assert (np.abs(slope[:, ~hidden]).max(0) > 0).all()
    with pytest.raises(UnknownNameError, match="Did you mean 'last_action'"):
        create_algorithm(dataclasses.replace(config, hidden=("last_actoin",)), env, params)


@pytest.mark.slow
def test_learns_and_resuming_equals_an_uninterrupted_run(config: BCConfig, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", on_round=_stop_after(2))
    assert train(config, tmp_path / "cut", resume=True)
    assert train(config, tmp_path / "whole")
    policy, env, params, loaded = load_policy(tmp_path / "whole")
    again, *_ = load_policy(tmp_path / "cut")
    assert loaded == config
    for a, b in zip(jax.tree.leaves(policy), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    metrics = read_metrics(tmp_path / "whole")
    assert [m["step"] for m in metrics] == [19200, 38400, 57600]
    assert metrics[-1]["success"] >= 0.7
    found = demonstrations(config, env, params)
    error = jnp.abs(jax.vmap(policy)(found.observations) - found.actions)
    assert jnp.mean(error) < 0.1


@pytest.mark.slow
def test_demonstrations_are_no_constants_of_a_program(config: BCConfig, tmp_path: Path) -> None:
    """Of 100 000 episodes they were gigabytes, and a compiler had several copies of them."""
    env, params = fraxenv.make(config.env, **config.overrides)
    found = demonstrations(config, env, params)
    enough = sum(x.nbytes for x in jax.tree.leaves(found)) // 2
    before = jax.config.jax_captured_constants_warn_bytes
    jax.config.update("jax_captured_constants_warn_bytes", enough)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*constants were captured")
            assert train(dataclasses.replace(config, total_timesteps=300 * 64), tmp_path / "run")
    finally:
        jax.config.update("jax_captured_constants_warn_bytes", before)


def _stop_after(rounds: int) -> Any:
    def on_round(metrics: Any) -> None:
        if metrics["round"] == rounds:
            raise KeyboardInterrupt

    return on_round


@pytest.mark.slow
def test_the_command_says_what_it_learns_from(
    config: BCConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_config(tmp_path / "bc.yaml", dataclasses.replace(config, total_timesteps=300 * 64))
    argv = ["train", "--config", str(tmp_path / "bc.yaml"), "--runs", str(tmp_path)]
    assert main([*argv, "--name", "run"]) == 0
    text = capsys.readouterr().out
    assert "19,200 steps of demonstrations, 20 demonstrations of" in text
    assert "steps of demonstrations/s" in text
    assert (tmp_path / "run" / "rollout.gif").exists()
