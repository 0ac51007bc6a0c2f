"""LLVM IR of a scalar program: every value becomes a SIMD vector of environments.

The text has three layers. `block` computes one vector's width of environments from rows of the
input buffers to rows of the output buffers; where a branch is rare (see `gather`), several
functions do, and where registers are chosen (see `registers`) it calls its parts in turn. `rows`
calls it for a range, the ragged end through scratch rows, so that every environment goes through
the same instructions whatever the size of the batch. The handler (see `ffi`) is what XLA calls: it
reads the buffers' addresses from the call frame and shares the range out among threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from ..buffer import Buffer
from ..program import BOOL, Id, IdArray, Program, live_values
from . import gather, refill
from .builder import Builder
from .control import BLOCK, Body, Call
from .ffi import write_handler
from .instructions import RARELY
from .memory import find_inputs, load_inputs, store_outputs
from .registers import LONG, Registers
from .schedule import captured_values, operands
from .workspace import NOT_STORED, check_size

CHOSEN = "; Its registers are chosen.\n"
"""What a module begins with that LLVM need but translate."""

NEXT = "\n; What it calls.\n"
"""What is between a kernel's module and each of those with the functions that it calls."""

_ROOM = "@room = internal global i64 0\n"
"""In each of these: addresses of what is called from elsewhere are written beside it, for which
llvmlite has no memory where nothing else is written."""

APART = 4_000
"""Lines of a function that is a module of its own, beside others that are: a second of LLVM's."""

_CHUNK_OPERATIONS = 60_000
"""Vector operations of the smallest piece of work for a thread."""


@dataclass(frozen=True)
class Module:
    """An LLVM module, and the cost of running it.

    Attributes:
        text: the module.
        width: environments per vector.
        operations: vector operations per vector of environments, rounds of loops counted.
        rare: vector operations of a round that takes the rare branch, or of a round of the loop
            whose lanes are refilled; not in `operations`.
        workspace: memory of each thread, bytes: of a tile, of tables and wide buffers; 0 where
            the stack is enough.
        begun: machine code that is being made already, of modules with functions that it calls.
    """

    text: str
    width: int
    operations: int
    rare: int
    workspace: int
    begun: Mapping[str, Future[bytes]] = field(default_factory=dict)


