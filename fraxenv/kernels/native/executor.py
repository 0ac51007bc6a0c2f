"""The native executor: a kernel compiled by LLVM for this machine, called through XLA's FFI."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax import Array

from ..buffer import Buffer
from ..errors import BuildError, KernelError
from ..program import Id, IdArray, Program
from . import cache, ffi
from .module import write_module

OPTIMISATION = 2
"""Of machine code, as LLVM counts it. Other levels give the same bits, sooner or faster."""

_lock = threading.RLock()
_registered: dict[str, str] = {}
"""The digest of each kernel that XLA knows, by its name."""

_threads = ctypes.c_int32(0)


def available() -> str | None:
    """Why there is no native executor here; None if there is."""
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return "llvmlite is not installed; for the fast kernels: pip install 'fraxenv[native]'"
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return "this is not a 64-bit machine"
    return None


def set_threads(n: int) -> None:
    """Set how many threads a kernel's batch is split over, this process' kernels all alike.

    Raises:
        KernelError: `n` is not positive.
    """
    if n < 1:
        raise KernelError(f"set_threads({n}), expected at least one thread.")
    _threads.value = n


def get_threads() -> int:
    """The number of threads a kernel's batch is split over.

    Raises:
        KernelError: `FRAXENV_THREADS` is not a positive number.
    """
    if _threads.value == 0:
        _threads.value = _default_threads()
    return _threads.value


def _default_threads() -> int:
    text = os.environ.get("FRAXENV_THREADS")
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise KernelError(f"FRAXENV_THREADS={text!r}, expected a whole number from 1.")
        return int(text)
    return available_cores()


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> dict[str, str]:
    """LLVM's name for this host's processor, and its features."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if llvm.Target.from_default_triple().name in ("aarch64", "arm64"):
        # Some would contract products that are used more than once, and round unlike all others.
        features["aggressive-fma"] = False
    return {"cpu": llvm.get_host_cpu_name(), "features": features.flatten()}


@functools.cache
def _initialise() -> None:
    """Prepare LLVM, and the symbols that a kernel has from this process."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    get_threads()
    llvm.add_symbol(ffi.THREADS, ctypes.addressof(_threads))
    library = ctypes.CDLL(None) if os.name == "posix" else ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
    give_way = library.sched_yield if os.name == "posix" else library.SwitchToThread
    llvm.add_symbol(ffi.YIELD, ctypes.cast(give_way, ctypes.c_void_p).value)


def _target_machine() -> Any:
    """A target machine for this host, which an execution engine will own."""
    import llvmlite.binding as llvm

    _initialise()
    return llvm.Target.from_default_triple().create_target_machine(
        **_processor(), opt=OPTIMISATION, reloc="pic", codemodel="jitdefault", jit=True
    )


@functools.cache
def vector_bytes() -> int:
    """Width of this machine's vectors."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512dq") and features.get("avx512vl"):
        return 64
    return 32 if features.get("avx2") or features.get("avx") else 16


@functools.cache
def _ffi_version() -> tuple[int, int]:
    """Version of XLA's FFI that the installed jaxlib was built with."""
    header = Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h"
    found = re.findall(r"#define XLA_FFI_API_(?:MAJOR|MINOR) (\d+)", header.read_text())
    major, minor = (int(x) for x in found)
    if major != 0:
        raise BuildError(f"XLA's FFI is of version {major}.{minor}, this was built for 0.x")
    return major, minor


