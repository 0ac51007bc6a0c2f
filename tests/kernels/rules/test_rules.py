"""Every rule of the kernel compiler against `jax.vmap`, in each executor and each precision.

Floats agree within 2e-6 (float32) and 1e-12 (float64) of the largest entry of the result, and of
each entry itself where functions work entry by entry; all else is equal bit by bit.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support import with_slow

from fraxenv.kernels import evaluator, fuse
from fraxenv.kernels.errors import KernelWarning
from fraxenv.kernels.evaluator import partially_evaluate
from fraxenv.kernels.rules.registry import RULES
from fraxenv.kernels.traced import trace

SIZES = (1, 3, 16, 17, 37)

ULPS = {"float32": 16.0, "float64": 4500.0}
"""2e-6 and 1e-12 relative."""


@dataclass(frozen=True)
class Case:
    """A function of one environment, and how to make its batched arguments."""

    fn: Callable[..., Any]
    make: Callable[[Make], tuple[Any, ...]]
    entrywise: bool
    rounds: int


class Make:
    """Random arguments for a batch."""

    def __init__(self, name: str, dtype: np.dtype) -> None:
        seed = zlib.crc32(name.encode())
        self.rng, self.dtype, self.size = np.random.default_rng(seed), dtype, SIZES[seed % 5]

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=(self.size, *shape)).astype(self.dtype)

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        return self.rng.uniform(low, high, (self.size, *shape)).astype(self.dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: Any = np.int32) -> np.ndarray:
        return self.rng.integers(low, high, (self.size, *shape)).astype(dtype)

    def bools(self, *shape: int) -> np.ndarray:
        return self.rng.random((self.size, *shape)) < 0.5

    def definite(self, n: int, *shape: int) -> np.ndarray:
        """Well-conditioned positive definite matrices."""
        x = self.rng.uniform(-1, 1, (self.size, *shape, n, n))
        return (x @ x.swapaxes(-1, -2) / n + np.eye(n)).astype(self.dtype)

    def triangular(self, n: int, *shape: int) -> np.ndarray:
        """Matrices of which both triangles are well conditioned, also with unit diagonals."""
        x = self.rng.uniform(-0.5, 0.5, (self.size, *shape, n, n)) / n
        return (x + np.eye(n) * self.rng.uniform(1, 2, (self.size, *shape, n, 1))).astype(
            self.dtype
        )


CASES: dict[str, Case] = {}


def case(
    make: Callable[[Make], tuple[Any, ...]], entrywise: bool = False, rounds: int = 1
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under its name; `rounds` of rounding allow for that much more."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        CASES[fn.__name__] = Case(fn, make, entrywise, rounds)
        return fn

    return register


# --- elementwise ---


@case(lambda m: (m.normal(3), m.normal(3)), entrywise=True)
def arithmetic(x: Any, y: Any) -> Any:
    return {
        "add": x + y, "sub": x - y, "mul": x * y, "div": x / y, "rem": lax.rem(x, y),
        "mod": x % y, "floordiv": x // y, "neg": -x, "abs": abs(x), "max": jnp.maximum(x, y),
        "min": jnp.minimum(x, y), "sign": jnp.sign(x), "square": lax.square(x),
        "eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y,
        "finite": jnp.isfinite(x), "reciprocal": lax.reciprocal(x), "signbit": jnp.signbit(x),
        "clamp": lax.clamp(-0.5, x, y + 1), "clip": jnp.clip(x, -0.5, 0.5), "nan": jnp.isnan(x),
        "hypot": jnp.hypot(x, y), "copysign": jnp.copysign(x, y),
    }  # fmt: skip


@case(lambda m: (m.normal(2), m.normal(2), m.normal(2)), entrywise=True)
def simplifications(x: Any, y: Any, z: Any) -> Any:
    """Everything that the program's algebra rewrites, with one rounding each."""
    numbers = (0.0, 1.0, -1.0, 0.5, -8.0, 3.0, 1e-30)
    constant = {
        f"{c}": (x + c, c + x, x - c, c - x, x * c, c * x, x / c if c else x, c / x, -x * c, -x / c
                 if c else x)
        for c in numbers
    }  # fmt: skip
    signs = (
        -(-x), x + -y,  # noqa: B002
        -x + y, -x + -y, x - -y, -x - y, -x - -y, -x * y, x * -y, -x * -y, -(x - y),
        -(-x + y), -x / y, x / -y, x - x, x * y - y * x, (x + y) - (y + x), jnp.maximum(x, x),
        jnp.where(x > 0, y, y), jnp.where(~(x > 0), y, z),
        jnp.where(x > 0, jnp.where(x > 0, y, z), z), jnp.where(x > 0, y, jnp.where(x > 0, y, z)),
        jnp.where(x > 0, True, y > 0), jnp.where(x > 0, y > 0, False),
        jnp.where(x > 0, False, y > 0), jnp.where(x > 0, y > 0, True),
    )  # fmt: skip
    return constant, signs


