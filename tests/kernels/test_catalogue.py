"""What users write, in every dtype and on every kind of number, against `jax.vmap`.

The functions are generated: all of `jax.lax`, `jax.numpy` and `jax.nn` that take one, two or three
arrays, and a list of what needs more than arrays. A kernel has to be right, or to leave a function
to JAX (which is right, too): wrong numbers are never an answer, nor is an error.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support import with_slow

from fraxenv.kernels import fuse
from fraxenv.kernels.rules.registry import COMPUTED

Function = Callable[[dict[str, Any]], Any]

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip

ROWS = 48
SHAPES = {"s": (), "t": (), "r": (), "v": (4,), "w": (4,), "m": (3, 3), "n": (3, 3)}
SIGNATURES = ("s", "st", "str", "v", "vw", "m", "mn")
"""Arguments to try, each a name of `SHAPES`."""

# What takes JAX minutes on numbers like these, or crosses environments, or reads what is not there.
LEFT_OUT = (
    "bessel", "beta", "bincount", "conv", "corr", "dlpack", "eig", "expm", "fft", "fromfile",
    "frombuffer", "fromstring", "gamma", "gather", "householder", "infeed", "kron", "outfeed",
    "poly", "printoptions", "qr", "roots", "save", "schur", "svd", "tridiagonal", "zeta",
)  # fmt: skip


# --- numbers ---


def special(dtype: Any) -> np.ndarray:
    """Where functions are special: zeros, ends, infinities, NaN, ties."""
    if dtype == np.dtype(bool):
        return np.array([False, True])
    if jnp.issubdtype(dtype, jnp.integer):
        i = jnp.iinfo(dtype)
        numbers = (i.min, i.min + 1, -7, -1, 0, 0, 1, 2, 3, 7, i.bits - 1, i.bits, i.max - 1, i.max)
        return np.array([n for n in numbers if n >= i.min], object).astype(dtype)
    info = jnp.finfo(dtype)
    numbers = (0.0, 0.5, 1.0, 1.0, 2.5, 3.0, 90.0, float(info.eps), float(info.tiny))
    both = np.array([sign * x for x in (*numbers, np.inf, np.nan) for sign in (1, -1)])
    if jnp.issubdtype(dtype, jnp.complexfloating):
        finite = both[np.isfinite(both)]
        both = np.concatenate([finite + 1j * np.roll(finite, 3), [np.nan, 1j * np.nan]])
    return both.astype(dtype)


def usual(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers of which some are equal."""
    if dtype == np.dtype(bool):
        return rng.random(shape) < 0.5
    if jnp.issubdtype(dtype, jnp.integer):
        return rng.integers(0, 7, shape).astype(dtype)
    x = np.round(rng.normal(0, 2, shape) * 4) / 4 + 0.125
    if jnp.issubdtype(dtype, jnp.complexfloating):
        x = x + 1j * np.round(rng.normal(0, 2, shape) * 4) / 4
    return x.astype(dtype)


def arguments(dtype: Any) -> dict[str, dict[str, np.ndarray]]:
    """Batches of special and of usual numbers, by the name of the argument."""
    rng = np.random.default_rng(0)
    few = special(dtype)
    strange = {k: few[rng.integers(0, len(few), (ROWS, *shape))] for k, shape in SHAPES.items()}
    return {
        "special": strange,
        "usual": {k: usual(rng, dtype, (ROWS, *shape)) for k, shape in SHAPES.items()},
    }


# --- functions ---


def generated(module: Any, dtype: Any) -> Iterator[tuple[str, Function]]:
    """Every function of a module that takes only arrays of the dtype."""
    for name, function in sorted(vars(module).items()):
        if name.startswith("_") or name.endswith("_p") or any(n in name for n in LEFT_OUT):
            continue
        if not (inspect.isfunction(function) or hasattr(function, "__wrapped__")
                or isinstance(function, jnp.ufunc)):  # fmt: skip
            continue
        for signature in SIGNATURES:

            def call(x: dict[str, Any], f: Any = function, s: str = signature) -> Any:
                return f(*(x[k] for k in s))

            if _is_possible(call, dtype):
                yield f"{module.__name__}.{name}({signature})", call
                break


