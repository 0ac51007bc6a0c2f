"""The scene of an environment: the robot, its hands' frames and the task's markers."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..dynamics import WORLD, Robot, Shape, forward_kinematics
from ..dynamics.math.rotation import rotation_to
from ..dynamics.model.robot import Frame, Topology
from ..envs import Environment, EnvParams, EnvState, JointGoals, World
from ..errors import RenderError
from .shapes import Camera, axes
from .stacked import Point

_F64 = NDArray[np.float64]

_HAND_AXES: Final = 0.07  # m, length of the triad at an end effector
_GLOW: Final = 0.06  # m, radius of the glow around a hand
_KEPT: Final = (0.25, 0.72, 0.4)
_INTERVENED: Final = (1.0, 0.66, 0.1)
_VIOLATED: Final = (0.9, 0.12, 0.12)
_FADED: Final = 0.35  # of the opacity, of what would hide contact forces
_BEAD: Final = 0.01, 0.005  # m, radii of the first and the last bead of a path
_BEADS: Final = 12  # of each hand's path
_PLANNED: Final = (0.48, 0.25, 0.85, 1.0)
_BONE: Final = 0.012  # m, radius of the cylinders that stand for a robot without shapes
_BONE_COLOR: Final = (0.62, 0.66, 0.72, 1.0)
_JOINT_COLOR: Final = (0.2, 0.22, 0.25, 1.0)

_VIEW: Final = (0.80, -0.72, 0.40)  # from the robot to the camera: its front, its right
_BESIDE: Final = (-0.45, -0.90, 0.45)  # of what faces the robot: its right, and behind it
_AROUND_HAND: Final = 0.32  # m, what the default camera shows around each hand, goals among it
_FOV: Final = 40.0  # degrees
_MARGIN: Final = 1.15  # of what is shown around what has to be shown


class _Parts(NamedTuple):
    """The shapes of a robot, m of them or none, as arrays in the frames of their bodies."""

    shapes: tuple[Shape, ...]
    body: NDArray[np.intp]  # (m,), `WORLD` for what does not move
    position: _F64  # (m, 3)
    rotation: _F64  # (m, 3, 3)


def scene(
    robot: Robot,
    q: ArrayLike,
    markers: Iterable[Shape] = (),
    safety: Mapping[str, Any] | None = None,
) -> list[Shape]:
    """The shapes that show a robot and what its task marks.

    The robot is drawn by its visual shapes; if it has none (a URDF whose visuals are meshes) by its
    collision shapes; if fewer than half of its bodies have any, also by thin cylinders between its
    joints. Each end effector carries a small triad. While a safety filter intervenes the hands
    glow.

    Args:
        robot: the model.
        q: (nq,), rad and m.
        markers: shapes in the world, as `env.markers(state, params)` returns them.
        safety: the filter's report, as `info["safety"]` is; None without one.

    Returns:
        Shapes for `fraxenv.rendering.render`, in world axes.

    Raises:
        RenderError: `q` is not of shape (nq,) or not finite; says where.

    """
    body_position, body_rotation = _body_poses(robot, _configuration(robot, q))
    parts = _parts(robot.topology)
    position = body_position[parts.body] + _rotate(body_rotation[parts.body], parts.position)
    rotation = body_rotation[parts.body] @ parts.rotation
    shapes = [
        Shape(s.kind, s.size, p, R, s.rgba)
        for s, p, R in zip(parts.shapes, position, rotation, strict=True)
    ]
    if 2 * len(set(parts.body.tolist()) - {WORLD}) < robot.nb:
        shapes += _skeleton(robot.topology, body_position, body_rotation)
    hands = [
        (
            body_position[f.body] + body_rotation[f.body] @ f.position,
            body_rotation[f.body] @ f.rotation,
        )
        for f in _hands(robot.topology)
    ]
    for place, to_world in hands:
        shapes += axes(place, to_world, length=_HAND_AXES)
    shapes += [
        dataclasses.replace(
            marker,
            position=np.asarray(marker.position, np.float64),
            rotation=np.asarray(marker.rotation, np.float64),
        )
        for marker in markers
    ]
    color = safety_color(safety)
    if color is not None and color != _KEPT:
        shapes += [Shape("sphere", (_GLOW,), place, np.eye(3), (*color, 0.4)) for place, _ in hands]
    return shapes


def env_scene(
    env: Environment,
    state: EnvState,
    params: EnvParams,
    safety: Mapping[str, Any] | None = None,
    *,
    contacts: bool = False,
) -> list[Shape]:
    """The shapes that show one environment: its robot, what its task marks, and its objects.

    Args:
        env: the environment.
        state: its state, of ONE environment.
        params: its parameters.
        safety: the filter's report, as `info["safety"]` is; None without one.
        contacts: whether to draw the contact forces of an environment of a scene, and all else
            translucent, since they begin within bodies; see `fraxenv.envs.Physics.force_shapes`.

    Raises:
        RenderError: the state is a batch or not finite.
    """
    q = _configuration(env.robot, state.q)  # first, because a batch's markers cannot be made
    shapes = scene(env.robot, q, env.markers(state, params), safety)
    if not (contacts and env.physics.pairs):
        return shapes
    faded = [dataclasses.replace(s, rgba=(*s.rgba[:3], _FADED * s.rgba[3])) for s in shapes]
    return [*faded, *env.physics.force_shapes(q, state.world, state.sizes)]


def path_shapes(positions: ArrayLike) -> list[Shape]:
    """Beads on the ways that hands are to go, smaller the later.

    Args:
        positions: (h, n, 3), m, of each of h hands.
    """
    ways: _F64 = np.asarray(positions, float)
    chosen = np.unique(np.linspace(0, ways.shape[1] - 1, _BEADS).round().astype(int))
    radii = np.linspace(*_BEAD, len(chosen)).tolist()
    return [
        Shape("sphere", (radius,), place, rgba=_PLANNED)
        for way in ways
        for radius, place in zip(radii, way[chosen], strict=True)
        if np.isfinite(place).all()
    ]


@functools.lru_cache(maxsize=16)
def env_camera(env: Environment) -> Camera:
    """The camera of an environment: `default_camera` of its robot, farther if it has objects.

    Furniture, which faces the robot, is seen from the robot's side.

    Args:
        env: the environment; where its objects are by default decides.
    """
    begun = env.physics.begin(env.name, World(), np.float32)
    view = _BESIDE if isinstance(env.default_params.task, JointGoals) else _VIEW
    return _camera(env.robot, tuple(_point(s.position) for s in env.physics.shapes(begun)), view)


def default_camera(robot: Robot) -> Camera:
    """A camera that shows a robot and the surroundings of its hands from the front, at an angle.

    Args:
        robot: the model; its default configuration decides what has to be in the picture.

    """
    return _camera(robot, (), _VIEW)


@functools.lru_cache(maxsize=16)
def _camera(robot: Robot, others: tuple[Point, ...], view: Point) -> Camera:
    position, rotation = _body_poses(robot, np.asarray(robot.q_default, np.float64))
    parts = _parts(robot.topology)
    centres = position[parts.body] + _rotate(rotation[parts.body], parts.position)
    points = [np.zeros((1, 3)), position, centres, np.array(others).reshape(-1, 3)]
    for frame in _hands(robot.topology):
        hand = position[frame.body] + rotation[frame.body] @ frame.position
        points.append(hand + _AROUND_HAND * np.concatenate([np.eye(3), -np.eye(3)]))
    cloud = np.concatenate(points)
    cloud[:, 2] = np.maximum(cloud[:, 2], 0.0)

    low, high = cloud.min(axis=0), cloud.max(axis=0)
    centre = (low + high) / 2
    radius = max(0.1, float(np.linalg.norm(cloud - centre, axis=1).max()))
    distance = _MARGIN * radius / math.sin(math.radians(_FOV) / 2)
    eye = centre + distance * np.array(view) / np.linalg.norm(view)
    return Camera(eye=_point(eye), target=_point(centre), fov=_FOV)


def safety_color(report: Mapping[str, Any] | None) -> Point | None:
    """The colour of a safety filter's state: green; amber where it intervenes; red below zero.

    Args:
        report: `info["safety"]` of one environment.

    Returns:
        Red, green and blue, from 0 to 1; None without a filter, or without a barrier.
    """
    if report is None or not math.isfinite(value := float(report["min_barrier"])):
        return None
    if value < 0:
        return _VIOLATED
    return _INTERVENED if bool(report["intervened"]) else _KEPT


# --- parts ----------------------------------------------------------------------------------------


def _configuration(robot: Robot, q: ArrayLike) -> _F64:
    array = np.asarray(q, np.float64)
    if array.shape != (robot.nq,):
        raise RenderError(
            f"scene: q of robot {robot.name!r} has shape {array.shape}, expected ({robot.nq},); "
            "a picture shows one environment, so of a batch of states pass one, "
            "e.g. jax.tree.map(lambda x: x[0], state)."
        )
    if not np.isfinite(array).all():
        wrong = ", ".join(f"q[{i}] = {array[i]}" for i in np.flatnonzero(~np.isfinite(array)))
        raise RenderError(
            f"scene: q of robot {robot.name!r} has {wrong}, expected finite numbers; reset the "
            "environment, or check what computed this configuration."
        )
    return array


@functools.lru_cache(maxsize=16)
def _kinematics(robot: Robot) -> Callable[[ArrayLike], Any]:
    return jax.jit(lambda q: forward_kinematics(robot, q))


def _body_poses(robot: Robot, q: _F64) -> tuple[_F64, _F64]:
    """Positions (n + 1, 3) and rotations (n + 1, 3, 3) of the bodies; the last, WORLD, is fixed."""
    position, rotation = jax.device_get(_kinematics(robot)(q))
    return (
        np.concatenate([position, np.zeros((1, 3))], dtype=np.float64),
        np.concatenate([rotation, np.eye(3)[None]], dtype=np.float64),
    )


def _hands(topology: Topology) -> list[Frame]:
    return [topology.frames[i] for i in topology.end_effectors.values()]


@functools.lru_cache(maxsize=16)
def _parts(topology: Topology) -> _Parts:
    shapes = topology.visual_shapes or topology.collision_shapes
    return _Parts(
        shapes,
        np.array([s.body for s in shapes], np.intp),
        np.array([s.position for s in shapes], np.float64).reshape(-1, 3),
        np.array([s.rotation for s in shapes], np.float64).reshape(-1, 3, 3),
    )


def _skeleton(topology: Topology, position: _F64, rotation: _F64) -> list[Shape]:
    """Balls at the joints, and cylinders from each to what it carries, from the bodies' poses.

    Nothing connects a body that floats with the world, or with what it floats from.
    """
    held = [i for i, joint in enumerate(topology.joints) if joint.kind != "floating"]
    ends = [(position[topology.parent[i]], position[i]) for i in held]
    for frame in _hands(topology):
        origin = position[frame.body]
        ends.append((origin, origin + rotation[frame.body] @ frame.position))
    balls = position if any(topology.parent[i] == WORLD for i in held) else position[:WORLD]
    shapes = [Shape("sphere", (2 * _BONE,), p, np.eye(3), _JOINT_COLOR) for p in balls]
    for start, end in ends:
        length = float(np.linalg.norm(end - start))
        if length > _BONE:
            along = rotation_to(end - start)
            shapes.append(Shape("cylinder", (_BONE, length), (start + end) / 2, along, _BONE_COLOR))
    return shapes


def _rotate(rotation: _F64, vector: _F64) -> _F64:
    return np.einsum("nij,nj->ni", rotation, vector)  # type: ignore[no-any-return]


def _point(x: _F64) -> tuple[float, float, float]:
    return float(x[0]), float(x[1]), float(x[2])
