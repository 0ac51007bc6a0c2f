"""XLA's programs on disk: used again by other processes, and only what was sealed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest

from fraxenv import keep_programs
from fraxenv.kernels import programs

COMPILES = """
import jax, jax.numpy as jnp, numpy as np
from jax import monitoring
from fraxenv import fuse, keep_programs
jnp.zeros(3) + 1  # what was compiled before is no matter
found = []
monitoring.register_event_listener(lambda name, **_: found.append(name))
folder = keep_programs()
result = jax.jit(lambda x: jnp.sin(x @ x.T).sum(0))(jnp.arange(12.0).reshape(3, 4))
result += jax.jit(fuse(lambda x: x * x + 1))(jnp.arange(3.0))
print(folder)
print(found.count("/jax/compilation_cache/cache_hits"))
print(np.asarray(result).tobytes().hex())
"""


def run(cache: Path) -> tuple[str, int, str]:
    """The folder, the programs that were found, and the result, of a process of its own."""
    left_out = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    environment = {k: v for k, v in os.environ.items() if k not in left_out}
    environment |= {"FRAXENV_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", COMPILES],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder, found, result = done.stdout.split()
    return folder, int(found), result


def entries(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.is_file() and p.suffix != programs._SEAL]


def test_kept_programs_are_found_and_nothing_else(tmp_path: Path) -> None:
    where, found, result = run(tmp_path)
    assert found == 0
    folder = Path(where)
    assert folder.is_relative_to(tmp_path)
    kept = entries(folder)
    assert len(kept) >= 3

    poisoned, unsealed, exchanged, *_ = kept
    data = bytearray(poisoned.read_bytes())
    data[len(data) // 2] ^= 1
    poisoned.write_bytes(bytes(data))
    programs._seal_of(unsealed).unlink()
    exchanged.write_bytes(unsealed.read_bytes())
    programs._seal_of(exchanged).write_bytes(programs._digest(unsealed, unsealed.read_bytes()))
    assert run(tmp_path) == (where, len(kept) - 3, result)
    assert run(tmp_path) == (where, len(kept), result)


@pytest.mark.slow
def test_processes_share_them(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(run, [tmp_path] * 3))
    assert len({(folder, result) for folder, _, result in done}) == 1
    folder, found, result = run(tmp_path)
    assert (folder, result) == (done[0][0], done[0][2])
    assert found == len(entries(Path(folder)))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of kernels of its own, where JAX has been told of none."""
    monkeypatch.setenv("FRAXENV_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FRAXENV_CACHE", raising=False)
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def test_there_may_be_none(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("FRAXENV_CACHE", "0")
        assert keep_programs() is None
    jax.config.update("jax_compilation_cache_dir", str(own / "another"))
    assert keep_programs() is None
    assert jax.config.values["jax_compilation_cache_dir"] == str(own / "another")
    assert not list(own.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_none_where_others_may_write(own: Path) -> None:
    (own / "programs").mkdir()
    (own / "programs").chmod(0o777)
    assert keep_programs() is None
    assert jax.config.values["jax_compilation_cache_dir"] is None
    assert not list((own / "programs").iterdir())


def test_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_MOST", 25)
    for k in range(4):
        path = tmp_path / f"{k}-cache"
        path.write_bytes(bytes([k] * 10))
        os.utime(path, (k, k))
    programs._seal(tmp_path, os.getpid())
    programs._clear(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "2-cache", "2-cache.seal", "3-cache", "3-cache.seal",
    ]  # fmt: skip