@case(lambda m: (m.uniform(-1, 1, 4), m.uniform(-4, 4, 4), m.uniform(0.1, 4, 4)), entrywise=True)
def elementary(unit: Any, x: Any, positive: Any) -> Any:
    return {
        "sin": jnp.sin(x), "cos": jnp.cos(x), "tan": jnp.tan(unit), "asin": jnp.arcsin(unit),
        "acos": jnp.arccos(unit), "atan": jnp.arctan(x), "atan2": jnp.arctan2(x, unit),
        "sinh": jnp.sinh(x), "cosh": jnp.cosh(x), "tanh": jnp.tanh(x), "asinh": jnp.arcsinh(x),
        "acosh": jnp.arccosh(positive + 1), "atanh": jnp.arctanh(unit * 0.9), "exp": jnp.exp(x),
        "exp2": jnp.exp2(x), "expm1": jnp.expm1(unit), "log": jnp.log(positive),
        "log1p": jnp.log1p(unit * 0.9), "cbrt": jnp.cbrt(x), "sqrt": jnp.sqrt(positive),
        "rsqrt": lax.rsqrt(positive), "pow": positive**x, "powers": (x**2, x**3, x**-2, x**7, x**0),
        "pow_int": lax.pow(x, jnp.full(4, 3)), "logistic": jax.nn.sigmoid(x), "erf": lax.erf(x),
        "erf_inv": lax.erf_inv(unit * 0.99), "sinc": jnp.sinc(x), "softplus": jax.nn.softplus(x),
        "log2": jnp.log2(positive), "log10": jnp.log10(positive),
        # In newer JAX, an operation of its own: 1 - x².
        "slope": jax.jvp(jnp.arctanh, (unit * 0.9,), (positive,))[1],
        "degrees": jnp.degrees(x), "float_power": positive**2.5,
    }  # fmt: skip


@case(lambda m: (m.normal(3) * 3, m.integers(-5, 6, 8) * 0.5), entrywise=True)
def rounding(x: Any, halves: Any) -> Any:
    away, even = lax.RoundingMethod.AWAY_FROM_ZERO, lax.RoundingMethod.TO_NEAREST_EVEN
    halves = halves.astype(x.dtype)
    return [
        (jnp.floor(v), jnp.ceil(v), lax.round(v, away), lax.round(v, even), jnp.trunc(v),
         jnp.round(v, 1))
        for v in (x, halves)
    ]  # fmt: skip


@case(lambda m: (m.bools(5), m.bools(5)))
def booleans(p: Any, q: Any) -> Any:
    return {
        "and": p & q, "or": p | q, "xor": p ^ q, "not": ~p, "eq": p == q, "ne": p != q, "lt": p < q,
        "le": p <= q, "gt": p > q, "ge": p >= q, "max": jnp.maximum(p, q), "min": lax.min(p, q),
        "add": p + q, "mul": p * q, "sum": p.sum(), "prod": p.prod(), "any": p.any(),
        "all": p.all(), "parity": lax.reduce_xor(p, (0,)), "cumsum": jnp.cumsum(p),
        "argmax": jnp.argmax(p), "argmin": jnp.argmin(p), "reduce_max": p.max(),
        "reduce_min": p.min(), "sort": jnp.sort(p), "where": jnp.where(p, q, ~q),
        "constants": (p & True, p | False, p ^ True, p & False, p | True, jnp.equal(p, True)),
        "empty": (p[:0].any(), p[:0].all(), lax.reduce_max(p[:0], (0,)),
                  lax.reduce_min(p[:0], (0,))),
    }  # fmt: skip


@case(lambda m: (m.integers(0, 3, 6), m.bools(6), m.normal(3, 6)), entrywise=True)
def selections(which: Any, p: Any, x: Any) -> Any:
    small = which.astype(jnp.uint8)
    return (
        lax.select_n(which, *x), lax.select_n(p, x[0], x[1]), lax.select_n(p[0], x[0], x[1]),
        lax.select_n(which[0], *x), jnp.choose(which, list(x), mode="clip"),
        jnp.select([p, which > 1], x[:2]),
        jnp.where(small == 1, small, 7), lax.select_n(jnp.array(2), *x),
    )  # fmt: skip


# --- structure ---


@case(lambda m: (m.normal(2, 3, 4), m.integers(0, 9, 3, 2)))
def shapes(x: Any, n: Any) -> Any:
    return {
        "reshape": (x.reshape(6, 4), lax.reshape(x, (4, 6), (2, 0, 1)), x.ravel()),
        "transpose": (x.transpose(2, 0, 1), x.swapaxes(0, 2), n.T),
        "squeeze": (x[:1].squeeze(0), lax.squeeze(x[:1, :1], (0, 1))),
        "expand": (x[:, None], lax.expand_dims(n, (0, 3)), jnp.atleast_3d(n)),
        "broadcast": (jnp.broadcast_to(x[0, 0], (5, 4)), lax.broadcast_in_dim(n, (3, 7, 2), (0, 2)),
                      jnp.tile(n, (2, 3)), jnp.repeat(n, 2, axis=0)),
        "slice": (x[:, ::2, 1:], x[1, :0], lax.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 3)), n[-1]),
        "rev": (x[::-1, :, ::-1], jnp.flip(n), jnp.rot90(n), jnp.roll(x, 1, axis=1)),
        "join": (jnp.concatenate([x, x * 2], 1), jnp.stack([n, n]), jnp.hstack([n, n])),
        "split": (jnp.split(x, 2, axis=2), lax.split(n, (1, 2), axis=0), jnp.unstack(x, axis=1)),
        "made": (jnp.arange(5), jnp.eye(3), lax.iota(jnp.uint8, 4), jnp.zeros((0, 2)),
                 lax.broadcasted_iota(jnp.float32, (2, 3), 1), jnp.tri(3)),
        "tri": (jnp.tril(x[0]), jnp.triu(n), jnp.diag(n[0]), jnp.trace(n), jnp.diagonal(x[0])),
        "copy": (jnp.copy(x), lax.stop_gradient(n), lax.optimization_barrier((x, n))),
        "meshgrid": jnp.meshgrid(n[0], n[1]), "kron": jnp.kron(n, n),
    }  # fmt: skip


