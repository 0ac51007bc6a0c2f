"""What the tests of fused kernels share: how results are compared with `jax.vmap`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import jax
import numpy as np
import pytest

from fraxenv.kernels import get_threads, set_threads
from fraxenv.kernels.native import cpu


@pytest.fixture(scope="module", autouse=True)
def _as_users_compile() -> Iterator[None]:
    """Here it is machine code that is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "OPTIMISATION", 2)
        yield


@pytest.fixture(scope="session", autouse=True)
def _products_in_full() -> None:
    """What is compared with is multiplied in full precision: a GPU's own is 10 bits."""
    if jax.default_backend() != "cpu":
        jax.config.update("jax_default_matmul_precision", "highest")
        os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"


@pytest.fixture(autouse=True)
def _on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where the marker `cpu` asks for it, beside a GPU: here, and in processes of the test."""
    if request.node.get_closest_marker("cpu") is None or jax.default_backend() == "cpu":
        yield
        return
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    jax.config.update("jax_default_device", jax.devices("cpu")[0])
    yield
    jax.config.update("jax_default_device", None)


@contextmanager
def as_triton_can(backend: str) -> Iterator[None]:
    """Pallas goes by way of Triton on a GPU, which lacks some operations."""
    try:
        yield
    except NotImplementedError as error:
        if backend == "pallas" and jax.default_backend() == "gpu" and "Triton" in str(error):
            pytest.xfail(str(error).splitlines()[0])
        raise


@pytest.fixture
def triton() -> Callable[[str], AbstractContextManager[None]]:
    """See `as_triton_can`."""
    return as_triton_can


def numbers(x: Any) -> np.ndarray:
    """An array, of typed keys their bits."""
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(x)


def distance(actual: np.ndarray, expected: np.ndarray, entrywise: bool) -> float:
    """Largest distance in units of the last place; infinite where one is special and one is not.

    Places count from the entry itself, or from the largest of its environment's result.
    """
    special = ~np.isfinite(expected) | ~np.isfinite(actual)
    if not np.array_equal(actual[special], expected[special], equal_nan=True):
        return np.inf
    a, e = (np.where(special, 0, x).astype(np.longdouble) for x in (actual, expected))
    if not a.size:
        return 0.0
    info = np.finfo(expected.dtype)
    scale = np.abs(e)
    if not entrywise and e.ndim:
        scale = scale.reshape(len(e), -1).max(axis=1).reshape(-1, *(1,) * (e.ndim - 1))
    place = np.spacing(np.maximum(scale, info.tiny).astype(expected.dtype)).astype(np.longdouble)
    return float(np.max(np.abs(a - e) / place))


def assert_equal(actual: Any, expected: Any, ulps: float = 0, entrywise: bool = False) -> None:
    """The same structure, shapes, dtypes and numbers; floats within `ulps` (0: every bit)."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    leaves = jax.tree_util.tree_leaves_with_path(expected)
    for (path, e), a in zip(leaves, jax.tree.leaves(actual), strict=True):
        name = jax.tree_util.keystr(path)
        assert (a.shape, a.dtype) == (e.shape, e.dtype), name
        a, e = numbers(a), numbers(e)
        if e.dtype.kind == "f" and ulps != 0:
            far = distance(a, e, entrywise)
            assert far <= ulps, f"{name}: {far:.1f} units of the last place\n{a}\n{e}"
        else:
            np.testing.assert_array_equal(a.view(bits_of(a)), e.view(bits_of(e)), err_msg=name)


def bits_of(x: np.ndarray) -> Any:
    """An integer dtype of that size, so that every bit counts."""
    return f"u{x.dtype.itemsize}" if x.dtype.kind == "f" else x.dtype


@pytest.fixture
def equal() -> Callable[..., None]:
    """See `assert_equal`."""
    return assert_equal


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """`set_threads`, and the number as it was afterwards."""
    before = get_threads()
    yield set_threads
    set_threads(before)
