"""Registers chosen here and not by LLVM: what a choice must keep, and kernels with it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from fraxenv.kernels import explain, fuse
from fraxenv.kernels.native import cache, control, cpu, gather, module, refill, registers
from fraxenv.kernels.native.registers import Registers, choose
from fraxenv.kernels.program import Id, Program

pytestmark = pytest.mark.cpu

F4, WIDTH = np.dtype(np.float32), 16
FEW = Registers(7, 64, masks=True)
"""Three for values."""


# --- The choice -----------------------------------------------------------------------------------


def a_program(pairs: list[tuple[int, int]], inputs: int) -> tuple[Program, list[Id], list[Id]]:
    """Sums of pairs of what there is before: the program, its inputs and the rest."""
    program = Program()
    begin = program.inputs(0, inputs, F4)
    ids = list(begin)
    for number, (i, j) in enumerate(pairs):
        # Of unlike numbers, so that none is another one's twin.
        x, y = ids[i % len(ids)], ids[j % len(ids)]
        ids.append(
            program.apply("mul", program.apply("add", x, y), program.constant(2.5 + number, F4))
        )
    return program, begin, list(range(len(program.ops)))


def run(program: Program, begin: list[Id], ids: list[Id], wanted: set[Id], at_hand: int) -> int:
    """Go through the operations as a choice has it: what is read is there. How many loads."""
    known = {x for x in ids if program.ops[x] == "constant"}
    chosen = choose(
        program, ids, begin, wanted, program.args.__getitem__, known.__contains__, FEW, WIDTH
    )
    room = FEW.number - registers.SPARE
    assert room == at_hand
    here, memory, loads = set[Id](), dict[int, Id](), 0

    def compute(x: Id) -> None:
        if x in chosen.places:
            memory[chosen.places[x]] = x
        here.add(x)

    for x in begin:
        compute(x)
    here.clear()  # all are stored before anything is computed
    for k, i in enumerate(ids):
        if program.ops[i] in registers.WITHOUT_INSTRUCTIONS:
            continue
        for x in program.args[i]:
            if x not in here:
                assert x in known or memory[chosen.places[x]] == x
                loads += 1
                here.add(x)
        compute(i)
        here -= set(chosen.left[k])
        assert len(here) <= room
        if k % registers.BLOCK == registers.BLOCK - 1:
            assert not here
    for x in wanted:
        assert x in here or memory[chosen.places[x]] == x
    assert chosen.sizes == [4 * WIDTH] * (max(chosen.places.values(), default=-1) + 1)
    return loads


PAIRS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=60)


@settings(max_examples=200, deadline=None)
@given(
    PAIRS, st.integers(1, 6), st.sets(st.integers(0, 99), max_size=8), st.sampled_from([5, 1000])
)
def test_what_is_read_is_there(
    pairs: list[tuple[int, int]], inputs: int, places: set[int], block: int
) -> None:
    """In a register, or in its place in memory, which no other value has taken the while."""
    program, begin, ids = a_program(pairs, inputs)
    computed = [x for x in ids if program.ops[x] != "constant"]
    wanted = {computed[k % len(computed)] for k in places} | {ids[-1]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registers, "BLOCK", block)
        run(program, begin, ids, wanted, at_hand=3)


def test_the_farthest_goes() -> None:
    """Of four values in three registers that which is needed last waits in memory."""
    program = Program()
    x, y, z = program.inputs(0, 3, F4)
    a, b, c, d = (program.apply("mul", p, q) for p, q in ((x, y), (y, z), (x, z), (z, z)))
    near = program.apply("add", program.apply("add", a, b), c)
    last = program.apply("add", near, d)
    ids = [x, y, z, d, a, b, c, program.args[near][0], near, last]
    chosen = choose(
        program, ids, [x, y, z], [last], program.args.__getitem__, lambda _: False, FEW, WIDTH
    )
    assert set(chosen.places) == {x, y, z, d}


def test_places_are_used_again() -> None:
    """A chain of sums of values that wait needs as much memory as wait at once."""
    program, begin, ids = a_program([(k, k + 1) for k in range(200)], 8)
    chosen = choose(
        program, ids, begin, [ids[-1]], program.args.__getitem__, lambda _: False, FEW, WIDTH
    )
    assert len(chosen.places) > 100
    assert len(chosen.sizes) <= 9


# --- Kernels --------------------------------------------------------------------------------------


@pytest.fixture(params=[registers.PART, 53])
def chosen(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[str]:
    """Kernels whose registers are chosen, however short, in one part or many; their texts."""
    texts: list[str] = []
    monkeypatch.setattr(control, "PART", request.param)
    write = module.write_module

    def written(*args: Any) -> Any:
        made = write(*args)
        texts.append(made.text)
        return made

    monkeypatch.setattr(cpu, "write_module", written)
    monkeypatch.setattr(module, "LONG", 0)
    # Kernels of the same functions that were made in the usual way are not to be found.
    monkeypatch.setattr(cache, "load", lambda *_: None)
    return texts


RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(50, 24)).astype(np.float32)
SIZES = (1, 16, 50)
"""Of batches: less than a vector, one of the widest, and several with a rest."""


def mixed(x: Any) -> Any:
    """Products and sums, all kinds of dtypes, branches for large angles, more than registers."""
    y = jnp.outer(x, jnp.roll(x, 3)) - 0.25 * jnp.outer(jnp.sin(40 * x), x)
    whole = (10 * x).astype(jnp.int32)
    odd = (whole & 1) == 1
    picked = jnp.where(odd, jnp.cos(x), jnp.maximum(x, 0.125))
    return {
        "sums": y @ y.T,
        "product": jnp.asarray(np.random.default_rng(1).normal(size=(24, 24)), x.dtype) @ picked,
        "whole": (whole << 3) // 7,
        "odd": odd,
        "long": jnp.sqrt(jnp.abs(x)) / 3 + y.sum(0),
        "one": x[0],
    }


def gradient(x: Any) -> Any:
    return jax.grad(
        lambda x: sum(jnp.sum(v) for v in jax.tree.leaves(mixed(x)) if v.dtype.kind == "f")
    )(x)


@pytest.mark.parametrize("fn", [mixed, gradient])
def test_the_same_bits(fn: Callable[..., Any], chosen: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONG", 1 << 60)
        usual = [fuse(fn, "native")(ROWS[:size]) for size in SIZES]
    assert not any(text.startswith(module.CHOSEN) for text in chosen)
    chosen.clear()

    def again(x: Any) -> Any:
        return fn(x)

    found = [fuse(again, "native")(ROWS[:size]) for size in SIZES]
    assert explain(fn, "native")(ROWS).vector > 1
    assert any(text.startswith(module.CHOSEN) for text in chosen)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(usual), strict=True):
        assert np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True)


@pytest.mark.parametrize("width", [16, 32])
def test_on_processors_with_fewer_registers(width: int, chosen: list[str]) -> None:
    """And smaller ones: 16, without masks of their own."""
    if width > cpu.vector_bytes():
        pytest.skip("this processor's are no wider")
    usual = fuse(mixed, "native")(ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "vector_bytes", lambda: width)
        found = fuse(lambda x: mixed(x), "native")(ROWS)
    assert all(text.startswith(module.CHOSEN) for text in chosen)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(usual), strict=True):
        assert np.array_equal(np.asarray(x), np.asarray(y))


def test_in_float64(chosen: list[str]) -> None:
    with jax.enable_x64(True):
        x = ROWS.astype(np.float64)
        found, right = fuse(mixed, "native")(x), jax.jit(jax.vmap(mixed))(x)
    assert chosen[-1].startswith(module.CHOSEN)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-12)


def with_loops(x: Any) -> Any:
    """Loops that one after the other and one in the other use what is outside of them."""
    outer, scale = jnp.outer(x, x).sum(0), jnp.cos(x)

    def inner(c: Any) -> Any:
        n, y = c
        return n + 1, 0.7 * jnp.sin(y) + 0.1 * scale

    def turn(c: Any) -> Any:
        n, y, seen = c
        m, z = lax.while_loop(lambda c: (c[0] < 9) & (jnp.max(c[1]) > 0.4), inner, (n % 3, y))
        return n + m, z * 0.9 + 1e-3 * outer, seen | (z[0] > z[1])

    first = lax.while_loop(
        lambda c: (c[0] < 40) & (jnp.sum(c[1] ** 2) > 0.5), turn, (0, x, x[0] > 0)
    )
    second = lax.while_loop(
        lambda c: c[0] < 3 + jnp.abs(x[3]), lambda c: (c[0] + 1, c[1] * scale), (0.0, first[1])
    )
    return first, second, outer @ second[1] + jnp.sum(jnp.sin(first[1] * scale))


@pytest.mark.parametrize("width", [64, 32])
def test_loops_are_functions_of_their_own(
    width: int, chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if width > cpu.vector_bytes():
        pytest.skip("this processor's vectors are no wider")

    def again(x: Any) -> Any:
        return with_loops(x)

    monkeypatch.setattr(cpu, "vector_bytes", lambda: width)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONG", 1 << 60)
        usual = [fuse(with_loops, "native")(ROWS[:size]) for size in SIZES]
    # As where no branch is rare, whose lanes are gathered: that goes first.
    monkeypatch.setattr(gather, "rare_branch", lambda *_: None)
    monkeypatch.setattr(refill, "plan", lambda *_: None)
    found = [fuse(again, "native")(ROWS[:size]) for size in SIZES]
    assert chosen[-1].startswith(module.CHOSEN)
    assert chosen[-1].count("call void @loop") == chosen[-1].count("define  void @loop") == 2
    assert all(
        text.startswith(module.CHOSEN) != ("define  void @loop" in text)
        for text in chosen[-1].split(module.NEXT)
    )
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(usual), strict=True):
        assert np.array_equal(np.asarray(x), np.asarray(y))


def with_counted_loops(x: Any) -> Any:
    """One in the other, with a loop in them that ends by a condition; tables, and kept values."""
    table, scale = jnp.outer(jnp.cos(x), x), jnp.sin(x)

    def settled(y: Any, row: Any, n: Any) -> Any:
        return lax.while_loop(
            lambda c: (c[0] < n) & (jnp.max(c[1]) > 0.4),
            lambda c: (c[0] + 1, 0.7 * jnp.sin(c[1]) + 0.1 * scale * row),
            (0, y),
        )[1]

    def round_(c: Any, given: Any) -> Any:
        y, first, odd = c
        row, n = given
        z = settled(y, row, n) + 0.1 * table[n]
        turned, sums = lax.scan(lambda w, k: (w * 0.9 + row, w[k] + z), z, jnp.arange(3))
        return (turned - 0.5 * first, x, ~odd), (sums[:, :5], z, y, odd, first[0] + row)

    carried, kept = lax.scan(round_, (x, scale, x[0] > 0), (table, jnp.arange(24)))
    return carried, kept, jnp.sum(kept[1] * table) + carried[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounds_of_counted_loops(dtype: Any, chosen: list[str]) -> None:
    """Their registers are chosen as well; what ends by a condition is a function of its own."""

    def again(x: Any) -> Any:
        return with_counted_loops(x)

    with jax.enable_x64(dtype is np.float64):
        rows = ROWS.astype(dtype)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "LONG", 1 << 60)
            usual = [fuse(with_counted_loops, "native")(rows[:size]) for size in SIZES]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gather, "rare_branch", lambda *_: None)
            patch.setattr(refill, "plan", lambda *_: None)
            found = [fuse(again, "native")(rows[:size]) for size in SIZES]
        assert explain(with_counted_loops, "native")(rows).vector > 1
    assert chosen[-1].startswith(module.CHOSEN)
    assert chosen[-1].count("call void @loop") == chosen[-1].count("define  void @loop") == 1
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(usual), strict=True):
        assert np.array_equal(np.asarray(x), np.asarray(y))


def test_what_a_loop_hands_on_from_outside_of_it(
    chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is read before its place is another value's."""

    def fn(x: Any) -> Any:
        outside = x * jnp.roll(x, 1)

        def turn(_: Any, c: Any) -> Any:
            y, w = c
            return jnp.sin(y) * w + x, outside

        y, w = lax.fori_loop(0, 60, turn, (x, 0.5 * x))
        return jnp.outer(y, y) @ jnp.cos(jnp.outer(y, x)), w

    monkeypatch.setattr(module, "LONG", 1 << 60)
    usual = fuse(fn, "native")(ROWS[:, :16])
    monkeypatch.setattr(module, "LONG", 0)
    found = fuse(lambda x: fn(x), "native")(ROWS[:, :16])
    assert chosen[-1].startswith(module.CHOSEN)
    for x, y in zip(found, usual, strict=True):
        assert np.array_equal(np.asarray(x), np.asarray(y))


