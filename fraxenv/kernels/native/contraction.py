"""Products and sums as one operation, which rounds once.

Left to LLVM, which ones these are would depend on where a function is cut and on the processor.
Decided here, results have the same bits on every processor that has such an operation.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import chain

import numpy as np

from ..program import BOOKKEEPING, Id, IdArray, Program, live_values

JOINED = ("fma", "fms", "fnma")
"""`x y + z`, `x y - z`, `z - x y`."""


def operations(program: Program, i: Id) -> int:
    """How many operations a value counts for: a product and a sum are two, joined or not."""
    op = program.ops[i]
    if op == "product":
        return 2 * int(program.matrices[program.attributes[i]].size)
    if op == "map":
        return int(math.prod(program.attributes[i][1]))
    if op == "matmul":
        m, n, k = program.attributes[i]
        return int(2 * m * n * k)
    return 2 if op in JOINED else int(op not in BOOKKEEPING)


def contracted(program: Program, outputs: Sequence[IdArray]) -> Program:
    """The program with each product that one sum alone needs, in the same scope, joined with it.

    Args:
        program: made with `mathlib.expand`.
        outputs: the values of each result.
    """
    results = [int(x) for o in outputs for x in o.ravel()]
    alive = live_values(program, results)
    uses = _uses(program, alive, results)
    made = copy.copy(program)
    made.ops, made.args, made.joined = list(program.ops), list(program.args), True
    for i in np.flatnonzero(alive).tolist():
        op = program.ops[i]
        if op not in ("add", "sub") or program.dtypes[i].kind != "f":
            continue
        for place, product in enumerate(program.args[i]):
            alone = uses[product] == 1 and program.scopes[product] == program.scopes[i]
            if alone and program.ops[product] == "mul":
                made.ops[i] = "fma" if op == "add" else ("fms", "fnma")[place]
                made.args[i] = (*program.args[product], program.args[i][1 - place])
                break
    return made


def _uses(program: Program, alive: np.ndarray, results: Sequence[Id]) -> list[int]:
    """How often each value is needed."""
    uses, args = [0] * len(program.ops), program.args
    for x in chain(results, *(args[i] for i in np.flatnonzero(alive).tolist())):
        uses[x] += 1
    for loop in program.loops:
        condition = () if loop.condition is None else (loop.condition,)
        for x in (*loop.initial, *loop.following, *condition):
            uses[x] += 1
    return uses
