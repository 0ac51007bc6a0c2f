"""Infinities, NaNs, zeros of either sign, huge and subnormal numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fraxenv import dynamics
from fraxenv.kernels import fuse
from fraxenv.kernels.native import cpu

Equal = Callable[..., None]


def numbers(dtype: np.dtype) -> np.ndarray:
    """Where functions are special; subnormal numbers have a test of their own."""
    info = np.finfo(dtype)
    ends = (0.0, 1.0, 0.5, 1.5, 2.0, 3.5, 88.0, 89.0, 104.0, 1e6, 1e30, np.inf, np.nan)
    ends += (info.eps, info.tiny, info.max)
    return np.array([s * x for x in ends for s in (1, -1)], dtype)


def assert_same_kind(actual: Any, expected: Any, ulps: float, zeros: bool, name: str) -> None:
    """NaN, infinite and zero at the same places, zeros of the same sign; else within `ulps`."""
    a, e = np.asarray(actual), np.asarray(expected)
    assert a.dtype == e.dtype, name
    if e.dtype.kind != "f":
        np.testing.assert_array_equal(a, e, err_msg=name)
        return
    np.testing.assert_array_equal(np.isnan(a), np.isnan(e), err_msg=name)
    np.testing.assert_array_equal(a[np.isinf(e)], e[np.isinf(e)], err_msg=name)
    zero = e == 0
    # Kernels on a GPU keep subnormal numbers.
    least = 0 if jax.default_backend() == "cpu" else np.finfo(a.dtype).tiny
    np.testing.assert_array_less(abs(a[zero]), np.nextafter(least, 1, dtype=a.dtype), err_msg=name)
    if zeros:
        np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(e[zero]), err_msg=name)
    np.testing.assert_allclose(a, e, rtol=ulps * np.finfo(e.dtype).eps, atol=least, err_msg=name)


UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda x: -x, "abs": abs, "sign": jnp.sign, "sqrt": jnp.sqrt, "rsqrt": lax.rsqrt,
    "floor": jnp.floor, "ceil": jnp.ceil, "round": jnp.round, "trunc": jnp.trunc,
    "away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), "sin": jnp.sin,
    "cos": jnp.cos, "tan": jnp.tan, "acos": jnp.arccos, "atan": jnp.arctan, "sinh": jnp.sinh,
    "cosh": jnp.cosh, "tanh": jnp.tanh, "asinh": jnp.arcsinh, "acosh": jnp.arccosh,
    "atanh": jnp.arctanh, "exp": jnp.exp, "expm1": jnp.expm1, "log": jnp.log, "log1p": jnp.log1p,
    "cbrt": jnp.cbrt, "erf": lax.erf, "erf_inv": lax.erf_inv, "logistic": jax.nn.sigmoid,
    "finite": jnp.isfinite, "isnan": jnp.isnan, "isinf": jnp.isinf, "square": jnp.square,
    "reciprocal": lax.reciprocal, "cube": lambda x: x**3, "inverse square": lambda x: x**-2,
    "signbit": jnp.signbit, "nan_to_num": jnp.nan_to_num, "relu": jax.nn.relu,
    "clip": lambda x: jnp.clip(x, -1, 1), "max": lambda x: jnp.maximum(x, jnp.nan),
    "min": lambda x: jnp.minimum(jnp.nan, x), "halved": lambda x: x / 2, "third": lambda x: x / 3,
    "difference": lambda x: x - x, "ratio": lambda x: x / x, "whole": lambda x: x.astype(jnp.int32),
    "product": lambda x: x * 2 * x, "frexp": lambda x: jnp.frexp(x)[0],
    "above": lambda x: jnp.nextafter(x, jnp.inf) > x,
}  # fmt: skip

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide, "rem": lax.rem,
    "mod": jnp.mod, "atan2": jnp.arctan2, "pow": jnp.power, "hypot": jnp.hypot,
    "copysign": jnp.copysign, "less": jnp.less, "equal": jnp.equal, "unequal": jnp.not_equal,
    "at most": jnp.less_equal, "nextafter": jnp.nextafter, "fmax": jnp.fmax,
    "where": lambda a, b: jnp.where(a < b, a, b), "floordiv": jnp.floor_divide,
    "sort": lambda a, b: jnp.sort(jnp.stack([a, b])), "sum": lambda a, b: jnp.stack([a, b]).sum(),
    "argmax": lambda a, b: jnp.argmax(jnp.stack([a, b])),
}  # fmt: skip

EXTREMES: dict[str, Callable[[Any, Any], Any]] = {
    "max": jnp.maximum, "min": jnp.minimum,
    "clamp": lambda a, b: lax.clamp(jnp.array(-1, a.dtype), a, b),
    "reduced": lambda a, b: (jnp.stack([a, b]).max(), jnp.stack([a, b]).min())[0],
}  # fmt: skip


in_both = pytest.mark.parametrize(
    ("backend", "dtype"),
    [
        *(("native", d) for d in ("float32", "float64")),
        ("xla", "float32"),
        pytest.param("xla", "float64", marks=pytest.mark.slow),
    ],
    indirect=["dtype"],
)


@in_both
def test_functions_of_one_number(backend: str, dtype: np.dtype) -> None:
    x = numbers(dtype)

    def every(v: Any) -> Any:
        return {name: fn(v) for name, fn in UNARY.items()}

    actual, expected = fuse(every, backend)(x), jax.jit(jax.vmap(every))(x)
    for name in UNARY:
        assert_same_kind(actual[name], expected[name], 64, True, name)
    asin = np.asarray(fuse(jnp.arcsin, "native")(x))  # XLA's own gives zero for the smallest
    with np.errstate(invalid="ignore"):
        assert_same_kind(asin, np.arcsin(x), 2, True, "asin")


@in_both
def test_functions_of_two_numbers(backend: str, dtype: np.dtype) -> None:
    a, b = (x.ravel() for x in np.meshgrid(numbers(dtype), numbers(dtype)))

    def every(x: Any, y: Any) -> Any:
        return {name: fn(x, y) for name, fn in (BINARY | EXTREMES).items()}

    actual, expected = fuse(every, backend)(a, b), jax.jit(jax.vmap(every))(a, b)
    for name in BINARY | EXTREMES:
        # Which zero is greater is nobody's business.
        assert_same_kind(actual[name], expected[name], 64, name in BINARY, name)


def test_vectors_of_any_width(dtype: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, as other processors have narrower ones."""
    spread = np.random.default_rng(0).normal(0, 10, (2, 300)).astype(dtype)
    a, b = np.concatenate([spread, spread[::-1]], axis=1)

    def every(x: Any, y: Any) -> Any:
        return [fn(x) for fn in UNARY.values()] + [fn(x, y) for fn in BINARY.values()]

    results = []
    for size in (64, 32, 16):
        monkeypatch.setattr(cpu, "vector_bytes", partial(int, size))
        results.append(fuse(every, "native")(a, b))
    for other in results[1:]:
        for name, x, y in zip([*UNARY, *BINARY], results[0], other, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=name)


