"""Tables and buffers too large for the stack: kernels that keep or look up many rounds' values.

Before there was a workspace, the largest of them ended the process.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from fraxenv.kernels import KernelWarning, explain, fuse
from fraxenv.kernels.native import gather, module, refill, schedule, workspace

pytestmark = pytest.mark.cpu

N = 6
ROUNDS = 100
SIZES = ((1, 2), (7, 1), (16, 1), (64, 2), (100, 1), (100, 2))
"""Batches, and threads."""
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def arrays(size: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """A value (size, N), and one for each round."""
    rng = np.random.default_rng(0)
    return (
        rng.uniform(-1, 1, (size, N)).astype(dtype),
        rng.uniform(-1, 1, (size, ROUNDS, N)).astype(dtype),
    )


def layer(x: Array) -> Array:
    """A map that neither grows nor dies."""
    A = np.random.default_rng(1).uniform(-1, 1, (x.size, x.size)) / 3
    return 0.5 * x + jnp.tanh(jnp.asarray(A, x.dtype) @ x + 0.3)


def keep(c: Array, row: Any = None) -> tuple[Array, Array]:
    c = layer(c) if row is None else layer(c) + row
    return c, 2 * c


def pulled_back(fn: Callable[..., Any], *args: Array) -> Any:
    """The derivative of all that a function returns, backwards."""
    out, back = jax.vjp(fn, *args)
    return back(jax.tree.map(jnp.cos, out))


def rows_of_a_result(x: Array, _: Array) -> Any:
    return lax.scan(keep, x, None, length=ROUNDS)


def from_the_last_round(x: Array, _: Array) -> Any:
    return lax.scan(keep, x, None, length=ROUNDS, reverse=True)


def columns_of_a_result(x: Array, _: Array) -> Any:
    return rows_of_a_result(x, x)[1].T


def part_of_a_result(x: Array, _: Array) -> Any:
    end, ys = rows_of_a_result(x, x)
    return jnp.concatenate([x, ys.ravel(), end, jnp.zeros(50, x.dtype), ys[::3].ravel()]), ys[-1]


def looked_up(x: Array, _: Array) -> Any:
    """Forwards, backwards, and behind a first one."""
    c, ys = rows_of_a_result(x, x)
    before = jnp.concatenate([x[None], ys[:-1]])
    return [
        lax.scan(keep, c, rows, reverse=r) for rows, r in ((ys, False), (ys, True), (before, True))
    ]


def inputs(x: Array, u: Array) -> Any:
    return lax.scan(keep, x, u), lax.scan(keep, x, u, reverse=True)[1]


def known_numbers(x: Array, _: Array) -> Any:
    table = np.random.default_rng(2).uniform(-1, 1, (ROUNDS, N)).astype(x.dtype)
    flags = table > 0
    return lax.scan(lambda c, r: keep(c, jnp.where(r[1], r[0], 0.1)), x, (table, flags))


def other_types(x: Array, u: Array) -> Any:
    def step(c: Any, row: Array) -> Any:
        n, flag = c
        return (n * 3 + row, flag ^ (row > 0)), (n, flag, (n % 100).astype(jnp.int8), n[0] > 2)

    n = (x * 10).astype(jnp.int32)
    return lax.scan(step, (n, x > 0), (u * 5).astype(jnp.int32))


def one_in_another(x: Array, u: Array) -> Any:
    def step(c: Array, row: Array) -> Any:
        c, ys = lax.scan(keep, c + row, None, length=66)
        return c, (ys, lax.scan(keep, c, ys, reverse=True)[1][::13])

    return lax.scan(step, x[:3], u[:66, :3])


def in_a_while(x: Array, u: Array) -> Any:
    def step(c: tuple[Array, Array]) -> tuple[Array, Array]:
        return lax.scan(keep, c[0], u)[1][7], c[1] + 1

    return lax.while_loop(lambda c: c[1] < 3 + jnp.sign(x[0]), step, (x, jnp.zeros((), x.dtype)))


def derivative(x: Array, u: Array) -> Any:
    return pulled_back(lambda x, u: lax.scan(keep, x, u), x, u)


def derivative_of_checkpointed(x: Array, u: Array) -> Any:
    return pulled_back(lambda x, u: lax.scan(jax.checkpoint(keep), x, u), x, u)


def derivative_of_nested(x: Array, u: Array) -> Any:
    def step(c: Array, row: Array) -> Any:
        return 0.1 * lax.scan(keep, c, None, length=66)[0] + row, c

    return pulled_back(lambda x, u: lax.scan(step, x, u), x[:3], u[:66, :3])


def no_loop(x: Array, u: Array) -> Any:
    return u[::-1] * 2 + u, u, jnp.broadcast_to(x[0] + x[1], (1000,)), jnp.zeros((600,))


FUNCTIONS = (
    rows_of_a_result, from_the_last_round, columns_of_a_result, part_of_a_result, looked_up, inputs,
    known_numbers, other_types, one_in_another, in_a_while, derivative, derivative_of_checkpointed,
    derivative_of_nested, no_loop,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is not one native kernel is an error; what is recalled has not been written."""
    monkeypatch.setenv("FRAXENV_CACHE", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error", KernelWarning)
        yield


@pytest.fixture
def small_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is too large for it."""
    monkeypatch.setattr(workspace, "ON_STACK", 0)


def assert_near(actual: Any, expected: Any) -> None:
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (e.shape, e.dtype)
        if e.dtype.kind == "f":
            tolerance = TOLERANCE[e.dtype.name] * max(1.0, float(np.max(np.abs(e))))
            np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, e)


def assert_one_kernel(fn: Callable[..., Any], *args: Any, **axes: Any) -> Any:
    report = explain(fn, "native", **axes)(*args)
    assert (report.backend, report.kernels, report.fallbacks) == ("native", 1, [])
    return report


LONG = (
    derivative, derivative_of_checkpointed, derivative_of_nested, one_in_another, other_types,
    rows_of_a_result, from_the_last_round, columns_of_a_result, part_of_a_result,
)  # fmt: skip
"""To compile in float32; or much like others."""


@pytest.mark.parametrize(
    ("of", "dtype"),
    [
        *(
            pytest.param(f, "float32", marks=pytest.mark.slow if f in LONG else ())
            for f in FUNCTIONS
        ),
        (inputs, "float64"),
        *(pytest.param(f, "float64", marks=pytest.mark.slow) for f in (derivative, other_types)),
    ],
)
def test_what_vmap_computes(
    of: Callable[..., Any],
    dtype: str,
    small_stack: None,
    threads: Callable[[int], None],
    precision: Callable[[str], AbstractContextManager[Any]],
) -> None:
    """For batches of all sizes, with one thread and with two."""
    fn = lambda *args: of(*args)  # noqa: E731  (has no kernel yet)
    with precision(dtype):
        args = arrays(100, dtype)
        expected = jax.jit(jax.vmap(fn))(*args)
        report = assert_one_kernel(fn, *args)
        assert report.workspace > 0
        assert f"workspace            {report.workspace / 1024:.0f} KiB" in str(report)
        fused = fuse(fn, "native")
        for size, count in SIZES:
            threads(count)
            part = jax.tree.map(lambda x, n=size: x[:n], (args, expected))
            assert_near(fused(*part[0]), part[1])


def test_inputs_that_all_environments_share(small_stack: None) -> None:
    x, u = arrays(37)
    assert_one_kernel(inputs, x, u[0], in_axes=(0, None))
    assert_near(
        fuse(inputs, "native", in_axes=(0, None))(x, u[0]),
        jax.jit(jax.vmap(inputs, in_axes=(0, None)))(x, u[0]),
    )


def test_small_tables_stay_on_the_stack() -> None:
    x, _ = arrays(16)
    fn = lambda x: lax.scan(keep, x[:3], None, length=70)[1].sum()  # noqa: E731
    assert assert_one_kernel(fn, x).workspace == 0


# --- Size -----------------------------------------------------------------------------------------


def kept(rounds: int, n: int) -> Callable[[Array], Any]:
    """A loop that keeps all of its rounds, and one over them backwards."""
    a = jnp.linspace(-0.5, 0.5, n, dtype=jnp.float32)

    def back(g: Array, row: Array) -> Any:
        return 0.9 * g + a * row, jnp.sum(g)

    def fn(x: Array) -> Any:
        c, ys = lax.scan(
            lambda c, _: ((c := 0.9 * jnp.roll(c, 1) + a * c), c), x, None, length=rounds
        )
        return lax.scan(back, c, ys, reverse=True)[0], ys

    return fn


def text_of(monkeypatch: pytest.MonkeyPatch, fn: Callable[..., Any], *args: Any) -> str:
    """The module of a function's kernel."""
    texts = []
    write = module.write_module

    def written(*parts: Any) -> Any:
        texts.append(write(*parts))
        return texts[-1]

    monkeypatch.setattr("fraxenv.kernels.native.cpu.write_module", written)
    explain(fn, "native")(*args)
    return str(texts[-1].text)


def test_the_text_does_not_grow_with_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((16, 20), np.float32)
    short, long = (len(text_of(monkeypatch, kept(n, 20), x).splitlines()) for n in (100, 1500))
    assert short == long


def test_rounds_are_looked_up_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table of their own they would need twice the memory."""
    x = np.ones((16, 20), np.float32)
    report = assert_one_kernel(lambda x: kept(200, 20)(x)[0], x)
    table = 200 * 20 * report.vector * 4
    assert report.workspace < 1.1 * table
    monkeypatch.setattr("fraxenv.kernels.native.builder.Builder.spaced", lambda *_: None)
    report = assert_one_kernel(lambda x: kept(200, 20)(x)[0] + 1, x)
    assert report.workspace > 1.9 * table


def in_a_process(code: str) -> str:
    """What a program of its own prints; it may crash."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_large_tables_and_wide_rows_do_not_end_the_process() -> None:
    """What ran over the stack: 1000 rounds of 60 numbers, on threads of all kinds.

    And a ragged end of rows of 60 000 numbers, nearly 4 MB for a vector.
    """
    printed = in_a_process("""
        import os
        os.environ["FRAXENV_CACHE"] = "0"
        import warnings
        import jax, jax.numpy as jnp, numpy as np
        from jax import lax
        from fraxenv.kernels import KernelWarning, fuse, set_threads

        warnings.simplefilter("error", KernelWarning)
        a = jnp.linspace(-0.1, 0.1, 60)

        def fn(x):
            c, ys = lax.scan(
                lambda c, _: ((c := 0.9 * jnp.roll(c, 1) + a * c), c), x, None, length=1000
            )
            g, sums = lax.scan(lambda g, r: (0.9 * g + a * r, g.sum()), c, ys, reverse=True)
            return g, sums.sum()

        x = np.random.default_rng(0).uniform(-1, 1, (67, 60)).astype(np.float32)
        expected = jax.jit(jax.vmap(fn))(x)
        fused = jax.jit(fuse(fn, "native"))
        for n in (1, 2, 7):
            set_threads(n)
            found = fused(x)
            for f, e in zip(found, expected):
                assert np.abs(f - e).max() < 1e-5 * np.abs(e).max()

        fn = lambda x: (x, x[::2][:3] + 1)
        x = np.random.default_rng(0).normal(size=(19, 60000)).astype(np.float32)
        same, more = fuse(fn, "native")(x)
        np.testing.assert_array_equal(same, x)
        np.testing.assert_array_equal(more, x[:, ::2][:, :3] + 1)
        print("done")
    """)
    assert printed.split() == ["done"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
@pytest.mark.slow
def test_no_memory_is_an_error() -> None:
    printed = in_a_process("""
        import os
        os.environ["FRAXENV_CACHE"] = "0"
        import resource
        import jax, jax.numpy as jnp, numpy as np
        from jax import lax
        from fraxenv.kernels import fuse, set_threads

        set_threads(64)
        step = lambda c, _: ((c := 0.9 * c + 1), c)
        fn = fuse(lambda x: lax.scan(step, x, None, length=3000)[1][::3].sum(), "native")
        x = np.ones((16 * 64 * 8, 64), np.float32)
        run = jax.jit(fn).lower(x).compile()
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
        try:
            jax.block_until_ready(run(x))
        except jax.errors.JaxRuntimeError as error:
            print(error)
    """)
    assert "RESOURCE_EXHAUSTED: a fused kernel found no memory" in printed
    assert "FRAXENV_THREADS" in printed


def test_too_large_a_workspace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "LARGEST", 1 << 20)
    x = np.ones((5, 120), np.float32)
    fn = lambda x: lax.scan(lambda c, _: ((c := 0.9 * c + 1), c), x, None, length=200)[1]  # noqa: E731
    with pytest.warns(KernelWarning, match=r"need \d+ MiB of memory .* 1 MiB is the most.*'vmap'"):
        found = fuse(fn, "native")(x)
    np.testing.assert_allclose(found, jax.jit(jax.vmap(fn))(x), rtol=1e-6)


def waits(x: Array) -> Array:
    """All numbers are needed twice: the second time, from the last to the first."""
    y = x * x * jnp.linspace(0.5, 1, 50, dtype=jnp.float32)
    for k in (*range(50), *range(49, -1, -1)):
        x = x * 0.5 + y[k] / (1 + x * x)
    return x


def passed_on(x: Array) -> Array:
    """A loop that hands on more than it computes with: two numbers change places, one changes."""

    def one(c: Array, k: Array) -> tuple[Array, Array]:
        after = c.at[50].set(c[51]).at[51].set(c[50])
        return after.at[3].set(0.5 * c[7] + jnp.sin(c[3] + c[0]) * k), c[:5]

    start = x * jnp.linspace(0.5, 1, 90, dtype=jnp.float32)
    c, kept = lax.scan(one, start, jnp.arange(69.0))
    return c.at[20:25].add(kept[-1])


def until(x: Array) -> Array:
    """The same with other numbers of rounds, in a loop around it."""

    def outer(_: Any, c: Array) -> Array:
        first = (c, jnp.int32(0))
        c, _ = lax.while_loop(
            lambda s: (s[0][0] < 0.9) & (s[1] < 9),
            lambda s: (jnp.roll(s[0], 1).at[0].mul(1.1), s[1] + 1),
            first,
        )
        return 0.9 * c[::-1]

    return lax.fori_loop(0, 70, outer, x * jnp.linspace(0.5, 1, 90, dtype=jnp.float32))


def looped(x: Array) -> Array:
    """It all over again, 70 times."""
    return lax.scan(lambda c, k: (waits(c + k), c), x, jnp.arange(70.0))[0]


WAITS: dict[str, tuple[Callable[[Array], Array], int]] = {
    "straight": (waits, 2_000),
    "in a loop": (looped, 2_000),
    "passed on": (passed_on, 2_000),
    "until": (until, 3_000),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_what_waits_is_kept_in_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, room = WAITS[name]
    x = np.linspace(0.1, 1.7, 37, dtype=np.float32)
    # With 16 numbers of each; processors differ.
    part = explain(jnp.sin, "native")(x).vector / 16
    usual = text_of(monkeypatch, fn, x)
    expected = fuse(fn, "native")(x)
    monkeypatch.setattr(workspace, "LARGEST_STACK", int(part * room))
    assert "ptr %work" not in usual
    assert "ptr %work" in text_of(monkeypatch, lambda x: fn(x), x)
    np.testing.assert_array_equal(fuse(lambda x: fn(x), "native")(x), expected)
    assert_one_kernel(lambda x: fn(x) + 1, x)


def test_too_many_inputs_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: Array) -> Array:
        total = jnp.sin(x[0])
        for k in (*range(40), *range(39, -1, -1)):
            total = 0.5 * total + jnp.cos(x[k]) / (1 + x[k] * total)
        return total

    x = np.linspace(0.1, 0.9, 160, dtype=np.float32).reshape(4, 40)
    monkeypatch.setattr(workspace, "LARGEST_STACK", 1_000)
    said = r"KiB of numbers wait at once .* room for 0 KiB.*'vmap'"
    with pytest.warns(KernelWarning, match=said):
        found = fuse(fn, "native")(x)
    np.testing.assert_allclose(found, jax.jit(jax.vmap(fn))(x), rtol=1e-5)


# --- With lanes that move -------------------------------------------------------------------------


def uneven(x: Array, n: Array) -> Any:
    """A loop of uneven rounds, with tables before it, in it and after it."""
    c, ys = lax.scan(keep, x, None, length=ROUNDS)

    def proceed(s: tuple[Array, Array]) -> tuple[Array, Array]:
        c, ys = lax.scan(keep, s[0], None, length=ROUNDS)
        return 0.5 * (c + ys[3]), s[1] + 1

    c, k = lax.while_loop(lambda s: s[1] < n, proceed, (c + ys[9], jnp.int32(0)))
    return lax.scan(keep, c, None, length=ROUNDS)[1][::20], k


def rare(x: Array, n: Array) -> Any:
    """A branch that few take in the rounds of a loop, with tables before it, in it and after it."""

    def step(c: Array, _: Any) -> Any:
        def branch() -> Array:
            c_, ys = lax.scan(keep, c, None, length=ROUNDS)
            return c_ + ys[3]

        return lax.cond(n == 3, branch, lambda: 0.5 * c), None

    c = lax.scan(keep, x, None, length=ROUNDS)[1][9]
    c, _ = lax.scan(step, c, None, length=70)
    return lax.scan(keep, c, None, length=ROUNDS)[1][::20]


@pytest.mark.parametrize("of", [uneven, rare])
def test_lanes_that_move(
    of: Callable[..., Any],
    small_stack: None,
    monkeypatch: pytest.MonkeyPatch,
    threads: Callable[[int], None],
) -> None:
    x = arrays(500)[0]
    n = np.asarray(np.random.default_rng(3).integers(0, 9, 500), np.int32)
    monkeypatch.setattr(refill, "OVERHEAD", 1e9)
    monkeypatch.setattr(gather, "SHORTEST", 1)
    monkeypatch.setattr(gather, "SHARE", 0.0)
    fn = lambda x, n: of(x, n)  # noqa: E731
    text = text_of(monkeypatch, fn, x, n)
    assert ("@refill(" if of is uneven else "@round(") in text
    assert "ptr %work" in text
    expected = jax.jit(jax.vmap(fn))(x, n)
    fused = fuse(fn, "native")
    for count in (1, 2):
        threads(count)
        for size in (7, 500):
            part = jax.tree.map(lambda y, s=size: y[:s], expected)
            assert_near(fused(x[:size], n[:size]), part)


def test_lanes_do_not_move_with_large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile has room for one vector of them: nobody to share with."""
    monkeypatch.setattr(gather, "SHORTEST", 1)
    monkeypatch.setattr(gather, "SHARE", 0.0)
    monkeypatch.setattr(gather, "TILE_BYTES", 1 << 14)

    def fn(x: Array, n: Array) -> Any:
        c, ys = lax.scan(keep, x, None, length=80)
        return lax.cond(n == 3, lambda: ys + layer(c), lambda: ys)

    x, n = arrays(33)[0], np.arange(33, dtype=np.int32) % 8
    assert "@round(" not in text_of(monkeypatch, fn, x, n)
    assert_near(fuse(fn, "native")(x, n), jax.jit(jax.vmap(fn))(x, n))


def test_waiting_bytes() -> None:
    """Of a sum: three inputs, of which two are needed once, and what has been added."""
    from fraxenv.kernels.program import Program

    program, f4 = Program(), np.dtype(np.float32)
    a, b, c = program.inputs(0, 3, f4)
    first = program.apply("add", a, b)
    last = program.apply("mul", first, c)
    order = {0: [a, b, c, first, last]}

    def waiting(ends: list[int], slots: tuple[int, ...] = ()) -> int:
        return schedule.waiting_bytes(program, order, {0: ends}, {}, slots, 16) // 64

    assert waiting([last]) == 4
    assert waiting([last, a, b, c]) == 5


def test_what_waits_longest_goes_to_memory() -> None:
    from fraxenv.kernels.program import Program

    program, f4 = Program(), np.dtype(np.float32)
    (x,) = program.inputs(0, 1, f4)
    roots = [program.call("sin", (program.apply("mul", x, program.constant(k, f4)),))
             for k in np.arange(2, 6, dtype=f4)]  # fmt: skip
    total = roots[-1]
    for root in roots[-2::-1]:
        total = program.apply("add", total, root)
    order = {0: [i for i in range(len(program.ops)) if program.ops[i] != "constant"]}

    def spilled(room: int) -> list[int]:
        return schedule.spilled_values(program, order, {0: [total]}, {}, (), 16, 64 * room)

    most = schedule.waiting_bytes(program, order, {0: [total]}, {}, (), 16) // 64
    assert spilled(most) == []
    assert spilled(most - 1) == roots[:1]
    assert spilled(most - 2) == roots[:2]
    left = schedule.waiting_bytes(program, order, {0: [total]}, {}, spilled(most - 2), 16) // 64
    assert left <= most - 2


def test_memory_that_is_not_written() -> None:
    """A number that JAX's scans begin their results with: zero."""
    lax_ = pytest.importorskip("jax._src.lax.lax")
    if not hasattr(lax_, "empty2"):
        pytest.skip("of newer releases of JAX")

    def fn(x: Array) -> Array:
        return x + lax_.empty2(x.dtype, memory_space=jax.typeof(x).memory_space)

    x = arrays(5)[0]
    assert_one_kernel(fn, x)
    np.testing.assert_array_equal(fuse(fn, "native")(x), x)
