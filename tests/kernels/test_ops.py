"""The table of operations: folding and the executors agree."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from fraxenv.kernels import xla
from fraxenv.kernels.buffer import Buffer
from fraxenv.kernels.native import executor, mathlib
from fraxenv.kernels.ops import OPERATIONS, Operation
from fraxenv.kernels.program import Program

OTHER_OPERANDS = frozenset({"select", "convert", "bitcast"})
FLOATS_ONLY = frozenset({"ceil", "floor", "is_finite", "round_even", "rsqrt", "sqrt"})
WHOLE_ONLY = frozenset({
    "and", "not", "or", "shift_left", "shift_right_arithmetic", "shift_right_logical", "xor",
})  # fmt: skip

SAMPLES = {
    "float32": ([-1.5, -0.4, 0.3, 0.8, 2.5], [0.7, 2.0, -0.6, 0.8, 1.3]),
    "int32": ([-7, 0, 3, 9, 2**31 - 1], [3, 5, 3, 0, 2]),
    "uint32": ([7, 0, 3, 9, 2**32 - 1], [3, 5, 3, 0, 2]),
}

BUILDERS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "native": (executor.build, mathlib.expand),
    "xla": (xla.build, None),
}


def _folding(dtype: str) -> list[Operation]:
    """The operations on numbers of a dtype that fold."""
    kind = np.dtype(dtype).kind
    excluded = WHOLE_ONLY if kind == "f" else FLOATS_ONLY
    return [
        row
        for row in OPERATIONS.values()
        if row.fold is not None
        and row.name not in OTHER_OPERANDS | excluded
        and not (kind != "f" and row.library)
    ]


def _operands(row: Operation) -> int:
    fold: Any = row.fold
    return fold.nin if isinstance(fold, np.ufunc) else len(inspect.signature(fold).parameters)


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", SAMPLES)
@pytest.mark.parametrize("backend", BUILDERS)
def test_executors_compute_what_folds(backend: str, dtype: str) -> None:
    rows, samples = _folding(dtype), np.array(SAMPLES[dtype], dtype)
    build, expand = BUILDERS[backend]
    program, constants = Program(expand), Program()
    buffers = [Buffer((), samples.dtype, True)] * 2
    inputs = [program.inputs(k, 1, samples.dtype)[0] for k in range(2)]
    ids = [program.apply(row.name, *inputs[: _operands(row)]) for row in rows]
    run, _ = build(
        program,
        buffers,
        [np.array(x) for x in ids],
        [Buffer((), program.dtypes[x], True) for x in ids],
        "cpu",
    )
    results = jax.jit(run, static_argnums=0)(samples.shape[1], *samples)
    for row, result in zip(rows, results, strict=True):
        for k, numbers in enumerate(samples.T):
            known = [constants.constant(x) for x in numbers[: _operands(row)]]
            expected = constants.number(constants.apply(row.name, *known))
            tolerance = 1e-5 if expected.dtype.kind == "f" else 0
            assert result.dtype == expected.dtype, row.name
            np.testing.assert_allclose(
                result[k], expected, rtol=tolerance, atol=tolerance, err_msg=row.name
            )
