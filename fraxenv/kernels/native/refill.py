"""Iterations of which every environment needs another number, with every lane of a vector at work.

A vector goes through a `while` loop until its last lane has ended, and of sixteen lanes one nearly
always needs many rounds. Here the lanes of a tile of vectors that begin the loop wait in a list. As
many as a vector has go through the rounds; a lane that has ended is put back, and the next one of
the list takes its place. Rounds that most lanes of a vector need are computed where they are,
before what is left of it waits. A lane's result depends on that lane alone, wherever in a batch it
is.

The program, or the round of the counted loop that the `while` loop stands in, becomes parts:

    head   up to the loop, vector by vector
    going  whether a lane goes on
    turn   one round of the loop, in the lanes that go on
    tail   from the loop on, vector by vector

A tile has, besides what `gather` says, in memory

    live   what the head has computed for the turns and the tail, for each vector
    carry  what the loop carries, for each vector

Source: Aila, Laine and Karras, "Understanding the efficiency of ray traversal on GPUs: Kepler and
Fermi addendum", NVIDIA technical report 2012-02: rays that have ended are replaced by others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..buffer import Buffer
from ..program import Id, Program
from . import gather
from .cut import ROUNDS, Graph
from .gather import Layout, counted, place

COPY = 48
"""Operations that take as long as moving a value to another lane, as it is done lane by lane."""

PASS = 2
"""Operations that take as long as keeping a vector for later."""

OVERHEAD = 0.75
"""Share of a round that a lane's moves and what is computed again in every round may cost."""

TOGETHER = 0.75
"""Share of a vector's lanes from which on a round is computed where they are."""

FEWEST_VECTORS = 4
"""Vectors of the smallest tile that has lanes enough to take each other's places."""


@dataclass(frozen=True)
class Plan:
    """The parts of a program with a loop whose lanes are refilled.

    Attributes:
        around: the parts before and after the round that the loop stands in.
        loop: index of the loop.
        live: layout of the values kept of the head.
        moved: those of them that go with a lane.
        fixed: those of `around.fixed` that go with a lane.
        state: those of `around.state` that go with a lane.
        carry: layout of the loop's carried values, by their number.
        early: the round's carried values that the head computes, by their number.
        late: those that the tail computes.
    """

    around: gather.Plan
    loop: int
    live: Layout
    moved: Layout
    fixed: Layout
    state: Layout
    carry: Layout
    early: dict[int, Id]
    late: dict[int, Id]

    @property
    def bytes(self) -> int:
        """Memory of a vector."""
        around = self.around
        return around.fixed.bytes + 2 * around.state.bytes + self.live.bytes + self.carry.bytes

    @property
    def vectors(self) -> int:
        """Vectors in a tile."""
        return gather.vectors(self.bytes)

    def workspace(self, width: int) -> int:
        """Memory of a tile, bytes."""
        list_bytes = 4 * self.vectors * width
        return self.around.shared.bytes + (self.vectors + 1) * self.bytes + list_bytes


def plan(
    program: Program,
    alive: np.ndarray,
    outputs: Sequence[Id],
    buffers: Sequence[Buffer],
    width: int,
    least: int = 0,
) -> Plan | None:
    """The parts of a program with the loop of most operations; None if there is none that pays.

    Args:
        program: the program.
        alive: its live values.
        outputs: its results.
        buffers: its inputs.
        width: lanes of a vector.
        least: operations that it must have in all its rounds.
    """
    census = gather.Census.of(program, alive)
    found: list[tuple[int, int, int | None]] = []
    for index in census.running:
        loop = program.loops[index]
        if loop.condition is None or loop.condition in loop.carries:
            continue  # counted, or a branch
        possible, around = census.repeatable(loop.outer)
        cost = census.operations(loop.scope)
        long = cost >= max(gather.SHORTEST, least / ROUNDS)
        if possible and long and census.lookups[loop.scope] <= gather.LOOKUPS:
            found.append((-cost, index, around))
    for _, index, around in sorted(found, key=lambda x: x[:2]):
        made = _plan(program, alive, index, around, outputs, buffers, width)
        if made is not None:
            return made
    return None


