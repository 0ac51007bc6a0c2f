"""Strategies of hypothesis for robots: trees of any joint types, as URDF."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

SCALAR = ("revolute", "continuous", "prismatic")
KINDS = (*SCALAR, "floating", "planar", "fixed")

_finite: dict[str, Any] = {"allow_nan": False, "allow_infinity": False, "allow_subnormal": False}


def _numbers(low: float, high: float, count: int) -> st.SearchStrategy[str]:
    number = st.floats(low, high, **_finite).map(lambda x: f"{x:.9g}")
    return st.lists(number, min_size=count, max_size=count).map(" ".join)


_axes = st.one_of(
    st.sampled_from(["1 0 0", "0 1 0", "0 0 1", "0 0 -1"]),
    st.tuples(st.floats(-math.pi, math.pi, **_finite), st.floats(-1, 1, **_finite)).map(
        lambda x: (
            f"{math.cos(x[0]) * math.sqrt(1 - x[1] ** 2):.17g} "
            f"{math.sin(x[0]) * math.sqrt(1 - x[1] ** 2):.17g} {x[1]:.17g}"
        )
    ),
)
_origins = st.one_of(
    st.just(""),
    st.tuples(_numbers(-0.5, 0.5, 3), _numbers(-math.pi, math.pi, 3)).map(
        lambda x: f'<origin xyz="{x[0]}" rpy="{x[1]}"/>'
    ),
)


@st.composite
def _inertials(draw: st.DrawFn) -> str:
    # Second moments of mass are positive, so that the triangle inequality holds.
    i, j, k = (draw(st.floats(0.02, 0.2, **_finite)) for _ in range(3))
    mass = draw(st.floats(0.1, 5.0, **_finite))
    return (
        f'<inertial>{draw(_origins)}<mass value="{mass:.9g}"/><inertia ixx="{j + k:.17g}" '
        f'iyy="{i + k:.17g}" izz="{i + j:.17g}" ixy="0" ixz="0" iyz="0"/></inertial>'
    )


@st.composite
def robots(
    draw: st.DrawFn,
    kinds: tuple[str, ...] = KINDS,
    mimics: bool = True,
    max_bodies: int = 6,
    normal: str | None = None,
) -> tuple[str, bool]:
    """The URDF of a random tree that moves, and whether its base floats.

    Args:
        draw: of hypothesis.
        kinds: of joints.
        mimics: whether joints may follow others.
        max_bodies: besides the base.
        normal: the axis of planar joints; None for any.
    """
    n = draw(st.integers(2, max_bodies))
    floating = draw(st.booleans())
    # A base that is held needs no mass.
    base = draw(_inertials() if floating else st.just("") | _inertials())
    parts = ['<robot name="random">', f'<link name="l0">{base}</link>']
    movable: list[str] = []
    for i in range(1, n + 1):
        parent = draw(st.integers(0, i - 1))
        # The first one moves, so that there is a robot at all.
        kind = draw(st.sampled_from([k for k in kinds if i > 1 or k in SCALAR]))
        limits = sorted(draw(st.floats(-3, 3, **_finite)) for _ in range(2))
        extra = f'<axis xyz="{draw(_axes)}"/>'
        if kind == "planar" and normal is not None:
            extra = f'<axis xyz="{normal}"/>'
        if kind in ("revolute", "prismatic"):
            extra += (
                f'<limit lower="{limits[0]:.9g}" upper="{limits[1]:.9g}" effort="9" velocity="3"/>'
            )
        if kind in SCALAR:
            if mimics and movable and draw(st.booleans()):
                followed = draw(st.sampled_from(movable))
                factor, offset = (draw(st.floats(-2, 2, **_finite)) for _ in range(2))
                extra += (
                    f'<mimic joint="{followed}" multiplier="{factor:.9g}" offset="{offset:.9g}"/>'
                )
            movable.append(f"j{i}")
        inertial = draw(_inertials())
        parts.append(
            f'<link name="l{i}">{inertial}</link><joint name="j{i}" type="{kind}">'
            f'<parent link="l{parent}"/><child link="l{i}"/>{draw(_origins)}{extra}</joint>'
        )
    return "\n".join([*parts, "</robot>"]), floating
