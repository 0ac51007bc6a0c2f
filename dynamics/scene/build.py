"""Scenes in Python: a robot, objects, static geometry, and which of them may touch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import get_args

import jax
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from fraxenv.errors import ArrayError, ConfigError, check_choice, is_concrete, unknown_name

from ..contact.model import (
    Cone,
    Constraints,
    Geom,
    GeomKind,
    Geoms,
    InverseWeights,
    JointParameters,
    Layout,
    Link,
    Pair,
    PairParameters,
)
from ..contact.narrowphase import COLLIDERS
from ..contact.weights import inverse_weights
from ..geometry.shapes import GREY, Color, Shape
from ..math.rotation import check_point, check_rotation
from ..model.combine import combine, member_slices
from ..model.robot import WORLD, Frame, Joint, Robot, Topology
from .actuators import JointActuator, joint_actuators
from .equalities import SceneEquality, equality_constraints
from .pairs import by_kinds, mixed_pair, ordered, other_kinds
from .parts import SOLIMP, SOLREF, Integrator, JointActuators, check_softness
from .scene import Scene, check_scene

Array = NDArray[np.floating]

FRICTION = (1.0, 0.005, 0.0001)
"""MuJoCo's default sliding, torsional (m) and rolling (m) friction."""


@dataclass(frozen=True, eq=False)
class ContactGeom:
    """A geom to build a scene with; `plane_geom`, `box_geom`, ... make one.

    Attributes:
        name: unique in the scene; of a free body's only geom, its name if empty.
        kind: "plane", "sphere", "capsule", "cylinder" or "box".
        size: m, as in MuJoCo: radius; radius and half length; half extents.
        frame: link or frame that it is fixed to; "world".
        position: (3,), m, in that frame.
        rotation: (3, 3), geom to frame.
        friction: sliding, or sliding, torsional (m) and rolling (m).
        condim: 1, 3, 4 or 6, dimension of its contacts: no friction, sliding, torsional, rolling.
        priority: of two geoms in contact, the one of higher priority decides the parameters.
        solref: as in `Geoms`.
        solimp: as in `Geoms`.
        solmix: weight of its solref and solimp against the other geom's.
        margin: m.
        gap: m.
        rgba: colour.
    """

    name: str
    kind: GeomKind
    size: Sequence[float]
    frame: str = "world"
    position: Sequence[float] | Array = (0.0, 0.0, 0.0)
    rotation: Array = field(default_factory=lambda: np.eye(3))
    friction: float | Sequence[float] = FRICTION
    condim: int = 3
    priority: int = 0
    solref: Sequence[float] = SOLREF
    solimp: Sequence[float] = SOLIMP
    solmix: float = 1.0
    margin: float = 0.0
    gap: float = 0.0
    rgba: Color = GREY


def plane_geom(name: str, **options: object) -> ContactGeom:
    """A plane, solid below: its normal is z. Options are fields of `ContactGeom`."""
    return _geom(name, "plane", (), options)


def sphere_geom(name: str, radius: float, **options: object) -> ContactGeom:
    """A sphere; radius in m. Options are fields of `ContactGeom`."""
    return _geom(name, "sphere", (radius,), options)


def capsule_geom(name: str, radius: float, half_length: float, **options: object) -> ContactGeom:
    """A capsule along z; half length without the caps, m. Options are fields of `ContactGeom`."""
    return _geom(name, "capsule", (radius, half_length), options)


def cylinder_geom(name: str, radius: float, half_length: float, **options: object) -> ContactGeom:
    """A cylinder along z; radius and half length in m. Options are fields of `ContactGeom`."""
    return _geom(name, "cylinder", (radius, half_length), options)


def box_geom(name: str, half_extents: Sequence[float], **options: object) -> ContactGeom:
    """A box; half extents along x, y, z in m. Options are fields of `ContactGeom`."""
    return _geom(name, "box", tuple(half_extents), options)


