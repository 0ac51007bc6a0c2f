"""The portable executor: the scalar program as elementwise JAX operations on whole batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .buffer import Buffer
from .ops import OPERATIONS
from .program import Id, IdArray, Program, live_values


def run_program(
    program: Program, outputs: Sequence[Id], read: Callable[[int, int], Array], shape: Any
) -> dict[Id, Array]:
    """Compute a program with JAX operations.

    Args:
        program: the program.
        outputs: the values that are wanted.
        read: gives an element of an input buffer for all lanes.
        shape: of the lanes, to which loops' carried values are broadcast.
    """
    alive = live_values(program, outputs)
    by_scope: dict[int, list[Id]] = {}
    for i in np.flatnonzero(alive).tolist():
        by_scope.setdefault(program.scopes[i], []).append(i)
    values: dict[Id, Any] = {}

    def value(x: Id) -> Any:
        if program.ops[x] == "constant":
            return program.attributes[x]
        return values[x]

    def broadcast(x: Id) -> Array:
        return jnp.broadcast_to(jnp.asarray(value(x), program.dtypes[x]), shape)

    def loop(index: int) -> None:
        p = program.loops[index]
        carried = [k for k, c in enumerate(p.carries) if alive[c]]
        kept = [k for k in range(len(p.following)) if _needed(program, alive, index, k)]
        stacked = [j for j, x in enumerate(p.stacked) if alive[x]]
        outer = dict(values)

        def body(i: Any, state: Any) -> Any:
            now, _, rounds, _ = state
            values.clear()
            values.update(outer)
            values[p.counter] = i
            for k, x in zip(carried, now, strict=True):
                values[p.carries[k]] = x
            scope(p.scope)
            rounds = [
                lax.dynamic_update_index_in_dim(r, broadcast(p.stacked[j]), i, 0)
                for r, j in zip(rounds, stacked, strict=True)
            ]
            # Not `any`, which Triton does not have.
            going = jnp.int32(1) if p.condition is None else jnp.max(jnp.int32(value(p.condition)))
            return (
                [broadcast(p.following[k]) for k in carried],
                [broadcast(p.following[k]) for k in kept],
                rounds,
                going,
            )

        start = (
            [broadcast(p.initial[k]) for k in carried],
            [jnp.zeros(shape, program.dtypes[p.following[k]]) for k in kept],
            [jnp.zeros((p.count or 0, *shape), program.dtypes[p.stacked[j]]) for j in stacked],
            jnp.int32(1),
        )
        if p.condition is None:
            _, finals, rounds, _ = lax.fori_loop(0, p.count, body, start)
        else:
            _, (_, finals, rounds, _) = lax.while_loop(
                lambda c: c[1][3] > 0,
                lambda c: (c[0] + 1, body(c[0], c[1])),
                (jnp.zeros((), jnp.int32), start),
            )
        values.clear()
        values.update(outer)
        for k, x in zip(kept, finals, strict=True):
            values[("final", index, k)] = x  # type: ignore[index]
        for j, x in zip(stacked, rounds, strict=True):
            values[("round", index, j)] = x  # type: ignore[index]

    def scope(number: int) -> None:
        for i in by_scope.get(number, ()):
            op, args, attribute = program.ops[i], program.args[i], program.attributes[i]
            dtype = program.dtypes[i]
            if op in ("constant", "carry", "counter"):
                continue
            if op == "input":
                values[i] = read(*attribute)
            elif op == "loop":
                loop(attribute)
            elif op == "pin":
                values[i] = value(args[0])
            elif op == "final":
                values[i] = values[("final", *attribute)]  # type: ignore[index]
            elif op == "round":
                index, j, t = attribute
                values[i] = values[("round", index, j)][t]  # type: ignore[index]
            elif op == "lookup":
                at, *rows = args
                table = jnp.stack([broadcast(r) for r in rows])
                values[i] = lax.dynamic_index_in_dim(table, value(at), 0, keepdims=False)
            elif op == "select":
                c, a, b = (broadcast(x) for x in args)
                values[i] = lax.select(c, a, b)
            elif OPERATIONS[op].cast:
                values[i] = _compute(op, value(args[0]), dtype)
            else:
                # Constants are broadcast only where both sides are needed as arrays.
                operands = jnp.broadcast_arrays(
                    *(jnp.asarray(value(x), program.dtypes[x]) for x in args)
                )
                values[i] = _compute(op, *operands)

    scope(0)
    return {x: broadcast(x) for x in outputs}


def _compute(op: str, *operands: Any) -> Array:
    function = OPERATIONS[op].lax
    assert function is not None, op
    return function(*operands)


def _needed(program: Program, alive: np.ndarray, index: int, k: int) -> bool:
    return any(
        alive[i] and program.ops[i] == "final" and program.attributes[i] == (index, k)
        for i in np.flatnonzero(alive).tolist()
        if program.ops[i] == "final"
    )


def build(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    results: Sequence[Buffer],
    platform: str,
) -> tuple[Callable[..., list[Array]], dict[str, Any]]:
    """The program as a function of batches, on any platform; see `native.executor.build`."""
    wanted = [int(x) for o in outputs for x in o.ravel()]

    def run(size: int, *arrays: Array) -> list[Array]:
        flat = [
            x.reshape(size if b.batched else 1, b.size)
            for x, b in zip(arrays, buffers, strict=False)
        ]
        values = run_program(program, wanted, lambda k, element: flat[k][:, element], (size,))
        return [
            jnp.stack([values[int(x)] for x in o.ravel()], axis=1).reshape(size, *r.shape)
            if o.size
            else jnp.zeros((size, *r.shape), r.dtype)
            for o, r in zip(outputs, results, strict=True)
        ]

    alive = int(live_values(program, wanted).sum())
    return run, {"operations": alive}
