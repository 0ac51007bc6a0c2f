"""The order in which a program's operations are computed, chosen to keep few values at hand.

A vectorised source computes all the differences, then all their squares, then all the roots: taken
in that order, thousands of values wait for each other in memory. This order goes depth first, and
takes whatever frees a register before anything that needs one.

Source: Sethi and Ullman, "The generation of optimal code for arithmetic expressions", J. ACM 17(4),
1970, for trees; on graphs, with common subexpressions, it is a heuristic.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..program import WHOLE, Id, Program


def schedule(
    program: Program,
    members: Sequence[Id],
    wanted: Sequence[Id],
    captured: Mapping[int, Sequence[Id]],
    kept: Mapping[Id, Id],
) -> list[Id]:
    """The live operations of one scope in an order that respects dependencies.

    Args:
        program: the program.
        members: ids of the scope's live operations, in any order that respects dependencies.
        wanted: ids that are needed after all of them, in the order of their use.
        captured: the program's `captured_values`.
        kept: the loop of each value that is in memory from its rounds on.
    """
    here = {x: k for k, x in enumerate(members)}
    there = here.copy()
    for x, loop in kept.items():
        there.pop(x, None)
        if loop in here:
            there[x] = here[loop]
    needs = [
        [*dict.fromkeys([there[a] for a in operands(program, x, captured) if a in there])]
        for x in members
    ]
    users: list[list[int]] = [[] for _ in members]
    for k, read in enumerate(needs):
        for a in read:
            users[a].append(k)
    left = [len(u) for u in users]
    for x in wanted:
        if x in here:
            left[here[x]] += 1
    rank = _depth_first(needs, [here[x] for x in wanted if x in here])
    return [members[k] for k in _greedy(needs, users, left, rank)]


def operands(program: Program, x: Id, captured: Mapping[int, Sequence[Id]]) -> Sequence[Id]:
    """The values that a value is computed from: of a loop, all that come from outside of it."""
    op = program.ops[x]
    if op == "loop":
        loop = program.loops[program.attributes[x]]
        return [*loop.initial, *captured[loop.scope], *program.args[x]]
    return program.args[x]


def captured_values(program: Program, alive: np.ndarray | None = None) -> dict[int, list[Id]]:
    """The values that each loop's body uses from outside, by its scope.

    Args:
        program: the program.
        alive: the values that count (bool, by id). Default: all.
    """
    found: dict[int, list[Id]] = {loop.scope: [] for loop in program.loops}
    outer = {loop.scope: loop.outer for loop in program.loops}

    def use(x: Id, at: int) -> None:
        while at in found and program.scopes[x] != at:
            found[at].append(x)
            at = outer[at]

    scopes = program.scopes
    for x in range(len(scopes)) if alive is None else np.flatnonzero(alive).tolist():
        scope = scopes[x]
        if scope not in found:
            continue
        for a in program.args[x]:
            if scopes[a] != scope:
                use(a, scope)
        if program.ops[x] == "loop":
            for a in program.loops[program.attributes[x]].initial:
                use(a, scope)
    for loop in program.loops:
        for x in loop.following:
            if alive is None or alive[x]:
                use(x, loop.scope)
    return found


UNMOVED = WHOLE | {"constant", "input", "known", "loop", "counter", "entry"}
"""Values that are given no place in memory."""


class Lifetimes(NamedTuple):
    """From when to when the values of one scope wait in registers, or on the stack.

    Attributes:
        first: the place, in the scope's order, from which each is there.
        last: the place of its last use.
        inside: bytes that wait in the loop at each place, besides.
    """

    first: dict[Id, int]
    last: dict[Id, int]
    inside: list[int]


def _lifetimes(
    program: Program,
    order: Sequence[Id],
    ends: Sequence[Id],
    captured: Mapping[int, Sequence[Id]],
    slots: Container[Id],
    most: Mapping[int, int],
) -> Lifetimes:
    computed: dict[Id, int] = {}
    last: dict[Id, int] = {}
    inside = [0] * (len(order) + 1)
    for k, x in enumerate(order):
        op = program.ops[x]
        # Inputs are loaded at the beginning, and what a loop carries is there.
        computed[x] = 0 if op in ("input", "carry") else k
        read = operands(program, x, captured)
        if op == "loop":
            inside[k] = most.get(program.loops[program.attributes[x]].scope, 0)
            read = [a for a in read if a not in slots]
        for a in read[:1] if op == "lookup" else read:
            last[a] = k
    last.update(dict.fromkeys(ends, len(order)))
    first = {
        a: end if a in slots else computed[a]
        for a, end in last.items()
        # What comes from outside of the scope waits there.
        if (a in computed or a in slots)
        and program.ops[a] not in {"constant", "loop", "entry", *WHOLE}
    }
    return Lifetimes(first, last, inside)


def waiting_bytes(
    program: Program,
    orders: Mapping[int, Sequence[Id]],
    ends: Mapping[int, Sequence[Id]],
    captured: Mapping[int, Sequence[Id]],
    slots: Container[Id],
    width: int,
) -> int:
    """Bytes of the most vectors that wait at once in a function, each for its last use.

    What is more than the registers hold is on the stack.

    Args:
        program: the program.
        orders: the values of each scope, in the order in which they are computed.
        ends: the values that are needed at the end of each scope.
        captured: the program's `captured_values`.
        slots: the values that are in memory, and loaded where they are needed.
        width: lanes of a vector.
    """
    most: dict[int, int] = {}
    for scope in sorted(orders, key=lambda s: -program.depth[s]):  # the innermost first
        order = orders[scope]
        lives = _lifetimes(program, order, ends.get(scope, ()), captured, slots, most)
        changes = [0] * (len(order) + 2)
        for a, begin in lives.first.items():
            size = width * program.dtypes[a].itemsize
            changes[begin] += size
            changes[lives.last[a] + 1] -= size
        waiting = itertools.accumulate(changes)
        most[scope] = max(w + n for w, n in zip(waiting, lives.inside, strict=False))
    return max(most.values(), default=0)


def spilled_values(
    program: Program,
    orders: Mapping[int, Sequence[Id]],
    ends: Mapping[int, Sequence[Id]],
    captured: Mapping[int, Sequence[Id]],
    slots: Container[Id],
    width: int,
    room: int,
) -> list[Id]:
    """The values to be kept in memory, for the others to be no more than a stack has room for.

    Whenever there are too many, that which waits longest goes. Loops within loops share the room.

    Args:
        program: the program.
        orders: the values of each scope, in the order in which they are computed.
        ends: the values that are needed at the end of each scope.
        captured: the program's `captured_values`.
        slots: the values that are in memory already.
        width: lanes of a vector.
        room: bytes that may wait at once.

    Source: Poletto and Sarkar, "Linear scan register allocation", ACM TOPLAS 21(5), 1999.
    """
    each = room // len({program.depth[s] for s in orders})
    # What a loop carries, and what follows it, are one place.
    partners: dict[Id, list[Id]] = {}
    for loop in program.loops:
        for pair in zip(loop.carries, loop.following, strict=False):
            for x, y in (pair, pair[::-1]):
                partners.setdefault(x, []).append(y)
    found: dict[Id, None] = {}
    for scope, order in orders.items():
        lives = _lifetimes(program, order, ends.get(scope, ()), captured, slots, {})
        begins: list[list[Id]] = [[] for _ in range(len(order) + 1)]
        for a, begin in lives.first.items():
            begins[begin].append(a)
        ending, waiting = [0] * (len(order) + 2), 0
        longest: list[tuple[int, Id]] = []
        for k, beginning in enumerate(begins):
            waiting -= ending[k]
            for a in beginning:
                if a in found:
                    continue
                size = width * program.dtypes[a].itemsize
                waiting += size
                ending[lives.last[a] + 1] += size
                if program.ops[a] not in UNMOVED and a not in slots:
                    heapq.heappush(longest, (-lives.last[a], a))
            while waiting > each and longest and -longest[0][0] > k:
                for a in (longest[0][1], *partners.get(longest[0][1], ())):
                    if a in found or a in slots or program.ops[a] in UNMOVED:
                        continue
                    found[a] = None
                    if a in lives.first and lives.first[a] <= k <= lives.last[a]:
                        size = width * program.dtypes[a].itemsize
                        waiting -= size
                        ending[lives.last[a] + 1] -= size
                heapq.heappop(longest)
    return list(found)


def _depth_first(needs: Sequence[Sequence[int]], roots: Sequence[int]) -> list[int]:
    """The place of each operation when operands are computed right before their first use."""
    rank = [-1] * len(needs)
    count = 0
    # What nothing wanted needs (the loops of a scope, say) comes in its own order.
    for root in [*roots, *range(len(needs))]:
        pending = [(root, False)]
        while pending:
            k, ready = pending.pop()
            if rank[k] >= 0:
                continue
            if ready:
                rank[k] = count
                count += 1
                continue
            pending.append((k, True))
            pending.extend((a, False) for a in reversed(needs[k]) if rank[a] < 0)
    return rank


def _greedy(
    needs: Sequence[Sequence[int]],
    users: Sequence[Sequence[int]],
    left: list[int],
    rank: Sequence[int],
) -> list[int]:
    waiting = [len(n) for n in needs]
    last_of = [sum(left[a] == 1 for a in n) for n in needs]
    done = [False] * len(needs)
    # Frees at least as much as it takes first; then depth first.
    heap = [(-(last_of[k] > 0), rank[k], k) for k in range(len(needs)) if waiting[k] == 0]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        _, _, k = heapq.heappop(heap)
        if done[k]:
            continue
        done[k] = True
        order.append(k)
        for a in needs[k]:
            left[a] -= 1
            if left[a] == 1:
                for u in users[a]:
                    if not done[u]:
                        last_of[u] += 1
                        if waiting[u] == 0:
                            heapq.heappush(heap, (-1, rank[u], u))
        for u in users[k]:
            waiting[u] -= 1
            if waiting[u] == 0:
                heapq.heappush(heap, (-(last_of[u] > 0), rank[u], u))
    return order
