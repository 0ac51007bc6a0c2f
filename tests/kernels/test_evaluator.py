"""What is evaluated, how often: loops that are tried unrolled, and places that are known or not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from fraxenv.kernels import BuildError, fuse, program
from fraxenv.kernels.evaluator import Evaluator, partially_evaluate
from fraxenv.kernels.program import Program, live_values
from fraxenv.kernels.traced import trace

pytestmark = pytest.mark.cpu

X = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (37, 8)), jnp.float32)


def nested(x: Array) -> Array:
    """Sixty rounds of five loops, each of which is short enough, two of them together too long."""

    def inner(y: Array) -> Array:
        return lax.fori_loop(0, 60, lambda _, y: jnp.outer(y, y) @ x / 4 + x, y)

    def outer(_: Any, y: Array) -> Array:
        for _ in range(5):
            y = inner(y)
        return y

    return lax.fori_loop(0, 60, outer, x)


def test_a_try_within_one_that_is_too_long_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated, equation = [0], Evaluator.equation

    def counted(self: Evaluator, *args: Any) -> Any:
        evaluated[0] += 1
        return equation(self, *args)

    monkeypatch.setattr(Evaluator, "equation", counted)
    traced, _ = trace(nested, (X[0],), {})
    made = partially_evaluate(traced, (True,), "cpu", None)
    assert len(made.program.loops) == 1  # the inner ones are unrolled in a round of the outer one
    assert live_values(made.program, made.outputs[0].ravel().tolist()).any()
    assert evaluated[0] < 1.5 * made.equations
    np.testing.assert_allclose(
        fuse(nested, "native")(X), jax.jit(jax.vmap(nested))(X), rtol=1e-3, atol=1e-3
    )


def test_inputs_do_not_count_up_to_as_many_as_a_program_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "LARGEST", 100)
    f4 = np.dtype(np.float32)
    made = Program()
    inputs = made.inputs(0, 90, f4) + made.inputs(1, 30, f4)
    for k in range(80):
        made.apply("add", inputs[k], inputs[k + 1])
    with pytest.raises(BuildError, match="more than 100 scalar operations"):
        made.apply("mul", *inputs[:2])


def windows(x: Array, n: Array) -> list[Array]:
    """Places known, unknown, mixed and out of range, read and written."""
    a = jnp.outer(x[:5], x[:6])
    index = jnp.stack([n, n + 1, jnp.int32(-2)])
    return [
        lax.dynamic_slice(a, (n, 2), (2, 3)),
        lax.dynamic_slice(a, (9, n), (2, 3)),
        lax.dynamic_slice(a, (-9, 9), (2, 3)),
        a[n, 3],
        a[2, n],
        a[np.array([0, 4, 2])],
        a[np.array([0, 9, -1]), 1],
        a.at[np.array([0, 9, -9])].get(mode="fill", fill_value=3.0),
        a.at[index].get(mode="fill", fill_value=-1.0),
        a.at[index, 2].get(mode="clip"),
        a.at[np.array([1, 9, 3])].set(7.0),
        a.at[np.array([1, 1, 3]), 2].add(x[0]),
        a.at[n, 3].set(x[1]),
        a.at[index].add(1.0),
        a.at[9, n].mul(2.0, mode="clip"),
        lax.dynamic_update_slice(a, a[:2, :2], (n, 9)),
    ]


def test_windows_at_places_that_are_known_and_that_are_not() -> None:
    n = jnp.arange(-3, len(X) - 3, dtype=jnp.int32) % 11 - 3
    found, expected = fuse(windows, "native")(X, n), jax.jit(jax.vmap(windows))(X, n)
    for k, (x, y) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7, err_msg=str(k))


def test_tangents_of_integers_are_handed_on() -> None:
    """They are nothing; forward derivatives of loops carry them all the same."""
    double = jax.jit(lambda x, nothing: (2 * x + 1, nothing))

    def above(x: Array) -> Any:
        nothing = lax.broadcast(np.zeros((), jax.dtypes.float0), (3,))
        return lax.while_loop(lambda c: c[0] < 100, lambda c: double(*c), (x, nothing))[0]

    x = X[:, 0]
    np.testing.assert_allclose(fuse(above, "native")(x), jax.jit(jax.vmap(above))(x), rtol=1e-6)
