"""What residuals cost: norms with their gradients and curvatures.

Names and formulas are those of MuJoCo MPC (`mjpc/norm.cc`), so that its weights carry over; but
`rectify`, which there has a slope of 1 / p, has 1 here. And curvatures are not those of the norms
where these are concave along a residual, as distances are beyond their rounding: steps of a model
that is nearly a plane go much too far. There it is a parabola's that is above the norm everywhere,
and touches it at `x` and `-x`: its curvature is the slope over `x`, as in iteratively reweighted
least squares. What the norm's own one is less is told apart, for exact Hessians.

Source: de Leeuw and Lange, "Sharp quadratic majorization in one dimension" (Computational
Statistics & Data Analysis 53, 2009).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, is_concrete


@pytree_dataclass
class Norm:
    """A cost of a residual (m,); made by the functions of this module.

    Attributes:
        kind: which formula.
        p: its first parameter, in the residual's unit, but of `power_loss` an exponent.
        q: its second one, an exponent.
    """

    kind: str = static()
    p: ArrayLike = 1.0
    q: ArrayLike = 2.0


class Expansion(NamedTuple):
    """Of a cost by its residual (m,), to second order.

    Attributes:
        value: ().
        gradient: (m,).
        curvature: (m, m), never negative, and never less than the norm's own.
        bend: (m, m), what the norm's own has besides, never positive; None where it is the same.
    """

    value: Array
    gradient: Array
    curvature: Array
    bend: Array | None


def quadratic() -> Norm:
    """`sum x^2 / 2`."""
    return Norm("quadratic")


def l2(p: ArrayLike) -> Norm:
    """`sqrt(x . x + p^2) - p`: a distance, rounded off within `p`. One weight for all of `x`."""
    _check("l2", 0, p=p)
    return Norm("l2", p)


def l22(p: ArrayLike, q: ArrayLike) -> Norm:
    """`((x . x)^(q / 2) + p^q)^(1 / q) - p`, `q` at least 2. One weight for all of `x`."""
    _check("l22", 0, p=p)
    _check("l22", 2, q=q)
    return Norm("l22", p, q)


def cosh(p: ArrayLike) -> Norm:
    """`sum p^2 (cosh(x / p) - 1)`: steep beyond `p`."""
    _check("cosh", 0, p=p)
    return Norm("cosh", p)


def power_loss(p: ArrayLike) -> Norm:
    """`sum |x|^p`, with an exponent of 2 or more."""
    _check("power_loss", 2, p=p)
    return Norm("power_loss", p)


def smooth_abs(p: ArrayLike) -> Norm:
    """`sum sqrt(x^2 + p^2) - p`: absolute values, rounded off within `p`."""
    _check("smooth_abs", 0, p=p)
    return Norm("smooth_abs", p)


def smooth_abs2(p: ArrayLike, q: ArrayLike) -> Norm:
    """`sum (|x|^q + p^q)^(1 / q) - p`, with an exponent `q` of 2 or more."""
    _check("smooth_abs2", 0, p=p)
    _check("smooth_abs2", 2, q=q)
    return Norm("smooth_abs2", p, q)


def rectify(p: ArrayLike) -> Norm:
    """`sum p log(1 + exp(x / p))`: what is positive costs, rounded off within `p`."""
    _check("rectify", 0, p=p)
    return Norm("rectify", p)


def is_joint(norm: Norm) -> bool:
    """Whether it is of all components together, so that they have one weight."""
    return norm.kind in _JOINT


def expansion(norm: Norm, weight: ArrayLike, x: Array) -> Expansion:
    """A weighted norm at `x` (m,).

    Args:
        norm: the formula.
        weight: (m,) or (); () for those of all components together.
        x: (m,).
    """
    p, q = jnp.asarray(norm.p, x.dtype), jnp.asarray(norm.q, x.dtype)
    weight = jnp.asarray(weight, x.dtype)
    if is_joint(norm):
        value, gradient, curvature, bend = _JOINT[norm.kind](x, p, q)
        bent = None if bend is None else weight * bend
        return Expansion(weight * value, weight * gradient, weight * curvature, bent)
    values, gradient, curvature, bend = _BY_COMPONENT[norm.kind](x, p, q)

    def diagonal(of: Array) -> Array:
        return jnp.diag(jnp.broadcast_to(weight * of, x.shape))

    bent = None if bend is None else diagonal(bend)
    return Expansion(jnp.sum(weight * values), weight * gradient, diagonal(curvature), bent)


_Parts = tuple[Array, Array, Array, Array | None]
_Formula = Callable[[Array, Array, Array], _Parts]


def _quadratic(x: Array, p: Array, q: Array) -> _Parts:
    return 0.5 * x * x, x, jnp.ones_like(x), None


def _cosh(x: Array, p: Array, q: Array) -> _Parts:
    grown = jnp.cosh(x / p)
    return p * p * (grown - 1), p * jnp.sinh(x / p), grown, None


def _power_loss(x: Array, p: Array, q: Array) -> _Parts:
    size = jnp.abs(x)
    return size**p, jnp.sign(x) * p * size ** (p - 1), (p - 1) * p * size ** (p - 2), None


def _smooth_abs(x: Array, p: Array, q: Array) -> _Parts:
    size = jnp.sqrt(x * x + p * p)
    slope = x / size
    return size - p, slope, 1 / size, -(slope**2) / size


def _smooth_abs2(x: Array, p: Array, q: Array) -> _Parts:
    size = jnp.abs(x)
    grown = size**q
    total = grown + p**q
    root = total ** (1 / q)
    slope = root * size ** (q - 2) / total
    more = (q - 1) * (p**q / total)
    return root - p, slope * x, slope * jnp.maximum(more, 1), slope * jnp.minimum(more - 1, 0)


def _rectify(x: Array, p: Array, q: Array) -> _Parts:
    ratio = x / p
    slope = jax.nn.sigmoid(ratio)
    value = p * (jnp.maximum(ratio, 0) + jnp.log1p(jnp.exp(-jnp.abs(ratio))))
    own = slope * (1 - slope) / p
    # Its even part's. Below zero it would keep away from what is still far.
    positive = ratio > 1e-3
    curvature = jnp.where(positive, jnp.tanh(0.5 * ratio) / jnp.where(positive, 2 * x, 1), own)
    return value, slope, curvature, own - curvature


def _l2(x: Array, p: Array, q: Array) -> _Parts:
    size = jnp.sqrt(jnp.sum(x * x) + p * p)
    gradient = x / size
    eye = jnp.eye(len(x), dtype=x.dtype)
    return size - p, gradient, eye / size, -gradient[:, None] * gradient / size


def _l22(x: Array, p: Array, q: Array) -> _Parts:
    square = jnp.maximum(jnp.sum(x * x), float(np.finfo(x.dtype).tiny) ** 0.5)
    total = square ** (q / 2) + p**q
    root = total ** (1 / q)
    inner = square ** (q / 2 - 1)
    slope = root / total * inner
    more = (1 - q) * inner / total + (q - 2) / square
    eye, outer = jnp.eye(len(x), dtype=x.dtype), x[:, None] * x
    curvature = slope * (eye + jnp.maximum(more, 0) * outer)
    return root - p, slope * x, curvature, slope * jnp.minimum(more, 0) * outer


_BY_COMPONENT: dict[str, _Formula] = {
    "quadratic": _quadratic,
    "cosh": _cosh,
    "power_loss": _power_loss,
    "smooth_abs": _smooth_abs,
    "smooth_abs2": _smooth_abs2,
    "rectify": _rectify,
}
_JOINT: dict[str, _Formula] = {"l2": _l2, "l22": _l22}


def _check(what: str, least: int, **numbers: ArrayLike) -> None:
    """Parameters are above 0, exponents at least 2."""
    for name, value in numbers.items():
        if not is_concrete(value):
            continue
        number = np.asarray(value)
        enough = number >= least if least else number > 0
        if not np.all(np.isfinite(number) & enough):
            expected = f"a number of at least {least}" if least else "a positive number"
            raise ConfigError(f"{what}: {name}={value!r}, expected {expected}.")
