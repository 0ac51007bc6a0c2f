"""Compiled kernels on disk: found again, never trusted blindly, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fraxenv.kernels.native import cache

pytestmark = pytest.mark.cpu

CODE = bytes(range(256)) * 3
DIGEST = "ab" * 32
posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, not there yet."""
    path = tmp_path / "some" / "kernels"
    monkeypatch.setenv("FRAXENV_CACHE_DIR", str(path))
    monkeypatch.delenv("FRAXENV_CACHE", raising=False)
    return path


def only(folder: Path) -> Path:
    (entry,) = folder.glob("*.o")
    return entry


def test_what_is_kept_is_found(folder: Path) -> None:
    assert cache.load(DIGEST) is None
    cache.save(DIGEST, CODE)
    assert cache.load(DIGEST) == CODE
    assert cache.load("cd" * 32) is None
    cache.save(DIGEST, CODE[:5])
    assert cache.load(DIGEST) == CODE[:5]
    assert only(folder).name == f"{DIGEST}.o"  # nothing temporary stays


def test_damaged_entries_are_ignored(folder: Path) -> None:
    cache.save(DIGEST, CODE)
    entry = only(folder)
    whole = entry.read_bytes()
    for size in (0, 1, 17, 48, 49, len(whole) - 1):
        entry.write_bytes(whole[:size])
        assert cache.load(DIGEST) is None
    for place in range(0, len(whole), 7):
        entry.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert cache.load(DIGEST) is None
    entry.write_bytes(whole + b"\0")
    assert cache.load(DIGEST) is None
    entry.write_bytes(whole)
    assert cache.load(DIGEST) == CODE


def test_entries_under_other_names_are_ignored(folder: Path) -> None:
    cache.save(DIGEST, CODE)
    other = "cd" * 32
    only(folder).rename(folder / f"{other}.o")
    assert cache.load(other) is None


@posix
def test_entries_that_others_may_write_are_ignored(folder: Path) -> None:
    cache.save(DIGEST, CODE)
    entry = only(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    for path, mode in ((entry, 0o620), (entry, 0o602), (folder, 0o770), (folder, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert cache.load(DIGEST) is None
        path.chmod(before)
        assert cache.load(DIGEST) == CODE
    folder.chmod(0o777)
    cache.save("cd" * 32, CODE)
    assert only(folder) == entry  # nor is anything put there


@posix
def test_entries_of_others_are_ignored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.save(DIGEST, CODE)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert cache.load(DIGEST) is None
    cache.save("cd" * 32, CODE)
    assert only(folder).name == f"{DIGEST}.o"


@pytest.mark.parametrize(("module", "function"), [(tempfile, "mkstemp"), (os, "replace")])
def test_a_folder_that_is_full(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: Any, function: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, function, fail)
        cache.save(DIGEST, CODE)
    assert list(folder.iterdir()) == []  # nothing half written either
    cache.save(DIGEST, CODE)
    assert cache.load(DIGEST) == CODE


@pytest.mark.parametrize("value", ["0", "off", "false"])
def test_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    cache.save(DIGEST, CODE)
    monkeypatch.setenv("FRAXENV_CACHE", value)
    assert cache.directory() is None
    assert cache.load(DIGEST) is None
    cache.save("cd" * 32, CODE)
    assert only(folder).name == f"{DIGEST}.o"


def test_where_there_is_no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in its place, or in the place of what it is in; nowhere at all."""
    folder.parent.mkdir()
    folder.write_text("in the way")
    for path in (folder, folder / "deeper"):
        monkeypatch.setenv("FRAXENV_CACHE_DIR", str(path))
        cache.save(DIGEST, CODE)
        assert cache.load(DIGEST) is None
    assert folder.read_text() == "in the way"


def test_default_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FRAXENV_CACHE_DIR", "FRAXENV_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for system, folder in {
        "linux": tmp_path / ".cache",
        "darwin": tmp_path / "Library" / "Caches",
        "win32": tmp_path,
    }.items():
        monkeypatch.setattr(sys, "platform", system)
        assert cache.directory() == folder / "fraxenv" / "kernels"
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.directory() == tmp_path / "xdg" / "fraxenv" / "kernels"


def test_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FRAXENV_CACHE_DIR", "FRAXENV_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert cache.directory() is None
    cache.save(DIGEST, CODE)
    assert cache.load(DIGEST) is None


# --- whole processes ---

PROGRAM = """
import jax.numpy as jnp, numpy as np
from fraxenv.kernels import explain, fuse
fn = lambda x: jnp.tanh(jnp.outer(jnp.sin(x), x)).sum(0)
x = np.linspace(-2, 2, 111, dtype=np.float32).reshape(37, 3)
print(explain(fn, "native")(x).cached, np.asarray(fuse(fn, "native")(x)).tobytes().hex())
"""


def start(folder: Path, **environment: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    env = {**os.environ, "FRAXENV_CACHE_DIR": str(folder), **environment}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM], env=env, stdout=pipe, stderr=pipe, text=True
    )


def end(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[str, str]]:
    """Of each, whether its kernel was cached, and the kernel's results; none says anything."""
    results = []
    for process in processes:
        out, err = process.communicate()
        assert (process.returncode, err) == (0, "")
        cached, numbers = out.split()
        results.append((cached, numbers))
    return results


def test_processes_at_once_after_damage_and_after_others(tmp_path: Path) -> None:
    """Two compile at once; one finds damage and compiles; the last need not."""
    folder = tmp_path / "kernels"
    (_, numbers), (_, same) = end([start(folder), start(folder)])
    assert numbers == same
    entry = only(folder)
    (found_by,) = folder.glob("*.known")
    whole, known = entry.read_bytes(), found_by.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    found_by.write_bytes(known[:-9] + b"[" + known[-8:])
    assert end([start(folder)]) == [("False", numbers)]
    assert found_by.read_bytes() == known
    assert only(folder).read_bytes()[:17] == b"fraxenv-kernel-1\n"
    assert end([start(folder)]) == [("True", numbers)]  # the damaged one was replaced


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_what_a_function_is_found_by(tmp_path: Path, damage: str) -> None:
    """Without it the program is made again; the machine code is found all the same."""
    folder = tmp_path / "kernels"
    ((_, numbers),) = end([start(folder)])
    (entry,) = folder.glob("*.known")
    whole = entry.read_bytes()
    changed = {"cut": whole[:-1], "changed": whole[:-9] + b"[" + whole[-8:]}
    entry.unlink() if damage == "gone" else entry.write_bytes(changed[damage])
    assert end([start(folder)]) == [("True", numbers)]
    assert entry.read_bytes() == whole
    only(folder).unlink()
    assert end([start(folder)]) == [("False", numbers)]  # found, but what it leads to is not there
    assert end([start(folder)]) == [("True", numbers)]
    assert end([start(folder, FRAXENV_CACHE="0")]) == [("False", numbers)]


@posix
@pytest.mark.skipif(os.name == "posix" and os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o500)
    ((cached, _),) = end([start(folder)])
    assert cached == "False"
    assert not list(folder.iterdir())


@pytest.mark.slow
def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ((cached, _),) = end([start(tmp_path / "file" / "kernels")])
    assert cached == "False"
