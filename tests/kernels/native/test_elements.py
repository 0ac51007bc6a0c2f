"""Numbers of wide inputs that rounds look up: read where they are, with no value for each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from fraxenv.kernels import fuse
from fraxenv.kernels.evaluator import PartialEvaluation, partially_evaluate
from fraxenv.kernels.executors import EXECUTORS, ONE
from fraxenv.kernels.program import ELEMENT
from fraxenv.kernels.traced import trace

pytestmark = pytest.mark.cpu

RNG = np.random.default_rng(0)
ROUNDS, N = 160, 4


def forwards(A: Array, b: Array) -> Any:
    """Of `A` (ROUNDS, N, N), wide, and of `b` (ROUNDS,), which is not."""
    return lax.scan(lambda x, at: (at[0] @ x * 0.1 + at[1], x[0]), A[0, 0], (A, b))


def backwards(A: Array, b: Array) -> Any:
    """Every second matrix, turned, from the last to the first."""

    def knot(x: Array, at: Any) -> Any:
        x = at[0].T @ x * 0.1 - at[1]
        return x, x

    return lax.scan(knot, b[:N], (A[::2], b[::2]), reverse=True)


def twice(A: Array, b: Array) -> Any:
    """Each round begins where the last loop's left something."""
    end, kept = forwards(A, b)
    return lax.scan(lambda x, at: (x * 0.1 + at[0] @ at[1][:, 0], x), end, (A, A[::-1])), kept


def handed_on(A: Array, b: Array) -> Any:
    """What is not computed with is handed on: by calls, in rounds and out of them."""

    @jax.jit
    def turned(A: Array) -> Array:
        return A.transpose(0, 2, 1)[::-1]

    def knot(x: Array, at: Any) -> Any:
        return x * 0.5 + at[0, 0] * A[0, 0, 0], (at, A[1], at[0, 1])

    return lax.scan(knot, A[2, 0], turned(A)), turned(A)[:3], A


def mixed_up(A: Array, b: Array) -> Any:
    """Rows whose numbers lie at no equal distances; and ones of which a few rounds are unrolled."""
    uneven = A.reshape(ROUNDS // 2, 2, N, N).transpose(1, 0, 2, 3).reshape(ROUNDS, N, N)
    x, kept = lax.scan(lambda x, at: (x * 0.3 + at[1], at), b[:N], uneven)
    return x, kept, lax.scan(lambda x, at: (x * 0.3 + at[0, 0], at[1]), b[0], A[:3])


def evaluated(fn: Any, A: Array, b: Array, executor: str = ONE) -> PartialEvaluation:
    way = EXECUTORS[executor]
    traced, _ = trace(fn, (A[0], b[0]), {})
    return partially_evaluate(traced, (True, True), "cpu", way.expand, way.whole)


def arrays(batch: int, dtype: Any = np.float32) -> tuple[Array, Array]:
    A, b = RNG.normal(size=(batch, ROUNDS, N, N)), RNG.normal(size=(batch, ROUNDS))
    return jnp.asarray(A, dtype), jnp.asarray(b, dtype)


@pytest.mark.parametrize("fn", [forwards, backwards, twice, handed_on, mixed_up])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_those_of_vmap(fn: Any, dtype: Any) -> None:
    with jax.enable_x64(dtype is np.float64):
        A, b = arrays(2, dtype)
        made, expected = fuse(fn, ONE)(A, b), jax.vmap(fn)(A, b)
        tolerance = 1e-12 if dtype is np.float64 else 1e-4
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, tolerance, tolerance), made, expected
        )


@pytest.mark.parametrize("fn", [forwards, backwards, twice])
def test_only_what_is_wide_is_read_where_it_is(fn: Any) -> None:
    program = evaluated(fn, *arrays(1)).program
    found = Counter(program.ops)
    assert found[ELEMENT] >= N * N
    assert found["lookup"] >= 1
    rows = {program.attributes[i].number for i, op in enumerate(program.ops) if op == ELEMENT}
    assert rows == {0}


def test_numbers_that_nobody_computes_with_are_no_values() -> None:
    found = Counter(evaluated(forwards, *arrays(1)).program.ops)
    assert found["input"] == N + ROUNDS  # where the scan begins, and the input that is not wide


def test_rows_at_no_equal_distances_are_looked_up_value_by_value() -> None:
    found = Counter(evaluated(mixed_up, *arrays(1)).program.ops)
    assert found[ELEMENT] == 0
    assert found["input"] >= ROUNDS * N * N
    assert found["lookup"] >= N * N


def test_the_bits_are_those_of_values_that_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    A, b = arrays(2)
    made = fuse(twice, ONE)(A, b)
    monkeypatch.setattr("fraxenv.kernels.evaluator.ELEMENT", "of another executor")
    looked_up = fuse(lambda A, b: twice(A, b), ONE)(A, b)
    jax.tree.map(np.testing.assert_array_equal, made, looked_up)


def test_where_many_environments_are_computed_at_once_each_number_is_a_value() -> None:
    """Lanes that change places have inputs of their own in each."""
    found = Counter(evaluated(forwards, *arrays(1), executor="native").program.ops)
    assert found[ELEMENT] == 0
    assert found["input"] == ROUNDS * (N * N + 1)


def test_products_with_wide_matrices_stay_loops() -> None:
    """Where a matrix's numbers are in memory, as those of a wide input are in every round."""
    n = 24

    def fn(A: Array, b: Array) -> Any:
        return lax.scan(lambda x, at: (jnp.tanh(at @ x), None), b[:n], A)[0]

    A, b = jnp.ones((1, ROUNDS, n, n), jnp.float32), jnp.ones((1, ROUNDS), jnp.float32)
    found = Counter(evaluated(fn, A, b).program.ops)
    assert found["matmul"] == 1
    assert found[ELEMENT] == n * n
    assert found["mul"] < n * n
