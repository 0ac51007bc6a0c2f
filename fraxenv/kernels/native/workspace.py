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

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..buffer import WIDE, Buffer
from ..errors import BuildError
from ..program import WHOLE, Id, IdArray, Program
from .builder import aligned, stored
from .registers import WITHOUT_INSTRUCTIONS, source

ON_STACK = 1 << 16
"""Bytes of a function's tables, and of the rows of a batch's ragged end, that stay on the stack."""

FEW = 32
"""Values that are moved one by one, without a loop."""

LARGEST = 64 << 20
"""Bytes of the largest workspace, for each thread."""

LARGEST_STACK = 1 << 20
"""Bytes of the most values that may wait on the stack: half of that of XLA's threads."""

_LAID_OUT = "input", "element", "round", "final", "carry", "lookup", "matmul", "map"
"""Values that have to do with memory."""

Slot = tuple[str, int]
"""A pointer's name, and the bytes from there."""


class Matrix(NamedTuple):
    """The places of a matrix' numbers.

    Attributes:
        pointer: the name of a pointer.
        begin: bytes from there to the first number.
        row: bytes from one row to the next.
        column: bytes from one column to the next.
    """

    pointer: str
    begin: int
    row: int
    column: int

    def places(self, shape: tuple[int, ...]) -> list[Slot]:
        """Of all numbers, row by row, of a matrix of this shape."""
        rows, columns = shape
        return [
            (self.pointer, self.begin + i * self.row + j * self.column)
            for i in range(rows)
            for j in range(columns)
        ]


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
        homes: where values of results are to be stored once they are computed, and those that are
            multiplied as matrices.
        given: where the operands of each operation on matrices are to be, if not where they are.
        made: where its result is.
        direct: the pointer to each input that is read where it is, by its buffer.
    """

    pointer: str
    begin: int
    bytes: int = 0
    inputs: dict[int, int] = field(default_factory=dict)
    outputs: dict[int, int] = field(default_factory=dict)
    rounds: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    slots: dict[Id, Slot] = field(default_factory=dict)
    homes: dict[Id, Slot] = field(default_factory=dict)
    given: dict[Id, list[Matrix | None]] = field(default_factory=dict)
    made: dict[Id, Matrix] = field(default_factory=dict)
    direct: dict[int, str] = field(default_factory=dict)

    def room(self, size: int) -> int:
        """Bytes from the pointer to so many more bytes."""
        at = self.begin + self.bytes
        self.bytes += aligned(size)
        return at

    def wide_input(self, number: int) -> Slot:
        """Where a wide input begins, by the number of its buffer."""
        direct = self.direct.get(number)
        return (self.pointer, self.inputs[number]) if direct is None else (direct, 0)

    def matrix(self, shape: tuple[int, ...], size: int) -> Matrix:
        """A place for a matrix of numbers of a size."""
        rows, columns = shape
        return Matrix(self.pointer, self.room(rows * columns * size), columns * size, size)


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
    known: Mapping[Id, Slot] | None = None,
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
        known: where values from outside of the function are.
    """
    kept: dict[int, set[int]] = {}
    tables: dict[tuple[Id, ...], int] = {}

    def size(x: Id) -> int:
        return width * stored(program.dtypes[x]).itemsize

    ops, attributes = program.ops, program.attributes
    by_op: dict[str, list[Id]] = {op: [] for op in _LAID_OUT}
    for i in computed:
        if ops[i] in by_op:
            by_op[ops[i]].append(i)
    for i in by_op["round"]:
        kept.setdefault(attributes[i][0], set()).add(attributes[i][1])
    for i in by_op["lookup"]:
        values = program.args[i][1:]
        tables[values] = len(values) * size(i)
    read = Counter(attributes[i][0] for i in by_op["input"])
    for number in {attributes[i].number for i in by_op["element"]}:
        read[number] = buffers[number].size
    rounds = sum(
        (program.loops[k].count or 0) * size(program.loops[k].stacked[j])
        for k, values in kept.items()
        for j in values
    )
    widest = max([0, *read.values(), *(o.size for o in outputs)])
    small = rounds + sum(tables.values()) <= ON_STACK and widest <= WIDE
    whole, maps = by_op["matmul"] + by_op["map"], bool(by_op["map"])
    if small and not always and not whole:
        return None

    made = Workspace(*slot)
    if maps:
        _place_carried(program, made, by_op["carry"], size)
    for number in sorted(read):
        buffer = buffers[number]
        if read[number] > FEW and maps:
            made.direct[number] = f"%in{number}"
        elif read[number] > FEW:
            each = width * stored(buffer.dtype).itemsize
            made.inputs[number] = made.room(each * buffer.size)
    kept_at = _kept(program, by_op["round"], by_op["final"], kept)
    made.rounds = {k: {} for k in kept}
    for number, ids in enumerate(outputs):
        if ids.size > FEW:
            flat = ids.ravel().tolist()
            made.outputs[number] = made.room(ids.size * size(flat[0]))
            _place_in_result(program, made, flat, made.outputs[number], size(flat[0]), kept_at)
    for k, members in kept.items():
        _place_by_rounds(program, made, k, members, size)
    wide = {k: made.wide_input(k) for k in (*made.inputs, *made.direct)}
    each_of = {k: width * stored(buffers[k].dtype).itemsize for k in wide}
    for i in by_op["input"]:
        number, element = attributes[i]
        if number in wide:
            pointer, at = wide[number]
            made.slots[i] = pointer, at + element * each_of[number]
    for x, (k, j, t) in kept_at.items():
        at, step = made.rounds[k][j]
        made.slots[x] = made.pointer, at + t * step
    if whole:
        there = {**(known or {}), **made.slots}
        _place_matrices(program, made, whole, set(computed), there, size)
    for x in made.slots:
        made.homes.pop(x, None)
    return made


