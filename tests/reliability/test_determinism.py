"""The same numbers give the same bits: in every process, batch, position and number of threads.

As a script this is what the other processes run: `digests CASE SIZE [PROCESSOR]` prints a digest of
what each environment of a batch did, `positions BACKEND FILE [PROCESSOR]` saves how arms moved.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from contact_motion import MOST as MOST_SCENES
from contact_motion import SCENES, motion
from hypothesis import given, settings
from hypothesis import strategies as st
from pushing import Push, scene_of_arm
from support import bits, with_slow

import fraxenv
from fraxenv.kernels import get_threads, set_threads
from fraxenv.making.make import load_env_config

OVERRIDES: dict[str, Any] = {
    "control_hz": 100,
    "physics_hz": 100,
    "max_steps_in_episode": 4,
    "randomisation": {
        "link_mass": (0.8, 1.2),
        "observation_noise": 0.01,
        "action_delay": (0.0, 0.04),
    },
}
CHEAP = {**OVERRIDES, "action": "torque"}
BACKENDS = ("native", "xla", "pallas", "vmap")
EVERYTHING = load_env_config("panda-reach-everything")["randomisation"]
CASES: dict[str, dict[str, Any]] = {
    "native": {"id": "PandaReach-v0", "backend": "native", **OVERRIDES},
    "everything": {
        "id": "PandaReachObstacles-v0",
        "backend": "native",
        "max_steps_in_episode": 4,
        "randomisation": EVERYTHING,
    },
    "scene": {
        "robot": scene_of_arm(),
        "task": Push(),
        "action": "joint_velocity",
        "backend": "native",
        "max_steps_in_episode": 4,
        "randomisation": {"link_mass": (0.8, 1.2), "observation_noise": 0.01},
    },
    **{b: {"id": "PandaReach-v0", "backend": b, **CHEAP} for b in BACKENDS[1:]},
}
MOST, STEPS = 300, 6

# x86 processors older than this: what XLA calls them, and what LLVM says that they have.
PROCESSORS: dict[str, tuple[str, dict[str, bool]]] = {}
if platform.machine() in ("x86_64", "AMD64"):
    PROCESSORS = {
        "haswell": ("AVX2", {"avx": True, "avx2": True, "fma": True}),
        "nehalem": ("SSE4_2", {}),
    }


def rollout(case: str, rows: Any, steps: int = STEPS) -> dict[str, np.ndarray]:
    """What environments of these numbers do, whose keys and actions depend on them alone.

    Of one of `SCENES`, what its physics does, in contact or not.
    """
    if case in SCENES:
        return bits(motion(case, rows))
    env, params = fraxenv.make(**CASES[case])
    keys = jax.random.split(jax.random.key(0), MOST)[np.asarray(rows)]
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    step = _stepper(env)
    returned = {}
    for t in range(steps):
        shape = (MOST, env.num_actions)
        action = jax.random.uniform(jax.random.key(t), shape, minval=-1.0)[np.asarray(rows)]
        obs, state, *rest = step(keys, state, action, params)
        returned |= {f"{t}{name}": x for name, x in bits((obs, state, rest)).items()}
    return returned


def _stepper(env: Any) -> Any:
    return jax.jit(jax.vmap(env.step, (0, 0, 0, None)))


def digests(returned: dict[str, np.ndarray]) -> list[str]:
    """One for each environment."""
    names = sorted(returned)
    size = len(returned[names[0]])
    return [
        hashlib.sha256(b"".join(returned[n][i].tobytes() for n in names)).hexdigest()
        for i in range(size)
    ]


@pytest.fixture
def threads() -> Iterator[None]:
    before = get_threads()
    yield
    set_threads(before)


def elsewhere(*arguments: object, **environment: str) -> str:
    """The last line that another process, given these arguments, prints."""
    path = [str(Path(__file__).parents[1] / "shared"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def digests_elsewhere(*arguments: object, **environment: str) -> list[str]:
    """See `digests`: of a case and a size, in another process."""
    result: list[str] = json.loads(elsewhere("digests", *arguments, **environment))
    return result


@pytest.mark.slow
def test_batches_threads_and_processes(threads: None) -> None:
    whole = rollout("native", range(MOST))
    for count in (1, 3):
        set_threads(count)
        for cut in (slice(299, 300), slice(17, 54), slice(None, None, -1)):
            part = rollout("native", range(MOST)[cut])
            for name, value in whole.items():
                np.testing.assert_array_equal(part[name], value[cut], err_msg=f"{cut} {name}")
    expected = digests(rollout("native", range(40)))
    assert len(set(expected)) == 40
    # A kernel of its own making instead of the cache's, and another batch and number of threads.
    found = digests_elsewhere("native", 17, FRAXENV_THREADS="3", FRAXENV_CACHE="0")
    assert found == expected[:17]


@pytest.mark.parametrize("scene", with_slow(SCENES, *SCENES[1:]))
def test_batches_and_threads_in_contact(scene: str, threads: None) -> None:
    """Solvers take rounds of their own; one beside others, or after others in a lane, is alone."""
    set_threads(1)
    whole = rollout(scene, range(MOST_SCENES))
    backwards = range(MOST_SCENES)[::-1]
    scattered = np.random.default_rng(1).permutation(MOST_SCENES)
    for count in (1, 2):
        set_threads(count)
        for rows in ([1234], range(17, 24), scattered[:64], backwards):
            part = rollout(scene, rows)
            for name, value in whole.items():
                where = f"{count} threads, {len(rows)}, {name}"
                np.testing.assert_array_equal(part[name], value[np.asarray(rows)], err_msg=where)


@pytest.mark.slow
def test_batches_threads_and_processes_of_a_scene(threads: None) -> None:
    """Whole episodes, resets and randomisation included."""
    expected = digests(rollout("scene", range(MOST)))
    assert len(set(expected)) == MOST
    for count, rows in ((1, [299]), (2, range(17, 54)), (2, range(MOST)[::-1])):
        set_threads(count)
        assert digests(rollout("scene", rows)) == [expected[i] for i in rows]
    found = digests_elsewhere("scene", 17, FRAXENV_THREADS="2", FRAXENV_CACHE="0")
    assert found == expected[:17]


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_others_are_the_same_in_a_batch_of_the_same_size(backend: str) -> None:
    """In another size they need not be: XLA compiles another program, which rounds elsewhere."""
    assert digests_elsewhere(backend, 40) == digests(rollout(backend, range(40)))


@pytest.mark.slow
@pytest.mark.skipif("haswell" not in PROCESSORS, reason="older x86 processors are meant")
def test_processors() -> None:
    """With everything randomised and the filter on, where multiplications and additions fuse."""
    assert digests_elsewhere("everything", 40, "haswell") == digests(
        rollout("everything", range(40))
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", ["scene", *SCENES])
@pytest.mark.skipif("haswell" not in PROCESSORS, reason="older x86 processors are meant")
def test_processors_in_contact(case: str) -> None:
    assert digests_elsewhere(case, 70, "haswell") == digests(rollout(case, range(70)))


@pytest.mark.slow
def test_saved_at_any_step(tmp_path: Path) -> None:
    env, params = fraxenv.make("PandaReach-v0", backend="native", **OVERRIDES)
    n, steps = 40, 12
    keys = jax.random.split(jax.random.key(0), n)
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    step = _stepper(env)
    actions = jax.random.uniform(jax.random.key(1), (steps, n, env.num_actions), minval=-1.0)
    states, returned = [state], []
    for action in actions:
        returned.append(step(keys, states[-1], action, params))
        states.append(returned[-1][1])

    @given(st.integers(0, steps - 1))
    @settings(max_examples=8)
    def saved_at(t: int) -> None:
        fraxenv.save_state(tmp_path / "s.npz", env, states[t], params)
        state, loaded, _ = fraxenv.load_state(tmp_path / "s.npz", env, params)
        for action, expected in zip(actions[t:], returned[t:], strict=True):
            found = step(keys, state, action, loaded)
            state = found[1]
            for name, value in bits(expected).items():
                np.testing.assert_array_equal(bits(found)[name], value, err_msg=name)

    saved_at()


@pytest.mark.slow
def test_between_executors_processors_and_devices(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Not to the bit: prints by how much positions differ, as docs/reliability.md has it."""
    with jax.default_device(jax.devices("cpu")[0]):
        found = {backend: positions(backend) for backend in BACKENDS}
    if (other := jax.devices()[0].platform) != "cpu":
        found |= {f"{backend}, {other}": positions(backend) for backend in BACKENDS[1:]}
    file = tmp_path / "q.npy"
    for processor, (isa, _) in PROCESSORS.items():
        for backend in ("native", "vmap"):
            flags = f"--xla_cpu_max_isa={isa}"
            cpu = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
            elsewhere("positions", backend, file, processor, **cpu)
            found[f"{backend}, {processor}"] = np.load(file)
    with capsys.disabled():
        print("\ndifference of joint positions from vmap, rad: largest, median of 256 arms")
        for name, q in found.items():
            error = np.abs(q - found["vmap"]).max(axis=2)
            shown = [f"{error[t].max():.1e} {np.median(error[t]):.1e}" for t in (0, 9, 99)]
            print(f"{name:15s} after 1, 10 and 100 steps: {', '.join(shown)}")
            assert error[0].max() < 1e-5
            assert np.median(error[99]) < 1e-3


