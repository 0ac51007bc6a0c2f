"""`fuse` among JAX's transformations, threads and devices, and what it falls back to."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support import with_slow

from fraxenv.kernels import (
    BACKENDS,
    KernelError,
    KernelWarning,
    check_backend,
    explain,
    fuse,
    fusible,
    get_threads,
    set_threads,
)
from fraxenv.kernels.native import cpu
from fraxenv.kernels.rules import products

Equal = Callable[..., None]
Threads = Callable[[int], None]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(17, 5)).astype(np.float32)
P = RNG.normal(size=(5,)).astype(np.float32)
WIDE = RNG.normal(size=(4, 17, 5)).astype(np.float32)
PARAMETERS = RNG.normal(size=(4, 5)).astype(np.float32)
KEYS = jax.random.split(jax.random.key(0), 17)
INDICES = np.arange(17, dtype=np.int32) % 5
ULPS = 16


def function(x: Any, p: Any) -> Any:
    return {"product": jnp.sin(x) * p, "rest": (x @ p, jnp.cumsum(x))}


def total(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: sum(jnp.sum(y) for y in jax.tree.leaves(fn(*args)))


# Each takes a function of (5,) and (5,) and gives a program: once with `function`, once fused.
COMPOSITIONS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "unbatched": lambda f: f(X[0], P),
    "vmap": lambda f: jax.vmap(f, (0, None))(X, P),
    "jit of vmap": lambda f: jax.jit(jax.vmap(f, (0, None)))(X, P),
    "vmap of jit": lambda f: jax.vmap(jax.jit(f), (0, None))(X, P),
    "last axes": lambda f: jax.vmap(f, (-1, None))(X.T, P),
    "out_axes": lambda f: jax.vmap(f, (0, None), {"product": 1, "rest": (0, -1)})(X, P),
    "nothing batched": lambda f: jax.vmap(f, (None, None), axis_size=3)(X[0], P),
    "named axis": lambda f: jax.vmap(f, (0, None), axis_name="envs")(X, P),
    "keywords": lambda f: jax.vmap(f)(x=X, p=X[::-1]),
    "nested": lambda f: jax.vmap(jax.vmap(f, (0, None)), (0, None))(WIDE, P),
    "nested, others": lambda f: jax.vmap(jax.vmap(f, (0, None)), (None, 0))(X, PARAMETERS),
    "nested, turned": lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None))(X, PARAMETERS),
    "nested, both": lambda f: jax.vmap(jax.vmap(f, (0, None)))(WIDE, PARAMETERS),
    "grad of vmap": lambda f: jax.grad(total(jax.vmap(f, (0, None))), (0, 1))(X, P),
    "vmap of grad": lambda f: jax.vmap(jax.grad(total(f), (0, 1)), (0, None))(X, P),
    "jvp": lambda f: jax.jvp(jax.vmap(f, (0, None)), (X, P), (X * 2, P)),
    "vjp": lambda f: jax.vjp(lambda x: jax.vmap(f, (0, None))(x, P)["product"], X)[1](X),
    "linearize": lambda f: jax.linearize(jax.vmap(f, (0, None)), X, P)[1](X, P),
    "hessian": lambda f: jax.vmap(jax.hessian(total(f)), (0, None))(X, P),
    "jacobians": lambda f: jax.vmap(jax.jacrev(jax.jacfwd(f)), (0, None))(X, P),
    "remat": lambda f: jax.grad(total(jax.checkpoint(jax.vmap(f, (0, None)))))(X, P),
    "in scan": lambda f: lax.scan(
        lambda c, _: (jax.vmap(f, (0, None))(c, P)["product"], c.sum()), X, length=3
    ),
    "scanned": lambda f: jax.vmap(
        lambda x: lax.scan(lambda c, _: (f(c, P)["product"], c.sum()), x, length=3)
    )(X),
    "in while": lambda f: jax.vmap(
        lambda x: lax.while_loop(lambda c: c.sum() > 1, lambda c: f(c, P)["product"] * 0.5, x)
    )(X),
    "in cond": lambda f: jax.vmap(
        lambda x: lax.cond(x[0] > 0, lambda: f(x, P)["product"], lambda: x)
    )(X),
    "in a kernel": lambda f: fuse(lambda x: f(x, P)["product"] + 1, "native")(X),
    "batched in a kernel": lambda f: fuse(lambda x: jax.vmap(f, (0, None))(x, P), "native")(WIDE),
    "gradient in a kernel": lambda f: fuse(jax.grad(total(f), (0, 1)), in_axes=(0, None))(X, P),
}


AS_A_WHOLE = ("hessian", "jacobians", "linearize", "nested, others", "in cond")
"""Of so many operations that they are compiled together, not one by one."""


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_composition(name: str, equal: Equal) -> None:
    compose = COMPOSITIONS[name]
    expected = jax.jit(lambda: compose(function))()

    def fused() -> Any:
        return compose(fusible(function, "native"))

    equal((jax.jit(fused) if name in AS_A_WHOLE else fused)(), expected, ULPS)


@pytest.mark.parametrize("name", ["vmap", "keywords", "nested, both", "grad of vmap", "in scan"])
def test_numpy_arrays_within_jit(name: str, equal: Equal) -> None:
    """JAX's own `custom_jvp` refuses them under `vmap`."""
    compose = COMPOSITIONS[name]
    expected = jax.jit(lambda: compose(function))()
    equal(jax.jit(lambda: compose(fusible(function, "native")))(), expected, ULPS)

    def closed(batch: Callable[..., Any]) -> Any:
        return jax.jit(lambda: jax.vmap(lambda p: batch(lambda x: x * p)(X))(PARAMETERS))()

    equal(closed(lambda f: jax.vmap(fusible(f, "native"))), closed(jax.vmap), 1)


