"""The limit: the same folded program as C, compiled by gcc for this machine.

The C is given what a kernel that JAX calls cannot have: inputs and outputs in blocks of vectors,
so that nothing has to be transposed, and `-ffast-math`. Scalars in a loop are not an alternative:
gcc 12 does not vectorise a loop of this size, and is fifteen times slower with them.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fraxenv.kernels.evaluator import partially_evaluate
from fraxenv.kernels.native import mathlib
from fraxenv.kernels.native.cpu import vector_bytes
from fraxenv.kernels.program import Program, live_values
from fraxenv.kernels.traced import trace

from .contenders import UnavailableError

Floats = NDArray[np.float32]

FLAGS = (
    "-march=native", "-ffast-math", "-fno-associative-math", "-fopenmp", "-fPIC", "-w", "-c"
)  # fmt: skip
"""In another order `(x + large) - large`, which rounds, would be `x`."""

VARIANTS = ("-O3 -fschedule-insns -fsched-pressure", "-O3")
"""The best of these counts; the first orders instructions so that fewer registers are spilled."""

_LARGE = 10_000
"""Operations beyond which gcc takes minutes, and only the first variant is tried."""

_TYPES = {"f": "f32", "d": "f64", "i": "i32", "l": "i64", "?": "i32"}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "shift_left": "<<",
}  # fmt: skip

_HEAD = """
#include <math.h>
#include <stdint.h>
#define W {lanes}
typedef float f32 __attribute__((vector_size(4 * W), aligned(4)));
typedef int32_t i32 __attribute__((vector_size(4 * W)));
typedef int64_t i64 __attribute__((vector_size(8 * W)));
typedef double f64 __attribute__((vector_size(8 * W)));
static inline i32 select_i32(i32 c, i32 a, i32 b) {{ return (c & a) | (~c & b); }}
static inline f32 select_f32(i32 c, f32 a, f32 b) {{ return (f32)select_i32(c, (i32)a, (i32)b); }}
static inline f32 rsqrt_f32(f32 x)
{{ f32 r; for (int k = 0; k < W; k++) r[k] = 1 / sqrtf(x[k]); return r; }}
static inline f32 sqrt_f32(f32 x)
{{ f32 r; for (int k = 0; k < W; k++) r[k] = sqrtf(x[k]); return r; }}
static inline f32 round_even_f32(f32 x)
{{ f32 r; for (int k = 0; k < W; k++) r[k] = rintf(x[k]); return r; }}
static inline f64 round_even_f64(f64 x)
{{ f64 r; for (int k = 0; k < W; k++) r[k] = rint(x[k]); return r; }}
static inline f32 abs_f32(f32 x) {{ return (f32)((i32)x & 0x7fffffff); }}
static inline i32 is_finite_f32(f32 x) {{ return ((i32)x & 0x7f800000) != 0x7f800000; }}
"""


def source(program: Program, sizes: Sequence[int], outputs: Sequence[int], lanes: int) -> str:
    """C of a program: `void kernel(blocks, threads, x0, x1, ..., y)`.

    Args:
        program: made with `mathlib.expand`.
        sizes: numbers in each input.
        outputs: the values to store.
        lanes: environments per block.

    Raises:
        UnavailableError: the program has something that this emitter does not know.
    """
    names: dict[int, str] = {}
    lines: list[str] = []
    for i in np.flatnonzero(live_values(program, outputs)).tolist():
        op, attribute = program.ops[i], program.attributes[i]
        try:
            kind = _TYPES[program.dtypes[i].char]
        except KeyError:
            raise UnavailableError(f"C has no {program.dtypes[i]}") from None
        x = [names[a] for a in program.args[i]]
        if op == "constant":
            names[i] = f"(({kind}){{}} + {_number(attribute)})"
            continue
        if op == "call" and attribute.startswith("guarded:"):
            names[i] = x[2]  # what it guards against, huge angles, is not in the inputs
            continue
        if op == "input":
            code = f"x{attribute[0]}[{attribute[1]}]"
        elif op in _INFIX:
            code = f"{x[0]} {_INFIX[op]} {x[1]}"
        elif op in ("max", "min"):
            code = f"select_{kind}({x[0]} {'>' if op == 'max' else '<'} {x[1]}, {x[0]}, {x[1]})"
        elif op in ("select", "sqrt", "rsqrt", "round_even", "abs"):
            code = f"{op}_{kind}({', '.join(x)})"
        elif op in ("neg", "not"):
            code = f"{'-' if op == 'neg' else '~'}{x[0]}"
        elif op == "is_finite":
            code = f"is_finite_{_TYPES[program.dtypes[program.args[i][0]].char]}({x[0]})"
        elif op == "bitcast":
            code = f"({kind}){x[0]}"
        elif op == "convert":
            code = f"__builtin_convertvector({x[0]}, {kind})"
        else:
            raise UnavailableError(f"C has no {op!r}")
        names[i] = f"v{i}"
        lines.append(f"const {kind} v{i} = {code};")
    lines += [f"y[{k}] = {names[o]};" for k, o in enumerate(outputs)]
    arguments = "".join(f"const f32 *restrict X{k}, " for k in range(len(sizes)))
    blocks = "\n".join(f"const f32 *restrict x{k} = X{k} + b * {n};" for k, n in enumerate(sizes))
    body = "\n".join(lines)
    return f"""{_HEAD.format(lanes=lanes)}
