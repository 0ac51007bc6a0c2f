"""Batches compute what alone is computed, and no more than each needs."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv.controllers.planning import batches
from fraxenv.errors import is_concrete

N = 21
STARTS = np.random.default_rng(0).integers(1, 60, N)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which this few are too many."""
    monkeypatch.setattr(batches, "TOGETHER", 3)
    monkeypatch.setattr(batches, "FEWEST", 4)


def rounds(start: Array, by: Array, count: Counter[str] | None = None) -> tuple[Array, Array]:
    """Down to zero, and how many rounds it took."""
    unit = np.array([1])

    def again(given: tuple[np.ndarray, Array], now: tuple[Array, Array]) -> tuple[Array, Array]:
        unit, by = given
        assert is_concrete(unit)
        if count is not None:
            jax.debug.callback(lambda _: count.update(["rounds"]), now[0])
        return now[0] - unit[0] * by, now[1] + 1

    zero = jnp.zeros((), jnp.int32)
    return batches.while_running(lambda now: now[0] > 0, again, (unit, by), (start, zero))


def test_a_loop_ends_for_each_where_it_ends_alone() -> None:
    count: Counter[str] = Counter()
    one = jnp.asarray(1, jnp.int32)
    many = jax.jit(jax.vmap(lambda x: rounds(x, one, count)))
    x, n = many(jnp.asarray(STARTS, jnp.int32))
    jax.effects_barrier()
    np.testing.assert_array_equal(n, STARTS)
    np.testing.assert_array_equal(x, 0)
    assert sum(STARTS) <= count["rounds"] < 0.75 * N * max(STARTS)
    alone = jax.jit(lambda x: rounds(x, one))
    assert [int(alone(jnp.asarray(x, jnp.int32))[1]) for x in STARTS[:3]] == list(STARTS[:3])


def test_a_loop_in_batches_of_batches() -> None:
    """Of which one argument is of the outer, one of the inner, and none of both."""
    starts, by = jnp.asarray(STARTS[:12], jnp.int32), jnp.asarray([1, 2], jnp.int32)
    many = jax.vmap(jax.vmap(rounds, (0, None)), (None, 0))
    loops = [[rounds(x, b) for x in starts] for b in by]
    x, n = jax.jit(many)(starts, by)
    np.testing.assert_array_equal(x, [[int(v[0]) for v in row] for row in loops])
    np.testing.assert_array_equal(n, [[int(v[1]) for v in row] for row in loops])


def test_a_choice_is_computed_for_those_that_need_it() -> None:
    count: Counter[str] = Counter()

    def costly(given: tuple[Array, Array]) -> Array:
        jax.debug.callback(lambda _: count.update(["times"]), given[0])
        return given[0] ** 2 + given[1]

    def one(x: Array, by: Array) -> Array:
        return batches.for_some(x % 5 == 0, costly, (x, by), -x)

    x, by = jnp.arange(float(N)), jnp.asarray(0.5)
    expected = [v * v + 0.5 if v % 5 == 0 else -v for v in range(N)]
    found = jax.jit(jax.vmap(one, (0, None)))(x, by)
    jax.effects_barrier()
    np.testing.assert_array_equal(found, expected)
    assert count["times"] == 8  # two rounds of four, for five
    np.testing.assert_array_equal([one(v, by) for v in x[4:7]], expected[4:7])


def test_alone_and_in_a_batch() -> None:
    def one(x: Array) -> Array:
        return batches.alone_or_many(lambda x: x + 1, lambda x: x + 2, x)

    assert one(jnp.asarray(1.0)) == 2
    np.testing.assert_array_equal(jax.jit(jax.vmap(one))(jnp.arange(3.0)), [2, 3, 4])
