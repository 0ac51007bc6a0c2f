"""Equality constraints to build a scene with: joints that move together, what is held together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fraxenv.errors import ConfigError

from ..contact.model import Equality, EqualityKind, EqualityParameters
from ..kinematics import forward_kinematics
from ..math.rotation import check_point, check_rotation, matrix_to_quaternion
from ..model.robot import WORLD, Robot
from .actuators import scalar_dof
from .parts import SOLIMP, SOLREF, check_softness

Array = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class SceneEquality:
    """An equality to build a scene with; `joint_equality`, `connect_equality`, ... make one.

    Attributes:
        kind: "joint", "connect" or "weld".
        first: of "joint", a joint's name; else a frame's, or "world".
        second: likewise; of "joint", None for a joint that is held at a constant.
        name: its name; may be empty.
        polynomial: of "joint", up to five coefficients.
        anchor: of "connect" and "weld", (3,), m.
        relative_position: of "weld", (3,), m, or None.
        relative_rotation: of "weld", (3, 3), or None.
        torque_scale: of "weld", m.
        active: whether it holds; a leaf of the scene.
        solref: as in `Geoms`.
        solimp: as in `Geoms`.
    """

    kind: EqualityKind
    first: str
    second: str | None
    name: str = ""
    polynomial: Sequence[float] = (0.0, 1.0)
    anchor: Sequence[float] | Array = (0.0, 0.0, 0.0)
    relative_position: Sequence[float] | Array | None = None
    relative_rotation: Array | None = None
    torque_scale: float = 1.0
    active: bool = True
    solref: Sequence[float] = SOLREF
    solimp: Sequence[float] = SOLIMP


def joint_equality(
    joint: str,
    other: str | None = None,
    polynomial: Sequence[float] = (0.0, 1.0),
    *,
    name: str = "",
    active: bool = True,
    solref: Sequence[float] = SOLREF,
    solimp: Sequence[float] = SOLIMP,
) -> SceneEquality:
    """A joint whose coordinate is a polynomial of another's: two fingers that close together.

    `q1 - r1 = c0 + c1 x + ... + c4 x^4` with `x = q2 - r2`, where `r` are the coordinates of the
    default configuration, as MuJoCo counts from its reference. Without another joint, `q1 = r1 +
    c0`.

    Args:
        joint: a joint with one coordinate.
        other: the joint that it follows.
        polynomial: up to five coefficients c0, c1, ..., rad or m.
        name: name of the constraint.
        active: whether it holds.
        solref: as in `Geoms`.
        solimp: as in `Geoms`.

    Raises:
        ConfigError: the numbers are not those of a polynomial, or of a constraint's softness.
    """
    _check("joint", joint, other, solref, solimp)
    coefficients = np.asarray(polynomial, float)
    if coefficients.ndim != 1 or not 1 <= coefficients.size <= 5 or not _finite(coefficients):
        raise ConfigError(
            f"joint_equality of {joint!r}: polynomial={polynomial!r}, expected one to five finite "
            "numbers, c0, c1, ...: (0, 1) for a joint that moves as the other does."
        )
    return SceneEquality(
        "joint", joint, other, name, polynomial, active=active, solref=solref, solimp=solimp
    )


def connect_equality(
    frame: str,
    other: str = "world",
    anchor: Sequence[float] | Array = (0.0, 0.0, 0.0),
    *,
    name: str = "",
    active: bool = True,
    solref: Sequence[float] = SOLREF,
    solimp: Sequence[float] = SOLIMP,
) -> SceneEquality:
    """A ball joint between two bodies: one's point stays where the other has it by default.

    Args:
        frame: a link, frame or free body.
        other: another one.
        anchor: (3,), m, the point in the first frame. What is there of the other one in the default
            configuration of the scene stays there.
        name: name of the constraint.
        active: whether it holds.
        solref: as in `Geoms`.
        solimp: as in `Geoms`.

    Raises:
        ArrayError: the anchor is no point.
        ConfigError: numbers are not those of a constraint's softness.
    """
    _check("connect", frame, other, solref, solimp)
    check_point(f"connect_equality of {frame!r} and {other!r}: anchor", anchor)
    return SceneEquality(
        "connect", frame, other, name, anchor=anchor, active=active, solref=solref, solimp=solimp
    )


def weld_equality(
    frame: str,
    other: str = "world",
    *,
    position: Sequence[float] | Array | None = None,
    rotation: Array | None = None,
    anchor: Sequence[float] | Array = (0.0, 0.0, 0.0),
    torque_scale: float = 1.0,
    name: str = "",
    active: bool = True,
    solref: Sequence[float] = SOLREF,
    solimp: Sequence[float] = SOLIMP,
) -> SceneEquality:
    """Two frames that keep their relative pose.

    Args:
        frame: a link, frame or free body.
        other: another one.
        position: (3,), m, of the second frame in the first; that of the default configuration if
            omitted.
        rotation: (3, 3), likewise.
        anchor: (3,), m, the point in the second frame whose distances count; its origin if omitted.
        torque_scale: m, by which angles are made distances.
        name: name of the constraint.
        active: whether it holds.
        solref: as in `Geoms`.
        solimp: as in `Geoms`.

    Raises:
        ArrayError: position or anchor is no point, or the rotation no rotation matrix.
        ConfigError: numbers are not those of a constraint's softness.
    """
    _check("weld", frame, other, solref, solimp)
    check_point(f"weld_equality of {frame!r} and {other!r}: anchor", anchor)
    if position is not None:
        check_point(f"weld_equality of {frame!r} and {other!r}: position", position)
    if rotation is not None:
        check_rotation(f"weld_equality of {frame!r} and {other!r}: rotation", rotation)
    if not (np.isfinite(torque_scale) and torque_scale > 0):
        raise ConfigError(
            f"weld_equality of {frame!r} and {other!r}: torque_scale={torque_scale!r}, expected a "
            "positive length, m. connect_equality holds a point alone."
        )
    return SceneEquality(
        "weld",
        frame,
        other,
        name,
        anchor=anchor,
        relative_position=position,
        relative_rotation=rotation,
        torque_scale=torque_scale,
        active=active,
        solref=solref,
        solimp=solimp,
    )


def _finite(x: Array) -> bool:
    return bool(np.isfinite(x).all())


def _check(
    kind: str, one: str, other: str | None, solref: Sequence[float], solimp: Sequence[float]
) -> None:
    between = repr(one) if other is None else f"{one!r} and {other!r}"
    check_softness(f"{kind}_equality of {between}", solref, solimp)
    if one == other:
        raise ConfigError(
            f"{kind}_equality of {between}: both are the same, expected two that move against each "
            "other."
        )


# --- in a scene -----------------------------------------------------------------------------------


def equality_constraints(
    system: Robot, reference: Array, equalities: Sequence[SceneEquality], scene: str
) -> tuple[tuple[Equality, ...], EqualityParameters]:
    """The static part and the numbers of a scene's equalities.

    Args:
        system: the forest; link i + 1 of the scene is its body i.
        reference: (nq,), the scene's reference configuration.
        equalities: what to constrain.
        scene: the scene's name, for errors.

    Raises:
        UnknownNameError: there is no such joint or frame.
        ConfigError: a joint has not one coordinate, or both frames are of one body.
    """
    n = len(equalities)
    static: list[Equality] = []
    polynomial, coordinates = np.zeros((n, 5)), np.zeros((n, 2))
    position, rotation = np.zeros((n, 2, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (n, 2, 1))
    # Of joints alone none are needed, and evaluated one by one they would take a second to compile.
    welded = any(e.kind != "joint" for e in equalities)
    poses = jax.tree.map(np.asarray, _POSES(system, reference)) if welded else None
    for i, e in enumerate(equalities):
        what = f"scene {scene!r}: {e.kind} equality of {e.first!r} and {e.second!r}"
        if e.kind == "joint":
            names = [e.first] if e.second is None else [e.first, e.second]
            joints = [scalar_dof(system, name, what) for name in names]
            for k, (_, q) in enumerate(joints):
                coordinates[i, k] = reference[q]
            polynomial[i, : len(e.polynomial)] = e.polynomial
            second = joints[1][0] if len(joints) > 1 else -1
            static.append(Equality(e.name, "joint", joints[0][0], second))
            continue
        ends = [_end(system, name) for name in (e.first, e.second or "world")]
        bodies = [body for body, _, _ in ends]
        if bodies[0] == bodies[1]:
            raise ConfigError(
                f"{what}: both are fixed to one body, expected two that move against each other."
            )
        inside = [(np.asarray(p, float), np.asarray(R, float)) for _, p, R in ends]
        of_body = [
            (np.zeros(3), np.eye(3))
            if body == WORLD or poses is None
            else (poses.position[body], poses.rotation[body])
            for body in bodies
        ]
        (p1, R1), (p2, R2) = [
            (at + turn @ p, turn @ R) for (at, turn), (p, R) in zip(of_body, inside, strict=True)
        ]
        anchor = np.asarray(e.anchor, float)
        if e.kind == "connect":
            points = anchor, R2.T @ (p1 + R1 @ anchor - p2)
            turns = np.eye(3), np.eye(3)
        else:
            apart = R1.T @ (p2 - p1) if e.relative_position is None else e.relative_position
            turned = R1.T @ R2 if e.relative_rotation is None else e.relative_rotation
            points = np.asarray(apart, float) + np.asarray(turned, float) @ anchor, anchor
            turns = np.asarray(turned, float), np.eye(3)
        for k, ((p, R), point, turn) in enumerate(zip(inside, points, turns, strict=True)):
            position[i, k] = p + R @ point
            if e.kind == "weld":
                rotation[i, k] = np.asarray(matrix_to_quaternion(jnp.asarray(R @ turn)))
        links = bodies[0] + 1, bodies[1] + 1
        static.append(Equality(e.name, e.kind, bodies[0], bodies[1], links))
    return tuple(static), EqualityParameters(
        active=np.array([float(e.active) for e in equalities]),
        polynomial=polynomial,
        reference=coordinates,
        position=position,
        rotation=rotation,
        torque_scale=np.array([float(e.torque_scale) for e in equalities]),
        solref=np.array([e.solref for e in equalities], float).reshape(-1, 2),
        solimp=np.array([e.solimp for e in equalities], float).reshape(-1, 5),
    )


_POSES = jax.jit(forward_kinematics)


def _end(system: Robot, name: str) -> tuple[int, Array, Array]:
    """The body that a frame is fixed to, and its pose in that body's frame."""
    if name == "world" and "world" not in system.frame_names:
        return WORLD, np.zeros(3), np.eye(3)
    frame = system.frame(name)
    return frame.body, frame.position, frame.rotation
