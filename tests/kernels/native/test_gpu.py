"""Kernels for GPUs, as far as a machine without one can tell: what is launched, and the program."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.kernels import executors, fusible
from fraxenv.kernels.errors import BuildError
from fraxenv.kernels.evaluator import partially_evaluate
from fraxenv.kernels.native import cpu, ffi, gpu, launch, mathlib, thread, warp
from fraxenv.kernels.traced import trace

BLOCK = thread.BLOCK
POINTER, INTEGER = ctypes.c_void_p, ctypes.c_int64


# --- the handler, called as XLA would, with a driver of the test's ---


class Frame:
    """A call frame of XLA's FFI (c_api.h, version 0.x), with its own stream and errors."""

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int], rows: int) -> None:
        self.said: list[str] = []
        self._kept: list[Any] = []
        dims = self.keep((INTEGER * 1)(rows))
        stream = self.function(POINTER, POINTER)(self._stream)
        failed = self.function(POINTER, POINTER)(self._failed)
        api = self.keep((POINTER * 18)())
        api[6], api[10] = self.address(failed), self.address(stream)
        frame = self.keep((INTEGER * 16)())
        frame[2], frame[3] = ctypes.addressof(api), 77
        frame[7], frame[9] = len(inputs), self.buffers(inputs, dims)
        frame[12], frame[14] = len(outputs), self.buffers(outputs, dims)
        self.pointer = ctypes.addressof(frame)

    def keep(self, x: Any) -> Any:
        self._kept.append(x)
        return x

    def function(self, *types: Any) -> Callable[[Any], Any]:
        return lambda f: self.keep(ctypes.CFUNCTYPE(*types)(f))

    @staticmethod
    def address(function: Any) -> int:
        return ctypes.cast(function, POINTER).value or 0

    def buffers(self, places: Sequence[int], dims: Any) -> int:
        """An array of XLA_FFI_Buffer's: struct_size, extension, dtype, data, rank, dims."""
        made = [self.keep((INTEGER * 6)(48, 0, 11, p, 1, ctypes.addressof(dims))) for p in places]
        return ctypes.addressof(self.keep((POINTER * len(made))(*map(ctypes.addressof, made))))

    def _stream(self, asked: int) -> int:
        fields = (INTEGER * 4).from_address(asked)
        assert (fields[0], fields[2]) == (32, 77)
        fields[3] = 4242
        return 0

    def _failed(self, told: int) -> int:
        fields = (INTEGER * 4).from_address(told)
        self.said.append(ctypes.string_at(fields[2]).decode())
        return 99


class Driver:
    """What a handler calls of CUDA's driver."""

    def __init__(self, code: int = 0) -> None:
        self.launches: list[dict[str, Any]] = []
        self.code = code
        numbers = [ctypes.c_uint] * 7
        self._launch = ctypes.CFUNCTYPE(
            ctypes.c_int, POINTER, *numbers, POINTER, POINTER, POINTER
        )(self._launched)  # fmt: skip
        self._describe = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, POINTER)(self._described)
        self._text = ctypes.create_string_buffer(b"no room")
        self.addresses = Frame.address(self._launch), Frame.address(self._describe)

    def _launched(self, kernel: int, *rest: Any) -> int:
        parameters = (POINTER * 3).from_address(rest[8])
        self.launches.append({
            "kernel": kernel, "grid": rest[:3], "block": rest[3:6], "shared": rest[6],
            "stream": rest[7], "parameters": list(parameters),
            "in": list((INTEGER * 2).from_address(parameters[0])),
            "out": INTEGER.from_address(parameters[1]).value,
            "total": INTEGER.from_address(parameters[2]).value,
        })  # fmt: skip
        return self.code

    def _described(self, code: int, place: int) -> int:
        assert code == self.code
        POINTER.from_address(place).value = ctypes.addressof(self._text)
        return 0


def handler_of(driver: Driver) -> Callable[[int], int]:
    text = launch.write_handler(1234, *driver.addresses, BLOCK)
    engine = cpu.loaded(cpu.machine_code(ffi.with_version(text, ffi.version())))
    function = ctypes.CFUNCTYPE(POINTER, POINTER)(engine.get_function_address(ffi.TARGET))
    function.engine = engine  # type: ignore[attr-defined]
    return function


@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (BLOCK, 1), (BLOCK + 1, 2), (4096, 128)])
def test_a_handler_launches_a_thread_for_each_row(rows: int, blocks: int) -> None:
    driver = Driver()
    assert not handler_of(driver)(Frame([11, 22], [33], rows).pointer)
    (call,) = driver.launches
    assert (call["kernel"], call["stream"], call["shared"]) == (1234, 4242, 0)
    assert (call["grid"], call["block"]) == ((blocks, 1, 1), (BLOCK, 1, 1))
    assert (call["in"], call["out"], call["total"]) == ([11, 22], 33, rows)


