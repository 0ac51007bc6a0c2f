"""Content hashes of configurations, so that equal ones share one compiled program."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def fingerprint(value: Any) -> bytes:
    """SHA-256 of a value made of dataclasses, mappings, sequences, arrays and plain values."""
    return hashlib.sha256(repr(_plain(value)).encode()).digest()


def _plain(value: Any) -> Any:
    """A value whose repr is exact and does not depend on NumPy's print options."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        return (array.shape, str(array.dtype), array.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f.name, _plain(getattr(value, f.name))) for f in dataclasses.fields(value))
        return (type(value).__qualname__, *fields)
    if isinstance(value, Mapping):
        return tuple((k, _plain(v)) for k, v in value.items())
    if isinstance(value, tuple | list):
        return tuple(_plain(v) for v in value)
    return value
