"""Many steps of hard use: whatever the actions are, nothing may break, grow or be compiled again.

Batches of environments with everything randomised, half of them with random actions, the others
with adversarial ones: full deflections that hold for a while and then reverse, numbers far out of
range, infinities and NaNs. Counts what must not happen; exits 1 if any of it did. The results are
in docs/reliability.md.

    python scripts/harden/soak.py --steps 100000000

Scenes in contact are given random forces, full ones that hold for a while and reverse, and some
thirty times too large:

    python scripts/harden/soak.py --ids --scenes cube grasp quadruped stack --steps 100000000
    python scripts/harden/soak.py --ids --accuracy-scenes --steps 190000000

Gradients, by actions and by the state before, of windows of random actions:

    python scripts/harden/soak.py --ids PandaReach-v0 UR10Reach-v0 --gradients --steps 2000000
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from rich.progress import Progress

import fraxenv
from fraxenv import dynamics
from fraxenv.dynamics.scene.step import scene_step
from fraxenv.errors import ConfigError
from fraxenv.making.make import load_env_config
from fraxenv.storage.files import write_atomic

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "shared"))

import contact_scenes

RANDOMISED = load_env_config("panda-reach-everything")["randomisation"]
HOLD = 16
"""Policy steps for which a full deflection lasts."""

SCENES = Path(__file__).parents[1] / "measure" / "benchmark" / "scenes"
ACCELERATION = 30.0
"""rad/s^2 or m/s^2, of each degree of freedom on its own, under the largest force."""
TOO_LARGE = 30.0
"""How much larger forces of some of the scenes are."""
FAST, DIVERGED = 300.0, 1e4
"""rad/s or m/s: beyond the one a scene begins anew; to have jumped beyond the other is an error."""
ANEW = 1e-3
"""Part of the other steps after which a scene begins anew."""

WINDOW = 8
"""Policy steps of a window through which gradients go."""
LEAN = 0.7
"""Standard deviation of each environment's lasting lean, in actions before tanh; of noise, too."""

NEVER = (
    "non-finite", "gradients lost", "gradients non-finite", "outside the space",
    "torque beyond limit", "unexplained divergence", "scene diverged",
)  # fmt: skip
COMPILED = "/jax/core/compile/backend_compile_duration"


@dataclass(frozen=True)
class Options:
    """Options of the soak."""

    ids: tuple[str, ...] = ("PandaReach-v0", "PandaReachObstacles-v0")
    """Environments, one after the other."""
    scenes: tuple[str, ...] = ()
    """Scenes in contact: names in scripts/measure/benchmark/scenes, or MJCF files."""
    accuracy_scenes: bool = False
    """Those of scripts/measure/contact_accuracy.py, too."""
    gradients: bool = False
    """Gradients of the environments by actions and state, instead of what steps return."""
    steps: int = 100_000_000
    """Steps of all of them together; of scenes, physics steps."""
    batch: int = 4096
    """Environments in a batch."""
    seed: int = 0
    """Seed of everything."""
    output: Path | None = None
    """A JSON file for the counts."""


