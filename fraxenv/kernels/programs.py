"""XLA's programs on disk, beside the kernels, so that a second process need not compile them.

JAX's compilation cache keeps them. It finds a program by its text, the options and the versions,
but runs what lies there as it is. So each file has a seal, a digest beside it, which the process
writes at its end; what has none, or is not what was sealed, is removed before anything is read.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from .native import cache, cpu, executor

_SEAL = ".seal"
_MOST = 512 << 20
"""Bytes of programs that are kept; beyond, the oldest ones go."""


def keep_programs() -> Path | None:
    """Keep the programs that JAX compiles from now on, and use those that were kept before.

    The command line does so by itself. Another processor's, or version's, are other programs.

    Returns:
        the directory, one in the kernels' own (`FRAXENV_CACHE_DIR`); None where nothing is kept:
        with `FRAXENV_CACHE=0`, without llvmlite, where somebody else may write the directory, and
        where JAX has been told of one (`JAX_COMPILATION_CACHE_DIR`), which it goes on using.
    """
    base, asked = cache.directory(), jax.config.values["jax_compilation_cache_dir"]
    if base is None or asked or executor.available() is not None:
        return None
    processor = hashlib.sha256("\n".join(cpu.host()).encode()).hexdigest()[:16]
    folder = base / "programs" / processor
    try:
        for part in (base, base / "programs", folder):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not cache.own(part):
                return None
        _clear(folder)
    except OSError:
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()  # it may have found out before that there is none
    atexit.register(_seal, folder, os.getpid())
    return folder


def _clear(folder: Path) -> None:
    """Remove what is not sealed, and the oldest of what there is too much of."""
    files = [p for p in folder.iterdir() if p.is_file() and p.suffix != _SEAL]
    kept = 0
    for path in sorted(files, key=lambda p: p.stat().st_mtime, reverse=True):
        data = path.read_bytes()
        kept += len(data)
        if kept > _MOST or _read(_seal_of(path)) != _digest(path, data):
            path.unlink(missing_ok=True)
            _seal_of(path).unlink(missing_ok=True)


def _seal(folder: Path, process: int) -> None:
    """Seal what has none yet; a process that was forked leaves that to its parent."""
    if os.getpid() != process:
        return
    # A cache that cannot be written costs time, nothing else.
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.is_file() and path.suffix != _SEAL and not _seal_of(path).exists():
                cache.write_whole(_seal_of(path), _digest(path, path.read_bytes()))


def _seal_of(path: Path) -> Path:
    return path.with_name(path.name + _SEAL)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _digest(path: Path, data: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + data).hexdigest().encode()
