"""Integers and conversions at the ends of their ranges, run and folded, against `jax.vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fraxenv.kernels import fuse
from fraxenv.kernels.evaluator import partially_evaluate
from fraxenv.kernels.traced import trace

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SETTINGS = [
    *(
        pytest.param(
            n,
            "native",
            marks=() if n in ("int32", "uint32") else pytest.mark.slow,
        )
        for n in INTEGERS
    ),
    pytest.param("int32", "xla", marks=pytest.mark.slow),
    ("uint8", "xla"),
]


def _ends(dtype: np.dtype) -> np.ndarray:
    info, bits = np.iinfo(dtype), 8 * dtype.itemsize
    numbers = (info.min, info.min + 1, -7, -1, 0, 1, 2, 7, bits - 1, bits, bits + 1)
    numbers += (info.max // 2 + 1, info.max - 1, info.max)
    return np.unique([np.array(n).astype(object) for n in numbers if info.min <= n]).astype(dtype)


def _integer_operations(a: Any, b: Any) -> Any:
    return {
        "add": a + b, "sub": a - b, "mul": a * b, "div": lax.div(a, b), "rem": lax.rem(a, b),
        "neg": -a, "abs": lax.abs(a) if a.dtype.kind == "i" else a, "sign": lax.sign(a),
        "max": lax.max(a, b), "min": lax.min(a, b), "and": a & b, "or": a | b, "xor": a ^ b,
        "not": ~a, "left": lax.shift_left(a, b), "logical": lax.shift_right_logical(a, b),
        "arithmetic": lax.shift_right_arithmetic(a, b), "eq": a == b, "ne": a != b, "lt": a < b,
        "le": a <= b, "gt": a > b, "ge": a >= b, "square": lax.square(a), "cube": a**3,
        "clamp": lax.clamp(a, b, b // 2 + 1),
        "negative": (-a * b, a * -b, -a - b, a - -b, -(a - b)),
        "less to": lax.argmax(jnp.stack([a, b]), 0, jnp.int32), "float": (a.astype(float), b / a),
    }  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "backend"), SETTINGS)
def test_integers(name: str, backend: str, x64: None, equal: Callable[..., None]) -> None:
    """Overflow, division by zero, and shifts by more bits than there are; also of constants."""
    ends = _ends(np.dtype(name))
    a, b = (x.ravel() for x in np.meshgrid(ends, ends))

    few = jnp.array([ends[0], 0, 1, ends[-1]], name)

    def fn(x: Any, y: Any) -> Any:
        every = jnp.full(few.shape, x)
        return (
            _integer_operations(x, y),
            _integer_operations(every, few),
            _integer_operations(few, every),
        )

    # XLA multiplies by the reciprocal of what many lanes divide by.
    equal(fuse(fn, backend)(a, b), jax.jit(jax.vmap(fn))(a, b), ulps=2)


def folded(fn: Callable[..., Any], *constants: np.ndarray) -> Any:
    """What a function of constants alone folds to."""
    traced, _ = trace(lambda: fn(*map(jnp.array, constants)), (), {})
    made = partially_evaluate(traced, (), "cpu")
    return traced.unflatten([
        np.array([made.program.number(x) for x in ids.ravel()], r.dtype).reshape(r.shape)
        for ids, r in zip(made.outputs, made.results, strict=True)
    ])  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_constants(name: str, x64: None, equal: Callable[..., None]) -> None:
    """What folds is what the machine would have computed."""
    ends = _ends(np.dtype(name))
    a, b = (x.ravel() for x in np.meshgrid(ends, ends))
    equal(folded(_integer_operations, a, b), jax.jit(jax.vmap(_integer_operations))(a, b), ulps=2)


NUMBERS = (0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 127.5, 128.5, -128.5, -129.0, 255.5, 256.0, 32768.0)
NUMBERS += (65536.0, 2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 4294967296.0, 1e10)
NUMBERS += (9.3e18, -9.3e18, 1.9e19, 1e30, -1e30, np.inf, -np.inf, np.nan, 16777217.0, -1.0)


SOURCES = ("bool", "float32", "float64", *INTEGERS)


@pytest.mark.parametrize(
    ("source", "backend"),
    [
        *((n, "native") for n in SOURCES),
        *(
            pytest.param(n, "xla", marks=() if n in ("float32", "uint8") else pytest.mark.slow)
            for n in SOURCES
        ),
    ],
)
def test_conversions(source: str, backend: str, x64: None, equal: Callable[..., None]) -> None:
    """Between all dtypes; numbers beyond the range of integers give its ends, NaN gives zero."""
    dtype = np.dtype(source)
    if dtype.kind == "f":
        x = np.array(NUMBERS, dtype)
    else:
        x = np.array([False, True]) if dtype.kind == "b" else _ends(dtype)

    def fn(v: Any) -> Any:
        return {t: v.astype(t) for t in ("bool", "float32", "float64", *INTEGERS)}

    expected = jax.jit(jax.vmap(fn))(x)
    equal(fuse(fn, backend)(x), expected)
    equal(folded(fn, x), expected)
