"""Branches that few environments take, computed for the environments of many vectors together.

A vector computes a branch as soon as one of its lanes takes it, so that a branch that one lane in
twenty takes is computed by every other vector. Here a tile of vectors is first computed as if no
lane took it; the lanes that do are gathered into vectors of their own, computed once more with the
branch, and put back. A lane's result depends on that lane alone, wherever in a batch it is.

What has to be computed again is the loop round that the branch stands in, or, outside of loops, the
whole program. A tile goes through the rounds together, and keeps its values in memory in between:

    shared  what all lanes have in common
    fixed   what the rounds need from before the loop, for each vector
    now     what the loop carries at the beginning of a round, for each vector
    next    what it carries at the end, in the layout of `now`

Source: the idea is that of wavefront path tracing (Laine, Karras and Aila, "Megakernels considered
harmful: wavefront path tracing on GPUs", HPG 2013), within a core's cache.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..buffer import Buffer
from ..program import WHOLE, Id, Program, live_values
from .contraction import operations
from .schedule import captured_values

SHORTEST = 2_000
"""Operations of a branch below which gathering costs more than it saves."""

SHARE = 0.25
"""Share of a branch in the operations repeated for it, below which gathering does not pay."""

LOOKUPS = 256
"""Values that may be laid out anew in every round to be looked up by its number."""

TILE_BYTES = 1 << 19
"""Memory of a tile's values, within the second-level cache of most processors."""

MOST_VECTORS = 16

CHUNK = 64
"""Values of a lane that are moved together: as many cache lines of either vector."""


@dataclass(frozen=True)
class Rare:
    """A branch that is worth gathering for, and the round that it stands in.

    Attributes:
        branch: index of the branch among the program's loops.
        loop: index of the loop; None where the branch stands outside of loops.
        taken: the value that says whether a lane takes the branch.
        operations: operations of the branch.
    """

    branch: int
    loop: int | None
    taken: Id
    operations: int = 0


@dataclass(frozen=True)
class Census:
    """What there is in a program's scopes.

    Attributes:
        running: the live loops.
        kept: those of which every round's values are kept.
        computed: the number of live values of each scope.
        lookups: the number of values that each scope looks up.
    """

    program: Program
    running: list[int]
    kept: set[int]
    computed: list[int]
    lookups: list[int]

    @staticmethod
    def of(program: Program, alive: np.ndarray) -> Census:
        """Count a program's live values."""
        scopes = len(program.depth)
        census = Census(program, [], set(), [0] * scopes, [0] * scopes)
        for i in np.flatnonzero(alive).tolist():
            op, scope = program.ops[i], program.scopes[i]
            census.computed[scope] += max(1, operations(program, i))
            if op == "loop":
                census.running.append(program.attributes[i])
            elif op == "round":
                census.kept.add(program.attributes[i][0])
            elif op == "lookup":
                census.lookups[scope] += len(program.args[i])
        census.running.sort()
        return census

    def operations(self, scope: int) -> int:
        """The values of a scope, and of the rounds of the loops in it; a while loop's once."""
        loops = [self.program.loops[k] for k in self.running]
        below = [
            (loop.count or 1) * self.operations(loop.scope) for loop in loops if loop.outer == scope
        ]
        return self.computed[scope] + sum(below)

    def repeatable(self, scope: int) -> tuple[bool, int | None]:
        """Whether a tile can go through a scope together, and the loop that it is a round of.

        It can through the whole program, and through the rounds of an outermost counted loop.
        """
        around = next((k for k in self.running if self.program.loops[k].scope == scope), None)
        if around is None:
            return scope == 0, None
        loop = self.program.loops[around]
        simple = loop.count is not None and not loop.outer and around not in self.kept
        return simple and self.lookups[scope] <= LOOKUPS, around


def rare_branch(program: Program, alive: np.ndarray) -> Rare | None:
    """The branch of most operations that stands outside of loops, or in an outermost counted one.

    Args:
        program: the program.
        alive: its live values.
    """
    census = Census.of(program, alive)
    best, most = None, 0
    for index in census.running:
        branch = program.loops[index]
        if branch.condition is None or branch.condition not in branch.carries:
            continue
        possible, around = census.repeatable(branch.outer)
        if not possible:
            continue
        cost = census.operations(branch.scope)
        rest = census.operations(branch.outer) - cost
        if cost < SHORTEST or cost < SHARE * rest or cost <= most:
            continue
        taken = branch.initial[branch.carries.index(branch.condition)]
        best, most = Rare(index, around, taken, cost), cost
    return best