def test_nothing_is_launched_for_no_rows() -> None:
    driver = Driver()
    assert not handler_of(driver)(Frame([11, 22], [33], 0).pointer)
    assert not driver.launches


def test_what_the_driver_refuses_is_told() -> None:
    driver, frame = Driver(code=701), Frame([11, 22], [33], 5)
    assert handler_of(driver)(frame.pointer) == 99
    assert frame.said == ["no room"]


# --- the program of a thread ---


def looping(x: Any, y: Any, n: Any) -> Any:
    """Branches, loops, tables and all kinds of numbers."""

    def turn(carry: Any, k: Any) -> Any:
        a, b = carry
        c = 0.5 * jnp.sin(a) * y[k % 3] + 0.3 * b
        return (c, jnp.where(c > 0, a, b * 0.5)), c

    (a, b), all_ = jax.lax.scan(turn, (x[0], x[1]), jnp.arange(30))
    count = jax.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 2, s[1] * 1.01), (0, a))
    big = jax.lax.cond(x[2] > 0, lambda: jnp.exp(a), lambda: jnp.arctan2(a, b))
    return (
        all_,
        count,
        big,
        (x > 0) & (jnp.arange(5) > n),
        jnp.linalg.cholesky(jnp.outer(x, x) + 5 * jnp.eye(5)),
    )


def written(fn: Any, *args: Any, shared: Sequence[bool] = ()) -> tuple[Any, Any]:
    """The module of a thread, and the program that it computes."""
    traced, _ = trace(fn, args, {})
    flags = tuple(not s for s in shared) or (True,) * len(args)
    made = partially_evaluate(traced, flags, "gpu", mathlib.expand)
    assert not made.fallbacks
    dtypes = [r.dtype for r in made.results]
    return thread.write_module(made.program, made.buffers, made.outputs, dtypes), made


