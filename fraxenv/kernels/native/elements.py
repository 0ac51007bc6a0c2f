"""Numbers of a wide input that a loop looks up by its counter, as reads of one place.

A scan over arrays of a matrix for each round has a value for every number of them, hundreds of
thousands, of which a round looks up one of each row. What is written needs to know none of them:
numbers that lie at equal distances are where the counter says.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

from ..buffer import WIDE, Buffer
from ..program import Program


class Row(NamedTuple):
    """Where the numbers are that an `element` is one of.

    Attributes:
        number: of the buffer.
        begin: the number that it is at the index 0.
        step: numbers from there to that at the index 1.
    """

    number: int
    begin: int
    step: int


def elements(program: Program, buffers: Sequence[Buffer]) -> Program:
    """The program with `element`s of wide inputs in place of `lookup`s among their numbers.

    Args:
        program: the program.
        buffers: its inputs.
    """
    ops, args, attributes = program.ops, program.args, program.attributes
    wide = [buffer.size > WIDE for buffer in buffers]
    made = copy.copy(program)
    made.ops, made.args, made.attributes = list(ops), list(args), list(attributes)
    for i in [i for i, op in enumerate(ops) if op == "lookup"]:
        index, *values = args[i]
        if any(ops[x] != "input" for x in values):
            continue
        places = [attributes[x] for x in values]
        number, begin = places[0]
        step = places[1][1] - begin
        if wide[number] and places == [(number, begin + k * step) for k in range(len(places))]:
            made.ops[i], made.args[i] = "element", (index,)
            made.attributes[i] = Row(number, begin, step)
    return made
