"""Instructions of the operations: by the table where one will do, by an emitter elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import BuildError
from ..ops import OPERATIONS
from ..program import BOOL, Id
from .builder import Builder, float_literal, llvm_type, mangled, splat
from .contraction import JOINED

RARELY = '!0 = !{!"branch_weights", i32 1, i32 2000}\n'
"""What each module ends with that has instructions from here, of branches that are seldom taken."""

Emitter = Callable[[Builder, Id], None]

EMITTERS: dict[str, Emitter] = {}
"""The emitters of operations that are not one instruction, by the operation."""


def _emits(*ops: str) -> Callable[[Emitter], Emitter]:
    def register(emitter: Emitter) -> Emitter:
        for op in ops:
            EMITTERS[op] = emitter
        return emitter

    return register


def write(b: Builder, i: Id) -> None:
    """Write the instructions that compute a value.

    Raises:
        BuildError: there are none for the operation on its dtype.
    """
    op = b.program.ops[i]
    if op in EMITTERS:
        EMITTERS[op](b, i)
        return
    args = b.program.args[i]
    dtype = b.program.dtypes[args[0]]
    instruction = OPERATIONS[op].llvm
    code = instruction.of(dtype) if instruction is not None else ""
    if not code:
        raise BuildError(f"no instructions for the operation {op!r} on {dtype}")
    if OPERATIONS[op].commutative:
        args = _number_last(b, *args)
    names = [b.name(a) for a in args]
    # A difference of one product is zero, not what its rounding left.
    if b.gpu and code in ("fadd", "fsub", "fmul") and not (code == "fsub" and args[0] == args[1]):
        code += " contract"
    if code.startswith("llvm."):
        b.set(i, b.intrinsic(code.removeprefix("llvm."), dtype, *names))
    else:
        b.set(i, f"{code} {b.type(dtype)} {', '.join(names)}")


def _number_last(b: Builder, x: Id, y: Id) -> tuple[Id, Id]:
    """A known number second, whenever it was needed first, so that the same is the same text."""
    return (y, x) if b.program.ops[x] == "constant" else (x, y)


@_emits("call")
def _call(b: Builder, i: Id) -> None:
    name, args = b.program.attributes[i], b.program.args[i]
    dtype = b.program.dtypes[i]
    t = b.type(dtype)
    function = name.removeprefix("guarded:")
    guarded = name != function
    operands = [b.name(a) for a in (args[1:2] if guarded else args)]
    if guarded:
        rare, usual = b.name(args[0]), b.name(args[2])
        bits = b.value(f"bitcast {b.type(BOOL)} {rare} to i{b.width}")
        some = b.value(f"icmp ne i{b.width} {bits}, 0")
        before, slow, after = b.block, b.label("rare"), b.label("usual")
        b.emit(f"br i1 {some}, label %{slow}, label %{after}, !prof !0")
        b.begin(slow)
    result = _lane_by_lane(b, function, dtype, operands)
    if not guarded:
        b.names[i] = result
        return
    chosen = b.value(f"select {b.type(BOOL)} {rare}, {t} {result}, {t} {usual}")
    b.emit(f"br label %{after}")
    b.begin(after)
    b.set(i, f"phi {t} [ {usual}, %{before} ], [ {chosen}, %{slow} ]")


def _lane_by_lane(b: Builder, function: str, dtype: np.dtype[Any], operands: list[str]) -> str:
    """A function of the C library, of each lane."""
    t, s = b.type(dtype), llvm_type(dtype)
    b.declared[f"@{function}"] = f"declare {s} @{function}({', '.join([s] * len(operands))})"
    result = "poison"
    for lane in range(b.width):
        parts = [b.value(f"extractelement {t} {o}, i32 {lane}") for o in operands]
        typed = ", ".join(f"{s} {x}" for x in parts)
        one = b.value(f"call {s} @{function}({typed})")
        result = b.value(f"insertelement {t} {result}, {s} {one}, i32 {lane}")
    return result


@_emits("select")
def _select(b: Builder, i: Id) -> None:
    condition, x, y = b.program.args[i]
    t = b.type(b.program.dtypes[i])
    b.set(i, f"select {b.type(BOOL)} {b.name(condition)}, {t} {b.name(x)}, {t} {b.name(y)}")


@_emits(*JOINED)
def _joined(b: Builder, i: Id) -> None:
    *factors, added = b.program.args[i]
    one, other = _number_last(b, *factors)
    if one in b.leaving and other not in b.leaving:  # the result takes the register of the second
        one, other = other, one
    x, y, z = (b.name(a) for a in (one, other, added))
    dtype, op = b.program.dtypes[i], b.program.ops[i]
    if op == "fms":
        z = b.value(f"fneg {b.type(dtype)} {z}")
    elif op == "fnma":
        x = b.value(f"fneg {b.type(dtype)} {x}")
    b.set(i, b.intrinsic("fma", dtype, x, y, z))


@_emits("convert")
def _convert(b: Builder, i: Id) -> None:
    (x,) = b.program.args[i]
    source, target = b.program.dtypes[x], b.program.dtypes[i]
    s, t = b.type(source), b.type(target)
    unsigned = source.kind in "ub"
    if source.kind == "f" and target.kind == "f":
        code = "fpext" if target.itemsize > source.itemsize else "fptrunc"
    elif source.kind == "f":
        kind = "fptoui" if target.kind == "u" else "fptosi"
        full = f"@llvm.{kind}.sat.v{b.width}{mangled(target)}.v{b.width}{mangled(source)}"
        b.declared[full] = f"declare {t} {full}({s})"
        b.set(i, f"call {t} {full}({s} {b.name(x)})")
        return
    elif target.kind == "f":
        code = "uitofp" if unsigned else "sitofp"
    elif target.itemsize == source.itemsize and source != BOOL:
        code = "bitcast"
    elif target.itemsize < source.itemsize:
        code = "trunc"
    else:
        code = "zext" if unsigned else "sext"
    b.set(i, f"{code} {s} {b.name(x)} to {t}")


@_emits("bitcast")
def _bitcast(b: Builder, i: Id) -> None:
    (x,) = b.program.args[i]
    source, target = b.type(b.program.dtypes[x]), b.type(b.program.dtypes[i])
    b.set(i, f"bitcast {source} {b.name(x)} to {target}")


@_emits("rsqrt")
def _rsqrt(b: Builder, i: Id) -> None:
    (x,) = b.program.args[i]
    dtype = b.program.dtypes[i]
    # Not by the estimate that some processors have: the bits are to be the same on all.
    root = b.value(b.intrinsic("sqrt", dtype, b.name(x)))
    b.set(i, f"fdiv {b.type(dtype)} {splat(dtype, float_literal(1))}, {root}")


@_emits("is_finite")
def _is_finite(b: Builder, i: Id) -> None:
    (x,) = b.program.args[i]
    dtype = b.program.dtypes[x]
    size = b.value(b.intrinsic("fabs", dtype, b.name(x)))
    b.set(i, f"fcmp olt {b.type(dtype)} {size}, {splat(dtype, float_literal(np.inf))}")


@_emits("abs")
def _abs(b: Builder, i: Id) -> None:
    (x,) = b.program.args[i]
    dtype, name = b.program.dtypes[i], b.name(x)
    if dtype.kind == "f":
        b.set(i, b.intrinsic("fabs", dtype, name))
    else:
        b.set(i, b.intrinsic("abs", dtype, name, extra=", i1 false"))


@_emits("neg")
def _neg(b: Builder, i: Id) -> None:
    (x,) = b.program.args[i]
    dtype, name = b.program.dtypes[i], b.name(x)
    t = b.type(dtype)
    b.set(i, f"fneg {t} {name}" if dtype.kind == "f" else f"sub {t} zeroinitializer, {name}")


@_emits("not")
def _not(b: Builder, i: Id) -> None:
    (x,) = b.program.args[i]
    dtype, name = b.program.dtypes[i], b.name(x)
    ones = splat(dtype, "true" if dtype == BOOL else "-1")
    b.set(i, f"xor {b.type(dtype)} {name}, {ones}")


@_emits("max", "min")
def _extreme(b: Builder, i: Id) -> None:
    x, y = b.program.args[i]
    dtype = b.program.dtypes[x]
    t = b.type(dtype)
    word = "gt" if b.program.ops[i] == "max" else "lt"
    if dtype.kind != "f":
        sign = "u" if dtype.kind in "ub" else "s"
        chosen = b.value(f"icmp {sign}{word} {t} {b.name(x)}, {b.name(y)}")
    # A NaN on either side is the result.
    elif b.program.ops[y] == "constant":
        chosen = b.value(f"fcmp u{word} {t} {b.name(x)}, {b.name(y)}")
    else:
        chosen = b.value(f"fcmp o{word} {t} {b.name(x)}, {b.name(y)}")
        if b.program.ops[x] != "constant":
            nan = b.value(f"fcmp uno {t} {b.name(x)}, {b.name(x)}")
            chosen = b.value(f"or {b.type(BOOL)} {chosen}, {nan}")
    b.set(i, f"select {b.type(BOOL)} {chosen}, {t} {b.name(x)}, {t} {b.name(y)}")


_SHIFTS = {"shift_left": "shl", "shift_right_logical": "lshr", "shift_right_arithmetic": "ashr"}


@_emits(*_SHIFTS)
def _shift(b: Builder, i: Id) -> None:
    x, by = b.program.args[i]
    dtype, code = b.program.dtypes[x], _SHIFTS[b.program.ops[i]]
    t, bits = b.type(dtype), dtype.itemsize * 8
    amount = b.program.number(by)
    if amount is not None and 0 <= int(amount) < bits:
        b.set(i, f"{code} {t} {b.name(x)}, {b.name(by)}")
        return
    # Shifting by as many bits as there are, or more, leaves nothing (or only the sign).
    fits = b.value(f"icmp ult {t} {b.name(by)}, {splat(dtype, str(bits))}")
    most = splat(dtype, str(bits - 1))
    safe = b.value(f"select {b.type(BOOL)} {fits}, {t} {b.name(by)}, {t} {most}")
    if code == "ashr":
        b.set(i, f"ashr {t} {b.name(x)}, {safe}")
    else:
        shifted = b.value(f"{code} {t} {b.name(x)}, {safe}")
        b.set(i, f"select {b.type(BOOL)} {fits}, {t} {shifted}, {t} zeroinitializer")


@_emits("div", "rem")
def _quotient(b: Builder, i: Id) -> None:
    op = b.program.ops[i]
    x, y = (b.name(a) for a in b.program.args[i])
    dtype = b.program.dtypes[i]
    t, c = b.type(dtype), b.type(BOOL)
    if dtype.kind == "f":
        if b.gpu and op == "rem":
            name = "fmodf" if dtype.itemsize == 4 else "fmod"
            b.names[i] = _lane_by_lane(b, name, dtype, [x, y])
        else:
            b.set(i, f"f{op} {t} {x}, {y}")
        return
    zero = b.value(f"icmp eq {t} {y}, zeroinitializer")
    bad = zero
    if dtype.kind == "i":
        least = splat(dtype, str(np.iinfo(dtype).min))
        lowest = b.value(f"icmp eq {t} {x}, {least}")
        minus = b.value(f"icmp eq {t} {y}, {splat(dtype, '-1')}")
        over = b.value(f"and {c} {lowest}, {minus}")
        bad = b.value(f"or {c} {zero}, {over}")
    safe = b.value(f"select {c} {bad}, {t} {splat(dtype, '1')}, {t} {y}")
    sign = "s" if dtype.kind == "i" else "u"
    result = b.value(f"{sign}{op} {t} {x}, {safe}")
    # XLA: a division by zero gives -1, its remainder the dividend.
    replaced = splat(dtype, "-1") if op == "div" else x
    b.set(i, f"select {c} {zero}, {t} {replaced}, {t} {result}")
