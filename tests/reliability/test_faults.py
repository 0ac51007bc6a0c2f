"""What breaks from outside: killed processes, full disks, read-only folders, what is missing.

Shared and damaged kernel caches are in tests/kernels/native/test_cache.py, a machine without
OpenGL in tests/fraxenv/rendering/test_rendering.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fraxenv
from fraxenv.cli import main
from fraxenv.errors import CheckpointError
from fraxenv.storage.files import read_metadata
from fraxenv.training import PPOConfig, load_policy, read_metrics, save_config, train

posix = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")
ROUND = 64
SMALL = PPOConfig(
    overrides={
        "control_hz": 50,
        "physics_hz": 50,
        "max_steps_in_episode": 10,
        "action": "torque",
    },
    total_timesteps=100_000 * ROUND,
    num_envs=8,
    num_steps=8,
    num_epochs=1,
    num_minibatches=2,
    updates_per_round=1,
    hidden_layer_sizes=(8,),
    eval_episodes=2,
    final_episodes=2,
)
TRAIN = [sys.executable, "-m", "fraxenv", "train"]


def started(run: Path, **options: Any) -> subprocess.Popen[str]:
    """The command line that begins or goes on with a run."""
    if not (run.parent / "small.yaml").exists():
        save_config(run.parent / "small.yaml", SMALL)
    begun = (run / "config.yaml").exists()
    what = ["--resume"] if begun else ["--config", str(run.parent / "small.yaml")]
    return subprocess.Popen(
        [*TRAIN, *what, "--runs", str(run.parent), "--name", run.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def rounds(run: Path) -> int:
    """Rounds in the checkpoint; zero if there is none yet."""
    path = run / "checkpoint.npz"
    return int(read_metadata(path)["round"]) if path.exists() else 0


def killed(run: Path, seconds: float) -> None:
    """Train, and kill the process that long after the next checkpoint of it."""
    before = rounds(run)
    process = started(run)
    try:
        deadline = time.monotonic() + 300
        while rounds(run) == before:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(process.communicate()[0])
            time.sleep(0.01)
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def check_kills(tmp_path: Path, kills: int) -> None:
    """Whatever moment a run is killed at, it goes on as if nothing had been: to the bit."""
    run, whole = tmp_path / "cut", tmp_path / "whole"
    rng = random.Random(kills)
    done = 0
    for _ in range(kills):
        killed(run, rng.uniform(0.0, 0.3))
        assert rounds(run) > done
        done = rounds(run)
        load_policy(run)  # whole, whatever the moment
    config = dataclasses.replace(SMALL, total_timesteps=(done + 2) * ROUND)
    assert train(config, run, resume=True)
    assert [m["round"] for m in read_metrics(run)] == list(range(1, done + 3))
    assert train(config, whole)
    for name in ("policy.npz", "checkpoint.npz"):
        with np.load(run / name) as a, np.load(whole / name) as b:
            assert set(a.files) == set(b.files)
            for leaf in set(a.files) - {"__metadata__"}:
                np.testing.assert_array_equal(a[leaf], b[leaf], err_msg=leaf)


@pytest.mark.slow
@posix
def test_killed_twice_while_training(tmp_path: Path) -> None:
    check_kills(tmp_path, 2)


@posix
@pytest.mark.slow
def test_killed_twenty_times_while_training(tmp_path: Path) -> None:
    check_kills(tmp_path, 20)


@posix
@pytest.mark.slow
def test_killed_while_it_starts(tmp_path: Path) -> None:
    """At any moment from the beginning on: what is left is nothing, or a run to resume."""
    run = tmp_path / "cut"
    rng = random.Random(0)
    for _ in range(10):
        process = started(run)
        time.sleep(rng.uniform(0.0, 20.0))
        process.kill()
        process.communicate()
        assert rounds(run) >= 0  # reads it, if there is one
    killed(run, 0.0)


# --- full disks ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mounted(disk, "size=2m"):
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def mounted(folder: Path, options: str) -> bool:
    """Whether there is a disk of its own in a folder now."""
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", options, "fraxenv", str(folder)]
    return mount is not None and subprocess.run(command, capture_output=True).returncode == 0


def fill(disk: Path) -> Path:
    """Leave no room."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


@pytest.fixture(scope="module")
def panda() -> Any:
    import jax

    env, params = fraxenv.make("PandaReach-v0", control_hz=50, physics_hz=50, action="torque")
    return env, params, jax.jit(env.reset)(jax.random.key(0), params)[1]


