"""Kernels on batches that are sharded over devices: each device runs its own part."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from .buffer import Buffer


def shardable(
    run: Callable[..., Sequence[Array]], buffers: Sequence[Buffer], results: Sequence[Buffer]
) -> Callable[..., Sequence[Array]]:
    """A kernel, `run(size, *arrays)`, that JAX may split along the batch.

    Args:
        run: the kernel.
        buffers: its arrays, for one environment.
        results: its results, likewise.
    """
    batched = [b.batched for b in buffers]
    if not any(batched):
        return run
    ranks = [len(b.shape) + b.batched for b in buffers]
    result_ranks = [len(r.shape) + 1 for r in results]
    first = batched.index(True)

    def local(*arrays: Array) -> tuple[Array, ...]:
        return tuple(run(arrays[first].shape[0], *arrays))

    def split(mesh: Any, args: Any, result: Any) -> Any:
        specs = [a.sharding.spec for a, b in zip(args, batched, strict=True) if b]
        axis = next((s[0] for s in specs if len(s) and s[0] is not None), None)

        def sharding(rank: int, is_batched: bool) -> NamedSharding:
            return NamedSharding(mesh, PartitionSpec(*((axis,) if is_batched and rank else ())))

        inputs = tuple(sharding(r, b) for r, b in zip(ranks, batched, strict=True))
        return mesh, local, tuple(sharding(r, True) for r in result_ranks), inputs

    factors = (f"x{k}" for k in range(sum(ranks) + sum(result_ranks)))

    def axes(rank: int, is_batched: bool) -> str:
        own = [next(factors) for _ in range(rank - is_batched)]
        return " ".join(["batch", *own] if is_batched else own)

    operands = ", ".join(axes(r, b) for r, b in zip(ranks, batched, strict=True))
    rule = f"{operands} -> {', '.join(axes(r, True) for r in result_ranks)}"
    call = custom_partitioning(local)
    call.def_partition(partition=split, sharding_rule=rule)
    return lambda size, *arrays: call(*arrays)


@functools.cache
def example() -> Any:
    """A jaxpr with an operation that JAX may split.

    JAX lowers operations without their devices, except where it finds such a one in the equations
    or in their parameters: a kernel's own, which is made only then, it would not find.
    """
    call = custom_partitioning(lambda x: x)
    call.def_partition(
        partition=lambda mesh, args, result: (
            mesh,
            lambda x: x,
            result.sharding,
            (args[0].sharding,),
        ),
        sharding_rule="batch -> batch",
    )
    return jax.make_jaxpr(call)(jax.ShapeDtypeStruct((1,), "float32"))