def _is_possible(function: Function, dtype: Any) -> bool:
    """Whether JAX computes such a function, of a batch of this dtype."""
    batch = {k: jax.ShapeDtypeStruct((2, *s), dtype) for k, s in SHAPES.items()}
    try:
        results = jax.tree.leaves(jax.eval_shape(jax.vmap(function), batch))
    except Exception:
        return False
    return bool(results)


def _collatz(n: Any) -> Any:
    start = jnp.where(jnp.isfinite(n), abs(n), 0).astype(jnp.int32) % 30
    return lax.while_loop(
        lambda s: (s[0] > 1) & (s[1] < 30),
        lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1, s[2][::-1]),
        (start, 0, jnp.stack([n, n + n])),
    )


def _index(x: Any) -> Any:
    """An index (4,) that is known only at run time, in range and beyond."""
    return jnp.where(x["w"] == x["w"][0], 1, 7) - 2 * (x["v"] != x["v"][0])


PLACES = np.array([0, 1, 0, 2])

# Of numbers whose order does not matter: all dtypes.
MOVING: dict[str, Function] = {
    "gather": lambda x: (x["v"][_index(x)], x["m"][PLACES[:3], _index(x)[:3]]),
    "gather, filled": lambda x: x["v"].at[_index(x)].get(mode="fill"),
    "gather, clipped": lambda x: x["v"].at[_index(x)].get(mode="clip"),
    "take_along_axis": lambda x: jnp.take_along_axis(x["m"], jnp.argsort(_index(x)[:3])[None], 1),
    "scatter": lambda x: (x["v"].at[_index(x)].set(x["s"]), x["m"].at[1].set(x["v"][:3])),
    "dynamic_slice": lambda x: lax.dynamic_slice(x["v"], (_index(x)[0],), (2,)),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x["v"], x["w"][:2], _index(x)[:1]),
    "concatenate": lambda x: (jnp.concatenate([x["v"], x["w"]]), jnp.stack([x["v"], x["w"]], 1)),
    "pad": lambda x: lax.pad(x["m"], x["s"], ((1, 0, 1), (-1, 2, 0))),
    "where": lambda x: jnp.where(_index(x) > 0, x["v"], x["w"]),
    "select_n": lambda x: lax.select_n(_index(x) % 3, x["v"], x["w"], x["v"][::-1]),
    "shapes": lambda x: (x["m"].T.reshape(9), x["m"][::-1, None], jnp.tile(x["v"], 2),
                         jnp.roll(x["v"], 1), jnp.split(x["v"], 2), x["v"][1::2], x["m"][None]),
    "broadcast": lambda x: jnp.broadcast_to(x["v"], (2, 4)),
    "cond": lambda x: lax.cond(_index(x)[0] > 0, lambda v: v[::-1], lambda v: v, x["v"]),
    "switch": lambda x: lax.switch(_index(x)[0], [lambda: x["v"], lambda: x["w"],
                                                  lambda: x["m"][1, :1].repeat(4)]),
    "scan of rows": lambda x: lax.scan(lambda c, r: (r, c), x["m"][0], x["m"], reverse=True),
    "barrier": lambda x: lax.optimization_barrier((x["v"], x["s"])),
}  # fmt: skip

