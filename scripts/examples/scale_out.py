"""Train one policy on all devices of one machine or of several, or measure how steps scale.

    python scripts/examples/scale_out.py                             # all devices of this machine
    XLA_FLAGS=--xla_force_host_platform_device_count=4 python scripts/examples/scale_out.py
    python scripts/examples/scale_out.py --launch 2                  # two processes, a core each
    python scripts/examples/scale_out.py --measure --launch 1 2      # environment steps/s of both
    python scripts/examples/scale_out.py --coordinator host:1234 --processes 8 --process-id 0
    python scripts/examples/scale_out.py --help

Proximal policy optimisation with data parallelism: every device has its share of the environments
and a copy of the policy; gradients are averaged over all of them. What an environment draws depends
on its number alone, so that the result is that of one device, to rounding. Needs the extra `train`.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from jax import Array
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import fraxenv
from fraxenv.storage.files import read_metadata
from fraxenv.storage.pytrees import save_pytree

STEPS, EPOCHS, MINIBATCHES = 32, 4, 8  # of an update
GAMMA, LAMBDA, CLIP, VALUE_WEIGHT = 0.95, 0.9, 0.2, 0.5
HIDDEN = 64
OPTIMISER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3, eps=1e-5))
EVERYWHERE, SHARDED = P(), P("devices")
MEASURED_STEPS = 100
REPORT_EVERY = 10  # updates


@dataclass(frozen=True)
class Options:
    """Train on all devices, or measure.

    Attributes:
        env: id of the environment.
        num_envs: of all processes and devices together.
        updates: of the policy, each of 32 steps of all environments; of --measure, repetitions.
        seed: decides everything that is drawn.
        measure: take random actions, and report environment steps/s.
        coordinator: address of process 0, host:port, if there are several processes.
        processes: how many there are.
        process_id: which of them this is.
        launch: start this many processes here, each on a core of its own; several numbers one after
            the other, to compare them.
        output: file for the weights and the environments' states at the end.
    """

    env: str = "PandaReach-v0"
    num_envs: int = 256
    updates: int = 120
    seed: int = 0
    measure: bool = False
    coordinator: str | None = None
    processes: int = 1
    process_id: int = 0
    launch: tuple[int, ...] = ()
    output: Path | None = None


class Envs(NamedTuple):
    """A device's environments: their numbers, states and observations."""

    ids: Array
    state: Any
    obs: Array


class Learner(NamedTuple):
    """What all devices hold alike."""

    weights: Any
    optimiser: Any


class Batch(NamedTuple):
    """What an update learns from, (STEPS, environments, ...) each."""

    obs: Array
    action: Array
    log_prob: Array
    advantage: Array
    value: Array


# --- environments ---


def keys_of(key: Array, t: Array | int, ids: Array) -> Array:
    """A key for every environment, whichever device it is on."""
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, t), ids)


def begin(env: Any, params: Any, key: Array, count: int) -> Envs:
    """The first states of a device's `count` environments."""
    ids = jax.lax.axis_index("devices") * count + jnp.arange(count)
    obs, state = jax.vmap(env.reset_env, (0, None))(keys_of(key, 0, ids), params)
    return Envs(ids, state, obs)


def take_steps(
    env: Any, params: Any, envs: Envs, key: Array, steps: int, act: Callable[[Array, Array], Any]
) -> tuple[Envs, Any]:
    """Steps of a device's environments, and what `act` and they returned.

    `act` gives the action of one environment, and anything to keep, for a key and an observation.
    """

    def one(envs: Envs, t: Array) -> tuple[Envs, Any]:
        keys = jax.vmap(jax.random.split)(keys_of(key, t, envs.ids))
        action, kept = jax.vmap(act)(keys[:, 0], envs.obs)
        obs, state, *returned = jax.vmap(env.step, (0, 0, 0, None))(
            keys[:, 1], envs.state, action, params
        )
        return Envs(envs.ids, state, obs), (envs.obs, action, kept, *returned)

    return jax.lax.scan(one, envs, jnp.arange(steps))


# --- the policy ---


def initial_weights(key: Array, sizes: tuple[int, int]) -> Any:
    """Of the policy's network, and of the value's."""
    observations, actions = sizes

    def network(key: Array, outputs: int, last: float) -> list[tuple[Array, Array]]:
        widths = (observations, HIDDEN, HIDDEN, outputs)
        scales = (2**0.5, 2**0.5, last)
        return [
            (jax.nn.initializers.orthogonal(s)(k, (n, m)), jnp.zeros(m))
            for k, n, m, s in zip(
                jax.random.split(key, 3), widths, widths[1:], scales, strict=False
            )
        ]

    key_policy, key_value = jax.random.split(key)
    return {
        "policy": network(key_policy, actions, 0.01),
        "log_std": jnp.zeros(actions),
        "value": network(key_value, 1, 1.0),
    }


def apply(network: list[tuple[Array, Array]], x: Array) -> Array:
    *hidden, (w, b) = network
    for v, c in hidden:
        x = jnp.tanh(x @ v + c)
    return x @ w + b