void kernel(long blocks, int threads, {arguments}f32 *restrict Y) {{
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
for (long b = 0; b < blocks; b++) {{
{blocks}
f32 *restrict y = Y + b * {len(outputs)};
{body}
}}}}
"""


def _number(x: Any) -> str:
    if x.dtype.kind == "f":
        suffix = "f" if x.dtype.char == "f" else ""
        if np.isnan(x):
            return "NAN"
        text = "INFINITY" if np.isinf(x) else repr(float(abs(x))) + suffix
        return ("-" if np.signbit(x) else "") + text
    return str(-int(x) if x.dtype.kind == "b" else int(x))  # true is all bits


@dataclass(frozen=True)
class CProgram:
    """A function as compiled C.

    Attributes:
        kernel: see `source`.
        sizes: numbers in each output.
        lanes: environments per block.
        flags: the best of `VARIANTS`.
        operations: per environment.
        compile_seconds: folding and compiling, with those flags.
    """

    kernel: Any
    sizes: tuple[int, ...]
    lanes: int
    flags: str
    operations: int
    compile_seconds: float

    @staticmethod
    def best(fn: Callable[..., Any], arguments: Sequence[Floats]) -> CProgram:
        """The fastest variant.

        Args:
            fn: a function of one environment's arrays.
            arguments: those arrays.

        Raises:
            UnavailableError: there is no gcc, or the function is not a sequence of operations.
        """
        gcc = shutil.which("gcc")
        if gcc is None:
            raise UnavailableError("gcc is not installed")
        began = time.perf_counter()
        traced, _ = trace(fn, tuple(arguments), {})
        made = partially_evaluate(traced, [True] * len(traced.operands), "cpu", mathlib.expand)
        if made.fallbacks or made.program.loops:
            raise UnavailableError("the program is not one sequence of operations")
        outputs = [int(x) for o in made.outputs for x in o.ravel()]
        lanes = vector_bytes() // 4
        text = source(made.program, [x.size for x in arguments], outputs, lanes)
        folded = time.perf_counter() - began
        operations = sum(
            line.startswith("const ") and " = x" not in line and " = X" not in line
            for line in text.splitlines()
        )
        found: list[tuple[float, CProgram]] = []
        for flags in VARIANTS if operations < _LARGE else VARIANTS[:1]:
            began = time.perf_counter()
            kernel = _compile(gcc, text, flags)
            seconds = folded + time.perf_counter() - began
            sizes = tuple(o.size for o in made.outputs)
            program = CProgram(kernel, sizes, lanes, flags, operations, seconds)
            found.append((program._time(arguments), program))
        return min(found, key=lambda pair: pair[0])[1]

    def _time(self, arguments: Sequence[Floats]) -> float:
        batch = 4096
        packed = self.pack([np.broadcast_to(x, (batch, *x.shape)) for x in arguments])
        return self._shortest(packed, self.output(batch), 1)

    def _shortest(self, packed: Sequence[Floats], out: Floats, threads: int) -> float:
        """s, of some calls."""
        times = []
        for _ in range(20):
            began = time.perf_counter()
            self(packed, out, threads)
            times.append(time.perf_counter() - began)
        return min(times)

    def best_threads(self, packed: Sequence[Floats], out: Floats, threads: int) -> int:
        """1 where waking the others takes longer than what they save, else `threads`."""
        return min((1, threads), key=lambda n: self._shortest(packed, out, n))

    def pack(self, arrays: Sequence[Floats]) -> list[Floats]:
        """Arrays (batch, ...) in blocks: (blocks, numbers, lanes)."""
        return [self._blocks(x.reshape(len(x), -1)) for x in arrays]

    def _blocks(self, x: Floats) -> Floats:
        x = np.pad(x, ((0, -len(x) % self.lanes), (0, 0)), mode="edge")
        return np.ascontiguousarray(
            x.reshape(-1, self.lanes, x.shape[1]).transpose(0, 2, 1), np.float32
        )

    def output(self, batch: int) -> Floats:
        """Room for the results of a batch, in blocks."""
        return np.zeros((-(-batch // self.lanes), sum(self.sizes), self.lanes), np.float32)

    def unpack(self, out: Floats) -> Floats:
        """Results (batch, numbers) of blocks."""
        return out.transpose(0, 2, 1).reshape(-1, out.shape[1])

    def __call__(self, packed: Sequence[Floats], out: Floats, threads: int) -> None:
        """Compute a batch."""
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*packed, out)]
        self.kernel(ctypes.c_long(len(out)), ctypes.c_int(threads), *pointers)


def _compile(gcc: str, text: str, flags: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path, compiled, library = (Path(folder, f"kernel.{x}") for x in ("c", "o", "so"))
        path.write_text(text)
        # Linked without -ffast-math: with it, loading the library makes subnormal numbers zero in
        # the thread that loads it, for good.
        for command in (
            [gcc, *flags.split(), *FLAGS, str(path), "-o", str(compiled)],
            [gcc, "-shared", "-fopenmp", str(compiled), "-o", str(library), "-lm"],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                errors = [line for line in done.stderr.splitlines() if "error" in line]
                raise UnavailableError(f"gcc: {(errors or [''])[0].split('error:')[-1].strip()}")
        return ctypes.CDLL(str(library)).kernel  # stays mapped when the file is gone
