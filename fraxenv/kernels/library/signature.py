"""A function's arguments and results as C has them: arrays of numbers, and structures of arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..buffer import Buffer, is_key
from ..errors import KernelError

C_TYPES = {
    "float32": "float", "float64": "double", "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Of each dtype that a library may have."""

_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const const_cast consteval constexpr constinit continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
extern false float for friend goto if inline int long mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
restrict return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename union unsigned using virtual void
volatile wchar_t while xor xor_eq in out
"""

_RESERVED = frozenset(_WORDS.split())
"""Words of C and C++, and the header's own."""


@dataclass(frozen=True)
class Field:
    """An array in a structure, or on its own.

    Attributes:
        name: in C.
        shape: of the array; its numbers lie row by row.
        dtype: of the numbers.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The count of its numbers."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def type(self) -> str:
        """Of its numbers, in C."""
        return C_TYPES[self.dtype.name]


@dataclass(frozen=True)
class Parameter:
    """An argument, or a result.

    Attributes:
        name: in C.
        fields: its arrays, in JAX's order; the empty ones have no place in C.
        struct: the name of its structure; empty for one array.
        unit: for people.
    """

    name: str
    fields: tuple[Field, ...]
    struct: str = ""
    unit: str = ""

    @property
    def present(self) -> tuple[Field, ...]:
        """The fields that have numbers."""
        return tuple(f for f in self.fields if f.size)


@dataclass(frozen=True)
class Signature:
    """A function as C calls it.

    Attributes:
        name: in C.
        arguments: of it.
        results: likewise.
        about: what it does, for people.
    """

    name: str
    arguments: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    about: str


class Structures:
    """Names of structures: arguments of the same arrays have one in common.

    Attributes:
        fields: each structure's arrays, by its name.
    """

    def __init__(self, library: str) -> None:
        self._library = library
        self.fields: dict[str, tuple[Field, ...]] = {}

    def named(self, name: str, fields: tuple[Field, ...]) -> str:
        """The name of a structure with these fields; `name` is the argument's."""
        for known, others in self.fields.items():
            if others == fields:
                return known
        wished = _unused(f"{self._library}_{name}", self.fields)
        self.fields[wished] = fields
        return wished


def signature(
    name: str,
    about: str,
    arguments: Mapping[str, Any],
    results: Mapping[str, Any],
    units: Mapping[str, str],
    structures: Structures,
) -> Signature:
    """The signature of a function.

    Args:
        name: in C.
        about: what it does.
        arguments: abstract values of each argument, by name.
        results: likewise.
        units: of arguments and results, by name.
        structures: those of the library; it gets the function's.

    Raises:
        KernelError: an array is of a dtype that C has not.
    """
    taken: set[str] = set()

    def parameters(given: Mapping[str, Any], otherwise: str) -> tuple[Parameter, ...]:
        made = []
        for key, tree in given.items():
            wished = identifier(key)
            own = _unused(f"{otherwise}{wished}" if wished in taken else wished, taken)
            taken.add(own)
            fields = _fields(own, tree)
            alone = jax.tree_util.treedef_is_leaf(jax.tree.structure(tree))
            present = any(f.size for f in fields)
            struct = structures.named(wished, fields) if present and not alone else ""
            made.append(Parameter(own, fields, struct, units.get(key, "")))
        return tuple(made)

    return Signature(name, parameters(arguments, ""), parameters(results, "next_"), about)


def _fields(name: str, tree: Any) -> tuple[Field, ...]:
    """The arrays of an argument."""
    made: list[Field] = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if is_key(leaf):
            held = Buffer.of(leaf, True)
            shape, dtype = held.shape, held.dtype
        else:
            shape, dtype = tuple(leaf.shape), np.dtype(leaf.dtype)
        if dtype.name not in C_TYPES:
            raise KernelError(
                f"export: {name}{jax.tree_util.keystr(path)} is of {dtype.name}, expected one of "
                f"{', '.join(C_TYPES)}. Convert it."
            )
        own = identifier("_".join(filter(None, map(_key, path)))) if path else name
        made.append(Field(_unused(own, [f.name for f in made]), shape, dtype))
    return tuple(made)


def _key(entry: Any) -> str:
    """A step into a tree, as a word."""
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def identifier(text: str) -> str:
    """A name as C has it."""
    made = re.sub(r"\W", "_", text, flags=re.ASCII)
    made = f"_{made}" if re.match(r"\d", made) else made
    return f"{made}_" if made in _RESERVED else made


def is_identifier(text: str) -> bool:
    """Whether C takes the text for a name."""
    return bool(text) and identifier(text) == text and not text.startswith("_")


def _unused(name: str, taken: Iterable[str]) -> str:
    """The name, with a number behind it if it is taken."""
    known, number, made = set(taken), 1, name
    while made in known:
        number += 1
        made = f"{name}_{number}"
    return made
