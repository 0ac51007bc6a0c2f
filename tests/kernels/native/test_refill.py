"""Loops whose ended lanes are replaced by waiting ones: `while` loops of uneven rounds.

Batches have lanes that need no round, few and many, so that lanes come and go all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from fraxenv.dynamics.solvers.cholesky import cholesky, cholesky_solve
from fraxenv.kernels import explain, fuse
from fraxenv.kernels.native import gather, refill
from fraxenv.kernels.native.cut import Graph
from fraxenv.kernels.program import Program, live_values

pytestmark = pytest.mark.cpu

SIZE = 16 * gather.MOST_VECTORS + 37
"""More than a tile of vectors of 16 lanes, and a remainder."""

TOLERANCE = {"float32": 2e-4, "float64": 1e-12}


def arguments(dtype: Any = np.float32, size: int = SIZE) -> tuple[Array, Array]:
    """Values (size, 6), and rounds from 0 to 20, of which most need few."""
    rng = np.random.default_rng(0)
    n = np.minimum(rng.geometric(0.3, size) - 1, 20)
    n[16:32] = 0
    return jnp.asarray(rng.uniform(-2, 2, (size, 6)), dtype), jnp.asarray(n, jnp.int32)


def long(x: Array, seed: int = 0) -> Array:
    """Hundreds of operations, of which none folds; bounded, so that errors are."""
    A = jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, (x.size, x.size)), x.dtype)
    for _ in range(3):
        x = A @ x / (1 + abs(x))
    return x


# --- Loops ----------------------------------------------------------------------------------------


def straight(x: Array, n: Array) -> Any:
    """With what is before it, used in it and after it, and with carried values of all kinds."""
    before = long(x)
    start = (x, jnp.int32(0), n > 2, x[:2] * 3)

    def proceed(c: Any) -> Any:
        y, k, flag, same = c
        return long(y + before) + 0.1 * x, k + 1, flag ^ (y[0] > 0), same

    y, k, flag, same = lax.while_loop(lambda c: c[1] < n, proceed, start)
    return long(y, 1) + before[::-1], k, flag, same, x, jnp.float32(2)


def by_its_own_numbers(x: Array, n: Array) -> Any:
    """The condition is on numbers that the rounds compute."""

    def proceed(c: tuple[Array, Array]) -> tuple[Array, Array]:
        return 0.9 * c[0] + 0.01 * long(c[0]), c[1] + 1

    return lax.while_loop(lambda c: (c[0] @ c[0] > 1) & (c[1] < 30), proceed, (x, jnp.int32(0)))


def with_loops_inside(x: Array, n: Array) -> Any:
    """Inner loops of uneven rounds, counted ones that look values up, and branches."""

    def proceed(c: tuple[Array, Array]) -> tuple[Array, Array]:
        y, k = c
        y = lax.while_loop(lambda s: s[1] < k % 3, lambda s: (long(s[0]), s[1] + 1), (y, 0))[0]
        y, _ = lax.scan(lambda z, a: (0.9 * z + a * x, None), y, jnp.arange(70.0, dtype=x.dtype))
        y = y / (1 + abs(y))
        return lax.cond(y[0] > 0, lambda: long(y, 3), lambda: y), k + 1

    return lax.while_loop(lambda c: c[1] < n, proceed, (x, jnp.int32(0)))


def in_a_scan(x: Array, n: Array) -> Any:
    """In each round of a counted loop, with values from before it and lookups."""
    scale = jnp.sum(x) / 10

    def step(c: tuple[Array, Array], a: Array) -> tuple[tuple[Array, Array], None]:
        y, total = c
        target = long(y + a) * scale

        def proceed(s: tuple[Array, Array]) -> tuple[Array, Array]:
            return long(s[0] + target + a), s[1] + 1

        z, k = lax.while_loop(lambda s: s[1] < (n + total) % 7, proceed, (y, jnp.int32(0)))
        return (0.5 * z + 0.1 * long(z, 2), total + k), None

    values = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, 70), x.dtype)
    (y, total), _ = lax.scan(step, (x, n), values)
    return y + scale, total


def newton(x: Array, n: Array) -> Any:
    """A convex piecewise quadratic function's least value, by Newton's method."""
    rng = np.random.default_rng(2)
    J = jnp.asarray(rng.normal(size=(12, 6)), x.dtype)
    M = jnp.eye(6, dtype=x.dtype) * (1 + x**2)
    D = jnp.exp(jnp.concatenate([x, -x]))

    def slope(a: Array) -> tuple[Array, Array]:
        row = J @ a - 1
        active = jnp.where(row < 0, D, 0)
        return M @ (a - x) + J.T @ (active * row), active

    def proceed(c: tuple[Array, Array]) -> tuple[Array, Array]:
        a, k = c
        g, active = slope(a)
        return a - cholesky_solve(cholesky(M + J.T @ (active[:, None] * J)), g), k + 1

    def far(c: tuple[Array, Array]) -> Array:
        g = slope(c[0])[0]
        return (g @ g > 1e-6) & (c[1] < 12)

    return lax.while_loop(far, proceed, (x, jnp.int32(0)))[0]


def used_again_after_it(x: Array, n: Array) -> Array:
    """With values from before it that are kept for what follows, but not for the rounds."""
    cheap = 1 / (2 + abs(x[0] + jnp.arange(6, dtype=x.dtype)))

    def proceed(c: tuple[Array, Array]) -> tuple[Array, Array]:
        return long(c[0] + cheap), c[1] + 1

    return lax.while_loop(lambda c: c[1] < n, proceed, (x, jnp.int32(0)))[0] + cheap


LOOPS = (straight, by_its_own_numbers, with_loops_inside, in_a_scan, newton, used_again_after_it)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[refill.Plan | None]:
    """The plans that are made."""
    made: list[refill.Plan | None] = []
    make = refill.plan

    def plan(*args: Any) -> refill.Plan | None:
        made.append(make(*args))
        return made[-1]

    monkeypatch.setenv("FRAXENV_CACHE", "0")  # what is recalled is not planned
    monkeypatch.setattr(refill, "plan", plan)
    return made


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop counts as worth it, and no branch."""
    monkeypatch.setattr(refill, "OVERHEAD", 1e9)
    monkeypatch.setenv("FRAXENV_CACHE", "0")  # of another compiler
    monkeypatch.setattr(gather, "SHORTEST", 1)
    monkeypatch.setattr(gather, "SHARE", 1e9)


