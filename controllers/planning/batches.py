"""Batches of plans, of which each computes what it needs, to the same bits as alone.

`jax.vmap` of a loop repeats all of a batch until the last has ended, and of a choice computes both
for all. Of a thousand plans half end after seven rounds and the last after a hundred; and most are
content with the first step that they try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap

from fraxenv.errors import is_concrete

TOGETHER = 128
"""Side by side: what a round makes of so many stays in the processor's cache."""

SHARE, FEWEST = 2, 32
"""Once no more than one in so many go on, they go on alone, unless they were as few before."""


def while_running(
    running: Callable[[Any], Array], again: Callable[[Any, Any], Any], given: Any, start: Any
) -> Any:
    """`while running(state): state = again(given, state)`.

    A batch's last go on in smaller batches.

    Args:
        running: () bool of a state.
        again: the next state; pure.
        given: a pytree that stays as it is.
        start: a pytree of arrays.
    """
    traced, whole = _constants_apart(given)

    @jax.jit
    def once(traced: list[Any], state: Any) -> Any:
        return again(whole(traced), state)

    @custom_vmap
    def loop(traced: list[Any], state: Any) -> Any:
        return jax.lax.while_loop(running, lambda x: once(traced, x), state)

    @loop.def_vmap
    def _(size: int, batched: Any, traced: list[Any], state: Any) -> tuple[Any, Any]:
        own, merge = _own_apart(batched[0], traced)

        def step(own: list[Any], state: Any) -> Any:
            new = once(merge(own), state)
            return jax.tree.map(lambda x, y: jnp.where(running(state), x, y), new, state)

        end = _together(running, step, own, _spread(state, batched[1], size), size)
        return end, _all(end)

    return loop(traced, start)


def for_some(needed: Array, fn: Callable[[Any], Any], given: Any, otherwise: Any) -> Any:
    """`fn(given) if needed else otherwise`: of a batch, for those that need it.

    Args:
        needed: () bool.
        fn: pure.
        given: a pytree.
        otherwise: as `fn` returns it.
    """
    traced, whole = _constants_apart(given)

    @custom_vmap
    def choice(needed: Array, traced: list[Any], otherwise: Any) -> Any:
        return jax.lax.cond(needed, lambda: fn(whole(traced)), lambda: otherwise)

    @choice.def_vmap
    def _(
        size: int, batched: Any, needed: Array, traced: list[Any], otherwise: Any
    ) -> tuple[Any, Any]:
        own, merge = _own_apart(batched[1], traced)
        needed, known = _spread((needed, otherwise), (batched[0], batched[2]), size)
        few = min(size, FEWEST)
        order, count = jnp.argsort(~needed, stable=True), jnp.sum(needed)

        def one(own: list[Any]) -> Any:
            return fn(whole(merge(own)))

        def round_of(at: tuple[Array, Any]) -> tuple[Array, Any]:
            begin, known = at
            # Of the last few some may be computed twice, or in vain.
            these = jax.lax.dynamic_slice(order, (begin,), (few,))
            new = jax.vmap(one)([x[these] for x in own])

            def placed(x: Array, y: Array) -> Array:
                wanted = needed[these].reshape(-1, *[1] * (y.ndim - 1))
                return x.at[these].set(jnp.where(wanted, y, x[these]))

            return begin + few, jax.tree.map(placed, known, new)

        zero = jnp.zeros_like(count)
        end = jax.lax.while_loop(lambda at: at[0] < count, round_of, (zero, known))[1]
        return end, _all(end)

    return choice(needed, traced, otherwise)


def alone_or_many(one: Callable[[Any], Any], many: Callable[[Any], Any], given: Any) -> Any:
    """`one(given)`, or in a batch `many(given)`, which is to be the same where it matters.

    Args:
        one: pure.
        many: pure, of one as well.
        given: a pytree.
    """
    traced, whole = _constants_apart(given)

    @custom_vmap
    def choice(traced: list[Any]) -> Any:
        return one(whole(traced))

    @choice.def_vmap
    def _(size: int, batched: Any, traced: list[Any]) -> tuple[Any, Any]:
        own, merge = _own_apart(batched[0], traced)
        end = jax.vmap(lambda own: many(whole(merge(own))), axis_size=size)(own)
        return end, _all(end)

    return choice(traced)


def _together(
    running: Callable[[Any], Array],
    step: Callable[[list[Any], Any], Any],
    own: Any,
    states: Any,
    size: int,
) -> Any:
    few = size // SHARE if size > FEWEST else 0
    still = jax.vmap(running)

    def each(states: Any) -> Any:
        together = min(size, TOGETHER)
        return jax.lax.map(lambda at: step(*at), (own, states), batch_size=together)

    states = jax.lax.while_loop(lambda x: jnp.sum(still(x)) > few, each, states)
    if not few:
        return states
    last = jnp.argsort(~still(states), stable=True)[:few]
    theirs, begun = jax.tree.map(lambda x: x[last], (own, states))
    ends = _together(running, step, theirs, begun, few)
    return jax.tree.map(lambda x, y: x.at[last].set(y), states, ends)


def _constants_apart(given: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """What is traced, and what makes the whole of it: kernels are made of constants."""
    leaves, form = jax.tree.flatten(given)
    known = [is_concrete(x) for x in leaves]

    def whole(traced: list[Any]) -> Any:
        rest = iter(traced)
        all_ = [x if k else next(rest) for x, k in zip(leaves, known, strict=True)]
        return jax.tree.unflatten(form, all_)

    return [x for x, k in zip(leaves, known, strict=True) if not k], whole


def _own_apart(
    batched: list[bool], traced: list[Any]
) -> tuple[list[Any], Callable[[list[Any]], list[Any]]]:
    """What each of a batch has of its own, and what merges it with what all have."""
    same = [x for x, b in zip(traced, batched, strict=True) if not b]
    own = [x for x, b in zip(traced, batched, strict=True) if b]

    def merge(own: list[Any]) -> list[Any]:
        of_all, of_one = iter(same), iter(own)
        return [next(of_one) if b else next(of_all) for b in batched]

    return own, merge


def _spread(x: Any, batched: Any, size: int) -> Any:
    """With an axis for the batch wherever there is none."""

    def spread(x: Array, already: bool) -> Array:
        return x if already else jnp.broadcast_to(x, (size, *jnp.shape(x)))

    return jax.tree.map(spread, x, batched)


def _all(x: Any) -> Any:
    return jax.tree.map(lambda _: True, x)
