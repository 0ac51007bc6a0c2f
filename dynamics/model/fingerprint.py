"""Content hashes of configurations, so that equal ones share one compiled program."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any, Literal

import jax
import numpy as np


def fingerprint(value: Any, *, functions: Literal["code", "name"] = "code") -> bytes:
    """SHA-256 of a value made of dataclasses, mappings, sequences, arrays and plain values.

    Args:
        value: the value.
        functions: what a function counts as: its "code", which tells functions of one name apart;
            or its "name", which stays the same from version to version, for files.
    """
    return hashlib.sha256(repr(_plain(value, functions == "name")).encode()).digest()


def _plain(value: Any, by_name: bool) -> Any:
    """A value whose repr is exact and does not depend on NumPy's print options."""
    plain = functools.partial(_plain, by_name=by_name)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        return (array.shape, str(array.dtype), array.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f.name, plain(getattr(value, f.name))) for f in dataclasses.fields(value))
        return (type(value).__qualname__, *fields)
    if isinstance(value, Mapping):
        return tuple((k, plain(v)) for k, v in value.items())
    if isinstance(value, tuple | list):
        return tuple(plain(v) for v in value)
    if isinstance(value, functools.partial):
        return ("partial", plain((value.func, value.args, value.keywords)))
    if isinstance(value, frozenset):  # of a code's constants, for one
        return tuple(sorted(map(repr, value)))
    return _named(value) if by_name else _with_code(value)


def _with_code(value: Any) -> Any:
    """Functions by what they compute."""
    plain = functools.partial(_plain, by_name=False)
    if isinstance(value, FunctionType):
        # By its code: the address differs from process to process, and a notebook may give the
        # same name to several functions.
        cells = [c.cell_contents for c in value.__closure__ or ()]
        enclosed = tuple("itself" if c is value else plain(c) for c in cells)
        defaults = (plain(value.__defaults__), plain(value.__kwdefaults__ or {}))
        return (value.__module__, value.__qualname__, plain(value.__code__), enclosed, defaults)
    if isinstance(value, CodeType):
        return (value.co_code, value.co_names, plain(value.co_consts))
    return value


def _named(value: Any) -> Any:
    """Functions, types, and objects whose repr is an address, by their names."""
    if inspect.ismethod(value):
        return (value.__func__.__qualname__, _plain(value.__self__, by_name=True))
    if inspect.isroutine(value) or isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    anonymous = repr(value) == object.__repr__(value)
    return type(value).__qualname__ if anonymous else value
