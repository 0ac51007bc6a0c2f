"""Content hashes of configurations, so that equal ones share one compiled program."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from types import CodeType, FunctionType
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
    if isinstance(value, functools.partial):
        return ("partial", _plain(value.func), _plain(value.args), _plain(value.keywords))
    if isinstance(value, FunctionType):
        # By its code: the address differs from process to process, and a notebook may give the
        # same name to several functions.
        cells = [c.cell_contents for c in value.__closure__ or ()]
        enclosed = tuple("itself" if c is value else _plain(c) for c in cells)
        defaults = (_plain(value.__defaults__), _plain(value.__kwdefaults__ or {}))
        return (value.__module__, value.__qualname__, _plain(value.__code__), enclosed, defaults)
    if isinstance(value, CodeType):
        return (value.co_code, value.co_names, _plain(value.co_consts))
    if isinstance(value, frozenset):  # of a code's constants
        return tuple(sorted(map(repr, value)))
    return value
