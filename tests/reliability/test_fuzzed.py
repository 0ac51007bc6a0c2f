"""Files and options that once raised something else than an error of ours: `harden/fuzz.py`."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fraxenv
from fraxenv.errors import CheckpointError, ConfigError, FraxenvError
from fraxenv.making.make import load_env_config
from fraxenv.storage.config import parse_yaml
from fraxenv.storage.files import load_arrays, save_arrays
from fraxenv.storage.pytrees import load_pytree, save_pytree
from fraxenv.training import load_config


@pytest.mark.parametrize(
    "text",
    [
        "a: !!bool x",
        "a: !!int ''",
        "a: !!float ''",
        "a: !!timestamp x",
        "a: 2001-99-99",
        "a: 0x_",
        f"a: {5000 * '9'}",
        2000 * "[",
        "a: \x00",
    ],
)
def test_yaml_that_its_parser_trips_over(text: str) -> None:
    with pytest.raises(ConfigError, match="here: not valid YAML"):
        parse_yaml(text, "here")


@pytest.mark.parametrize(
    "text",
    [
        "id: {}",
        "id: [a]",
        "id: 3",
        "id: PandaReach-v0\nend_effector: 1",
        "id: PandaReach-v0\nend_effector: []",
        "id: PandaReach-v0\nend_effector: [1]",
        "robot: ur10\ntask: reach\nend_effector: 1.0e-320",
        f"id: PandaReach-v0\nmax_steps_in_episode: {400 * '9'}",
        "id: PandaReach-v0\nrandomisation: {steps: 3}",
        "id: PandaReach-v0\ncontroller: 1",
        "id: PandaReach-v0\ncontroller: 1\ncontroller_options: {kp: 1}",
        "id: PandaReach-v0\naction: []",
        "id: PandaReach-v0\naction: 1\naction_options: {scale: 1}",
        "id: PandaReach-v0\naction: joint_position\naction_options: {scale: []}",
        "id: PandaReach-v0\naction: ee_delta_pose\naction_options: {position_scale: [1, 2]}",
        f"id: PandaReach-v0\nrandomisation: {{link_mass: {400 * '9'}}}",
        f"id: PandaReach-v0\nrandomisation: {{payload: [0, {400 * '9'}]}}",
    ],
)
def test_environments_that_cannot_be(tmp_path: Path, text: str) -> None:
    (tmp_path / "e.yaml").write_text(text)
    with pytest.raises(FraxenvError):
        fraxenv.make(**load_env_config(tmp_path / "e.yaml"))


@pytest.mark.parametrize(
    "text", ["algorithm: []", "algorithm: {}", f"gamma: {400 * '9'}", "gamma: []", "env: 3"]
)
def test_trainings_that_cannot_be(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(FraxenvError):
        load_config(tmp_path / "t.yaml")


def packed(path: Path, **members: bytes) -> Path:
    """An archive with a member replaced, or added, as it is."""
    with zipfile.ZipFile(path) as old:
        contents = {name: old.read(name) for name in old.namelist()} | members
    with zipfile.ZipFile(path, "w") as new:
        for name, content in contents.items():
            new.writestr(name, content)
    return path


def as_npy(text: str) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(text))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "members",
    [
        {"__metadata__.npy": as_npy("{")},
        {"__metadata__.npy": as_npy("[]")},
        {"__metadata__.npy": as_npy("3")},
        {"__metadata__.npy": as_npy(5000 * "[")},
        {"__metadata__.npy": b""},
        {"['w'].npy": b""},
        {"['w'].npy": b"\x93NUMPY\x01\x00\x02\x00{}"},
        {"['w'].npy": as_npy("text")},
        {"['w']": b"no array"},
        {"loose": b"no array"},
    ],
)
def test_archives_of_something_else(tmp_path: Path, members: dict[str, bytes]) -> None:
    path = tmp_path / "c.npz"
    tree = {"w": np.eye(3, dtype=np.float32)}
    save_pytree(path, tree, {"round": 1})
    packed(path, **members)
    with pytest.raises(CheckpointError, match=r"c\.npz: "):
        load_pytree(path, tree)


def test_an_array_alone_is_no_archive(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.eye(3))
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        load_arrays(tmp_path / "c.npy")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A state and a recording, and what reads them."""
    folder = tmp_path_factory.mktemp("files")
    options = {"action": "torque", "control_hz": 50, "physics_hz": 50, "max_steps_in_episode": 2}
    env, params = fraxenv.make("PandaReach-v0", **options)
    key = jax.random.key(0)
    fraxenv.record(env, params, None, key, num_envs=2, steps=3).save(folder / "recording.npz")
    state = jax.jit(env.reset)(key, params)[1]
    fraxenv.save_state(folder / "state.npz", env, state, params, key)
    return folder, {
        "state": lambda path: fraxenv.load_state(path, env),
        "recording": fraxenv.load_recording,
    }


REMOVED = {
    "state": ("environment", "trees", "provenance", "format", "version"),
    "recording": ("format", "version", "episodes_per_env"),
}


@pytest.mark.parametrize("kind", REMOVED)
def test_metadata_of_something_else(kind: str, files: Any, tmp_path: Path) -> None:
    folder, readers = files
    arrays, metadata = load_arrays(folder / f"{kind}.npz")
    path = tmp_path / "file.npz"
    for name in REMOVED[kind]:
        for value in (..., None if name != "episodes_per_env" else "x", 3.5, [], {}, "x"):
            changed = {k: v for k, v in metadata.items() if k != name}
            if value is not ...:
                changed[name] = value
            save_arrays(path, arrays, changed)
            with pytest.raises(CheckpointError, match=r"file\.npz: "):
                readers[kind](path)
    for digest in ("structure", "keys", "host"):
        if kind == "state":
            changed = json.loads(json.dumps(metadata))
            changed["trees"]["state"][digest] = 3
            save_arrays(path, arrays, changed)
            with pytest.raises(CheckpointError, match=r"file\.npz: "):
                readers[kind](path)


def test_arrays_of_something_else(files: Any, tmp_path: Path) -> None:
    folder, readers = files
    path = tmp_path / "file.npz"
    arrays, metadata = load_arrays(folder / "state.npz")
    save_arrays(path, {**arrays, "state.q": np.array([b"", b"x"])}, metadata)
    with pytest.raises(CheckpointError, match=r"file\.npz: "):
        readers["state"](path)
    arrays, metadata = load_arrays(folder / "recording.npz")
    for name in ("rewards", "terminations", "actions", "observations", "final_observations"):
        for wrong in (arrays[name][:-1], np.float32(0), np.array("x")):
            save_arrays(path, {**arrays, name: wrong}, metadata)
            with pytest.raises(CheckpointError, match=r"file\.npz: "):
                readers["recording"](path)
    save_arrays(path, {**arrays, "rewards/x": arrays["rewards"]}, metadata)
    with pytest.raises(CheckpointError, match=r"file\.npz: "):
        readers["recording"](path)
