"""Compiled kernels on disk, so that a second process need not compile them again.

The directory is `FRAXENV_CACHE_DIR`, or the user's own cache directory; `FRAXENV_CACHE=0` turns it
off. An entry carries its own digest, is written whole or not at all, and is ignored if it is not
what its digest says or if it belongs to somebody else: machine code is only loaded from the user.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from pathlib import Path

_MAGIC = b"fraxenv-kernel-1\n"


def directory() -> Path | None:
    """Where kernels are kept; None if they are not."""
    if os.environ.get("FRAXENV_CACHE", "1") in ("0", "off", "false"):
        return None
    folder = os.environ.get("FRAXENV_CACHE_DIR")
    if folder:
        return Path(folder)
    variable = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    default = {"win32": "", "darwin": "Library/Caches"}.get(sys.platform, ".cache")
    base = os.environ.get(variable)
    try:
        return (Path(base) if base else Path.home() / default) / "fraxenv" / "kernels"
    except RuntimeError:  # there is no home
        return None


def load(digest: str, kind: str = "o") -> bytes | None:
    """The machine code kept under a digest; None if there is none that can be trusted.

    Or, of another `kind`, what else is kept under it: the suffix of its file.
    """
    folder = directory()
    if folder is None:
        return None
    path = folder / f"{digest}.{kind}"
    try:
        if not own(folder) or not own(path):
            return None
        data = path.read_bytes()
    except OSError:
        return None
    head, body = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
    if head != _MAGIC + hashlib.sha256(digest.encode() + body).digest():
        return None
    return body


def save(digest: str, code: bytes, kind: str = "o") -> None:
    """Keep machine code, or what else there is; quietly not if the directory cannot be written."""
    folder = directory()
    if folder is None:
        return
    data = _MAGIC + hashlib.sha256(digest.encode() + code).digest() + code
    # A cache that cannot be written costs time, nothing else.
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not own(folder):
            return
        write_whole(folder / f"{digest}.{kind}", data)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file at once or not at all.

    Raises:
        OSError: it cannot be written.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def own(path: Path) -> bool:
    """Whether a path belongs to this user and nobody else may write it."""
    if os.name != "posix":
        return True
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022
