"""What is done while LLVM compiles: the kernels that come next are made."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv.kernels import fusible, kernel
from fraxenv.kernels.derivatives import Cotangent
from fraxenv.kernels.native import cpu

pytestmark = pytest.mark.cpu

X = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(autouse=True)
def _no_kernels_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAXENV_CACHE_DIR", str(tmp_path))


def costs(factor: float) -> Any:
    """The cost of a batch, by a fused function that no other test has compiled."""
    fused = fusible(lambda x: jnp.sin(factor * x) * x, "native")
    return lambda x: jnp.sum(jax.vmap(fused)(x))


def gradient(factor: float) -> Array:
    return np.sin(factor * X) + factor * X * np.cos(factor * X)


def test_the_gradients_kernel_is_made_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    made, waited = threading.Event(), []
    evaluate, compile = kernel.partially_evaluate, cpu.machine_code

    def evaluated(traced: Any, *how: Any) -> Any:
        found = evaluate(traced, *how)
        if isinstance(traced, Cotangent):
            made.set()
        return found

    def compiled(text: str) -> bytes:
        waited.append(made.wait(60))
        return compile(text)

    monkeypatch.setattr(kernel, "partially_evaluate", evaluated)
    monkeypatch.setattr(cpu, "machine_code", compiled)
    _, found = jax.jit(jax.value_and_grad(costs(1.25)))(X)
    np.testing.assert_allclose(found, gradient(1.25), rtol=1e-5)
    assert waited == [True, True]


def test_a_gradient_that_fails_is_no_matter_where_it_is_not_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluate = kernel.partially_evaluate

    def evaluated(traced: Any, *how: Any) -> Any:
        if isinstance(traced, Cotangent):
            raise RuntimeError("no gradient")
        return evaluate(traced, *how)

    monkeypatch.setattr(kernel, "partially_evaluate", evaluated)
    cost = costs(1.75)
    assert jax.eval_shape(jax.grad(cost), X).shape == X.shape
    np.testing.assert_allclose(jax.jit(cost)(X), np.sum(np.sin(1.75 * X) * X), rtol=1e-5)
    with pytest.raises(RuntimeError, match="no gradient"):
        jax.jit(jax.grad(cost))(X)


def test_a_failing_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(text: str) -> bytes:
        raise OSError("LLVM is ill")

    monkeypatch.setattr(cpu, "machine_code", failing)
    with pytest.warns(kernel.KernelWarning, match="LLVM is ill"):
        _, found = jax.jit(jax.value_and_grad(costs(1.5)))(X)
    np.testing.assert_allclose(found, gradient(1.5), rtol=1e-5)
