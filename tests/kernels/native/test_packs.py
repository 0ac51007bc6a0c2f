"""Vectors in the program of one environment: the same bits as by itself, in fewer instructions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from fraxenv import fuse
from fraxenv.kernels import direct
from fraxenv.kernels.evaluator import PartialEvaluation, partially_evaluate
from fraxenv.kernels.native import mathlib, packing, packs
from fraxenv.kernels.native.contraction import contracted
from fraxenv.kernels.program import BOOKKEEPING, Program, live_values
from fraxenv.kernels.traced import trace

pytestmark = pytest.mark.cpu

F4 = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors wherever there can be any."""
    monkeypatch.setattr(packs, "LEAST", 0.0)


def evaluated(function, *args) -> PartialEvaluation:
    traced, operands = trace(function, args, {})
    flags = (True,) * len(operands)
    return partially_evaluate(
        traced, flags, "cpu", mathlib.expand, whole=("product", "matmul"), alone=True
    )


def both(function, *args) -> tuple[Program, Program]:
    """The program with its products joined to sums, and then with vectors."""
    made = evaluated(function, *args)
    before = contracted(made.program, made.outputs)
    after, outputs = packing.packed(before, made.outputs)
    alive = live_values(after, flat(outputs))
    for x in np.flatnonzero(alive).tolist():  # in an order that respects dependencies
        assert all(a < x for a in after.args[x])
    return before, after


def flat(outputs) -> list[int]:
    return [int(x) for o in outputs for x in np.ravel(o)]


def instructions(function, *args) -> tuple[int, int]:
    """What is computed of one environment, by itself and with vectors."""
    made = evaluated(function, *args)
    before = contracted(made.program, made.outputs), made.outputs
    counts = []
    for program, outputs in (before, packing.packed(*before)):
        ids = np.flatnonzero(live_values(program, flat(outputs))).tolist()
        counts.append(sum(program.ops[x] not in (*BOOKKEEPING, "lane", "numbers") for x in ids))
    return counts[0], counts[1]


def assert_same_bits(function, rows) -> None:
    """Alone, with vectors, as in a batch; of which NaN a NaN is does not count."""
    expected = fuse(function)(*(np.stack(column) for column in zip(*rows, strict=True)))
    alone = direct(function)
    for k, row in enumerate(rows):
        found = alone(*row)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            a, b = np.asarray(x), np.asarray(y[k])
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            there = a == a
            np.testing.assert_array_equal(there, b == b)
            assert a[there].tobytes() == b[there].tobytes()


# --- Functions of arrays --------------------------------------------------------------------------


def rows_of(A, x, b):
    """Elementwise, products of matrices, comparisons."""
    values = A @ x - b
    return jnp.where(values > 0, jnp.sqrt(jnp.abs(values)), jnp.minimum(values, -A[:, 0])), A.T @ b


def eliminated(A, x):
    """A triangle: arrays that get smaller."""
    A = A @ A.T + 12 * jnp.eye(len(A))

    def step(k, A):
        column = jnp.where(jnp.arange(len(A)) > k, A[:, k], 0) / jnp.sqrt(A[k, k])
        return (A - jnp.outer(column, column)).at[:, k].set(column)

    return lax.fori_loop(0, len(A), step, A) @ x


def chosen(A, x):
    """A loop that carries arrays, finds rows of a table, and may leave it after any round."""

    def go_on(state):
        k, _, kept, _ = state
        return (k < 9) & (jnp.abs(kept).max() < 1e3)

    def turn(state):
        k, y, kept, rows = state
        worst = jnp.argmin(A @ y).astype(jnp.int32)
        here = jnp.arange(10) == k
        kept = jnp.where(here[:, None], A[worst], kept)
        kept = lax.cond(k % 3 == 2, lambda: jnp.where(here[:, None], 0.0, 1.5 * kept), lambda: kept)
        return k + 1, y + 0.1 * kept.sum(0), kept, jnp.where(here, worst, rows)

    start = jnp.int32(0), x, jnp.zeros((10, len(x)), x.dtype), jnp.full(10, -1, jnp.int32)
    return lax.while_loop(go_on, turn, start)


