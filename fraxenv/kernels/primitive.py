"""A call of a traced function as an operation of JAX: batched, it is a kernel.

Its derivatives are such calls again: of the tangent function, and transposed of the cotangent
function. So whatever JAX's transformations make of a program in which it stands, and in whatever
order, in the end there are kernels over batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from .derivatives import Cotangent, Tangent, cotangent, is_differentiable, tangent
from .executors import default_platform
from .kernel import kernel_for
from .sharding import example
from .traced import Traced

fused_p = core.Primitive("fused")
"""Parameters: `call`, what is called; `example`, of `sharding`."""
fused_p.multiple_results = True


@dataclass(frozen=True)
class Call:
    """A call of a traced function.

    Attributes:
        traced: the function.
        backend: of its kernel, resolved.
        batched: whether each operand has the axis of the batch, its first.
        size: of the batch; None for one environment.
    """

    traced: Traced
    backend: str
    batched: tuple[bool, ...]
    size: int | None = None

    def bind(self, operands: Sequence[Any]) -> list[Any]:
        """The call, as an operation of the program that is being traced."""
        if isinstance(self.traced, Cotangent) and self.size is not None:
            self.traced.calls.add((self.batched, self.backend))
        return fused_p.bind(*operands, call=self, example=example())  # type: ignore[no-any-return]


def bind(traced: Traced, backend: str, operands: Sequence[Any]) -> list[Any]:
    """A call for one environment."""
    return Call(traced, backend, (False,) * len(operands)).bind(operands)


def _run(*operands: Any, call: Call, example: Any, platform: str | None = None) -> list[Array]:
    if call.size is None:
        return call.traced(*operands)
    platform = platform or default_platform()
    return kernel_for(call.traced, call.batched, call.backend, platform)(call.size, *operands)


@fused_p.def_impl  # type: ignore[untyped-decorator]
def _run_now(*operands: Any, **how: Any) -> list[Array]:
    """Where the operands are."""
    found = (x.devices() for x in operands if isinstance(x, Array))
    device = next(iter(next(found, ())), None)
    return _run(*operands, **how, platform=device.platform if device else None)


mlir.register_lowering(fused_p, mlir.lower_fun(_run, multiple_results=True))
for _name, _platform in (("cpu", "cpu"), ("cuda", "gpu"), ("rocm", "gpu"), ("tpu", "tpu")):
    _lowering = mlir.lower_fun(partial(_run, platform=_platform), multiple_results=True)
    mlir.register_lowering(fused_p, _lowering, platform=_name)


@fused_p.def_effectful_abstract_eval  # type: ignore[untyped-decorator]
def _shapes(*_: Any, call: Call, example: Any) -> Any:
    avals, size = call.traced.results, call.size
    if size is not None:
        avals = [a.update(shape=(size, *a.shape), weak_type=False) for a in avals]
    return avals, call.traced.effects


def _batch(
    operands: Sequence[Any], axes: Sequence[Any], *, call: Call, example: Any
) -> tuple[list[Any], list[int]]:
    """A batch; a batch of batches is a larger batch."""
    also = tuple(axis is not None for axis in axes)
    pairs = list(zip(operands, axes, strict=True))
    outer = next(x.shape[axis] for x, axis in pairs if axis is not None)
    operands = [jnp.moveaxis(x, axis, 0) if axis else x for x, axis in pairs]
    if call.size is None:
        results = dataclasses.replace(call, size=outer, batched=also).bind(operands)
        return results, [0] * len(results)
    merged = []
    for x, inside, outside in zip(operands, call.batched, also, strict=True):
        if inside and not outside:
            x = jnp.broadcast_to(x, (outer, *x.shape))
        elif outside and not inside:
            x = jnp.broadcast_to(x[:, None], (outer, call.size, *x.shape[1:]))
        merged.append(x.reshape(-1, *x.shape[2:]) if inside or outside else x)
    flags = tuple(a or b for a, b in zip(call.batched, also, strict=True))
    results = dataclasses.replace(call, size=outer * call.size, batched=flags).bind(merged)
    return [r.reshape(outer, call.size, *r.shape[1:]) for r in results], [0] * len(results)


batching.primitive_batchers[fused_p] = _batch


def _push(
    primals: Sequence[Any], tangents: Sequence[Any], *, call: Call, example: Any
) -> tuple[list[Any], list[Any]]:
    """Results, and how they move."""
    results = call.bind(primals)
    still = [ad.Zero(jax.typeof(r).to_tangent_aval()) for r in results]
    along = tuple(
        type(t) is not ad.Zero and is_differentiable(a)
        for t, a in zip(tangents, call.traced.operands, strict=True)
    )
    if not any(along):
        return results, still
    function = tangent(call.traced, along)
    if not any(function.moves):
        return results, still
    directions = [t for t, a in zip(tangents, along, strict=True) if a]
    batched = (*call.batched, *(b for b, a in zip(call.batched, along, strict=True) if a))
    push = dataclasses.replace(call, traced=function, batched=batched)
    moved = iter(push.bind([*primals, *directions]))
    return results, [next(moved) if m else s for m, s in zip(function.moves, still, strict=True)]


ad.primitive_jvps[fused_p] = _push


def _pull(weights: Sequence[Any], *operands: Any, call: Call, example: Any) -> list[Any]:
    """Weights of the directions of a tangent function: those of its operands' own function."""
    assert isinstance(call.traced, Tangent)
    function, along, moves = call.traced.function, call.traced.along, call.traced.moves
    count = len(along)
    places = iter(range(count, len(operands)))
    place = [next(places) if a else None for a in along]
    by = tuple(p is not None and ad.is_undefined_primal(operands[p]) for p in place)
    given = iter([type(w) is not ad.Zero for w in weights])
    of = tuple(next(given) if m else False for m in moves)
    found: list[Any] = [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in operands]
    if not any(of):
        return found
    known = [w for w in weights if type(w) is not ad.Zero]
    batched = (*call.batched[:count], *(call.size is not None for _ in known))
    pull = dataclasses.replace(call, traced=cotangent(function, of, by), batched=batched)
    results = iter(pull.bind([*operands[:count], *known]))
    for p, asked, own in zip(place, by, call.batched, strict=False):
        if p is not None and asked:
            weight = next(results)
            # What all environments share weighs what it does in each of them, all together.
            found[p] = weight if own or call.size is None else jnp.sum(weight, axis=0)
    return found


ad.primitive_transposes[fused_p] = _pull