def test_division_by_the_largest_power_of_two() -> None:
    """Its reciprocal is subnormal: to multiply by it would give zero."""
    x = np.array([3e38, 1e38, 1.0], np.float32)
    largest = np.float32(2.0**127)
    np.testing.assert_array_equal(fuse(lambda v: v / largest, "native")(x)[:2], x[:2] / largest)


# --- one lane and its neighbours ---


def _everything(x: Any) -> Any:
    """Loops, factorisations, what is rare and what asks the C library."""
    a = jnp.outer(x, x) + 30 * jnp.eye(4, dtype=x.dtype)
    factor = jnp.linalg.cholesky(a)
    return {
        "elementary": (jnp.sin(x * 3), jnp.tan(x), jnp.exp(x), jnp.log(abs(x)), jnp.tanh(x)),
        "solved": jax.scipy.linalg.cho_solve((factor, True), x),
        "loop": lax.fori_loop(0, 70, lambda i, v: 0.9 * v + jnp.sin(v), x),
        "while": lax.while_loop(lambda s: (s[0] < 20) & (s[1].sum() < 9),
                                lambda s: (s[0] + 1, s[1] + abs(x)), (0, x)),
        "sorted": (jnp.sort(x), jnp.argmax(x), x.max(), x[jnp.argmin(abs(x))]),
    }  # fmt: skip


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 2e6, 1e-40])
def test_one_lane_leaves_the_others_alone(value: float, equal: Equal) -> None:
    x = np.random.default_rng(0).normal(size=(37, 4)).astype(np.float32)
    fused = fuse(_everything, "native")
    expected = fused(x)
    for lane in (0, 20, 36):
        changed = x.copy()
        changed[lane, 1] = value
        others = np.delete(np.arange(37), lane)
        pick = lambda tree: jax.tree.map(lambda y: y[others], tree)  # noqa: B023, E731
        equal(pick(fused(changed)), pick(expected))