def test_a_loop_of_several_kernels_is_compiled_once(
    chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And parts are, while others are written."""
    compiled: list[str] = []
    compile = cpu._machine_code

    def noted(text: str) -> bytes:
        compiled.append(text)
        return compile(text)

    monkeypatch.setattr(cpu, "_machine_code", noted)
    monkeypatch.setattr(gather, "rare_branch", lambda *_: None)
    monkeypatch.setattr(refill, "plan", lambda *_: None)
    cpu._begin.cache_clear()

    def settled(x: Any) -> Any:
        return lax.while_loop(
            lambda c: (c[0] < 9) & (jnp.max(c[1]) > 0.4),
            lambda c: (c[0] + 1, 0.7 * jnp.sin(c[1]) + 0.1 * x),
            (0, x),
        )[1]

    def one(x: Any) -> Any:
        return settled(x) + jnp.outer(x, x).sum(0)

    def other(x: Any) -> Any:
        return jnp.outer(x, jnp.cos(x)) @ settled(3 * x), jnp.tan(x)

    found = [fuse(fn, "native")(ROWS) for fn in (one, other)]
    right = [jax.jit(jax.vmap(fn))(ROWS) for fn in (one, other)]
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
    loops = [text for text in compiled if "define  void @loop" in text]
    parts = [text for text in compiled if "define  void @part" in text]
    mains = [text for text in compiled if "define internal void @block" in text]
    assert len(loops) == 1
    assert len(mains) == 2
    assert len(parts) == 2 if control.PART == registers.PART else len(parts) > 20
    assert compiled.index(parts[0]) < compiled.index(mains[0])


def test_what_is_short_is_left_to_llvm(chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG", registers.LONG)
    fuse(mixed, "native")(ROWS)
    assert len(chosen) == 1
    assert not chosen[0].startswith(module.CHOSEN)


def beyond(text: str) -> int:
    """Bytes of the stack that LLVM takes besides those that it was asked for."""
    import llvmlite.binding as llvm

    (part,) = (part for part in text.split(module.NEXT) if "define  void @part0(" in part)
    assert part.startswith(module.CHOSEN)
    assert "alloca" not in part
    assembly = cpu._target_machine(0).emit_assembly(llvm.parse_assembly(part))
    frame = re.search(r"\npart0:.*?\tsubq\t\$(\d+), %rsp", assembly, re.DOTALL)
    if frame is None:
        pytest.skip("not the assembly of a processor that this test reads")
    return int(frame[1])


def test_llvm_stores_nothing_besides(chosen: list[str]) -> None:
    """There are registers for all that is to be in one: what LLVM stores is not of the sums."""

    def mixed_up(x: Any, count: int) -> Any:
        y = jnp.outer(x, x).ravel()
        for _ in range(count):  # each is needed by few others: LLVM also stores what many need
            y = y * jnp.roll(y, 7) + jnp.roll(y, 31)
        return y

    for count in (2, 20):
        fuse(functools.partial(mixed_up, count=count), "native")(ROWS[:, :10])
    short, long = (text for text in chosen if "fma" in text)
    assert len(long) > 3 * len(short)
    assert beyond(long) < beyond(short) + 1024