def write_module(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
    vector_bytes: int,
    registers: Registers | None = None,
    written: Callable[[str], None] = lambda text: None,
) -> Module:
    """A program as an LLVM module.

    Args:
        program: made with `mathlib.expand`.
        buffers: its inputs.
        outputs: the values of each result.
        dtypes: the dtype of each result.
        vector_bytes: width of the machine's vectors; 0 to compute one environment after the other.
        registers: the machine's, for a function so long that they are not left to LLVM.
        written: what to do with a module of functions that the kernel's calls, while the others
            are not written yet.
    """
    results = [int(x) for o in outputs for x in o.ravel()]
    alive = live_values(program, results)
    read = [i for i in np.flatnonzero(alive).tolist() if program.ops[i] == "input"]
    floats = [program.dtypes[i].itemsize for i in read if program.dtypes[i].kind == "f"]
    width = max(1, vector_bytes // max([4, *floats]))
    vector = max(4 * width, vector_bytes)
    # Without it vectors for which there are no registers would lie across lines of the cache.
    aligned = f"alignstack={vector}"
    bits = " ".join(f'"{name}-vector-width"="{8 * vector}"' for name in ("prefer", "min-legal"))
    attributes = f"attributes #0 = {{ noinline nounwind {aligned} {bits} }}\n{RARELY}"
    called = _Called(attributes, written)
    part = partial(Body, width=width, buffers=buffers)
    # One environment waits for no other.
    rare = gather.rare_branch(program, alive) if width > 1 else None
    least = 0 if rare is None else rare.operations
    loop = refill.plan(program, alive, results, buffers, width, least) if width > 1 else None
    plan = None
    if loop is None and rare is not None:
        plan = gather.plan(program, alive, rare, results, buffers, width)
    again = tile = 0
    begin = ""
    if loop is not None:
        part = partial(part, work=("%shared", loop.around.shared.bytes))
        rounds = _turns(part, program, loop, called)
        parts = _parts(part, program, loop.around, rounds, buffers, outputs, dtypes, called)
        head, going, turn, tail = (body.operations for body in rounds)
        operations, again = loop.around.rounds * (head + going + tail), turn + going
        operations += sum(body.operations for body in parts if body not in rounds)
        work = _work(parts)
        vectors, tile = refill.write_vectors(loop, width, work), loop.workspace(width)
        functions = [body.builder for body in parts]
    elif plan is not None:
        part = partial(part, work=("%shared", plan.shared.bytes))
        round = _round(part, program, plan, called)
        parts = _parts(part, program, plan, [round], buffers, outputs, dtypes, called)
        counted = {body.builder.function: body.operations for body in parts}
        again = counted["round"]
        usual = again - sum(body.rarely for body in parts)
        operations = counted["before"] + plan.rounds * usual + counted["after"]
        work = _work(parts)
        vectors, tile = gather.write_vectors(plan, width, work), plan.workspace(width)
        functions = [body.builder for body in parts]
    else:
        loops = None
        if width > 1 and registers is not None:
            loops = _loops(part, program, alive, width)
        if loops is None:
            whole = part(program, results, outputs=outputs, alive=alive)
            functions = [_block(whole, buffers, outputs, dtypes)]
        else:
            begin = CHOSEN
            for body in {call.name: body for call, body in loops.values()}.values():
                called.add([body.builder])
            calls = {index: call for index, (call, _) in loops.items()}
            part = partial(part, registers=registers, calls=calls)
            whole = part(program, results, outputs=outputs, alive=alive)
            functions = [_in_parts(whole, buffers, outputs, dtypes, called)]
        parts = [whole]
        operations, work = whole.operations, _work(parts)
        vectors = _VECTORS.replace("<<WIDTH>>", str(width))
        vectors = vectors.replace("<<WORK>>", ", ptr %work" if work else "")
    own = tile + work if work else 0
    handler, spare = write_handler(
        width,
        [b.size * b.dtype.itemsize if b.batched else 0 for b in buffers],
        [o.size * d.itemsize for o, d in zip(outputs, dtypes, strict=True)],
        grain=width * max(1, _CHUNK_OPERATIONS // max(1, operations)),
        work=own,
    )
    check_size(tile + work + spare)
    called.add(_multiplying(parts))
    here = [b for b in functions if b.function not in called.declared]
    text = _text(here, (*called.declared.values(), vectors, handler, attributes))
    text = NEXT.join((begin + text, *called.texts))
    return Module(text, width, operations, again, tile + work + spare)


class _Called:
    """The modules with functions that a kernel's calls.

    Args:
        attributes: of all functions.
        written: what to do with each when it is written.

    Attributes:
        texts: the modules.
        declared: the functions in them, as other modules declare them, by their names.
    """

    def __init__(self, attributes: str, written: Callable[[str], None]) -> None:
        self._attributes, self._written = attributes, written
        self.texts: list[str] = []
        self.declared: dict[str, str] = {}

    def add(
        self, builders: Sequence[Builder], multiplying: Sequence[Builder] = (), begin: str = ""
    ) -> None:
        """A module of functions, which call what multiplies matrices."""
        if not builders:
            return
        self.declared |= {b.function: b.apart() for b in builders}
        elsewhere = [b.apart() for b in multiplying]
        self.texts.append(begin + _text(builders, (*elsewhere, _ROOM, self._attributes)))
        self._written(self.texts[-1])

    def add_long(self, body: Body) -> None:
        """A function by itself, if it is long."""
        if len(body.builder.lines) > APART:
            self.add([body.builder], _multiplying([body]))


def _multiplying(bodies: Sequence[Body]) -> list[Builder]:
    """The functions that multiply matrices for others, each once."""
    return list({b.function: b for body in bodies for b in body.multiplying}.values())


def _text(builders: Sequence[Builder], rest: Sequence[str]) -> str:
    """A module of functions, and the rest of it."""
    declared = {k: text for b in builders for k, text in b.declared.items()}
    return "\n".join((*declared.values(), *(b.text() for b in builders), *rest))


def _loops(
    part: Callable[..., Body], program: Program, alive: np.ndarray, width: int
) -> dict[int, tuple[Call, Body]] | None:
    """Loops that end by a condition, of a function whose registers are chosen here, as functions.

    None if that is left to LLVM: for functions of few values, and such loops that need tables.
    """
    here = {0}  # and the scopes of counted loops in these
    for loop in sorted(program.loops, key=lambda loop: program.depth[loop.scope]):
        if loop.condition is None and loop.outer in here:
            here.add(loop.scope)
    once = [i for i in np.flatnonzero(alive).tolist() if program.scopes[i] in here]
    # What is in memory anyway, such as inputs and rounds, counts for half.
    if sum(0.5 if program.ops[i] in NOT_STORED else 1.0 for i in once) < LONG:
        return None
    captured, found = captured_values(program, alive), {}
    for i in once:
        index = program.attributes[i]
        if program.ops[i] != "loop" or program.loops[index].condition is None:
            continue
        given = [x for x in operands(program, i, captured) if program.ops[x] != "constant"]
        results = [
            x for x in once if program.ops[x] == "final" and program.attributes[x][0] == index
        ]
        found[index] = _loop(part, program, index, (given, results), width)
        if found[index][1].workspace is not None:
            return None
    return found


def _loop(
    part: Callable[..., Body],
    program: Program,
    index: int,
    values: tuple[Sequence[Id], Sequence[Id]],
    width: int,
) -> tuple[Call, Body]:
    """A loop as a function of what it is given, to its results."""
    given, results = values
    layout = gather.Layout.of({x: program.dtypes[x] for x in chain(given, results)}, width)
    places = {x: ("%handed", at) for x, at in layout.offsets.items()}
    body = part(gather.with_known(program, given), results, slots={x: places[x] for x in given})
    b = body.builder
    b.define("void", "loop", "ptr %handed", linkage="")
    body.compute_round(program.loops[index].outer, None)
    _store(b, {x: places[x] for x in results})
    b.emit("ret void")
    # Other kernels that have the loop find it made.
    name = f"loop_{hashlib.sha256(b.text().encode()).hexdigest()[:16]}"
    b.define("void", name, "ptr %handed", linkage="")
    offsets = layout.offsets
    call = Call(
        b.function,
        {x: offsets[x] for x in given},
        {x: offsets[x] for x in results},
        layout.bytes,
        body.operations,
    )
    return call, body


_VECTORS = """
define internal void @vectors(ptr %in, ptr %out, i64 %row, i64 %count<<WORK>>) {
entry:
  br label %check
check:
  %done = phi i64 [ 0, %entry ], [ %following, %one ]
  %more = icmp slt i64 %done, %count
  br i1 %more, label %one, label %end
one:
  %before = mul i64 %done, <<WIDTH>>
  %first = add i64 %row, %before
  call void @block(ptr %in, ptr %out, i64 %first<<WORK>>)
  %following = add i64 %done, 1
  br label %check
end:
  ret void
}
"""


def _work(parts: Sequence[Body]) -> int:
    """Bytes of the workspace of functions that are called one after the other."""
    size = max(0 if p.workspace is None else p.workspace.bytes for p in parts)
    check_size(size)
    return size


def _block(
    body: Body,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
    name: str = "block",
    more: str = "",
) -> Builder:
    """The whole program for one vector: a function, of `more` parameters than others."""
    b = body.builder
    work = "" if body.workspace is None else ", ptr %work"
    b.define("void", name, f"ptr %in, ptr %out, i64 %row{work}{more}")
    load_inputs(b, body.inputs, buffers, body.workspace)
    body.compute_scope(0)
    store_outputs(b, outputs, dtypes, body.workspace)
    b.emit("ret void")
    return b


def _in_parts(
    body: Body,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
    called: _Called,
) -> Builder:
    """The same where registers are chosen: a function that calls others, its parts, in turn."""
    b, names = body.builder, ["part0"]
    work = "" if body.workspace is None else ", ptr %work"
    parameters = f"ptr %in, ptr %out, i64 %row{work}"

    def go_on() -> None:
        b.emit("ret void")
        called.add([b], _multiplying([body]), CHOSEN)
        names.append(f"part{len(names)}")
        b.go_on(names[-1], f"{parameters}, ptr %frame")
        if body.workspace is not None:
            find_inputs(b, buffers, body.workspace)

    body.go_on = go_on
    _block(body, buffers, outputs, dtypes, names[0], ", ptr %frame")
    called.add([b], _multiplying([body]), CHOSEN)
    block = Builder(b.program, b.width)
    block.define("void", "block", parameters)
    block.reserve("%frame", b.frame or 0)
    for name in names:
        block.emit(f"call void @{name}({parameters}, ptr %frame)")
    block.emit("ret void")
    return block


def _parts(
    part: Callable[..., Body],
    program: Program,
    plan: gather.Plan,
    rounds: Sequence[Body],
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
    called: _Called,
) -> list[Body]:
    """The functions that `gather.write_tiles` calls, those for its rounds among them."""
    shared, fixed, _ = _slots(plan)
    finals = {x: ("%now", plan.state.offsets[k]) for x, k in plan.finals.items()}

    share = part(program, list(shared))
    b = share.builder
    b.define("void", "share", "ptr %in, ptr %shared")
    load_inputs(b, share.inputs, buffers, share.workspace)
    share.compute_scope(0)
    _store(b, shared)
    b.emit("ret void")
    called.add_long(share)

    before = part(gather.with_known(program, shared), plan.before, slots=shared)
    b = before.builder
    b.define("void", "before", "ptr %in, i64 %row, ptr %shared, ptr %fixed, ptr %now")
    load_inputs(b, before.inputs, buffers, before.workspace)
    before.compute_scope(0)
    _store(b, fixed)
    for k, x in plan.initial.items():
        b.store(x, b.address("%now", plan.state.offsets[k]))
    b.emit("ret void")
    called.add_long(before)

    results = [int(x) for o in outputs for x in o.ravel()]
    after = part(plan.after, results, outputs=outputs, slots=shared | fixed | finals)
    b = after.builder
    b.define("void", "after", "ptr %in, ptr %out, i64 %row, ptr %shared, ptr %fixed, ptr %now")
    load_inputs(b, after.inputs, buffers, after.workspace)
    after.compute_scope(0)
    store_outputs(b, outputs, dtypes, after.workspace)
    b.emit("ret void")
    called.add_long(after)
    return [share, before, *rounds, after]


Slots = dict[Id, tuple[str, int]]


def _slots(plan: gather.Plan) -> tuple[Slots, Slots, Slots]:
    """Where a round finds what is known before it: in `shared`, in `fixed`, and in `now`."""
    return (
        {x: ("%shared", at) for x, at in plan.shared.offsets.items()},
        {x: ("%fixed", at) for x, at in plan.fixed.offsets.items()},
        {x: ("%now", plan.state.offsets[k]) for k, x in plan.carries.items()},
    )


def _store(b: Builder, values: Slots) -> None:
    for k, (x, (pointer, at)) in enumerate(values.items(), 1):
        b.store(x, b.address(pointer, at))
        if k % BLOCK == 0:
            b.divide()


def _return_lanes(b: Builder, x: Id) -> None:
    bits = b.lanes(x)
    b.emit(f"%lanes = zext i{b.width} {bits} to i32")
    b.emit("ret i32 %lanes")


def _round(part: Callable[..., Body], program: Program, plan: gather.Plan, called: _Called) -> Body:
    """The round of `gather.write_vectors`."""
    shared, fixed, now = _slots(plan)
    known = shared | fixed | now
    wanted = [*plan.following.values(), plan.rare.taken]
    loop = None if plan.rare.loop is None else program.loops[plan.rare.loop]
    # One function for both, as its code is hot where it is needed for the branch.
    one = part(gather.with_known(program, known), wanted, slots=known, rare=plan.rare.branch)
    b = one.builder
    layout = "ptr %shared, ptr %fixed, ptr %now, ptr %next, i32 %round"
    b.define("i32", "round", f"{layout}, i1 %branching")
    one.compute_round(plan.scope, loop)
    for k, x in plan.following.items():
        b.store(x, b.address("%next", plan.state.offsets[k]))
    _return_lanes(b, plan.rare.taken)
    called.add_long(one)
    return one


def _turns(
    part: Callable[..., Body], program: Program, plan: refill.Plan, called: _Called
) -> list[Body]:
    """The head, the condition, the round and the tail of `refill.write_vectors`."""
    around, loop = plan.around, program.loops[plan.loop]
    outer = None if around.rare.loop is None else program.loops[around.rare.loop]
    shared, fixed, now = _slots(around)
    live = {x: ("%live", at) for x, at in plan.live.offsets.items()}
    carry = {loop.carries[k]: ("%carry", at) for k, at in plan.carry.offsets.items()}
    finals = {
        i: ("%carry", plan.carry.offsets[program.attributes[i][1]])
        for i in range(len(program.ops))
        if program.ops[i] == "final"
        and program.attributes[i][0] == plan.loop
        and program.attributes[i][1] in plan.carry.offsets
    }
    pointers = "ptr %shared, ptr %fixed, ptr %now, ptr %live, ptr %carry"
    assert loop.condition is not None

    def body(wanted: Sequence[Id], known: Slots) -> Body:
        return part(gather.with_known(program, known), wanted, slots=known)

    initial = {k: loop.initial[k] for k in plan.carry.offsets}
    head = body([*live, *initial.values(), *plan.early.values()], shared | fixed | now)
    b = head.builder
    b.define("void", "head", f"{pointers}, ptr %next, i32 %round")
    head.compute_round(around.scope, outer)
    _store(b, live)
    for k, x in initial.items():
        b.store(x, b.address("%carry", plan.carry.offsets[k]))
    for k, x in plan.early.items():
        b.store(x, b.address("%next", around.state.offsets[k]))
    b.emit("ret void")
    called.add_long(head)

    # What is kept for the tail alone does not go with a lane: it is computed again.
    moved = {x: live[x] for x in plan.moved.offsets}
    known = shared | fixed | now | moved | carry
    going = body([loop.condition], known)
    b = going.builder
    b.define("i32", "going", f"{pointers}, i32 %round")
    going.compute_round(around.scope, outer)
    going.compute_round(loop.scope, loop)
    _return_lanes(b, loop.condition)
    called.add_long(going)

    # A lane goes on if it was told to: computed once more, the condition might round otherwise.
    following = {k: loop.following[k] for k in plan.carry.offsets}
    told = gather.with_known(program, [*known, loop.condition])
    turn = part(told, list(following.values()), slots=known)
    b = turn.builder
    b.define("void", "turn", f"{pointers}, i32 %round, i32 %lanes")
    bits = b.value(f"trunc i32 %lanes to i{b.width}")
    b.set(loop.condition, f"bitcast i{b.width} {bits} to {b.type(BOOL)}")
    turn.compute_round(around.scope, outer)
    turn.compute_round(loop.scope, loop)
    for k, x in following.items():
        b.store(x, b.address("%carry", plan.carry.offsets[k]))
    b.emit("ret void")
    called.add_long(turn)

    tail = body(list(plan.late.values()), shared | fixed | now | live | finals)
    b = tail.builder
    b.define("void", "tail", f"{pointers}, ptr %next, i32 %round")
    tail.compute_round(around.scope, outer)
    for k, x in plan.late.items():
        b.store(x, b.address("%next", around.state.offsets[k]))
    b.emit("ret void")
    called.add_long(tail)
    return [head, going, turn, tail]