def actions(key: Array, t: Array, shape: tuple[int, int]) -> Array:
    """Actions (n, k): random ones, full deflections, far out of range, and seldom not finite."""
    n, _ = shape
    key_kind, key_some, key_bad, key_which = jax.random.split(key, 4)
    drawn = jax.random.uniform(key_some, shape, minval=-1.0, maxval=1.0)
    # The same for HOLD steps, for each environment and axis another sign.
    held = jnp.sign(jax.random.uniform(jax.random.key(t // HOLD), shape, minval=-1.0))
    adversarial = jnp.where(jnp.arange(n)[:, None] % 4 == 3, 1e30 * held, held)
    action = jnp.where(jnp.arange(n)[:, None] % 2 == 0, drawn, adversarial)
    bad = jnp.array([jnp.nan, jnp.inf, -jnp.inf])[jax.random.randint(key_which, shape, 0, 3)]
    strikes = jax.random.uniform(key_bad, (n, 1)) < 1e-3
    one_axis = jax.random.uniform(key_kind, shape) < 0.3
    return jnp.where(strikes & one_axis, bad, action)


def soak(id: str, steps: int, options: Options, progress: Progress) -> dict[str, Any]:
    """Counts over that many steps of one environment."""
    env, params = fraxenv.make(id, randomisation=RANDOMISED)
    n, length = options.batch, 50
    limit = jnp.asarray(env.robot.effort_limits, jnp.float32)
    space = env.observation_space(params)

    @partial(jax.jit, donate_argnums=0)
    def roll(state: Any, key: Array, start: Array) -> tuple[Any, dict[str, Array]]:
        def step(state: Any, x: tuple[Array, Array]) -> tuple[Any, dict[str, Array]]:
            key, t = x
            key_action, key_step = jax.random.split(key)
            action = actions(key_action, t, (n, env.num_actions))
            obs, state, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
                jax.random.split(key_step, n), state, action, params
            )
            numbers = [x for x in jax.tree.leaves((obs, state, reward, info)) if _is_float(x)]
            finite = jnp.stack([jnp.all(_finite(x).reshape(n, -1), axis=1) for x in numbers]).all(
                axis=0
            )
            inside = jnp.all((obs >= space.low) & (obs <= space.high), axis=1)
            refused = ~jnp.all(jnp.isfinite(action), axis=1)
            beyond = jnp.any(jnp.abs(info["controller"]["torque"]) > limit, axis=1)
            return state, {
                "non-finite": jnp.sum(~finite),
                "outside the space": jnp.sum(~inside),
                "torque beyond limit": jnp.sum(beyond),
                "unexplained divergence": jnp.sum(info["diverged"] & ~refused),
                "actions refused": jnp.sum(refused),
                "episodes truncated": jnp.sum(truncated),
                "episodes terminated": jnp.sum(terminated),
                "filter intervened": jnp.sum(info["safety"]["intervened"]),
                "barrier below zero": jnp.sum(info["safety"]["min_barrier"] < 0),
            }

        times = start + jnp.arange(length)
        state, counts = jax.lax.scan(step, state, (jax.random.split(key, length), times))
        return state, jax.tree.map(jnp.sum, counts)

    key = jax.random.key(options.seed)
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(key, n), params)
    return _rounds(id, roll, state, key, steps, (n, length), progress)


def soak_gradients(id: str, steps: int, options: Options, progress: Progress) -> dict[str, Any]:
    """Counts and norms of gradients through windows of that many steps of one environment."""
    env, params = fraxenv.make(id)
    env = env.with_transition_gradients()
    n, rounds = options.batch, 25
    step = jax.vmap(env.step, (0, 0, 0, None))
    lean = LEAN * jax.random.normal(jax.random.key(options.seed + 1), (n, env.num_actions))

    def window(actions: Array, q: Array, v: Array, lost: Array, state: Any, key: Array) -> Any:
        own = params.replace(lost_gradients=lost)

        def one(state: Any, x: tuple[Array, Array]) -> tuple[Any, Array]:
            action, key = x
            obs, state, reward, *_, info = step(jax.random.split(key, n), state, action, own)
            return state, jnp.sum(reward) + jnp.sum(info["final_observation"]) / obs.shape[1]

        keys = jax.random.split(key, WINDOW)
        state, values = jax.lax.scan(one, state.replace(q=q, v=v), (actions, keys))
        return jnp.sum(values) + jnp.sum(state.q) + jnp.sum(state.v), state

    @partial(jax.jit, donate_argnums=0)
    def roll(state: Any, key: Array, start: Array) -> tuple[Any, dict[str, Array]]:
        def one(state: Any, key: Array) -> tuple[Any, Any]:
            key_action, key_step = jax.random.split(key)
            noise = jax.random.normal(key_action, (WINDOW, *lean.shape))
            actions = jnp.tanh(lean + LEAN * noise)
            found, new = jax.grad(window, (0, 1, 2, 3), has_aux=True)(
                actions, state.q, state.v, jnp.zeros(()), state, key_step
            )
            by_actions, by_state = jnp.moveaxis(found[0], 1, 0).reshape(n, -1), found[1:3]
            whole = jnp.concatenate([by_actions, *by_state], axis=1)
            # In two parts, whose squares do not overflow.
            largest = jnp.max(jnp.abs(whole), axis=1)
            unit = jnp.where(largest > 0, largest, 1.0)
            norm = unit * jnp.linalg.norm(whole / unit[:, None], axis=1)
            return new, (jnp.sum(~jnp.isfinite(norm)), found[3], norm)

        state, (bad, lost, norms) = jax.lax.scan(one, state, jax.random.split(key, rounds))
        counts = {"gradients non-finite": jnp.sum(bad), "gradients lost": jnp.sum(lost)}
        counts |= {f"norms above {x:,}": jnp.sum(norms > x) for x in (1000, 100_000)}
        counts |= {"largest norm": jnp.max(norms), "highest median norm": jnp.median(norms)}
        return state, counts

    key = jax.random.key(options.seed)
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(key, n), params)
    return _rounds(id, roll, state, key, steps, (n, rounds * WINDOW), progress)