@pytest.mark.parametrize("backend", ["native", "xla", "pallas", "vmap", "auto"])
def test_backends_compose(backend: str, equal: Equal) -> None:
    expected = jax.jit(jax.vmap(jax.vmap(function, (0, None)), (None, 0)))(X, PARAMETERS)
    inner = fuse(function, backend, in_axes=(0, None))
    equal(jax.vmap(inner, (None, 0))(X, PARAMETERS), expected, ULPS)


def test_a_kernel_in_a_kernel_is_one() -> None:
    """A function that calls a fused one, in a batch of its own, becomes a single kernel."""
    inner = fuse(lambda row: jnp.cos(row).sum(), "native")
    about = explain(lambda x: inner(x) * 2, "native")(WIDE)
    assert (about.kernels, about.fallbacks) == (1, [])


# --- arguments and results ---


def test_axes_of_trees(equal: Equal) -> None:
    def fn(d: Any, pair: Any, nothing: Any) -> Any:
        assert nothing is None
        return d["x"] * d["p"] + pair[0] - pair[1]

    args = ({"x": X, "p": P}, (X.T, np.float32(2)), None)
    axes = ({"x": 0, "p": None}, (1, None), None)
    equal(fuse(fn, "native", in_axes=axes)(*args), jax.vmap(fn, axes)(*args), ULPS)
    assert explain(fn, "native", in_axes=axes)(*args).kernels == 1


def test_keywords(equal: Equal) -> None:
    def fn(x: Any, *, scale: Any) -> Any:
        return x * scale, None

    equal(fuse(fn, "native")(X, scale=X), jax.vmap(fn)(X, scale=X), 1)


def test_closed_over_values(equal: Equal) -> None:
    """Values of outer transformations are operands, and are differentiated as such."""

    def outer(fused: bool) -> Callable[..., Any]:
        def of(p: Any, key: Any) -> Any:
            def fn(x: Any) -> Any:
                return function(x, p)["product"] + jax.random.uniform(key)

            return fuse(fn, "native")(X) if fused else jax.vmap(fn)(X)

        return of

    key = jax.random.key(1)
    for transform in (
        lambda f: f(P, key),
        lambda f: jax.jit(f)(P, key),
        lambda f: jax.vmap(f, (0, None))(PARAMETERS, key),
        lambda f: jax.vmap(f)(PARAMETERS, KEYS[:4]),
        lambda f: jax.grad(total(f))(P, key),
        lambda f: jax.jit(jax.vmap(jax.grad(total(f))))(PARAMETERS, KEYS[:4]),
    ):
        expected = jax.jit(lambda: transform(outer(False)))()  # noqa: B023
        equal(transform(outer(True)), expected, ULPS)


def test_closed_over_numbers_fold() -> None:
    about = explain(lambda x: jnp.array([[0.0, 1], [-1, 0]]) @ x, "native")(X[:, :2])
    assert about.kinds == {"neg": 1}