def positions(backend: str, n: int = 256, steps: int = 100) -> np.ndarray:
    """(steps, n, 7), float64: of arms under random torques, from the same states everywhere."""
    actions = jax.random.uniform(jax.random.key(1), (steps, n, 7), minval=-0.1, maxval=0.1)
    env, params = fraxenv.make("PandaReach-v0", backend=backend, action="torque", **RATES)
    keys = jax.random.split(jax.random.key(0), n)
    reset = fraxenv.make("PandaReach-v0", backend="vmap", action="torque", **RATES)[0].reset
    _, state = jax.jit(jax.vmap(reset, (0, None)))(keys, params)
    step, rows = _stepper(env), []
    for action in actions:
        _, state, *_ = step(keys, state, action, params)
        rows.append(np.asarray(state.q, float))
    return np.stack(rows)


RATES: dict[str, Any] = {"control_hz": 100, "physics_hz": 100, "max_steps_in_episode": 1000}


def pretend(processor: str) -> None:
    """LLVM shall compile for another processor than this."""
    import llvmlite.binding as llvm

    features = llvm.FeatureMap(PROCESSORS[processor][1])
    llvm.get_host_cpu_name = lambda: processor
    llvm.get_host_cpu_features = lambda: features


if __name__ == "__main__":
    what, subject, argument, *processor = sys.argv[1:]
    if processor:
        pretend(*processor)
    if what == "digests":
        print(json.dumps(digests(rollout(subject, range(int(argument))))))
    else:
        np.save(argument, positions(subject))
        print()
