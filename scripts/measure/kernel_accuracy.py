"""Errors of the native kernels' elementary functions, over the whole range of float32.

    python scripts/measure/kernel_accuracy.py [--step 97] [NAME ...]

Every `--step`-th float32 (of two arguments: as many random pairs), and the neighbours of every
number where a function changes its way, against NumPy's and SciPy's float64. Prints the largest and
the mean error in units of the last place of the right result, and what `jax.vmap` has.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax

from fraxenv.kernels import fuse

CHUNK = 1 << 22
TINY = float(np.finfo(np.float32).tiny)
LARGEST = float(np.finfo(np.float32).max)
EDGES = (0.0, TINY, 1e-10, 0.0004, 0.25, 0.414213562, 0.5, 0.625, 0.707106781, 1.0, 1.570796327)
EDGES += (2.0, 3.14159265, 5.0, 7.90531, 16.6, 17.3, 87.336, 88.722, 89.0, 103.97, 104.0, 1e6, 1e30)


@dataclass(frozen=True)
class Function:
    """A function, what is right, and the largest error that is allowed: units of the last place.

    `limit` is the largest magnitude of an argument; `pairs` makes those of two arguments.
    """

    fn: Callable[..., Any]
    reference: Callable[..., np.ndarray]
    bound: float
    limit: float = LARGEST
    pairs: Callable[[np.random.Generator, int], tuple[np.ndarray, ...]] | None = None

    def inside(self, xs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Arguments without those beyond the limit, and subnormal ones, which count as zero."""
        kept = [((np.abs(x) >= TINY) | (x == 0)) & (np.abs(x) <= self.limit) for x in xs]
        where = np.logical_and.reduce(kept)
        return tuple(x[where] for x in xs)


def _any_points(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    """Half of them anywhere, half of them near the unit circle."""
    x = rng.integers(0, 2**32, (2, n // 2), dtype=np.uint32).view(np.float32)
    return tuple(np.concatenate([x, rng.normal(size=(2, n // 2)).astype(np.float32)], axis=1))


def _powers(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    """Bases of which half are near one; powers up to the end of the range."""
    base = np.exp(rng.uniform(-80, 80, n) * np.where(np.arange(n) % 2, 1, 1e-3))
    power = rng.uniform(-87, 87, n) / np.log(base)
    return base.astype(np.float32), power.astype(np.float32)


FUNCTIONS = {
    "sin": Function(jnp.sin, np.sin, 1.6),
    "cos": Function(jnp.cos, np.cos, 1.6),
    "tan": Function(jnp.tan, np.tan, 1.5),
    "asin": Function(jnp.arcsin, np.arcsin, 2.0, limit=1),
    "acos": Function(jnp.arccos, np.arccos, 1.3, limit=1),
    "atan": Function(jnp.arctan, np.arctan, 1.4),
    "atan2": Function(jnp.arctan2, np.arctan2, 1.8, pairs=_any_points),
    "exp": Function(jnp.exp, np.exp, 1.1),
    "expm1": Function(jnp.expm1, np.expm1, 0.9),
    "log": Function(jnp.log, np.log, 0.9),
    "log1p": Function(jnp.log1p, np.log1p, 1.6),
    "pow": Function(jnp.power, np.power, 0.9, pairs=_powers),
    "sqrt": Function(jnp.sqrt, np.sqrt, 0.5),
    "rsqrt": Function(lax.rsqrt, lambda x: 1 / np.sqrt(x), 1.6),
    "tanh": Function(jnp.tanh, np.tanh, 1.4),
    "sinh": Function(jnp.sinh, np.sinh, 1.9),
    "cosh": Function(jnp.cosh, np.cosh, 1.9),
    "asinh": Function(jnp.arcsinh, np.arcsinh, 1.7),
    "acosh": Function(jnp.arccosh, np.arccosh, 2.0),
    "atanh": Function(jnp.arctanh, np.arctanh, 1.8, limit=1),
    "exp2": Function(lax.exp2, np.exp2, 0.6),
    "cbrt": Function(lax.cbrt, np.cbrt, 1.0),
    "logistic": Function(jax.nn.sigmoid, scipy.special.expit, 1.7),
    "erf": Function(lax.erf, scipy.special.erf, 1.0),
    "erf_inv": Function(lax.erf_inv, scipy.special.erfinv, 70, limit=1),
}


def arguments(function: Function, step: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Arguments in chunks."""
    edges = np.array([s * e for e in EDGES for s in (1, -1)], np.float32).view(np.int32)
    near = (edges[:, None] + np.arange(-200, 201, dtype=np.int32)).ravel().view(np.float32)
    rng = np.random.default_rng(0)

    def chunks() -> Iterator[tuple[np.ndarray, ...]]:
        for start in range(0, 2**32, step * CHUNK):
            if function.pairs is not None:
                yield function.pairs(rng, CHUNK)
            else:
                bits = np.arange(start, min(start + step * CHUNK, 2**32), step)
                yield (bits.astype(np.uint32).view(np.float32),)

    yield from map(function.inside, chunks())
    yield function.inside((near,) if function.pairs is None else (near, rng.permutation(near)))


def errors(actual: np.ndarray, right: np.ndarray) -> np.ndarray:
    """In units of the last place, where the right result is a normal number."""
    normal = (np.abs(right) >= TINY) & (np.abs(right) <= LARGEST)
    place = np.spacing(np.abs(right[normal]).astype(np.float32)).astype(float)
    error = np.abs(actual[normal].astype(float) - right[normal]) / place
    return np.where(np.isfinite(error), error, np.inf)


def measure(name: str, step: int, backend: str = "native") -> tuple[float, float]:
    """The largest and the mean error of a function."""
    function = FUNCTIONS[name]
    run = jax.jit(jax.vmap(function.fn)) if backend == "vmap" else fuse(function.fn, backend)
    worst, total, count = 0.0, 0.0, 0
    for xs in arguments(function, step):
        with np.errstate(all="ignore"):
            right = function.reference(*(x.astype(float) for x in xs))
        error = errors(np.asarray(run(*xs)), right)
        worst, total, count = (
            max(worst, error.max(initial=0.0)),
            total + error.sum(),
            count + error.size,
        )
    return worst, total / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--step", type=int, default=97)
    options = parser.parse_args()
    print("| function | largest error, ulp | mean error, ulp | largest error of `jax.vmap`, ulp |")
    print("|---|---|---|---|")
    for name in options.names or FUNCTIONS:
        worst, mean = measure(name, options.step)
        plain, _ = measure(name, options.step, "vmap")
        print(f"| `{name}` | {worst:.2f} | {mean:.2f} | {plain:.4g} |", flush=True)


if __name__ == "__main__":
    main()
