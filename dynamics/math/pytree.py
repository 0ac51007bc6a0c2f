"""Frozen dataclasses that are pytrees: numbers are leaves, `static` fields their structure."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import field
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

import jax
from jax.tree_util import GetAttrKey

ClassT = TypeVar("ClassT")

STATIC = {"static": True}


def static(**options: Any) -> Any:
    """A field of a `pytree_dataclass` that belongs to the program, not to its batched numbers.

    Args:
        **options: options of `dataclasses.field`, such as `default`.
    """
    return field(metadata=STATIC, **options)


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field, static))
def pytree_dataclass(cls: type[ClassT]) -> type[ClassT]: ...


@overload
@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field, static))
def pytree_dataclass(*, eq: bool) -> Callable[[type[ClassT]], type[ClassT]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field, static))
def pytree_dataclass(cls: Any = None, *, eq: bool = True) -> Any:
    """Make a class a frozen dataclass and a pytree; `static` fields are its structure.

    With `eq=False`, instances are compared by identity, or by the class's own `__eq__`.

    JAX rebuilds a pytree without calling `__post_init__`: there a class checks what users write,
    not the gradients or axes that JAX puts in place of numbers.

    >>> @pytree_dataclass
    ... class Spring:
    ...     stiffness: ArrayLike = 100.0
    ...     axes: tuple[str, ...] = static(default=("x", "y"))
    """
    if cls is None:
        return functools.partial(pytree_dataclass, eq=eq)
    cls = dataclasses.dataclass(frozen=True, eq=eq)(cls)
    fields = dataclasses.fields(cls)
    structure = [f.name for f in fields if f.metadata.get("static")]
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    names = (*structure, *leaves)
    children, fixed = _values(leaves), _values(structure)

    def flatten(x: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return children(x), fixed(x)

    def flatten_with_keys(x: Any) -> tuple[list[Any], tuple[Any, ...]]:
        keys = (GetAttrKey(n) for n in leaves)
        return list(zip(keys, children(x), strict=True)), fixed(x)

    def unflatten(fixed: Any, children: Any) -> Any:
        x = object.__new__(cls)
        x.__dict__.update(zip(names, (*fixed, *children), strict=True))
        return x

    # Not `register_dataclass`: nodes of JAX 0.10 that it makes are equal whatever their class, and
    # a program of one is run for another where the caches' seven bits of a hash are the same.
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The attributes of an object that have these names."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return lambda x: (get(x),)