@case(lambda m: (m.normal(3, 4), m.integers(-9, 9, 5)))
def padding(x: Any, n: Any) -> Any:
    zero = jnp.zeros((), x.dtype)
    # Any two of them together.
    configurations = [(-1, -2, 0), (-1, 0, 2), (-1, 1, 0), (0, -2, 2), (0, 0, 0), (0, 1, 2),
                      (2, -2, 0), (2, 0, 2), (2, 1, 0)]  # fmt: skip
    return (
        [lax.pad(x, zero + 7, [(low, high, inside), (high, low, 1)])
         for low, high, inside in configurations],
        lax.pad(n, jnp.int32(-1), [(-3, -2, 0)]), lax.pad(n[:0], jnp.int32(5), [(1, 2, 3)]),
        lax.pad(n[:1], n[1], [(-1, 2, 4)]), jnp.pad(x, 1, mode="edge"), jnp.pad(n, 2, mode="wrap"),
    )  # fmt: skip


@case(lambda m: (m.normal(3), m.integers(-300, 300, 3)), entrywise=True)
def bits(x: Any, n: Any) -> Any:
    whole = jnp.int32 if x.dtype == jnp.float32 else jnp.int64
    as_int = lax.bitcast_convert_type(x, whole)
    return (
        as_int, lax.bitcast_convert_type(as_int + 1, x.dtype), as_int.view(x.dtype),
        lax.bitcast_convert_type(n, jnp.uint32), n << 3,
        lax.bitcast_convert_type(n, jnp.float32) == 0,
        lax.reduce_precision(x, *((8, 23) if x.dtype == jnp.float32 else (11, 52))),
    )  # fmt: skip


# --- sums and products ---


@case(
    lambda m: (
        m.uniform(0.5, 1.5, 3, 4, 2),
        m.integers(-9, 9, 3, 4),
        m.integers(0, 9, 5, dtype=np.uint8),
    )
)
def reductions(x: Any, n: Any, u: Any) -> Any:
    zero = x[:0]
    return {
        "sum": (x.sum(), x.sum(0), x.sum((0, 2)), n.sum(1), zero.sum(0), zero.sum()),
        "prod": (x.prod((1, 2)), n.prod(0), zero.prod(0), zero.prod()),
        "max": (x.max(), x.max((0, 1)), n.max(1), u.max(), zero.max(0, initial=-1.0)),
        "min": (x.min(), x.min(2), n.min(0), u.min()),
        "bits": (lax.reduce_and(n, (0,)), lax.reduce_or(n, (1,)), lax.reduce_xor(n, (0, 1)),
                 lax.reduce_and(u, (0,)), lax.reduce_and(u[:0], (0,)), lax.reduce_and(n[:0], (0,)),
                 lax.reduce_or(u[:0], (0,)), lax.reduce_xor(n[:0], (0,))),
        "empty": (lax.reduce_max(zero, (0,)), lax.reduce_min(zero, (0,)),
                  lax.reduce_max(n[:0], (0,)),
                  lax.reduce_min(n[:0], (0,)), lax.reduce_max(u[:0], (0,)),
                  lax.reduce_min(u[:0], (0,))),
        "statistics": (x.mean(), x.var(0), x.std(), jnp.ptp(x), jnp.linalg.norm(x[0]),
                       jax.nn.logsumexp(x), jax.nn.softmax(x, 1), jnp.count_nonzero(n)),
    }  # fmt: skip


@case(lambda m: (m.normal(5, 3), m.integers(-3, 4, 5, 3)))
def cumulative(x: Any, n: Any) -> Any:
    functions = (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin)
    return [
        (f(x), f(x, 1), f(x, 0, True), f(n, 1, True), f(n, 0), f(x[:0]), f(x[:1], 0, True))
        for f in functions
    ]


@case(lambda m: (m.normal(3, 4), m.normal(4, 5), m.normal(3), m.integers(-9, 9, 3, 4)))
def products(a: Any, b: Any, v: Any, n: Any) -> Any:
    sparse = jnp.array([[0.0, 1, -1, 0], [2, 0, 0, 0.5], [0, 0, 0, 0]], a.dtype)
    return {
        "matmul": (a @ b, v @ a, v @ v, a.T @ v, jnp.outer(v, b[0]), n @ n.T),
        "einsum": (jnp.einsum("ij,jk,i->k", a, b, v), jnp.einsum("ij,ij->i", a, a),
                   jnp.einsum("ij,kj->ki", a, a), jnp.einsum("ij->ji", a)),
        "batched": (lax.dot_general(a, a, (((1,), (1,)), ((0,), (0,)))),
                    lax.batch_matmul(a[:, :, None], a[:, None, :]),
                    jnp.einsum("bij,bj->bi", jnp.stack([a, a]), b.T[:2])),
        "sparse": (sparse @ b, a @ sparse.T, sparse @ sparse.T, jnp.eye(3, dtype=a.dtype) @ a),
        "empty": (a[:, :0] @ b[:0], a[:0] @ b, n[:, :0] @ n[:, :0].T, a[:0, :0] @ b[:0, :0],
                  lax.dot_general(a[:0], a[:0], (((1,), (1,)), ((0,), (0,))))),
        "mixed": (lax.dot(n, n.T, preferred_element_type=jnp.float32), n @ b,
                  n.astype(jnp.int8) @ n.T),
        "cross": jnp.cross(v, v[::-1]), "trace": jnp.trace(a @ a.T),
        "matrix_power": jnp.linalg.matrix_power(a @ a.T, 3),
    }  # fmt: skip


# --- order ---


def _with_ties(m: Make, *shape: int) -> np.ndarray:
    x = m.integers(-2, 3, *shape).astype(m.dtype)
    x[m.rng.random(x.shape) < 0.2] = np.nan
    x[m.rng.random(x.shape) < 0.1] = np.inf
    return x


