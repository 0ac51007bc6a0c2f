"""Machine code of scalar programs for one environment, as C calls them: for any processor.

A function reads its inputs before it writes a result, so that a result may lie where an input does.
It has no state, asks for no memory and calls nothing but the C library's mathematics.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..buffer import Buffer
from ..errors import BuildError
from ..program import IdArray, Program
from . import cpu
from .builder import Builder
from .contraction import contracted
from .control import Body
from .instructions import RARELY
from .memory import load_inputs, store_outputs
from .packing import packed

LARGEST = 256 << 10
"""Bytes of the most memory that tables may take of the caller's stack."""


class Target(NamedTuple):
    """A processor, as LLVM names it; `joins`: whether it multiplies and adds in one operation."""

    triple: str
    cpu: str
    features: str
    joins: bool = True


_OTHERS = {
    "x86-64-v3": Target("x86_64-unknown-linux-gnu", "x86-64-v3", ""),
    "x86-64-v4": Target("x86_64-unknown-linux-gnu", "x86-64-v4", ""),
    "aarch64": Target("aarch64-unknown-linux-gnu", "generic", "+neon"),
}

TARGETS = ("native", *_OTHERS)


def target_named(name: str) -> Target:
    """The processor of one of `TARGETS`: this one, or what many have."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    if name in _OTHERS:
        return _OTHERS[name]
    own = cpu.processor()
    joins = cpu.multiplies_and_adds()
    return Target(llvm.get_default_triple(), own["cpu"], own["features"], joins)


class Function(NamedTuple):
    """A program that C is to call.

    Attributes:
        name: of `void name(const void *const *in, void *const *out)`.
        program: made with `mathlib.expand`.
        buffers: its inputs.
        outputs: the values of each result.
        dtypes: the dtype of each result.
    """

    name: str
    program: Program
    buffers: Sequence[Buffer]
    outputs: Sequence[IdArray]
    dtypes: Sequence[np.dtype[Any]]


def write_module(functions: Sequence[Function], target: Target) -> str:
    """Functions as an LLVM module for a processor.

    Raises:
        BuildError: the tables of one are too large for a stack.
    """
    written = [b for function in functions for b in _write(function, target)]
    builders = list({b.function: b for b in written}.values())
    declared = {k: text for b in builders for k, text in b.declared.items()}
    return "\n".join((*declared.values(), *(b.text() for b in builders), _ATTRIBUTES))


def _write(function: Function, target: Target) -> list[Builder]:
    """A function, and those that multiply matrices for it."""
    name, program, buffers, outputs, dtypes = function
    program = _unfrozen(contracted(program, outputs) if target.joins else program)
    program, outputs = packed(program, outputs)
    results = [int(x) for o in outputs for x in o.ravel()]
    body = Body(program, results, width=1, buffers=buffers, outputs=outputs)
    b = body.builder
    b.define("void", name, "ptr %in, ptr %out", linkage="external")
    b.emit("%row = add i64 0, 0")
    load_inputs(b, body.inputs, buffers, body.workspace)
    body.compute_scope(0)
    store_outputs(b, outputs, dtypes, body.workspace)
    b.emit("ret void")
    # Tables have been laid out meanwhile.
    size = 0 if body.workspace is None else body.workspace.bytes
    if size > LARGEST:
        raise BuildError(
            f"its loops and buffers need {size / 2**10:.0f} KiB of the stack, where "
            f"{LARGEST >> 10} KiB is the most. Use fewer rounds or numbers."
        )
    if body.workspace is not None:
        b.reserve(body.workspace.pointer, size)
    return [b, *body.multiplying]


def _unfrozen(program: Program) -> Program:
    """The program for one environment: in a round of a while loop it goes on, so none is frozen."""
    made = copy.copy(program)
    made.loops = [replace(loop, following=list(loop.following)) for loop in program.loops]
    for loop in made.loops:
        for k, x in enumerate(loop.following):
            if program.ops[x] == "select" and program.args[x][0] == loop.condition:
                loop.following[k] = program.args[x][1]
    return made


_ATTRIBUTES = f"""
attributes #0 = {{ nounwind }}
{RARELY}"""


def with_text(module: str, name: str, text: str) -> str:
    """The module with a text in ASCII besides, which C knows as `extern const char name[]`."""
    return f'{module}\n@{name} = constant [{len(text) + 1} x i8] c"{text}\\00"\n'


def object_code(text: str, target: Target) -> bytes:
    """An object file of a module, position-independent.

    Raises:
        BuildError: LLVM refuses.
    """
    import llvmlite.binding as llvm

    try:
        machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=cpu.OPTIMISATION, reloc="pic",
            codemodel="small",
        )  # fmt: skip
        module = llvm.parse_assembly(text)
        module.triple = target.triple
        return bytes(machine.emit_object(module))
    except RuntimeError as error:
        raise BuildError(f"LLVM could not compile it: {error}") from error
