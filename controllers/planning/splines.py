"""Splines of few knots, evenly spaced: matrices (N, knots) from them to all controls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def _steps(N: int, knots: int) -> np.ndarray:
    place = np.arange(N) * knots // N
    return np.eye(knots)[place]


def _lines(N: int, knots: int) -> np.ndarray:
    place, own = np.linspace(0, knots - 1, N), np.arange(knots)
    hats: np.ndarray = np.maximum(0.0, 1 - np.abs(place[:, None] - own))
    return hats


def _cubics(N: int, knots: int) -> np.ndarray:
    """Catmull and Rom's: through the knots, slopes from each one's neighbours."""
    slopes = np.gradient(np.eye(knots), axis=0)
    place = np.linspace(0, knots - 1, N)
    i = np.minimum(place.astype(int), knots - 2)
    t = (place - i)[:, None]
    value, later = np.eye(knots)[i], np.eye(knots)[i + 1]
    rise = t * t * (3 - 2 * t)
    bend = t * (1 - t) ** 2 * slopes[i] - t * t * (1 - t) * slopes[i + 1]
    through: np.ndarray = (1 - rise) * value + rise * later + bend
    return through


SPLINES: dict[str, Callable[[int, int], np.ndarray]] = {
    "zero": _steps,
    "linear": _lines,
    "cubic": _cubics,
}
"""By their names."""


def b_spline(places: np.ndarray, controls: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices (n, controls) from control points to a cubic B-spline, and to its derivative.

    It begins at the first control point and ends at the last, as the path's parameter goes from 0
    to 1, and stays within the bounds of the control points.

    Args:
        places: (n,), the parameter.
        controls: number of control points, at least 4.

    Source: de Boor, "A practical guide to splines" (1978), chapters IX and X.
    """
    degree = 3
    inner = np.linspace(0, 1, controls - degree + 1)
    t = np.concatenate([np.zeros(degree), inner, np.ones(degree)])
    spans = np.clip(np.searchsorted(inner, places, side="right") - 1, 0, len(inner) - 2)
    basis = np.eye(len(t) - 1)[spans + degree]
    slope = np.zeros_like(basis)
    for k in range(1, degree + 1):
        width = t[k:] - t[:-k]
        share = basis / np.where(width > 0, width, 1.0)[: basis.shape[1]]
        slope = k * (share[:, :-1] - share[:, 1:])
        count = share.shape[1] - 1
        ahead = places[:, None] - t[:count]
        left = t[k + 1 : k + 1 + count] - places[:, None]
        basis = ahead * share[:, :-1] + left * share[:, 1:]
    return basis, slope
