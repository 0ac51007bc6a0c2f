"""Demonstrations in another action space: the recorded targets are sought again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..envs import Environment, EnvParams, EnvState, JointGoals, PoseGoals
from ..envs.actions.poses import HandPoses, target_poses, ways_to
from ..envs.steering import steering
from ..errors import ConfigError
from ..progress import progress as progress_bar
from ..storage.state import check_environment, pack
from .record import Recording, Tape, checked_recipe
from .replay import opened, visited


def convert(
    recording: Recording,
    env: Environment,
    params: EnvParams,
    *,
    source: tuple[Environment, EnvParams] | None = None,
    infos: Sequence[str] | None = None,
    successful: bool | None = None,
    recipe: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Recording:
    """Demonstrations for another action space, another controller or other gains.

    >>> recipe = {"id": "PandaPick-v0", "action": "joint_delta"}
    >>> converted = convert(recording, *make(**recipe), recipe=recipe)

    Every episode begins as it was recorded, and in every step the new action seeks the pose that
    the recorded one meant, from where the hand now is: errors do not add up. What comes of it is
    recorded anew, success as well, so that what did not survive can be left out.

    Args:
        recording: of an action space whose targets are poses of hands, or joint positions.
        env: of the same robot and task, with a `Steerable` action space.
        params: its parameters, the task's as recorded.
        source: the recorded environment and its parameters, needed where the recording cannot tell
            how to make it.
        infos: as of `record`; the recorded ones if None.
        successful: as of `record`; as recorded if None.
        recipe: as of `record`, of `env`.
        progress: whether to show a progress bar; needs the extra `record`.

    Raises:
        ConfigError: an action space has no poses for targets, or is not `Steerable`; or episodes do
            not begin, or end, as recorded.
        CheckpointError: `source` is not that of the recording.
        MissingExtraError: a progress bar is asked for, and the extra is not installed.
    """
    check_environment(env)
    env.check_params(params)
    recipe = checked_recipe(env, recipe)
    if successful is None:
        successful = recording.metadata.get("successful", False)
    if not isinstance(params.task, PoseGoals | JointGoals):
        raise ConfigError(
            f"{env.name}: recordings of {type(params.task).__name__} cannot be converted, expected "
            "a task of hands."
        )
    hands = params.task.hands.names
    steer = steering(env, params, hands)
    old, own, key, state = opened(recording, *(source or (None, None)))
    # Episodes end when the recorded ones did, by time.
    params = params.replace(max_steps_in_episode=own.max_steps_in_episode)
    if infos is None:
        noted = recording.metadata.get("annotations", ())
        infos = tuple(name for name in recording.infos if name not in noted)
    tape = Tape(env, params, key, recording.num_envs, infos)
    _check_same_beginning(recording, tape.state)

    def meant(state: EnvState, action: Array) -> HandPoses:
        action = jnp.clip(action, -1.0, 1.0)
        target, _ = own.action.command(old.robot, state.q, action, state.action_state)
        return target_poses(old.robot, target, hands)

    def sought(state: EnvState, poses: HandPoses) -> Array:
        return steer(state.q, ways_to(env.robot, state.q, hands, poses), poses.width)

    targets, seek = jax.jit(jax.vmap(meant)), jax.jit(jax.vmap(sought))
    states = visited(recording, old, own, key, state)
    total = recording.num_steps
    with progress_bar("Converting", total, extra="record", show=progress) as show:
        for t, (before, action) in enumerate(zip(states, recording.actions, strict=True)):
            tape.step(seek(tape.state, targets(before, jnp.asarray(action))))
            show(t + 1)
    converted = tape.recording(
        recipe,
        episodes_per_env=recording.metadata["episodes_per_env"],
        successful=successful,
    )
    _check_same_ends(recording, converted)
    return converted


def _check_same_beginning(recording: Recording, fresh: EnvState) -> None:
    """Check that the task, with the recorded key, begins as it was recorded.

    Raises:
        ConfigError: it does not.
    """
    compared = ("q", "v", "world", "task_state")
    for name in compared:
        for leaf, array in pack(f"state.{name}", getattr(fresh, name)).arrays.items():
            recorded = recording.start.get(leaf)
            if recorded is None or not np.allclose(recorded, array, rtol=1e-5, atol=1e-6):
                raise ConfigError(
                    f"convert: {leaf} is not as recorded when episodes begin, expected the same "
                    "robot and task, and the same randomisation. Make the environment with "
                    "nothing but the action space and its controller changed."
                )


def _check_same_ends(recording: Recording, converted: Recording) -> None:
    """Check that episodes ended when the recorded ones did, for what follows has their targets.

    Raises:
        ConfigError: one did not.
    """
    then, now = (r.terminations | r.truncations for r in (recording, converted))
    if not np.array_equal(then, now):
        t, n = np.argwhere(then != now)[0]
        raise ConfigError(
            f"convert: environment {n} {'ended' if now[t, n] else 'went on'} at step {t}, other "
            "than recorded, and its later actions are for other episodes. Convert recordings of "
            "one episode for each environment, or of a task that ends by time only."
        )
