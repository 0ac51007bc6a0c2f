"""LLVM IR of a scalar program for a GPU: a thread computes an environment.

Threads of a warp take a branch if one of theirs does, so there is nothing to gather. What a thread
has no register for, tables too, is in its local memory, which the GPU lays out so that neighbouring
threads' numbers lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..buffer import Buffer
from ..errors import BuildError
from ..program import IdArray, Program
from . import warp
from .control import Body
from .instructions import RARELY
from .memory import load_inputs, store_outputs
from .module import Module

NAME = "fraxenv_thread"
"""Of the function that a GPU runs: of the arrays of the inputs' and of the results' addresses, and
the number of environments."""

BLOCK = warp.WIDTH
"""Threads of a block: a warp, so that small batches reach all of the GPU."""

REGISTERS = 255
"""Of a thread, the most there are. Left to choose, the driver gives large kernels 64, and twice the
traffic with local memory."""

LARGEST = 256 << 10
"""Bytes of the most local memory that tables may take; a GPU has room for 512 KiB a thread."""

_POSITION = ("@llvm.nvvm.read.ptx.sreg.tid.x", "@llvm.nvvm.read.ptx.sreg.ctaid.x")
"""A thread's place in its block, and the block's among all."""


def write_module(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
) -> Module:
    """A program as an LLVM module for NVIDIA's GPUs.

    Args:
        program: made with `mathlib.expand`.
        buffers: its inputs.
        outputs: the values of each result.
        dtypes: the dtype of each result.

    Raises:
        BuildError: its tables are too large for a thread.
    """
    results = [int(x) for o in outputs for x in o.ravel()]
    body = Body(program, results, width=1, buffers=buffers, outputs=outputs)
    b = body.builder
    b.gpu = True
    n, m = max(1, len(buffers)), max(1, len(outputs))
    given = f"ptr byval([{n} x ptr]) %in, ptr byval([{m} x ptr]) %out, i64 %total"
    b.define("void", NAME, given, linkage="ptx_kernel")
    size = 0 if body.workspace is None else body.workspace.bytes
    if size > LARGEST:
        raise BuildError(
            f"its loops and buffers need {size / 2**10:.0f} KiB of memory for each thread, where "
            f"{LARGEST >> 10} KiB is the most on a GPU. Fuse a function of fewer rounds or numbers."
        )
    if body.workspace is not None:
        b.reserve(body.workspace.pointer, size)
    place, block = (b.value(f"call i32 {register}()") for register in _POSITION)
    b.emit(f"%place = add i32 {place}, 0")
    b.emit("%lane = zext i32 %place to i64")
    b.emit(f"%first = mul i64 {b.value(f'zext i32 {block} to i64')}, {BLOCK}")
    b.emit("%rows = sub i64 %total, %first")
    # Threads beyond the last row compute it as well: a warp may write its results together.
    last = b.value("sub i64 %total, 1")
    own = b.value("add i64 %first, %lane")
    b.emit(f"%row = call i64 @llvm.umin.i64(i64 {own}, i64 {last})")
    load_inputs(b, body.inputs, buffers, body.workspace)
    body.compute_scope(0)
    b.emit(warp.SYNC)  # a result may lie where an input does that a neighbour has not read yet
    together = warp.pays(outputs, body.operations)
    store = warp.store_outputs if together else store_outputs
    store(b, outputs, dtypes, body.workspace)
    b.emit("ret void")
    declared = [f"declare i32 {register}()" for register in _POSITION]
    declared += [
        "declare i64 @llvm.umin.i64(i64, i64)",
        *warp.declarations(outputs if together else (), dtypes),
    ]
    text = "\n".join((*b.declared.values(), *declared, b.text(), _ATTRIBUTES))
    return Module(text, 1, body.operations, 0, size)


_ATTRIBUTES = f"""
attributes #0 = {{ nounwind }}
{RARELY}!1 = !{{ptr @{NAME}, !"maxntidx", i32 {BLOCK}}}
!2 = !{{ptr @{NAME}, !"maxnreg", i32 {REGISTERS}}}
!nvvm.annotations = !{{!1, !2}}
"""