def test_other_dtypes_beside_gradients(equal: Equal) -> None:
    """Integers, booleans and keys pass by what is differentiated."""

    def fn(x: Any, i: Any, b: Any, key: Any) -> Any:
        return x[i] * b * jax.random.uniform(key), (i + 1, b, jax.random.split(key))

    def loss(batch: Callable[..., Any]) -> Callable[..., Any]:
        def of(x: Any) -> Any:
            y, rest = batch(x, INDICES, X[:, 0] > 0, KEYS)
            return y.sum(), rest

        return jax.grad(of, has_aux=True)

    equal(loss(fuse(fn, "native"))(X), jax.jit(loss(jax.vmap(fn)))(X), ULPS)
    vjp = jax.vjp(jax.vmap(fusible(lambda i: i * 2, "native")), INDICES)[1]
    (cotangent,) = vjp(np.zeros(17, jax.dtypes.float0))
    assert cotangent.dtype == jax.dtypes.float0


@pytest.mark.parametrize("backend", ["native", "xla", "pallas"])
def test_results_without_computation(backend: str, equal: Equal) -> None:
    def fn(x: Any, i: Any, key: Any, flag: Any, p: Any) -> Any:
        constants = (jnp.float32(1), jnp.arange(3), 2, True, jax.random.key(3))
        return constants, (x, i, key, flag, x, p), x[:0], (), None, jnp.zeros((0, 2))

    args, axes = (X, INDICES, KEYS, X[:, 0] > 0, P), (0, 0, 0, 0, None)
    equal(fuse(fn, backend, in_axes=axes)(*args), jax.jit(jax.vmap(fn, axes))(*args))
    assert fuse(lambda x: (), backend)(X) == ()
    equal(fuse(lambda x: x[:0], backend)(X), X[:, :0])


@pytest.mark.parametrize("backend", ["native", "xla", "pallas"])
def test_empty_batch(backend: str, equal: Equal) -> None:
    equal(
        fuse(function, backend, in_axes=(0, None))(X[:0], P),
        jax.vmap(function, (0, None))(X[:0], P),
    )


@functools.cache
def _many_rows() -> Any:
    """And what `function` makes of them."""
    x = np.tile(X, (12, 1))[:200]
    return x, jax.jit(jax.vmap(function, (0, None)))(x, P)


SIZES = (1, 2, 15, 16, 17, 31, 33, 200)


@pytest.mark.parametrize(
    ("size", "backend"),
    [
        *((size, "native") for size in SIZES),
        *(  # which know no vectors
            pytest.param(size, b, marks=() if size in (1, 17, 200) else pytest.mark.slow)
            for size in SIZES
            for b in ("xla", "pallas")
        ),
    ],
)
def test_sizes_of_batches(size: int, backend: str, equal: Equal) -> None:
    x, expected = jax.tree.map(lambda y: y[:size], _many_rows())
    equal(fuse(function, backend, in_axes=(0, None))(x, P), expected, ULPS)


@pytest.mark.parametrize(
    "columns", with_slow([1, 2, 3, 4, 7, 8, 15, 16, 17, 40], 2, 3, 7, 15, 16, 40)
)
def test_widths_of_rows(columns: int, equal: Equal) -> None:
    """Every layout of rows in memory, of every size of number."""
    dtypes = (np.float32, np.int8, np.uint16, np.int32, np.bool_)

    def fn(*xs: Any) -> Any:
        return [jnp.flip(x) for x in xs], [x[:1] for x in xs], sum(x.astype(float) for x in xs)

    args = [RNG.integers(0, 100, (37, columns)).astype(d) for d in dtypes]
    equal(fuse(fn, "native")(*args), jax.jit(jax.vmap(fn))(*args))


def test_widths_of_double_rows(x64: None, equal: Equal) -> None:
    for columns in (1, 2, 5, 8, 9):
        args = [RNG.integers(0, 100, (19, columns)).astype(d) for d in (float, int, np.uint8)]
        fn = lambda *xs: ([jnp.flip(x) for x in xs], sum(x * 2 for x in xs))  # noqa: E731
        equal(fuse(fn, "native")(*args), jax.jit(jax.vmap(fn))(*args))


# --- what lanes share, and what they do not ---


def _position(x: Any) -> Any:
    return jnp.tanh(jnp.outer(jnp.sin(x), jnp.exp(x))).sum(0), jnp.arctan2(x, x[::-1])


