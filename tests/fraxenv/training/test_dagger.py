"""DAgger: what it remembers, what it sees, that it learns, and that runs resume."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv.envs import Reach
from fraxenv.envs.tasks.experts import EXPERTS
from fraxenv.errors import ConfigError
from fraxenv.recording.scripted import expert_policy, seen_by_expert
from fraxenv.training import BCConfig, DAggerConfig, load_policy, read_metrics, train
from fraxenv.training.algorithms import create_algorithm, init_state, with_demonstrations

EASY: dict[str, Any] = {
    "control_hz": 100,
    "physics_hz": 100,
    "max_steps_in_episode": 60,
    "task_options": {"position_tolerance": 0.05},
}
SMALL = DAggerConfig(
    env="PandaReach-v0",
    overrides=EASY,
    total_timesteps=3 * 4 * 128,
    num_envs=32,
    num_steps=4,
    updates_per_round=4,
    num_epochs=100,
    hidden_layer_sizes=(64,),
    demonstrations=4,
    batch_size=64,
    buffer_size=512,
    eval_episodes=50,
    final_episodes=50,
)


@pytest.fixture(autouse=True)
def expert(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a task that is quick to compile: straight to the goal."""

    def straight(terms: Any, task: Any) -> tuple[Any, Any, Any]:
        way = 0.1 * terms["to_goal"]
        return way, jnp.zeros_like(way), jnp.zeros(())

    monkeypatch.setitem(EXPERTS, Reach, straight)


def created(config: BCConfig = SMALL) -> Any:
    env, params = fraxenv.make(config.env, **config.overrides)
    return with_demonstrations(create_algorithm(config, env, params), config, env, params)


@pytest.mark.slow
def test_it_remembers_what_the_policy_saw_and_the_expert_meant() -> None:
    algorithm = created()
    env, params = fraxenv.make(SMALL.env, **SMALL.overrides)
    act = jax.vmap(expert_policy(env, params), (0, None))
    state = init_state(algorithm, 0)
    first = 4 * 60  # steps of demonstrations
    assert (int(state.remembered), int(state.oldest)) == (first, first)
    np.testing.assert_array_equal(state.seen[:first], algorithm.demonstrations.observations)
    remember = jax.jit(algorithm.remember)
    for i in range(4):
        before, state = state, remember(state, jax.random.key(i))
        new = (first + 128 * i + np.arange(128)) % 512
        kept = np.setdiff1d(np.arange(512), new)
        np.testing.assert_array_equal(state.seen[kept], before.seen[kept])
        # The first of them is what the environments showed, and the others are what it led to.
        np.testing.assert_array_equal(state.seen[new[:32]], before.last_obs)
        assert int(state.remembered) == min(first + 128 * (i + 1), 512)
        meant = act(state.seen[new], jax.random.key(0))
        np.testing.assert_allclose(state.meant[new], meant, atol=1e-6)
    assert int(state.oldest) == (first + 4 * 128) % 512
    # The policy acts, not the expert: an untrained one stays away from the goal.
    names = [n for n, size in env.observation_layout.items() for _ in range(size)]
    taken = np.asarray(state.seen)[new[32:]][:, np.array(names) == "last_action"]
    own = algorithm.actor.apply(before.actor_ts.params, state.seen[new[:-32]])[:, 0]
    np.testing.assert_allclose(taken, np.clip(own, -1.0, 1.0), atol=1e-5)


@pytest.mark.slow
def test_it_sees_what_the_expert_looks_at() -> None:
    made = fraxenv.make("PandaReach-v0", **EASY)
    assert seen_by_expert(*made) == ("to_goal",)
    joints = fraxenv.make("PandaReach-v0", action="joint_delta", **EASY)
    assert seen_by_expert(*joints) == ("joint_position", "to_goal")


@pytest.mark.slow
def test_the_policy_sees_no_more_unless_told_what_to_hide() -> None:
    """Nor does behaviour cloning of the expert's demonstrations."""
    made = fraxenv.make("PandaReach-v0", **EASY)
    names = [n for n, size in made[0].observation_layout.items() for _ in range(size)]
    for config in (SMALL, BCConfig(env=SMALL.env, overrides=EASY, demonstrations=4)):
        scale = init_state(created(config), 0).actor_ts.params["scale"]
        seen = np.isfinite(scale["deviation"])
        np.testing.assert_array_equal(seen, np.array(names) == "to_goal")
    told = created(dataclasses.replace(SMALL, hidden=("last_action",)))
    deviation = init_state(told, 0).actor_ts.params["scale"]["deviation"]
    np.testing.assert_array_equal(np.isinf(deviation), np.array(names) == "last_action")


def test_what_cannot_be() -> None:
    with pytest.raises(ConfigError, match="chunk=2, expected 1"):
        DAggerConfig(chunk=2)
    with pytest.raises(ConfigError, match=r"num_envs \* num_steps = 2048 is more than buffer_size"):
        DAggerConfig(buffer_size=2000)
    del EXPERTS[Reach]
    with pytest.raises(ConfigError, match="has no expert, expected a task among"):
        created()


@pytest.mark.slow
def test_learns_and_resuming_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    assert train(SMALL, tmp_path / "whole")
    success = [m["success"] for m in read_metrics(tmp_path / "whole")]
    assert success[-1] > 0.9
    stopped: list[Any] = []

    def stop(metrics: Any) -> None:
        stopped.append(metrics)
        if len(stopped) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(SMALL, tmp_path / "parts", on_round=stop)
    assert train(SMALL, tmp_path / "parts", resume=True)
    whole, parts = (load_policy(tmp_path / run)[0].weights for run in ("whole", "parts"))
    jax.tree.map(np.testing.assert_array_equal, whole, parts)
