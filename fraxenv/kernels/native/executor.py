"""The native executor: a kernel compiled by LLVM for the processor that JAX computes on.

XLA calls it through its FFI.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
from jax import Array

from ..buffer import Buffer
from ..errors import BuildError, KernelError
from ..program import Id, IdArray, Program
from . import cache, cpu, gpu, waiting
from .cores import beside
from .module import Module

LONG = 200_000
"""Characters of a module that LLVM takes half a second over: others go on while it does."""

_lock = threading.RLock()
_registered: dict[str, str] = {}
"""The digest of each kernel that XLA knows, by its name."""


def available() -> str | None:
    """Why there is no native executor here; None if there is."""
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return "llvmlite is not installed; for the fast kernels: pip install 'fraxenv[native]'"
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return "this is not a 64-bit machine"
    return None


def _processor(platform: str) -> Any:
    """What is the processor's own: of `cpu` or of `gpu`, which have the same functions."""
    return gpu if platform == "gpu" else cpu


def build(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    results: Sequence[Buffer],
    platform: str,
    fingerprint: str | None = None,
    meanwhile: Callable[[], None] | None = None,
    one_by_one: str = "",
) -> tuple[Callable[..., list[Array]], dict[str, Any]]:
    """Compile a kernel.

    Args:
        program: made with `mathlib.expand`.
        buffers: its inputs.
        outputs: the values of each result.
        results: each result.
        platform: what computes it: "cpu" or "gpu".
        fingerprint: what `recall` shall find it by; None for nothing.
        meanwhile: what to do while LLVM compiles it, where nothing else goes on then; left out
            where it is in the cache.
        one_by_one: the name of the executor, if environments are computed one after the other.

    Returns:
        a function of the batch size and the buffers' arrays that gives the results' arrays, and
        what there is to know about the kernel.

    Raises:
        BuildError: LLVM or XLA refuses.
    """
    try:
        processor = _processor(platform)
        write = partial(cpu.write, few=True) if one_by_one else processor.write
        module = write(program, buffers, outputs, [r.dtype for r in results])
        name, cached = _compile(module, processor, meanwhile)
    except (BuildError, KernelError):
        raise
    except Exception as error:
        raise BuildError(f"LLVM could not compile the kernel: {error}") from error
    about = {
        "vector": module.width,
        "operations": module.operations,
        "rare": module.rare,
        "workspace": module.workspace,
    }
    # With loops over arrays, inputs are read where they are.
    maps = "map" in program.ops
    in_place = {} if maps else _in_place(program, buffers, outputs, results)
    if fingerprint is not None and name in _registered:
        kept = {"code": _registered[name], "about": about, "in_place": list(in_place.items())}
        cache.save(
            _key(fingerprint, processor, one_by_one),
            json.dumps(kept).encode(),
            _FOUND_BY_FINGERPRINT,
        )
    return _runner(name, results, in_place), about | {"cached": cached}


def recall(
    fingerprint: str, results: Sequence[Buffer], platform: str, one_by_one: str = ""
) -> tuple[Callable[..., list[Array]], dict[str, Any]] | None:
    """What `build` returned for the same fingerprint; None if it is not in the cache."""
    processor = _processor(platform)
    try:
        data = cache.load(_key(fingerprint, processor, one_by_one), _FOUND_BY_FINGERPRINT)
        kept = None if data is None else json.loads(data)
        if kept is None or not _load(kept["code"], processor):
            return None
    except KernelError:
        raise
    except Exception:  # `build` says what is wrong
        return None
    run = _runner(_name(kept["code"]), results, dict(kept["in_place"]))
    return run, kept["about"] | {"cached": True}


_FOUND_BY_FINGERPRINT = "known"


