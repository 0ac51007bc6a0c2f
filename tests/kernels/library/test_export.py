"""`export`: what C compilers, sanitizers, an emulated ARM and the kernels themselves say of it."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fraxenv import fuse
from fraxenv.errors import KernelError
from fraxenv.kernels import Library, export
from fraxenv.kernels.library.signature import identifier
from fraxenv.kernels.native import packs

pytestmark = pytest.mark.cpu

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


class Memory(NamedTuple):
    """What a function remembers, of every kind of array."""

    sum: Any
    count: Any
    going: Any
    nothing: Any
    key: Any


def step(memory: Memory, x: Any, gain: Any) -> tuple[Any, Memory]:
    """One step of something.

    And more of it.
    """
    total = memory.sum + gain * jnp.sin(x)
    noise = jax.random.uniform(memory.key, (), jnp.float32)
    count = memory.count + jnp.where(memory.going, 1, 2).astype(memory.count.dtype)
    after = memory._replace(sum=total, count=count, going=jnp.all(total > 0))
    return jnp.outer(total, x) + noise, after


def arguments() -> tuple[Memory, Any, Any]:
    memory = Memory(
        np.array([0.1, np.inf, -0.0], np.float32),
        np.uint8(250),
        True,
        np.zeros((0, 2)),
        jax.random.key(1),
    )
    return memory, np.float32([1, 2, 3]), 0.5


def settle(x: Any, matrix: Any) -> Any:
    """A loop as long as it takes, a rare branch, and products that sums need."""

    def going(carry: Any) -> Any:
        k, y = carry
        return (k < 40) & (jnp.sum(jnp.abs(matrix @ y - x)) > 1e-4)

    def turn(carry: Any) -> Any:
        k, y = carry
        return k + 1, y + 0.2 * (x - matrix @ y)

    rounds, y = lax.while_loop(going, turn, (jnp.int32(0), jnp.zeros_like(x)))
    return lax.cond(jnp.max(y) > 1.5, lambda: y / jnp.sqrt(y @ y), lambda: y * 2 + x), rounds


SETTLED = (np.ones(4, np.float32), np.eye(4, dtype=np.float32))


def many(n: int, dtype: Any = np.float32) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    half = random.normal(size=(n, 4, 4)) * 0.3
    matrices = np.eye(4) + half @ half.transpose(0, 2, 1)
    return random.normal(size=(n, 4)).astype(dtype), matrices.astype(dtype)


def compile_test(library: Library, *flags: str, compiler: Sequence[str] = ("cc",)) -> Path:
    program = library.library.parent / "program"
    files = [str(library.test), str(library.library), "-lm", "-o", str(program)]
    rpath = [] if library.library.suffix == ".o" else [f"-Wl,-rpath,{library.library.parent}"]
    subprocess.run([*compiler, *flags, *files, *rpath], check=True)
    return program


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *words], capture_output=True, text=True, check=False)


def caller(library: Library, name: str) -> Callable[..., list[Any]]:
    """The library's function on NumPy's arrays: results shaped as others are."""
    function = getattr(ctypes.CDLL(str(library.library)), f"{name}_")

    def call(given: Sequence[Any], shaped: Sequence[Any]) -> list[Any]:
        ins = [np.ascontiguousarray(x) for x in given]
        outs = [np.zeros_like(x) for x in shaped]
        pointers = [(ctypes.c_void_p * len(xs))(*[x.ctypes.data for x in xs]) for xs in (ins, outs)]
        function(*pointers)
        return outs

    return call


def same_bits(a: Any, b: Any) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


# --- what C sees ---


def test_header_says_all_there_is_to_know(tmp_path: Path) -> None:
    units = {"x": "rad", "tau": "N m"}
    made = export(step, arguments(), "pi", "object", output=tmp_path, results=("tau", "memory"),
                  units=units)  # fmt: skip
    text = made.header.read_text()
    assert "typedef struct {\n  float sum[3];\n  uint8_t count;\n  uint8_t going;\n" in text
    assert "  uint32_t key[2];\n} pi_memory;" in text
    assert "nothing" not in text
    signature = re.sub(r"[\s\\\\]+", " ", text)
    assert "{{0.1f, INFINITY, -0.0f}, 250, 1, {0u, 1u}}" in signature
    assert (
        "static inline void pi( const pi_memory *memory, const float x[3], float gain, "
        "float tau[9], pi_memory *next_memory) {" in signature
    )
    assert "And more" not in text
    for note in ("One step of something.", "x: (3,), rad.", "tau: (3, 3), N m.", "gain: a number."):
        assert note in text
    assert f'#define PI_VERSION "{made.version}"' in text


@needs_compiler
@pytest.mark.parametrize("kind", ["shared", "static", "object"])
def test_the_test_program_finds_the_kernels_bits(tmp_path: Path, kind: Any) -> None:
    made = export(step, arguments(), "pi", kind, output=tmp_path, results=("tau", "memory"))
    program = compile_test(made, "-std=c99", *WARNINGS)
    ran = run(program, "100")
    assert ran.returncode == 0, ran.stdout
    assert "pi: the kernel's bits" in ran.stdout
    assert "pi: 100 calls, median" in ran.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["program", *(p.name for p in (made.library, made.header, made.test))]
    )


@needs_compiler
def test_wrong_bits_and_another_version_are_told(tmp_path: Path) -> None:
    made = export(step, arguments(), "pi", output=tmp_path, results=("tau", "memory"))
    right = made.test.read_text()
    made.test.write_text(re.sub(r"(right\[\] = \{)0x..", r"\g<1>0xab", right, count=1))
    ran = run(compile_test(made))
    assert ran.returncode == 1
    assert "  tau differs from the kernel's\npi: wrong" in ran.stdout
    made.test.write_text(right)
    made.header.write_text(made.header.read_text().replace(made.version, "another"))
    ran = run(compile_test(made))
    assert ran.returncode == 2
    assert f"the library is of version {made.version}, its header of another" in ran.stdout


CLANG = [sys.executable, "-m", "ziglang"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover"]


@needs_compiler
@pytest.mark.parametrize(
    ("compiler", "flags", "sanitizers"),
    [
        (["cc"], ["-std=c99"], SANITIZERS),
        (["c++"], ["-x", "c++", "-std=c++17"], []),
        ([*CLANG, "cc"], ["-std=c99"], []),
        ([*CLANG, "c++"], ["-x", "c++", "-std=c++17"], []),
    ],
    ids=["sanitizers", "c++", "clang", "clang++"],
)
def test_other_compilers_take_it(
    tmp_path: Path, compiler: list[str], flags: list[str], sanitizers: list[str]
) -> None:
    if "ziglang" in compiler and find_spec("ziglang") is None:
        pytest.skip("clang (of ziglang) is not installed")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"there is no {compiler[0]}")
    functions = {"step": step, "settle": settle}
    made = export(functions, {"step": arguments(), "settle": SETTLED}, "both", output=tmp_path)
    # What a C++ program has to say, unlike a header.
    source = made.test.read_text().replace("? malloc(", "? (double *)malloc(")
    made.test.write_text(source)
    program, compiled = tmp_path / "program", tmp_path / "test.o"
    compiling = [*flags, *sanitizers, *WARNINGS, "-c", str(made.test), "-o", str(compiled)]
    linking = [*sanitizers, str(compiled), str(made.library), "-lm", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*compiler, *compiling], check=True)
    subprocess.run([*compiler, *linking, "-o", str(program)], check=True)
    ran = run(program, "10")
    assert ran.returncode == 0, ran.stdout + ran.stderr


# --- its numbers ---


@needs_compiler
@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_bits_are_the_kernels_whatever_the_loop_does(tmp_path: Path, target: Any) -> None:
    if target != "native" and not runs_here(target):
        pytest.skip(f"this is no {target}")
    made = export(settle, SETTLED, "settle", target=target, output=tmp_path)
    call = caller(made, "settle")
    batch = many(300)
    expected = [np.asarray(x) for x in fuse(settle)(*batch)]
    assert len(np.unique(expected[1])) > 5  # lanes end at different rounds
    for k in range(300):
        found = call([x[k] for x in batch], [x[k] for x in expected])
        assert all(same_bits(f, x[k]) for f, x in zip(found, expected, strict=True)), k


def runs_here(target: str) -> bool:
    import llvmlite.binding as llvm

    return target == "x86-64-v3" and bool(llvm.get_host_cpu_features().get("avx2"))


@needs_compiler
def test_bits_in_float64(tmp_path: Path) -> None:
    with jax.enable_x64(True):
        made = export(settle, [x.astype(np.float64) for x in SETTLED], "settle", output=tmp_path)
        batch = many(50, np.float64)
        expected = [np.asarray(x) for x in fuse(settle)(*batch)]
    call = caller(made, "settle")
    for k in range(50):
        found = call([x[k] for x in batch], [x[k] for x in expected])
        assert all(same_bits(f, x[k]) for f, x in zip(found, expected, strict=True)), k


def turned_by(q: Any, v: Any) -> Any:
    """What an arm's step has of the functions that no processor has."""
    x, y = jnp.cumsum(jnp.sin(q)), jnp.cumsum(jnp.cos(q))
    return jnp.arctan2(y, x) + jnp.sqrt(x * x + y * y) * v + jnp.arctan(v)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_on_arm(tmp_path: Path, dtype: Any) -> None:
    pytest.importorskip("ziglang")
    pytest.importorskip("unicorn")
    import arm64

    rng = np.random.default_rng(0)
    given = [rng.normal(size=(2, 7)).astype(dtype) for _ in range(99)]
    with jax.enable_x64(dtype == np.float64):
        made = export(turned_by, [*given[0]], "here", output=tmp_path)
        export(turned_by, [*given[0]], "there", "object", target="aarch64", output=tmp_path)
    program, call = arm64.link(tmp_path / "there.o", "there_"), caller(made, "here")
    shaped = [np.zeros(7, dtype)]
    for row in given:
        assert same_bits(arm64.call(program, [*row], shaped)[0], call([*row], shaped)[0])