def scenes(options: Options) -> dict[str, Path | str]:
    """MJCF files, or their text, by name."""
    paths = [Path(n) if n.endswith(".xml") else SCENES / f"{n}.xml" for n in options.scenes]
    named: dict[str, Path | str] = {path.stem: path for path in paths}
    if options.accuracy_scenes:
        accuracy = contact_scenes.SCENES | contact_scenes.SLOW
        named |= {f"accuracy: {name}": text for name, text in accuracy.items()}
    return named


def soak_scene(
    name: str, mjcf: Path | str, steps: int, options: Options, progress: Progress
) -> dict[str, Any]:
    """Counts over that many physics steps of one scene, from its keyframes on."""
    scene = dynamics.load_mjcf(mjcf)
    n, length = options.batch, 50
    keys = list(scene.keyframes.values())
    reference = np.asarray(scene.constraints.reference)
    at = [k.q for k in keys] or [reference]
    controls = [k.ctrl for k in keys] or [np.zeros(scene.nu)]
    begin = jnp.asarray(np.stack(at)[np.arange(n) % len(at)], jnp.float32)
    ctrl = jnp.asarray(np.stack(controls)[np.arange(n) % len(at)], jnp.float32)
    inertia = jnp.diagonal(dynamics.crba(scene.system, at[0]))
    large = jnp.where(jnp.arange(n) % 8 == 7, TOO_LARGE, 1.0)[:, None]
    largest = jnp.asarray(ACCELERATION * inertia, jnp.float32) * large

    def one(q: Array, v: Array, tau: Array, warm_start: Array, ctrl: Array) -> Any:
        q, v, solution = scene_step(scene, q, v, tau, None, warm_start, None, ctrl)
        return q, v, solution

    many = fraxenv.fuse(one)

    @partial(jax.jit, donate_argnums=0)
    def roll(state: Any, key: Array, start: Array) -> tuple[Any, dict[str, Array]]:
        def step(state: Any, x: tuple[Array, Array]) -> tuple[Any, dict[str, Array]]:
            (q, v, warm_start), (key, t) = state, x
            key_tau, key_anew = jax.random.split(key)
            drawn = jax.random.uniform(key_tau, v.shape, minval=-1.0)
            held = jnp.sign(jax.random.uniform(jax.random.key(t // HOLD), v.shape, minval=-1.0))
            tau = largest * jnp.where(jnp.arange(n)[:, None] % 2 == 0, drawn, held)
            q, v, s = many(q, v, tau, warm_start, ctrl)
            numbers = [x for x in jax.tree.leaves((q, v, s)) if _is_float(x)]
            finite = jnp.stack([jnp.isfinite(x).reshape(n, -1).all(axis=1) for x in numbers])
            finite = finite.all(axis=0)
            speed = jnp.max(jnp.abs(v), axis=1)
            diverged = ~(speed < DIVERGED)
            anew = ~(speed < FAST) | ~finite | (jax.random.uniform(key_anew, (n,)) < ANEW)
            # Not a number is not to be multiplied by zero.
            q = jnp.where(anew[:, None], begin, q)
            v, warm_start = (jnp.where(anew[:, None], 0, x) for x in (v, s.acceleration))
            return (q, v, warm_start), {
                "non-finite": jnp.sum(~finite),
                "scene diverged": jnp.sum(diverged),
                "begun anew": jnp.sum(anew),
                "not converged": jnp.sum(~s.converged),
                "in contact": jnp.sum(jnp.any(s.force != 0, axis=(1, 2))),
                "rounds": jnp.sum(s.rounds),
            }

        times = start + jnp.arange(length)
        state, counts = jax.lax.scan(step, state, (jax.random.split(key, length), times))
        return state, jax.tree.map(jnp.sum, counts)

    zero = jnp.zeros((n, scene.nv), jnp.float32)
    key = jax.random.key(options.seed)
    # Copies: they are given away.
    state = jax.tree.map(jnp.copy, (begin, zero, zero))
    return _rounds(name, roll, state, key, steps, (n, length), progress)


def _rounds(
    id: str,
    roll: Any,
    state: Any,
    key: Array,
    steps: int,
    shape: tuple[int, int],
    progress: Progress,
) -> dict[str, Any]:
    """Counts of `roll` over that many steps, `shape` (batch, steps) at a time."""
    n, length = shape
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event == COMPILED else None
    )
    rounds = -(-steps // (n * length))
    task = progress.add_task(id, total=rounds)
    total: dict[str, Any] = {}
    programs = memory = 0
    began = time.perf_counter()
    for k in range(rounds):
        state, counts = roll(state, jax.random.fold_in(key, k), jnp.int32(k * length))
        for name, count in counts.items():
            if name.endswith("norm"):
                total[name] = max(total.get(name, 0), round(float(count), 1))
            else:
                total[name] = total.get(name, 0) + int(count)
        progress.update(task, advance=1)
        if k == 1:  # by then everything has been compiled and laid out
            programs, memory = len(compiled), _memory()
    return {
        "id": id,
        "steps": rounds * n * length,
        **total,
        "programs compiled after the second round": len(compiled) - programs if rounds > 1 else 0,
        "memory grown, MiB": round(_memory() - memory, 1) if rounds > 1 else 0.0,
        "seconds": round(time.perf_counter() - began, 1),
    }


def _is_float(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def _finite(x: Array) -> Array:
    # A barrier that does not exist is infinitely far away.
    return jnp.isfinite(x) | (x == jnp.inf)


def _memory() -> float:
    """Largest resident memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options, args=argv)
    named = scenes(options)
    if not options.ids and not named:
        raise ConfigError("--ids and --scenes are both empty, expected one name at least.")
    share = -(-options.steps // (len(options.ids) + len(named)))
    with Progress(transient=True) as progress:
        run = soak_gradients if options.gradients else soak
        results = [run(id, share, options, progress) for id in options.ids]
        results += [
            soak_scene(name, mjcf, share, options, progress) for name, mjcf in named.items()
        ]
    for r in results:
        print(", ".join([r["id"], *(f"{name} {n:,}" for name, n in r.items() if name != "id")]))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(options.output, json.dumps(results, indent=2).encode())
        print(f"Written to {options.output}")
    never = (*NEVER, "programs compiled after the second round")
    broken = [f"{r['id']}: {name}: {r[name]}" for r in results for name in never if r.get(name)]
    broken += [
        f"{r['id']}: memory grew by {r['memory grown, MiB']} MiB"
        for r in results
        if r["memory grown, MiB"] > 64
    ]
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
