"""Picks: our environment, and MuJoCo's physics of the same scene from the same states.

The states are those that the workload's policy comes to at all times of its episodes, so that as
much touches as does when a policy is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import fraxenv
from fraxenv.envs import Environment, EnvParams
from fraxenv.recording.scripted import expert_policy

from .contenders import Case
from .workloads import PICK, PICK_HZ, Workload

STEPS = 10
"""Environment steps in one call."""

_VISITED = 64
"""States that MuJoCo begins in; larger batches repeat them."""

Carried = tuple[Array, Array, Any]
"""A key, and observations and states of all environments."""


def ours(backend: str, workload: Workload, batch: int) -> Case:
    """Environment steps, each call from where the last one ended."""
    env, params = fraxenv.make(PICK, backend=backend)
    program, latest, compiled = _underway(env, params, workload, batch)

    def call() -> None:
        latest[:] = jax.block_until_ready(program(*latest))

    per_step = f"{env.physics_hz // env.policy_hz} physics and {env.control_hz // env.policy_hz}"
    note = f"{per_step} control steps per step, OSC"
    seconds = batch * STEPS / PICK_HZ
    return Case(call, None, seconds, compile_seconds=compiled, note=note)


def mujoco(workload: Workload, batch: int, threads: int) -> Case:
    """MuJoCo's `rollout` of the scene alone, gravity of the arm compensated."""
    import mujoco as package
    from mujoco import rollout

    from fraxenv.cross_check.mujoco_scene import model_without_actuators
    from fraxenv.dynamics.scene.followers import free_followers
    from fraxenv.dynamics.scene.parts import Integrator

    env, params = fraxenv.make(PICK)
    physics: Any = env.physics
    freed = free_followers(physics.scene)
    known = hasattr(package.mjtIntegrator, "mjINT_DISCRETE")  # from MuJoCo 4 on
    integrator: Integrator = "discrete" if known else "implicitfast"
    m, (_, to_q, to_v) = model_without_actuators(freed, integrator, 1 / env.physics_hz), freed
    m.opt.tolerance, m.opt.iterations = 1e-8, 100  # as they are by default
    state = _underway(env, params, workload, _VISITED)[1][2]
    (cube,) = state.world.objects.values()  # after the arm in the scene's coordinates
    data, rows, forces = package.MjData(m), [], []
    for q, v, cube_q, cube_v in zip(state.q, state.v, cube.q, cube.v, strict=True):
        data.qpos[:] = to_q.out(np.concatenate([q, cube_q]))
        data.qvel[:] = to_v.out(np.concatenate([v, cube_v]))
        package.mj_forward(m, data)
        rows.append(np.concatenate([[0.0], data.qpos, data.qvel]))  # after the time
        forces.append(np.where(np.arange(m.nv) < m.nv - 6, data.qfrc_bias, 0.0))
    steps = STEPS * env.physics_hz // env.policy_hz
    start = np.resize(rows, (batch, len(rows[0])))
    control = np.resize(forces, (batch, m.nv))[:, None].repeat(steps, axis=1)
    datas, pool = [package.MjData(m) for _ in range(threads)], rollout.Rollout(nthread=threads)
    spec = int(package.mjtState.mjSTATE_QFRC_APPLIED)
    ends = np.zeros((batch, steps, start.shape[1]))

    def call() -> None:
        pool.rollout(m, datas, start, control, control_spec=spec, nstep=steps, state=ends)

    note = f"the scene's physics alone, {integrator}: no controller, observation or reward"
    return Case(call, None, batch * STEPS / PICK_HZ, compiles=False, note=note)


def _underway(
    env: Environment, params: EnvParams, workload: Workload, batch: int
) -> tuple[Callable[..., Carried], list[Any], float]:
    """A program of `STEPS`, what it carries on after an episode, and s that it took to compile."""
    expert = expert_policy(env, params) if workload.name == "pick-expert" else None
    step = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def one(carried: Carried, _: None) -> tuple[Carried, None]:
        key, obs, state = carried
        key, key_act, key_step = jax.random.split(key, 3)
        if expert is None:
            action = jax.random.uniform(key_act, (batch, env.num_actions), minval=-1.0)
        else:
            action = jax.vmap(expert, (0, None))(obs, key_act)
        obs, state, *_ = step(jax.random.split(key_step, batch), state, action, params)
        return (key, obs, state), None

    @jax.jit
    def program(key: Array, obs: Array, state: Any) -> Carried:
        return jax.lax.scan(one, (key, obs, state), length=STEPS)[0]

    keys = jax.random.split(jax.random.key(0), batch)
    obs, state = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(keys, params)
    length = int(np.asarray(params.max_steps_in_episode))
    # Episodes that end at different times.
    state = state.replace(time=jnp.arange(batch, dtype=state.time.dtype) % length)
    latest: list[Any] = [jax.random.key(1), obs, state]
    seconds = []
    for _ in range(-(-length // STEPS)):
        began = time.perf_counter()
        latest[:] = jax.block_until_ready(program(*latest))
        seconds.append(time.perf_counter() - began)
    return program, latest, max(0.0, seconds[0] - min(seconds[1:]))
