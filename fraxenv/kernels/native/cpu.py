"""Native kernels for this machine's CPU: what LLVM and XLA need to know of it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cache, lru_cache, partial
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from ..buffer import Buffer
from ..errors import BuildError, KernelError
from ..program import IdArray, Program
from . import ffi
from .contraction import contracted
from .cores import at_once, available_cores, beside
from .module import CHOSEN, NEXT, Module, write_module
from .registers import Registers

OPTIMISATION = 2
"""Of machine code, as LLVM counts it. Other levels give the same bits, sooner or faster."""

_engines: list[Any] = []

_threads = ctypes.c_int32(0)


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


def processor() -> dict[str, str]:
    """LLVM's name for this host's processor, and its features."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return {"cpu": llvm.get_host_cpu_name(), "features": features.flatten()}


def multiplies_and_adds() -> bool:
    """Whether this host's processor can in one operation; what could not would call a function."""
    import llvmlite.binding as llvm

    arm = llvm.get_default_triple().startswith(("aarch64", "arm64"))
    return arm or bool(llvm.get_host_cpu_features().get("fma"))


@cache
def _initialise() -> None:
    """Prepare LLVM, and the symbols that a kernel has from this process."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    get_threads()
    llvm.add_symbol(ffi.THREADS, ctypes.addressof(_threads))
    library = ctypes.CDLL(None) if os.name == "posix" else ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
    give_way = library.sched_yield if os.name == "posix" else library.SwitchToThread
    rest = library.usleep if os.name == "posix" else library.Sleep
    for name, function in ((ffi.YIELD, give_way), (ffi.REST, rest)):
        llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)


def _target_machine(level: int | None = None) -> Any:
    """A target machine for this host, which an execution engine will own.

    Args:
        level: of its code; by default `OPTIMISATION`.
    """
    import llvmlite.binding as llvm

    _initialise()
    return llvm.Target.from_default_triple().create_target_machine(
        **processor(),
        opt=OPTIMISATION if level is None else level,
        reloc="pic",
        codemodel=_code_model(),
        jit=True,
    )


def _code_model() -> str:
    """Whether constants are near the code, and so operands; far away each needs its address."""
    import llvmlite.binding as llvm

    return "small" if llvm.get_default_triple().startswith("x86_64") else "jitdefault"


@cache
def vector_bytes() -> int:
    """Width of this machine's vectors."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512dq") and features.get("avx512vl"):
        return 64
    return 32 if features.get("avx2") or features.get("avx") else 16


def registers() -> Registers:
    """The registers for vectors that a core of this machine has."""
    import llvmlite.binding as llvm

    many = vector_bytes() == 64 or not llvm.get_default_triple().startswith("x86_64")
    return Registers(32 if many else 16, vector_bytes(), vector_bytes() == 64)


def host() -> tuple[str, ...]:
    """What machine code depends on besides the module's text."""
    import llvmlite
    import llvmlite.binding as llvm

    _initialise()
    triple = llvm.Target.from_default_triple().triple
    versions = llvmlite.__version__, llvm.llvm_version_info, ffi.version()
    numbers = (*versions, OPTIMISATION, _code_model(), vector_bytes())
    return triple, *processor().values(), *map(str, numbers)


def write(
    program: Program,
    buffers: Sequence[Buffer],
    outputs: Sequence[IdArray],
    dtypes: Sequence[np.dtype[Any]],
    few: bool = False,
) -> Module:
    """A program as a module for this machine; see `module.write_module`.

    LLVM begins with what is written, and goes on with it while the rest is being written.

    Args:
        program: made with `mathlib.expand`.
        buffers: its inputs.
        outputs: the values of each result.
        dtypes: the dtype of each result.
        few: whether environments are computed one after the other.
    """
    if multiplies_and_adds():
        program = contracted(program, outputs)
    begun: dict[str, Future[bytes]] = {}

    def begin(text: str) -> None:
        # A part is of one kernel alone; a loop that is called may be in several.
        alone = text.startswith(CHOSEN)
        begun[text] = beside(partial(_machine_code, text)) if alone else _begin(text)

    made = write_module(
        program, buffers, outputs, dtypes, 0 if few else vector_bytes(), registers(), begin
    )
    return replace(made, text=ffi.with_version(made.text, ffi.version()), begun=begun)


