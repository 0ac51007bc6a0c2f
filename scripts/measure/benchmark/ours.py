"""fraxenv's executors, and C of the program that they run."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import fraxenv
from fraxenv import controllers, dynamics, kernels

from . import contact, manipulation
from .c_limit import CProgram
from .contenders import Case, Prepare
from .ids import REFERENCE
from .jax_peers import TIMESTEP, dynamics_case
from .workloads import Workload, inputs, robot

ROLLOUT = 10
"""Environment steps in one call."""

WINDOW = 32
"""Environment steps of the rollout that is differentiated."""


def function(workload: Workload) -> Callable[..., Any]:
    """The workload as a function of one robot's arrays."""
    model = robot(workload.robot)
    osc, actuators = controllers.OSC("hand"), dynamics.Actuators()

    def osc_torque(terms: Any, position: Array, rotation: Array) -> Array:
        target, state = controllers.PoseTarget(position, rotation), osc.init(model, terms)
        tau, _, _ = osc(model, terms, target, state, TIMESTEP)
        applied, _, _ = actuators(model, tau, terms.v, dynamics.ActuatorState(), TIMESTEP)
        return applied

    def osc_(q: Array, v: Array, position: Array, rotation: Array) -> Array:
        return osc_torque(dynamics.compute_terms(model, q, v), position, rotation)

    def control_step(q: Array, v: Array, position: Array, rotation: Array) -> Any:
        terms = dynamics.compute_terms(model, q, v)
        tau = osc_torque(terms, position, rotation)
        return dynamics.step(model, q, v, tau, TIMESTEP, terms=terms)

    def stepped(q: Array, v: Array, tau: Array) -> Array:
        return sum(map(jnp.sum, dynamics.step(model, q, v, tau, TIMESTEP)), jnp.zeros((), q.dtype))

    return {
        "gradient_step": jax.grad(stepped, (0, 1, 2)),
        "forward_dynamics": functools.partial(dynamics.forward_dynamics, model),
        "rnea": functools.partial(dynamics.rnea, model),
        "crba": functools.partial(dynamics.crba, model),
        "osc": osc_,
        "control_step": control_step,
    }[workload.quantity]


def executor(backend: str) -> Prepare:
    """One of fraxenv's executors."""
    os.environ["FRAXENV_BACKEND"] = backend  # for Gymnasium's environments

    def prepare(workload: Workload, batch: int, threads: int) -> Case:
        kernels.set_threads(threads)
        if workload.quantity in ("environment", "memory"):
            return _rollout(workload, backend, batch)
        if workload.quantity == "gradient_rollout":
            return _gradient_rollout(backend, batch)
        if workload.quantity == "contact":
            return contact.ours(backend, workload, batch)
        if workload.quantity == "pick":
            return manipulation.ours(backend, workload, batch)
        if workload.quantity == "gymnasium":
            return _gymnasium()
        case = dynamics_case(workload, batch, kernels.fuse(function(workload), backend))
        if backend != "vmap":
            case.operations = lambda: _operations(backend, workload)
        return case

    return prepare


@functools.cache
def _operations(backend: str, workload: Workload) -> float | None:
    arguments = [jnp.asarray(x, jnp.float32) for x in inputs(workload, 1)]
    return kernels.explain(function(workload), backend)(*arguments).operations_run or None