COMPUTING: dict[str, Function] = {
    "reductions": lambda x: [
        f(x["m"], axis=a) for f, a in itertools.product((jnp.sum, jnp.prod, jnp.mean), (0, None))
    ],
    "cumulative": lambda x: (jnp.cumsum(x["v"]), jnp.cumprod(x["w"]),
                             lax.cumsum(x["m"], axis=1, reverse=True)),
    "extremes": lambda x: (x["m"].max(0), x["m"].min(), jnp.ptp(x["v"])),
    "argmax": lambda x: (jnp.argmax(x["v"]), jnp.argmin(x["m"], axis=1)),
    "logic": lambda x: (jnp.any(x["m"] != 0, axis=0), jnp.all(x["v"] == x["v"][0])),
    "bits": lambda x: (lax.reduce_and(x["v"], (0,)), lax.reduce_or(x["v"], (0,)),
                       lax.reduce_xor(x["v"], (0,))),
    "segment_sum": lambda x: (jax.ops.segment_sum(x["v"], PLACES, 3),
                              jax.ops.segment_sum(x["v"], abs(_index(x)) % 3, 3)),
    "segment_max": lambda x: jax.ops.segment_max(x["v"], PLACES, 4),
    "scatter_add": lambda x: (x["v"].at[PLACES].add(x["w"]), x["v"].at[_index(x)].add(x["w"])),
    "scatter_more": lambda x: (x["v"].at[PLACES].multiply(x["w"]), x["v"].at[PLACES].max(x["w"]),
                               x["v"].at[_index(x)].min(x["w"]), x["v"].at[0].subtract(x["s"])),
    "scatter_apply": lambda x: x["v"].at[1].apply(lambda y: y * y),
    "dot": lambda x: (x["v"] @ x["w"], x["m"] @ x["n"], jnp.outer(x["v"], x["w"])),
    "dot, wider": lambda x: lax.dot(
        x["m"], x["n"], preferred_element_type=jnp.promote_types(x["m"].dtype, jnp.float32)),
    "einsum": lambda x: jnp.einsum("ij,jk,k->i", x["m"], x["n"], x["v"][:3]),
    "sort": lambda x: (jnp.sort(x["v"]), jnp.sort(x["m"], axis=0), -jnp.sort(-x["v"])),
    "argsort": lambda x: (jnp.argsort(x["v"]), jnp.argsort(x["v"], descending=True),
                          jnp.argsort(x["m"], axis=1)),
    "lexsort": lambda x: jnp.lexsort((x["v"], x["w"])),
    "sort of rows": lambda x: lax.sort((x["v"], x["w"], jnp.arange(4)), num_keys=2),
    "top_k": lambda x: (lax.top_k(x["v"], 3), lax.top_k(x["m"], 2)),
    "unique": lambda x: jnp.unique(x["v"], size=3),
    "searchsorted": lambda x: jnp.searchsorted(jnp.sort(x["v"]), x["w"]),
    "interp": lambda x: jnp.interp(x["v"], jnp.arange(4.0), x["w"]),
    "nonzero": lambda x: jnp.nonzero(x["v"], size=2),
    "histogram": lambda x: jnp.histogram(x["v"], jnp.arange(5.0))[0],
    "clamp": lambda x: lax.clamp(jnp.ones_like(x["v"] * 1), x["v"] * 1,
                                 jnp.ones_like(x["v"] * 1) * 2),
    "powers": lambda x: (x["v"] ** 3, x["v"] ** 2, x["v"] ** 0, lax.integer_pow(x["v"], 5)),
    "inverse powers": lambda x: x["v"] ** -2,
    "softmax": lambda x: (jax.nn.softmax(x["v"]), jax.nn.logsumexp(x["v"])),
    "convert": lambda x: [x["v"].astype(t) for t in (bool, jnp.int8, jnp.uint8, jnp.int32,
                                                     jnp.uint32, jnp.float32)],
    "to small": lambda x: (x["v"].astype(jnp.float16), x["v"].astype(jnp.bfloat16)),
    "to complex": lambda x: x["v"].astype(jnp.complex64) * 2j,
    "bitcast": lambda x: lax.bitcast_convert_type(
        x["v"], jnp.dtype(f"uint{8 * x['v'].dtype.itemsize}")),
    "reduce_precision": lambda x: lax.reduce_precision(x["v"], 5, 2),
    "round": lambda x: (jnp.round(x["v"]), lax.round(x["v"]), jnp.round(x["v"], 1)),
    "total order": lambda x: (lax.sort(x["v"], is_stable=False), jnp.signbit(x["v"])),
    "where while": lambda x: _collatz(x["s"]),
    "vmap of while": lambda x: jax.vmap(_collatz)(x["v"]),
    "vmap of vmap of while": lambda x: jax.vmap(jax.vmap(_collatz))(x["m"]),
    "vmap of fori": lambda x: jax.vmap(
        lambda n: lax.fori_loop(0, n, lambda i, c: c + 2, n * 0))(x["v"] % 6),
    "fori_loop": lambda x: lax.fori_loop(0, 70, lambda i, v: v + x["w"], x["v"]),
    "scan": lambda x: lax.scan(lambda c, r: (c + r, c * r), x["v"], jnp.stack([x["w"], x["v"]] * 3),
                               reverse=True),
    "associative_scan": lambda x: lax.associative_scan(jnp.add, x["v"]),
    "cond": lambda x: lax.cond(x["s"] > x["t"], lambda: x["v"] + x["w"], lambda: x["v"] * x["w"]),
    "map": lambda x: lax.map(lambda r: r * x["s"], x["m"]),
    "iota": lambda x: (jnp.arange(4, dtype=x["v"].dtype) + x["v"], jnp.eye(4, dtype=x["v"].dtype)),
    "one_hot": lambda x: jax.nn.one_hot(x["v"], 3),
    "grad": lambda x: jax.grad(lambda v: jnp.sum(v * v * x["w"]))(x["v"]),
    "parts": lambda x: (x["v"].real, x["v"].imag, jnp.conj(x["v"]), abs(x["v"]), jnp.angle(x["v"])),
}  # fmt: skip


