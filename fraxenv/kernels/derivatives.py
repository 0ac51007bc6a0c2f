"""Derivatives of traced functions, as traced functions: what a kernel is made of again.

A tangent function carries directions forwards, a cotangent function carries weights of the results
back. Both are functions of one environment, and computed from its operands alone: nothing else is
kept between the two.

Source: Griewank and Walther, "Evaluating Derivatives", 2008, chapter 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend import core

from .traced import Traced

Flags = tuple[bool, ...]


def is_differentiable(aval: Any) -> bool:
    """Whether there are directions in which a value moves: whether it is a float."""
    return bool(jnp.issubdtype(aval.dtype, jnp.inexact))


def tangent(traced: Traced, along: Flags) -> Tangent:
    """How a function's results move with some of its operands, which are floats."""
    key = ("tangent", along)
    if key not in traced.derivatives:
        traced.derivatives[key] = Tangent(traced, along)
    found: Tangent = traced.derivatives[key]
    return found


def cotangent(traced: Traced, of: Flags, by: Flags) -> Cotangent:
    """What some operands weigh if some results have weights.

    Args:
        traced: the function.
        of: whether each result has a weight; those that do are floats.
        by: whether each operand's is asked for.

    Returns:
        a function of the operands, then of the weights, to those that are asked for.
    """
    key = ("cotangent", of, by)
    if key not in traced.derivatives:
        traced.derivatives[key] = Cotangent(traced, of, by)
    found: Cotangent = traced.derivatives[key]
    return found


class Derivative(Traced, ABC):
    """A derivative of a traced function, which is traced when its equations are asked for.

    For a gradient tangents never are, and nothing is where the kernel is in the cache.

    Attributes:
        function: what it is the derivative of.
        flags: by what, and of what.
    """

    # JAX's own derivative in place of it would take as long to compile, and far longer to run.
    times = 4

    def __init__(
        self,
        function: Traced,
        flags: tuple[Flags, ...],
        operands: Sequence[Any],
        results: Sequence[Any],
    ) -> None:
        self.function, self.flags = function, flags
        self.name = f"{type(self).__name__.lower()} of {function.name}"
        self.operands = list(operands)
        self.results = [a.update(weak_type=False) for a in results]
        self.effects, self.collective = core.no_effects, False
        self.kernels, self.derivatives = {}, {}

    @abstractmethod
    def _computed(self, *values: Array) -> list[Array]:
        """The results of the operands, by JAX's own derivative."""

    @cached_property
    def _closed(self) -> Any:
        return jax.make_jaxpr(self._computed)(
            *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self.operands)
        )

    @property
    def jaxpr(self) -> Any:
        """Its equations."""
        return self._closed.jaxpr

    @property
    def known(self) -> Sequence[Any]:  # type: ignore[override]
        """The numbers that it closes over."""
        return self._closed.consts  # type: ignore[no-any-return]

    def consts(self, operands: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        """All constants, and the arguments, from the operands."""
        return list(self.known), operands


class Tangent(Derivative):
    """A function of the operands of another, then of the directions of those that move.

    Attributes:
        along: whether each of its operands moves.
        moves: whether each of its results moves; those that do are the results here.
    """

    def __init__(self, function: Traced, along: Flags) -> None:
        self.along, self.moves = along, _moves(function, along)
        operands = [*function.operands, *_chosen(function.operands, along)]
        results = _chosen(function.results, self.moves)
        super().__init__(function, (along, self.moves), operands, results)

    def _computed(self, *values: Array) -> list[Array]:
        count = len(self.along)
        primals, directions = values[:count], values[count:]

        def of_moving(*xs: Array) -> list[Array]:
            results = self.function.inlined(*_filled(primals, self.along, xs))
            return _chosen(results, self.moves)

        return list(jax.jvp(of_moving, _chosen(primals, self.along), list(directions))[1])


class Cotangent(Derivative):
    """A function of the operands of another, then of weights of its results.

    Attributes:
        of: whether each of its results has a weight.
        by: whether each of its operands' weight is a result here.
        calls: which operands are batched, and the backend, of each call for a batch so far.
    """

    def __init__(self, function: Traced, of: Flags, by: Flags) -> None:
        self.of, self.by = of, by
        self.calls: set[tuple[Flags, str]] = set()
        operands = [*function.operands, *_chosen(function.results, of)]
        results = _chosen(function.operands, by)
        super().__init__(function, (of, by), operands, results)

    def _computed(self, *values: Array) -> list[Array]:
        count = len(self.by)
        primals, weights = values[:count], values[count:]

        def of_asked(*xs: Array) -> list[Array]:
            return _chosen(self.function.inlined(*_filled(primals, self.by, xs)), self.of)

        return list(jax.vjp(of_asked, *_chosen(primals, self.by))[1](list(weights)))


def _chosen(values: Sequence[Any], flags: Flags) -> list[Any]:
    return [x for x, f in zip(values, flags, strict=True) if f]


def _filled(values: Sequence[Any], flags: Flags, new: Sequence[Any]) -> list[Any]:
    """The values with new ones where flagged."""
    following = iter(new)
    return [next(following) if f else x for x, f in zip(values, flags, strict=True)]


def _moves(traced: Traced, along: Flags) -> Flags:
    """Whether each result moves with some operands, as far as the equations tell."""
    consts, args = traced.consts(along)
    return _moving(traced.jaxpr, [c is True for c in consts], args)


def _moving(jaxpr: Any, consts: Sequence[bool], args: Sequence[bool]) -> Flags:
    pairs = zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True)
    found = {variable for variable, moves in pairs if moves}
    for equation in jaxpr.eqns:
        flags = tuple(not isinstance(x, core.Literal) and x in found for x in equation.invars)
        if not any(flags) or equation.primitive.name == "stop_gradient":
            continue
        results = [True] * len(equation.outvars)
        if equation.primitive.name in ("jit", "pjit"):
            inner = equation.params["jaxpr"]
            results = list(_moving(inner.jaxpr, [False] * len(inner.consts), flags))
        elif equation.primitive.name == "fused":
            results = list(_moves(equation.params["call"].traced, flags))
        found.update(
            v
            for v, moves in zip(equation.outvars, results, strict=True)
            if moves and is_differentiable(v.aval)
        )
    return tuple(not isinstance(x, core.Literal) and x in found for x in jaxpr.outvars)
