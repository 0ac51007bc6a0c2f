"""Ground for robots that walk: a floor, and feet that are balls."""

from __future__ import annotations

import numpy as np

from fraxenv.dynamics import Robot, Scene, build_scene, plane_geom, sphere_geom
from fraxenv.dynamics.geometry.shapes import Color
from fraxenv.errors import ConfigError

FLOOR = "floor"
FLOOR_COLOR: Color = (0.45, 0.5, 0.55, 1.0)


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


def walking_scene(
    robot: Robot,
    *,
    friction: float = 0.8,
    impratio: float = 10.0,
    timestep: float = 0.004,
) -> Scene:
    """A scene of a robot on a floor, the world's plane z = 0, which only its feet touch.

    Args:
        robot: its base floats, and its feet are balls.
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
    balls = [
        sphere_geom(
            name,
            foot_radius(robot, name),
            frame=robot.topology.frames[robot.topology.end_effectors[name]].name,
            friction=friction,
            priority=1,
        )
        for name in foot_names(robot)
    ]
    return build_scene(
        robot,
        [],
        [plane_geom(FLOOR, rgba=FLOOR_COLOR)],
        geoms=balls,
        pairs=[(foot, FLOOR) for foot in foot_names(robot)],
        name="ground",
        impratio=impratio,
        timestep=timestep,
        # The joints' damping is stiff for the legs' mass.
        integrator="discrete",
    )
