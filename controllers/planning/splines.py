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