def in_turn(A, x):
    """A scan: rows that it is given, what it carries, what it leaves of every round."""

    def step(carry, row):
        carry = jnp.tanh(0.5 * carry + row)
        return carry, (carry * row, carry > 0, row.sum())

    end, rounds = lax.scan(step, x, jnp.concatenate([A] * 12))
    return end, rounds, lax.map(lambda row: jnp.cos(row) * x, jnp.concatenate([A] * 12))


def last(A, x):
    """A scan whose last round leaves what no round reads: rows, their sum and its sign."""

    def step(carry, row):
        found = jnp.tanh(carry[0] + row)
        return (found, found * row, found.sum(), found[0] > 0), None

    start = x, x, x[0], x[0] > 0
    return lax.scan(step, start, jnp.concatenate([A] * 12))[0]


def looked_up(A, x):
    """Of tables of all kinds, at places in and out of range."""
    place = jnp.floor(40 * x[0]).astype(jnp.int32) - 9
    flags, numbers = A[:, 1] > 0, jnp.arange(len(A)) * 3
    window = lax.dynamic_slice(A, (place, jnp.int32(0)), (1, A.shape[1]))
    return A[place], flags[place], numbers[place], window, jnp.take(A[:, 0], place, mode="fill")


def of_all_kinds(A, x):
    """Whole numbers, bools, conversions and functions made of several operations."""
    whole = jnp.round(5 * A).astype(jnp.int32)
    odd = (whole & 1) == 1
    shifted = jnp.where(odd, whole << 2, whole // 3)
    return shifted, odd.all(0), odd.any(1), jnp.exp(A).sum(), shifted.astype(A.dtype) * x


FUNCTIONS = (rows_of, eliminated, chosen, in_turn, last, looked_up, of_all_kinds)


def arguments(function, rng: np.random.Generator, dtype=np.float32):
    A, x = rng.normal(size=(12, 7)).astype(dtype), rng.normal(size=7).astype(dtype)
    if function is rows_of:
        return A, x, rng.normal(size=12).astype(dtype)
    return (A, rng.normal(size=12).astype(dtype)) if function is eliminated else (A, x)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bits_are_the_kernels(function) -> None:
    rng = np.random.default_rng(1)
    _, after = both(function, *arguments(function, rng))
    assert after.lanes
    assert_same_bits(function, [arguments(function, rng) for _ in range(50)])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bits_in_float64(function) -> None:
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        assert_same_bits(function, [arguments(function, rng, np.float64) for _ in range(20)])


@pytest.mark.parametrize("function", [rows_of, chosen, looked_up])
def test_bits_of_special_numbers(function) -> None:
    rng = np.random.default_rng(3)
    rows = []
    for special in (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 3e38):
        for _ in range(6):
            rows.append(arguments(function, rng))
            for x in rows[-1]:
                x[rng.random(x.shape) < 0.2] = special
    assert_same_bits(function, rows)


def test_bits_of_equal_numbers() -> None:
    """Zeros of either sign, and numbers of several dtypes, are equal, and not the same."""

    def function(x, n, m):
        some = x > 0.5
        positive = jnp.where(some, x, jnp.array([0.0, 1.0, 2.0, 3.0], x.dtype))
        negative = jnp.where(some, x, jnp.array([-0.0, 1.0, 2.0, 3.0], x.dtype))
        return (
            positive,
            negative,
            n + jnp.arange(4, dtype=n.dtype),
            m + jnp.arange(4, dtype=m.dtype),
        )

    rng = np.random.default_rng(4)
    rows = [
        (
            rng.random(4).astype(np.float32),
            np.arange(4, dtype=np.int32),
            np.arange(4, dtype=np.uint8),
        )
        for _ in range(9)
    ]
    assert_same_bits(function, rows)


@settings(max_examples=18, deadline=None)
@given(
    shape=st.sampled_from([(3,), (17,), (5, 4), (4, 9), (2, 3, 6)]),
    steps=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_bits_of_any_function(shape, steps, seed) -> None:
    """Arrays that are turned about, cut, joined and summed."""

    def function(x, y):
        for k in steps:
            if k == 0:
                x = x * y + x
            elif k == 1:
                x = jnp.flip(x, -1) - 2 * y
            elif k == 2:
                x = jnp.where(x > y, x, jnp.roll(y, 1, 0))
            elif k == 3:
                x = x - x.sum(-1, keepdims=True)
            elif k == 4:
                x = jnp.concatenate([x[1:], y[:1]], 0)
            elif k == 5:
                x, y = y, x
            elif k == 6:
                x = jnp.maximum(x, y.max())
            else:
                x = x.swapaxes(0, -1).reshape(x.shape) * 0.5
        return x, y

    rng = np.random.default_rng(seed)
    assert_same_bits(function, [tuple(rng.normal(size=(2, *shape)).astype(np.float32))])


# --- What is chosen -------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "share"), [(rows_of, 0.75), (eliminated, 0.5), (chosen, 0.5)])
def test_fewer_instructions(function, share: float) -> None:
    before, after = instructions(function, *arguments(function, np.random.default_rng(0)))
    assert after < share * before


def test_what_is_carried_lies_in_vectors() -> None:
    """Ten rows of seven: seven vectors of ten, or ten of seven, and not seventy numbers."""
    _, after = both(chosen, *arguments(chosen, np.random.default_rng(0)))
    (loop,) = [x for x in after.loops if x.condition is not None and len(x.carries) > 5][:1]
    assert sum(c in after.lanes for c in loop.carries) >= 8
    assert len(loop.carries) < 30


def test_vectors_suit_each_other() -> None:
    """Of a matrix times a vector and back: one layout, no lane of which is moved."""

    def function(A, x):
        return jnp.maximum(A * x[0] + 1, 0) * A

    _, after = both(function, *arguments(function, np.random.default_rng(0))[:2])
    moved = [i for i, op in enumerate(after.ops) if op == "assemble" and len(after.args[i]) > 16]
    assert not moved
    assert sum(after.ops.count(op) for op in ("mul", "fma")) <= 2 * -(-84 // packs.WIDEST)


def test_little_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vectors save less than they have to, there are none."""
    monkeypatch.setattr(packs, "LEAST", 1.0)
    before, after = both(rows_of, *arguments(rows_of, np.random.default_rng(0)))
    assert after is before


def test_programs_of_batches_note_nothing() -> None:
    traced, operands = trace(rows_of, arguments(rows_of, np.random.default_rng(0)), {})
    made = partially_evaluate(traced, (True,) * len(operands), "cpu", mathlib.expand)
    assert not made.program.alike
    assert packing.packed(made.program, made.outputs)[0] is made.program


def test_vectors_that_need_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Are none: the program stays as it is."""
    p = Program(alone=True)
    x, y = p.inputs(0, 2, F4)
    one, two = p.constant(1.5, F4), p.constant(2.5, F4)
    a1 = p.apply("add", x, one)
    b1 = p.apply("mul", a1, two)
    b2 = p.apply("mul", y, two)
    a2 = p.apply("add", b2, one)
    monkeypatch.setattr(packing, "packs", lambda *_: [(a1, a2), (b1, b2)])
    outputs = [np.array([b1, a2])]
    assert packing.packed(p, outputs) == (p, outputs)
    monkeypatch.setattr(packing, "packs", lambda *_: [(a1, a2)])
    assert packing.packed(p, outputs)[0].lanes