def _kept(
    program: Program, rounds: Iterable[Id], finals: Iterable[Id], kept: Mapping[int, set[int]]
) -> dict[Id, tuple[int, int, int]]:
    """The loop, the number among its kept values and the round that values are."""
    found = {x: program.attributes[x] for x in rounds}
    for x in finals:
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


NOT_STORED = WITHOUT_INSTRUCTIONS | WHOLE | {"pin", "final", "round", "loop", "lookup", "element"}
"""What is not written to a home of its own when it is computed."""


def operands(program: Program, i: Id) -> list[tuple[Sequence[Id], tuple[int, int]]]:
    """What an operation on matrices is of: the values of each, and its shape."""
    args, about = program.args[i], program.attributes[i]
    if program.ops[i] == "matmul":
        m, n, k = about
        return [(args[: m * k], (m, k)), (args[m * k :], (n, k))]
    _, shape, sizes = about
    ends = np.cumsum(sizes).tolist()
    return [
        (args[end - size : end], shape if size > 1 else (1, 1))
        for size, end in zip(sizes, ends, strict=True)
    ]


def _place_matrices(
    program: Program,
    made: Workspace,
    whole: Iterable[Id],
    computed: Container[Id],
    known: Mapping[Id, Slot],
    size: Callable[[Id], int],
) -> None:
    """Lay out what is computed as matrices: the largest first, of which others are parts."""
    stored_at = {x: at for x, at in made.homes.items() if program.ops[x] not in NOT_STORED}
    places = stored_at | dict(known)

    def placed(values: Sequence[Id], shape: tuple[int, int]) -> Matrix | None:
        sources = [source(program, x) for x in values]
        if in_order([places.get(x) for x in sources], shape) is not None:
            return None
        homeless = [
            x not in places and x in computed and program.ops[x] not in NOT_STORED for x in sources
        ]
        if not any(homeless):
            return None
        matrix = made.matrix(shape, size(sources[0]))
        for x, home, needed in zip(sources, matrix.places(shape), homeless, strict=True):
            if needed:
                places[x] = made.homes[x] = home
        return matrix

    ordered = sorted(whole, key=lambda i: -len(program.args[i]))
    for i in ordered:
        about = program.attributes[i]
        shape = about[:2] if program.ops[i] == "matmul" else about[1]
        made.made[i] = made.matrix(shape, size(i + 1))
        first = range(i + 1, i + 1 + shape[0] * shape[1])
        entries = dict(zip(first, made.made[i].places(shape), strict=True))
        places |= entries
        made.slots |= entries
    for i in ordered:
        made.given[i] = [placed(*operand) for operand in operands(program, i)]


def _place_carried(
    program: Program, made: Workspace, carries: Iterable[Id], size: Callable[[Id], int]
) -> None:
    """Let what loops carry of arrays lie in memory, in its order."""
    carried: dict[int, list[Id]] = {}
    for x in carries:
        index = program.attributes[x][0]
        if program.loops[index].count is not None:
            carried.setdefault(index, []).append(x)
    for together in carried.values():
        if len(together) > FEW:
            for x in sorted(together, key=lambda x: (-size(x), program.attributes[x][1])):
                at = made.begin + made.bytes
                made.bytes += size(x)
                made.homes[x] = made.pointer, at
            made.bytes = aligned(made.bytes)


def in_order(places: Sequence[Slot | None], shape: tuple[int, ...]) -> Matrix | None:
    """The matrix of this shape whose numbers' places these are, row by row; None if of none."""
    rows, columns = shape
    first, right = places[0], places[1 if columns > 1 else 0]
    below = places[columns if rows > 1 else 0]
    if first is None or right is None or below is None:
        return None
    found = Matrix(*first, below[1] - first[1], right[1] - first[1])
    return found if places == found.places(shape) else None