def with_known(program: Program, values: Iterable[Id]) -> Program:
    """The program with these values known from elsewhere: nothing is computed for them."""
    changed = copy.copy(program)
    changed.ops, changed.args = list(program.ops), list(program.args)
    changed.attributes = list(program.attributes)
    for i in values:
        changed.ops[i], changed.args[i], changed.attributes[i] = "known", (), None
    return changed


@dataclass(frozen=True)
class Layout:
    """Offsets and sizes of values in a vector's memory, and the size of all, bytes."""

    offsets: Mapping[Id, int]
    sizes: Mapping[Id, int]
    bytes: int

    @staticmethod
    def of(dtypes: Mapping[Id, np.dtype], width: int) -> Layout:
        """One after the other, each at a multiple of 64 bytes."""
        offsets, end = {}, 0
        for key, dtype in dtypes.items():
            offsets[key] = end
            end += -(-width * dtype.itemsize // 64) * 64
        return Layout(offsets, {k: d.itemsize for k, d in dtypes.items()}, max(64, end))

    def only(self, keys: Iterable[Id]) -> Layout:
        """Some of the values, where they are."""
        return Layout({k: self.offsets[k] for k in keys}, self.sizes, self.bytes)


@dataclass(frozen=True)
class Plan:
    """The parts of a program with a rare branch.

    Attributes:
        rare: the branch.
        rounds: number of rounds of its loop.
        scope: the scope of a round.
        before: the values computed before the loop: they fill `shared`, `fixed` and `now`.
        shared: layout of the values that are the same in all lanes.
        fixed: layout of the other values from before the loop that are needed in it or after it.
        state: layout of the carried values, by their number.
        initial: the carried values before the first round, by their number.
        carries: the carried values at the beginning of a round, by their number.
        following: the carried values at the end of a round, by their number.
        finals: the number of the carried value that each value after the loop is.
        after: the program after the loop.
    """

    rare: Rare
    rounds: int
    scope: int
    before: list[Id]
    shared: Layout
    fixed: Layout
    state: Layout
    initial: dict[int, Id]
    carries: dict[int, Id]
    following: dict[int, Id]
    finals: dict[Id, int]
    after: Program

    @property
    def vectors(self) -> int:
        """Vectors in a tile."""
        return vectors(self.fixed.bytes + 2 * self.state.bytes)

    def workspace(self, width: int) -> int:
        """Memory of a tile, bytes."""
        each = self.fixed.bytes + 2 * self.state.bytes
        return self.shared.bytes + (self.vectors + 1) * each + 4 * self.vectors * width


def vectors(each: int) -> int:
    """Vectors in a tile that keeps so many bytes for each."""
    return int(np.clip(TILE_BYTES // each - 1, 1, MOST_VECTORS))


def plan(
    program: Program,
    alive: np.ndarray,
    rare: Rare,
    outputs: Sequence[Id],
    buffers: Sequence[Buffer],
    width: int,
) -> Plan | None:
    """The parts of a program with a rare branch.

    None where a tile has room for one vector only: alone, it has nobody to share with.

    Args:
        program: the program.
        alive: its live values.
        rare: the branch.
        outputs: the program's results.
        buffers: its inputs.
        width: lanes of a vector.
    """
    carries: dict[int, Id] = {}
    initial: dict[int, Id] = {}
    known: list[Id] = []
    if rare.loop is None:
        # The program is the only round, its results what is carried.
        rounds, scope = 1, 0
        captured = {i for i in np.flatnonzero(alive).tolist() if program.ops[i] == "input"}
        unknown = [x for x in dict.fromkeys(outputs) if program.ops[x] != "constant"]
        following = dict(enumerate(unknown))
        finals = {x: k for k, x in following.items()}
    else:
        loop = program.loops[rare.loop]
        rounds, scope = loop.count or 1, loop.scope
        uses = captured_values(program, alive)[scope]
        captured = {x for x in uses if program.ops[x] != "constant"}
        finals = {
            i: program.attributes[i][1]
            for i in np.flatnonzero(alive).tolist()
            if program.ops[i] == "final" and program.attributes[i][0] == rare.loop
        }
        carries = {k: c for k, c in enumerate(loop.carries) if alive[c]}
        initial = {k: loop.initial[k] for k in carries}
        following = {k: loop.following[k] for k in sorted({*carries, *finals.values()})}
    state = Layout.of({k: program.dtypes[x] for k, x in following.items()}, width)
    if vectors(2 * state.bytes) == 1:
        return None
    if rare.loop is not None:
        begun = live_values(program, [*captured, *initial.values()])
        known = [
            i
            for i in np.flatnonzero(begun).tolist()
            if program.scopes[i] == 0
            and program.ops[i] not in {"constant", "input", "loop", *WHOLE}
        ]
    after = with_known(program, [*finals, *known])
    later = live_values(after, outputs)
    needed = captured | {i for i in known if later[i]}
    shared, fixed = _common(program, needed, buffers)
    made = Plan(
        rare=rare,
        rounds=rounds,
        scope=scope,
        before=[*sorted(needed), *initial.values()],
        shared=Layout.of({i: program.dtypes[i] for i in shared}, width),
        fixed=Layout.of({i: program.dtypes[i] for i in fixed}, width),
        state=state,
        initial=initial,
        carries=carries,
        following=following,
        finals=finals,
        after=after,
    )
    return made if made.vectors > 1 else None


def _common(
    program: Program, values: Iterable[Id], buffers: Sequence[Buffer]
) -> tuple[list[Id], list[Id]]:
    """The values that are uniform over the lanes, and the others."""
    ordered = sorted(values)
    # What they are computed from comes before them.
    size = ordered[-1] + 1 if ordered else 0
    same = np.zeros(size, bool)
    for i in range(size):
        op = program.ops[i]
        if op == "input":
            same[i] = not buffers[program.attributes[i][0]].batched
        elif op == "constant":
            same[i] = True
        elif op not in {"loop", "final", "round", "carry", "counter", "entry", *WHOLE}:
            same[i] = all(same[a] for a in program.args[i])
    return [i for i in ordered if same[i]], [i for i in ordered if not same[i]]


# --- LLVM IR ---


def counted(name: str, count: str | int, body: str) -> str:
    """A loop whose counter `%name` (i64) goes from 0."""
    return f"""
  store i64 0, ptr %{name}.p
  br label %{name}.check
{name}.check:
  %{name} = load i64, ptr %{name}.p
  %{name}.more = icmp slt i64 %{name}, {count}
  br i1 %{name}.more, label %{name}.body, label %{name}.end
{name}.body:{body}
  %{name}.following = add i64 %{name}, 1
  store i64 %{name}.following, ptr %{name}.p
  br label %{name}.check
{name}.end:"""


def copy_lanes(name: str, layout: Layout) -> str:
    """`@name(array, moves, count)`: lanes of an array's vectors to places in others of them.

    The values of one lane are in as many cache lines as they are, those of its neighbours in the
    same ones: some values of all lanes are moved before the next values of any.
    """
    values = list(enumerate(layout.offsets.items()))
    chunks = [values[i : i + CHUNK] for i in range(0, len(values), CHUNK)]
    room, loops = "", ""
    for c, chunk in enumerate(chunks):
        lines = [moved(f"m{c}", f"%m{c}", layout.bytes)]
        for k, (key, offset) in chunk:
            bits = 8 * layout.sizes[key]
            lines.append(f"""
  %s{k} = getelementptr i8, ptr %m{c}.from, i64 {offset}
  %a{k} = getelementptr i{bits}, ptr %s{k}, i64 %m{c}.lane
  %x{k} = load i{bits}, ptr %a{k}
  %t{k} = getelementptr i8, ptr %m{c}.to, i64 {offset}
  %b{k} = getelementptr i{bits}, ptr %t{k}, i64 %m{c}.place
  store i{bits} %x{k}, ptr %b{k}""")
        room += f"\n  %m{c}.p = alloca i64"
        loops += counted(f"m{c}", "%count", "".join(lines))
    return (
        f"define internal void @{name}(ptr %array, ptr %moves, i64 %count) noinline "
        f"{{\nentry:{room}{loops}\n  ret void\n}}\n"
    )


MOVE = ("source", "lane", "target", "place")
"""The numbers of a lane that moves: vector and lane where it is, vector and lane where it goes."""


def move(name: str, moves: str, index: str, *numbers: str | int) -> str:
    """Store a move, its four numbers in the order of `MOVE`, at an index of an array of them."""
    stores = [
        f"""
  %{name}.{part}.p = getelementptr [{len(MOVE)} x i64], ptr {moves}, i64 {index}, i64 {k}
  store i64 {number}, ptr %{name}.{part}.p"""
        for k, (part, number) in enumerate(zip(MOVE, numbers, strict=True))
    ]
    return "".join(stores)


def moved(name: str, index: str, size: int) -> str:
    """The numbers of the move at an index of `%moves`, and its vectors `%name.from`, `%name.to`."""
    loads = [
        f"""
  %{name}.{part}.p = getelementptr [{len(MOVE)} x i64], ptr %moves, i64 {index}, i64 {k}
  %{name}.{part} = load i64, ptr %{name}.{part}.p"""
        for k, part in enumerate(MOVE)
    ]
    vectors = place(f"{name}.from", "%array", f"%{name}.source", size) + place(
        f"{name}.to", "%array", f"%{name}.target", size
    )
    return "".join(loads) + vectors


NOTE = """
define internal i64 @note(i32 %mask, i64 %first, ptr %list, i64 %known) {
entry:
  br label %check
check:
  %rest = phi i32 [ %mask, %entry ], [ %fewer, %one ]
  %count = phi i64 [ %known, %entry ], [ %more, %one ]
  %none = icmp eq i32 %rest, 0
  br i1 %none, label %done, label %one
one:
  %lane = call i32 @llvm.cttz.i32(i32 %rest, i1 true)
  %begin = trunc i64 %first to i32
  %index = add i32 %begin, %lane
  %at = getelementptr i32, ptr %list, i64 %count
  store i32 %index, ptr %at
  %less = sub i32 %rest, 1
  %fewer = and i32 %rest, %less
  %more = add i64 %count, 1
  br label %check
done:
  ret i64 %count
}
"""
"""`@note(mask, first, list, known)`: add the lanes of a mask to a list, and count them."""


def place(name: str, array: str, vector: str, size: int) -> str:
    """The address `%name` of a vector's part of an array."""
    return f"""
  %{name}.o = mul i64 {vector}, {size}
  %{name} = getelementptr i8, ptr {array}, i64 %{name}.o"""


def listed(name: str, index: str, width: int) -> str:
    """The vector `%name.v` and the lane `%name.l` that stand at an index of the list."""
    return f"""
  %{name}.a = getelementptr i32, ptr %list, i64 {index}
  %{name}.i = load i32, ptr %{name}.a
  %{name}.w = zext i32 %{name}.i to i64
  %{name}.v = udiv i64 %{name}.w, {width}
  %{name}.l = urem i64 %{name}.w, {width}"""


def write_vectors(plan: Plan, width: int, work: int = 0) -> str:
    """The function `@vectors`, which calls the parts of a plan for `count` vectors from `row`.

    Their workspace, of `work` bytes, follows what is at `shared`. They are `@share(in, shared)`,
    `@before(in, row, shared, fixed, now)`, `@round(shared, fixed, now, next, round, branching)` ->
    which lanes take the branch, which is left out unless `branching`, and `@after(in, out, row,
    shared, fixed, now)`.
    """
    tile, fixed, state = plan.vectors, plan.fixed.bytes, plan.state.bytes

    usual = counted(
        "v",
        "%n",
        f"""{place("vf", "%fixed", "%v", fixed)}\
{place("va", "%now", "%v", state)}{place("vb", "%next", "%v", state)}
  %mask = call i32 @round(ptr %shared, ptr %vf, ptr %va, ptr %vb, i32 %round, i1 false)
  %v.first = mul i64 %v, {width}
  %known = load i64, ptr %taken.p
  %noted = call i64 @note(i32 %mask, i64 %v.first, ptr %list, i64 %known)
  store i64 %noted, ptr %taken.p""",
    )
    gather = counted(
        "g",
        width,
        f"""
  %g.place = add i64 %from, %g
  %g.least = icmp slt i64 %g.place, %last
  %g.index = select i1 %g.least, i64 %g.place, i64 %last{listed("gl", "%g.index", width)}\
{move("gm", "%moves", "%g", "%gl.v", "%gl.l", tile, "%g")}""",
    )
    scatter = counted(
        "s",
        "%filled",
        f"""
  %s.place = add i64 %from, %s{listed("sl", "%s.place", width)}\
{move("sm", "%moves", "%s", tile, "%s", "%sl.v", "%sl.l")}""",
    )
    together = counted(
        "p",
        "%packs",
        f"""
  %from = mul i64 %p, {width}
  %rest = sub i64 %taken, %from
  %full = icmp slt i64 %rest, {width}
  %filled = select i1 %full, i64 %rest, i64 {width}
  %pf = getelementptr i8, ptr %fixed, i64 {tile * fixed}
  %pa = getelementptr i8, ptr %now, i64 {tile * state}
  %pb = getelementptr i8, ptr %next, i64 {tile * state}{gather}
  call void @copy_fixed(ptr %fixed, ptr %moves, i64 {width})
  call void @copy_state(ptr %now, ptr %moves, i64 {width})
  %again = call i32 @round(ptr %shared, ptr %pf, ptr %pa, ptr %pb, i32 %round, i1 true){scatter}
  call void @copy_state(ptr %next, ptr %moves, i64 %filled)""",
    )
    rounds = repeated(
        plan.rounds,
        usual,
        f"""
  %last = sub i64 %taken, 1
  %up = add i64 %last, {width}
  %packs = sdiv i64 %up, {width}{together}""",
    )
    counters = ("k", "u", "t", "v", "p", "g", "s", "w", "taken")
    copies = copy_lanes("copy_fixed", plan.fixed) + copy_lanes("copy_state", plan.state)
    return "\n" + copies + write_tiles(plan, tile, width, rounds, counters, work)


def repeated(rounds: int, every: str, listed: str) -> str:
    """Text that does `every`, which lists lanes, then `listed`, in each of the rounds.

    A round reads the state at `%now` and writes it at `%next`; `%taken` is the list's length.
    """
    return counted(
        "t",
        rounds,
        f"""
  %round = trunc i64 %t to i32
  %odd = trunc i64 %t to i1
  %now = select i1 %odd, ptr %b, ptr %a
  %next = select i1 %odd, ptr %a, ptr %b
  store i64 0, ptr %taken.p{every}
  %taken = load i64, ptr %taken.p{listed}""",
    )


def write_tiles(
    plan: Plan,
    tile: int,
    width: int,
    rounds: str,
    counters: Sequence[str],
    work: int,
    more: Mapping[str, int] | None = None,
) -> str:
    """The function `@vectors`, but for what it does in the rounds.

    Args:
        plan: the parts before and after the rounds.
        tile: vectors in a tile.
        width: lanes of a vector.
        rounds: text that computes the rounds of the tile of `%n` vectors from `%first`.
        counters: names of the counters in all of the text.
        work: bytes of the parts' workspace. Where there is one, all memory comes from `%work`.
        more: bytes of further arrays for each vector of a tile, and one to work with.
    """
    fixed, state = plan.fixed.bytes, plan.state.bytes
    begin = counted("u", "%n", f"""
  %u.r = add i64 %first, %u
  %u.w = mul i64 %u.r, {width}
  %u.row = add i64 %row, %u.w{place("uf", "%fixed", "%u", fixed)}{place("ua", "%a", "%u", state)}
  call void @before(ptr %in, i64 %u.row, ptr %shared, ptr %uf, ptr %ua)""")  # fmt: skip
    end = counted(
        "w",
        "%n",
        f"""
  %w.r = add i64 %first, %w
  %w.w = mul i64 %w.r, {width}
  %w.row = add i64 %row, %w.w{place("wf", "%fixed", "%w", fixed)}\
{place("wa", "%b" if plan.rounds % 2 else "%a", "%w", state)}
  call void @after(ptr %in, ptr %out, i64 %w.row, ptr %shared, ptr %wf, ptr %wa)""",
    )
    tiles = counted(
        "k",
        "%tiles",
        f"""
  %first = mul i64 %k, {tile}
  %left = sub i64 %count, %first
  %some = icmp slt i64 %left, {tile}
  %n = select i1 %some, i64 %left, i64 {tile}{begin}{rounds}{end}""",
    )
    room = "".join(f"\n  %{c}.p = alloca i64" for c in counters)
    room += f"\n  %moves = alloca [{width * len(MOVE)} x i64]"
    arrays = {"shared": plan.shared.bytes, **({"tables": work} if work else {})}
    each = {"fixed": fixed, "a": state, "b": state, **(more or {})}
    arrays |= {name: (tile + 1) * size for name, size in each.items()}
    arrays["list"] = 4 * tile * width
    addresses = "".join(
        f"\n  %{name} = getelementptr i8, ptr %{previous}, i64 {arrays[previous]}"
        for previous, name in itertools.pairwise(arrays)
    )
    parameter, free = "", "\n  call void @free(ptr %raw)"
    memory = f"""
  %raw = call ptr @malloc(i64 {sum(arrays.values()) + 64})
  %number = ptrtoint ptr %raw to i64
  %beyond = add i64 %number, 63
  %aligned = and i64 %beyond, -64
  %shared = inttoptr i64 %aligned to ptr"""
    if work:
        parameter, free = ", ptr %work", ""
        memory = "\n  %shared = getelementptr i8, ptr %work, i64 0"
    return f"""
declare i32 @llvm.cttz.i32(i32, i1)
{NOTE}
define internal void @vectors(ptr %in, ptr %out, i64 %row, i64 %count{parameter}) {{
entry:{room}{memory}{addresses}
  call void @share(ptr %in, ptr %shared)
  %above = add i64 %count, {tile - 1}
  %tiles = sdiv i64 %above, {tile}{tiles}{free}
  ret void
}}
"""
