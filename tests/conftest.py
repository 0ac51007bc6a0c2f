"""What the tests of all folders share: precision, and the settings of hypothesis."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

# Programs that several tests, workers and subprocesses compile alike are compiled once per run.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="fraxenv-tests-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# Kernels as well; and they stay out of the user's own cache.
if "FRAXENV_CACHE_DIR" not in os.environ:
    _kernels = tempfile.TemporaryDirectory(prefix="fraxenv-kernels-", ignore_cleanup_errors=True)
    os.environ["FRAXENV_CACHE_DIR"] = _kernels.name

import gc

import chex
import hypothesis
import jax
import numpy as np
import pytest

from fraxenv.kernels.native import cpu

# Tracing makes objects by the million, few of them garbage before a file's tests have ended: with
# Python's own thresholds a twentieth of the time of test_rules and test_environment went into
# looking, with these a fiftieth.
gc.set_threshold(200_000, 20, 100)


def pytest_collection_finish() -> None:
    """What files import, and their tests, stay: to look through them is most of a collection."""
    gc.freeze()


# Where the suite's programs are compiled quickly (scripts/test.sh), so are its kernels, outside of
# their own tests: most run for a moment.
if "xla_backend_optimization_level=0" in os.environ.get("XLA_FLAGS", ""):
    cpu.OPTIMISATION = 0

# The same examples in every run of the same files (hypothesis also draws constants of whatever is
# imported), so that a failure is never somebody else's bad luck. Properties may use fixtures: the
# ones below give the same thing to every example.
hypothesis.settings.register_profile(
    "fraxenv",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("fraxenv")


@pytest.fixture(autouse=True)
def _no_traces_of_other_tests() -> None:
    """`chex.assert_max_traces` counts by a function's source, which a test's parameters share."""
    chex.clear_trace_counter()


@pytest.fixture(scope="module", autouse=True)
def _no_programs_of_other_modules() -> Iterator[None]:
    """Let go of what a file compiled: otherwise a run takes many gigabytes."""
    yield
    jax.clear_caches()
    gc.collect()


@contextmanager
def _precision(name: str) -> Iterator[np.dtype]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", name == "float64")
    try:
        dtype = jax.numpy.result_type(float)
        assert dtype == name, f"{dtype}: something left jax.enable_x64(...) on in this thread"
        yield dtype
    finally:
        jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="session")
def precision() -> Callable[[str], AbstractContextManager[np.dtype]]:
    """`with precision("float64") as dtype:` for fixtures that outlive one test.

    x64 is a global flag: never leave it on past the end of a test or of a fixture's set-up.
    """
    return _precision


@pytest.fixture
def x64() -> Iterator[None]:
    """float64 is available, and the default, for the length of one test."""
    with _precision("float64"):
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> Iterator[np.dtype]:
    """Run a test in each precision: float32 without x64, float64 with it."""
    with _precision(request.param) as dtype:
        yield dtype