def build(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    results: Sequence[Buffer],
    fingerprint: str | None = None,
) -> tuple[Callable[..., list[Array]], dict[str, Any]]:
    """Compile a kernel.

    Args:
        program: made with `mathlib.expand`.
        buffers: its inputs.
        outputs: the values of each result.
        results: each result.
        fingerprint: what `recall` shall find it by; None for nothing.

    Returns:
        a function of the batch size and the buffers' arrays that gives the results' arrays, and
        what there is to know about the kernel.

    Raises:
        BuildError: LLVM or XLA refuses.
    """
    began = time.perf_counter()
    try:
        module = write_module(program, buffers, outputs, [r.dtype for r in results], vector_bytes())
        name, cached = _compile(module.text)
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
    in_place = _in_place(program, buffers, outputs, results)
    if fingerprint is not None and name in _registered:
        kept = {"code": _registered[name], "about": about, "in_place": list(in_place.items())}
        cache.save(_key(fingerprint), json.dumps(kept).encode(), _FOUND_BY_FINGERPRINT)
    timed = {"compile_seconds": time.perf_counter() - began, "cached": cached}
    return _runner(name, results, in_place), about | timed


def recall(
    fingerprint: str, results: Sequence[Buffer]
) -> tuple[Callable[..., list[Array]], dict[str, Any]] | None:
    """What `build` returned for the same fingerprint; None if it is not in the cache."""
    began = time.perf_counter()
    try:
        data = cache.load(_key(fingerprint), _FOUND_BY_FINGERPRINT)
        kept = None if data is None else json.loads(data)
        if kept is None or not _load(kept["code"]):
            return None
    except KernelError:
        raise
    except Exception:  # `build` says what is wrong
        return None
    timed = {"compile_seconds": time.perf_counter() - began, "cached": True}
    run = _runner(_name(kept["code"]), results, dict(kept["in_place"]))
    return run, kept["about"] | timed


_FOUND_BY_FINGERPRINT = "known"


def _key(fingerprint: str) -> str:
    """What a kernel of a fingerprint is found by on this machine."""
    parts = (fingerprint, *_host(), *map(str, _ffi_version()), str(vector_bytes()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


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
    """Inputs that results may overwrite: a result equals its input in lanes that do not change.

    That is what a state is that is handed from step to step, and XLA need not copy it between the
    rounds of a scan, which it does in a single thread. A vector's rows are read before they are
    written.
    """
    found: dict[int, int] = {}
    for k, (ids, result) in enumerate(zip(outputs, results, strict=True)):
        unchanged = [_unchanged(program, x) for x in ids.ravel().tolist()]
        for number, buffer in enumerate(buffers):
            alike = buffer.batched and (buffer.shape, buffer.dtype) == (result.shape, result.dtype)
            if alike and number not in found and all(
                (number, element) in inputs for element, inputs in enumerate(unchanged)
            ):  # fmt: skip
                found[number] = k
                break
    return found


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


def _host() -> tuple[str, ...]:
    """What machine code depends on besides the module's text."""
    import llvmlite
    import llvmlite.binding as llvm

    _initialise()
    triple = llvm.Target.from_default_triple().triple
    versions = llvmlite.__version__, str(llvm.llvm_version_info)
    return triple, *_processor().values(), *versions, str(OPTIMISATION)


def _name(digest: str) -> str:
    return f"fraxenv_{digest[:32]}"


def _compile(text: str) -> tuple[str, bool]:
    """Compile, or load from the cache, and register with XLA: the target's name."""
    import llvmlite.binding as llvm

    text = ffi.with_version(text, _ffi_version())
    digest = hashlib.sha256("\n".join((*_host(), text)).encode()).hexdigest()
    with _lock:
        cached = _load(digest)
        if not cached:
            machine = _target_machine()
            code = machine.emit_object(llvm.parse_assembly(text))
            cache.save(digest, code)
            _register(digest, code, machine)
    return _name(digest), cached


def _load(digest: str) -> bool:
    """Register with XLA the kernel of a digest, if it is in the cache or was before."""
    with _lock:
        if _name(digest) in _registered:
            return True
        code = cache.load(digest)
        if code is not None:
            _register(digest, code, _target_machine())
        return code is not None


def _register(digest: str, code: bytes, machine: Any) -> None:
    """Hand machine code to XLA."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(ffi.TARGET)
    if not address:
        raise BuildError("the compiled kernel has no entry point")
    _engines.append(engine)
    name = _name(digest)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(ctypes.c_void_p(address)), "cpu")
    _registered[name] = digest


_engines: list[Any] = []