def _key(fingerprint: str, processor: Any, one_by_one: str) -> str:
    """What a kernel of a fingerprint is found by on this machine."""
    told = (fingerprint, *processor.host(), *((one_by_one,) if one_by_one else ()))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _runner(
    name: str, results: Sequence[Buffer], in_place: Mapping[int, int]
) -> Callable[..., list[Array]]:
    """The function that calls a kernel through XLA."""

    def run(size: int, *arrays: Array) -> list[Array]:
        shapes = [jax.ShapeDtypeStruct((size, *r.shape), r.dtype) for r in results]
        return list(jax.ffi.ffi_call(name, shapes, input_output_aliases=dict(in_place))(*arrays))

    return run


def _in_place(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    results: Sequence[Buffer],
) -> dict[int, int]:
    """Inputs that results may overwrite: most of a result is its input in lanes that do not change.

    That is what a state is that is handed from step to step, or a queue, in which the numbers are
    some places on; XLA need not copy it between the rounds of a scan, which it does in a single
    thread. A vector's rows are read before they are written.
    """
    found: dict[int, int] = {}
    for k, (ids, result) in enumerate(zip(outputs, results, strict=True)):
        unchanged = [_unchanged(program, x) for x in ids.ravel().tolist()]
        for number, buffer in enumerate(buffers):
            alike = buffer.batched and (buffer.shape, buffer.dtype) == (result.shape, result.dtype)
            if alike and number not in found and _goes_on(unchanged, number):
                found[number] = k
                break
    return found


def _goes_on(unchanged: Sequence[set[tuple[int, int]]], number: int) -> bool:
    """Whether most elements are those of a buffer, all as many places on."""
    places = Counter(
        k - element for k, inputs in enumerate(unchanged) for i, element in inputs if i == number
    )
    return 2 * max(places.values(), default=0) > len(unchanged)


def _unchanged(program: Program, x: Id) -> set[tuple[int, int]]:
    """The inputs that a value is in some lanes, as buffer and element."""
    inputs, seen, pending = set(), set(), [x]
    while pending:
        x = pending.pop()
        if x in seen:
            continue
        seen.add(x)
        op, attribute = program.ops[x], program.attributes[x]
        if op == "input":
            inputs.add(attribute)
        elif op == "select":
            pending += program.args[x][1:]
        elif op == "pin":
            pending += program.args[x]
        elif op == "final" and program.loops[attribute[0]].condition is not None:
            pending.append(program.loops[attribute[0]].initial[attribute[1]])
    return inputs


def _name(digest: str) -> str:
    return f"fraxenv_{digest[:32]}"


def _compile(
    module: Module, processor: Any, meanwhile: Callable[[], None] | None
) -> tuple[str, bool]:
    """Compile, or load from the cache, and register with XLA: the target's name."""
    text = module.text
    digest = hashlib.sha256("\n".join((*processor.host(), text)).encode()).hexdigest()

    begun = {"begun": module.begun} if module.begun else {}

    def made() -> bytes:
        code: bytes = processor.machine_code(text, **begun)
        cache.save(digest, code)
        return code

    with _lock:
        if _load(digest, processor):
            return _name(digest), True
        if processor is cpu and len(text) > LONG:
            waiting.register(_name(digest), made)
            _registered[_name(digest)] = digest
        else:
            _register(digest, _beside(made, meanwhile), processor)
    return _name(digest), False


def _beside(made: Callable[[], bytes], meanwhile: Callable[[], None] | None) -> bytes:
    """Machine code, by LLVM, which needs nothing of Python the while."""
    if meanwhile is None:
        return made()
    code = beside(made)
    meanwhile()
    return code.result()  # type: ignore[no-any-return]


def _load(digest: str, processor: Any) -> bool:
    """Register with XLA the kernel of a digest, if it is in the cache or was before."""
    with _lock:
        if _name(digest) in _registered:
            return True
        code = cache.load(digest)
        if code is not None:
            _register(digest, code, processor)
        return code is not None


def _register(digest: str, code: bytes, processor: Any) -> None:
    name = _name(digest)
    processor.register(name, code)
    _registered[name] = digest
