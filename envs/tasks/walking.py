"""Ground for robots that walk: a floor, and feet that are balls or have some under their soles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from fraxenv.dynamics import (
    WORLD,
    ContactGeom,
    Frame,
    Joint,
    Robot,
    Scene,
    SceneEquality,
    SceneObject,
    Topology,
    box_geom,
    build_scene,
    connect_equality,
    frame_pose,
    plane_geom,
    sphere_geom,
)
from fraxenv.dynamics.geometry.shapes import Color
from fraxenv.dynamics.scene.build import drawn_shape
from fraxenv.errors import ConfigError

FLOOR, SLED = "floor", "sled"
FLOOR_COLOR: Color = (0.45, 0.5, 0.55, 1.0)
SLED_COLOR: Color = (0.75, 0.45, 0.2, 1.0)


def foot_names(robot: Robot) -> tuple[str, ...]:
    """Names of the robot's feet: its end effectors whose names end so, in the robot's order.

    Raises:
        ConfigError: it has none.
    """
    feet = tuple(name for name in robot.end_effectors if name.endswith("foot"))
    if not feet:
        raise ConfigError(
            f"robot {robot.name!r} has the end effectors {', '.join(robot.end_effectors) or 'none'}"
            ", expected feet among them, whose names end in 'foot', such as those of the robot "
            "'a1'. Name them: load_urdf(..., end_effectors={'left_foot': LINK, ...})."
        )
    return feet


def foot_radius(robot: Robot, foot: str) -> float:
    """Radius of the ball, m, that a foot's collision shape is.

    Raises:
        ConfigError: there is no ball in its middle.
    """
    frame = robot.frame(foot)
    for shape in robot.topology.collision_shapes:
        here = shape.body == frame.body and np.allclose(shape.position, frame.position)
        if shape.kind == "sphere" and here:
            return float(shape.size[0])
    raise ConfigError(
        f"robot {robot.name!r}: foot {foot!r} has no sphere in its middle among the collision "
        "shapes, expected one, which is what touches the ground. Add it to the link's <collision>."
    )


def foot_geoms(robot: Robot, foot: str, *, friction: float = 0.8) -> list[ContactGeom]:
    """What of a foot touches the ground: the balls under its sole, or the one ball that it is.

    Those are the collision shapes `FOOT_1` and so on of the foot's link.

    Raises:
        ConfigError: there are no such balls, and none in the foot's middle.
    """
    frame = robot.frame(foot)
    named = re.compile(rf"{re.escape(foot)}_\d+")
    under = [
        shape
        for shape in robot.topology.collision_shapes
        if shape.kind == "sphere" and shape.body == frame.body and named.fullmatch(shape.name)
    ]
    options: dict[str, Any] = {"frame": frame.name, "friction": friction, "priority": 1}
    if len(under) < 2:
        return [sphere_geom(foot, foot_radius(robot, foot), **options)]
    centres = [frame.rotation.T @ (shape.position - frame.position) for shape in under]
    return [
        sphere_geom(shape.name, shape.size[0], position=tuple(centre.tolist()), **options)
        for shape, centre in zip(under, centres, strict=True)
    ]


def walking_scene(
    robot: Robot,
    objects: Sequence[SceneObject] = (),
    equalities: Sequence[SceneEquality] = (),
    *,
    friction: float = 0.8,
    impratio: float = 10.0,
    timestep: float = 0.004,
) -> Scene:
    """A scene of a robot on a floor, the world's plane z = 0, which only its feet touch.

    Args:
        robot: its base floats; its feet are those of `foot_geoms`.
        objects: what else moves; nothing touches it.
        equalities: what holds parts together.
        friction: coefficient of contacts.
        impratio: ratio of frictional to normal impedance.
        timestep: s.

    Raises:
        ConfigError: the robot's base does not float, or it has no such feet.
    """
    if not any(j.kind == "floating" for j in robot.topology.joints):
        raise ConfigError(
            f"robot {robot.name!r} is welded to the world, expected one whose base floats: load "
            "it with floating_base=True."
        )
    feet = foot_names(robot)
    geoms = [geom for foot in feet for geom in foot_geoms(robot, foot, friction=friction)]
    return build_scene(
        robot,
        objects,
        [plane_geom(FLOOR, rgba=FLOOR_COLOR)],
        geoms=geoms,
        pairs=[(geom.name, FLOOR) for geom in geoms],
        name="ground",
        impratio=impratio,
        timestep=timestep,
        equalities=equalities,
        # The joints' damping is stiff for the legs' mass.
        integrator="discrete",
    )


def sled(handle: Sequence[float], *, mass: float = 20.0, resistance: float = 100.0) -> SceneObject:
    """A load that slides along the world's x axis, with a handle at its frame.

    Its coordinate is how far it has been pulled, m, against x.

    Args:
        handle: (3,), m, where the handle is at first.
        mass: kg.
        resistance: N, the Coulomb friction of its runners.
    """
    z = handle[2]
    bar = box_geom("sled_bar", (0.01, 0.08, 0.01), rgba=SLED_COLOR)
    post = box_geom(
        "sled_post", (0.01, 0.01, 0.5 * z), position=(0.03, 0, -0.5 * z), rgba=SLED_COLOR
    )
    load = box_geom("sled_load", (0.2, 0.2, 0.1), position=(0.25, 0, 0.1 - z), rgba=SLED_COLOR)
    nothing = np.zeros(1)
    unlimited = np.full(1, np.inf)
    topology = Topology(
        name=SLED,
        joints=(Joint(f"{SLED}_joint", "prismatic", np.array([-1.0, 0.0, 0.0])),),
        body_names=(SLED,),
        parent=np.array([WORLD]),
        position=np.array([handle], float),
        rotation=np.eye(3)[None],
        frames=(Frame(SLED, 0, np.zeros(3), np.eye(3)),),
        end_effectors={},
        collision_shapes=tuple(
            s for g in (bar, post, load) if (s := drawn_shape(g, 0)) is not None
        ),
    )
    model = Robot(
        topology=topology,
        mass=np.array([mass], float),
        com=np.zeros((1, 3)),
        inertia=mass * 0.01 * np.eye(3)[None],
        gravity=np.array([0.0, 0.0, -9.81]),
        armature=nothing,
        damping=nothing,
        friction=np.array([resistance], float),
        position_limits=np.stack([-unlimited, unlimited], axis=1),
        stop_stiffness=nothing,
        stop_damping=nothing,
        velocity_limits=unlimited,
        effort_limits=nothing,
        effort_rate_limits=unlimited,
        q_default=nothing,
    )
    return SceneObject(model, ())


def pulling_scene(
    robot: Robot,
    hand: str = "hand",
    *,
    friction: float = 0.8,
    mass: float = 20.0,
    resistance: float = 100.0,
) -> Scene:
    """A `walking_scene` with a sled whose handle the hand holds as a ball joint would.

    Args:
        robot: as of `walking_scene`.
        hand: name of the frame that holds it, where it is by default.
        friction: coefficient of the feet's contacts.
        mass: kg, of the sled.
        resistance: N, of the sled.
    """
    # One program in place of a hundred operations that are each compiled by themselves.
    handle, _ = jax.jit(partial(frame_pose, robot, frame=hand))(robot.q_default)
    load = sled(np.asarray(handle, float).tolist(), mass=mass, resistance=resistance)
    held = connect_equality(robot.frame(hand).name, SLED)
    # Feet under a steady force creep, as `dynamics.grip` says of fingers.
    return walking_scene(robot, [load], [held], friction=friction, impratio=100.0)