@case(lambda m: (_with_ties(m, 6), _with_ties(m, 4, 3), m.integers(-2, 3, 6)))
def extremes(x: Any, y: Any, n: Any) -> Any:
    return [
        (f(x), f(y, axis=0), f(y, axis=1), f(n), lax.argmax(n, 0, jnp.uint8), f(y[:1], axis=0),
         f(x.at[0].set(1.0)), f(y))
        for f in (jnp.argmax, jnp.argmin)
    ], (x.max(), y.min(0), jnp.nanmax(x), jnp.nanargmax(x.at[0].set(1.0)))  # fmt: skip


@case(lambda m: (_with_ties(m, 7), _with_ties(m, 4, 3), m.integers(-2, 3, 7)))
def sorting(x: Any, y: Any, n: Any) -> Any:
    return {
        "sort": (jnp.sort(x), jnp.sort(y, 0), jnp.sort(y, 1), jnp.sort(n),
                 jnp.sort(n, descending=True)),
        "argsort": (jnp.argsort(x), jnp.argsort(n), jnp.argsort(n, descending=True)),
        "many": (lax.sort((n, x), num_keys=1), lax.sort((n, x, x[::-1]), num_keys=2),
                 jnp.lexsort((x, n))),
        "top_k": (lax.top_k(x, 3), lax.top_k(n, 7), lax.top_k(y, 1), lax.top_k(x, 0)),
        "median": (jnp.median(n), jnp.unique(n, size=5), jnp.searchsorted(jnp.sort(n), 1),
                   jnp.searchsorted(jnp.sort(y[:, 0]), 1.0, side="right")),
        "short": (jnp.sort(x[:1]), jnp.sort(x[:0]), jnp.argsort(n[:2])),
    }  # fmt: skip


# --- indexing ---

MODES = ("fill", "clip", "promise_in_bounds")


@case(lambda m: (m.normal(5, 3), m.integers(-9, 9, 5), m.integers(-8, 8, 4), m.integers(0, 3, 2)))
def gathers(x: Any, n: Any, i: Any, inside: Any) -> Any:
    return {
        "constant": (x[2], x[-1, 1], x[jnp.array([0, 4, 4])],
                     x[jnp.array([-7, 2]), jnp.array([1, 9])],
                     n.at[jnp.array([5, -6])].get(mode="fill"), n.at[7].get(mode="clip")),
        "run-time": (x[inside[0]], x[inside], x[inside[0], inside[1]], x[inside, inside],
                     n[inside - 5],
                     x[:, inside[0]], x[inside[0], 1:], n[inside.reshape(2, 1)]),
        "outside": [
            (x.at[i].get(mode=mode), n.at[i[0]].get(mode=mode), x.at[i[0], i[1]].get(mode=mode))
            for mode in ("fill", "clip")
        ],
        "fill": (x.at[i].get(mode="fill", fill_value=2.5), n.at[i].get(mode="fill", fill_value=-1),
                 (n > 0).at[i].get(mode="fill"), n.astype(jnp.uint8).at[i].get(mode="fill")),
        "promised": (x.at[inside].get(mode="promise_in_bounds"),
                     n.at[inside].get(unique_indices=True)),
        "small": (n[inside.astype(jnp.int8)], n[inside.astype(jnp.uint32)],
                  n[inside.astype(jnp.uint8)]),
        "along": (jnp.take_along_axis(x, inside[None, :1] + jnp.zeros((5, 1), int), 1),
                  jnp.take(x, inside, axis=0), jnp.take(n, i, mode="wrap"), x[jnp.argsort(n)]),
        "batched": jax.vmap(lambda a, k: a[k])(x[:2], inside),
    }  # fmt: skip


@case(lambda m: (m.normal(140), m.integers(-128, 128, dtype=np.int8)))
def narrow_indices(x: Any, i: Any) -> Any:
    """More places than an index can tell apart."""
    along = lax.GatherDimensionNumbers((0,), (), (0,))
    return (
        x[i], x.at[i].get(mode="clip"), lax.dynamic_slice(x, (i,), (3,)),
        lax.gather(x, i[None], along, (3,), mode="fill"),
    )  # fmt: skip


@case(lambda m: (m.normal(5, 3), m.integers(-9, 9, 5), m.integers(-8, 8, 4), m.integers(0, 3, 2)))
def scatters(x: Any, n: Any, i: Any, inside: Any) -> Any:
    def every(ref: Any, values: Any, mode: str) -> Any:
        return (
            ref.add(values, mode=mode), ref.subtract(values, mode=mode),
            ref.multiply(values, mode=mode), ref.min(values, mode=mode), ref.max(values, mode=mode),
        )  # fmt: skip

    distinct = jnp.array([3, 0])
    return {
        "constant": (x.at[2].set(1.0), n.at[-1].set(5), x.at[1, 2].add(3.0), n.at[9].set(1),
                     x.at[:, 1].set(x[:, 0]), n.at[1:3].multiply(2), x.at[0].set(x[1] * 2),
                     every(x.at[distinct], x[:2], "drop"), n.at[jnp.array([1, 1])].add(2)),
        "run-time": (x.at[inside[0]].set(7.0), n.at[inside].add(jnp.array([1, 10], n.dtype)),
                     x.at[inside[0], inside[1]].multiply(2.0), x.at[inside].add(x[:2]),
                     every(n.at[inside], n[:2], "drop")),
        "outside": [
            (n.at[i[0]].set(100, mode=mode), x.at[i[0], i[1]].set(9.0, mode=mode),
             every(n.at[i], n[:4], mode), x.at[i].add(x[:4], mode=mode))
            for mode in ("drop", "clip")
        ],
        "small": n.at[inside.astype(jnp.uint8)].add(1),
        "batched": jax.vmap(lambda a, k: a.at[k].add(1.0))(x[:2], inside),
        "bool": (n > 0).at[inside[0]].set(True),
        "segment": jax.ops.segment_sum(x, jnp.clip(n, 0, 3), num_segments=4),
    }  # fmt: skip


