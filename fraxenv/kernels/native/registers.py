"""Which values wait in registers and which in memory, chosen before LLVM sees a function.

LLVM chooses well, and takes most of its time for it, more than in proportion to a function's
length. Chosen here, LLVM need but translate. Whenever there are more values than registers, that
goes whose next use is farthest. What goes is stored where it is computed, and loaded again where it
is needed. So it is in the rounds of counted loops; loops that end by a condition, which are short
and run often, are functions of their own that LLVM optimises.

Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
Journal 5(2), 1966.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..program import BOOL, WHOLE, Id, Program
from .builder import stored

LONG = 20_000
"""Values of a function from which on its registers are chosen here: LLVM takes seconds over it."""

BLOCK = 1000
"""Operations of a basic block, at whose end nothing waits in registers.

LLVM's translation takes time that grows with a block's square, as its own choice does.
"""

PART = 20 * BLOCK
"""Operations of a part that is a function, and a module, of its own: LLVM translates it while the
next one is written."""

SPARE = 4
"""Registers that are LLVM's, for what instructions need besides their operands."""

WITHOUT_INSTRUCTIONS = frozenset({"constant", "input", "known", "carry", "counter", "entry"})
"""What nothing is written for where it stands in the order."""

_UNMOVED = WITHOUT_INSTRUCTIONS | WHOLE | {"pin", "final", "loop"}

_READING_NOTHING = WITHOUT_INSTRUCTIONS | {"pin", "final"}

_NEVER = 1 << 60


class Registers(NamedTuple):
    """A processor's registers for vectors.

    Attributes:
        number: how many there are.
        bytes: the size of one.
        masks: whether bools have others.
    """

    number: int
    bytes: int
    masks: bool


class Choice(NamedTuple):
    """Where the values of a function wait.

    Attributes:
        places: the values that are to be stored once they are computed, and the place of each.
        sizes: the bytes of each place.
        left: the values that leave the registers with each operation.
        ends: the number of the operation that needs a value last.
    """

    places: dict[Id, int]
    sizes: list[int]
    left: list[list[Id]]
    ends: dict[Id, int]


def choose(
    program: Program,
    ids: Sequence[Id],
    begin: Sequence[Id],
    wanted: Collection[Id],
    operands: Callable[[Id], Sequence[Id]],
    in_memory: Callable[[Id], bool],
    registers: Registers,
    width: int,
) -> Choice:
    """Choose for operations that follow each other; loops and products among them are called.

    Args:
        program: the program.
        ids: the operations, in their order.
        begin: the values that are there before them; those that are needed are to be stored.
        wanted: the values that are needed afterwards.
        operands: the values that an operation reads.
        in_memory: whether a value is in memory anyway.
        registers: the processor's.
        width: lanes of a vector.
    """
    stay = {source(program, x) for x in wanted}
    ends = dict.fromkeys(stay, _NEVER)
    uses = dict.fromkeys(stay, len(ids))
    ops = program.ops
    # Of each operation what it reads, and itself, and when each is needed next.
    needed: list[list[tuple[Id, int]]] = []
    for k in reversed(range(len(ids))):
        i = ids[k]
        found = [] if ops[i] in _UNMOVED else [(i, uses.get(i, _NEVER))]
        for x in () if ops[i] in _READING_NOTHING else operands(i):
            if ops[x] == "pin":
                x = source(program, x)
            next_use = uses.get(x)
            if next_use is None:
                ends[x], next_use = k, _NEVER
            elif next_use == k:  # read twice
                continue
            found.append((x, next_use))
            uses[x] = k
        needed.append(found[::-1])
    needed.reverse()

    of_dtype = {dtype: _registers_of(dtype, registers, width) for dtype in set(program.dtypes)}
    sizes = [of_dtype[dtype] for dtype in program.dtypes]
    here: dict[Id, int] = {}
    farthest: list[tuple[int, Id]] = []
    taken, room = 0, registers.number - SPARE
    moved = {x for x in begin if x in uses}
    left: list[list[Id]] = [[] for _ in ids]

    def move(x: Id, k: int) -> None:
        left[k].append(x)
        if not in_memory(x):
            moved.add(x)

    for k, i in enumerate(ids):
        if ops[i] in WITHOUT_INSTRUCTIONS:
            continue
        called = ops[i] in ("loop", "matmul", "map")
        for x, next_use in needed[k]:
            was_here = x in here
            if was_here and ops[i] == "loop":  # its rounds have registers of their own
                taken -= sizes[x]
                del here[x]
                move(x, k)
            elif x == i or was_here or (not called and (x in moved or in_memory(x))):
                if not sizes[x] or next_use == _NEVER:
                    taken -= sizes[x] if was_here else 0
                    here.pop(x, None)
                    left[k].append(x)
                    continue
                taken += 0 if was_here else sizes[x]
                here[x] = next_use
                heapq.heappush(farthest, (-next_use, x))
        while taken > room:
            far, x = heapq.heappop(farthest)
            if here.get(x) == -far:  # not what it was before it was used
                taken -= sizes[x]
                del here[x]
                move(x, k)
        if called or k % BLOCK == BLOCK - 1:
            for x in here:
                move(x, k)
            here, taken = {}, 0
    first = dict.fromkeys(begin, -1)
    lives = [(-1, x) for x in begin if x in moved]
    lives += [(k, x) for k, x in enumerate(ids) if x in moved and x not in first]
    places, bytes_ = _places(lives, ends, lambda x: width * stored(program.dtypes[x]).itemsize)
    return Choice(places, bytes_, left, ends)


def source(program: Program, x: Id) -> Id:
    """The value that is in the register of another."""
    while program.ops[x] == "pin":
        x = program.args[x][0]
    return x


def _registers_of(dtype: np.dtype[Any], registers: Registers, width: int) -> int:
    """How many registers a value takes."""
    if dtype == BOOL and registers.masks:
        return 0
    return -(-width * stored(dtype).itemsize // registers.bytes)


def _places(
    lives: Sequence[tuple[int, Id]], ends: Mapping[Id, int], size: Callable[[Id], int]
) -> tuple[dict[Id, int], list[int]]:
    """The place of each value, which no other has meanwhile, and the bytes of each place.

    Args:
        lives: from where on each value is there, in that order.
        ends: where it is last used.
        size: its bytes.
    """
    vacant: dict[int, list[int]] = {}
    ending: list[tuple[int, Id]] = []
    places: dict[Id, int] = {}
    sizes: list[int] = []
    for k, x in lives:
        while ending and ending[0][0] <= k:
            _, gone = heapq.heappop(ending)
            vacant.setdefault(size(gone), []).append(places[gone])
        if vacant.get(size(x)):
            places[x] = vacant[size(x)].pop()
        else:
            places[x] = len(sizes)
            sizes.append(size(x))
        heapq.heappush(ending, (ends[x], x))
    return places, sizes
