"""The GPU executor: the scalar program as the body of one Pallas kernel.

Buffers are laid out with environments along the last axis, so that neighbouring threads read
neighbouring numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .buffer import Buffer
from .errors import BuildError
from .program import BOOL, IdArray, Program, live_values
from .xla import run_program

BLOCK = 128
"""Environments per program instance."""


def build(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    results: Sequence[Buffer],
    platform: str,
) -> tuple[Callable[..., list[Array]], dict[str, Any]]:
    """The program as a Pallas kernel; see `native.executor.build`.

    Raises:
        BuildError: Pallas is not installed.
    """
    try:
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import triton
    except ImportError as error:
        raise BuildError(f"Pallas is not available: {error}") from error
    # Not Mosaic's, another JAX's default: a thread computes one environment. JAX 0.6.0 knows them
    # by the longer name.
    name = "CompilerParams" if hasattr(triton, "CompilerParams") else "TritonCompilerParams"
    parameters = getattr(triton, name)(num_warps=BLOCK // 32)

    wanted = [int(x) for o in outputs for x in o.ravel()]
    interpret = platform == "cpu"
    alive = live_values(program, wanted)
    read = sorted(
        {program.attributes[i][0] for i in np.flatnonzero(alive).tolist()
         if program.ops[i] == "input"}
    )  # fmt: skip
    full = [k for k, o in enumerate(outputs) if o.size]

    def kernel(*refs: Any) -> None:
        inputs = dict(zip(read, refs[: len(read)], strict=True))
        targets = refs[len(read) :]

        def element(buffer: int, k: int) -> Array:
            x: Array = inputs[buffer][k, :] if buffers[buffer].batched else inputs[buffer][k, 0]
            return x != 0 if buffers[buffer].dtype == BOOL else x

        values = run_program(program, wanted, element, (BLOCK,))
        for target, k in zip(targets, full, strict=True):
            for row, x in enumerate(outputs[k].ravel().tolist()):
                target[row, :] = values[x].astype(target.dtype)

    def stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
        return np.dtype(np.int32) if dtype == BOOL else dtype

    def run(size: int, *arrays: Array) -> list[Array]:
        if size == 0 or not full:
            return [jnp.zeros((size, *r.shape), r.dtype) for r in results]
        padded = -(-size // BLOCK) * BLOCK
        operands, specs = [], []
        for k in read:
            b = buffers[k]
            x = arrays[k].astype(stored(b.dtype))
            n = b.size
            if b.batched:
                # Padding repeats the last environment: it runs no longer than its neighbours.
                x = jnp.pad(x.reshape(size, n).T, ((0, 0), (0, padded - size)), mode="edge")
                specs.append(pl.BlockSpec((n, BLOCK), lambda i: (0, i)))
            else:
                x = x.reshape(n, 1)
                specs.append(pl.BlockSpec((n, 1), lambda i: (0, 0)))
            operands.append(x)
        shapes = [
            jax.ShapeDtypeStruct((outputs[k].size, padded), stored(results[k].dtype)) for k in full
        ]
        rows = pl.pallas_call(
            kernel,
            out_shape=shapes,
            grid=(padded // BLOCK,),
            in_specs=specs,
            out_specs=[pl.BlockSpec((s.shape[0], BLOCK), lambda i: (0, i)) for s in shapes],
            interpret=interpret,
            compiler_params=parameters,
        )(*operands)
        made = dict(zip(full, rows, strict=True))
        return [
            made[k][:, :size].T.reshape(size, *r.shape).astype(r.dtype)
            if k in made
            else jnp.zeros((size, *r.shape), r.dtype)
            for k, r in enumerate(results)
        ]

    return run, {"operations": int(alive.sum())}