@case(lambda m: (m.normal(5, 4), m.normal(2, 3), m.integers(-9, 9, 2), m.integers(0, 9, 2)))
def windows(x: Any, update: Any, i: Any, j: Any) -> Any:
    j, zero = j.astype(jnp.uint8), jnp.int32(0)
    return {
        "slice": (lax.dynamic_slice(x, (i[0], i[1]), (2, 3)),
                  lax.dynamic_slice(x, (i[0], zero), (5, 2)),
                  lax.dynamic_slice(x, (zero + 1, i[1]), (1, 1)),
                  lax.dynamic_slice(x, (j[0], j[1]), (3, 1)),
                  lax.dynamic_slice(x, (-3, 99), (2, 2)),
                  lax.dynamic_slice(x, (i[0], i[0]), (0, 4)),
                  lax.dynamic_index_in_dim(x, i[1], 1), x[abs(i[0]) % 5]),
        "update": (lax.dynamic_update_slice(x, update, (i[0], i[1])),
                   lax.dynamic_update_slice(x, update, (j[0], jnp.uint8(1))),
                   lax.dynamic_update_slice(x, update, (-3, 99)),
                   lax.dynamic_update_slice(x, x * 2, (i[0], i[1])),
                   lax.dynamic_update_index_in_dim(x, x[0] * 3, i[0], 0)),
    }  # fmt: skip


# --- linear algebra ---


@case(lambda m: (m.definite(5), m.definite(3, 2), m.normal(5), m.normal(5, 2)))
def cholesky(a: Any, two: Any, v: Any, w: Any) -> Any:
    factor = jax.scipy.linalg.cho_factor(a)
    return {
        "factor": (
            jnp.linalg.cholesky(a),
            jnp.linalg.cholesky(two),
            lax.linalg.cholesky(a[:1, :1]),
        ),
        "upper": (jax.scipy.linalg.cholesky(a), jnp.linalg.cholesky(a, upper=True)),
        "solve": (jax.scipy.linalg.cho_solve(factor, v), jax.scipy.linalg.cho_solve(factor, w)),
        "positive": jax.scipy.linalg.solve(a, w, assume_a="pos"),
        "sparse": jnp.linalg.cholesky(jnp.diag(jnp.diag(a))),
        "raw": lax.linalg.cholesky(a, symmetrize_input=False),
    }


@case(
    lambda m: (
        m.triangular(3),
        m.normal(3, 2),
        m.normal(2, 3),
        m.triangular(2, 2),
        m.normal(2, 2, 1),
    )
)
def triangular(a: Any, left: Any, right: Any, two: Any, rest: Any) -> Any:
    flags = itertools.product((True, False), repeat=4)
    solve = lax.linalg.triangular_solve
    return [
        (solve(a, left if on_left else right, left_side=on_left, lower=lower, transpose_a=transpose,
               unit_diagonal=unit),
         solve(two, rest if on_left else rest.swapaxes(1, 2), left_side=on_left, lower=lower,
               transpose_a=transpose, conjugate_a=transpose, unit_diagonal=unit))
        for on_left, lower, transpose, unit in flags
    ], jax.scipy.linalg.solve_triangular(a, left[:, 0], lower=True)  # fmt: skip


# --- calls ---


@jax.custom_jvp
def _squared(x: Any) -> Any:
    return x * x


_squared.defjvp(lambda p, t: (p[0] ** 2, 7 * t[0]))


@jax.custom_vjp
def _cubed(x: Any) -> Any:
    return x**3


_cubed.defvjp(lambda x: (x**3, x), lambda x, g: (5 * g,))


@jax.custom_batching.custom_vmap
def _mapped(x: Any) -> Any:
    return x + 1


_mapped.def_vmap(lambda size, batched, x: (x + 1, batched[0]))


@case(lambda m: (m.normal(4), m.definite(4)))
def calls(x: Any, a: Any) -> Any:
    return {
        "jit": jax.jit(lambda v: jnp.sin(v) + x)(x * 2),
        "custom": (_squared(x), _cubed(x), _mapped(x), jax.grad(lambda v: _squared(v).sum())(x),
                   jax.grad(lambda v: _cubed(v).sum())(x)),
        "remat": (jax.checkpoint(jnp.sin)(x),
                  jax.grad(jax.checkpoint(lambda v: jnp.sin(v).sum()))(x)),
        "grad": (jax.grad(lambda v: v @ a @ v)(x), jax.jvp(jnp.tanh, (x,), (x,)),
                 jax.hessian(lambda v: jnp.exp(v).sum())(x), jax.jacfwd(lambda v: a @ v)(x)),
        "solve": lax.custom_linear_solve(lambda v: a @ v, x, lambda _, b: b / 2, symmetric=True),
        "scanned": jax.grad(lambda v: lax.scan(lambda c, w: (c * w, c), v[0], v)[0])(x),
        "platform": lax.platform_dependent(x, cpu=lambda v: v + 1, default=lambda v: v - 1),
        "closed": jax.vmap(lambda row: row @ x)(a), "inner": fuse(lambda row: jnp.cos(row) @ x)(a),
        "relu": (jax.nn.relu(x), jax.nn.gelu(x), jax.nn.elu(x)), "norm": jnp.linalg.norm(x),
    }  # fmt: skip


# --- control flow ---