def machine_code(text: str, begun: Mapping[str, Future[bytes]] = MappingProxyType({})) -> bytes:
    """A module's machine code, with the handler `ffi.TARGET` in it. Threads may make it at once.

    Args:
        text: the module, and those that it calls.
        begun: machine code that is being made already, by what of.
    """
    texts = text.split(NEXT)
    rest = [t for t in texts if t not in begun]
    made = dict(zip(rest, at_once([partial(_machine_code, t) for t in rest]), strict=True))
    objects = [made[t] if t in made else begun[t].result() for t in texts]
    if len(objects) == 1:
        return objects[0]
    return _SEVERAL + b"".join(len(x).to_bytes(8, "little") + x for x in objects)


@lru_cache(maxsize=8)
def _begin(text: str) -> Future[bytes]:
    """A module's machine code that another thread makes, or made for another kernel."""
    return beside(partial(_machine_code, text))


if hasattr(os, "register_at_fork"):  # a process that was forked has none of the threads
    os.register_at_fork(after_in_child=_begin.cache_clear)

_SEVERAL = b"several objects\n"
"""What machine code begins with that is several objects, each after its size."""


def _objects(code: bytes) -> Iterator[bytes]:
    """The objects of which machine code consists."""
    if not code.startswith(_SEVERAL):
        yield code
        return
    at = len(_SEVERAL)
    while at < len(code):
        size = int.from_bytes(code[at : at + 8], "little")
        yield code[at + 8 : at + 8 + size]
        at += 8 + size


def _machine_code(text: str) -> bytes:
    import llvmlite.binding as llvm
    from llvmlite.binding import ffi as library

    level = 0 if text.startswith(CHOSEN) else OPTIMISATION
    machine, context = _target_machine(level), llvm.create_context()
    # As by llvmlite itself, but without its lock, for which others would wait meanwhile: contexts
    # have nothing in common.
    parse, emit = (
        getattr(call, "_cfn", call)
        for call in (library.lib.LLVMPY_ParseAssembly, library.lib.LLVMPY_TargetMachineEmitToMemory)
    )
    with library.OutputString() as error:
        module = llvm.ModuleRef(parse(context, text.encode(), error), context)
        if error:
            module.close()
            raise BuildError(f"LLVM could not read the kernel: {error}")
    with library.OutputString() as error:
        buffer = emit(machine, module, 1, error)
        if not buffer:
            raise BuildError(f"LLVM could not compile the kernel: {error}")
    try:
        begin, size = (
            getattr(library.lib, f"LLVMPY_GetBuffer{what}")(buffer) for what in ("Start", "Size")
        )
        return ctypes.string_at(begin, size)
    finally:
        library.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def register(name: str, code: bytes, platform: str = "cpu") -> Any:
    """Hand the machine code of a handler to XLA, for kernels of a platform: its engine.

    Raises:
        BuildError: there is no handler in it.
    """
    engine = loaded(code)
    capsule = jax.ffi.pycapsule(ctypes.c_void_p(_entry(engine)))
    jax.ffi.register_ffi_target(name, capsule, platform)
    return engine


def entry(code: bytes) -> int:
    """The address of the handler in machine code, in memory from now on.

    Raises:
        BuildError: there is none.
    """
    return _entry(loaded(code))


def _entry(engine: Any) -> int:
    address: int = engine.get_function_address(ffi.TARGET)
    if not address:
        raise BuildError("the compiled kernel has no entry point")
    _engines.append(engine)
    return address


def loaded(code: bytes) -> Any:
    """An engine that has the machine code in memory, for as long as it is kept."""
    import llvmlite.binding as llvm

    # By llvmlite's manager of memory code and constants are neighbours, as `_code_model` has it.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(), use_lmm=True)
    for part in _objects(code):
        engine.add_object_file(llvm.ObjectFileRef.from_data(part))
    engine.finalize_object()
    return engine
