"""Random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..buffer import key_shape
from ..errors import UnsupportedError
from ..evaluator import Evaluator
from ..program import IdArray
from .registry import rule


def _by_implementation(
    ev: Evaluator, function: Callable[..., Any], keys: IdArray, key: Any, *others: IdArray
) -> IdArray:
    """A function of the key's own implementation, key by key."""
    words = key_shape(key)
    flat = keys.reshape(-1, *words)
    shapes = [jax.ShapeDtypeStruct(words, np.uint32)]
    shapes += [jax.ShapeDtypeStruct((), ev.dtype(int(x.flat[0]))) for x in others]
    closed = jax.make_jaxpr(function)(*shapes)
    shape = keys.shape[: keys.ndim - len(words)]
    rest = [np.broadcast_to(x, shape).ravel() for x in others]
    results = [
        ev.closed(closed, (k, *(np.array(r[i]) for r in rest)))[0] for i, k in enumerate(flat)
    ]
    return np.stack(results).reshape((*shape, *results[0].shape))


@rule("random_bits")
def _random_bits(ev: Evaluator, equation: Any, keys: IdArray) -> IdArray:
    key, p = equation.invars[0].aval.dtype, equation.params
    return _by_implementation(
        ev, lambda k: key._impl.random_bits(k, p["bit_width"], p["shape"]), keys, key
    )


@rule("random_split")
def _random_split(ev: Evaluator, equation: Any, keys: IdArray) -> IdArray:
    key, shape = equation.invars[0].aval.dtype, equation.params["shape"]
    return _by_implementation(ev, lambda k: key._impl.split(k, shape), keys, key)


@rule("random_fold_in")
def _random_fold_in(ev: Evaluator, equation: Any, keys: IdArray, data: IdArray) -> IdArray:
    key = equation.invars[0].aval.dtype
    return _by_implementation(ev, key._impl.fold_in, keys, key, data)


@rule("random_seed")
def _random_seed(ev: Evaluator, equation: Any, seeds: IdArray) -> IdArray:
    implementation = equation.params["impl"]
    seed = jax.ShapeDtypeStruct((), ev.dtype(int(seeds.flat[0])))
    closed = jax.make_jaxpr(implementation.seed)(seed)
    results = [ev.closed(closed, (np.array(s),))[0] for s in seeds.ravel()]
    return np.stack(results).reshape((*seeds.shape, *results[0].shape))


@rule("random_wrap", "random_unwrap", "random_clone")
def _random_wrap(ev: Evaluator, _: Any, x: IdArray) -> IdArray:
    return x


@rule("iota_2x32_shape")
def _iota_2x32_shape(ev: Evaluator, equation: Any) -> list[IdArray]:
    shape = equation.params["shape"]
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    return [ev.array((numbers >> np.uint64(32)).astype(np.uint32)),
            ev.array(numbers.astype(np.uint32))]  # fmt: skip


@rule("threefry2x32")
def _threefry2x32(
    ev: Evaluator, _: Any, k1: IdArray, k2: IdArray, x1: IdArray, x2: IdArray
) -> list[IdArray]:
    """Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers", SC 2011)."""
    u32 = np.dtype(np.uint32)

    def number(n: int) -> IdArray:
        return ev.full((), n, u32)

    def rotate(x: IdArray, by: int) -> IdArray:
        left, right = ev.map("shift_left", x, number(by)), number(32 - by)
        return ev.map("or", left, ev.map("shift_right_logical", x, right))

    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    keys = (k1, k2, ev.map("xor", ev.map("xor", k1, k2), number(0x1BD11BDA)))
    a, b = ev.map("add", x1, k1), ev.map("add", x2, k2)
    for i in range(5):
        for by in rotations[i % 2]:
            a = ev.map("add", a, b)
            b = ev.map("xor", rotate(b, by), a)
        a = ev.map("add", a, keys[(i + 1) % 3])
        b = ev.map("add", b, ev.map("add", keys[(i + 2) % 3], number(i + 1)))
    return [a, b]


@rule("random_gamma", "rng_bit_generator", "rng_uniform")
def _other_random(ev: Evaluator, equation: Any, *_: IdArray) -> IdArray:
    raise UnsupportedError(f"{equation.primitive.name!r} has no rule")
