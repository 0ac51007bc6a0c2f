"""What machine code is like, where it decides how fast it is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.kernels import fuse
from fraxenv.kernels.errors import BuildError
from fraxenv.kernels.native import cpu, executor

pytestmark = pytest.mark.cpu

MANY = 80
"""Values that wait at a time, more than there are registers."""


class Compiled:
    """The texts of modules that are compiled, and their machine code."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        self.codes: list[bytes] = []
        self._compile = cpu.machine_code
        monkeypatch.setattr(cpu, "machine_code", self._kept)
        monkeypatch.setattr(executor.cache, "load", lambda *_: None)

    def _kept(self, text: str, **begun: Any) -> bytes:
        self.texts.append(text)
        self.codes.append(self._compile(text, **begun))
        return self.codes[-1]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    return Compiled(monkeypatch)


def crowded(x: Any) -> Any:
    """All of `x` (MANY,) are needed before any is free."""
    sums = jnp.cumsum(x)
    return jnp.sum(jnp.sqrt(sums) * x[::-1] * jnp.flip(sums))


on_x86 = pytest.mark.skipif(not cpu.host()[0].startswith("x86_64"), reason="code of x86-64")


def block_of(text: str) -> str:
    """The assembly of what computes a vector of environments."""
    import llvmlite.binding as llvm

    assembly: str = cpu._target_machine().emit_assembly(llvm.parse_assembly(text))
    return assembly[assembly.index("\nblock:") : assembly.index("\nvectors:")]


def crowds(dtype: Any) -> Any:
    return np.random.default_rng(0).uniform(1, 2, (64, MANY)).astype(dtype)


@on_x86
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_are_whole(compiled: Compiled, dtype: Any) -> None:
    """In a register, in no two; and on the stack in one line of the cache.

    Across two lines each access is two: kernels took a third more time. In halves those of float64
    took a quarter more, and LLVM for them.
    """
    with jax.enable_x64(True):
        fuse(crowded)(crowds(dtype))
    block = block_of(compiled.texts[-1])
    assert "(%rsp)" in block
    assert f"andq\t$-{cpu.vector_bytes()}, %rsp" in block
    roots = [x for x in block.split("\n") if "\tvsqrtp" in x]
    assert len(roots) == MANY or cpu.vector_bytes() < 32  # without AVX: sqrtps
    assert all({64: "%zmm", 32: "%ymm"}[cpu.vector_bytes()] in x for x in roots)


@on_x86
def test_constants_are_near_the_code(compiled: Compiled) -> None:
    """LLVM calls sections of code that may be anywhere `.ltext`."""
    fuse(lambda x: x * 1.234 + 5.678)(np.ones(64, np.float32))
    assert compiled.codes
    assert not any(b".ltext" in code for code in compiled.codes)


@pytest.mark.parametrize("fn", [jnp.sin, jnp.cos, jnp.exp])
def test_numbers_are_rounded_as_vectors(compiled: Compiled, fn: Any) -> None:
    """LLVM makes integers of any floats lane by lane."""
    of_no_other_test = 0.7654321
    fuse(lambda x: fn(of_no_other_test * x))(np.ones(64, np.float32))
    assert compiled.texts
    assert not any("fptosi" in text for text in compiled.texts)


def test_what_llvm_cannot_read_is_said() -> None:
    with pytest.raises(BuildError, match=r"could not read the kernel: .*expected type"):
        cpu.machine_code("define nonsense")
