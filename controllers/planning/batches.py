"""Batches of plans, of which each computes what it needs, to the same bits as alone.

`jax.vmap` of a loop repeats all of a batch until the last has ended, and of a choice computes both
for all. Of a thousand plans half end after seven rounds and the last after a hundred; and most are
content with the first step that they try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import custom_vmap

from fraxenv.errors import is_concrete

TOGETHER = 128
"""Side by side: what a round makes of so many stays in the processor's cache."""

SHARE, FEWEST = 2, 32
"""Once no more than one in so many go on, they close up; so many or fewer go on by themselves."""


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


class _Front(NamedTuple):
    """A batch of which the first `span` lanes go on, or went on not long ago.

    Attributes:
        own: what each lane has of its own and keeps.
        states: each lane's state.
        places: (n,) int32, each lane's place in the batch's order.
        ends: the states of lanes that have ended, in the batch's order.
        span: () int32.
    """

    own: Any
    states: Any
    places: Array
    ends: Any
    span: Array


def _together(
    running: Callable[[Any], Array],
    step: Callable[[list[Any], Any], Any],
    own: Any,
    states: Any,
    size: int,
) -> Any:
    """The states after as many steps as each goes on for.

    Lanes that go on close up to the front once they are half of those there. So XLA, which takes
    long over a round, has one of many lanes to compile, and one of the last few.
    """
    groups = -(-size // TOGETHER)
    many = -(-size // groups)
    few, room = min(many, FEWEST), groups * many

    def turn(at: _Front) -> _Front:
        def on(states: Any) -> Array:
            return jax.vmap(running)(states) & (np.arange(room) < at.span)

        def dense(states: Any) -> Array:
            count = jnp.sum(on(states), dtype=jnp.int32)
            return (count > few) & (SHARE * count > at.span)

        def group(k: Array, states: Any) -> Any:
            theirs = jax.vmap(step)(*_read((at.own, states), k * many, many))
            return _written(states, theirs, k * many)

        def round_of(states: Any) -> Any:
            return jax.lax.fori_loop(0, _groups(at.span, many), group, states)

        states = jax.lax.while_loop(dense, round_of, at.states)
        return _closed_up(at._replace(states=states), on(states), many)

    # Where a batch is no whole number of groups, its last lane goes on several times.
    there = np.minimum(np.arange(room, dtype=np.int32), size - 1)
    own, states = jax.tree.map(lambda x: x[there], (own, states))
    begin = _Front(own, states, jnp.asarray(there), states, jnp.full((), room, jnp.int32))
    front = jax.lax.while_loop(lambda at: at.span > few, turn, begin)
    own, states = jax.tree.map(lambda x: x[:few], (front.own, front.states))
    last = jax.lax.while_loop(
        lambda x: jnp.any(jax.vmap(running)(x)), lambda x: jax.vmap(step)(own, x), states
    )
    places = front.places[:few]
    return jax.tree.map(lambda x, y: x.at[places].set(y)[:size], front.ends, last)


def _closed_up(at: _Front, on: Array, many: int) -> _Front:
    """The lanes that are `on` in front, and the states of the others among the ends.

    What is behind the last that goes on is some lane once more, and goes on like that one.
    """
    order, count = jnp.argsort(~on, stable=True), jnp.sum(on, dtype=jnp.int32)

    def keep(k: Array, ends: Any) -> Any:
        ended = order[jnp.minimum(count + k * many + np.arange(many), at.span - 1)]
        return jax.tree.map(lambda x, y: x.at[at.places[ended]].set(y[ended]), ends, at.states)

    def move(k: Array, lanes: Any) -> Any:
        # No lane moves back, so that what is read has not been overwritten.
        these = jax.lax.dynamic_slice_in_dim(order, k * many, many)
        return _written(lanes, jax.tree.map(lambda x: x[these], lanes), k * many)

    ends = jax.lax.fori_loop(0, _groups(at.span - count, many), keep, at.ends)
    lanes = at.own, at.states, at.places
    own, states, places = jax.lax.fori_loop(0, _groups(count, many), move, lanes)
    return _Front(own, states, places, ends, count)


def _groups(lanes: Array, many: int) -> Array:
    """How many groups so many lanes are."""
    return (lanes + many - 1) // many


def _read(lanes: Any, begin: Array, count: int) -> Any:
    return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, begin, count), lanes)


def _written(lanes: Any, new: Any, begin: Array) -> Any:
    return jax.tree.map(
        lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, begin, 0), lanes, new
    )


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