def _plan(
    program: Program,
    alive: np.ndarray,
    index: int,
    within: int | None,
    outputs: Sequence[Id],
    buffers: Sequence[Buffer],
    width: int,
) -> Plan | None:
    loop = program.loops[index]
    assert loop.condition is not None
    around = gather.plan(
        program, alive, gather.Rare(index, within, loop.condition), outputs, buffers, width
    )
    if around is None or around.vectors < FEWEST_VECTORS:
        return None  # whatever else a vector has to keep
    graph = Graph(program, alive, loop.outer)
    dependent = graph.dependents(index)
    carried = {k: c for k, c in enumerate(loop.carries) if alive[c]}
    common = dict.fromkeys(around.shared.offsets, 0.0)
    lanes = [*around.fixed.offsets, *around.carries.values()]

    move = COPY / ROUNDS  # an operation that is computed again is in every round
    moved = graph.cut(graph.captured(index), common | dict.fromkeys(lanes, move), move)
    copied = [x for x in moved.known if x not in common]
    moves = COPY * (len(moved.kept) + len(copied) + 2 * len(carried)) / ROUNDS
    if moves + sum(map(graph.work, moved.again)) > OVERHEAD * graph.round(index):
        return None

    late = {k: x for k, x in around.following.items() if x in dependent}
    needed = {a for i in dependent for a in graph.operands(i) if program.ops[i] != "final"}
    there = dict.fromkeys([*common, *lanes, *moved.kept], 0.0)
    passed = graph.cut(sorted(needed - dependent), there, PASS)
    live = Layout.of({x: program.dtypes[x] for x in (*moved.kept, *passed.kept)}, width)
    made = Plan(
        around=around,
        loop=index,
        live=live,
        moved=live.only(moved.kept),
        fixed=around.fixed.only(x for x in copied if x in around.fixed.offsets),
        state=around.state.only(k for k, x in around.carries.items() if x in copied),
        carry=Layout.of({k: program.dtypes[c] for k, c in carried.items()}, width),
        early={k: x for k, x in around.following.items() if k not in late},
        late=late,
    )
    return made if made.vectors >= FEWEST_VECTORS else None


# --- LLVM IR ---


def write_vectors(plan: Plan, width: int, work: int = 0) -> str:
    """The function `@vectors`, which calls the parts of a plan for `count` vectors from `row`.

    They are those of `gather.write_vectors`, but for the round, which is `@head(shared, fixed, now,
    live, carry, next, round)`, `@going(shared, fixed, now, live, carry, round)` -> which lanes go
    on, `@turn(shared, fixed, now, live, carry, round, lanes)`, and `@tail` like `@head`.
    """
    around, tile = plan.around, plan.vectors
    fixed, state = around.fixed.bytes, around.state.bytes
    live, carry = plan.live.bytes, plan.carry.bytes

    def places(stem: str, vector: str) -> str:
        return (
            place(f"{stem}f", "%fixed", vector, fixed) + place(f"{stem}a", "%now", vector, state)
            + place(f"{stem}l", "%live", vector, live) + place(f"{stem}c", "%carry", vector, carry)
        )  # fmt: skip

    begin = counted(
        "v",
        "%n",
        f"""{places("v", "%v")}{place("vb", "%next", "%v", state)}
  call void @head(ptr %shared, ptr %vf, ptr %va, ptr %vl, ptr %vc, ptr %vb, i32 %round)
  %mask = call i32 @together(ptr %shared, ptr %vf, ptr %va, ptr %vl, ptr %vc, i32 %round)
  %v.first = mul i64 %v, {width}
  %known = load i64, ptr %taken.p
  %noted = call i64 @note(i32 %mask, i64 %v.first, ptr %list, i64 %known)
  store i64 %noted, ptr %taken.p""",
    )
    end = counted(
        "x",
        "%n",
        f"""{places("x", "%x")}{place("xb", "%next", "%x", state)}
  call void @tail(ptr %shared, ptr %xf, ptr %xa, ptr %xl, ptr %xc, ptr %xb, i32 %round)""",
    )
    rounds = gather.repeated(
        around.rounds,
        begin,
        f"""
  call void @refill(ptr %shared, ptr %fixed, ptr %now, ptr %live, ptr %carry, ptr %list, \
i64 %taken, i32 %round){end}""",
    )
    copies = (
        gather.copy_lanes("copy_fixed", plan.fixed)
        + gather.copy_lanes("copy_state", plan.state)
        + gather.copy_lanes("copy_live", plan.moved)
        + gather.copy_lanes("copy_carry", plan.carry)
    )
    return (
        copies
        + _write_together(width)
        + _write_refill(tile, width, (fixed, state, live, carry))
        + gather.write_tiles(
            around, tile, width, rounds, ("k", "u", "t", "v", "x", "w", "taken"), work,
            {"live": live, "carry": carry},
        )
    )  # fmt: skip


def _write_together(width: int) -> str:
    """`@together(shared, fixed, now, live, carry, round)` -> which lanes of a vector still go on.

    Rounds that most of its lanes need, computed where they are.
    """
    values = "ptr %shared, ptr %fixed, ptr %now, ptr %live, ptr %carry, i32 %round"
    return f"""
declare i32 @llvm.ctpop.i32(i32)

define internal i32 @together({values}) {{
entry:
  %begun = call i32 @going({values})
  br label %check
check:
  %lanes = phi i32 [ %begun, %entry ], [ %left, %turn ]
  %count = call i32 @llvm.ctpop.i32(i32 %lanes)
  %most = icmp uge i32 %count, {math.ceil(TOGETHER * width)}
  br i1 %most, label %turn, label %end
turn:
  call void @turn({values}, i32 %lanes)
  %on = call i32 @going({values})
  %left = and i32 %on, %lanes
  br label %check
end:
  ret i32 %lanes
}}
"""