# JAX does not batch their initial values, and so does not compute them between kernels.
INITIAL: dict[str, Function] = {
    "reduce": lambda x: lax.reduce((x["m"], x["n"]), (jnp.zeros((), x["m"].dtype),) * 2,
                                   lambda a, b: (a[0] + b[0], jnp.where(b[0] == b[1], b[1], a[1])),
                                   (0,)),
    "reduce_window": lambda x: lax.reduce_window(x["v"], jnp.zeros((), x["v"].dtype), lax.add, (2,),
                                                 (1,), "VALID"),
}  # fmt: skip


def _definite(x: dict[str, Any]) -> Any:
    """Definite for some environments."""
    return x["m"] + x["m"].T.conj() + 3 * jnp.eye(3, dtype=x["m"].dtype)


# Of usual numbers: what happens to infinities and NaNs is LAPACK's business.
LINEAR: dict[str, Function] = {
    "cholesky": lambda x: (jnp.linalg.cholesky(_definite(x)),
                           jnp.linalg.cholesky(_definite(x), upper=True),
                           lax.linalg.cholesky(_definite(x), symmetrize_input=False)),
    "triangular_solve": lambda x: jax.scipy.linalg.solve_triangular(
        jnp.tril(x["m"]) + 9 * jnp.eye(3, dtype=x["m"].dtype), x["v"][:3], lower=True),
    "solve": lambda x: jnp.linalg.solve(x["m"] + 9 * jnp.eye(3, dtype=x["m"].dtype), x["v"][:3]),
    "inv": lambda x: jnp.linalg.inv(x["m"] + 9 * jnp.eye(3, dtype=x["m"].dtype)),
    "det": lambda x: jnp.linalg.det(x["m"] + 9 * jnp.eye(3, dtype=x["m"].dtype)),
    "norm": lambda x: (jnp.linalg.norm(x["v"]), jnp.linalg.norm(x["m"], axis=1)),
    "cross": lambda x: jnp.cross(x["v"][:3], x["w"][:3]),
    "fft": lambda x: jnp.fft.fft(x["v"]),
    "convolve": lambda x: jnp.convolve(x["v"], x["w"]),
    "polyval": lambda x: jnp.polyval(x["v"], x["w"]),
}  # fmt: skip


def draws(x: dict[str, Any]) -> Any:
    """Random numbers of keys that are data."""
    key = jax.random.key(x["s"].astype(jnp.uint32))
    a, b = jax.random.split(key)
    return {
        "permutation": jax.random.permutation(a, x["v"]),
        "choice": jax.random.choice(b, x["v"], (2,)),
        "uniform": jax.random.uniform(a, (2,)),
        "normal": jax.random.normal(b, (2,)),
        "randint": jax.random.randint(a, (2,), 0, 9),
        "bits": jax.random.key_data(jnp.stack([a, b]).at[0].set(b)),
    }


# --- comparison ---

ULPS = 64.0
"""Of the largest entry of an environment's result, in the dtype; 4 where it has 16 bits or less."""

# Known zeros absorb (docs/kernels.md): where JAX multiplies a NaN by them, a kernel does not.
ABSORBING = (
    "geomspace", "histogram", "linspace", "logspace", "percentile(st)", "quantile(st)",
    "unravel_index",
)  # fmt: skip
# Usual numbers make such a product of a geometric row between some that are not positive. And they
# lie on the edges between a histogram's bins, where the last bit of an edge decides.
ON_EDGES = ("geomspace", "histogram2d", "histogramdd")
# Of the least signed number JAX's own loop does not end (jax issue 40840).
ENDLESS = ("gcd", "lcm")


