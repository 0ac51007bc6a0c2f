"""Kernels whose machine code is made while Python and XLA go on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.kernels import fusible
from fraxenv.kernels.native import cores, cpu, executor, waiting

pytestmark = pytest.mark.cpu

X = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No kernels yet, and all of them long."""
    monkeypatch.setenv("FRAXENV_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(executor, "LONG", 0)
    return tmp_path


def batch(factor: float) -> Callable[[Any], Any]:
    """A function that no other test has compiled."""
    return jax.vmap(fusible(lambda x: jnp.sin(factor * x), "native"))


@pytest.mark.parametrize("told", [True, False])
def test_who_compiles_waits_for_the_code_or_who_calls(
    told: bool, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Who calls, if JAX does not tell that a program has been compiled."""
    may, compile = threading.Event(), cpu.machine_code

    def when_told(text: str) -> bytes:
        if "fraxenv_rest" not in text:  # that of the handler that waits
            assert may.wait(60)
        return compile(text)

    monkeypatch.setattr(cpu, "machine_code", when_told)
    if not told:
        monkeypatch.setattr(waiting, "_COMPILED", "")
    factor = 1.11 if told else 1.12
    lowered = jax.jit(batch(factor)).lower(X)
    compiled = None if told else lowered.compile()
    found: list[Any] = []

    def work() -> None:
        found.append(lowered.compile() if told else np.asarray(compiled(X)))  # type: ignore[misc]

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert not list(folder.glob("*.o"))
    may.set()
    thread.join(60)
    assert len(list(folder.glob("*.o"))) == 1
    result = found[0](X) if told else found[0]
    np.testing.assert_allclose(result, np.sin(factor * X), rtol=1e-6)


def test_codes_are_made_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    both, compile = threading.Barrier(2), cpu.machine_code

    def together(text: str) -> bytes:
        if "fraxenv_rest" not in text:
            both.wait(60)
        return compile(text)

    monkeypatch.setattr(cpu, "machine_code", together)
    monkeypatch.setattr(waiting, "_COMPILED", "")  # no other program holds up the second
    with ThreadPoolExecutor(2) as two:  # whatever number of cores there is
        monkeypatch.setattr(cores, "_threads", lambda: two)
        found = jax.jit(lambda x: batch(1.33)(batch(1.22)(x)))(X)
    np.testing.assert_allclose(found, np.sin(1.33 * np.sin(1.22 * X)), rtol=1e-6)


def test_threads_make_the_same_code() -> None:
    """With contexts of their own, and without llvmlite's lock."""
    texts = [f"define float @f(float %x) {{\n  %y = fadd float %x, {k}.0\n  ret float %y\n}}\n"
             for k in range(1, 9)]  # fmt: skip
    alone = [cpu.machine_code(text) for text in texts]
    found: dict[int, list[bytes]] = {}

    def all_of_them(k: int) -> None:
        found[k] = [cpu.machine_code(text) for text in texts * 5]

    threads = [threading.Thread(target=all_of_them, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[k] == alone * 5 for k in range(4))
    assert len(set(alone)) == 8


def test_a_failing_compiler_is_told_to_who_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    compile = cpu.machine_code

    def failing(text: str) -> bytes:
        if "fraxenv_rest" not in text:
            raise OSError("LLVM is ill")
        return compile(text)

    monkeypatch.setattr(cpu, "machine_code", failing)
    with pytest.raises(jax.errors.JaxRuntimeError, match="LLVM is ill"):
        jax.block_until_ready(jax.jit(batch(1.44))(X))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    code = """
import os, warnings
from fraxenv.kernels.native import cores
warnings.simplefilter("ignore")
assert cores.beside(lambda: 1).result(30) == 1
child = os.fork()
if child == 0:
    os._exit(cores.beside(lambda: 7).result(30))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert told.returncode == 0, told.stderr


def test_who_ends_before_keeps_the_code(folder: Path) -> None:
    """Nobody called it: the next process finds it all the same."""
    code = """
import jax, jax.numpy as jnp, numpy as np
from fraxenv.kernels import fusible
from fraxenv.kernels.native import executor
executor.LONG = 0
jax.jit(jax.vmap(fusible(lambda x: jnp.sin(1.55 * x), "native"))).lower(np.ones((4, 3))).compile()
"""
    told = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    assert list(folder.glob("*.o"))
