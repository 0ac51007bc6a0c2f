"""Gradients that stay finite: one that is not must not spoil those of all other environments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from fraxenv.dynamics.math.tracing import traced_once

from .state import EnvParams, EnvState


def with_finite_gradients(
    state: EnvState, action: Array, params: EnvParams
) -> tuple[EnvState, Array, EnvParams]:
    """The same, whose gradient in reverse mode is zero where it would not be finite.

    It is zero as a whole, and the derivative by `params.lost_gradients` counts that. Derivatives in
    forward mode are what they are.

    Args:
        state: of one environment.
        action: of its policy step.
        params: of the environment.
    """
    inputs = state, action, params.replace(lost_gradients=None)
    leaves, tree = jax.tree.flatten(inputs)
    floats = [jnp.issubdtype(jnp.result_type(x), jnp.inexact) for x in leaves]
    moving = [jnp.asarray(x) for x, f in zip(leaves, floats, strict=True) if f]
    lost = params.lost_gradients
    counter, passed = _passed(None if lost is None else jnp.asarray(lost), moving)
    rest = iter(passed)
    leaves = [next(rest) if f else x for x, f in zip(leaves, floats, strict=True)]
    state, action, params = jax.tree.unflatten(tree, leaves)
    return state, action, params.replace(lost_gradients=counter)


def _identity(values: list[Array], counts: bool) -> list[Array]:
    """The values; transposed, weights, all zero if one is not finite, which the last one counts.

    It is the solution of a linear equation, whose transpose is ours to say.
    """
    solved: list[Array] = jax.lax.custom_linear_solve(
        lambda x: x, values, lambda _, b: b, transpose_solve=lambda _, w: _finite(w, counts)
    )
    return solved


@traced_once
def _finite(weights: list[Array], counts: bool) -> list[Array]:
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(w)) for w in weights]))
    kept = [jnp.where(finite, w, jnp.zeros_like(w)) for w in weights]
    if counts:
        kept[-1] += (~finite).astype(kept[-1].dtype)
    return kept


@jax.custom_jvp
def _passed(lost: Array | None, values: list[Array]) -> tuple[Array | None, list[Array]]:
    # Not as they are: batched they have to be together, like their tangents.
    if lost is None:
        return None, _identity(values, counts=False)
    *passed, counter = _identity([*values, lost], counts=True)
    return counter, passed


def _push(primals: Any, tangents: Any) -> Any:
    counter, directions = tangents
    counted = counter is not None and not isinstance(counter, SymbolicZero)
    moving = [k for k, t in enumerate(directions) if not isinstance(t, SymbolicZero)]
    passed = iter(_identity([directions[k] for k in moving] + [counter] * counted, counted))
    directions = [next(passed) if k in moving else t for k, t in enumerate(directions)]
    return _passed(*primals), (next(passed) if counted else counter, directions)


_passed.defjvp(_push, symbolic_zeros=True)