def log_prob(weights: Any, obs: Array, action: Array) -> Array:
    z = (action - apply(weights["policy"], obs)) / jnp.exp(weights["log_std"])
    return jnp.sum(-0.5 * z**2 - weights["log_std"] - 0.5 * jnp.log(2 * jnp.pi), -1)


def value(weights: Any, obs: Array) -> Array:
    return apply(weights["value"], obs)[..., 0]


# --- one update, as each device computes it ---


def update(
    env: Any, params: Any, key: Array, learner: Learner, envs: Envs, index: Array
) -> tuple[Learner, Envs, dict[str, Array]]:
    """Collect steps and learn from them."""
    key = jax.random.fold_in(key, 1 + index)

    def act(key: Array, obs: Array) -> tuple[Array, Array]:
        noise = jax.random.normal(key, learner.weights["log_std"].shape)
        mean = apply(learner.weights["policy"], obs)
        action = mean + jnp.exp(learner.weights["log_std"]) * noise
        return action, log_prob(learner.weights, obs, action)

    envs, (obs, action, logs, reward, terminated, truncated, info) = take_steps(
        env, params, envs, key, STEPS, act
    )
    done = terminated | truncated
    values = value(learner.weights, obs)
    # An episode that only ran out of time would have gone on from its own last observation.
    after = jnp.where(terminated, 0.0, value(learner.weights, info["final_observation"]))
    advantage = advantages(reward + GAMMA * after - values, done)
    batch = Batch(obs, action, logs, advantage, advantage + values)
    learner = learn(learner, batch, jax.random.fold_in(key, STEPS))
    sums = jnp.stack([jnp.mean(reward), jnp.mean(done), jnp.mean(done & info["success"])])
    reward, ended, success = jax.lax.pmean(sums, "devices")
    return learner, envs, {"reward": reward, "ended": ended, "success": success}


def advantages(delta: Array, done: Array) -> Array:
    """Generalised advantage estimates (STEPS, environments); Schulman et al., ICLR 2016."""

    def back(following: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, done = step
        own = delta + GAMMA * LAMBDA * jnp.where(done, 0.0, following)
        return own, own

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, done), reverse=True)[1]


def learn(learner: Learner, batch: Batch, key: Array) -> Learner:
    """Several epochs of minibatches, each some of the steps of all environments of all devices."""

    def one(learner: Learner, steps: Array) -> tuple[Learner, None]:
        gradient = jax.grad(loss)(learner.weights, jax.tree.map(lambda x: x[steps], batch))
        # One vector: between processes every message costs its latency.
        vector, back = ravel_pytree(gradient)
        gradient = back(jax.lax.pmean(vector, "devices"))
        change, optimiser = OPTIMISER.update(gradient, learner.optimiser)
        return Learner(optax.apply_updates(learner.weights, change), optimiser), None

    mean = jax.lax.pmean(jnp.mean(batch.advantage), "devices")
    variance = jax.lax.pmean(jnp.mean((batch.advantage - mean) ** 2), "devices")
    batch = batch._replace(advantage=(batch.advantage - mean) / jnp.sqrt(variance + 1e-8))
    orders = [jax.random.permutation(k, STEPS) for k in jax.random.split(key, EPOCHS)]
    steps = jnp.concatenate(orders).reshape(EPOCHS * MINIBATCHES, -1)
    return jax.lax.scan(one, learner, steps)[0]


def loss(weights: Any, batch: Batch) -> Array:
    """The clipped objective and the value's error; Schulman et al., arXiv:1707.06347."""
    ratio = jnp.exp(log_prob(weights, batch.obs, batch.action) - batch.log_prob)
    gain = jnp.minimum(
        ratio * batch.advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * batch.advantage
    )
    error = (value(weights, batch.obs) - batch.value) ** 2
    return jnp.mean(VALUE_WEIGHT * error - gain)


# --- on all devices ---


def on_devices(function: Callable[..., Any], mesh: Mesh, ins: Any, outs: Any) -> Any:
    """Compile what each device computes."""
    sharded = jax.shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)
    return jax.jit(sharded)


def train(options: Options, mesh: Mesh) -> tuple[Any, Envs, float]:
    """The weights, the environments, and environment steps/s."""
    env, params = fraxenv.make(options.env)
    count = options.num_envs // mesh.size

    def start() -> tuple[Learner, Envs]:
        key = jax.random.key(options.seed)
        envs = begin(env, params, key, count)
        weights = initial_weights(key, (envs.obs.shape[-1], env.num_actions))
        return Learner(weights, OPTIMISER.init(weights)), envs

    def go_on(learner: Learner, envs: Envs, index: Array) -> Any:
        return update(env, params, jax.random.key(options.seed), learner, envs, index)

    learner, envs = on_devices(start, mesh, (), (EVERYWHERE, SHARDED))()
    ins = (EVERYWHERE, SHARDED, EVERYWHERE)
    outs = (EVERYWHERE, SHARDED, EVERYWHERE)
    step = on_devices(go_on, mesh, ins, outs)
    speeds: list[float] = []
    recent: list[dict[str, float]] = []
    for index in range(options.updates):
        began = time.perf_counter()
        learner, envs, metrics = step(learner, envs, np.int32(index))
        recent.append({name: float(x) for name, x in metrics.items()})
        speeds.append(STEPS * options.num_envs / (time.perf_counter() - began))
        if len(recent) == REPORT_EVERY or index + 1 == options.updates:
            report((index + 1) * STEPS * options.num_envs, speeds[-1], recent)
            recent.clear()
    return learner.weights, envs, float(np.median(speeds))


