"""URDF loading: XML to `Robot`.

The XML is parsed without entities, document types or network access, checked element by element so
that an error names its line, and then handed to yourdfpy. Meshes and textures are never opened:
dynamics does not need them. Their names are checked all the same, for programs that open them
later: a description may name files in packages, but not anywhere on the disk.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import ArrayLike

from fraxenv.errors import RobotLoadError, RobotLoadWarning

from ..geometry.shapes import Shape, ShapeKind
from .inertia import SMALLEST_MASS, SMALLEST_MOMENT, principal_moments, within_triangle
from .robot import WORLD, Frame, Joint, JointKind, Mimic, Robot, Topology

if TYPE_CHECKING:
    import yourdfpy

MOVABLE_TYPES = ("revolute", "continuous", "prismatic", "planar", "spherical", "floating")
SUPPORTED_TYPES = (*MOVABLE_TYPES, "fixed")
_SCALAR_TYPES = ("revolute", "continuous", "prismatic")
ROOT_JOINT = "root_joint"
"""Name of the joint that `floating_base=True` adds, as in Pinocchio."""

# Attributes that hold numbers, and their number.
_NUMBERS: dict[str, dict[str, int]] = {
    "origin": {"xyz": 3, "rpy": 3},
    "axis": {"xyz": 3},
    "mass": {"value": 1},
    "inertia": {"ixx": 1, "ixy": 1, "ixz": 1, "iyy": 1, "iyz": 1, "izz": 1},
    "limit": {"lower": 1, "upper": 1, "effort": 1, "velocity": 1},
    "dynamics": {"damping": 1, "friction": 1},
    "mimic": {"multiplier": 1, "offset": 1},
    "sphere": {"radius": 1},
    "cylinder": {"radius": 1, "length": 1},
    "box": {"size": 3},
    "color": {"rgba": 4},
    "safety_controller": dict.fromkeys(
        ("k_velocity", "k_position", "soft_lower_limit", "soft_upper_limit"), 1
    ),
    "calibration": {"rising": 1, "falling": 1},
}
# Required attributes: yourdfpy would put 1 kg m^2 for a missing moment of inertia.
_REQUIRED: dict[str, tuple[str, ...]] = {
    "mass": ("value",),
    "mimic": ("joint",),
    "inertia": ("ixx", "iyy", "izz"),
    "sphere": ("radius",),
    "cylinder": ("radius", "length"),
    "box": ("size",),
    "mesh": ("filename",),
}
# Elements that name files, and the files' endings.
_FILES: dict[str, tuple[str, ...]] = {
    "mesh": (
        *(".stl", ".stla", ".stlb", ".dae", ".obj", ".ply", ".off", ".glb", ".gltf", ".3mf"),
        *(".3ds", ".mesh", ".msh", ".wrl", ".x3d", ".usd", ".usda", ".usdc", ".usdz"),
    ),
    "texture": (".png", ".jpg", ".jpeg", ".bmp", ".tga", ".gif", ".tif", ".tiff", ".dds", ".webp"),
}
_FOLDERS_ABOVE = 3
"""Folder levels above its own that a description may name files in: enough for `NAME/urdf/arms` to
reach packages beside NAME."""
_GEOMETRIES = ("box", "cylinder", "sphere", "mesh")
_DEFAULT_RGBA = (0.7, 0.7, 0.7, 1.0)


def load_urdf(
    path: str | Path,
    *,
    floating_base: bool = False,
    end_effectors: Mapping[str, str] | None = None,
    q_default: ArrayLike | None = None,
    gravity: ArrayLike = (0.0, 0.0, -9.81),
    armature: ArrayLike = 0.0,
    effort_rate_limits: ArrayLike = np.inf,
    self_collision_pairs: Sequence[tuple[str, str]] = (),
    without: Sequence[str] = (),
) -> Robot:
    """Load a robot from a URDF file.

    Joints are numbered depth first, in the order of the file. Fixed joints are merged into their
    parent body; their links survive as frames. `<mimic>` joints follow another and have no
    coordinates of their own; their damping and friction count at the joint that they follow. The
    limits of a joint apply to each of its degrees of freedom; a floating joint has no motor, so its
    effort limits are zero unless the file says otherwise. Collision and visual primitives
    are read; meshes are skipped, and never opened.

    The names of meshes and textures have to be `package://NAME/...` (or `model://`) that stays
    inside of that package, or relative to the file, at most three folders above its own, and end
    like a mesh or an image. Absolute names and other URLs are refused.

    Args:
        path: the file.
        floating_base: whether the root link floats, on a joint named "root_joint", or is welded to
            the world.
        end_effectors: alias -> link, the frames that controllers steer.
        q_default: (nq,), rad and m; zero (and no rotation) where the limits allow it if omitted.
        gravity: (3,), m/s^2, world axes.
        armature: scalar or (nv,), rotor inertia felt at the joints, kg m^2 and kg.
        effort_rate_limits: scalar or (nv,), N m/s and N/s.
        self_collision_pairs: pairs of names of `<collision>` elements to keep apart.
        without: links that are left out, with all that hangs on them: a hand, to attach another
            one. So are the end effectors and the pairs that name them.

    Raises:
        RobotLoadError: the file cannot be read, is not well-formed, is not one tree, has a joint
            type that is not supported, gives a moving body no mass or inertia, or names a file
            outside of its packages. The message names the file, the element and the remedy.
    """
    path = Path(path)
    where = str(path)
    urdf = _parse(path).robot
    links = _unique(where, "link", urdf.links)
    joints = _unique(where, "joint", urdf.joints)
    tree = _tree(where, links, joints)
    if without:
        tree, left_out = _pruned(where, links, tree, without)
        lost = {name for link in left_out for name in _shape_names(links[link])}
        end_effectors = {a: f for a, f in (end_effectors or {}).items() if f not in left_out}
        self_collision_pairs = [p for p in self_collision_pairs if not lost & set(p)]

    movable: list[_MovableJoint] = []
    parents: list[int] = []
    placements: list[np.ndarray] = []
    # Link -> its body, and its pose in the body's frame.
    weld: dict[str, tuple[int, np.ndarray]] = {tree.root: (WORLD, np.eye(4))}
    if floating_base:
        weld[tree.root] = (0, np.eye(4))
        movable.append(_floating_root(where, tree.root, joints))
        parents.append(WORLD)
        placements.append(np.eye(4))
    for joint in tree.joints:
        body, pose = weld[joint.parent]
        placement = pose @ _origin(joint.origin)
        if joint.type == "fixed":
            weld[joint.child] = (body, placement)
            continue
        weld[joint.child] = (len(movable), np.eye(4))
        parents.append(body)
        placements.append(placement)
        movable.append(
            _MovableJoint(joint.name, joint.type, joint.child, _axis(where, joint), joint)
        )
    followed = _mimics(where, movable, joints)
    if all(m.name in followed for m in movable):
        raise RobotLoadError(
            f"{where}: the robot has no movable joint. Expected at least one of type "
            f"{', '.join(MOVABLE_TYPES)}, or floating_base=True."
        )

    frames = tuple(
        Frame(name, body, pose[:3, 3].copy(), pose[:3, :3].copy())
        for name, (body, pose) in weld.items()
    )
    collision = _shapes(where, links, weld, "collisions", {})
    visual = _shapes(where, links, weld, "visuals", _colours(urdf))
    topology = Topology(
        name=urdf.name,
        joints=tuple(Joint(m.name, m.kind, m.axis, followed.get(m.name)) for m in movable),
        body_names=tuple(m.child for m in movable),
        parent=np.array(parents, np.int32),
        position=np.array([T[:3, 3] for T in placements]),
        rotation=np.array([T[:3, :3] for T in placements]),
        frames=frames,
        end_effectors=_end_effectors(where, frames, end_effectors or {}),
        collision_shapes=collision,
        visual_shapes=visual,
        self_collision_pairs=_collision_pairs(where, collision, self_collision_pairs),
    )

    mass, com, inertia = _body_inertias(where, links, weld, movable)
    limits = _per_dof(topology, [_position_limits(where, m) for m in movable])
    n = len(limits)
    return Robot(
        topology=topology,
        mass=mass,
        com=com,
        inertia=inertia,
        gravity=_gravity(where, gravity),
        armature=_sized(where, "armature", armature, n),
        # A follower's resistance counts at the joint that it follows, at equal power.
        damping=np.square(topology.axes.dof).T
        @ _per_axis(topology, [_dynamics(where, m, "damping") for m in movable]),
        friction=np.abs(topology.axes.dof).T
        @ _per_axis(topology, [_dynamics(where, m, "friction") for m in movable]),
        position_limits=limits,
        stop_stiffness=np.zeros(n),
        stop_damping=np.zeros(n),
        velocity_limits=_per_dof(topology, [_limit(where, m, "velocity") for m in movable]),
        effort_limits=_per_dof(topology, [_limit(where, m, "effort") for m in movable]),
        effort_rate_limits=_sized(where, "effort_rate_limits", effort_rate_limits, n),
        q_default=_default_configuration(where, topology, limits, q_default),
    )


@dataclass(frozen=True)
class _MovableJoint:
    """A joint that is not fixed, and the link that it moves."""

    name: str
    kind: JointKind
    child: str
    axis: np.ndarray
    urdf: yourdfpy.urdf.Joint | None  # None for the joint of a floating base

    @property
    def mimic(self) -> Any:
        """Its <mimic> element, None if it has none."""
        return None if self.urdf is None else self.urdf.mimic


# --- reading ------------------------------------------------------------------------------------


def _parse(path: Path) -> yourdfpy.URDF:
    # Both are slow to import and only needed here.
    import yourdfpy
    from lxml import etree

    where = str(path)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RobotLoadError(
            f"cannot read {str(path)!r}: {error.strerror}. Expected the path of a URDF file."
        ) from error
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True
    )
    try:
        tree = etree.fromstring(text, parser).getroottree()
    except (etree.XMLSyntaxError, ValueError) as error:
        raise RobotLoadError(
            f"{where}: not well-formed XML: {error}. Expected a URDF document; "
            "if it is a xacro file, expand it first (`xacro in.xacro > out.urdf`)."
        ) from error
    if tree.docinfo.internalDTD is not None or tree.docinfo.doctype:
        raise RobotLoadError(
            f"{where}: it has a document type declaration, which is refused because it can define "
            "entities. Remove the <!DOCTYPE ...> declaration."
        )
    root = tree.getroot()
    if root.tag != "robot":
        raise RobotLoadError(
            f"{where}, line {root.sourceline}: the root element is <{root.tag}>, expected <robot>."
        )
    root.set("name", root.get("name") or path.stem)
    # Other top-level elements (gazebo, transmission, ...) have rules of their own: skip them.
    for top in root.iterchildren("link", "joint", "material"):
        name = top.get("name")
        if not name and top.tag != "material":
            raise RobotLoadError(
                f'{where}, line {top.sourceline}: <{top.tag}> has no name. Add name="...".'
            )
        for element in top.iter(etree.Element):
            _check_element(f"{where}, line {element.sourceline} ({top.tag} {name!r})", element)
    try:
        return yourdfpy.URDF.load(
            io.BytesIO(etree.tostring(tree)),
            build_scene_graph=False,
            load_meshes=False,
            build_collision_scene_graph=False,
            load_collision_meshes=False,
        )
    except Exception as error:
        raise RobotLoadError(
            f"{where}: not a valid URDF: {type(error).__name__}: {error}. "
            "Compare the file with the URDF specification (wiki.ros.org/urdf/XML)."
        ) from error


def _check_element(line: str, element: Any) -> None:
    """Check children and attributes of an element, while its line is still known."""
    if element.tag == "joint" and element.getparent().tag == "robot":
        for tag in ("parent", "child"):
            end = element.find(tag)
            if end is None or not end.get("link"):
                raise RobotLoadError(f'{line}: no <{tag} link="..."/>. Add it.')
    if element.tag == "inertial":
        for tag in ("mass", "inertia"):
            if element.find(tag) is None:
                raise RobotLoadError(f"{line}: <inertial> has no <{tag}>. Add it.")
    if element.tag in ("visual", "collision"):
        shapes = [str(shape.tag) for shape in element.findall("geometry/*")]
        if len(shapes) != 1 or shapes[0] not in _GEOMETRIES:
            raise RobotLoadError(
                f"{line}: <{element.tag}> has the shapes {shapes}, expected a <geometry> with one "
                f"of {', '.join(_GEOMETRIES)}."
            )
    for attribute in _REQUIRED.get(str(element.tag), ()):
        if element.get(attribute) is None:
            raise RobotLoadError(f'{line}: <{element.tag}> has no {attribute}="...". Add it.')
    for attribute, count in _NUMBERS.get(str(element.tag), {}).items():
        text = element.get(attribute)
        if text is None:
            continue
        try:
            values = [float(x) for x in text.split()]
        except ValueError:
            values = []
        if len(values) != count or not np.all(np.isfinite(values)):
            expected = "a finite number" if count == 1 else f"{count} finite numbers"
            raise RobotLoadError(
                f"{line}: <{element.tag} {attribute}={text!r}>: expected {expected}."
            )
    if element.tag in _FILES and element.get("filename"):
        _check_filename(line, element)


def _check_filename(line: str, element: Any) -> None:
    """Check that a file name stays within its package, without opening the file."""
    what = f"{line}: <{element.tag} filename={element.get('filename')!r}>"
    name = unquote(element.get("filename")).replace("\\", "/")
    packaged = re.match(r"(package|model)://", name)
    path = name[packaged.end() :] if packaged else name
    # Folders below the one of the file, or above that of the package, on the way.
    depths = accumulate(-1 if s == ".." else 1 for s in path.split("/") if s not in ("", "."))
    absolute = not packaged and (path.startswith(("/", "~")) or ":" in path)
    if absolute or min(depths, default=0) < (1 if packaged else -_FOLDERS_ABOVE):
        raise RobotLoadError(
            f"{what} leads out of its package. Expected package://NAME/... inside of that package, "
            f"or a name relative to the file, at most {_FOLDERS_ABOVE} folders above its own. "
            "Meshes are never opened; remove the element if it cannot be mended."
        )
    if not path.lower().endswith(_FILES[element.tag]):
        raise RobotLoadError(
            f"{what}: expected a name that ends in one of {', '.join(_FILES[element.tag])}."
        )


# --- the tree -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tree:
    root: str
    joints: list[yourdfpy.urdf.Joint]  # depth first, parents before children


def _unique(where: str, kind: str, elements: Sequence[Any]) -> dict[str, Any]:
    named = {e.name: e for e in elements}
    if len(named) < len(elements):
        names = [e.name for e in elements]
        twice = sorted({n for n in names if names.count(n) > 1})
        raise RobotLoadError(f"{where}: more than one {kind} is named {twice}. Rename them.")
    return named


def _tree(where: str, links: Mapping[str, Any], joints: Mapping[str, Any]) -> _Tree:
    """Check that links and joints are one tree, and order the joints depth first."""
    if not links:
        raise RobotLoadError(f"{where}: the robot has no <link>. Add at least two, and a joint.")
    children: defaultdict[str, list[Any]] = defaultdict(list)
    parent_joint: dict[str, str] = {}
    for joint in joints.values():
        for end, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in links:
                raise RobotLoadError(
                    f"{where}: joint {joint.name!r} names the {end} link {link!r}, which does not "
                    f"exist. Known links: {', '.join(links)}."
                )
        if joint.type not in SUPPORTED_TYPES:
            raise RobotLoadError(
                f"{where}: joint {joint.name!r} is of type {joint.type!r}. "
                f"Supported: {', '.join(SUPPORTED_TYPES)}."
            )
        if joint.child in parent_joint:
            raise RobotLoadError(
                f"{where}: link {joint.child!r} is the child of two joints, "
                f"{parent_joint[joint.child]!r} and {joint.name!r}: a cycle, which a tree cannot "
                "have. Remove one of them."
            )
        parent_joint[joint.child] = joint.name
        children[joint.parent].append(joint)

    roots = [name for name in links if name not in parent_joint]
    if len(roots) > 1:
        raise RobotLoadError(
            f"{where}: {len(roots)} links have no parent: {', '.join(roots)}. Expected one root; "
            "connect the others to it with joints (fixed ones will do), or load each tree from a "
            "file of its own and join the robots with dynamics.combine."
        )
    if not roots:
        raise RobotLoadError(
            f"{where}: every link has a parent, so the joints form a cycle. Expected one root link "
            "that is no joint's child."
        )
    order: list[Any] = []
    stack = list(reversed(children[roots[0]]))
    while stack:
        joint = stack.pop()
        order.append(joint)
        stack.extend(reversed(children[joint.child]))
    if len(order) < len(joints):
        reached = {roots[0], *(j.child for j in order)}
        lost = [name for name in links if name not in reached]
        raise RobotLoadError(
            f"{where}: links {', '.join(lost)} form a cycle that the root {roots[0]!r} does not "
            "reach. Remove one joint of the cycle."
        )
    return _Tree(roots[0], order)


def _pruned(
    where: str, links: Mapping[str, Any], tree: _Tree, without: Sequence[str]
) -> tuple[_Tree, set[str]]:
    """The tree without some links and all that hangs on them; and the names of what is left out."""
    removable = [name for name in links if name != tree.root]
    for name in without:
        if name not in removable:
            raise RobotLoadError(
                f"{where}: without={list(without)!r} names the link {name!r}, expected one that "
                f"hangs on a joint: {', '.join(removable)}."
            )
    left_out = set(without)
    for joint in tree.joints:
        if joint.parent in left_out:
            left_out.add(joint.child)
    return _Tree(tree.root, [j for j in tree.joints if j.child not in left_out]), left_out


# --- joints -------------------------------------------------------------------------------------


def _origin(matrix: np.ndarray | None) -> np.ndarray:
    return np.eye(4) if matrix is None else np.asarray(matrix, float)


def _axis(where: str, joint: Any) -> np.ndarray:
    axis = np.array([1.0, 0.0, 0.0]) if joint.axis is None else np.asarray(joint.axis, float)
    norm = math.hypot(*axis)
    if not 1e-9 < norm < np.inf:
        raise RobotLoadError(
            f"{where}: joint {joint.name!r} has an <axis> of length {norm}, expected a direction. "
            "Give it a length of 1."
        )
    return axis / norm


def _floating_root(where: str, root: str, joints: Mapping[str, Any]) -> _MovableJoint:
    if ROOT_JOINT in joints:
        raise RobotLoadError(
            f"{where}: there is a joint named {ROOT_JOINT!r}, which is the name of the joint that "
            "floating_base=True adds. Rename it."
        )
    return _MovableJoint(ROOT_JOINT, "floating", root, np.array([1.0, 0.0, 0.0]), None)


def _mimics(
    where: str, movable: Sequence[_MovableJoint], joints: Mapping[str, Any]
) -> dict[str, Mimic]:
    """Name of each follower -> its `Mimic`, chains resolved to a joint that follows no other."""
    index = {m.name: i for i, m in enumerate(movable)}

    def resolve(joint: _MovableJoint, mimic: Any, seen: tuple[str, ...]) -> Mimic:
        what = f"{where}: joint {joint.name!r} mimics {mimic.joint!r}"
        if mimic.joint in (*seen, joint.name):
            raise RobotLoadError(f"{what}, which follows it in turn. Break the circle.")
        if mimic.joint not in index:
            why = "is fixed" if mimic.joint in joints else "does not exist"
            raise RobotLoadError(f"{what}, which {why}. Movable joints: {', '.join(index)}.")
        followed = movable[index[mimic.joint]]
        for end in (joint, followed):
            if end.kind not in _SCALAR_TYPES:
                raise RobotLoadError(
                    f"{what}, but {end.name!r} is of type {end.kind!r}. Expected both to be of "
                    f"type {', '.join(_SCALAR_TYPES)}."
                )
        scale = 1.0 if mimic.multiplier is None else float(mimic.multiplier)
        shift = 0.0 if mimic.offset is None else float(mimic.offset)
        further = followed.mimic
        if further is None:
            return Mimic(index[mimic.joint], scale, shift)
        base = resolve(followed, further, (*seen, joint.name))
        return Mimic(base.joint, scale * base.multiplier, scale * base.offset + shift)

    return {m.name: resolve(m, m.mimic, ()) for m in movable if m.mimic is not None}


def _per_axis(topology: Topology, of_joint: Sequence[Any]) -> np.ndarray:
    """Values by joint (nb, ...), repeated for each of its axes (na, ...)."""
    return np.asarray(np.array(of_joint)[topology.axes.body])


def _per_dof(topology: Topology, of_joint: Sequence[Any]) -> np.ndarray:
    """Values by joint (nb, ...), repeated for each of its degrees of freedom (nv, ...)."""
    own = [not j.mimic for j in topology.joints for _ in j.rotates]
    return np.asarray(_per_axis(topology, of_joint)[own])


def _position_limits(where: str, joint: _MovableJoint) -> tuple[float, float]:
    limit = None if joint.urdf is None else joint.urdf.limit
    if joint.kind not in ("revolute", "prismatic") or limit is None:
        return -np.inf, np.inf
    lower = -np.inf if limit.lower is None else float(limit.lower)
    upper = np.inf if limit.upper is None else float(limit.upper)
    if lower > upper:
        raise RobotLoadError(
            f"{where}: joint {joint.name!r} has the limits lower={lower} > upper={upper}. "
            "Swap them."
        )
    return lower, upper


def _limit(where: str, joint: _MovableJoint, which: str) -> float:
    limit = None if joint.urdf is None else joint.urdf.limit
    value = None if limit is None else getattr(limit, which)
    if value is None:
        return 0.0 if joint.kind == "floating" and which == "effort" else np.inf
    return _not_negative(where, joint, f"limit {which}", value)


def _dynamics(where: str, joint: _MovableJoint, which: str) -> float:
    dynamics = None if joint.urdf is None else joint.urdf.dynamics
    value = None if dynamics is None else getattr(dynamics, which)
    return 0.0 if value is None else _not_negative(where, joint, f"dynamics {which}", value)


def _not_negative(where: str, joint: _MovableJoint, what: str, value: float | str) -> float:
    value = float(value)  # yourdfpy leaves some of them as text
    if value < 0:
        raise RobotLoadError(
            f"{where}: joint {joint.name!r} has <{what}={value}>, expected a number >= 0."
        )
    return value


# --- bodies -------------------------------------------------------------------------------------


def _body_inertias(
    where: str,
    links: Mapping[str, Any],
    weld: Mapping[str, tuple[int, np.ndarray]],
    movable: Sequence[_MovableJoint],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass (nb,), centre of mass (nb, 3) and inertia about it (nb, 3, 3) of the merged bodies."""
    n = len(movable)
    parts: list[list[tuple[float, np.ndarray, np.ndarray]]] = [[] for _ in range(n)]
    for name, (body, pose) in weld.items():
        inertial = links[name].inertial
        if body == WORLD or inertial is None:
            continue
        _check_inertia(where, name, inertial)
        T = pose @ _origin(inertial.origin)
        R = T[:3, :3]
        parts[body].append((inertial.mass, T[:3, 3], R @ inertial.inertia @ R.T))

    mass, com, inertia = np.zeros(n), np.zeros((n, 3)), np.zeros((n, 3, 3))
    for i, joint in enumerate(movable):
        what = f"{where}: link {joint.child!r}, which joint {joint.name!r} moves,"
        mass[i] = sum(m for m, _, _ in parts[i])
        if mass[i] < SMALLEST_MASS:
            raise RobotLoadError(
                f"{what} has no mass, nor has anything welded to it. Add an <inertial> with a "
                "positive <mass> and an <inertia>, or make the joint fixed."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            com[i] = sum(m * c for m, c, _ in parts[i]) / mass[i]
            for m, c, rotational in parts[i]:
                r = c - com[i]
                inertia[i] += rotational + m * (r @ r * np.eye(3) - np.outer(r, r))
        if not np.all(np.isfinite(inertia[i])):
            raise RobotLoadError(
                f"{what} has an inertia of {np.diag(inertia[i])} kg m^2 about its centre of mass. "
                "Check the units of its <inertial> and of those welded to it."
            )
        if not principal_moments(inertia[i])[0] >= SMALLEST_MOMENT:
            raise RobotLoadError(
                f"{what} has a singular inertia. Give its <inertia> three positive principal "
                "moments; a solid sphere of radius r has 0.4 m r^2 on the diagonal."
            )
    return mass, com, inertia


def _check_inertia(where: str, link: str, inertial: Any) -> None:
    if inertial.mass is None or inertial.inertia is None or inertial.mass < 0:
        raise RobotLoadError(
            f"{where}: link {link!r} has the mass {inertial.mass}, expected a number >= 0."
        )
    principal = principal_moments(inertial.inertia)
    scale = max(principal[-1], 0.0)
    if principal[0] < -1e-9 * max(scale, 1e-6):
        raise RobotLoadError(
            f"{where}: link {link!r} has an <inertia> with a negative principal moment "
            f"({principal[0]:.3g} kg m^2), which no body has. Check the signs of ixy, ixz, iyz."
        )
    if not within_triangle(principal):
        warnings.warn(
            f"{where}: link {link!r} has principal moments of inertia {principal} kg m^2, of which "
            "the largest exceeds the sum of the others: no distribution of mass has these. It is "
            "used as it is; check its units and its <origin>.",
            RobotLoadWarning,
            stacklevel=4,
        )


def _shapes(
    where: str,
    links: Mapping[str, Any],
    weld: Mapping[str, tuple[int, np.ndarray]],
    which: str,
    colours: Mapping[str, tuple[float, float, float, float]],
) -> tuple[Shape, ...]:
    shapes = []
    for link, (body, pose) in weld.items():
        for k, element in enumerate(getattr(links[link], which)):
            kind_size = _primitive(where, link, element.geometry)
            if kind_size is None:
                continue
            T = pose @ _origin(element.origin)
            material = getattr(element, "material", None)
            shapes.append(
                Shape(
                    name=_shape_name(link, element, k),
                    kind=kind_size[0],
                    size=kind_size[1],
                    body=body,
                    position=T[:3, 3].copy(),
                    rotation=T[:3, :3].copy(),
                    rgba=_colour(material, colours),
                )
            )
    return tuple(shapes)


def _shape_name(link: str, element: Any, k: int) -> str:
    return element.name or f"{link}_{k}"


def _shape_names(link: Any) -> list[str]:
    """Names of a link's collision shapes."""
    return [_shape_name(link.name, element, k) for k, element in enumerate(link.collisions)]


def _primitive(where: str, link: str, geometry: Any) -> tuple[ShapeKind, tuple[float, ...]] | None:
    if geometry is None:
        return None
    kind: ShapeKind
    size: tuple[Any, ...]
    if geometry.sphere is not None:
        kind, size = "sphere", (geometry.sphere.radius,)
    elif geometry.cylinder is not None:
        kind, size = "cylinder", (geometry.cylinder.radius, geometry.cylinder.length)
    elif geometry.box is not None:
        kind, size = "box", tuple(geometry.box.size)
    else:
        return None
    if any(s is None or s <= 0 for s in size):
        raise RobotLoadError(
            f"{where}: link {link!r} has a {kind} of size {size}, expected positive numbers."
        )
    return kind, tuple(float(s) for s in size)


def _colours(urdf: Any) -> dict[str, tuple[float, float, float, float]]:
    """Colours by name, of the robot's materials and of those that a visual defines."""
    materials = [*urdf.materials, *(v.material for link in urdf.links for v in link.visuals)]
    return {
        m.name: _colour(m, {})
        for m in materials
        if m is not None and m.name is not None and m.color is not None
    }


def _colour(
    material: Any, named: Mapping[str, tuple[float, float, float, float]]
) -> tuple[float, float, float, float]:
    if material is None:
        return _DEFAULT_RGBA
    if material.color is not None:
        r, g, b, a = (float(c) for c in material.color.rgba)
        return r, g, b, a
    return named.get(material.name, _DEFAULT_RGBA)


# --- what URDF cannot say -----------------------------------------------------------------------


def _end_effectors(
    where: str, frames: Sequence[Frame], aliases: Mapping[str, str]
) -> dict[str, int]:
    names = [f.name for f in frames]
    for alias, link in aliases.items():
        if link not in names:
            raise RobotLoadError(
                f"{where}: end effector {alias!r} names the link {link!r}, which does not exist. "
                f"Known links: {', '.join(names)}."
            )
        if alias in names and alias != link:
            raise RobotLoadError(
                f"{where}: end effector {alias!r} has the name of another link than its own, "
                f"{link!r}. Choose another alias."
            )
    return {alias: names.index(link) for alias, link in aliases.items()}


def _collision_pairs(
    where: str, shapes: Sequence[Shape], pairs: Sequence[tuple[str, str]]
) -> np.ndarray:
    names = [s.name for s in shapes]
    for name in (name for pair in pairs for name in pair):
        if names.count(name) != 1:
            raise RobotLoadError(
                f"{where}: self_collision_pairs names {name!r}, but {names.count(name)} "
                f"<collision> elements have that name. Expected one of: {', '.join(names)}."
            )
    return np.array([[names.index(a), names.index(b)] for a, b in pairs], int).reshape(-1, 2)


def _gravity(where: str, value: ArrayLike) -> np.ndarray:
    array = np.array(value, float)
    if array.shape != (3,) or not np.all(np.isfinite(array)):
        raise RobotLoadError(
            f"{where}: gravity={array.tolist()}, expected three finite numbers, m/s^2, in world "
            "axes, such as (0, 0, -9.81)."
        )
    return array


def _sized(where: str, name: str, value: ArrayLike, n: int) -> np.ndarray:
    array = np.asarray(value, float)
    if array.shape not in ((), (n,)) or not np.all(array >= 0):
        raise RobotLoadError(
            f"{where}: {name}={array.tolist()}, expected a number >= 0, or {n} of them, one per "
            "joint."
        )
    return np.broadcast_to(array, (n,)).copy()


def _default_configuration(
    where: str, topology: Topology, limits: np.ndarray, q_default: ArrayLike | None
) -> np.ndarray:
    coordinate = topology.dof_coordinate
    scalar = np.flatnonzero(coordinate >= 0)
    lower, upper = limits[scalar].T
    nq = int(topology.q_index[-1])
    if q_default is None:
        q = np.zeros(nq)
        q[[start for _, start, _ in topology.quaternions]] = 1.0
        q[coordinate[scalar]] = np.clip(0.0, lower, upper)
        return q
    q = np.array(q_default, float)
    if q.shape != (nq,):
        raise RobotLoadError(
            f"{where}: q_default has shape {q.shape}, expected ({nq},): the coordinates of "
            f"{', '.join(j.name for j in topology.joints if not j.mimic)}."
        )
    x = q[coordinate[scalar]]
    outside = np.flatnonzero(~((x >= lower) & (x <= upper)))
    if outside.size:
        names = [topology.dof_names[scalar[i]] for i in outside]
        raise RobotLoadError(
            f"{where}: q_default leaves the limits of {', '.join(names)}: {x[outside]} "
            f"is not within {limits[scalar[outside]].tolist()}."
        )
    for body, start, _ in topology.quaternions:
        norm = np.linalg.norm(q[start : start + 4])
        if not abs(norm - 1) < 1e-3:
            raise RobotLoadError(
                f"{where}: q_default has a quaternion of length {norm} for the joint "
                f"{topology.joints[body].name!r}, expected a unit quaternion wxyz."
            )
        q[start : start + 4] /= norm
    return q
