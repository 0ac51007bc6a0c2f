"""Functions traced for one environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax


class Traced:
    """A function as a jaxpr for one environment.

    Attributes:
        name: of the function.
        jaxpr: its equations for one environment.
        operands: abstract values of its operands: outer values it closes over, then arguments.
        known: numbers that it closes over; None for each outer value.
        collective: whether it computes across a named axis, environments for example.
        kernels: its kernels so far, by batched operands and backend.
    """

    def __init__(self, name: str, closed: Any, out_tree: Any) -> None:
        self.name, self.jaxpr = name, closed.jaxpr
        # Numbers become part of the kernel; what another transformation traces stays an operand.
        self._outer = [isinstance(c, jax.core.Tracer) for c in closed.consts]
        self.known = [None if o else c for c, o in zip(closed.consts, self._outer, strict=True)]
        self._tree = out_tree
        variables = [v for v, o in zip(self.jaxpr.constvars, self._outer, strict=True) if o]
        self.operands = [v.aval for v in (*variables, *self.jaxpr.invars)]
        effects = {type(e).__name__ for e in self.jaxpr.effects}
        self.collective = "NamedAxisEffect" in effects
        self.kernels: dict[Any, Any] = {}

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


def trace(fn: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Traced, list[Any]]:
    """A function traced for one environment's arguments, and its operands."""
    flat, tree = jax.tree.flatten((args, kwargs))

    def flattened(*leaves: Any) -> Any:
        a, k = jax.tree.unflatten(tree, leaves)
        return fn(*a, **k)

    closed, shape = jax.make_jaxpr(flattened, return_shape=True)(*flat)
    name = getattr(fn, "__name__", type(fn).__name__)
    traced = Traced(name, closed, jax.tree.structure(shape))
    outer = [c for c in closed.consts if isinstance(c, jax.core.Tracer)]
    return traced, [_made_by_jax(x) for x in (*outer, *flat)]


def _made_by_jax(x: Any) -> Any:
    """The same, of an operation: `custom_jvp` under `vmap` and `jit` refuses NumPy's arrays."""
    if not isinstance(x, jax.core.Tracer):
        return x
    return lax.squeeze(lax.expand_dims(x, (0,)), (0,))