PANDA = dynamics.load_robot("panda")


def _forward_dynamics(q: Any, v: Any, tau: Any) -> Any:
    return dynamics.forward_dynamics(PANDA, q, v, tau)


_fused, _plain = fuse(_forward_dynamics, "native"), jax.jit(jax.vmap(_forward_dynamics))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 1e6])
def test_forward_dynamics(value: float) -> None:
    """What is not a number, or huge, in one environment: as in `vmap` there, nothing elsewhere."""
    rng = np.random.default_rng(0)
    n, lane = 33, 5
    state = rng.normal(size=(3, n, PANDA.nv)).astype(np.float32)
    state[0] += np.asarray(PANDA.q_default, np.float32)
    expected = np.asarray(_fused(*state))
    for array in range(3):
        for joint in range(PANDA.nv):
            changed = state.copy()
            changed[array, lane, joint] = value
            actual, right = np.asarray(_fused(*changed)), np.asarray(_plain(*changed))
            others = np.delete(np.arange(n), lane)
            np.testing.assert_array_equal(actual[others], expected[others])
            # An infinite torque is infinite acceleration in one and not a number in the other.
            np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(right))
            if array == 0 and np.isfinite(value):
                scale = np.abs(right[lane]).max()
                np.testing.assert_allclose(actual[lane], right[lane], atol=1e-4 * scale)


# --- what differs from `vmap`, by design ---


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_structural_zeros_absorb(backend: str) -> None:
    """A zero that is known takes no part in sums, and what it multiplies is never looked at."""
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]], np.float32)
    x = np.array([[1, 2, 3], [np.inf, 2, 3], [1, np.nan, 3], [1, 2, -np.inf]], np.float32)
    actual = np.asarray(fuse(lambda v: turn @ v, backend)(x))
    np.testing.assert_array_equal(actual, np.stack([-x[:, 1], x[:, 0], x[:, 2]], axis=1))
    assert np.isnan(np.asarray(jax.vmap(lambda v: turn @ v)(x))[1:]).any(axis=1).all()
    np.testing.assert_array_equal(fuse(lambda v: v * 0, backend)(x), np.zeros_like(x))
    # Zeros that are data are numbers like others.
    both = fuse(lambda m, v: m @ v, backend, in_axes=(None, 0))(turn, x)
    np.testing.assert_array_equal(np.isnan(both), np.isnan(jax.vmap(lambda v: turn @ v)(x)))


@pytest.mark.cpu
def test_subnormal_numbers_are_zero(threads: Callable[[int], None]) -> None:
    """As in XLA: in what is computed, and in what is computed from them, in every thread."""
    threads(3)
    info = np.finfo(np.float32)
    few = np.array([info.tiny / 2, -info.tiny / 4, info.smallest_subnormal], np.float32)
    x = np.tile(few, 30_000)
    flushed = {
        "sum": lambda v: v + v, "product": lambda v: v * 2, "half": lambda v: v * 0.5,
        "sqrt": jnp.sqrt, "equal": lambda v: v == 0, "exp": lambda v: jnp.exp(v) - 1,
        "large": lambda v: v * 1e30, "ratio": lambda v: v / info.tiny,
        "root": lambda v: jnp.sqrt(abs(v)),
    }  # fmt: skip

    def every(v: Any) -> Any:
        return {name: fn(v) for name, fn in flushed.items()}

    plain = jax.jit(jax.vmap(every))
    actual, of_zeros, same = fuse(every, "native")(x), plain(np.zeros_like(x)), plain(x)
    for name in flushed:
        np.testing.assert_array_equal(actual[name], of_zeros[name], name)
        np.testing.assert_array_equal(actual[name], same[name], name)
    tiny = np.full(3, info.tiny, np.float32)
    np.testing.assert_array_equal(fuse(lambda v: v * 0.5, "native")(tiny), 0)
