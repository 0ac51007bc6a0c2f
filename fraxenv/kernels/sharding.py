"""Kernels on batches that are sharded over devices: each device runs its own part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import Array
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec


def partitioned(
    run: Callable[..., Sequence[Array]],
    batched: Sequence[bool],
    ranks: Sequence[int],
    results: Sequence[int],
) -> Callable[..., Sequence[Array]]:
    """`run(size, *arrays)` as a function of the arrays that JAX may split along the batch.

    Args:
        run: the kernel.
        batched: whether each array has the batch as its first axis; one of them has.
        ranks: the number of axes of each array, the batch included.
        results: the same for each result.
    """
    first = list(batched).index(True)

    def local(*arrays: Array) -> tuple[Array, ...]:
        return tuple(run(arrays[first].shape[0], *arrays))

    def split(mesh: Any, args: Any, result: Any) -> Any:
        specs = [a.sharding.spec for a, b in zip(args, batched, strict=True) if b]
        axis = next((s[0] for s in specs if len(s) and s[0] is not None), None)

        def sharding(rank: int, is_batched: bool) -> NamedSharding:
            return NamedSharding(mesh, PartitionSpec(*((axis,) if is_batched and rank else ())))

        inputs = tuple(sharding(r, b) for r, b in zip(ranks, batched, strict=True))
        return mesh, local, tuple(sharding(r, True) for r in results), inputs

    factors = (f"x{k}" for k in range(sum(ranks) + sum(results)))

    def axes(rank: int, is_batched: bool) -> str:
        own = [next(factors) for _ in range(rank - is_batched)]
        return " ".join(["batch", *own] if is_batched else own)

    operands = ", ".join(axes(r, b) for r, b in zip(ranks, batched, strict=True))
    rule = f"{operands} -> {', '.join(axes(r, True) for r in results)}"
    call = custom_partitioning(local)
    call.def_partition(partition=split, sharding_rule=rule)
    return call