def _geom(
    name: str, kind: GeomKind, size: Sequence[float], options: dict[str, object]
) -> ContactGeom:
    known = [f.name for f in dataclasses.fields(ContactGeom)][3:]
    for option in options:
        if option not in known:
            raise unknown_name("option", option, known, f"of {kind}_geom")
    geom = ContactGeom(name, kind, size, **options)  # type: ignore[arg-type]
    if len(size) != _SIZES[kind] or not all(np.isfinite(s) and s > 0 for s in size):
        raise ConfigError(
            f"{kind} geom {name!r}: size={tuple(size)}, expected {_SIZES[kind]} positive numbers, "
            "m: radius, or radius and half length, or three half extents."
        )
    if geom.condim not in (1, 3, 4, 6):
        raise ConfigError(
            f"geom {name!r}: condim={geom.condim!r}, expected 1 (no friction), 3 (sliding), 4 "
            "(and torsional) or 6 (and rolling)."
        )
    friction = np.atleast_1d(np.asarray(geom.friction, float))
    if friction.shape not in ((1,), (2,), (3,)) or not (friction >= 0).all():
        raise ConfigError(
            f"geom {name!r}: friction={geom.friction!r}, expected one to three numbers that are "
            "not negative: sliding, torsional (m), rolling (m)."
        )
    check_softness(f"geom {name!r}", geom.solref, geom.solimp)
    return geom


_SIZES: dict[GeomKind, int] = {"plane": 0, "sphere": 1, "capsule": 2, "cylinder": 2, "box": 3}