def measure(options: Options, mesh: Mesh) -> tuple[Any, Envs, float]:
    """No weights, the environments after random actions, and environment steps/s."""
    env, params = fraxenv.make(options.env)
    space = env.action_space(params)
    begin_all = functools.partial(
        begin, env, params, jax.random.key(options.seed), options.num_envs // mesh.size
    )

    def go_on(envs: Envs, index: Array) -> tuple[Envs, Array]:
        key = jax.random.fold_in(jax.random.key(options.seed), 1 + index)
        act = lambda key, obs: (space.sample(key), None)  # noqa: E731
        envs, (*_, reward, _, _, _) = take_steps(env, params, envs, key, MEASURED_STEPS, act)
        return envs, jax.lax.pmean(jnp.mean(reward), "devices")

    envs = on_devices(begin_all, mesh, (), SHARDED)()
    step = on_devices(go_on, mesh, (SHARDED, EVERYWHERE), (SHARDED, EVERYWHERE))
    speeds = []
    for index in range(options.updates):
        began = time.perf_counter()
        envs, reward = step(envs, np.int32(index))
        float(reward)
        speeds.append(MEASURED_STEPS * options.num_envs / (time.perf_counter() - began))
    return {}, envs, float(np.median(speeds[1:] or speeds))


def report(steps: int, speed: float, recent: list[dict[str, float]]) -> None:
    """Print how the last updates went; successes are those of episodes that ended in them."""
    sums = {name: sum(metrics[name] for metrics in recent) for name in recent[0]}
    success = 100 * sums["success"] / sums["ended"] if sums["ended"] else float("nan")
    say(
        f"{steps:>10,} steps  {speed:>9,.0f} steps/s  reward {sums['reward'] / len(recent):7.3f}"
        f"  success {success:5.1f} %"
    )


def say(text: str) -> None:
    """Print once, not once per process."""
    if jax.process_index() == 0:
        print(text, flush=True)


def join(options: Options) -> None:
    """Join the other processes, if there are any; before anything touches a device."""
    if options.coordinator is not None:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(options.coordinator, options.processes, options.process_id)


def main(options: Options) -> None:
    join(options)
    mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    if options.num_envs % mesh.size:
        sys.exit(f"--num-envs {options.num_envs} is not a multiple of the {mesh.size} devices.")
    say(f"{mesh.size} devices, {jax.process_count()} processes, {options.num_envs} environments")
    weights, envs, speed = (measure if options.measure else train)(options, mesh)
    say(f"{speed:,.0f} environment steps/s")
    if options.output is not None:
        tree = gathered(weights, envs)
        if jax.process_index() == 0:
            save_pytree(options.output, tree, {"steps_per_second": speed})


def gathered(weights: Any, envs: Envs) -> dict[str, Any]:
    """Weights, states and observations of all processes, as NumPy's."""
    states = multihost_utils.process_allgather((envs.state, envs.obs), tiled=True)
    return {"weights": jax.device_get(weights), "envs": states}


def launch(options: Options, arguments: list[str]) -> None:
    """Run this program as several processes on this machine, a core for each, and compare."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    speeds: list[float] = []
    for count in options.launch:
        if cores is not None and count > len(cores):
            sys.exit(f"--launch {count} wants a core for each process, and there are {len(cores)}.")
        with tempfile.TemporaryDirectory() as folder:
            output = options.output or Path(folder) / "result.npz"
            command = [sys.executable, __file__, *arguments, "--output", str(output)]
            run(count, command, cores)
            speeds.append(float(read_metadata(output)["steps_per_second"]))
    for count, speed in zip(options.launch, speeds, strict=True):
        ratio = speed / speeds[0]
        print(f"{count} processes: {speed:,.0f} environment steps/s, {ratio:.2f} x the first")


def run(count: int, command: list[str], cores: list[int] | None) -> None:
    """Run a command as `count` processes that know of each other; exits if one of them fails."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    processes = []
    for index in range(count):
        own = ["--coordinator", coordinator, "--processes", str(count), "--process-id", str(index)]
        pin = functools.partial(os.sched_setaffinity, 0, {cores[index]}) if cores else None
        processes.append(subprocess.Popen([*command, *own], preexec_fn=pin))
    try:
        codes = [None] * count
        while None in codes and not any(codes):
            time.sleep(0.05)
            codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(codes):
        sys.exit(f"A process ended with {next(code for code in codes if code)}.")


if __name__ == "__main__":
    given = tyro.cli(Options, description=__doc__)
    if given.launch:
        rest = [f"--env={given.env}", f"--num-envs={given.num_envs}", f"--seed={given.seed}"]
        rest += [f"--updates={given.updates}", *(["--measure"] if given.measure else [])]
        launch(given, rest)
    else:
        main(given)