def test_a_full_disk(
    small_disk: Path, tmp_path: Path, panda: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A state is not saved, nothing half written stays, and training says so in one line."""
    fill(small_disk)
    env, params, state = panda
    with pytest.raises(CheckpointError, match=r"cannot be written: No space left.*room"):
        fraxenv.save_state(small_disk / "s.npz", env, state, params)
    assert not list(small_disk.glob("*s.npz*"))

    save_config(tmp_path / "small.yaml", SMALL)
    where = ["--runs", str(small_disk), "--name", "another"]
    assert main(["train", "--config", str(tmp_path / "small.yaml"), *where]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left" in line
    assert str(small_disk / "another") in line


@pytest.mark.slow
def test_a_disk_that_fills_up_while_training(small_disk: Path) -> None:
    """Training stops, keeps the checkpoint, and goes on when there is room."""
    run = small_disk / "run"
    config = dataclasses.replace(SMALL, total_timesteps=3 * ROUND)
    full: list[Path] = []

    def on_round(_: Any) -> None:
        if not full:
            full.append(fill(small_disk))

    with pytest.raises(OSError, match="No space left"):
        train(config, run, on_round=on_round)
    assert rounds(run) == 1
    load_policy(run)
    full[0].unlink()
    assert train(config, run, resume=True)
    assert [m["round"] for m in read_metrics(run)] == [1, 2, 3]


@posix
def test_files_that_may_not_grow(tmp_path: Path, panda: Any) -> None:
    """The same where nobody can mount a disk, by a limit of the process."""
    env, params, state = panda
    path = tmp_path / "s.npz"
    fraxenv.save_state(path, env, state, params)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"cannot be written: File too large"):
            fraxenv.save_state(path, env, state, params)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# --- folders that may not be written ---

KERNEL = """
import numpy as np, jax.numpy as jnp
from fraxenv.kernels import explain, fuse
fn = lambda x: jnp.tanh(x * x).sum()
x = np.linspace(-2, 2, 111, dtype=np.float32).reshape(37, 3)
print(explain(fn, "native")(x).backend, np.isfinite(fuse(fn, "native")(x)).all())
"""


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that this user may not write, whoever it is."""
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o500)
    if os.getuid() != 0:
        yield folder
        return
    if not mounted(folder, "ro,mode=500"):
        pytest.skip("root may write anywhere")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def check_cache(folder: Path) -> None:
    """A kernel is compiled all the same, without a word, and nothing is left in the folder."""
    before = list(folder.iterdir())
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", KERNEL],
        env={**os.environ, "FRAXENV_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["native", "True"]
    assert list(folder.iterdir()) == before


@posix
def test_a_cache_that_may_not_be_written(read_only: Path) -> None:
    check_cache(read_only)


def test_a_cache_on_a_full_disk(small_disk: Path) -> None:
    small_disk.chmod(0o700)
    fill(small_disk)
    check_cache(small_disk)


@posix
def test_a_folder_of_runs_that_may_not_be_written(
    read_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], panda: Any
) -> None:
    """One line that says where, before anything is trained."""
    save_config(tmp_path / "small.yaml", SMALL)
    where = ["--runs", str(read_only), "--name", "new"]
    assert main(["train", "--config", str(tmp_path / "small.yaml"), *where]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search("Permission denied|Read-only", line)
    assert str(read_only / "new") in line
    env, params, state = panda
    with pytest.raises(CheckpointError, match=r"s\.npz: cannot be written: (Perm|Read-only)"):
        fraxenv.save_state(read_only / "s.npz", env, state, params)


# --- what is not installed ---

MISSING = """
import importlib, sys, warnings
import gymnax  # which brings some of them itself
for name in {blocked!r}:
    sys.modules[name] = None
import jax, numpy as np, fraxenv, gymnasium as gym
from fraxenv.errors import MissingExtraError

def refused(what, extra):
    try:
        what()
    except MissingExtraError as error:
        assert f"fraxenv[{{extra}}]" in str(error), error
    else:
        raise AssertionError(extra)

env, params = fraxenv.make("PandaReach-v0", control_hz=50, physics_hz=50, action="torque")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), 2), params)
assert np.isfinite(obs).all()
assert any("fraxenv[native]" in str(w.message) for w in said), said
refused(lambda: gym.make("fraxenv/PandaReach-v0", backend="mujoco"), "mujoco")
refused(lambda: gym.make("fraxenv/PandaReach-v0", render_mode="human").reset(), "viewer")
from fraxenv.cli import main
assert main(["list"]) == 1
refused(lambda: importlib.import_module("fraxenv.wrappers.brax"), "brax")
recording = fraxenv.record(env, params, None, jax.random.key(0), steps=1)
refused(lambda: fraxenv.to_minari(recording, "a/b-v0"), "record")
refused(lambda: fraxenv.to_lerobot(recording, "a"), "data")
print("as promised")
"""


@pytest.mark.slow
def test_extras_that_are_missing() -> None:
    """Each asked for by its name; and kernels without LLVM are slow, not wrong."""
    blocked = ["llvmlite", "mujoco", "viser", "tyro", "brax", "minari", "rejax", "pyarrow"]
    done = subprocess.run(
        [sys.executable, "-c", MISSING.format(blocked=blocked)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("as promised")