def test_bits_on_arm(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    pytest.importorskip("unicorn")
    import arm64

    export(settle, SETTLED, "settle", "object", target="aarch64", output=tmp_path)
    program = arm64.link(tmp_path / "settle.o", "settle_")
    batch = many(50)
    expected = [np.asarray(x) for x in fuse(settle)(*batch)]
    for k in range(50):
        found = arm64.call(program, [x[k] for x in batch], [x[k] for x in expected])
        assert all(same_bits(f, x[k]) for f, x in zip(found, expected, strict=True)), k


def rows(A: Any, x: Any) -> Any:
    """Arrays, which vectors compute, in a loop that carries them and finds one of many rows."""

    def turn(k: Any, state: Any) -> Any:
        y, kept = state
        row = A[jnp.argmin(A @ y)]
        kept = jnp.where((jnp.arange(4) == k % 4)[:, None], row, kept)
        return jnp.where(y > 0, y - 0.1 * row, 0.5 * kept.sum(0)), kept

    return lax.fori_loop(0, 70, turn, (x, jnp.zeros((4, len(x)), x.dtype)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_on_arm(tmp_path: Path, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang")
    pytest.importorskip("unicorn")
    import arm64

    monkeypatch.setattr(packs, "LEAST", 0.0)
    rng = np.random.default_rng(0)
    given = [
        (rng.normal(size=(19, 7)).astype(dtype), rng.normal(size=7).astype(dtype)) for _ in range(9)
    ]
    with jax.enable_x64(dtype == np.float64):
        made = export(rows, [*given[0]], "here", output=tmp_path)
        export(rows, [*given[0]], "there", "object", target="aarch64", output=tmp_path)
    program, call = arm64.link(tmp_path / "there.o", "there_"), caller(made, "here")
    shaped = [np.zeros(7, dtype), np.zeros((4, 7), dtype)]
    for row in given:
        found, expected = arm64.call(program, [*row], shaped), call([*row], shaped)
        assert all(map(same_bits, found, expected))


def network(x: Any) -> Any:
    """A policy's network, all of whose matrices but the last are large enough to stay ones."""
    for matrix in HIDDEN:
        x = jnp.tanh(x @ matrix + matrix[0])
    return x @ np.float32(np.eye(48, 5) + 0.1)


HIDDEN = [
    np.random.default_rng(rows).normal(size=(rows, 48)).astype(np.float32) / 6
    for rows in (29, 48, 48)
]


@needs_compiler
def test_a_network_has_the_same_bits_everywhere(tmp_path: Path) -> None:
    given = np.random.default_rng(5).normal(size=(20, 29)).astype(np.float32)
    expected = [np.zeros(5, np.float32)]
    made = export(network, [given[0]], "network", output=tmp_path)
    call = caller(made, "network")
    found = [call([x], expected)[0] for x in given]
    np.testing.assert_allclose(found, jax.vmap(network)(given), atol=1e-5)
    programs = []
    if runs_here("x86-64-v3"):
        other = export(network, [given[0]], "other", target="x86-64-v3", output=tmp_path)
        programs.append(caller(other, "other"))
    if find_spec("ziglang") and find_spec("unicorn"):
        import arm64

        export(network, [given[0]], "arm", "object", target="aarch64", output=tmp_path)
        there = arm64.link(tmp_path / "arm.o", "arm_")
        programs.append(functools.partial(arm64.call, there))
    for program in programs:
        for x, right in zip(given, found, strict=True):
            assert same_bits(program([x], expected)[0], right)


@needs_compiler
def test_a_network_stays_small(tmp_path: Path) -> None:
    """105 kB; with each of 6000 products by itself 490 kB."""
    made = export(network, [np.zeros(29, np.float32)], "network", "object", output=tmp_path)
    assert made.library.stat().st_size < 200_000


@needs_compiler
def test_a_result_may_lie_where_an_argument_does(tmp_path: Path) -> None:
    def turned(x: Any) -> Any:
        return jnp.cumsum(x[::-1])

    made = export(turned, [np.zeros(100, np.float32)], "turned", output=tmp_path)
    function = ctypes.CDLL(str(made.library)).turned_
    x = np.random.default_rng(0).normal(size=100).astype(np.float32)
    expected = np.asarray(fuse(turned)(x[None]))[0]
    place = (ctypes.c_void_p * 1)(x.ctypes.data)
    function(place, place)
    assert same_bits(x, expected)


@needs_compiler
def test_threads_do_not_meet(tmp_path: Path) -> None:
    call = caller(export(settle, SETTLED, "settle", output=tmp_path), "settle")
    batch = many(64)
    expected = [np.asarray(x) for x in fuse(settle)(*batch)]

    def often(k: int) -> bool:
        shaped = [x[k] for x in expected]
        return all(
            all(map(same_bits, call([x[k] for x in batch], shaped), shaped)) for _ in range(200)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(often, range(64)))


@needs_compiler
def test_it_calls_nothing_but_mathematics(tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("there is no nm")
    made = export({"a": step, "b": settle}, {"a": arguments(), "b": SETTLED}, "two", "object",
                  output=tmp_path)  # fmt: skip
    listed = subprocess.run(
        ["nm", "-u", str(made.library)], capture_output=True, text=True, check=True
    )
    assert set(listed.stdout.split()) <= {"U", "sinf", "memcpy", "memset"}


@needs_compiler
def test_nothing_is_written_outside(tmp_path: Path) -> None:
    """Numbers around the results stay as they are."""
    made = export(settle, SETTLED, "settle", output=tmp_path)
    function = ctypes.CDLL(str(made.library)).settle_
    room = np.full(12, 7.0, np.float32)
    rounds = np.full(9, 7, np.int32)
    given = [np.ascontiguousarray(x) for x in SETTLED]
    ins = (ctypes.c_void_p * 2)(*[x.ctypes.data for x in given])
    function(ins, (ctypes.c_void_p * 2)(room[4:].ctypes.data, rounds[4:].ctypes.data))
    assert (np.delete(room, [4, 5, 6, 7]) == 7).all()
    assert (np.delete(rounds, 4) == 7).all()


@needs_compiler
def test_tables_of_a_long_scan_have_room(tmp_path: Path) -> None:
    """What rounds look up, and what is kept of them, is within what the function asks for."""

    def scanned(rows: Any, start: Any) -> Any:
        def turn(x: Any, row: Any) -> tuple[Any, Any]:
            x = jnp.tanh(0.5 * x + row)
            return x, (x * row, x > 0)

        return lax.scan(turn, start, jnp.concatenate([rows] * 12))

    rng = np.random.default_rng(0)
    given = rng.normal(size=(12, 7)).astype(np.float32), rng.normal(size=7).astype(np.float32)
    made = export(scanned, given, "scanned", output=tmp_path)
    ran = run(compile_test(made))
    assert ran.returncode == 0, ran.stdout


# --- what it refuses ---


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "my-lib"}, "name='my-lib', expected a name as C has it"),
        ({"name": "double"}, "name='double', expected"),
        ({"kind": "dll"}, "kind='dll', expected one of shared, static, object"),
        ({"target": "z80"}, "target='z80', expected one of native, x86-64-v3"),
        ({"example_args": ()}, "has no arguments, expected an array at least"),
        ({"example_args": (1, 2, 3)}, "f does not take example_args: too many positional"),
        ({"example_args": {"z": 1}}, "does not take example_args: missing a required argument"),
        ({"example_args": (jnp.zeros(2, jnp.bfloat16),)}, "x is of bfloat16, expected one of"),
        ({"fn": lambda x: jnp.linalg.eigvalsh(x.reshape(2, 2))}, "'eigh' in it, which no"),
        ({"results": ("a", "b")}, "expected one name, as a string"),
        ({"fn": lambda x: (x, x), "results": ("a",)}, "expected 2 names: as many as it returns"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    usual: dict[str, Any] = {"fn": lambda x: x + 1, "example_args": (np.ones(4, np.float32),)}
    if "example_args" in change and "bfloat16" not in says:
        usual["fn"] = (lambda: 1) if change["example_args"] == () else (lambda x: x)
    arguments = {**usual, "name": "f", "kind": "object", "output": tmp_path, **change}
    with pytest.raises(KernelError, match=re.escape(says)):
        export(**arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_compiler_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = export(settle, SETTLED, "settle", "object", output=tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelError, match=r"a C compiler for native was not found.*kind='object'"):
        export(lambda x: x + 1, SETTLED[:1], "settle", output=tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(KernelError, match="there is no 'no-such-compiler'"):
        export(lambda x: x + 1, SETTLED[:1], "settle", output=tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert made.header.exists()


def test_names_are_names_in_c() -> None:
    assert [identifier(x) for x in ("double", "2nd", "a-b", "q")] == ["double_", "_2nd", "a_b", "q"]
