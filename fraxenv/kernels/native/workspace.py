"""Where a function's tables and wide buffers lie, if they are too large for the stack.

A table has a value of every round of a loop: those that a loop keeps, and those that it looks up by
its counter. Threads have stacks of a few megabytes, so that large tables are in a workspace, memory
that the thread has been given. Values there are loaded where they are needed; many at equal
distances are moved by a loop, and looked up where they are. So neither the stack nor the function's
text grows with the number of rounds.

What a loop keeps lies where it is wanted: in the order of the result that it is part of, otherwise
round by round. What a result is made of besides is put there as soon as it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..buffer import Buffer
from ..errors import BuildError
from ..program import Id, IdArray, Program
from .builder import stored

ON_STACK = 1 << 16
"""Bytes of a function's tables, and of the rows of a batch's ragged end, that stay on the stack."""

WIDE = 512
"""Numbers of a buffer from which on it is moved by way of a workspace."""

FEW = 32
"""Values that are moved one by one, without a loop."""

LARGEST = 64 << 20
"""Bytes of the largest workspace, for each thread."""

LARGEST_STACK = 1 << 20
"""Bytes of the most values that may wait on the stack: half of that of XLA's threads."""

Slot = tuple[str, int]
"""A pointer's name, and the bytes from there."""


@dataclass
class Workspace:
    """The places of values in a workspace, which tables may be added to.

    Attributes:
        pointer: the name of the pointer to it.
        begin: bytes from there to the function's part.
        bytes: the size of the function's part.
        inputs: bytes from the pointer to each wide input, number by number, by its buffer.
        outputs: bytes to each wide result, by its number.
        rounds: bytes to each kept value of each loop in round 0, and from round to round.
        slots: where values are that no instruction is written for: numbers of inputs, and rounds.
        homes: where values of results are to be stored once they are computed.
    """

    pointer: str
    begin: int
    bytes: int = 0
    inputs: dict[int, int] = field(default_factory=dict)
    outputs: dict[int, int] = field(default_factory=dict)
    rounds: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    slots: dict[Id, Slot] = field(default_factory=dict)
    homes: dict[Id, Slot] = field(default_factory=dict)

    def room(self, size: int) -> int:
        """Bytes from the pointer to so many more bytes."""
        at = self.begin + self.bytes
        self.bytes += aligned(size)
        return at


def aligned(size: int) -> int:
    """A size in bytes, up to the next multiple of a vector's."""
    return -(-size // 64) * 64


def check_size(size: int) -> None:
    """Raise BuildError if a workspace is too large."""
    if size > LARGEST:
        raise BuildError(
            f"its loops and buffers need {size / 2**20:.0f} MiB of memory for each thread, where "
            f"{LARGEST >> 20} MiB is the most: a vector of environments has a place for each "
            "number of each round that is kept or looked up. Fuse a function of fewer rounds or "
            "numbers, or pass backend='vmap'."
        )


def plan(
    program: Program,
    computed: Sequence[Id],
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    width: int,
    slot: Slot,
    always: bool = False,
) -> Workspace | None:
    """The workspace of a function; None if its tables fit on the stack.

    Args:
        program: the program.
        computed: the values that the function computes.
        buffers: the program's inputs.
        outputs: the values of the results that it stores.
        width: lanes of a vector.
        slot: where its workspace would begin.
        always: whether there is to be one even so.
    """
    kept: dict[int, set[int]] = {}
    tables: dict[tuple[Id, ...], int] = {}
    read: dict[int, int] = {}

    def size(x: Id) -> int:
        return width * stored(program.dtypes[x]).itemsize

    for i in computed:
        op, attribute = program.ops[i], program.attributes[i]
        if op == "round":
            kept.setdefault(attribute[0], set()).add(attribute[1])
        elif op == "lookup":
            values = program.args[i][1:]
            tables[values] = len(values) * size(i)
        elif op == "input":
            read[attribute[0]] = read.get(attribute[0], 0) + 1
    rounds = sum(
        (program.loops[k].count or 0) * size(program.loops[k].stacked[j])
        for k, values in kept.items()
        for j in values
    )
    widest = max([0, *read.values(), *(o.size for o in outputs)])
    small = rounds + sum(tables.values()) <= ON_STACK and widest <= WIDE
    if small and not always:
        return None

    made = Workspace(*slot)
    for number in sorted(read):
        buffer = buffers[number]
        if read[number] > FEW:
            each = width * stored(buffer.dtype).itemsize
            made.inputs[number] = made.room(each * int(np.prod(buffer.shape, dtype=int)))
    kept_at = _kept(program, computed, kept)
    made.rounds = {k: {} for k in kept}
    for number, ids in enumerate(outputs):
        if ids.size > FEW:
            flat = ids.ravel().tolist()
            made.outputs[number] = made.room(ids.size * size(flat[0]))
            _place_in_result(program, made, flat, made.outputs[number], size(flat[0]), kept_at)
    for k, members in kept.items():
        _place_by_rounds(program, made, k, members, size)
    for i in computed:
        attribute = program.attributes[i]
        if program.ops[i] == "input" and attribute[0] in made.inputs:
            made.slots[i] = made.pointer, made.inputs[attribute[0]] + attribute[1] * size(i)
    for x, (k, j, t) in kept_at.items():
        at, step = made.rounds[k][j]
        made.slots[x] = made.pointer, at + t * step
    for x in made.slots:
        made.homes.pop(x, None)
    return made


def _kept(
    program: Program, computed: Iterable[Id], kept: Mapping[int, set[int]]
) -> dict[Id, tuple[int, int, int]]:
    """The loop, the number among its kept values and the round that values are."""
    found = {}
    for x in computed:
        op = program.ops[x]
        if op == "round":
            found[x] = program.attributes[x]
        elif op == "final":
            # The last round's are those that are there when the loop ends.
            k, number = program.attributes[x]
            loop = program.loops[k]
            j = number - len(loop.carries)
            if j in kept.get(k, ()):
                found[x] = k, j, (loop.count or 1) - 1
    return found


def _place_in_result(
    program: Program,
    made: Workspace,
    values: Sequence[Id],
    at: int,
    size: int,
    kept_at: Mapping[Id, tuple[int, int, int]],
) -> None:
    """Let rounds that stand at equal distances in a result be written there."""
    places: dict[tuple[int, int], dict[int, int]] = {}
    for position, x in enumerate(values):
        if x in kept_at:
            k, j, t = kept_at[x]
            places.setdefault((k, j), {}).setdefault(t, position)
        elif program.ops[x] != "constant":
            made.homes.setdefault(x, (made.pointer, at + position * size))
    for (k, j), position_of in places.items():
        first, step = position_of.get(0, 0), position_of.get(1, 0) - position_of.get(0, 0)
        everywhere = all(
            position_of.get(t) == first + t * step for t in range(program.loops[k].count or 0)
        )
        if everywhere:
            made.rounds[k].setdefault(j, (at + first * size, step * size))


def _place_by_rounds(
    program: Program, made: Workspace, k: int, members: Iterable[int], size: Callable[[Id], int]
) -> None:
    """Lay out the values of a loop that have no place yet: those of a round side by side."""
    loop = program.loops[k]
    rest = [j for j in members if j not in made.rounds[k]]
    rest.sort(key=lambda j: (-size(loop.stacked[j]), j))  # each at a multiple of its size
    sizes = [size(loop.stacked[j]) for j in rest]
    row = aligned(sum(sizes))
    at = made.room((loop.count or 0) * row)
    for j, each in zip(rest, sizes, strict=True):
        made.rounds[k][j] = at, row
        at += each
