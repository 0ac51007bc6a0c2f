"""Pytrees on disk: exact, atomic, and refused when they do not fit."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.errors import CheckpointError
from fraxenv.storage.files import read_metadata, write_atomic
from fraxenv.storage.pytrees import load_pytree, save_pytree


def tree() -> dict[str, Any]:
    return {
        "weights": [jnp.linspace(0, 1, 5), jnp.eye(3)],
        "step": jnp.int32(7),
        "key": jax.random.PRNGKey(3),
        "done": jnp.array([True, False]),
    }


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "c.npz"
    save_pytree(path, tree(), {"round": 3})
    loaded, metadata = load_pytree(path, tree())
    assert metadata == read_metadata(path) == {"round": 3}
    chex.assert_trees_all_equal(tree(), loaded, strict=True)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    save_pytree(path, tree())
    with pytest.raises(CheckpointError, match=r"lacks \[\"\['extra'\]\"\]"):
        load_pytree(path, {**tree(), "extra": jnp.zeros(1)})
    with pytest.raises(CheckpointError, match=r"in addition"):
        load_pytree(path, {"step": jnp.int32(0)})
    with pytest.raises(CheckpointError, match=r"\['step'\] is int32\[\], expected float32\[\]"):
        load_pytree(path, {**tree(), "step": jnp.float32(0)})
    with pytest.raises(CheckpointError, match=r"expected float32\[4, 4\]"):
        load_pytree(path, {**tree(), "weights": [jnp.zeros(5), jnp.eye(4)]})


@pytest.mark.parametrize("keep", [0, 10, 200, -20])
def test_damage_is_reported(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "c.npz"
    save_pytree(path, tree())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="damaged"):
        load_pytree(path, tree())


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_pytree(tmp_path / "none.npz", tree())


def test_pickle_is_never_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "exploded"),))

    plain, archive = tmp_path / "p.npz", tmp_path / "a.npz"
    plain.write_bytes(pickle.dumps(Bomb()))
    np.savez(archive, bomb=np.array(Bomb(), dtype=object))
    for path in (plain, archive):
        with pytest.raises(CheckpointError):
            load_pytree(path, tree())
    assert not (tmp_path / "exploded").exists()


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.npz"
    write_atomic(path, b"old")

    def disk_full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]  # no temporary file is left behind


def test_permissions_are_those_of_any_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    write_atomic(tmp_path / "c", b"")
    assert (tmp_path / "c").stat().st_mode == plain.stat().st_mode
