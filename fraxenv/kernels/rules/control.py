"""Control flow: branches and loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..buffer import is_key
from ..errors import TooLongError, UnsupportedError
from ..evaluator import Evaluator
from ..program import BOOL, Id, IdArray
from ..traced import scan_counts
from .registry import rule

UNROLL_ROUNDS = 64
"""Rounds of the longest loop that is unrolled."""

UNROLL_OPERATIONS = 16_000
"""Operations of the longest loop that is unrolled, all rounds together."""

LONG_BRANCH = 64
"""Operations of the longest branch that is computed even where no lane takes it."""


@rule("cond")
def _cond(ev: Evaluator, equation: Any, index: IdArray, *xs: IdArray) -> list[IdArray]:
    branches = equation.params["branches"]
    number = ev.program.number(int(index))
    if number is not None:
        return ev.closed(branches[int(np.clip(int(number), 0, len(branches) - 1))], xs)
    if ev.dtype(int(index)) == BOOL:
        index = ev.map("convert", index, dtype=np.dtype(np.int32))
    chosen: list[IdArray] | None = None
    for k, branch in enumerate(branches):
        last = k == len(branches) - 1
        here = ev.map(
            "ge" if last and k else "le" if k == 0 else "eq",
            index,
            ev.full((), k, ev.dtype(int(index))),
        )
        chosen = _branch(ev, branch, xs, here, chosen)
    assert chosen is not None
    return chosen


def _branch(
    ev: Evaluator,
    branch: Any,
    xs: Sequence[IdArray],
    here: IdArray,
    otherwise: list[IdArray] | None,
) -> list[IdArray]:
    """A branch's results where it is taken, `otherwise` elsewhere.

    A long branch is computed only if some lane takes it: it is a loop that ends after one round.
    """
    program, outer = ev.program, ev.scope
    if otherwise is None:
        avals = [v.aval for v in branch.jaxpr.outvars]
        if any(is_key(a) for a in avals):
            return ev.closed(branch, xs)
        initial = [ev.full(a.shape, 0, a.dtype) for a in avals]
    else:
        initial = otherwise
    index, carried, _ = program.open_loop(None, [int(here), *_pack(initial)], outer)
    ev.scope = program.loops[index].scope
    flag, now = np.array(carried[0]), _unpack(carried[1:], initial)
    following, ended = list(carried), program.constant(False, BOOL)
    inside = [
        np.array([program.pin(ev.scope, i) for i in x.ravel().tolist()], int).reshape(x.shape)
        for x in xs
    ]
    began, long = len(program.ops), True
    try:
        results = ev.closed(branch, inside)
        long = len(program.ops) - began > LONG_BRANCH
        chosen = [ev.map("select", flag, a, b) for a, b in zip(results, now, strict=True)]
        following = [ended, *_pack(chosen)]
    except UnsupportedError:
        long = False
    finally:
        ev.scope = outer
    finals, _ = program.close_loop(index, following, condition=int(flag))
    if long:
        return _unpack(finals[1:], initial)
    results = ev.closed(branch, xs)
    if otherwise is None:
        return results
    return [ev.map("select", here, a, b) for a, b in zip(results, otherwise, strict=True)]


def _unpack(flat: Sequence[Id], like: Sequence[IdArray]) -> list[IdArray]:
    """Arrays of the shapes of `like` from all their values in a row."""
    ends = np.cumsum([x.size for x in like])
    parts = np.split(np.array(flat, int), ends)[:-1]
    return [part.reshape(x.shape) for part, x in zip(parts, like, strict=True)]


def _pack(arrays: Sequence[IdArray]) -> list[Id]:
    return [v for x in arrays for v in x.ravel().tolist()]


def _unrolled(
    ev: Evaluator,
    equation: Any,
    consts: Sequence[IdArray],
    carry: list[IdArray],
    scanned: Sequence[IdArray],
) -> list[IdArray]:
    """A scan's results, round by round."""
    p = equation.params
    n, reverse = len(carry), p["reverse"]
    outputs = equation.outvars[n:]
    stacked: list[list[IdArray]] = [[] for _ in outputs]
    for k in range(p["length"] - 1, -1, -1) if reverse else range(p["length"]):
        rows = (x[k, ...] for x in scanned)
        results = list(map(ev.values, ev.closed(p["jaxpr"], (*consts, *carry, *rows))))
        carry = results[:n]
        for kept, row in zip(stacked, results[n:], strict=True):
            kept.append(row)
    ys = [
        np.stack(kept[::-1] if reverse else kept) if kept else np.zeros(v.aval.shape, int)
        for kept, v in zip(stacked, outputs, strict=True)
    ]
    return [*carry, *ys]


