"""Functions of a kernel that are modules of their own, which LLVM compiles side by side."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from fraxenv.kernels import fuse
from fraxenv.kernels.native import control, cpu, gather, module, refill
from fraxenv.kernels.native.builder import Builder
from fraxenv.kernels.program import Program

pytestmark = pytest.mark.cpu

ROWS = jnp.asarray(np.random.default_rng(0).uniform(-2, 2, (16 * 12 + 5, 6)), jnp.float32)
SIZES = 3, len(ROWS)


def long(x: Array, seed: int = 0) -> Array:
    """With a table of numbers, and functions of the C library in what is rare."""
    A = jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, (x.size, x.size)), x.dtype)
    for _ in range(3):
        x = A @ jnp.sin(x) / (1 + abs(x))
    return x


def rare_branch(x: Array) -> Any:
    y = lax.cond(x[0] > 1.5, lambda: long(x), lambda: -x)
    return y, jnp.sum(long(y, 1) * x)


def uneven_loop(x: Array) -> Any:
    n = jnp.asarray(abs(x[0]) * 6, jnp.int32)
    y, _ = lax.while_loop(lambda c: c[1] < n, lambda c: (long(c[0]), c[1] + 1), (x, 0))
    return y, long(y, 1)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules' texts; everything is worth gathering and refilling, and nothing recalled."""
    monkeypatch.setenv("FRAXENV_CACHE", "0")
    monkeypatch.setattr(gather, "SHORTEST", 1)
    monkeypatch.setattr(gather, "SHARE", 0)
    monkeypatch.setattr(refill, "OVERHEAD", 1e9)
    made: list[str] = []
    compile = cpu.machine_code

    def compiled(text: str, **begun: Any) -> bytes:
        made.append(text)
        return compile(text, **begun)

    monkeypatch.setattr(cpu, "machine_code", compiled)
    return made


@pytest.mark.parametrize(("fn", "name"), [(rare_branch, "round"), (uneven_loop, "turn")])
def test_the_same_bits(
    fn: Callable[..., Any], name: str, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = fuse(lambda x: fn(x), "native")
    expected = [jax.tree.leaves(usual(ROWS[:size])) for size in SIZES]
    monkeypatch.setattr(module, "APART", 5)
    fused = fuse(lambda x: fn(x), "native")
    found = [jax.tree.leaves(fused(ROWS[:size])) for size in SIZES]
    together, apart = (t for t in texts if f"@{name}(" in t)
    assert module.NEXT not in together
    main, *others = apart.split(module.NEXT)
    assert len(others) > 2
    assert sum(re.search(rf"define .*@{name}\(", text) is not None for text in others) == 1
    assert re.search(rf"declare .*@{name}\(", main)
    assert not re.search(rf"define .*@{name}\(", main)
    for xs, ys in zip(found, expected, strict=True):
        for x, y in zip(xs, ys, strict=True):
            assert np.array_equal(np.asarray(x), np.asarray(y))
    for x, y in zip(found[-1], jax.tree.leaves(jax.jit(jax.vmap(fn))(ROWS)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pointer", ["ptr", "ptr byval([2 x ptr])"])
def test_what_a_function_hands_on_is_stored_in_several_blocks(pointer: str) -> None:
    """LLVM takes time that grows with the square of a block's stores."""
    program = Program()
    values = program.inputs(0, 600, np.dtype(np.float32))
    b = Builder(program, 8)
    b.define("void", "handing", f"{pointer} %there, i64 %row")
    b.names = {x: f"%v{x}" for x in values}
    module._store(b, {x: ("%there", 32 * k) for k, x in enumerate(values)})
    text = b.text()
    assert text.count("br i1 %never") == 600 // control.BLOCK
    assert "%never = icmp eq ptr %there, null" in text
    assert text.count("store <8 x float>") == 600