def assert_near(actual: Any, expected: Any) -> None:
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (e.shape, e.dtype)
        if e.dtype.kind == "f":
            tolerance = TOLERANCE[e.dtype.name]
            np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, e)


def assert_same_bits(actual: Any, expected: Any) -> None:
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(a).view(np.uint8), np.asarray(e).view(np.uint8))


DOUBLE = (in_a_scan, newton)
"""In this precision, too, in quick runs."""


@pytest.mark.parametrize(
    ("loop", "dtype"),
    [
        pytest.param(f, d, marks=pytest.mark.slow if d == "float64" and f not in DOUBLE else ())
        for f in LOOPS
        for d in ("float32", "float64")
    ],
)
def test_what_vmap_computes(
    loop: Callable[..., Any],
    dtype: str,
    always: None,
    plans: list[refill.Plan | None],
    precision: Callable[[str], AbstractContextManager[Any]],
) -> None:
    with precision(dtype):
        args = arguments(dtype)
        fn = lambda *args: loop(*args)  # noqa: E731  (has no kernel yet)
        assert_near(fuse(fn, "native")(*args), jax.jit(jax.vmap(fn))(*args))
    (plan,) = plans
    assert plan is not None
    assert plan.around.rounds == (70 if loop is in_a_scan else 1)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_environment_is_the_same_wherever_it_is(
    loop: Callable[..., Any],
    always: None,
    plans: list[refill.Plan | None],
    threads: Callable[[int], None],
) -> None:
    """At another place, in a smaller batch, among NaNs, with more threads: the same bits."""
    size = 1000
    x, n = map(np.array, arguments(size=size))
    x[::7] = np.nan
    fn = fuse(lambda *args: loop(*args), "native")
    found = jax.tree.map(np.asarray, fn(x, n))
    assert plans[0] is not None
    fine = np.flatnonzero(~np.isnan(x[:, 0]))
    assert_near(jax.tree.map(lambda y: y[fine], found), jax.jit(jax.vmap(loop))(x[fine], n[fine]))
    order = np.random.default_rng(1).permutation(size)
    threads(3)
    assert_same_bits(fn(x[order], n[order]), jax.tree.map(lambda y: y[order], found))
    threads(1)
    for part in (slice(5, 6), slice(3, 3 + 16), slice(100, 377)):
        assert_same_bits(fn(x[part], n[part]), jax.tree.map(lambda y, p=part: y[p], found))


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_lanes_that_all_need_as_many_rounds(
    rounds: int, always: None, plans: list[refill.Plan | None]
) -> None:
    x, n = arguments()
    n = jnp.full_like(n, rounds)
    fn = lambda *args: straight(*args)  # noqa: E731
    assert_near(fuse(fn, "native")(x, n), jax.jit(jax.vmap(fn))(x, n))
    assert plans[0] is not None


