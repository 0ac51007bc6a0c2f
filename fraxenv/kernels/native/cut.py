"""What is kept from one part of a program for a later one, and what is computed again there.

A value that is kept costs memory and moves; computed again, it costs what leads to it. The cheaper
is chosen value by value, from the first to the last; the cost of what several others need counts
for each of them in part. This is the area flow of technology mapping, where it decides which gates
are duplicated.

Source: Manohararajah, Brown and Vranesic, "Heuristics for area minimization in LUT-based FPGA
technology mapping", IEEE TCAD 25(11), 2006.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..program import WHOLE, Id, Program
from .contraction import operations
from .schedule import captured_values

ROUNDS = 4
"""Rounds that a while loop is taken to have."""


class Cut(NamedTuple):
    """Where values come from.

    Attributes:
        kept: the values that are kept.
        known: the known ones that are needed.
        again: the values to compute again.
    """

    kept: list[Id]
    known: list[Id]
    again: list[Id]


class Graph:
    """The live values of one scope: a loop in it is one value.

    Args:
        program: the program.
        alive: its live values.
        scope: the scope.

    Attributes:
        members: the scope's values, each after what it needs.
    """

    def __init__(self, program: Program, alive: np.ndarray, scope: int) -> None:
        self._program = program
        self._captured = captured_values(program, alive)
        self._scopes: dict[int, list[Id]] = {}
        for i in np.flatnonzero(alive).tolist():
            self._scopes.setdefault(program.scopes[i], []).append(i)
        self._rounds: dict[int, int] = {}
        self.members = self._scopes.get(scope, [])
        self._operands: dict[Id, Sequence[Id]] = {i: program.args[i] for i in self.members}
        for i in self.members:
            if program.ops[i] == "loop":
                loop = program.loops[program.attributes[i]]
                carried = zip(loop.carries, loop.initial, strict=True)
                initial = [x for c, x in carried if alive[c]]
                self._operands[i] = list(dict.fromkeys([*initial, *self._captured[loop.scope]]))
        self._work = {i: self.work(i) for i in self.members}

    def operands(self, i: Id) -> Sequence[Id]:
        """The values outside of a value that it is computed from; none of another scope's."""
        return self._operands.get(i, ())

    def captured(self, loop: int) -> list[Id]:
        """The values that a loop's rounds need from outside."""
        return list(dict.fromkeys(self._captured[self._program.loops[loop].scope]))

    def work(self, i: Id) -> int:
        """The operations that compute a value: of a loop, all its rounds'."""
        op = self._program.ops[i]
        if op != "loop":
            return operations(self._program, i)
        index = self._program.attributes[i]
        return (self._program.loops[index].count or ROUNDS) * self.round(index)

    def round(self, loop: int) -> int:
        """The operations of a loop's round."""
        if loop not in self._rounds:
            inside = self._scopes.get(self._program.loops[loop].scope, ())
            self._rounds[loop] = sum(map(self.work, inside))
        return self._rounds[loop]

    def dependents(self, loop: int) -> set[Id]:
        """The scope's values that are computed from a loop's results."""
        found: set[Id] = set()
        for i in self.members:
            own = self._program.ops[i] == "final" and self._program.attributes[i][0] == loop
            if own or any(a in found for a in self.operands(i)):
                found.add(i)
        return found

    def cut(self, wanted: Sequence[Id], known: Mapping[Id, float], price: float) -> Cut:
        """A cheap way, nearly the cheapest, to have values in a later part.

        Args:
            wanted: the values: of the scope, or known.
            known: the values that are there, and what it costs to have each.
            price: what it costs to keep a value, where an operation costs 1.
        """
        here = [i for i in self.members if i not in known]
        kept: set[Id] = set()
        needed = set(here)
        for _ in range(2):  # who uses a value again is known only afterwards
            users = Counter(a for i in needed if i not in known for a in self.operands(i))
            part = {a: cost / max(1, users[a]) for a, cost in known.items()}
            kept.clear()
            for i in here:
                cost = float(self._work[i])
                for a in self._operands[i]:
                    cost += part.get(a, 0.0)
                if cost > price and self._program.ops[i] not in {"loop", *WHOLE}:
                    kept.add(i)
                    cost = price
                part[i] = cost / max(1, users[i])
            needed = reachable(
                wanted, lambda i: () if i in kept or i in known else self.operands(i)
            )
        return Cut(
            sorted(kept & needed),
            sorted(needed & known.keys()),
            sorted(needed - kept - known.keys()),
        )


def reachable(starts: Iterable[Id], operands: Callable[[Id], Iterable[Id]]) -> set[Id]:
    """All values from which the first ones are computed, and these."""
    found: set[Id] = set()
    pending = list(starts)
    while pending:
        i = pending.pop()
        if i not in found:
            found.add(i)
            pending.extend(operands(i))
    return found
