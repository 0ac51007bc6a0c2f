"""Functions traced for one environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr_consts


class Traced:
    """A function as a jaxpr for one environment.

    Attributes:
        name: of the function.
        jaxpr: its equations for one environment.
        operands: abstract values of its operands: outer values it closes over, then arguments.
        results: abstract values of its results.
        effects: of its equations.
        known: numbers that it closes over; None for each outer value.
        collective: whether it computes across a named axis, environments for example.
        kernels: its kernels so far, by batched operands, backend and platform.
        derivatives: its derivatives so far; see `derivatives`.
        times: how much longer than others a program of it may be.
    """

    jaxpr: Any
    known: Sequence[Any]
    times = 1

    def __init__(self, name: str, closed: Any, out_tree: Any) -> None:
        self.name, self.jaxpr = name, closed.jaxpr
        # Numbers become part of the kernel; what another transformation traces stays an operand.
        self._outer = [isinstance(c, jax.core.Tracer) for c in closed.consts]
        self.known = [None if o else c for c, o in zip(closed.consts, self._outer, strict=True)]
        self._tree = out_tree
        variables = [v for v, o in zip(self.jaxpr.constvars, self._outer, strict=True) if o]
        self.operands = [v.aval for v in (*variables, *self.jaxpr.invars)]
        self.results = [v.aval for v in self.jaxpr.outvars]
        self.effects = self.jaxpr.effects
        self.collective = "NamedAxisEffect" in {type(e).__name__ for e in self.effects}
        self.kernels: dict[Any, Any] = {}
        self.derivatives: dict[Any, Any] = {}

    def numbers(self, batched: Sequence[bool]) -> int:
        """How many there are of each environment, operands and results."""
        own = [a for a, b in zip(self.operands, batched, strict=True) if b]
        return sum(math.prod(a.shape) for a in (*own, *self.results))

    def unflatten(self, results: Sequence[Array]) -> Any:
        """The function's result from its leaves."""
        return jax.tree.unflatten(self._tree, results)

    def consts(self, operands: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        """All constants, and the arguments, from the operands."""
        outer = iter(operands)
        consts = [next(outer) if o else c for c, o in zip(self.known, self._outer, strict=True)]
        return consts, list(outer)

    def __call__(self, *operands: Any) -> list[Array]:
        """Run the equations as they are."""
        consts, args = self.consts(operands)
        return jax.core.eval_jaxpr(self.jaxpr, consts, *args)

    def inlined(self, *operands: Any) -> list[Array]:
        """The same, with the equations of fused functions that it calls in place of their calls.

        A derivative of such a call computes it again: for what calls it, that is twice.
        """
        consts, args = self.consts(operands)
        return _run_inlined(self.jaxpr, consts, args)

    def vmapped(self, batched: Sequence[bool], size: int) -> Callable[..., list[Array]]:
        """The function of a batch, by JAX's own `vmap`."""
        return jax.vmap(self, in_axes=[0 if b else None for b in batched], axis_size=size)


def trace(fn: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Traced, list[Any]]:
    """A function traced for one environment's arguments, and its operands."""
    flat, tree = jax.tree.flatten((args, kwargs))

    def flattened(*leaves: Any) -> Any:
        a, k = jax.tree.unflatten(tree, leaves)
        return fn(*a, **k)

    closed, shape = jax.make_jaxpr(flattened, return_shape=True)(*flat)
    closed = _needed(closed)
    name = getattr(fn, "__name__", type(fn).__name__)
    traced = Traced(name, closed, jax.tree.structure(shape))
    outer = [c for c in closed.consts if isinstance(c, jax.core.Tracer)]
    return traced, [*outer, *flat]


def _needed(closed: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """Without what no result needs, which would be evaluated in vain: of derivatives, most."""
    jaxpr = closed.jaxpr
    kept = [False] * len(jaxpr.constvars) + [True] * len(jaxpr.invars)
    jaxpr, used, _ = dce_jaxpr_consts(jaxpr, [True] * len(jaxpr.outvars), kept)
    return core.ClosedJaxpr(jaxpr, [c for c, u in zip(closed.consts, used, strict=True) if u])


def _run_inlined(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        operands = [value(x) for x in equation.invars]
        if _is_single_call(equation):
            results = equation.params["call"].traced.inlined(*operands)
        elif _calls_fused(equation):
            inner = equation.params["jaxpr"]
            results = _run_inlined(inner.jaxpr, inner.consts, operands)
        else:
            results = bind_equation(equation, operands)
        values.update(zip(equation.outvars, results, strict=True))
    return [value(x) for x in jaxpr.outvars]


def _is_single_call(equation: Any) -> bool:
    """Whether it calls a fused function for one environment."""
    return equation.primitive.name == "fused" and equation.params["call"].size is None


def _calls_fused(equation: Any) -> bool:
    """Whether it is a call under `jit` with such a call in it."""
    if equation.primitive.name not in ("jit", "pjit"):
        return False
    return any(_is_single_call(e) or _calls_fused(e) for e in equation.params["jaxpr"].jaxpr.eqns)


def bind_equation(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """An equation's primitive, on other operands."""
    primitive = equation.primitive
    made = primitive.get_bind_params(equation.params)
    functions, params = made if isinstance(made, tuple) else ((), made)  # a pair in older JAX
    with equation.ctx.manager:
        result = primitive.bind(*functions, *operands, **params)
    return list(result) if primitive.multiple_results else [result]


def scan_counts(params: Any) -> tuple[int, int]:
    """How many operands of a scan are constants, and how many are carried, by its parameters."""
    if "ft_in" in params:  # JAX 0.11 and newer
        constants, carried, _ = map(len, params["ft_in"].unpack())
        return constants, carried
    return params["num_consts"], params["num_carry"]
