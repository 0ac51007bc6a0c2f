"""Native kernels for NVIDIA's GPUs: LLVM makes PTX of them, the driver machine code.

It needs the driver alone, which is there where JAX finds a GPU; no compiler of CUDA's.

Source: CUDA Driver API, sections Module, Library and Execution Control.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from ..errors import BuildError
from . import cpu, ffi, launch, thread

write = thread.write_module

OPTIMISATION = 3
"""Of PTX, as LLVM counts it."""

_ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100, 120)
"""Those that LLVM knows; the driver compiles PTX of one for all later ones."""

_lock = threading.RLock()
_libraries: list[Any] = []

# Numbers of the driver's enumerations.
_LOG, _LOG_SIZE, _PTX = 5, 6, 1
_MAJOR, _MINOR = 75, 76
_LOCAL_BYTES, _REGISTERS = 3, 4


@functools.cache
def _driver() -> ctypes.CDLL:
    """CUDA's driver.

    Raises:
        BuildError: there is none.
    """
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise BuildError(f"NVIDIA's driver was not found: {error}") from error
    _check(library, library.cuInit(0), "start")
    return library


def _check(library: ctypes.CDLL, code: int, what: str, log: str = "") -> None:
    """Raise BuildError for an error of the driver's."""
    if code == 0:
        return
    text = ctypes.c_char_p()
    library.cuGetErrorString(code, ctypes.byref(text))
    why = text.value.decode() if text.value else f"error {code}"
    raise BuildError(f"NVIDIA's driver could not {what}: {why}{log and ': ' + log}")


@functools.cache
def _device() -> tuple[int, int]:
    """The GPU that is used, as the driver counts, and its architecture, as in `sm_90`."""
    library, number = _driver(), ctypes.c_int()
    ordinal = jax.local_devices(backend="gpu")[0].local_hardware_id or 0
    _check(library, library.cuDeviceGet(ctypes.byref(number), ordinal), "find the GPU")
    found = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        code = library.cuDeviceGetAttribute(ctypes.byref(value), attribute, number)
        _check(library, code, "describe the GPU")
        found.append(value.value)
    return number.value, 10 * found[0] + found[1]


def _target() -> int:
    """The architecture that PTX is written for.

    Raises:
        BuildError: the GPU is too old.
    """
    own = _device()[1]
    fitting = [a for a in _ARCHITECTURES if a <= own]
    if not fitting:
        raise BuildError(
            f"the GPU is of architecture {own}, expected {_ARCHITECTURES[0]} or later. Pass "
            "backend='xla'."
        )
    return fitting[-1]


@contextmanager
def _context() -> Iterator[None]:
    """The context that JAX computes in, for this thread."""
    library, context = _driver(), ctypes.c_void_p()
    device = _device()[0]
    code = library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    _check(library, code, "open the GPU")
    try:
        _check(library, library.cuCtxPushCurrent_v2(context), "open the GPU")
        try:
            yield
        finally:
            library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    finally:
        library.cuDevicePrimaryCtxRelease_v2(device)


def host() -> tuple[str, ...]:
    """What machine code depends on besides the module's text."""
    import llvmlite
    import llvmlite.binding as llvm

    library, version = _driver(), ctypes.c_int()
    _check(library, library.cuDriverGetVersion(ctypes.byref(version)), "tell its version")
    versions = llvmlite.__version__, str(llvm.llvm_version_info), str(version.value)
    return "nvptx64", str(_device()[1]), *versions, str(OPTIMISATION)


def machine_code(text: str) -> bytes:
    """A module's machine code, with the kernel `thread.NAME` in it.

    Raises:
        BuildError: LLVM or the driver refuses.
    """
    source = ptx(text, _target()).encode() + b"\0"
    library, state = _driver(), ctypes.c_void_p()
    log = ctypes.create_string_buffer(4096)
    options = (ctypes.c_int * 2)(_LOG, _LOG_SIZE)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    with _context():
        code = library.cuLinkCreate_v2(2, options, values, ctypes.byref(state))
        _check(library, code, "compile")
        try:
            code = library.cuLinkAddData_v2(
                state, _PTX, source, ctypes.c_size_t(len(source)), b"fraxenv", 0, None, None
            )
            _check(library, code, "compile the kernel", log.value.decode(errors="replace"))
            made, size = ctypes.c_void_p(), ctypes.c_size_t()
            code = library.cuLinkComplete(state, ctypes.byref(made), ctypes.byref(size))
            _check(library, code, "compile the kernel", log.value.decode(errors="replace"))
            return ctypes.string_at(made, size.value)
        finally:
            library.cuLinkDestroy(state)


def register(name: str, code: bytes) -> None:
    """Hand machine code to XLA.

    Raises:
        BuildError: the driver refuses.
    """
    library, loaded, kernel = _driver(), ctypes.c_void_p(), ctypes.c_void_p()
    done = library.cuLibraryLoadData(ctypes.byref(loaded), code, None, None, 0, None, None, 0)
    _check(library, done, "load the kernel")
    done = library.cuLibraryGetKernel(ctypes.byref(kernel), loaded, thread.NAME.encode())
    _check(library, done, "find the kernel")
    _libraries.append(loaded)
    text = launch.write_handler(
        kernel.value or 0,
        _address(library.cuLaunchKernel),
        _address(library.cuGetErrorString),
        thread.BLOCK,
    )
    text = ffi.with_version(text, ffi.version())
    cpu.register(name, cpu.machine_code(text), "CUDA")


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def ptx(text: str, architecture: int) -> str:
    """A module as PTX: self-contained, with what it calls of CUDA's library of functions.

    Raises:
        BuildError: the library is needed and was not found.
    """
    import llvmlite.binding as llvm

    with _lock:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(
        cpu=f"sm_{architecture}", opt=OPTIMISATION
    )
    called = sorted(set(re.findall(r"^declare \w+ @(\w+)\(", text, re.MULTILINE)))
    for name in called:
        text = text.replace(f"@{name}(", f"@__nv_{name}(")
    heading = f'target triple = "{_TRIPLE}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm.parse_assembly(heading + text)
    if called:
        library = llvm.parse_bitcode(_device_library().read_bytes())
        library.triple, library.data_layout = module.triple, module.data_layout
        module.link_in(library)
        for function in module.functions:
            if function.name.startswith("__") and not function.is_declaration:
                function.linkage = "internal"
        _drop_unused(module, machine)
    return str(machine.emit_assembly(module))


_TRIPLE = "nvptx64-nvidia-cuda"

_COMMON = Path("/usr/local")
"""Where CUDA is installed if nothing else is said."""


def _drop_unused(module: Any, machine: Any) -> None:
    import llvmlite.binding as llvm

    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=0)
    passes.run(module, llvm.create_pass_builder(machine, options))


@functools.cache
def _device_library() -> Path:
    """CUDA's library of elementary functions, as bitcode: JAX's wheels for GPUs bring it.

    Raises:
        BuildError: it is not there.
    """
    homes = [Path(os.environ[v]) for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    for folder in (*(Path(p) / "nvidia" for p in sys.path), _COMMON):
        homes += sorted(folder.glob("*"))
    for home in homes:
        for path in (home / "nvvm" / "libdevice").glob("libdevice.*.bc"):
            return path
    raise BuildError(
        "CUDA's libdevice.10.bc was not found, which has the elementary functions that the kernel "
        'calls. It comes with `pip install "jax[cuda13]"`; or set CUDA_HOME.'
    )
