"""Loops that compute the same: a program has one of them.

What is asked for twice is one value of a program, but for loops, whose bodies are values of their
own. Two loops are one if they begin with the same values and every value of the one's body has a
counterpart in the other's. So a function that steps a scene and differentiates the step solves the
contacts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .algebra import Id
from .ops import OPERATIONS


class Loop(Protocol):
    """What is needed of `program.Loop`."""

    scope: int
    outer: int
    count: int | None
    counter: Id
    initial: list[Id]
    following: list[Id]
    stacked: list[Id]
    condition: Id | None


class Program(Protocol):
    """What is needed of `program.Program`."""

    ops: list[str]
    args: list[tuple[Id, ...]]
    attributes: list[Any]
    dtypes: list[np.dtype[Any]]
    scopes: list[int]

    @property
    def loops(self) -> Sequence[Loop]:
        """The loops."""


def beginning(program: Program, index: int) -> Any:
    """What twins have in common at least: where they stand, and all that comes from outside.

    Args:
        program: the program.
        index: of the last loop that stands in its scope, whose body is complete.
    """
    loop = program.loops[index]
    scopes = {program.loops[i].scope for i in _inside(program, index)}
    outside = {
        a
        for x in _body(program, index, scopes)
        for a in program.args[x]
        if program.scopes[a] not in scopes
    }
    return loop.outer, loop.count, tuple(loop.initial), len(loop.stacked), frozenset(outside)


def are_twins(program: Program, first: int, second: int) -> bool:
    """Whether two loops that begin alike compute the same."""
    own, others = _inside(program, second), _inside(program, first)
    if len(own) != len(others):
        return False
    loops = dict(zip(own, others, strict=True))
    scopes = {program.loops[i].scope: program.loops[j].scope for i, j in loops.items()}
    same: dict[Id, Id] = {}
    values = {_key(program, x, {}, {}, {}): x for x in _body(program, first, set(scopes.values()))}
    for x in _body(program, second, set(scopes)):
        counterpart = values.get(_key(program, x, same, loops, scopes))
        if counterpart is not None:
            same[x] = counterpart
    return all(
        [same.get(x, x) for x in _results(program.loops[i])] == _results(program.loops[j])
        for i, j in loops.items()
    )


def _inside(program: Program, index: int) -> list[int]:
    """A loop and those within it, in their order."""
    found, scopes = [index], {program.loops[index].scope}
    for i in range(index + 1, len(program.loops)):
        if program.loops[i].outer in scopes:
            found.append(i)
            scopes.add(program.loops[i].scope)
    return found


def _body(program: Program, index: int, scopes: set[int]) -> list[Id]:
    """The values of a loop's rounds, each after what it is computed from."""
    begin = program.loops[index].counter
    return [x for x in range(begin, len(program.ops)) if program.scopes[x] in scopes]


def _results(loop: Loop) -> list[Id]:
    """What a loop's rounds end with."""
    return [*loop.following, *([] if loop.condition is None else [loop.condition])]


def _key(
    program: Program,
    x: Id,
    same: dict[Id, Id],
    loops: dict[int, int],
    scopes: dict[int, int],
) -> Any:
    """What a value is, by the counterparts of what it is computed from."""
    op, attribute = program.ops[x], program.attributes[x]
    args = [same.get(a, a) for a in program.args[x]]
    if op in OPERATIONS and OPERATIONS[op].commutative:
        args.sort()
    if op == "loop":
        loop = program.loops[attribute]
        args += [same.get(a, a) for a in loop.initial]
        attribute = loops.get(attribute, attribute), loop.count
    elif op == "counter":
        attribute = loops.get(attribute, attribute)
    elif op in ("carry", "final", "round"):
        attribute = (loops.get(attribute[0], attribute[0]), *attribute[1:])
    elif op == "pin":
        attribute = scopes.get(attribute, attribute)
    return op, tuple(args), attribute, program.dtypes[x].char