@case(lambda m: (m.integers(-2, 5), m.normal(3), m.bools()))
def branches(which: Any, x: Any, p: Any) -> Any:
    options = [lambda v: v + 1, jnp.sin, lambda v: v[::-1]]
    return {
        "cond": (lax.cond(p, lambda v: v * 2, lambda v: -v, x),
                 lax.cond(x[0] > 0, lambda: (x, which), lambda: (x * 0.5, which + 1))),
        "switch": lax.switch(which, options, x), "one": lax.switch(which, options[:1], x),
        "constant": (lax.switch(1, options, x), lax.cond(True, jnp.sin, jnp.cos, x),
                     lax.switch(jnp.array(7), options, x), lax.switch(jnp.array(-7), options, x)),
        "nested": lax.cond(p, lambda: lax.switch(which, options, x), lambda: jnp.zeros(3, x.dtype)),
        "key": lax.cond(p, lambda: jax.random.key(1), lambda: jax.random.key(2)),
    }  # fmt: skip


@case(lambda m: (m.normal(3), m.normal(5, 3), m.integers(0, 9, 5)))
def short_scans(x: Any, rows: Any, n: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        carry = (carry[0] * 0.9 + row[0], carry[1] + row[1])
        return carry, (carry[0].sum(), row[1] > 3, carry[1])

    start = (x, jnp.int32(0))
    return {
        "forward": lax.scan(body, start, (rows, n)),
        "reverse": lax.scan(body, start, (rows, n), reverse=True),
        "one": lax.scan(body, start, (rows[:1], n[:1])),
        "none": lax.scan(body, start, (rows[:0], n[:0])),
        "fori": (lax.fori_loop(0, 4, lambda i, v: v + i * x, x),
                 lax.fori_loop(2, 2, lambda i, v: v, x)),
        "constant": lax.scan(lambda c, i: (c + i, c * i), 0, jnp.arange(6)),
        "map": lax.map(jnp.sin, rows), "associative": lax.associative_scan(jnp.add, rows),
        "unroll": lax.scan(body, start, (rows, n), unroll=2),
        "poly": jnp.polyval(x, x[0]),
    }  # fmt: skip


@case(
    lambda m: (m.uniform(-1, 1, 3), m.uniform(-1, 1, 70, 2), m.integers(0, 2, 70), m.bools(70)),
    rounds=4,
)
def long_scans(x: Any, rows: Any, n: Any, p: Any) -> Any:
    """More rounds than are unrolled: these stay loops."""

    def body(carry: Any, row: Any) -> Any:
        v, count, flag = carry
        w, k, q = row
        v = 0.7 * v + 0.1 * w.sum() * jnp.roll(v, 1)
        return (v, count + k, flag ^ q), (v[0], count, flag & q, w * 2)

    start = (x, jnp.int32(3), x[0] > 0)
    end, made = lax.scan(body, start, (rows, n, p), reverse=True)
    return {
        "forward": lax.scan(body, start, (rows, n, p))[0],
        "reverse": (end, [y[::7] for y in made]),
        "fori": lax.fori_loop(0, 100, lambda i, v: 0.9 * v + 0.001 * i * x, x),
        "constant": lax.scan(lambda c, r: (c + r[0] * x, r[1]), x,
                             (jnp.linspace(0, 1, 80), jnp.arange(80)))[0],
        "unused": lax.scan(lambda c, r: ((c[0] + 1, c[1] * 0.5), None), (x, x), length=90)[0][0],
        "no carry": lax.scan(lambda c, r: (c, r[0] + x[0]), (), rows)[1][60:],
        "unchanged": lax.scan(lambda c, r: (c, c[0][0]), (x, x), None, length=66)[1][65],
        "swapped": lax.scan(lambda c, r: ((c[1], c[0]), c[0][0]), (x, -x), None, length=67)[0],
    }  # fmt: skip


@case(lambda m: (m.uniform(-1, 1, 3), m.uniform(-1, 1, 70), m.uniform(-1, 1, 66, 2)), rounds=4)
def nested_loops(x: Any, r: Any, table: Any) -> Any:
    def inner(v: Any, scale: Any) -> Any:
        return lax.fori_loop(0, 65, lambda i, w: 0.9 * w + 0.01 * scale * r[0] + 0.001 * i, v)

    def outer(v: Any, row: Any) -> Any:
        w = inner(v, row)
        w, rows = lax.scan(lambda c, t: (c * 0.9 + t.sum() * row, c[0] + v[1]), w, table)
        # Rows that are made in this round, and looked up in a loop within it.
        made = r * v[0]
        w, _ = lax.scan(lambda c, t: (0.9 * c + 0.1 * t, None), w, made, reverse=True)
        return w, (rows.sum(), w[2])

    return lax.scan(outer, x, r), lax.fori_loop(
        0, 3, lambda i, v: lax.fori_loop(0, 70, lambda j, w: 0.99 * w + i * 0.01, v), x
    )


@case(lambda m: (m.normal(3), m.integers(0, 12), m.integers(-3, 90)))
def while_loops(x: Any, n: Any, long: Any) -> Any:
    def collatz(state: Any) -> Any:
        k, steps = state
        return jnp.where(k % 2 == 0, k // 2, 3 * k + 1), steps + 1

    def newton(state: Any) -> Any:
        y, i = state
        return 0.5 * (y + (abs(x[0]) + 1) / y), i + 1

    return {
        "fori": (lax.fori_loop(0, n, lambda i, v: v + i, x),
                 lax.fori_loop(n, long, lambda i, v: v + 1, 0)),
        "collatz": lax.while_loop(lambda s: s[0] > 1, collatz, (n + 1, 0)),
        "newton": lax.while_loop(lambda s: (s[1] < 30) & (abs(s[0] ** 2 - abs(x[0]) - 1) > 1e-3),
                                 newton,
                                 (abs(x[0]) + 1, 0)),
        "known": lax.while_loop(lambda i: i < 5, lambda i: i + 2, 0),
        "known, then not": lax.while_loop(lambda s: (s[0] < 3) | (s[0] < n),
                                          lambda s: (s[0] + 1, s[1] * 2),
                                          (0, x)),
        "never": lax.while_loop(lambda v: False, lambda v: v + 1, x),
        "in scan": lax.scan(lambda c,
                            k: (c + lax.while_loop(lambda v: v < n, lambda v: v + k + 1, 0), c),
                            0, jnp.arange(70)),
        "outer": lax.while_loop(lambda s: s[0] < n,
                                lambda s: (s[0] + 1,
                                           lax.fori_loop(0, 66, lambda i, v: 0.9 * v + i, s[1])),
                                (0, x)),
        "both": lax.while_loop(lambda s: s[0] < n,
                               lambda s: (s[0] + 1,
                                          lax.while_loop(lambda v: v < long, lambda v: v + 7,
                                                         s[1])),
                               (0, 0)),
        "cond": lax.cond(n > 5, lambda: lax.fori_loop(0, n, lambda i, v: v + 2, 0), lambda: -1),
    }  # fmt: skip


@case(lambda m: (m.integers(1, 30, 2, 3), m.normal(2, 3)))
def loops_of_an_inner_vmap(n: Any, x: Any) -> Any:
    """Each of them ends by itself."""

    def collatz(k: Any, y: Any) -> Any:
        return lax.while_loop(
            lambda s: s[0] > 1,
            lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1, 0.5 * s[2]),
            (k, 0, jnp.stack([y, 2 * y])),
        )

    return jax.vmap(collatz)(n[0], x[0]), jax.vmap(jax.vmap(collatz))(n, x)


@case(lambda m: (m.normal(4, 3), m.integers(-9, 9, 4, 3)))
def folds(x: Any, n: Any) -> Any:
    x, zero, one = abs(x), jnp.zeros((), x.dtype), jnp.int32(1)
    return {
        "one": [lax.reduce(x, zero, lambda a, b: a + b + a * b, axes) for axes in ((0,), (1, 0))],
        "two": lax.reduce((x, n), (zero, one), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)),
        "none": lax.reduce(x[:0], zero, lambda a, b: a + b + a * b, (0,)),
    }


