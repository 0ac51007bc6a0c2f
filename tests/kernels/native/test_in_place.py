"""What is handed from step to step is computed in its own memory, and nobody notices."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from fraxenv.kernels import fuse, fusible

pytestmark = pytest.mark.cpu

Equal = Callable[..., None]
Threads = Callable[[int], None]
State = tuple[Array, Array, Array]


def state(size: int) -> State:
    """Of two arrays of one shape, and a number of steps."""
    x = np.random.default_rng(0).uniform(-1, 1, (2, size, 5)).astype(np.float32)
    return jnp.asarray(x[0]), jnp.asarray(x[1]), jnp.zeros(size, jnp.int32)


def long(x: Array) -> Array:
    A = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (5, 5)), x.dtype)
    for _ in range(20):
        x = A @ x / (1 + abs(x))
    return x


def step(now: State) -> tuple[State, Array]:
    """The arrays mix, stay where they diverge, and begin anew now and then."""
    x, y, n = now
    mixed, diverged = (x - 0.3 * y[::-1], y + 0.3 * x), jnp.sum(x) > 4
    x, y = (jnp.where(diverged, old, new) for old, new in zip((x, y), mixed, strict=True))
    n = jnp.where(diverged, n, n + 1)
    x, y, n = lax.cond(n >= 7, lambda: (long(x), long(y), 0 * n), lambda: (x, y, n))
    return (x, y, n), jnp.sum(x * y)


def rollout(f: Callable[[State], Any], now: State, steps: int = 20) -> Any:
    return lax.scan(lambda s, _: f(s), now, None, steps)


def custom_call(f: Callable[..., Any], *args: Any) -> str:
    text = jax.jit(f).lower(*args).compile().as_text()
    (line,) = (x for x in text.splitlines() if 'custom_call_target="fraxenv_' in x)
    return line


KERNEL = jax.vmap(fusible(step, "native"))
ONE, PLAIN, ROLLOUT = jax.jit(KERNEL), jax.jit(jax.vmap(step)), jax.jit(partial(rollout, KERNEL))
BOTH = jax.jit(lambda now: (now, KERNEL(now)))


@pytest.mark.parametrize("size", [1, 16, 37, 400])
@pytest.mark.parametrize("count", [1, 3])
def test_steps_in_place(size: int, count: int, threads: Threads, equal: Equal) -> None:
    threads(count)
    now = state(size)
    kept = jax.tree.map(np.array, now)
    after, sums = now, []
    for _ in range(20):
        after, total = ONE(after)
        sums.append(total)
    equal(ROLLOUT(now), (after, jnp.stack(sums)))
    chex.assert_trees_all_close(ONE(now), PLAIN(now), rtol=1e-7, atol=1e-5)
    # Who still has what it was computed from keeps it.
    once, again = ONE(now), ONE(now)
    chex.assert_trees_all_equal(now, kept)
    chex.assert_trees_all_equal(once, again)
    chex.assert_trees_all_equal(BOTH(now), (kept, once))


def test_nothing_is_copied_between_the_rounds_of_a_scan() -> None:
    now = state(64)
    f = jax.vmap(fusible(step, "native"))
    assert "output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {}), {2}: (2, {})}" in custom_call(
        f, now
    )
    text = jax.jit(rollout, static_argnums=0).lower(f, now).compile().as_text()
    body = text[text.index("custom-call(") - 4000 : text.index("custom-call(")]
    assert not re.search(r"f32\[64,5\]\S* copy\(%get-tuple", body)


@pytest.mark.parametrize(
    "fn",
    [
        lambda now: now[0] + now[1],
        lambda now: now[0][::-1],
        lambda now: jnp.where(now[2] > 3, now[0], now[1])[::-1],
        lambda now: (now[0] > 0, now[2].astype(jnp.float32)),
    ],
    ids=["new", "moved", "chosen and moved", "of another type"],
)
def test_other_results_have_memory_of_their_own(fn: Callable[[State], Any]) -> None:
    assert "aliasing" not in custom_call(jax.vmap(fusible(fn, "native")), state(64))


def test_a_queue_moves_on_in_place(equal: Equal) -> None:
    def fn(now: tuple[Array, Array]) -> Any:
        queue, x = now
        queue = jnp.concatenate([x[None], queue[:-1]])
        return (queue, queue[2] - x), jnp.max(queue)

    rows = np.random.default_rng(0).uniform(-1, 1, (37, 4, 3)).astype(np.float32)
    now = jnp.asarray(rows), jnp.asarray(rows[:, 0])
    f = jax.vmap(fusible(fn, "native"))
    assert "output_to_operand_aliasing={{0}: (0, {})}" in custom_call(f, now)
    equal(jax.jit(partial(rollout, f))(now), jax.jit(partial(rollout, jax.vmap(fn)))(now))


def test_exchanged_and_repeated(equal: Equal) -> None:
    fn = lambda now: (now[1], now[0], now[1], now[2])  # noqa: E731
    equal(fuse(fn, "native")(state(37)), jax.jit(jax.vmap(fn))(state(37)))
