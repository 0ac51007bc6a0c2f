"""Errors of the native kernels' elementary functions; docs/kernels.md has the measured table."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import load_script

from fraxenv.kernels import fuse

accuracy = load_script("measure/kernel_accuracy")

ON_A_GPU = 3.0
"""There some functions are CUDA's own, and LLVM chooses which products it joins with sums."""


@pytest.mark.parametrize("name", accuracy.FUNCTIONS)
def test_float32(name: str) -> None:
    """Two million numbers over the whole range, and all near every change of formula."""
    worst, _ = accuracy.measure(name, step=1999)
    bound = accuracy.FUNCTIONS[name].bound
    if jax.default_backend() == "gpu":
        assert worst <= max(bound, ON_A_GPU)
        return
    assert worst <= bound
    assert worst >= 0.5 * bound - 0.05, "the bound is not close: tighten it"


@pytest.mark.slow
@pytest.mark.parametrize("name", accuracy.FUNCTIONS)
def test_float32_densely(name: str) -> None:
    assert accuracy.measure(name, step=65)[0] <= accuracy.FUNCTIONS[name].bound


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="nothing better to compare with")
def test_float64(x64: None) -> None:
    """Ours, and the C library's, which are right to two units of the last place."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=20_000), rng.uniform(-700, 700, 20_000)])
    u = rng.uniform(-1, 1, x.size)
    functions = {
        "sin": (jnp.sin, np.sin, x), "cos": (jnp.cos, np.cos, x), "tan": (jnp.tan, np.tan, x),
        "asin": (jnp.arcsin, np.arcsin, u), "acos": (jnp.arccos, np.arccos, u),
        "atan": (jnp.arctan, np.arctan, x), "exp": (jnp.exp, np.exp, x),
        "log": (jnp.log, np.log, abs(x)), "log1p": (jnp.log1p, np.log1p, u),
        "expm1": (jnp.expm1, np.expm1, u), "tanh": (jnp.tanh, np.tanh, x),
        "sqrt": (jnp.sqrt, np.sqrt, abs(x)),
    }  # fmt: skip

    def every(of: dict[str, Array], u: Array, x: Array) -> tuple[dict[str, Array], Array]:
        return {name: functions[name][0](value) for name, value in of.items()}, jnp.arctan2(u, x)

    of = {name: values for name, (_, _, values) in functions.items()}
    found, both = jax.tree.map(np.asarray, fuse(every, "native")(of, u, x))
    for name, (_, reference, values) in functions.items():
        right = reference(values.astype(np.longdouble))
        error = np.abs(found[name] - right) / np.spacing(np.abs(right).astype(float))
        assert error.max() <= (0.8 if name in ("sin", "cos", "atan") else 2.0), name
    right = np.arctan2(u.astype(np.longdouble), x)
    limit = 2.0 if jax.default_backend() == "gpu" else 0.8
    assert (np.abs(both - right) / np.spacing(np.abs(right).astype(float))).max() <= limit


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="nothing better to compare with")
def test_angles_in_float64(x64: None) -> None:
    """Next to quarter turns, where nearly all of an angle is lost; and far from any."""
    turns = np.arange(1, 400_000, 7) * (np.pi / 2)
    near = np.concatenate([turns, np.nextafter(turns, 0), np.nextafter(turns, 1e9)])
    small = 10.0 ** np.random.default_rng(0).uniform(-290, 0, 10_000)
    x = np.concatenate([near, -near, small, [1e6, 999_999.9]])
    for name in ("sin", "cos"):
        found = np.asarray(fuse(getattr(jnp, name), "native")(x))
        right = getattr(np, name)(x.astype(np.longdouble))
        # A long double's own sine is no better than this beside a multiple of pi.
        error = np.abs(found - right) - 1e-18 * np.abs(x)
        assert (error / np.spacing(np.abs(right).astype(float))).max() <= 0.8, name


def test_points_at_the_ends_of_float64(x64: None) -> None:
    sizes = np.array([0.0, 1, 2.5, 1e-300, 1e308, np.inf])
    ends = np.concatenate([sizes, -sizes, [np.nan]])
    y, x = (a.ravel() for a in np.meshgrid(ends, ends))
    found, right = np.asarray(fuse(jnp.arctan2, "native")(y, x)), np.arctan2(y, x)
    right[np.abs(right) < np.finfo(float).tiny] *= 0  # a kernel has no subnormal numbers
    np.testing.assert_array_equal(np.signbit(found), np.signbit(right))
    np.testing.assert_allclose(found, right, rtol=3e-16)
    angles = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e15])
    for fn, of in ((jnp.sin, np.sin), (jnp.cos, np.cos), (jnp.arctan, np.arctan)):
        with np.errstate(invalid="ignore"):
            right = of(angles)
        found = np.asarray(fuse(fn, "native")(angles))
        defined = ~np.isnan(right)
        np.testing.assert_array_equal(np.isnan(found), ~defined)
        np.testing.assert_array_equal(np.signbit(found)[defined], np.signbit(right)[defined])
        np.testing.assert_allclose(found, right, rtol=3e-16)
