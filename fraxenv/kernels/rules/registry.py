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
    "expand_dims", "gather", "optimization_barrier", "pad", "reshape", "rev", "scatter",
    "select_n", "slice", "split", "squeeze", "stack", "stop_gradient", "tile", "transpose",
    "unstack",
})  # fmt: skip
"""Primitives that only move elements about, and so move typed keys as well."""

CARRYING = STRUCTURAL | {
    "checkpoint", "closed_call", "cond", "core_call", "custom_jvp_call", "custom_linear_solve",
    "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_vmap_call", "fused", "jit", "pcast",
    "pjit", "pvary", "remat2", "reshard", "scan", "sharding_constraint", "while",
}  # fmt: skip
"""Primitives that compute nothing with their operands, whose dtypes may be any."""

HANDING_ON = frozenset({
    "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "expand_dims", "fused", "jit", "pjit", "reshape", "rev", "scan", "slice", "squeeze",
    "transpose",
})  # fmt: skip
"""Primitives whose rules give views of arrays of values, or hand them on as they are."""

COMPUTED = frozenset(
    np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float32", "float64",
    )
)  # fmt: skip
"""The dtypes that kernels compute with; of all others they carry the bits about."""


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
