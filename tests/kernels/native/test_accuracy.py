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
    """The C library's, which are right to two units of the last place."""
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
        assert error.max() <= 2.0, name
    right = np.arctan2(u.astype(np.longdouble), x)
    limit = 2.0 if jax.default_backend() == "gpu" else 1.0
    assert (np.abs(both - right) / np.spacing(np.abs(right).astype(float))).max() <= limit
