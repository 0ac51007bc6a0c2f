"""Tasks with objects among obstacles: what is drawn, what stays as it is, and an expert."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from experts import rollout

import fraxenv
from fraxenv.envs import PickObstacles, Reach, Upright, UprightObstacles, among_obstacles
from fraxenv.envs.tasks.tabletop_obstacles import OBSTRUCTED
from fraxenv.errors import ConfigError, UnknownNameError


@pytest.fixture(scope="module")
def pick():
    return fraxenv.make("PandaPick-v0", obstacles=True, task_options={"position_tolerance": 0.03})


def test_a_task_keeps_its_numbers(pick) -> None:
    env, params = pick
    _, bare = fraxenv.make("PandaPick-v0")
    task = params.task
    assert isinstance(task, PickObstacles)
    assert float(task.position_tolerance) == pytest.approx(0.03)
    assert float(task.start_noise) == float(bare.task.start_noise)
    assert dict(task.reward_weights) == {**bare.task.reward_weights, "collision": -1.0}
    assert params.safety is not None
    assert params.safety.enabled
    layout = env.observation_layout
    assert layout["to_obstacles"] == layout["obstacle_velocity"] == 3 * task.obstacle_count
    assert [m.name for m in env.reported][-1] == "clearance"
    assert fraxenv.make("PandaPick-v0", obstacles=True, safety="none")[1].safety is None
    assert isinstance(among_obstacles(Upright(half_length=0.1)), UprightObstacles)
    assert all(issubclass(made, kind) for kind, made in OBSTRUCTED.items())


def test_resets_leave_arm_object_and_goal_free(pick) -> None:
    env, params = pick
    keys = jax.random.split(jax.random.key(0), 256)
    state = jax.jit(jax.vmap(env.reset_env, (0, None)))(keys, params)[1]
    around, task = state.world.obstacles, params.task
    there = np.asarray(around.active)
    assert there.mean() > 0.9
    centre, radius = np.asarray(around.spheres.position), np.asarray(around.spheres.radius)
    for point in (state.world.objects["cube"].q[:, :3], state.task_state.position[:, 0]):
        gap = np.linalg.norm(centre - np.asarray(point)[:, None], axis=2) - radius
        assert gap[there].min() > 0.099
    low, high = np.asarray(task.obstacle_low), np.asarray(task.obstacle_high)
    assert ((centre[there] >= low - 1e-6) & (centre[there] <= high + 1e-6)).all()
    speed = np.abs(np.asarray(around.velocity))
    assert 0.045 < speed.max() <= 0.05 + 1e-6
    # Neither is drawn from the other's numbers.
    x, cube = centre[:, 0, 0], np.asarray(state.world.objects["cube"].q)[:, 0]
    assert abs(np.corrcoef(x[there[:, 0]], cube[there[:, 0]])[0, 1]) < 0.3


def test_what_has_no_obstacles() -> None:
    with pytest.raises(ConfigError, match="Reach has no obstacles, expected one of Insert"):
        fraxenv.make("PandaReach-v0", obstacles=True)
    with pytest.raises(ConfigError, match="Reach has no obstacles"):
        among_obstacles(Reach())
    with pytest.raises(ConfigError, match="obstacles=3 of PandaPick-v0"):
        fraxenv.make("PandaPick-v0", obstacles=3)
    with pytest.raises(UnknownNameError, match="obstacle option 'spheres'"):
        fraxenv.make("PandaPick-v0", obstacles={"spheres": 3})
    with pytest.raises(ConfigError, match="moving_count=9"):
        fraxenv.make("PandaPick-v0", obstacles={"moving_count": 9})


@pytest.mark.slow
def test_the_expert_picks_and_the_filter_keeps_the_arm_off(pick) -> None:
    """What the filter is for: without it, the same expert runs into spheres."""
    collisions = {}
    for safety in ("cbf", "none"):
        made = fraxenv.make("PandaPick-v0", obstacles=True, safety=safety)
        _, results = rollout(*made, n=256)
        clearance = np.array([np.asarray(info["clearance"]) for _, _, info in results])
        collisions[safety] = (clearance < 0).any(axis=0).sum()
        if safety == "cbf":
            assert np.asarray(results[-1][2]["success"]).mean() > 0.6
    assert collisions["cbf"] == 0
    assert collisions["none"] > 10