def test_a_lane_does_not_depend_on_its_neighbours(equal: Equal) -> None:
    """Bit by bit the same at any place of a batch of any size, with any number of threads."""
    fused = fuse(_position, "native")
    x = RNG.normal(size=(1000, 5)).astype(np.float32)
    whole = fused(x)
    for size in (1, 16, 17):
        for first in (0, 1, 5, 983):
            part = slice(first, first + size)
            equal(fused(x[part]), jax.tree.map(lambda y: y[part], whole))  # noqa: B023
    order = RNG.permutation(1000)
    equal(fused(x[order]), jax.tree.map(lambda y: y[order], whole))


@pytest.mark.cpu
def test_numbers_of_threads(threads: Threads, equal: Equal) -> None:
    fused = fuse(_position, "native")
    x = RNG.normal(size=(30_001, 5)).astype(np.float32)
    threads(1)
    expected = fused(x)
    for n in (2, 5):
        threads(n)
        for _ in range(3):
            equal(fused(x), expected)


@pytest.mark.cpu
def test_python_threads(equal: Equal) -> None:
    """Kernels are made and run by several threads at once."""
    x = RNG.normal(size=(999, 5)).astype(np.float32)
    shared = fuse(_position, "native")

    def run(k: int) -> Any:
        own = fuse(lambda v: _position(v * k), "native")
        return [shared(x) for _ in range(5)], own(x)

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(run, [1, 2, 3] * 4))
    expected = shared(x)
    alone = {k: fuse(lambda v, k=k: _position(v * k), "native")(x) for k in (1, 2, 3)}
    for k, (many, own) in zip([1, 2, 3] * 4, results, strict=True):
        for one in many:
            equal(one, expected)
        equal(own, alone[k])


def test_number_of_threads_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (0, -1):
        with pytest.raises(KernelError, match="at least one"):
            set_threads(n)
    monkeypatch.setattr(cpu, "_threads", ctypes.c_int32(0))
    monkeypatch.setenv("FRAXENV_THREADS", "many")
    with pytest.raises(KernelError, match="FRAXENV_THREADS='many', expected a whole number"):
        get_threads()
    monkeypatch.setenv("FRAXENV_THREADS", "3")
    assert get_threads() == 3