# --- random numbers ---


def _keys(m: Make) -> tuple[Any, ...]:
    seeds = m.integers(0, 2**31 - 1)
    return jax.vmap(jax.random.key)(seeds), jax.vmap(jax.random.PRNGKey)(seeds), seeds


@case(_keys)
def random_bits(key: Any, raw: Any, seed: Any) -> Any:
    def draw(k: Any) -> Any:
        a, b = jax.random.split(k)
        return {
            "split": (jax.random.split(a, (2, 1)), b),
            "fold_in": (jax.random.fold_in(k, 7), jax.random.fold_in(a, seed)),
            "bits": [jax.random.bits(b, (3,), d) for d in (jnp.uint8, jnp.uint16, jnp.uint32)],
            "randint": (jax.random.randint(a, (4,), -5, 9), jax.random.randint(b, (), 0, seed + 1)),
            "bernoulli": jax.random.bernoulli(a, 0.3, (5,)),
            "uniform": lax.bitcast_convert_type(jax.random.uniform(b, (3,), jnp.float32),
                                                jnp.int32),
            "permutation": jax.random.permutation(a, 4), "choice": jax.random.choice(b, 9, (2,)),
        }  # fmt: skip

    one, two = jax.random.split(raw)
    return draw(key), (one, jax.random.bits(two, (2,)), jax.random.fold_in(raw, 7)), {
        "made": (jax.random.key(seed), jax.random.PRNGKey(seed), jax.random.key(3)),
        "data": (jax.random.key_data(key), jax.random.wrap_key_data(raw), jax.random.clone(key)),
        "moved": (jax.random.split(key, 4)[1:3], jnp.stack([key, jax.random.key(0)])[::-1],
                  jax.random.split(key, 4)[seed % 4],
                  jnp.where(seed % 2 == 0, key, jax.random.key(5)),
                  jnp.concatenate([jax.random.split(key), jax.random.split(key)]).reshape(2, 2).T),
        "scanned": lax.scan(lambda k, _: (jax.random.split(k)[0], jax.random.bits(k)), key,
                            length=3),
    }  # fmt: skip


@case(_keys)
def random_numbers(key: Any, raw: Any, seed: Any) -> Any:
    def draw(k: Any) -> Any:
        one, two, three = jax.random.split(k, 3)
        return {
            "uniform": jax.random.uniform(one, (3,), minval=-2.0, maxval=3.0),
            "normal": (jax.random.normal(two, (4,)),
                       jax.random.truncated_normal(two, -1.0, 1.0, (2,))),
            "exponential": jax.random.exponential(three, (2,)),
            "categorical": jax.random.categorical(one, jnp.arange(4.0)),
            "ball": jax.random.laplace(two, (2,)), "gumbel": jax.random.gumbel(one, (2,)),
        }  # fmt: skip

    return draw(key), jax.random.normal(raw, (2,))


# --- the tests ---

# Interpreted, the GPU's executor runs the same code as "xla" for a single operation.
IN_PALLAS = ("while_loops",)
# One after the other in this precision and in that, the other is slow; but for what is quick in
# float32 in test_catalogue.py.
IN_CATALOGUE = ("arithmetic", "cumulative", "elementary", "shapes")
QUICK_NATIVE = {
    name: None if name in IN_CATALOGUE else dtype
    for name, dtype in zip(CASES, itertools.cycle(["float32", "float64"]))
}
SETTINGS = [
    pytest.param(
        name,
        backend,
        dtype,
        marks=pytest.mark.slow
        if backend == "xla"
        or (backend == "pallas" and (dtype == "float64" or name not in IN_PALLAS))
        or (backend == "native" and dtype != QUICK_NATIVE[name])
        else (),
    )
    for name, backend, dtype in itertools.product(
        CASES, ("native", "xla", "pallas"), ("float32", "float64")
    )
]


