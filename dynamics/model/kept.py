"""Bundled robots as they were read, on disk beside the kernels.

The parser of descriptions takes a second to be imported, and reads the same each time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import sys
from collections.abc import Callable
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fraxenv.kernels.native import cache as kernel_cache

from ..geometry.shapes import Shape
from .robot import Frame, Joint, Mimic, Robot, Topology

_CLASSES = {kind.__name__: kind for kind in (Frame, Joint, Mimic, Robot, Shape, Topology)}
_KIND = "robot"
_TREE = "tree"


def kept(read: Callable[[], Robot], *asked: object) -> Robot:
    """What `read` returns, or returned before where the same was asked for.

    Args:
        read: makes a robot of the package's descriptions.
        asked: all that it depends on besides them.
    """
    digest = hashlib.sha256(repr((asked, np.__version__)).encode() + _sources()).hexdigest()
    data = kernel_cache.load(digest, _KIND)
    if data is not None:
        return _unpacked(data)
    robot = read()
    kernel_cache.save(digest, _packed(robot), _KIND)
    return robot


@cache
def _sources() -> bytes:
    """Digest of the descriptions, and of all that reads them."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {version('yourdfpy')}".encode())
    package = Path(str(resources.files("fraxenv.dynamics")))
    for path in sorted(
        p for ending in ("urdf", "toml", "py") for p in package.rglob(f"*.{ending}")
    ):
        digest.update(f"{path.relative_to(package)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.digest()


def _packed(robot: Robot) -> bytes:
    arrays: dict[str, NDArray[Any]] = {}

    def plain(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            arrays[f"a{len(arrays)}"] = x
            return {"array": f"a{len(arrays) - 1}"}
        if dataclasses.is_dataclass(x):
            fields = {f.name: plain(getattr(x, f.name)) for f in dataclasses.fields(x)}
            return {"class": type(x).__name__, "fields": fields}
        if isinstance(x, dict):
            return {"dict": [[k, plain(v)] for k, v in x.items()]}
        return [plain(v) for v in x] if isinstance(x, tuple) else x

    buffer = io.BytesIO()
    tree = np.array(json.dumps(plain(robot)))
    np.savez(buffer, allow_pickle=False, **{_TREE: tree, **arrays})
    return buffer.getvalue()


def _unpacked(data: bytes) -> Robot:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}

    def whole(x: Any) -> Any:
        if isinstance(x, list):
            return tuple(whole(v) for v in x)
        if not isinstance(x, dict):
            return x
        if "array" in x:
            return arrays[x["array"]]
        if "dict" in x:
            return {k: whole(v) for k, v in x["dict"]}
        return _CLASSES[x["class"]](**{k: whole(v) for k, v in x["fields"].items()})

    robot: Robot = whole(json.loads(str(arrays[_TREE])))
    return robot