@pytest.mark.cpu
def test_large_products_are_a_librarys(
    equal: Equal, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """With a matrix that all share: XLA's are several times faster, and nothing is copied."""
    monkeypatch.setattr(products, "LARGE_PRODUCT", 512)
    draw = np.random.default_rng(0)
    weights = [draw.normal(size=s).astype(np.float32) / 4 for s in ((5, 24), (24, 24), (24, 3))]

    def network(x: Any, weights: Any) -> Any:
        for w in weights[:-1]:
            x = jax.nn.relu(x @ w)
        return x @ weights[-1]

    def after_long(x: Any, weights: Any) -> Any:
        for _ in range(40):
            x = x + 1e-3 * (jnp.outer(x, x) @ x)
        return network(x, weights)

    for f, outside in ((network, 1), (after_long, 0)):
        fused = fuse(f, "native", in_axes=(0, None))
        equal(fused(X, weights), jax.jit(jax.vmap(f, (0, None)))(X, weights), 512)
        assert len(explain(f, "native", in_axes=(0, None))(X, weights).fallbacks) == outside
    assert not [w for w in recwarn if issubclass(w.category, KernelWarning)]


# --- what is computed outside ---


@pytest.fixture
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been warned of yet in this process."""
    monkeypatch.setattr(sys.modules["fraxenv.kernels.kernel"], "_told", set())


def _callback(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda v: np.asarray(v) * 0.5, shape, x, vmap_method="expand_dims")


FALLBACKS: dict[str, Callable[[Any], Any]] = {
    "pure_callback": lambda x: jnp.sin(_callback(jnp.cos(x))) + x,
    "in a loop": lambda x: lax.fori_loop(0, 3, lambda i, v: _callback(v) + x, x),
    "in a long loop": lambda x: lax.fori_loop(0, 80, lambda i, v: _callback(v) + x, x) * 2,
    "in a while": lambda x: lax.while_loop(lambda v: v.sum() > 1, lambda v: _callback(v), abs(x)),
    "in a branch": lambda x: lax.cond(x[0] > 0, _callback, lambda v: v, x),
    "twice": lambda x: _callback(_callback(x) * x) + x,
    "lu": lambda x: jnp.linalg.solve(3 * jnp.eye(5) + jnp.outer(x, x), x),
    "sort": lambda x: jnp.sort(jnp.tile(x, 8))[::7],
    "scatter": lambda x: x.at[jnp.array([1, 3])].apply(lambda v: v * 2 + 1),
    "debug_callback": lambda x: (jax.debug.callback(lambda v: None, x), x * 2)[1],
    "a kernel without inputs": lambda x: _callback(jnp.arange(3.0)) + x[:3],
    "nothing else": lambda x: _callback(x),
    "known rounds": lambda x: lax.while_loop(lambda i: i < 1000, lambda i: i + 1, 0) + x,
}


# What is outside is found before an executor is chosen: of "xla", a few of each kind.
IN_XLA = ("pure_callback", "in a branch", "lu", "known rounds")


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "native") for name in FALLBACKS),
        *(
            pytest.param(name, "xla", marks=() if name in IN_XLA else pytest.mark.slow)
            for name in FALLBACKS
        ),
    ],
)
def test_fallback(name: str, backend: str, nothing_told: None, equal: Equal) -> None:
    fn = FALLBACKS[name]
    expected = jax.jit(jax.vmap(fn))(X)
    with pytest.warns(KernelWarning, match="outside the fused kernel, which is right but slower"):
        equal(fuse(fn, backend)(X), expected, ULPS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        fuse(fn, backend)(X)
    about = explain(fn, backend)(X)
    assert about.fallbacks
    assert "outside the kernel" in str(about)


@pytest.mark.parametrize("implementation", ["rbg", "unsafe_rbg"])
def test_other_random_numbers(implementation: str, nothing_told: None, equal: Equal) -> None:
    keys = jax.random.split(jax.random.key(0, impl=implementation), 3)

    def fn(key: Any) -> Any:
        return jax.random.uniform(key, (3,)), jax.random.split(key)

    with pytest.warns(KernelWarning, match="rng_bit_generator"):
        equal(fuse(fn, "native")(keys), jax.jit(jax.vmap(fn))(keys))


@pytest.mark.parametrize("backend", with_slow(["native", "xla"], "xla"))
@pytest.mark.parametrize("name", ["float16", "bfloat16", "complex64"])
def test_unsupported_dtypes(name: str, backend: str, nothing_told: None, equal: Equal) -> None:
    """They are carried about in kernels, and computed with outside."""
    dtype = jnp.dtype(name)

    def fn(x: Any, y: Any) -> Any:
        narrow = x.astype(dtype)
        joined = jnp.concatenate([y, jnp.full(2, 1.5, dtype)])
        return narrow * 2, joined[::-1], jnp.where(x[0] > 0, y, jnp.zeros(5, dtype)), x.sum()

    y = X.astype(dtype)
    expected = jax.jit(jax.vmap(fn))(X, y)
    with pytest.warns(KernelWarning) as said:
        actual = fuse(fn, backend)(X, y)
    assert any(f"of {name}, so 'convert_element_type'" in str(w.message) for w in said)
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        np.testing.assert_allclose(np.asarray(a).astype(complex), np.asarray(e).astype(complex))


def test_packed_dtypes(equal: Equal) -> None:
    x = jnp.arange(24, dtype=jnp.int8).reshape(3, 8).astype(jnp.int4)
    with pytest.warns(KernelWarning, match="int4 is kept several to a byte"):
        actual = fuse(lambda v: v[::-1], "native")(x)
    np.testing.assert_array_equal(np.asarray(actual, int), np.asarray(x, int)[:, ::-1])


def test_programs_that_are_too_large(monkeypatch: pytest.MonkeyPatch, equal: Equal) -> None:
    monkeypatch.setenv("FRAXENV_CACHE", "0")  # of a compiler that takes larger ones
    monkeypatch.setattr("fraxenv.kernels.program.LARGEST", 30)
    fn = lambda x: jnp.cumsum(jnp.outer(x, x))  # noqa: E731
    with pytest.warns(KernelWarning, match="more than 30 scalar operations"):
        equal(fuse(fn, "native")(X), jax.vmap(fn)(X))


def test_derivatives_may_be_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function has 184 values, its derivative 241."""
    monkeypatch.setenv("FRAXENV_CACHE", "0")
    x = np.linspace(0.1, 1.0, 12, dtype=np.float32).reshape(3, 4)

    def gradient() -> Any:
        return jax.vmap(jax.grad(fusible(lambda x: jnp.sum(jnp.sin(x) * x[::-1]), "native")))(x)

    expected = np.cos(x) * x[:, ::-1] + np.sin(x)[:, ::-1]
    monkeypatch.setattr("fraxenv.kernels.program.LARGEST", 200)
    np.testing.assert_allclose(gradient(), expected, rtol=1e-5)
    monkeypatch.setattr("fraxenv.kernels.program.LARGEST", 50)
    with pytest.warns(KernelWarning, match="cotangent of .* more than 200 scalar operations"):
        np.testing.assert_allclose(gradient(), expected, rtol=1e-5)


def test_collectives_are_not_fused(equal: Equal) -> None:
    def fn(x: Any) -> Any:
        return x - lax.pmean(x, "envs")

    expected = jax.vmap(fn, axis_name="envs")(X)
    equal(jax.vmap(fusible(fn, "native"), axis_name="envs")(X), expected, ULPS)


# --- which backend ---


def test_unknown_backends() -> None:
    for make in (fuse, fusible, explain):
        with pytest.raises(KernelError, match="backend='cuda', expected one of auto, native"):
            make(function, "cuda")
    with pytest.raises(KernelError):
        check_backend("")
    for backend in BACKENDS:
        check_backend(backend)


def test_backend_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    about = explain(function, in_axes=(0, None))
    for backend in ("xla", "vmap", "native"):
        monkeypatch.setenv("FRAXENV_BACKEND", backend)
        assert about(X, P).backend == backend
        assert explain(function, "xla", in_axes=(0, None))(X, P).backend == "xla"
    monkeypatch.setenv("FRAXENV_BACKEND", "auto")
    assert about(X, P).backend == "native"
    monkeypatch.setenv("FRAXENV_BACKEND", "cuda")
    with pytest.raises(KernelError, match="FRAXENV_BACKEND='cuda', expected one of auto"):
        fuse(function, in_axes=(0, None))(X, P)
    assert fuse(function, "native", in_axes=(0, None))(X, P)


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


WITHOUT_LLVMLITE = """
import sys, warnings
sys.modules["llvmlite"] = None
import numpy as np, jax.numpy as jnp
with warnings.catch_warnings():
    warnings.simplefilter("error")
    from fraxenv.kernels import explain, fuse
for backend in ("auto", "auto", "xla", "native"):
    y = fuse(jnp.sin, backend)(np.ones((3, 2), np.float32))
    assert np.allclose(y, np.sin(1))
assert explain(jnp.sin)(np.ones((3, 2), np.float32)).backend == "vmap"
"""


@pytest.mark.cpu
def test_without_llvmlite() -> None:
    done = python(WITHOUT_LLVMLITE)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "KernelWarning" in line]
    assert len(said) == 2, done.stderr  # one for "auto", one for the kernel that was asked for
    assert "pip install 'fraxenv[native]'" in said[0]


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from fraxenv.kernels import fuse
assert len(jax.devices()) == 4
mesh = jax.make_mesh((4,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
rng = np.random.default_rng(0)
x, p = (rng.normal(size=s).astype(np.float32) for s in ((64, 5), (5,)))
fn = lambda x, p: (jnp.sin(x) * p, x @ p)
expected = jax.jit(jax.vmap(fn, (0, None)))(x, p)
for backend in ("native", "xla"):
    fused = fuse(fn, backend, in_axes=(0, None))
    specs = dict(in_specs=(P("devices"), P()), out_specs=P("devices"))
    mapped = jax.jit(jax.shard_map(fused, mesh=mesh, **specs))
    sharded = jax.device_put(x, NamedSharding(mesh, P("devices")))
    for y in (mapped(x, p), fused(sharded, p)):
        for a, e in zip(y, expected):
            assert a.sharding.spec[0] == "devices", a.sharding
            np.testing.assert_allclose(a, e, rtol=2e-6, atol=2e-6)
"""


@pytest.mark.cpu
def test_devices() -> None:
    four = "--xla_force_host_platform_device_count=4"
    done = python(SHARDED, XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} {four}")
    assert done.returncode == 0, done.stderr
