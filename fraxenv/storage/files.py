"""Files and arrays on disk: atomic to write, checked when read, and free of pickle."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError

_METADATA = "__metadata__"


def write_atomic(path: str | Path, data: bytes) -> None:
    """Write a file so that a reader finds the old content or the new one, never a part.

    The data is on disk before the name points to it, so that a crash cannot tear the file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # an open file's errors name none
        raise


def _umask() -> int:
    """The permissions that new files are denied; `mkstemp` denies more."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_arrays(
    path: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None
) -> None:
    """Save arrays by name, with JSON metadata; atomic.

    Args:
        path: the file, an uncompressed npz archive.
        arrays: not of objects.
        metadata: anything that JSON can hold.
    """
    text = np.array(json.dumps(dict(metadata or {}), sort_keys=True))
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{**arrays, _METADATA: text})
    write_atomic(path, buffer.getvalue())


def load_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Load what `save_arrays` saved: the arrays by name, and the metadata.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    arrays = _read(Path(path))
    try:
        metadata = json.loads(str(arrays.pop(_METADATA)))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its metadata is not JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise _damaged(path, f"its metadata is a {type(metadata).__name__}")
    return arrays, metadata


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of a checkpoint.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    return load_arrays(path)[1]


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        # What is stored as it is cannot be larger in memory than it is on disk.
        with zipfile.ZipFile(path) as members:
            if any(m.compress_type != zipfile.ZIP_STORED for m in members.infolist()):
                raise _damaged(path, "it is compressed")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path}: there is no such checkpoint. Check the path of the run."
        ) from error
    except CheckpointError:
        raise
    except Exception as error:  # of zipfile's, zlib's and NumPy's readers, which have many
        raise _damaged(path, str(error)) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise _damaged(path, f"{name} is no array")
    if _METADATA not in arrays:
        raise CheckpointError(f"{path}: an npz archive, but not a checkpoint of fraxenv.")
    return arrays


def _damaged(path: str | Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: not a checkpoint, or a damaged one ({why}). Use another copy of it."
    )