def test_values_that_all_lanes_share(always: None, plans: list[refill.Plan | None]) -> None:
    x, n = arguments()
    shared = jnp.arange(6, dtype=jnp.float32)

    def fn(x: Array, n: Array, shared: Array) -> Any:
        return straight(x + long(shared), n)

    axes = (0, 0, None)
    found = fuse(fn, "native", in_axes=axes)(x, n, shared)
    assert_near(found, jax.jit(jax.vmap(fn, axes))(x, n, shared))
    assert plans[0] is not None
    assert plans[0].around.shared.offsets


# --- Which loops ----------------------------------------------------------------------------------


def longer(x: Array, seed: int = 0) -> Array:
    for k in range(8):
        x = long(x, seed + k)
    return x


def repeated(x: Array, n: Array, body: Callable[[Array], Array] = longer) -> Array:
    return lax.while_loop(lambda c: c[1] < n, lambda c: (body(c[0]), c[1] + 1), (x, jnp.int32(0)))[
        0
    ]


@pytest.mark.slow
def test_loops_that_are_worth_it(plans: list[refill.Plan | None]) -> None:
    """Long rounds, outside of loops or in an outermost counted one, that need few values."""

    def short(x: Array, n: Array) -> Array:
        return repeated(x, n, long)

    def in_two_loops(x: Array, n: Array) -> Array:
        inner = lambda c, _: (repeated(c, n), None)  # noqa: E731
        outer = lambda c, _: (lax.scan(inner, c, length=70)[0], None)  # noqa: E731
        return lax.scan(outer, x, length=70)[0]

    def in_a_branch(x: Array, n: Array) -> Array:
        return lax.cond(n > 3, lambda: repeated(x, n), lambda: x)

    def a_costlier_branch(x: Array, n: Array) -> Array:
        def branch() -> Array:
            y = x
            for seed in range(10, 70, 10):
                y = longer(y, seed)
            return y

        return lax.cond(n == 3, branch, lambda: x) + repeated(x, n)

    args = arguments()
    for fn, pays in (
        (lambda x, n: repeated(x, n), True),
        (lambda x, n: repeated(x, n) + repeated(x + 1, n - 1), True),
        (short, False),
        (in_two_loops, False),
        (in_a_branch, False),
        (a_costlier_branch, False),
    ):
        explanation = explain(fn, "native")(*args)
        assert (plans[-1] is not None) == pays
        if pays:
            assert explanation.operations_rare >= gather.SHORTEST
            assert 0 < explanation.workspace <= 2 * gather.TILE_BYTES
            assert "KiB for each thread" in str(explanation)
        elif fn is not a_costlier_branch and fn is not in_a_branch:
            assert explanation.workspace == 0
        assert_near(fuse(fn, "native")(*args), jax.jit(jax.vmap(fn))(*args))


@pytest.mark.slow
def test_a_tile_stays_within_its_memory(plans: list[refill.Plan | None]) -> None:
    """With states so large that few vectors of them fit, there is no tile."""
    x, n = arguments(size=64)
    for entries, fits in ((400, True), (1200, False)):
        state = jnp.ones((64, entries), jnp.float32)
        fn = lambda x, n, s: (repeated(x, n), s + 1)  # noqa: E731
        explanation = explain(fn, "native")(x, n, state)
        plan = plans[-1]
        assert (plan is not None) == fits
        if plan is not None:
            assert plan.vectors < gather.MOST_VECTORS
            assert explanation.workspace <= gather.TILE_BYTES
        found, more = fuse(fn, "native")(x, n, state)
        assert_near(found, jax.jit(jax.vmap(repeated))(x, n))
        np.testing.assert_array_equal(more, state + 1)


# --- What is kept ---------------------------------------------------------------------------------


def test_cut() -> None:
    """Cheap values are computed again, dear ones kept; what two need counts for each in part."""
    program = Program()
    f4 = np.dtype(np.float32)
    a, b = program.inputs(0, 2, f4)
    sums = [program.apply("add", a, b)]
    for _ in range(20):
        sums.append(program.apply("mul", sums[-1], b))
    dear, alone = sums[-1], program.apply("sub", a, b)
    both = [program.apply("mul", dear, a), program.apply("add", dear, a)]
    wanted = [*both, alone]
    graph = Graph(program, live_values(program, wanted), 0)
    known = dict.fromkeys([a, b], 0.0)

    cut = graph.cut(wanted, known, 5.0)
    assert (cut.kept, cut.known, cut.again) == ([dear], [a, b], sorted(wanted))
    one = graph.cut(both[:1], known, 5.0)
    assert (one.kept, one.known, one.again) == (both[:1], [], [])
    everything = graph.cut(wanted, known, 100.0)
    assert (everything.kept, everything.known) == ([], [a, b])
    assert everything.again == sorted([*sums, *wanted])
    nothing = graph.cut(wanted, known, 0.5)
    assert (nothing.kept, nothing.known, nothing.again) == (sorted(wanted), [], [])
    assert graph.cut([dear, a], known, 0.5) == ([dear], [a], [])
