"""Calls of functions, and functions with rules of their own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from ..errors import UnsupportedError
from ..evaluator import Evaluator, Ids
from ..program import IdArray
from . import control  # noqa: F401 (its loops are of one predicate)
from .registry import RULES, rule


@rule(
    "jit", "pjit", "closed_call", "core_call", "eval_jaxpr", "remat2", "checkpoint",
    "custom_vmap_call",
)  # fmt: skip
def _call(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    p = equation.params
    inner = p.get("jaxpr") or p.get("call_jaxpr") or p.get("call")
    if hasattr(inner, "consts"):
        return ev.closed(inner, xs)
    return ev.run(inner, (), xs)


@rule("fused")
def _fused(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    """Within a kernel there is no kernel of its own."""
    call = equation.params["call"]
    traced = call.traced
    if call.size is None:
        consts, args = traced.consts([x if isinstance(x, Ids) else x.view(Ids) for x in xs])
        return ev.run(traced.jaxpr, consts, args)
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    return ev.closed(jax.make_jaxpr(traced.vmapped(call.batched, call.size))(*shapes), xs)


@rule("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def _custom_derivative(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    inner = equation.params.get("call_jaxpr") or equation.params["fun_jaxpr"]
    return ev.closed(inner, xs)


@rule("custom_linear_solve")
def _custom_linear_solve(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    lengths = equation.params["const_lengths"]
    skipped = lengths.matvec + lengths.vecmat
    constants = xs[skipped : skipped + lengths.solve]
    rhs = xs[sum(lengths) :]
    return ev.closed(equation.params["jaxprs"].solve, (*constants, *rhs))


@rule("platform_index")
def _platform_index(ev: Evaluator, equation: Any) -> IdArray:
    aliases = {"gpu": ("gpu", "cuda", "rocm")}.get(ev.platform, (ev.platform,))
    for k, names in enumerate(equation.params["platforms"]):
        if names is None or any(a in names for a in aliases):
            return ev.full((), k, np.int32)
    raise UnsupportedError(f"'platform_index' without an entry for {ev.platform!r}")


_while_of_one = RULES["while"]


@rule("while")
def _while(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    """A loop of which an inner `vmap` has made many: as long as one of them is running."""
    p = equation.params
    if not p["cond_jaxpr"].out_avals[0].shape:
        results: list[IdArray] = _while_of_one(ev, equation, *xs)
        return results
    condition, body = map(core.jaxpr_as_fun, (p["cond_jaxpr"], p["body_jaxpr"]))
    nc, nb = p["cond_nconsts"], p["body_nconsts"]

    def loop(*operands: Any) -> Any:
        cond_consts, body_consts = operands[:nc], operands[nc : nc + nb]

        def running(carry: Any) -> Any:
            return condition(*cond_consts, *carry)[0]

        def advanced(carry: Any) -> Any:
            going, after = running(carry), body(*body_consts, *carry)
            return tuple(
                jnp.where(lax.expand_dims(going, range(going.ndim, x.ndim)), y, x)
                for x, y in zip(carry, after, strict=True)
            )

        return lax.while_loop(lambda c: running(c).any(), advanced, tuple(operands[nc + nb :]))

    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    return ev.closed(jax.make_jaxpr(loop)(*shapes), xs)
