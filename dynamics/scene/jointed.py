"""Bodies that stand wherever they are put: mounts, and what hangs on their joint, as a drawer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fraxenv.errors import ConfigError, check_choice

from ..geometry.shapes import Shape
from ..math.rotation import check_point
from ..model.robot import WORLD, Frame, Joint, Robot, Topology
from .build import ContactGeom, SceneObject, drawn_shape, solid_inertia

MOUNT_DAMPING = 1e6
"""N s/m and N m s/rad, by which a mount stays where it is: 50 N move it by 0.05 mm in a second.

Implicit dampers hold as well as a great inertia would, and leave the mass matrix well scaled.
"""

MOUNT_ARMATURE = 1e3
"""kg and kg m^2, of a mount: contacts of what hangs on it are as stiff as if it were fixed."""

MOUNT_MASS = 1.0
"""kg, which its weight lets sink by 10 um in a second."""

Z = np.array([0.0, 0.0, 1.0])


def jointed_body(
    name: str,
    *geoms: ContactGeom,
    kind: Literal["prismatic", "revolute"],
    axis: Sequence[float],
    limits: tuple[float, float],
    mass: float,
    pivot: Sequence[float] = (0.0, 0.0, 0.0),
    damping: float = 0.0,
    friction: float = 0.0,
    mount: Sequence[ContactGeom] = (),
    place: Sequence[float] = (0.0, 0.0, 0.0),
    turn: float = 0.0,
) -> SceneObject:
    """A body that slides or turns on a mount, such as a drawer in a cabinet.

    Its five coordinates are the mount's height z, m, its x and y, m, its turn about the vertical,
    rad, and the joint's own, m or rad. The first four say where it stands, and keep their values:
    see `MOUNT_DAMPING`.

    Args:
        name: its name, and that of its body and frame; the mount's are `name` with "_mount".
        *geoms: of the body, placed in the mount's frame, with the joint at zero.
        kind: "prismatic" or "revolute".
        axis: (3,), of the joint, in the mount's frame; of any length.
        limits: m or rad, the lower one and the upper one.
        mass: kg, of the body, solid geoms of one density.
        pivot: (3,), m, a point of the joint's axis, in the mount's frame.
        damping: N s/m or N m s/rad, of the joint.
        friction: N or N m, Coulomb friction of the joint.
        mount: geoms fixed to the mount.
        place: (3,), m, of the mount in the default configuration, world.
        turn: rad, likewise.

    Raises:
        ConfigError: there is no geom, a plane is among them, or a number is not possible.
        ArrayError: an array has the wrong shape.
    """
    check_choice(f"jointed_body {name!r}: kind", kind, ("prismatic", "revolute"))
    direction, point, at = (
        check_point(f"jointed_body {name!r}: {what}", x)
        for what, x in (("axis", axis), ("pivot", pivot), ("place", place))
    )
    length = float(np.linalg.norm(direction))
    low, high = limits
    if not geoms or any(g.kind == "plane" for g in (*geoms, *mount)):
        raise ConfigError(
            f"jointed_body {name!r}: expected at least one geom, none of them a plane, got "
            f"{[g.kind for g in (*geoms, *mount)]}."
        )
    if not (length > 0 and low < high and 0 < mass < np.inf):
        raise ConfigError(
            f"jointed_body {name!r}: axis={tuple(axis)}, limits={tuple(limits)}, mass={mass!r} kg; "
            "expected an axis that is not zero, a lower limit and a greater one, and a positive "
            "mass."
        )
    if not (0 <= damping < np.inf and 0 <= friction < np.inf):
        raise ConfigError(
            f"jointed_body {name!r}: damping={damping!r}, friction={friction!r}, expected numbers "
            "that are not negative."
        )
    own = [
        dataclasses.replace(g, frame=name, position=np.asarray(g.position, float) - point)
        for g in geoms
    ]
    fixed = [dataclasses.replace(g, frame=f"{name}_mount") for g in mount]
    com, per_mass = solid_inertia(own)
    base = _mount(name, f"{name}_mount", fixed, at, turn)
    stand = base.topology
    topology = dataclasses.replace(
        stand,
        joints=(*stand.joints, Joint(f"{name}_joint", kind, direction / length)),
        body_names=(*stand.body_names, name),
        parent=np.append(stand.parent, 1),
        position=np.vstack([stand.position, point]),
        rotation=np.tile(np.eye(3), (3, 1, 1)),
        frames=(*stand.frames, Frame(name, 2, np.zeros(3), np.eye(3))),
        collision_shapes=(*stand.collision_shapes, *_drawn(own, 2)),
    )
    model = Robot(
        topology=topology,
        gravity=base.gravity,
        mass=np.append(base.mass, mass),
        com=np.vstack([base.com, com]),
        inertia=np.concatenate([base.inertia, [mass * per_mass]]),
        armature=np.append(base.armature, 0.0),
        damping=np.append(base.damping, damping),
        friction=np.append(base.friction, friction),
        position_limits=np.vstack([base.position_limits, (low, high)]),
        stop_stiffness=np.zeros(5),
        stop_damping=np.zeros(5),
        velocity_limits=np.full(5, np.inf),
        effort_limits=np.zeros(5),
        effort_rate_limits=np.full(5, np.inf),
        q_default=np.append(base.q_default, np.clip(0.0, low, high)),
    )
    return SceneObject(model, (*fixed, *own))


def placed_body(
    name: str,
    *geoms: ContactGeom,
    place: Sequence[float] = (0.0, 0.0, 0.0),
    turn: float = 0.0,
) -> SceneObject:
    """A body that stays where it is put, which can be elsewhere in every episode.

    Its four coordinates are its height z, m, its x and y, m, and its turn about the vertical, rad:
    the mount of `jointed_body`, with nothing on it.

    Args:
        name: its name, and that of its body and frame.
        *geoms: of the body, in its frame.
        place: (3,), m, in the default configuration, world.
        turn: rad, likewise.

    Raises:
        ConfigError: there is no geom, or a plane is among them.
        ArrayError: an array has the wrong shape.
    """
    at = check_point(f"placed_body {name!r}: place", place)
    if not geoms or any(g.kind == "plane" for g in geoms):
        raise ConfigError(
            f"placed_body {name!r}: expected at least one geom, none of them a plane, got "
            f"{[g.kind for g in geoms]}."
        )
    own = [dataclasses.replace(g, frame=name) for g in geoms]
    return SceneObject(_mount(name, name, own, at, turn), tuple(own))


def _mount(
    name: str, body: str, geoms: Sequence[ContactGeom], at: NDArray[np.float64], turn: float
) -> Robot:
    """The model of a body with some geoms that stays at a place (3,), m, turned by `turn`, rad."""
    bodies = f"{name}_height", body
    topology = Topology(
        name=name,
        joints=(
            Joint(f"{name}_height", "prismatic", Z),
            Joint(f"{name}_place", "planar", Z),
        ),
        body_names=bodies,
        parent=np.array([WORLD, 0]),
        position=np.zeros((2, 3)),
        rotation=np.tile(np.eye(3), (2, 1, 1)),
        frames=tuple(Frame(n, i, np.zeros(3), np.eye(3)) for i, n in enumerate(bodies)),
        end_effectors={},
        collision_shapes=_drawn(geoms, 1),
    )
    return Robot(
        topology=topology,
        mass=np.full(2, MOUNT_MASS),
        com=np.zeros((2, 3)),
        inertia=np.tile(np.eye(3), (2, 1, 1)),
        gravity=np.array([0.0, 0.0, -9.81]),
        armature=np.full(4, MOUNT_ARMATURE),
        damping=np.full(4, MOUNT_DAMPING),
        friction=np.zeros(4),
        position_limits=np.tile((-np.inf, np.inf), (4, 1)),
        stop_stiffness=np.zeros(4),
        stop_damping=np.zeros(4),
        velocity_limits=np.full(4, np.inf),
        effort_limits=np.zeros(4),
        effort_rate_limits=np.full(4, np.inf),
        q_default=np.array([at[2], at[0], at[1], turn]),
    )


def _drawn(geoms: Sequence[ContactGeom], body: int) -> tuple[Shape, ...]:
    """Geoms of a body as shapes."""
    shapes = (drawn_shape(g, body) for g in geoms)
    return tuple(s for s in shapes if s is not None)
