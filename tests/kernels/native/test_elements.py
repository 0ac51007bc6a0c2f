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
from fraxenv.kernels.executors import ONE
from fraxenv.kernels.native import cpu
from fraxenv.kernels.native.elements import elements

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


@pytest.mark.parametrize("fn", [forwards, backwards, twice])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_text_is_the_same(monkeypatch: pytest.MonkeyPatch, fn: Any, dtype: Any) -> None:
    written, write = [], cpu.write
    found: Counter[str] = Counter()

    def counted(program: Any, buffers: Any) -> Any:
        made = elements(program, buffers)
        found.update(made.ops)
        read = {made.attributes[i].number for i, op in enumerate(made.ops) if op == "element"}
        assert [buffers[k].shape for k in read] == [(ROUNDS, N, N)]
        return made

    def both(*args: Any, **options: Any) -> Any:
        for way in (counted, lambda program, _: program):
            monkeypatch.setattr(cpu, "elements", way)
            written.append(write(*args, **options))
        return written[-2]

    monkeypatch.setattr(cpu, "write", both)
    with jax.enable_x64(dtype is np.float64):
        A, b = RNG.normal(size=(2, ROUNDS, N, N)), RNG.normal(size=(2, ROUNDS))
        A, b = jnp.asarray(A, dtype), jnp.asarray(b, dtype)
        made, expected = fuse(fn, ONE)(A, b), jax.vmap(fn)(A, b)
        tolerance = 1e-12 if dtype is np.float64 else 1e-4
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, tolerance, tolerance), made, expected
        )
    assert found["element"] >= N * N
    assert found["lookup"] >= 1  # of what is not wide
    assert written[0].text == written[1].text


def test_where_many_environments_are_computed_at_once_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lanes that change places have inputs of their own in each."""
    monkeypatch.setattr(cpu, "elements", lambda *_: pytest.fail("not here"))
    A, b = RNG.normal(size=(9, ROUNDS, N, N)), RNG.normal(size=(9, ROUNDS))
    A, b = jnp.asarray(A, jnp.float32), jnp.asarray(b, jnp.float32)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, 1e-4, 1e-4),
        fuse(forwards)(A, b),
        jax.vmap(forwards)(A, b),
    )
