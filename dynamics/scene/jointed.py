"""Bodies on a joint, such as drawers and doors, whose mount stands wherever it is put."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fraxenv.errors import ConfigError, check_choice

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
    shapes = [drawn_shape(g, 1) for g in fixed] + [drawn_shape(g, 2) for g in own]
    bodies = (f"{name}_height", f"{name}_mount", name)
    topology = Topology(
        name=name,
        joints=(
            Joint(f"{name}_height", "prismatic", Z),
            Joint(f"{name}_place", "planar", Z),
            Joint(f"{name}_joint", kind, direction / length),
        ),
        body_names=bodies,
        parent=np.array([WORLD, 0, 1]),
        position=np.array([np.zeros(3), np.zeros(3), point]),
        rotation=np.tile(np.eye(3), (3, 1, 1)),
        frames=tuple(Frame(n, i, np.zeros(3), np.eye(3)) for i, n in enumerate(bodies)),
        end_effectors={},
        collision_shapes=tuple(s for s in shapes if s is not None),
    )
    model = Robot(
        topology=topology,
        mass=np.array([MOUNT_MASS, MOUNT_MASS, mass], float),
        com=np.array([np.zeros(3), np.zeros(3), com]),
        inertia=np.array([np.eye(3), np.eye(3), mass * per_mass]),
        gravity=np.array([0.0, 0.0, -9.81]),
        armature=_joint(MOUNT_ARMATURE, 0.0),
        damping=_joint(MOUNT_DAMPING, damping),
        friction=_joint(0.0, friction),
        position_limits=np.stack([_joint(-np.inf, low), _joint(np.inf, high)], axis=1),
        stop_stiffness=np.zeros(5),
        stop_damping=np.zeros(5),
        velocity_limits=np.full(5, np.inf),
        effort_limits=np.zeros(5),
        effort_rate_limits=np.full(5, np.inf),
        q_default=np.array([at[2], at[0], at[1], turn, np.clip(0.0, low, high)]),
    )
    return SceneObject(model, (*fixed, *own))


def _joint(of_mount: float, own: float) -> NDArray[np.float64]:
    """Numbers (5,) of the mount's four coordinates, and of the joint's."""
    return np.array([of_mount] * 4 + [own], float)