# --- free bodies ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SceneObject:
    """Something that is not controlled: a model, and its geoms, fixed to its frames."""

    model: Robot
    geoms: tuple[ContactGeom, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return self.model.name


def free_body(
    name: str,
    *geoms: ContactGeom,
    mass: float,
    inertia: ArrayLike | None = None,
    com: ArrayLike | None = None,
    position: Sequence[float] | Array = (0.0, 0.0, 0.0),
    rotation: Array | None = None,
) -> SceneObject:
    """A body that moves freely, of one or more geoms.

    `free_body("cube", box_geom("", (0.02,) * 3), mass=0.064, position=(0.5, 0.0, 0.02))`

    Args:
        name: its name, and that of its joint and frame.
        *geoms: its geoms, placed in the body's frame.
        mass: kg.
        inertia: (3, 3), kg m^2, about the centre of mass; of solid geoms of one density if omitted.
        com: (3,), m, centre of mass; of these geoms if omitted.
        position: (3,), m, in the default configuration.
        rotation: (3, 3), in the default configuration; the identity if omitted.

    Raises:
        ConfigError: there is no geom, a plane is among them, or the mass or a moment of inertia is
            not positive.
        ArrayError: an array has the wrong shape, or `rotation` is none.
    """
    if not geoms or any(g.kind == "plane" for g in geoms):
        raise ConfigError(
            f"free_body {name!r}: expected at least one geom, none of them a plane, got "
            f"{[g.kind for g in geoms]}."
        )
    if not (np.isfinite(mass) and mass > 0):
        raise ConfigError(f"free_body {name!r}: mass={mass!r} kg, expected a positive number.")
    for g in geoms:
        _pose(f"geom {g.name!r}", g.position, g.rotation)
    _, R = _pose(f"free_body {name!r}", position, np.eye(3) if rotation is None else rotation)
    own_com, per_mass = solid_inertia(geoms)
    own_com = own_com if com is None else np.asarray(com, float)
    own_inertia = per_mass * mass if inertia is None else np.asarray(inertia, float)
    if own_com.shape != (3,) or own_inertia.shape != (3, 3):
        raise ArrayError(
            f"free_body {name!r}: com has shape {own_com.shape} and inertia {own_inertia.shape}, "
            "expected (3,) and (3, 3)."
        )
    if not np.linalg.eigvalsh(own_inertia).min() > 0:
        raise ConfigError(
            f"free_body {name!r}: its moments of inertia are "
            f"{np.linalg.eigvalsh(own_inertia)} kg m^2, expected three positive ones. Leave "
            "inertia out for that of its geoms."
        )
    named = tuple(
        dataclasses.replace(
            g, name=g.name or (name if len(geoms) == 1 else f"{name}_{k}"), frame=name
        )
        for k, g in enumerate(geoms)
    )
    q = np.concatenate([np.asarray(position, float), _quaternion(R)])
    nothing = np.zeros(6)
    topology = Topology(
        name=name,
        joints=(Joint(name, "floating", np.array([1.0, 0.0, 0.0])),),
        body_names=(name,),
        parent=np.array([WORLD]),
        position=np.zeros((1, 3)),
        rotation=np.eye(3)[None],
        frames=(Frame(name, 0, np.zeros(3), np.eye(3)),),
        end_effectors={},
        collision_shapes=tuple(s for g in named if (s := drawn_shape(g, 0)) is not None),
    )
    unlimited = np.full(6, np.inf)
    model = Robot(
        topology=topology,
        mass=np.array([mass], float),
        com=own_com[None],
        inertia=own_inertia[None],
        gravity=np.array([0.0, 0.0, -9.81]),
        armature=nothing,
        damping=nothing,
        friction=nothing,
        position_limits=np.stack([-unlimited, unlimited], axis=1),
        stop_stiffness=nothing,
        stop_damping=nothing,
        velocity_limits=unlimited,
        effort_limits=nothing,
        effort_rate_limits=unlimited,
        q_default=q,
    )
    return SceneObject(model, named)


def solid_inertia(geoms: Sequence[ContactGeom]) -> tuple[Array, Array]:
    """Centre of mass, and inertia about it per mass, of solid geoms of one density."""
    parts = [_volume_and_inertia(g) for g in geoms]
    volumes = np.array([volume for volume, _ in parts])
    shares = volumes / volumes.sum()
    centres = np.array([np.asarray(g.position, float) for g in geoms])
    com = shares @ centres
    inertia = np.zeros((3, 3))
    for share, centre, geom, (_, moments) in zip(shares, centres, geoms, parts, strict=True):
        R, r = np.asarray(geom.rotation, float), centre - com
        inertia += share * (R @ np.diag(moments) @ R.T + r @ r * np.eye(3) - np.outer(r, r))
    return com, inertia


def _volume_and_inertia(geom: ContactGeom) -> tuple[float, Array]:
    """Volume, m^3, and principal moments per mass, m^2."""
    match geom.kind:
        case "sphere":
            (r,) = geom.size
            return 4 / 3 * np.pi * r**3, np.full(3, 0.4 * r * r)
        case "box":
            x, y, z = (s * s for s in geom.size)
            return 8 * float(np.prod(geom.size)), np.array([y + z, x + z, x + y]) / 3
        case "cylinder":
            r, h = geom.size
            across = r * r / 4 + h * h / 3
            return 2 * np.pi * r * r * h, np.array([across, across, r * r / 2])
        case _:
            r, h = geom.size
            tube, ball = 2 * np.pi * r * r * h, 4 / 3 * np.pi * r**3
            # Two half balls, whose centres of mass are 3/8 r beyond the tube's ends.
            across = tube * (r * r / 4 + h * h / 3) + ball * (0.4 * r * r + h * h + 0.75 * h * r)
            along = tube * r * r / 2 + ball * 0.4 * r * r
            return tube + ball, np.array([across, across, along]) / (tube + ball)


# --- scenes ---------------------------------------------------------------------------------------


def build_scene(
    robot: Robot | SceneObject | None = None,
    objects: Sequence[SceneObject | Robot] = (),
    static: Sequence[ContactGeom] = (),
    *,
    geoms: Sequence[ContactGeom] | None = None,
    pairs: Iterable[tuple[str, str]] | None = None,
    name: str = "scene",
    cone: Cone = "elliptic",
    impratio: float = 1.0,
    timestep: float = 0.002,
    integrator: Integrator = "euler",
    equalities: Sequence[SceneEquality] = (),
    actuators: Sequence[JointActuator] | JointActuators = (),
) -> Scene:
    """A scene of a robot, objects and static geometry.

    Joint limits and Coulomb friction of all joints become constraints. The default configuration is
    the reference of the inverse weights. Gravity is the robot's.

    Args:
        robot: what is controlled; its coordinates come first.
        objects: free bodies, and robots that are not controlled, such as a drawer.
        static: geoms that do not move.
        geoms: the robot's geoms, fixed to its frames, such as finger pads; its collision shapes if
            omitted, and between these its self-collision pairs.
        pairs: which may touch: names of geoms, of links, of objects or the robot (all their geoms);
            if omitted, all geoms of different bodies but those of the robot among themselves.
        name: name of the scene.
        cone: "elliptic", or "pyramidal", for parity with models that have it.
        impratio: ratio of frictional to normal impedance: 10 slips little in a grasp.
        timestep: s.
        integrator: "euler", "implicitfast" or "discrete".
        equalities: joints that move together, points and frames that are held together;
            `joint_equality`, `connect_equality`, `weld_equality` make one.
        actuators: what drives joints, beside torques that are given: `motor_actuator`,
            `position_actuator`, `velocity_actuator` make one.

    Returns:
        A scene; `members` has the slices of the robot and of each object, by name.

    Raises:
        ConfigError: there is nothing that moves, names clash, a pair of kinds is not modelled, or
            an equality or actuator is of a joint that cannot have one.
        UnknownNameError: a frame, a joint or a name in `pairs` does not exist.
    """
    _check_parts(name, robot, objects, static)
    check_choice(f"scene {name!r}: cone", cone, get_args(Cone))
    members = _members(robot, objects, geoms)
    if not members:
        raise ConfigError(f"scene {name!r} has nothing that moves: give it a robot or an object.")
    gravity = members[0].model.gravity
    models = [dataclasses.replace(m.model, gravity=gravity) for m in members]
    drawn = tuple(s for g in static if (s := drawn_shape(g, WORLD)) is not None)
    system = _with_shapes(combine(*models, name=name), drawn)
    all_geoms = sorted(
        [*(g for m in members for g in m.geoms), *static], key=lambda g: _body(system, g)
    )  # as MuJoCo numbers them
    links = (Link("world", WORLD), *(Link(n, i) for i, n in enumerate(system.topology.body_names)))
    placed = [_placed(system, g) for g in all_geoms]
    layout_geoms = tuple(g for g, _, _ in placed)
    _check_unique([g.name for g in all_geoms], name)
    controlled = set() if robot is None else {g.name for g in members[0].geoms}
    own_pairs = _self_pairs(members[0]) if robot is not None and geoms is None else []
    chosen = (
        _all_pairs(layout_geoms, system, controlled, own_pairs)
        if pairs is None
        else _named_pairs(pairs, layout_geoms, members, system, name)
    )
    limits = np.broadcast_to(np.asarray(system.position_limits, float), (system.nv, 2))
    scalar = system.topology.dof_coordinate >= 0
    finite = np.isfinite(limits).any(1)
    balls = tuple(
        body
        for body, _, start in system.topology.quaternions
        if system.topology.joints[body].kind == "spherical" and finite[start]
    )
    friction = np.broadcast_to(np.asarray(system.friction, float), (system.nv,))
    reference = _reference(system)
    couplings, coupling_numbers = equality_constraints(system, reference, equalities, name)
    layout = Layout(
        geoms=layout_geoms,
        links=links,
        pairs=by_kinds(layout_geoms, sorted(chosen, key=partial(_rank, layout_geoms))),
        equalities=couplings,
        limited=tuple(int(i) for i in np.flatnonzero(finite & scalar)),
        limited_balls=balls,
        friction_loss=tuple(int(i) for i in np.flatnonzero(friction > 0)),
        cone=cone,
    )
    constraints = Constraints(
        layout=layout,
        geoms=_numbers(all_geoms, placed),
        pairs=_no_pairs(),
        joints=_joint_parameters(system.nv),
        equalities=coupling_numbers,
        link_com=np.concatenate([np.zeros((1, 3)), np.asarray(system.com)]),
        reference=reference,
        weights=InverseWeights(0.0, 0.0, 0.0),
        impratio=impratio,
    )
    weights = jax.jit(inverse_weights)(system, constraints)
    if is_concrete(weights):
        weights = jax.tree.map(np.asarray, weights)
    slices = member_slices(*models)
    scene = Scene(
        name=name,
        system=system,
        constraints=dataclasses.replace(constraints, weights=weights),
        stiffness=np.zeros(system.nv),
        spring_reference=reference,
        link_share=np.array([0.0, *np.ones(system.nb)]),
        gravity_compensation=None,
        actuators=actuators
        if isinstance(actuators, JointActuators)
        else joint_actuators(system, actuators, name),
        timestep=timestep,
        integrator=integrator,
        stored_members=tuple((m.name, s) for m, s in zip(members, slices, strict=True)),
    )
    check_scene(scene)
    return scene


def _check_parts(name: str, robot: object, objects: object, static: object) -> None:
    """Check what is given for what."""
    models, listed = (Robot, SceneObject), (list, tuple)
    if robot is not None and not isinstance(robot, models):
        raise ConfigError(
            f"scene {name!r}: robot is a {type(robot).__name__}, expected a Robot or a "
            "SceneObject: load_robot('panda')."
        )
    for what, parts, kinds, example in (
        ("objects", objects, models, "free_body('cube', box_geom(...), mass=0.1)"),
        ("static", static, (ContactGeom,), "plane_geom('floor')"),
    ):
        given = parts if isinstance(parts, listed) else [parts]
        wrong = next((x for x in given if not isinstance(x, kinds)), None)
        if not isinstance(parts, listed) or wrong is not None:
            found = f"has a {type(wrong).__name__}" if wrong is not None else "is one, not several"
            raise ConfigError(
                f"scene {name!r}: {what} {found}, expected a list of "
                f"{' or '.join(k.__name__ for k in kinds)}: {what}=[{example}]."
            )


def _members(
    robot: Robot | SceneObject | None,
    objects: Sequence[SceneObject | Robot],
    geoms: Sequence[ContactGeom] | None,
) -> list[SceneObject]:
    members = [] if robot is None else [_as_object(robot, geoms)]
    members += [_as_object(o, None) for o in objects]
    _check_unique([m.name for m in members], "of robots and objects")
    return members


def _as_object(model: Robot | SceneObject, geoms: Sequence[ContactGeom] | None) -> SceneObject:
    if isinstance(model, SceneObject):
        return model if geoms is None else SceneObject(model.model, tuple(geoms))
    if geoms is not None:
        return SceneObject(model, tuple(geoms))
    return SceneObject(model, tuple(shape_geoms(model)))


def shape_geoms(model: Robot) -> Iterator[ContactGeom]:
    """A robot's collision shapes as geoms, fixed to its bodies: to change, and to choose from."""
    topology = model.topology
    for k, shape in enumerate(topology.collision_shapes):
        size = shape.size
        if shape.kind == "box":
            size = tuple(s / 2 for s in size)
        elif shape.kind != "sphere":
            size = size[0], size[1] / 2
        yield ContactGeom(
            name=shape.name or f"{model.name}_{k}",
            kind=shape.kind,
            size=size,
            frame="world" if shape.body == WORLD else topology.body_names[shape.body],
            position=shape.position,
            rotation=shape.rotation,
            rgba=shape.rgba,
        )


def _self_pairs(member: SceneObject) -> list[tuple[str, str]]:
    """The robot's own pairs of collision shapes, by their geoms' names."""
    names = [g.name for g in member.geoms]
    pairs = member.model.topology.self_collision_pairs
    return [(names[i], names[j]) for i, j in pairs]


def _placed(system: Robot, geom: ContactGeom) -> tuple[Geom, Array, Array]:
    """A geom's static part, and its pose in its body's frame."""
    position, rotation = _pose(f"geom {geom.name!r}", geom.position, geom.rotation)
    body = _body(system, geom)
    if _has_frame(system, geom):
        f = system.frame(geom.frame)
        position, rotation = f.position + f.rotation @ position, f.rotation @ rotation
    static = Geom(geom.name, geom.kind, body, body + 1, geom.condim, geom.priority)
    return static, position, rotation


def _pose(what: str, position: Sequence[float] | Array, rotation: Array) -> tuple[Array, Array]:
    p, R = f"{what}: position", f"{what}: rotation"
    return check_point(p, position), check_rotation(R, rotation)


def _has_frame(system: Robot, geom: ContactGeom) -> bool:
    """Whether a geom is fixed to a frame: "world" may be one, or stand for the world itself."""
    return geom.frame != "world" or "world" in system.frame_names


def _body(system: Robot, geom: ContactGeom) -> int:
    return system.frame(geom.frame).body if _has_frame(system, geom) else WORLD


def _rank(geoms: Sequence[Geom], pair: Pair) -> tuple[int, ...]:
    """MuJoCo's order of pairs: by bodies, then by geoms."""
    i, j = sorted(pair.geoms)
    return geoms[i].link, geoms[j].link, i, j


def _all_pairs(
    geoms: Sequence[Geom], system: Robot, controlled: set[str], own: list[tuple[str, str]]
) -> Iterator[Pair]:
    """MuJoCo's rules, without pairs within the robot but those it names."""
    parent, named = system.topology.parent, {frozenset(p) for p in own}
    for i, j in combinations(range(len(geoms)), 2):
        one, two = geoms[i], geoms[j]
        if one.name in controlled and two.name in controlled:
            if frozenset((one.name, two.name)) in named:
                yield _checked_pair(geoms, i, j)
            continue
        a, b = one.body, two.body
        family = WORLD not in (a, b) and (parent[a] == b or parent[b] == a)
        if a != b and not family and not one.kind == two.kind == "plane":
            yield _checked_pair(geoms, i, j)


def _named_pairs(
    pairs: Iterable[tuple[str, str]],
    geoms: Sequence[Geom],
    members: Sequence[SceneObject],
    system: Robot,
    scene: str,
) -> Iterator[Pair]:
    groups: dict[str, list[int]] = {}
    for m in members:
        own = {g.name for g in m.geoms}
        groups[m.name] = [i for i, g in enumerate(geoms) if g.name in own]
    for body, link in enumerate(system.topology.body_names):
        groups[link] = [i for i, g in enumerate(geoms) if g.body == body]
    for i, geom in enumerate(geoms):
        groups[geom.name] = [i]
    seen: set[frozenset[int]] = set()
    for names in pairs:
        if isinstance(names, str) or len(names) != 2:
            raise ConfigError(
                f"scene {scene!r}: pairs has {names!r}, expected two names, of geoms, links or "
                "objects: pairs=[('cube', 'floor')]."
            )
        for n in names:
            if n not in groups:
                raise unknown_name("geom, link or object", n, groups, f"in pairs of {scene!r}")
        for i in groups[names[0]]:
            for j in groups[names[1]]:
                if geoms[i].body == geoms[j].body:
                    raise ConfigError(
                        f"scene {scene!r}: the pair {names} has geoms {geoms[i].name!r} and "
                        f"{geoms[j].name!r} of one body, which cannot touch. Leave it out."
                    )
                if frozenset((i, j)) not in seen:
                    seen.add(frozenset((i, j)))
                    yield _checked_pair(geoms, min(i, j), max(i, j))


def _checked_pair(geoms: Sequence[Geom], i: int, j: int) -> Pair:
    i, j = ordered(geoms, i, j)
    kinds = geoms[i].kind, geoms[j].kind
    if kinds not in COLLIDERS:
        raise ConfigError(
            f"geoms {geoms[i].name!r} and {geoms[j].name!r}, a {kinds[0]} and a {kinds[1]}, may "
            f"touch, which is not modelled. {other_kinds(kinds)}; or name the pairs that may "
            "touch: pairs=[...]."
        )
    return mixed_pair(geoms, i, j)


# --- numbers --------------------------------------------------------------------------------------


def _numbers(geoms: Sequence[ContactGeom], placed: Sequence[tuple[Geom, Array, Array]]) -> Geoms:
    size = np.zeros((len(geoms), 3))
    for row, g in zip(size, geoms, strict=True):
        row[: len(g.size)] = g.size
    friction = np.tile(FRICTION, (len(geoms), 1))
    for row, g in zip(friction, geoms, strict=True):
        own = np.atleast_1d(np.asarray(g.friction, float))
        row[: len(own)] = own
    return Geoms(
        size=size,
        position=np.array([p for _, p, _ in placed]).reshape(-1, 3),
        rotation=np.array([R for _, _, R in placed]).reshape(-1, 3, 3),
        friction=friction,
        solref=np.array([g.solref for g in geoms], float).reshape(-1, 2),
        solimp=np.array([g.solimp for g in geoms], float).reshape(-1, 5),
        solmix=np.array([g.solmix for g in geoms], float),
        margin=np.array([g.margin for g in geoms], float),
        gap=np.array([g.gap for g in geoms], float),
    )


def _joint_parameters(nv: int) -> JointParameters:
    solref, solimp = np.tile(SOLREF, (nv, 1)), np.tile(SOLIMP, (nv, 1))
    return JointParameters(np.zeros(nv), solref, solimp, solref, solimp)


def _no_pairs() -> PairParameters:
    pair, two = np.zeros((0, 5)), np.zeros((0, 2))
    return PairParameters(pair, two, two, pair, np.zeros(0), np.zeros(0))


def _reference(system: Robot) -> Array:
    """The default configuration, but with ball joints straight, as MuJoCo's reference has them."""
    q = np.array(system.q_default, float)
    for body, start, _ in system.topology.quaternions:
        if system.topology.joints[body].kind == "spherical":
            q[start : start + 4] = 1.0, 0.0, 0.0, 0.0
    return q


def _with_shapes(system: Robot, shapes: tuple[Shape, ...]) -> Robot:
    """The forest with static shapes that are drawn, and that distances are measured to."""
    topology = system.topology
    visual = topology.visual_shapes
    changed = dataclasses.replace(
        topology,
        collision_shapes=topology.collision_shapes + shapes,
        visual_shapes=visual + shapes if visual else (),
    )
    return dataclasses.replace(system, topology=changed)


def drawn_shape(geom: ContactGeom, body: int) -> Shape | None:
    """A geom as a shape; None for a plane."""
    if geom.kind == "plane":
        return None
    size = tuple(float(s) for s in geom.size)
    if geom.kind == "box":
        size = tuple(2 * s for s in size)
    elif geom.kind != "sphere":
        size = size[0], 2 * size[1]
    return Shape(
        name=geom.name,
        kind=geom.kind,
        size=size,
        body=body,
        position=np.asarray(geom.position, float),
        rotation=np.asarray(geom.rotation, float),
        rgba=geom.rgba,
    )


def _check_unique(names: Sequence[str], where: str) -> None:
    for n in names:
        if not n or names.count(n) > 1:
            raise ConfigError(
                f"scene {where!r}: the name {n!r} is given {names.count(n)} times, expected names "
                "that are unique and not empty. Rename one."
            )


def _quaternion(rotation: Array) -> Array:
    """Unit quaternion wxyz of a rotation matrix, on the host."""
    m = rotation
    # The eigenvector of Bar-Itzhack's symmetric matrix: exact at every angle.
    K = np.array(
        [
            [m[0, 0] + m[1, 1] + m[2, 2], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]],
            [0, m[0, 0] - m[1, 1] - m[2, 2], m[1, 0] + m[0, 1], m[0, 2] + m[2, 0]],
            [0, 0, m[1, 1] - m[0, 0] - m[2, 2], m[2, 1] + m[1, 2]],
            [0, 0, 0, m[2, 2] - m[0, 0] - m[1, 1]],
        ]
    )
    vector = np.linalg.eigh(K, UPLO="U")[1][:, -1]
    return vector if vector[0] >= 0 else -vector