CANCELLING = ("gelu",)
"""One and a hyperbolic tangent that is nearly -1: what is left of them has the errors of ones."""


def differences(name: str, actual: Any, expected: Any) -> Iterator[str]:
    """What is wrong with a function's results."""
    if jax.tree.structure(actual) != jax.tree.structure(expected):
        yield f"{name}: {jax.tree.structure(actual)}"
        return
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        if (a.shape, a.dtype) != (e.shape, e.dtype):
            yield f"{name}: {a.dtype}{a.shape} for {e.dtype}{e.shape}"
            continue
        least = 1.0 if any(n in name for n in CANCELLING) else 0.0
        wrong = _wrong(np.asarray(a), np.asarray(e), least)
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0].tolist())
            yield f"{name}{place}: {a[place]} for {e[place]}, row {place[0]}"


def _wrong(a: np.ndarray, e: np.ndarray, least: float) -> np.ndarray:
    if not jnp.issubdtype(e.dtype, jnp.inexact):
        return np.asarray(a != e)
    info = jnp.finfo(e.dtype)
    wide = np.complex128 if jnp.issubdtype(e.dtype, jnp.complexfloating) else np.float64
    a, e = a.astype(wide), e.astype(wide)
    special = ~np.isfinite(a) | ~np.isfinite(e)
    size = np.abs(np.where(special, 0, e))
    size = np.broadcast_to(
        size.reshape(len(e), -1).max(1, initial=0).reshape(-1, *(1,) * (e.ndim - 1)), e.shape
    )
    size = np.maximum(size, least)
    ulps = ULPS if info.bits > 16 else 4.0
    far = np.abs(np.where(special, 0, a) - np.where(special, 0, e))
    # Subnormal numbers are zero, or not: nobody's business.
    limit = ulps * float(info.eps) * size + 2 * float(info.tiny)
    same = (a == e) | (np.isnan(a) & np.isnan(e))
    return np.asarray(np.where(special, ~same, far > limit))


def by_jax(functions: dict[str, Function], data: dict[str, np.ndarray]) -> dict[str, Any]:
    """The results of `jax.vmap`, without those that JAX itself fails to compile."""

    def every(x: dict[str, Any]) -> dict[str, Any]:
        return {name: function(x) for name, function in functions.items()}

    try:
        return dict(jax.jit(jax.vmap(every))(data))
    except Exception:
        if len(functions) == 1:
            return {}
        items = list(functions.items())
        halves = items[: len(items) // 2], items[len(items) // 2 :]
        return by_jax(dict(halves[0]), data) | by_jax(dict(halves[1]), data)


def compare(
    functions: dict[str, Function], data: dict[str, np.ndarray], whole: bool = False
) -> None:
    """All functions in one kernel against all in one program of JAX's; no kernel if `whole`."""
    expected = by_jax(functions, data)
    assert expected

    def every(x: dict[str, Any]) -> dict[str, Any]:
        return {name: functions[name](x) for name in expected}

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        actual = fuse(every, "native")(data)
    # Some of the functions may stay outside of the kernel, but there has to be one.
    assert whole or not [w for w in told if "slower way" in str(w.message)]
    found = []
    for name in expected:
        wrong = list(differences(name, actual[name], expected[name]))
        if wrong and _is_narrow(expected[name]):
            # Whether XLA rounds between two operations of 16 bits is up to the processor, and 10^x
            # makes one percent of it. What is outside of a kernel is computed in steps.
            with jax.disable_jit():
                wrong = list(differences(name, actual[name], jax.vmap(functions[name])(data)))
        found += wrong
    assert not found, "\n".join(found)


def _is_narrow(results: Any) -> bool:
    return all(
        jnp.issubdtype(x.dtype, jnp.inexact) and x.dtype.itemsize == 2
        for x in jax.tree.leaves(results)
    )


# --- tests ---


def possible(functions: dict[str, Function], dtype: Any) -> dict[str, Function]:
    """Those that JAX computes of a dtype."""
    return {name: f for name, f in functions.items() if _is_possible(f, dtype)}


IN_A_KERNEL = [d for d in DTYPES if jnp.dtype(d) in COMPUTED]
QUICK = ("float32",)


@pytest.mark.parametrize(
    "name", with_slow(IN_A_KERNEL, *(d for d in IN_A_KERNEL if d not in QUICK))
)
def test_what_users_write(name: str, x64: None) -> None:
    dtype = jnp.dtype(name)
    every = MOVING | {f"computing, {n}": f for n, f in COMPUTING.items()}
    both, few = possible(every, dtype), possible(LINEAR | {"random": draws}, dtype)
    special, usual = (arguments(dtype)[k] for k in ("special", "usual"))
    # Half of the rows are special ones; what LAPACK does of NaNs is its own business.
    mixed = {k: np.concatenate([special[k][::2], usual[k][::2]]) for k in SHAPES}
    usual = {f"usual {k}": x for k, x in usual.items()}

    def of_usual(function: Function) -> Function:
        return lambda x: function({k: x[f"usual {k}"] for k in SHAPES})

    compare(both | {n: of_usual(f) for n, f in few.items()}, mixed | usual)


NOT_CARRIED = "float8_e4m3b11fnuz"
FOREIGN = [d for d in DTYPES if jnp.dtype(d) not in COMPUTED]
QUICKLY = (
    "cumulative", "dot, wider", "reductions", "scatter_add", "segment_sum", "sort", "top_k",
)  # fmt: skip


@pytest.mark.parametrize("name", with_slow(FOREIGN, *FOREIGN))
def test_foreign_numbers(name: str, x64: None) -> None:
    """Moved in the kernel, computed with outside of it."""
    dtype = jnp.dtype(name)
    some = {f"computing, {n}": COMPUTING[n] for n in QUICKLY}
    functions = possible(some | MOVING, dtype)
    compare(functions, arguments(dtype)["usual"], whole=name == NOT_CARRIED)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOREIGN)