@functools.cache
def _arguments(name: str, dtype: str) -> tuple[Any, ...]:
    return CASES[name].make(Make(name, np.dtype(dtype)))


@functools.cache
def _expected(name: str, dtype: str) -> Any:
    return jax.jit(jax.vmap(CASES[name].fn))(*_arguments(name, dtype))


@pytest.mark.parametrize(("name", "backend", "dtype"), SETTINGS)
def test_rule(
    name: str,
    backend: str,
    dtype: str,
    precision: Callable[[str], AbstractContextManager[Any]],
    equal: Callable[..., None],
    triton: Callable[[str], AbstractContextManager[None]],
) -> None:
    with precision(dtype), triton(backend):
        one = CASES[name]
        actual = fuse(one.fn, backend)(*_arguments(name, dtype))
        ulps = one.rounds * ULPS[dtype]
        equal(actual, _expected(name, dtype), ulps, one.entrywise)


ELSEWHERE = frozenset({
    # Names in other releases of JAX.
    "checkpoint", "closed_call", "copy_p", "core_call", "custom_vjp_call_jaxpr", "expand_dims",
    "pjit", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub",
    "scatter-add", "scatter-max", "scatter-min", "scatter-mul", "scatter-sub",
    "eval_jaxpr", "log2", "one_minus_square",
    # Fallbacks and devices: test_fuse.py. Keys of several parts: nothing public has them.
    "random_gamma", "rng_bit_generator", "rng_uniform", "pcast", "pvary", "reshard",
    "sharding_constraint", "eq_to",
    # Of JAX's own scans: native/test_workspace.py. Kernels within kernels: test_derivatives.py.
    "empty", "empty2", "fused",
})  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_cholesky_of_what_is_not_definite(backend: str) -> None:
    """NaN all over, as LAPACK reports it; zeros that are known stay."""
    definite = np.array([[4, 2, 1], [2, 5, 2], [1, 2, 6]], np.float32)
    matrices = np.stack([definite] * 4)
    matrices[1, 0, 0], matrices[2, 2, 2], matrices[3] = -1, 0.1, 0
    for fn in (jnp.linalg.cholesky, lambda a: lax.linalg.cholesky(a, symmetrize_input=False)):
        actual, expected = fuse(fn, backend)(matrices), jax.vmap(fn)(matrices)
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
    known = fuse(lambda x: jnp.linalg.cholesky(jnp.diag(x)), backend)(matrices[:, 0])
    np.testing.assert_array_equal(np.isnan(known[3]), np.eye(3))


@pytest.mark.parametrize("backend", with_slow(["native", "xla"], "xla"))
def test_order_of_ties(backend: str) -> None:
    """Bit by bit as XLA's: `sort` keeps the order of zeros of either sign, `top_k` does not."""
    few = np.array([np.nan, -np.nan, 1, -0.0, 0, 1, np.inf, -np.inf], np.float32)
    x = few[np.random.default_rng(0).integers(0, len(few), (40, 9))]

    def fn(v: Any) -> Any:
        return lax.top_k(v, 7), lax.sort((v, jnp.arange(9))), jnp.argsort(-v)

    actual, expected = fuse(fn, backend)(x), jax.jit(jax.vmap(fn))(x)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    signs = lambda tree: jax.tree.map(np.signbit, tree)  # noqa: E731
    jax.tree.map(np.testing.assert_array_equal, signs(actual[0]), signs(expected[0]))


def test_a_choice_beyond_the_cases() -> None:
    which = np.array([-(2**31), -1, 0, 1, 2, 3, 99], np.int32)

    def fn(k: Any) -> Any:
        return lax.select_n(k, *jnp.arange(3.0)), lax.select_n(k, *jnp.arange(2.0))

    jax.tree.map(np.testing.assert_array_equal, fuse(fn, "native")(which), jax.vmap(fn)(which))


@pytest.mark.parametrize("name", ["complex64", "bfloat16", "float16", "float8_e4m3b11fnuz"])
def test_dtypes_that_are_only_carried(name: str) -> None:
    """Moved in the kernel, computed with outside, as a warning says; or left to `vmap`."""
    x = np.random.default_rng(0).normal(size=(5, 6)).astype(jnp.dtype(name))

    def moved(v: Any) -> Any:
        return v[::-1], v.at[2].set(v[0]), jnp.where(jnp.arange(6) < 3, v, v[1])[::2]

    def computed(v: Any) -> Any:
        return v + v, (v == v[0]).any(), jnp.sort(v)

    with pytest.warns(KernelWarning):
        actual = fuse(computed, "native")(x)
    jax.tree.map(np.testing.assert_array_equal, actual, jax.jit(jax.vmap(computed))(x))
    if name == "float8_e4m3b11fnuz":
        pytest.skip("its values are not even carried")
    actual = fuse(moved, "native")(x)
    jax.tree.map(np.testing.assert_array_equal, actual, jax.jit(jax.vmap(moved))(x))


def test_every_rule_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[str] = set()

    class Recording(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            used.add(name)
            return super().get(name, default)

    monkeypatch.setattr(evaluator, "RULES", Recording(RULES))
    for name, one in CASES.items():
        args = jax.tree.map(lambda x: x[0], _arguments(name, "float32"))
        traced, _ = trace(one.fn, args, {})
        assert not partially_evaluate(traced, [True] * len(traced.operands), "cpu").fallbacks, name
    assert RULES.keys() - used - ELSEWHERE == set()
    assert {"scatter_add", "scatter-add"} & used
