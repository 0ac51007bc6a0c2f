"""The contents of a fused kernel, to find out why something is slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from .executors import default_platform, executor_of
from .fuse import check_backend, resolve
from .kernel import kernel_for
from .native.contraction import operations
from .program import BOOKKEEPING, live_values
from .traced import trace


@dataclass(frozen=True)
class Explanation:
    """A report on a fused function; `print` it.

    Attributes:
        name: the function's name.
        backend: the name of its executor.
        equations: number of equations of its jaxpr, inner calls included.
        operations_before: scalar operations per environment that a batched run computes.
        operations_after: scalar operations per environment in the kernel, in the text.
        operations_run: scalar operations per environment in a run: rounds of loops counted.
        operations_rare: operations of a round that takes the rare branch, for which environments
            are gathered, or of a round of the loop whose lanes are refilled; not in
            `operations_run`.
        workspace: memory of each thread, bytes: for environments that change places, for large
            tables of loops and wide buffers; 0 where the stack is enough.
        kinds: count of each operation in the kernel.
        loops: rounds of each loop that stayed one; None for a while loop.
        fallbacks: primitives outside the kernel, and the reasons.
        kernels: number of kernels; one more than the fallbacks.
        vector: environments per SIMD vector; 0 where the executor has none.
        compile_seconds: of partial evaluation and compilation, s; of a long kernel without LLVM's,
            which others do not wait for.
        cached: whether the machine code came from the cache.
    """

    name: str
    backend: str
    equations: int = 0
    operations_before: int = 0
    operations_after: int = 0
    operations_run: int = 0
    operations_rare: int = 0
    workspace: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    loops: list[int | None] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    kernels: int = 0
    vector: int = 0
    compile_seconds: float = 0.0
    cached: bool = False

    def __str__(self) -> str:
        if self.backend == "vmap":
            return f"{self.name}: plain jax.vmap, nothing is fused."
        loops = ", ".join("while" if n is None else f"{n} rounds" for n in self.loops) or "none"
        kinds = ", ".join(f"{n} {op}" for op, n in list(self.kinds.items())[:8])
        gathered = [
            f"  operations, rarely   {self.operations_rare} (a round of those that are gathered)",
        ]
        memory = [f"  workspace            {self.workspace / 1024:.0f} KiB for each thread"]
        lines = [
            f"{self.name}: executor {self.backend!r}"
            + (f", {self.vector} environments per vector" if self.vector else ""),
            f"  equations            {self.equations}",
            f"  operations, before   {self.operations_before} (with every loop's body once)",
            f"  operations, after    {self.operations_after} ({kinds})",
            f"  operations, run      {self.operations_run} (with every loop's rounds)",
            *(gathered if self.operations_rare else []),
            *(memory if self.workspace else []),
            f"  loops                {loops}",
            f"  kernels              {self.kernels}",
            f"  compile time         {self.compile_seconds:.2f} s"
            + (" (machine code from the cache)" if self.cached else ""),
            "  outside the kernel   " + ("nothing" if not self.fallbacks else ""),
        ]
        return "\n".join([*lines, *(f"    {f}" for f in self.fallbacks)])


def explain(
    fn: Callable[..., Any], backend: str = "auto", in_axes: Any = 0
) -> Callable[..., Explanation]:
    """A function of `fuse(fn)`'s arguments that returns a report on its kernel.

    Args:
        fn: a function of one environment's arrays.
        backend: as in `fuse`.
        in_axes: as in `fuse`.

    Example:
        `print(explain(fn)(q, v))`, with the batches `q` and `v` that `fuse(fn)(q, v)` would take.

    Raises:
        KernelError: there is no such backend.
    """
    check_backend(backend)

    def of(*args: Any) -> Explanation:
        chosen = resolve(backend)
        leaves, tree = jax.tree.flatten(args)
        prefix = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        axes: list[int | None] = []

        def extend(axis: int | None, part: Any) -> None:
            axes.extend([axis] * len(jax.tree.leaves(part)))

        jax.tree.map(extend, prefix, args, is_leaf=lambda x: x is None)

        def one(x: Any, axis: int | None) -> Any:
            x = jax.numpy.asarray(x)
            shape = list(x.shape)
            if axis is not None:
                del shape[axis]
            return jax.ShapeDtypeStruct(tuple(shape), x.dtype)

        single = jax.tree.unflatten(tree, map(one, leaves, axes))
        traced, _ = trace(fn, single, {})
        batched, platform = tuple(a is not None for a in axes), default_platform()
        size = next((x.shape[a] for x, a in zip(leaves, axes, strict=True) if a is not None), 1)
        executor = executor_of(chosen, platform, size, traced.numbers(batched))
        kernel = kernel_for(traced, batched, executor, platform)
        made = kernel.evaluation
        if made is None:
            return Explanation(traced.name, kernel.backend)
        wanted = [
            int(x)
            for part in (*(f.operands for f in made.fallbacks), made.outputs)
            for o in part
            for x in o.ravel()
        ]
        alive = live_values(made.program, wanted)
        kinds: Counter[str] = Counter()
        for i in np.flatnonzero(alive).tolist():
            op = made.program.ops[i]
            if op not in BOOKKEEPING:
                kinds[op] += operations(made.program, i)
        loops = [
            loop.count
            for k, loop in enumerate(made.program.loops)
            if any(
                alive[i] and made.program.ops[i] == "loop" and made.program.attributes[i] == k
                for i in range(len(alive))
            )
        ]
        return Explanation(
            name=traced.name,
            backend=kernel.backend,
            equations=made.equations,
            operations_before=made.program.applied,
            operations_after=sum(kinds.values()),
            operations_run=sum(p["operations"] for p in kernel.parts),
            operations_rare=sum(p.get("rare", 0) for p in kernel.parts),
            workspace=max((p.get("workspace", 0) for p in kernel.parts), default=0),
            kinds=dict(kinds.most_common()),
            loops=loops,
            fallbacks=[f"{f.equation.primitive.name}: {f.reason}" for f in made.fallbacks],
            kernels=len(kernel.parts),
            vector=max((p.get("vector", 0) for p in kernel.parts), default=0),
            compile_seconds=kernel.seconds,
            cached=bool(kernel.parts) and all(p.get("cached", False) for p in kernel.parts),
        )

    return of