@rule("scan")
def _scan(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    p = equation.params
    body, length, reverse = p["jaxpr"], p["length"], p["reverse"]
    constants, n = scan_counts(p)
    consts, rest = xs[:constants], xs[constants:]
    carry, scanned = list(map(ev.values, rest[:n])), rest[n:]
    if length <= 1:
        return _unrolled(ev, equation, consts, carry, scanned)
    if length <= UNROLL_ROUNDS:
        # What many rounds leave is known only by trying: most of it may fold.
        enough = ev.program.room() >= UNROLL_OPERATIONS
        try:
            with ev.transaction(UNROLL_OPERATIONS):
                return _unrolled(ev, equation, consts, carry, scanned)
        except TooLongError:
            if not enough:  # a loop around it is tried, which is too long itself
                raise

    program, outer = ev.program, ev.scope
    index, carried, counter = program.open_loop(length, _pack(carry), outer)
    ev.scope = program.loops[index].scope
    try:
        place = counter
        if reverse:
            place = program.apply("sub", program.constant(length - 1, np.dtype(np.int32)), counter)
        rows = [ev.row(place, x) for x in scanned]
        results = ev.closed(body, (*consts, *_unpack(carried, carry), *rows))
        results = list(map(ev.values, results))
    finally:
        ev.scope = outer
    new, ys = results[:n], results[n:]
    finals, rounds = program.close_loop(index, _pack(new), _pack(ys))
    ends = np.cumsum([y.size for y in ys])[:-1]
    stacked_ids = np.array(rounds, int).reshape(-1, length)
    if reverse:
        stacked_ids = stacked_ids[:, ::-1]
    parts = np.split(stacked_ids, ends) if ys else []
    return [
        *_unpack(finals, carry),
        *(part.T.reshape(length, *y.shape) for part, y in zip(parts, ys, strict=True)),
    ]


@rule("while")
def _while(ev: Evaluator, equation: Any, *xs: IdArray) -> list[IdArray]:
    p = equation.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    cond_consts, body_consts, carry = xs[:nc], xs[nc : nc + nb], list(xs[nc + nb :])

    began = len(ev.program.ops)
    for rounds in itertools.count():
        (running,) = ev.closed(p["cond_jaxpr"], (*cond_consts, *carry))
        number = ev.program.number(int(running))
        if number is None:
            break
        if not number:
            return carry
        if rounds >= UNROLL_ROUNDS or len(ev.program.ops) - began > UNROLL_OPERATIONS:
            raise UnsupportedError(f"'while' with more than {rounds} rounds that are known")
        carry = ev.closed(p["body_jaxpr"], (*body_consts, *carry))

    program, outer = ev.program, ev.scope
    index, carried, _ = program.open_loop(None, _pack(carry), outer)
    ev.scope = program.loops[index].scope
    try:
        now = _unpack(carried, carry)
        (running,) = ev.closed(p["cond_jaxpr"], (*cond_consts, *now))
        after = ev.closed(p["body_jaxpr"], (*body_consts, *now))
        # A lane that has ended waits for the others.
        following = [ev.map("select", running, a, b) for a, b in zip(after, now, strict=True)]
    finally:
        ev.scope = outer
    finals, _ = program.close_loop(index, _pack(following), condition=int(running))
    return _unpack(finals, carry)
