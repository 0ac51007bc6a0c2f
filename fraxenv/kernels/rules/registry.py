"""A rule for each primitive: how it works on arrays of values.

Rules take the evaluator, the equation and the operands' values, and return the values of the
result (or a list of them). A rule that cannot serve an equation raises `UnsupportedError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}
"""The rule of each primitive, by its name."""

STRUCTURAL = frozenset({
    "broadcast_in_dim", "concatenate", "copy", "copy_p", "dynamic_slice", "dynamic_update_slice",
    "expand_dims", "gather", "optimization_barrier", "reshape", "rev", "select_n", "slice",
    "split", "squeeze", "stack", "stop_gradient", "tile", "transpose", "unstack",
})  # fmt: skip
"""Primitives that only move elements about, and so move typed keys as well."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of some primitives."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def result_dtype(equation: Any) -> np.dtype[Any]:
    """The dtype of an equation's first result; typed keys count as their bits."""
    dtype = equation.outvars[0].aval.dtype
    extended = jnp.issubdtype(dtype, jax.dtypes.extended)
    return np.dtype(np.uint32 if extended else dtype)
