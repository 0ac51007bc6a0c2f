"""Random programs of small arrays: fused they give what `jax.vmap` gives.

A program is a list of steps on two pools of arrays, floats and integers; a step takes what it finds
at its indices and adds its results. Only integers decide, so that rounding decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from fraxenv.kernels import fuse

LARGEST = 20
"""Elements of an array in a program."""

Step = tuple[str, int, int, int, tuple[Any, ...]]


def _cut(x: Any) -> Any:
    return x if x.size <= LARGEST else x.ravel()[:LARGEST]


def _bounded(x: Any) -> Any:
    """Within (-4, 4), and not steeper than before: errors do not grow."""
    return x / (1 + abs(x) / 4)


def _like(x: Any, other: Any) -> Any:
    return jnp.resize(x, other.shape) if x.size else jnp.zeros(other.shape, x.dtype)


def _index(n: Any, size: int) -> Any:
    """Mostly within, sometimes beyond."""
    return n.ravel()[0] % (size + 2) - 1


def _matrix(x: Any) -> Any:
    return x.reshape(x.shape[0], -1) if x.ndim > 1 else x[None] if x.ndim else x[None, None]


def _loop(f: Any, g: Any, n: Any, k: int, body: Callable[[Any, Any], Any]) -> Any:
    def following(i: Any, v: Any) -> Any:
        return 0.5 * v + 0.5 * _like(body(v, n + i), v)

    return lax.fori_loop(0, (0, 1, 3, 70)[k % 4], following, f)


def _while(f: Any, g: Any, n: Any, k: int, body: Callable[[Any, Any], Any]) -> Any:
    start = (jnp.int32(0), f)
    return lax.while_loop(
        lambda s: s[0] < n.ravel()[0] % 6,
        lambda s: (s[0] + 1, 0.5 * s[1] + 0.5 * _like(body(s[1], n), s[1])),
        start,
    )[1]


def _scan(f: Any, g: Any, n: Any, k: int, body: Callable[[Any, Any], Any]) -> Any:
    rows = jnp.resize(f, ((2, 5, 66)[k % 3], 2))

    def following(c: Any, row: Any) -> Any:
        c = 0.5 * c + 0.5 * _like(body(c + row.sum() / 8, n), c)
        return c, c.ravel()[:2] + row[0]

    end, ys = lax.scan(following, g.ravel()[:3], rows, reverse=k % 2 == 1)
    return _bounded(jnp.concatenate([end, ys[:: max(1, len(ys) // 5)].ravel()]))


FLOATS: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "add": lambda f, g, n, k: _bounded(f + _like(g, f)),
    "sub": lambda f, g, n, k: _bounded(f - _like(g, f)),
    "outer": lambda f, g, n, k: _bounded(jnp.outer(f, g)[:4, :5]),
    "mul": lambda f, g, n, k: _bounded(f * _like(g, f)),
    "div": lambda f, g, n, k: f / (1 + abs(_like(g, f))),
    "sin": lambda f, g, n, k: jnp.sin(f),
    "tanh": lambda f, g, n, k: -jnp.tanh(f),
    "exp": lambda f, g, n, k: jnp.exp(-abs(f)),
    "root": lambda f, g, n, k: jnp.sqrt(1 + f * f),
    "angle": lambda f, g, n, k: jnp.arctan2(f, 1 + abs(_like(g, f))),
    "max": lambda f, g, n, k: jnp.maximum(f, _like(g, f)),
    "clip": lambda f, g, n, k: jnp.clip(f, -1, abs(_like(g, f))),
    "sort": lambda f, g, n, k: jnp.sort(f.ravel()[:6]),
    # XLA for CPUs sums wrongly what it has just padded, if it is one number long and batched.
    "cumsum": lambda f, g, n, k: _bounded(
        lax.cumsum(lax.optimization_barrier(f.ravel()), reverse=k % 2 == 1)
    ),
    "mean": lambda f, g, n, k: f.mean(axis=k % f.ndim) if f.ndim and f.size else f,
    "top": lambda f, g, n, k: f.max(axis=-1) if f.ndim and f.shape[-1] else f,
    "product": lambda f, g, n, k: _bounded(_matrix(f) @ _like(g, _matrix(f)).T),
    "sparse": lambda f, g, n, k: jnp.eye(3, f.size, k=k % 2, dtype=f.dtype) @ f.ravel(),
    "masked": lambda f, g, n, k: f * _like(jnp.array([1, 0, -1, 0.5], f.dtype), f),
    "turned": lambda f, g, n, k: f.T,
    "flat": lambda f, g, n, k: f.ravel()[k % 3 :: 1 + k % 2],
    "flipped": lambda f, g, n, k: jnp.flip(f),
    "joined": lambda f, g, n, k: jnp.concatenate([f.ravel(), g.ravel()[k % 2 :]]),
    "padded": lambda f, g, n, k: jnp.pad(f.ravel(), (k % 3, 1)),
    "stacked": lambda f, g, n, k: jnp.stack([f, _like(g, f)], axis=k % (f.ndim + 1)),
    "constant": lambda f, g, n, k: jnp.linspace(-1, 1, 1 + k % 5, dtype=f.dtype),
    "chosen": lambda f, g, n, k: jnp.where(_like(n, f) % 2 == 0, f, _like(g, f)),
    "from int": lambda f, g, n, k: (n % 64).astype(f.dtype) / 16,
    "gather": lambda f, g, n, k: (
        f.ravel().at[_index(n, f.size)].get(mode=("fill", "clip")[k % 2], fill_value=1.0)
    ),
    "take": lambda f, g, n, k: f.ravel()[n.ravel()[:3] % max(1, f.size)] if f.size else f,
    "scatter": lambda f, g, n, k: _bounded(
        f.ravel().at[n.ravel()[:3] % (f.size + 1)].add(_like(g, n.ravel()[:3]), mode="drop")
    ),
    "window": lambda f, g, n, k: lax.dynamic_slice(f.ravel(), (_index(n, f.size),), (f.size // 2,)),
    "update": lambda f, g, n, k: lax.dynamic_update_slice(
        f.ravel(), g.ravel()[: f.size // 2], (_index(n, f.size),)
    ),
    "cond": lambda f, g, n, k: lax.cond(
        n.ravel()[0] % 2 == 0, lambda: f * 0.5, lambda: _like(g, f)
    ),
    "switch": lambda f, g, n, k: lax.switch(
        n.ravel()[0] % 4 - 1, [lambda: f, lambda: -f, lambda: _like(g, f)]
    ),
}

INTEGERS: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "int add": lambda f, n, m, k: n + _like(m, n),
    "int mul": lambda f, n, m, k: n * _like(m, n),
    "int div": lambda f, n, m, k: n // (abs(_like(m, n)) % 9 + 1),
    "int rem": lambda f, n, m, k: lax.rem(n, _like(m, n)),
    "int bits": lambda f, n, m, k: (n & _like(m, n)) ^ (n | k),
    "int shift": lambda f, n, m, k: (n << (k % 40)) + (n >> (k % 5)),
    "int max": lambda f, n, m, k: jnp.maximum(n, _like(m, n)),
    "int sum": lambda f, n, m, k: n.sum(),
    "int sort": lambda f, n, m, k: jnp.sort(n.ravel()[:5]),
    "int argmax": lambda f, n, m, k: jnp.argmax(n.ravel()),
    "int compare": lambda f, n, m, k: (n < _like(m, n)).astype(jnp.int32),
    "int any": lambda f, n, m, k: ((n > 0).any() | (m == k).all()).astype(jnp.int32),
    "int chosen": lambda f, n, m, k: jnp.where(_like(m, n) > n, n, k),
    "int narrow": lambda f, n, m, k: n.astype(jnp.int8).astype(jnp.int32),
}

LOOPS = {"fori": _loop, "while": _while, "scan": _scan}


def run(steps: tuple[Step, ...], floats: list[Any], ints: list[Any]) -> tuple[list[Any], list[Any]]:
    """The pools after a program."""
    floats, ints = list(floats), list(ints)
    for name, a, b, k, inner in steps:
        f, g = floats[a % len(floats)], floats[b % len(floats)]
        n, m = ints[a % len(ints)], ints[b % len(ints)]
        if name in LOOPS:

            def body(v: Any, i: Any, inner: Any = inner) -> Any:
                return run(inner, [*floats, v], [*ints, i])[0][-1]

            floats.append(_cut(LOOPS[name](f, g, n, k, body)))
        elif name in INTEGERS:
            ints.append(_cut(INTEGERS[name](f, n, m, k).astype(jnp.int32)))
        elif f.size and g.size:
            floats.append(_cut(FLOATS[name](f, g, n, k)))
    return floats, ints


def _steps(names: list[str], inner: Any, least: int, most: int) -> Any:
    index = st.integers(0, 11)
    step = st.tuples(st.sampled_from(names), index, index, index, inner)
    return st.lists(step, min_size=least, max_size=most).map(tuple)


_simple = _steps([*FLOATS, *INTEGERS], st.just(()), 1, 3)
_nested = _steps([*FLOATS, *INTEGERS, *LOOPS], _simple, 1, 3)
programs = _steps([*FLOATS, *INTEGERS, *LOOPS], _nested, 8, 16)
shapes = st.lists(st.integers(1, 4), max_size=2).map(tuple)
arguments = st.lists(st.tuples(shapes, st.booleans()), min_size=1, max_size=3)


def _check(
    steps: tuple[Step, ...], floats: Any, ints: Any, size: int, backend: str, dtype: Any
) -> None:
    rng = np.random.default_rng(0)

    def make(batched: bool, shape: tuple[int, ...], integer: bool) -> np.ndarray:
        full = (size, *shape) if batched else shape
        if integer:
            return np.asarray(rng.integers(-20, 20, full), np.int32)
        return np.asarray(rng.uniform(-2, 2, full), dtype)

    # One argument of either kind is batched.
    floats, ints = (
        [(shape, batched or k == 0) for k, (shape, batched) in enumerate(pool)]
        for pool in (floats, ints)
    )
    args = ([make(b, s, False) for s, b in floats], [make(b, s, True) for s, b in ints])
    axes = tuple([0 if b else None for _, b in pool] for pool in (floats, ints))

    def fn(xs: Any, ns: Any) -> Any:
        return run(steps, xs, ns)

    expected = jax.jit(jax.vmap(fn, in_axes=axes))(*args)
    actual = fuse(fn, backend, in_axes=axes)(*args)
    tolerance = 1e-9 if dtype == np.float64 else 1e-3
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (e.shape, e.dtype)
        if e.dtype == np.int32:
            np.testing.assert_array_equal(a, e)
        else:
            np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


CHOICES: dict[str, Any] = {
    "steps": programs,
    "floats": arguments,
    "ints": arguments,
    "size": st.sampled_from([1, 3, 16, 17, 37]),
    "backend": st.sampled_from(["native", "native", "xla"]),
}


@given(**CHOICES)
@settings(max_examples=12)
def test_random_programs(**choices: Any) -> None:
    _check(**choices, dtype=np.float32)


@pytest.mark.slow
@given(**CHOICES)
@settings(max_examples=20)
def test_random_programs_in_double_precision(x64: None, **choices: Any) -> None:
    _check(**choices, dtype=np.float64)


@pytest.mark.slow
@given(**CHOICES)
@settings(max_examples=1000)
def test_many_random_programs(x64: None, **choices: Any) -> None:
    _check(**choices, dtype=np.float64)