def _write_refill(tile: int, width: int, sizes: Sequence[int]) -> str:
    """`@refill(shared, fixed, now, live, carry, list, taken, round)`: the loop for the list."""
    arrays = "ptr %fixed, ptr %now, ptr %live, ptr %carry"
    own = "".join(
        f"\n  %{to} = getelementptr i8, ptr %{array}, i64 {tile * size}"
        for to, array, size in zip(
            ("pf", "pa", "pl", "pc"), ("fixed", "now", "live", "carry"), sizes, strict=True
        )
    )
    moves = f"alloca [{width * len(gather.MOVE)} x i64]"
    fill = counted(
        "g",
        width,
        f"""
  %g.within = icmp slt i64 %g, %last
  %g.index = select i1 %g.within, i64 %g, i64 %last{gather.listed("gl", "%g.index", width)}\
{gather.move("gm", "%in", "%g", "%gl.v", "%gl.l", tile, "%g")}
  %g.whose = getelementptr i64, ptr %whose, i64 %g
  store i64 %g, ptr %g.whose""",
    )
    return f"""
define internal void @enter({arrays}, ptr %moves, i64 %count) {{
  call void @copy_fixed(ptr %fixed, ptr %moves, i64 %count)
  call void @copy_state(ptr %now, ptr %moves, i64 %count)
  call void @copy_live(ptr %live, ptr %moves, i64 %count)
  call void @copy_carry(ptr %carry, ptr %moves, i64 %count)
  ret void
}}

define internal void @refill(ptr %shared, {arrays}, ptr %list, i64 %taken, i32 %round) {{
entry:
  %g.p = alloca i64
  %whose = alloca [{width} x i64]
  %in = {moves}
  %out = {moves}{own}
  %none = icmp eq i64 %taken, 0
  br i1 %none, label %end, label %start
start:
  %last = sub i64 %taken, 1{fill}
  call void @enter({arrays}, ptr %in, i64 {width})
  %many = icmp sge i64 %taken, {width}
  %filled = select i1 %many, i64 {width}, i64 %taken
  %count = trunc i64 %filled to i32
  %above = shl i32 1, %count
  %all = sub i32 %above, 1
  br label %turn
turn:
  %lanes = phi i32 [ %all, %g.end ], [ %working, %settled ]
  %first = phi i64 [ %filled, %g.end ], [ %next, %settled ]
  call void @turn(ptr %shared, ptr %pf, ptr %pa, ptr %pl, ptr %pc, i32 %round, i32 %lanes)
  %going = call i32 @going(ptr %shared, ptr %pf, ptr %pa, ptr %pl, ptr %pc, i32 %round)
  %on = and i32 %going, %lanes
  %ended = xor i32 %on, %lanes
  br label %check
check:
  %rest = phi i32 [ %ended, %turn ], [ %fewer, %following ]
  %working = phi i32 [ %on, %turn ], [ %refilled, %following ]
  %next = phi i64 [ %first, %turn ], [ %after, %following ]
  %outs = phi i64 [ 0, %turn ], [ %outs.more, %following ]
  %ins = phi i64 [ 0, %turn ], [ %ins.now, %following ]
  %all.settled = icmp eq i32 %rest, 0
  br i1 %all.settled, label %settled, label %one
one:
  %lane = call i32 @llvm.cttz.i32(i32 %rest, i1 true)
  %own = zext i32 %lane to i64
  %own.whose = getelementptr i64, ptr %whose, i64 %own
  %who = load i64, ptr %own.whose{gather.listed("o", "%who", width)}\
{gather.move("om", "%out", "%outs", tile, "%own", "%o.v", "%o.l")}
  %outs.more = add i64 %outs, 1
  %more = icmp slt i64 %next, %taken
  br i1 %more, label %another, label %following
another:{gather.listed("n", "%next", width)}\
{gather.move("nm", "%in", "%ins", "%n.v", "%n.l", tile, "%own")}
  store i64 %next, ptr %own.whose
  %bit = shl i32 1, %lane
  %with = or i32 %working, %bit
  %later = add i64 %next, 1
  %ins.more = add i64 %ins, 1
  br label %following
following:
  %refilled = phi i32 [ %working, %one ], [ %with, %another ]
  %after = phi i64 [ %next, %one ], [ %later, %another ]
  %ins.now = phi i64 [ %ins, %one ], [ %ins.more, %another ]
  %less = sub i32 %rest, 1
  %fewer = and i32 %rest, %less
  br label %check
settled:
  call void @copy_carry(ptr %carry, ptr %out, i64 %outs)
  call void @enter({arrays}, ptr %in, i64 %ins)
  %some = icmp ne i32 %working, 0
  br i1 %some, label %turn, label %end
end:
  ret void
}}
"""