def _rollout(workload: Workload, backend: str, batch: int) -> Case:
    """Steps with random actions within one program, new keys at each step."""
    env, params = fraxenv.make(REFERENCE, backend=backend)
    steps = 100 if workload.quantity == "memory" else ROLLOUT
    step = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def run(key: Array, state: Any, actions: Array, params: Any) -> tuple[Array, Any]:
        def one(carry: Any, _: None) -> tuple[Any, None]:
            key, state, total = carry
            key, now = jax.random.split(key)
            _, state, reward, *_ = step(jax.random.split(now, batch), state, actions, params)
            return (key, state, total + reward), None

        start = (key, state, jnp.zeros(batch))
        (_, state, total), _ = jax.lax.scan(one, start, None, length=steps)
        return total, state.q if workload.quantity == "environment" else ()

    keys = jax.random.split(jax.random.key(0), batch)
    _, state = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(keys, params)
    drawn = np.random.default_rng(0).uniform(-1, 1, (batch, env.num_actions))
    arguments = (jax.random.key(1), state, jnp.asarray(drawn, jnp.float32), params)
    program = jax.jit(run)
    latest: list[Any] = []

    def call() -> None:
        latest[:] = jax.block_until_ready(program(*arguments))

    result = None if workload.quantity == "memory" else lambda: np.asarray(latest[1])
    note = f"{env.control_hz // env.policy_hz} control steps at {env.control_hz} Hz each"
    case = Case(call, result, batch * steps, note=note)
    if backend == "native":  # XLA takes minutes, and this would compile once more
        case.operations = _step_operations
    return case


def _gradient_rollout(backend: str, batch: int) -> Case:
    """What a learner by gradients does: a mean return by the weights of a 64-64 network."""
    env, params = fraxenv.make(REFERENCE, backend=backend)
    env = env.with_transition_gradients()
    step = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def cost(weights: Any, key: Array, obs: Array, state: Any) -> Array:
        def one(carry: Any, key: Array) -> Any:
            x, state = carry
            for w in weights[:-1]:
                x = jnp.tanh(x @ w)
            actions = jnp.tanh(x @ weights[-1])
            obs, state, reward, *_ = step(jax.random.split(key, batch), state, actions, params)
            return (obs, state), jnp.mean(reward)

        _, rewards = jax.lax.scan(one, (obs, state), jax.random.split(key, WINDOW))
        return -jnp.sum(rewards)

    keys = jax.random.split(jax.random.key(0), batch)
    obs, state = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(keys, params)
    draw, sizes = np.random.default_rng(0), (obs.shape[1], 64, 64, env.num_actions)
    weights = [
        jnp.asarray(draw.normal(size=(m, n)) / np.sqrt(m), jnp.float32)
        for m, n in itertools.pairwise(sizes)
    ]
    program = jax.jit(jax.value_and_grad(cost))

    def call() -> None:
        jax.block_until_ready(program(weights, jax.random.key(1), obs, state))

    return Case(call, None, batch * WINDOW)


@functools.cache
def _step_operations() -> float:
    """Of one environment step."""
    env, params = fraxenv.make(REFERENCE, backend="native")
    keys = jax.random.split(jax.random.key(0), 1)
    _, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    explain = kernels.explain(env.step, "native", in_axes=(0, 0, 0, None))
    return explain(keys, state, jnp.zeros((1, env.num_actions)), params).operations_run


def _gymnasium() -> Case:
    import gymnasium

    env = gymnasium.make(f"{fraxenv.making.registry.NAMESPACE}/{REFERENCE}")
    env.reset(seed=0)
    action = env.action_space.sample()

    def call() -> None:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()

    return Case(call, None, 1)


def c() -> Prepare:
    """C of the folded program, by gcc."""
    compiled: dict[str, CProgram] = {}

    def prepare(workload: Workload, batch: int, threads: int) -> Case:
        arrays = [x.astype(np.float32) for x in inputs(workload, batch)]
        if workload.name not in compiled:
            compiled[workload.name] = CProgram.best(function(workload), [x[0] for x in arrays])
        program = compiled[workload.name]
        packed, out = program.pack(arrays), program.output(batch)
        used = program.best_threads(packed, out, threads)
        return Case(
            lambda: program(packed, out, used),
            lambda: program.unpack(out)[:batch],
            batch,
            compile_seconds=program.compile_seconds,
            operations=lambda: program.operations,
            note=f"gcc {program.flags}, arrays in blocks of {program.lanes}",
        )

    return prepare