def test_more_foreign_numbers(name: str, x64: None) -> None:
    dtype = jnp.dtype(name)
    functions, whole = possible(COMPUTING, dtype), name == NOT_CARRIED
    compare(functions, arguments(dtype)["special"], whole=whole)
    others = {"random": draws} | (LINEAR if dtype.itemsize > 2 else {})  # LAPACK's are wider
    compare(possible(others, dtype) | functions, arguments(dtype)["usual"], whole=whole)


@pytest.mark.parametrize(
    "name", with_slow(DTYPES, *(d for d in DTYPES if d not in ("int32", "bfloat16")))
)
def test_initial_values(name: str, x64: None) -> None:
    """A kernel, or none: JAX cannot batch these between two kernels."""
    dtype = jnp.dtype(name)
    for one, function in possible(INITIAL, dtype).items():
        compare({one: function}, arguments(dtype)["usual"], whole=True)


ARRAYS = [
    pytest.param(m, n, marks=() if (m, n) == (lax, "float32") else pytest.mark.slow)
    for m, n in itertools.product((lax, jnp, jax.nn), DTYPES)
]


@pytest.mark.parametrize(("module", "name"), ARRAYS)
def test_functions_of_arrays(module: Any, name: str, x64: None) -> None:
    dtype = jnp.dtype(name)
    functions, data = dict(generated(module, dtype)), arguments(dtype)
    names, whole = list(functions), name == NOT_CARRIED
    endless = ENDLESS if jnp.issubdtype(dtype, jnp.signedinteger) else ()
    left_out = {"usual": ON_EDGES, "special": ABSORBING + endless}
    # In one batch, so that there is one program; of what is left out of one kind, twice the other.
    batch = {k: np.concatenate([data["usual"][k], data["special"][k]]) for k in SHAPES}
    for kind, x in data.items():
        batch |= {f"{kind} {k}": np.concatenate([x[k], x[k]]) for k in SHAPES}

    def of(kind: str, function: Function) -> Function:
        return lambda x: function({k: x[f"{kind} {k}"] for k in SHAPES})

    for start in range(0, len(names), 60):
        chosen: dict[str, Function] = {}
        for n in names[start : start + 60]:
            kinds = [kind for kind, left in left_out.items() if not any(a in n for a in left)]
            if kinds:
                every = len(kinds) == len(left_out)
                chosen[n] = functions[n] if every else of(kinds[0], functions[n])
        compare(chosen, batch, whole=whole)