def run_here(text: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """A GPU's module run by this CPU, warp after warp, which wait for each other as a GPU's do."""
    total, together = len(outputs[0]), threading.Barrier(BLOCK, timeout=60)
    wait = ctypes.CFUNCTYPE(None)(lambda: together.wait() and None)
    for register, own in zip(thread._POSITION, ("%place.", "%block."), strict=True):
        text = text.replace(f"declare i32 {register}()", "")
        text = text.replace(f"call i32 {register}()", f"add i32 {own}, 0")
    text = text.replace(f"declare {warp.SYNC[5:].replace(' -1', '')}", "")
    text = text.replace(warp.SYNC, f"call void inttoptr (i64 {Frame.address(wait)} to ptr)()")
    text = text.replace(warp.SHARED, "getelementptr i8, ptr @stage, i64 0")
    text = text.replace(" addrspace(3) ", " ").replace("ptx_kernel ", "")
    text = text.replace("%out, i64 %total)", "%out, i64 %total, i32 %place., i32 %block.)")
    n, m = len(inputs), len(outputs)
    text += f"""
define void @run(ptr %in, ptr %out, i64 %total, i32 %place, i32 %block) {{
  call void @{thread.NAME}(ptr byval([{n} x ptr]) %in, ptr byval([{m} x ptr]) %out, i64 %total,
                           i32 %place, i32 %block)
  ret void
}}
"""
    engine = cpu.loaded(cpu.machine_code(text))
    function = ctypes.CFUNCTYPE(None, POINTER, POINTER, INTEGER, ctypes.c_int, ctypes.c_int)(
        engine.get_function_address("run")
    )
    given = (POINTER * n)(*(x.ctypes.data for x in inputs))
    results = (POINTER * m)(*(x.ctypes.data for x in outputs))
    places = ctypes.addressof(given), ctypes.addressof(results)
    with ThreadPoolExecutor(BLOCK) as pool:
        for block in range(-(-total // BLOCK)):
            threads = [
                pool.submit(function, *places, total, place, block) for place in range(BLOCK)
            ]
            for one in threads:
                one.result()


@pytest.mark.parametrize("together", [True, False])
def test_a_thread_computes_its_row(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warp, "pays", lambda *_: together)
    rng, rows = np.random.default_rng(0), 70
    x = rng.normal(size=(rows, 5)).astype(np.float32)
    y = rng.normal(size=3).astype(np.float32)
    n = rng.integers(0, 9, rows).astype(np.int32)
    module, made = written(looping, x[0], y, n[0], shared=(False, True, False))
    results = [np.full((rows, *r.shape), 7, r.dtype) for r in made.results]
    run_here(module.text, [x, y, n], results)
    expected = jax.tree.leaves(jax.vmap(looping, (0, None, 0))(x, jnp.asarray(y), n))
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


def test_a_remainder_is_the_librarys() -> None:
    """LLVM's own for GPUs is right for small quotients alone."""
    ends = (0.1, 1e30, 3e-20, np.inf, -np.inf, np.nan, -7.3, 2e9)
    x, y = np.array(list(itertools.product(ends, ends)), np.float32).T.copy()
    module, _ = written(jax.lax.rem, x[0], y[0])
    result = np.full(len(x), 7, np.float32)
    run_here(module.text, [x, y], [result])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, np.fmod(x, y))
    assert "frem" not in module.text


def test_a_difference_of_one_product_is_zero() -> None:
    """Joined with the product, it would be what the product's rounding left."""
    ones = np.ones(3, np.float32)
    joined = [
        "fma.rn" in gpu.ptx(written(fn, ones, ones)[0].text, 90)
        for fn in (lambda x, y: x * y - y, lambda x, y: x * y - y * x)
    ]
    assert joined == [True, False]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("rows", [1, BLOCK, 2 * BLOCK + 1])
def test_a_warp_writes_its_rows_and_no_others(
    rows: int, together: bool, x64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all kinds of numbers, and of more columns than there is room for at a time."""
    monkeypatch.setattr(warp, "pays", lambda *_: together)

    def wide(x: Any) -> Any:
        y = jnp.outer(x, x + 1).ravel()
        return y, y[:63].astype(jnp.float32), y[:64].astype(jnp.float32), y > 0, y[:2] > 0, y[0]

    x = np.random.default_rng(3).normal(size=(rows, 9))
    module, made = written(wide, x[0])
    whole = [np.full((rows + 3, *r.shape), 7, r.dtype) for r in made.results]
    run_here(module.text, [x], [w[:rows] for w in whole])
    for ours, theirs in zip(whole, jax.vmap(wide)(x), strict=True):
        np.testing.assert_allclose(ours[:rows], theirs, rtol=1e-6)
        assert (ours[rows:] == np.asarray(7, ours.dtype)).all()


def test_results_are_written_together_where_it_pays() -> None:
    many, _ = written(lambda x: jnp.outer(x, x), np.ones(7, np.float32))
    few, _ = written(
        lambda x: jnp.sum(jnp.linalg.cholesky(jnp.outer(x, x))), np.ones(7, np.float32)
    )
    assert ["[0 x i8]" in m.text for m in (many, few)] == [False, True]


@pytest.mark.parametrize("together", [True, False])
def test_large_tables_lie_in_local_memory(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warp, "pays", lambda *_: together)

    def kept(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (c * 0.999 + x, c * x), x, None, 1200)[1]

    rows = 40
    x = np.random.default_rng(1).normal(size=(rows, 8)).astype(np.float32)
    module, made = written(kept, x[0])
    assert module.workspace > 0
    results = [np.zeros((rows, *r.shape), r.dtype) for r in made.results]
    run_here(module.text, [x], results)
    np.testing.assert_allclose(results[0], jax.vmap(kept)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", [70, 90, 120])
def test_ptx_needs_nothing_else(architecture: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return jnp.sum(jnp.exp(x) * x) / jnp.sqrt(x)

    module, _ = written(function, np.ones(4, np.float32))
    text = gpu.ptx(module.text, architecture)
    assert f".target sm_{architecture}" in text
    assert f".entry {thread.NAME}" in text
    assert f".maxntid {BLOCK}" in text
    assert f".maxnreg {thread.REGISTERS}" in text
    assert ".extern" not in text


# --- the driver, a test's own ---


class FakeDriver:
    """What of CUDA's driver `gpu` calls, without a GPU."""

    def __init__(self, architecture: tuple[int, int] = (9, 0), refuses: str = "") -> None:
        self.numbers = {75: architecture[0], 76: architecture[1]}
        self.refuses, self.given, self.depth = refuses, b"", 0
        self.code = ctypes.create_string_buffer(b"machine code")

    def __getattr__(self, name: str) -> Any:
        def called(*args: Any) -> int:
            own = vars(FakeDriver).get(f"_{name}")
            if own is not None:
                own(self, *args)
            return int(name == self.refuses)

        return called

    def _cuGetErrorString(self, code: int, place: Any) -> None:
        place._obj.value = b"refused by the test"

    def _cuDeviceGetAttribute(self, place: Any, attribute: int, device: Any) -> None:
        place._obj.value = self.numbers[attribute]

    def _cuDriverGetVersion(self, place: Any) -> None:
        place._obj.value = 13000

    def _cuCtxPushCurrent_v2(self, context: Any) -> None:
        self.depth += 1

    def _cuCtxPopCurrent_v2(self, place: Any) -> None:
        self.depth -= 1

    def _cuLinkCreate_v2(self, n: int, options: Any, values: Any, state: Any) -> None:
        ctypes.memmove(values[0], b"line 7: no such thing\0", 22)

    def _cuLinkAddData_v2(self, state: Any, kind: int, data: bytes, size: Any, *_: Any) -> None:
        self.given = data
        assert (kind, size.value) == (1, len(data))

    def _cuLinkComplete(self, state: Any, place: Any, size: Any) -> None:
        place._obj.value, size._obj.value = ctypes.addressof(self.code), 12


@pytest.fixture
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver(**getattr(request, "param", {}))
    monkeypatch.setattr(gpu, "_driver", lambda: fake)
    major, minor = fake.numbers.values()
    monkeypatch.setattr(gpu, "_device", lambda: (0, 10 * major + minor))
    return fake


def a_module() -> str:
    text: str = written(lambda x: x * 2 + 1, np.ones(3, np.float32))[0].text
    return text


def test_the_driver_compiles_what_llvm_wrote(driver: FakeDriver) -> None:
    assert gpu.machine_code(a_module()) == b"machine code"
    assert driver.given.endswith(b"\0")
    assert f".entry {thread.NAME}".encode() in driver.given
    assert driver.depth == 0
    assert {"nvptx64", "90", "13000"} <= set(gpu.host())


@pytest.mark.cpu
def test_a_program_for_a_gpu_has_a_gpus_kernels(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever JAX computes on by default."""
    registered: list[tuple[str, bytes]] = []
    monkeypatch.setattr(gpu, "register", lambda *given: registered.append(given))
    function = jax.jit(jax.vmap(fusible(lambda x: jnp.sum(x * x) + 1, "native")))
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    for _ in range(2):  # here first: what it is for one is not taken for the other
        np.testing.assert_allclose(function(x), (x * x).sum(1) + 1, rtol=1e-6)
    lowered = function.trace(x).lower(lowering_platforms=("cuda",)).as_text()
    ((name, code),) = registered
    assert name in lowered
    assert code == b"machine code"
    assert f".entry {thread.NAME}".encode() in driver.given


@pytest.mark.parametrize("driver", [{"refuses": "cuLinkComplete"}], indirect=True)
def test_a_kernel_that_is_refused_says_why(driver: FakeDriver) -> None:
    with pytest.raises(BuildError, match="refused by the test: line 7: no such thing"):
        gpu.machine_code(a_module())
    assert driver.depth == 0


@pytest.mark.parametrize(
    ("driver", "target"),
    [({"architecture": a}, t) for a, t in (((8, 7), 86), ((12, 1), 120), ((13, 0), 120))],
    indirect=["driver"],
)
def test_later_gpus_run_what_earlier_ones_do(driver: FakeDriver, target: int) -> None:
    gpu.machine_code(a_module())
    assert f".target sm_{target}".encode() in driver.given


@pytest.mark.parametrize("driver", [{"architecture": (6, 1)}], indirect=True)
def test_old_gpus_are_refused(driver: FakeDriver) -> None:
    with pytest.raises(BuildError, match=r"architecture 61, expected 70 or later.*backend='xla'"):
        gpu.machine_code(a_module())


def test_without_a_driver_there_is_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str | None) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    gpu._driver.cache_clear()
    monkeypatch.setattr(gpu.ctypes, "CDLL", missing)
    with pytest.raises(BuildError, match="NVIDIA's driver was not found"):
        gpu.host()
    assert executors.slower("native", "cpu") == ("vmap",)
    assert executors.slower("native", "gpu") == ("xla", "vmap")


def test_functions_of_the_c_library_are_cudas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a library that has them says, or a refusal that says where to get it."""
    import llvmlite.binding as llvm

    module, _ = written(lambda x: jnp.sinh(x), np.ones(3, np.float32))
    assert "@sinhf(" in module.text
    monkeypatch.setattr(gpu.sys, "path", [])
    monkeypatch.setattr(gpu, "_COMMON", tmp_path)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    gpu._device_library.cache_clear()
    with pytest.raises(BuildError, match="CUDA_HOME"):
        gpu.ptx(module.text, 90)

    folder = tmp_path / "cuda" / "nvvm" / "libdevice"
    folder.mkdir(parents=True)
    text = """
define float @__nv_sinhf(float %x) {
  %y = fmul float %x, 7.0
  ret float %y
}
define float @__nv_unused(float %x) {
  ret float %x
}
"""
    (folder / "libdevice.10.bc").write_bytes(llvm.parse_assembly(text).as_bitcode())
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    made = gpu.ptx(module.text, 90)
    gpu._device_library.cache_clear()
    assert "__nv_sinhf" in made
    assert "__nv_unused" not in made
    assert ".extern" not in made
