"""LLVM IR of a scalar program: every value becomes a SIMD vector of environments.

The text has three layers. `block` computes one vector's width of environments from rows of the
input buffers to rows of the output buffers; where a branch is rare (see `gather`), several
functions do. `rows` calls it for a range, the ragged end through scratch rows, so that every
environment goes through the same instructions whatever the size of the batch. The handler (see
`ffi`) is what XLA calls: it reads the buffers' addresses from the call frame and shares the range
out among threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..buffer import Buffer
from ..program import IdArray, Program, live_values
from . import gather
from .control import Body
from .ffi import write_handler
from .memory import load_inputs, store_outputs

_CHUNK_OPERATIONS = 60_000
"""Vector operations of the smallest piece of work for a thread."""


@dataclass(frozen=True)
class Module:
    """An LLVM module, and the cost of running it.

    Attributes:
        text: the module.
        width: environments per vector.
        operations: vector operations per vector of environments, rounds of loops counted.
        rare: vector operations of a round that takes the rare branch; not in `operations`.
    """

    text: str
    width: int
    operations: int
    rare: int


def write_module(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
    vector_bytes: int,
) -> Module:
    """A program as an LLVM module.

    Args:
        program: made with `mathlib.expand`.
        buffers: its inputs.
        outputs: the values of each result.
        dtypes: the dtype of each result.
        vector_bytes: width of the machine's vectors.
    """
    results = [int(x) for o in outputs for x in o.ravel()]
    alive = live_values(program, results)
    read = [i for i in np.flatnonzero(alive).tolist() if program.ops[i] == "input"]
    floats = [program.dtypes[i].itemsize for i in read if program.dtypes[i].kind == "f"]
    width = vector_bytes // max([4, *floats])
    part = partial(Body, width=width)
    rare = gather.rare_branch(program, alive)
    if rare is None:
        parts = [_block(part(program, results), buffers, outputs, dtypes)]
        operations, again = parts[0].operations, 0
        vectors = _VECTORS.replace("<<WIDTH>>", str(width))
    else:
        plan = gather.plan(program, alive, rare, results, buffers, width)
        parts = _parts(part, program, plan, buffers, outputs, dtypes)
        counted = {body.builder.function: body.operations for body in parts}
        again = counted["round"]
        usual = again - sum(body.rarely for body in parts)
        operations = counted["before"] + plan.rounds * usual + counted["after"]
        vectors = gather.write_vectors(plan, width)
    declared = {k: text for body in parts for k, text in body.builder.declared.items()}
    handler = write_handler(
        width,
        [int(np.prod(b.shape, dtype=int)) * b.dtype.itemsize if b.batched else 0 for b in buffers],
        [o.size * d.itemsize for o, d in zip(outputs, dtypes, strict=True)],
        grain=width * max(1, _CHUNK_OPERATIONS // max(1, operations)),
    )
    attributes = (
        f'attributes #0 = {{ noinline nounwind "prefer-vector-width"="{32 * width}" '
        f'"min-legal-vector-width"="{32 * width}" }}\n'
    )
    functions = [body.builder.text() for body in parts]
    text = "\n".join((*declared.values(), *functions, vectors, handler, attributes))
    return Module(text, width, operations, again)


_VECTORS = """
define internal void @vectors(ptr %in, ptr %out, i64 %row, i64 %count) {
entry:
  br label %check
check:
  %done = phi i64 [ 0, %entry ], [ %following, %one ]
  %more = icmp slt i64 %done, %count
  br i1 %more, label %one, label %end
one:
  %before = mul i64 %done, <<WIDTH>>
  %first = add i64 %row, %before
  call void @block(ptr %in, ptr %out, i64 %first)
  %following = add i64 %done, 1
  br label %check
end:
  ret void
}
"""


def _block(
    body: Body,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
) -> Body:
    """The whole program for one vector."""
    b = body.builder
    b.define("void", "block", "ptr %in, ptr %out, i64 %row")
    load_inputs(b, body.inputs, buffers)
    body.compute_scope(0)
    store_outputs(b, outputs, dtypes)
    b.emit("ret void")
    return body


def _parts(
    part: Callable[..., Body],
    program: Program,
    plan: gather.Plan,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
) -> list[Body]:
    """The functions that `gather.write_vectors` calls."""
    shared = {x: ("%shared", at) for x, at in plan.shared.offsets.items()}
    fixed = {x: ("%fixed", at) for x, at in plan.fixed.offsets.items()}
    now = {x: ("%now", plan.state.offsets[k]) for k, x in plan.carries.items()}
    finals = {x: ("%now", plan.state.offsets[k]) for x, k in plan.finals.items()}

    share = part(program, list(shared))
    b = share.builder
    b.define("void", "share", "ptr %in, ptr %shared")
    load_inputs(b, share.inputs, buffers)
    share.compute_scope(0)
    for x, (pointer, at) in shared.items():
        b.store(x, b.address(pointer, at))
    b.emit("ret void")

    before = part(gather.with_known(program, shared), plan.before, slots=shared)
    b = before.builder
    b.define("void", "before", "ptr %in, i64 %row, ptr %shared, ptr %fixed, ptr %now")
    load_inputs(b, before.inputs, buffers)
    before.compute_scope(0)
    for x, (pointer, at) in fixed.items():
        b.store(x, b.address(pointer, at))
    for k, x in plan.initial.items():
        b.store(x, b.address("%now", plan.state.offsets[k]))
    b.emit("ret void")

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
    bits = b.lanes(plan.rare.taken)
    b.emit(f"%lanes = zext i{b.width} {bits} to i32")
    b.emit("ret i32 %lanes")

    results = [int(x) for o in outputs for x in o.ravel()]
    after = part(plan.after, results, slots=shared | fixed | finals)
    b = after.builder
    b.define("void", "after", "ptr %in, ptr %out, i64 %row, ptr %shared, ptr %fixed, ptr %now")
    load_inputs(b, after.inputs, buffers)
    after.compute_scope(0)
    store_outputs(b, outputs, dtypes)
    b.emit("ret void")
    return [share, before, one, after]
