"""Checks of the masses and moments of inertia of moving bodies."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fraxenv.errors import ArrayError, RobotLoadWarning

SMALLEST_MASS = 1e-12
"""kg; a smaller mass counts as zero."""
SMALLEST_MOMENT = 1e-15
"""kg m^2; a smaller principal moment counts as zero."""
_SLACK = 1e-3
_SYMMETRY = 1e-5

Array = NDArray[np.floating[Any]]


def principal_moments(inertia: Array) -> Array:
    """Principal moments (..., 3), kg m^2, ascending, of inertias (..., 3, 3).

    NaN where an inertia is not finite or not symmetric.
    """
    transposed = np.swapaxes(inertia, -1, -2)
    with np.errstate(invalid="ignore", over="ignore"):
        asymmetry = np.abs(inertia - transposed).max((-2, -1))
    # Written so that values that are not finite fail.
    valid = asymmetry <= _SYMMETRY * np.abs(inertia).max((-2, -1))
    moments = np.linalg.eigvalsh(np.where(valid[..., None, None], inertia, np.eye(3)))
    return np.where(valid[..., None], moments, np.nan)


def within_triangle(moments: Array) -> NDArray[np.bool_]:
    """Whether no principal moment (..., 3) exceeds the sum of the others, to within 0.1 %."""
    return np.asarray(moments[..., 0] + moments[..., 1] >= moments[..., 2] * (1 - _SLACK))


def check_masses(
    robot: str, bodies: Sequence[str], mass: Array, massless: NDArray[np.bool_]
) -> None:
    """Check masses (..., nb), kg, of moving bodies.

    Those of bodies that have none to begin with, `massless` (nb,), may be zero.

    Raises:
        ArrayError: one is not positive and finite; names its body.
    """
    valid = (mass >= SMALLEST_MASS) & (mass < np.inf) | massless & (mass == 0)
    bad = np.argwhere(~valid)
    if bad.size:
        raise ArrayError(
            f"mass{bad[0].tolist()} of robot {robot!r} is {mass[tuple(bad[0])]:g} kg, expected a "
            f"positive number: the body {bodies[bad[0][-1]]!r} moves, and nothing massless can. "
            "Give it a mass, or make its joint fixed in the URDF."
        )


def check_inertias(
    robot: str, bodies: Sequence[str], inertia: Array, massless: NDArray[np.bool_]
) -> None:
    """Check inertias (..., nb, 3, 3), kg m^2, of moving bodies about their centres of mass.

    Those of bodies that have no mass to begin with, `massless` (nb,), may be zero.

    Warns of one that breaks the triangle inequality, as some of published robots do: no body has
    such an inertia, but all algorithms accept it.

    Raises:
        ArrayError: one is not symmetric, or not positive definite; names its body.
    """
    absent = massless & ~np.any(inertia, axis=(-2, -1))
    moments = principal_moments(np.where(absent[..., None, None], np.eye(3), inertia))
    symmetric = ~np.isnan(moments[..., 0])
    positive = moments[..., 0] >= SMALLEST_MOMENT
    bad = np.argwhere(~positive)
    if not bad.size:
        bad = np.argwhere(~within_triangle(moments))
    if not bad.size:
        return
    at = tuple(bad[0])
    what = f"inertia{bad[0].tolist()} of robot {robot!r}, of the body {bodies[at[-1]]!r},"
    values = "[" + ", ".join(f"{x:.3g}" for x in moments[at]) + "] kg m^2"
    if not symmetric[at]:
        raise ArrayError(
            f"{what} is {inertia[at].tolist()}, expected finite numbers and a symmetric matrix. "
            "Write products of inertia on both sides of the diagonal."
        )
    if not positive[at]:
        raise ArrayError(
            f"{what} is not positive definite: its principal moments are {values}, expected "
            "positive ones. Check the signs off the diagonal; a solid sphere of mass m and radius "
            "r has 0.4 m r^2 on it."
        )
    warnings.warn(
        f"{what} breaks the triangle inequality: of its principal moments, {values}, the largest "
        "exceeds the sum of the others, which no distribution of mass has. It is used as it is; "
        "check the units, and that it is about the centre of mass.",
        RobotLoadWarning,
        stacklevel=3,
    )
