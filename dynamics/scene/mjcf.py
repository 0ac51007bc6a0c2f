"""Scenes from MJCF: MuJoCo's compiler reads the file, and we read what it made of it.

A MuJoCo body with several joints is a chain of massless bodies here, one for each joint; a body
without joints is welded into its parent. Coordinates and velocities, and their order, stay as they
are in MuJoCo: joint references are part of the frames.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fraxenv.errors import SceneLoadError, check_choice, import_extra, unknown_name

from ..contact.model import (
    Constraints,
    Equality,
    EqualityKind,
    EqualityParameters,
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
from ..contact.narrowphase import COLLIDERS, slots_of
from ..geometry.shapes import Color, Shape, ShapeKind
from ..model.combine import MemberSlices
from ..model.robot import WORLD, Frame, Joint, JointKind, Robot, Topology
from .pairs import by_kinds, mixed_condim, ordered, other_kinds
from .parts import Integrator, JointActuators, StoredKeyframe
from .scene import Scene
from .unsupported import (
    LEFT_OUT,
    LeftOut,
    Part,
    check_robot_supported,
    check_supported,
    refuse,
)

Array = NDArray[np.floating[Any]]


def load_mjcf(model: str | os.PathLike[str] | Any) -> Scene:
    """A scene from an MJCF file, from its text, or from a `mujoco.MjModel`.

    Everything in it that moves, touches or drives is there, or it is refused: what is not modelled
    is named, with the reason and a remedy. Left out, as they do not act on the motion: sensors, the
    magnetic field that magnetometers measure, cameras, lights, textures, user data, tendons that
    pull nothing, options of MuJoCo's own solver (`tolerance`, `iterations`), and geoms that only
    show and are meshes, ellipsoids, height fields or planes. Other geoms that only show become
    `system.topology.visual_shapes`, and those that may touch are shown, too, if they are in one of
    the groups that MuJoCo draws (0 to 2).

    `scene.system` has MuJoCo's coordinates and their order: `q` is `qpos`, `v` is `qvel`. Elements
    without a name get one from what they belong to. `scene.members` are the trees, by their roots.

    Args:
        model: a path of an MJCF (or URDF) file, XML text, or a compiled model.

    Raises:
        SceneLoadError: the file cannot be read, or has something that is not modelled.
        MissingExtraError: MuJoCo is not installed.
    """
    mujoco = import_extra("mujoco", "mujoco", "load_mjcf")
    where, compiled = _compiled(mujoco, model)
    check_supported(mujoco, compiled, where)
    if compiled.nv == 0:
        refuse(where, "no body in it has a joint", "a scene is of what moves", "Add a <joint>.")
    return _Reader(mujoco, compiled, where).scene()


def load_mjcf_robot(
    model: str | os.PathLike[str] | Any,
    *,
    root: str | None = None,
    end_effectors: Mapping[str, str] | None = None,
    freeze: Sequence[str] = (),
    leave_out: Collection[LeftOut] = (),
) -> Robot:
    """The robot of an MJCF file: one kinematic tree, without contacts and actuators.

    As `load_mjcf(model).system`, but what only concerns contact, equality constraints, actuators
    and the physics step is not looked at. Effort limits are the ranges of joints
    (`actuatorfrcrange`) and those of the actuators that drive them. Collision shapes are the
    primitives that may touch anything at all; the default configuration is MuJoCo's `qpos0`.
    Names, order, and the pose of the base are MuJoCo's; `mjcf_indices` says where each coordinate
    is.

    Args:
        model: as in `load_mjcf`.
        root: name of a body. The robot is what moves from there on, with the frames and shapes of
            these bodies: all else is left out, and where the body is carried by joints they are
            welded at `qpos0`. By default the file's one tree.
        end_effectors: alias -> name of a body or site.
        freeze: names of joints that are welded at `qpos0`.
        leave_out: forces that a `Robot` has not, and may do without. They change neither mass
            matrix nor bias nor Jacobians, but tendons with `armature` the first.

    Raises:
        SceneLoadError: the file cannot be read, is not one tree, or has forces that a `Robot` has
            not and that are not left out: of tendons, springs, gravity compensation; names the
            element and the remedy.
        UnknownNameError: there is no such body, site or joint.
        ConfigError: forces that cannot be left out.
        MissingExtraError: MuJoCo is not installed.
    """
    mujoco = import_extra("mujoco", "mujoco", "load_mjcf_robot")
    where, compiled = _compiled(mujoco, model)
    for force in leave_out:
        check_choice("leave_out", force, LEFT_OUT)
    reader = _Reader(mujoco, compiled, where)
    part = reader.part_of(root, freeze)
    # A hand whose palm is fixed is one tree, of as many branches as it has fingers.
    trees = np.unique(compiled.body_rootid[compiled.jnt_bodyid[part.joints]])
    if len(trees) != 1 and (root is None or not len(trees)):
        names = ", ".join(repr(reader.body_names[b]) for b in trees)
        raise SceneLoadError(
            f"{where}: {len(trees)} kinematic trees{f' begin with {names}' if names else ''}, "
            "expected one, a robot's. Name the body that it begins with: root=..., take "
            "load_mjcf(...).system for all of them, or a file with the robot alone."
        )
    check_robot_supported(mujoco, compiled, where, part, leave_out)
    robot = _Reader(mujoco, compiled, where, part).system(None)
    frames, aliases = robot.frame_names, dict(end_effectors or {})
    for frame in aliases.values():
        if frame not in frames:
            raise unknown_name("body or site", frame, frames, f"of {where}")
    end_effector_index = {alias: frames.index(frame) for alias, frame in aliases.items()}
    topology = dataclasses.replace(robot.topology, end_effectors=end_effector_index)
    return dataclasses.replace(robot, topology=topology)


class MjcfIndices(NamedTuple):
    """Where a robot's numbers are in a `mujoco.MjModel` and its `MjData`."""

    qpos: NDArray[np.intp]
    """(nq,), of the coordinates `q`."""
    qvel: NDArray[np.intp]
    """(nv,), of the velocities `v`, and of forces."""
    ctrl: NDArray[np.intp]
    """(nv,), of the one input whose actuator drives this degree of freedom; -1 without, or with
    several."""


def mjcf_indices(model: str | os.PathLike[str] | Any, robot: Robot) -> MjcfIndices:
    """Where the coordinates of a robot of `load_mjcf_robot` are in the model it is from.

    Args:
        model: as in `load_mjcf`.
        robot: of this model; joints that were locked or combined since are no matter.

    Raises:
        SceneLoadError: the file cannot be read.
        UnknownNameError: a joint of the robot is not in the model.
        MissingExtraError: MuJoCo is not installed.
    """
    mujoco = import_extra("mujoco", "mujoco", "mjcf_indices")
    where, compiled = _compiled(mujoco, model)
    reader = _Reader(mujoco, compiled, where)
    qpos, qvel = reader.numbers([reader.joint(name) for name in robot.joint_names])
    inputs: dict[int, list[int]] = {}
    for i, dof in reader.driven():
        inputs.setdefault(dof, []).append(reader.input(i))
    ctrl = [inputs[d][0] if len(inputs.get(d, ())) == 1 else -1 for d in qvel]
    return MjcfIndices(*(np.array(x, np.intp) for x in (qpos, qvel, ctrl)))


def _compiled(mujoco: Any, model: Any) -> tuple[str, Any]:
    """How errors name the model, and the model."""
    if isinstance(model, mujoco.MjModel):
        return f"MjModel {_model_name(model)!r}", model
    if not isinstance(model, str | os.PathLike):
        raise SceneLoadError(
            f"load_mjcf got a {type(model).__name__}, expected a path, XML text or a "
            "mujoco.MjModel. Compile an MjSpec first: spec.compile()."
        )
    is_text = isinstance(model, str) and model.lstrip().startswith("<")
    where = "MJCF text" if is_text else str(model)
    try:
        if is_text:
            return where, mujoco.MjModel.from_xml_string(model)
        if not Path(model).is_file():
            raise SceneLoadError(f"{where}: there is no such file. Check the path.")
        return where, mujoco.MjModel.from_xml_path(str(model))
    except ValueError as error:
        if isinstance(error, SceneLoadError):
            raise
        reason = " ".join(str(error).split())
        raise SceneLoadError(f"{where}: MuJoCo cannot compile it: {reason}") from error


def _model_name(model: Any) -> str:
    return bytes(model.names).partition(b"\0")[0].decode()


@dataclass(frozen=True)
class _Place:
    """A MuJoCo frame, fixed to a body of the forest: its pose in that body's frame."""

    body: int
    position: Array
    rotation: Array

    def at(self, position: Array, rotation: Array) -> _Place:
        """A frame fixed to this one."""
        return _Place(self.body, self.position + self.rotation @ position, self.rotation @ rotation)


_KINDS: dict[str, GeomKind] = {
    "mjGEOM_PLANE": "plane",
    "mjGEOM_SPHERE": "sphere",
    "mjGEOM_CAPSULE": "capsule",
    "mjGEOM_CYLINDER": "cylinder",
    "mjGEOM_BOX": "box",
}
_DRAWN_GROUPS = 3
_SHAPES: dict[GeomKind, ShapeKind] = {
    "sphere": "sphere",
    "capsule": "capsule",
    "cylinder": "cylinder",
    "box": "box",
}


class _Reader:
    """Reads a compiled model into a scene, part after part."""

    def __init__(self, mujoco: Any, model: Any, where: str, part: Part | None = None) -> None:
        self.mujoco, self.model, self.where = mujoco, model, where
        self.part = part or Part(np.ones(model.nbody, bool), np.ones(model.njnt, bool))
        self.body_names = self._names("body", model.nbody, lambda i: f"body{i}")
        self.joint_names = self._names(
            "joint", model.njnt, lambda i: f"{self.body_names[model.jnt_bodyid[i]]}_joint"
        )
        self.geom_names = self._names(
            "geom", model.ngeom, lambda i: f"{self.body_names[model.geom_bodyid[i]]}_geom"
        )
        joints = mujoco.mjtJoint
        self._scalar_types = (int(joints.mjJNT_HINGE), int(joints.mjJNT_SLIDE))
        self.bodies: list[_Body] = []
        self.places = self._place_bodies()

    def scene(self) -> Scene:
        m = self.model
        layout, geoms, own = self._contacts()
        system = self.system(layout)
        integrators = self.mujoco.mjtIntegrator
        integrator: dict[int, Integrator] = {
            int(integrators.mjINT_EULER): "euler",
            int(integrators.mjINT_IMPLICITFAST): "implicitfast",
        }
        if hasattr(integrators, "mjINT_DISCRETE"):
            integrator[int(integrators.mjINT_DISCRETE)] = "discrete"
        constraints = Constraints(
            layout=layout,
            geoms=geoms,
            pairs=own,
            joints=self._joint_parameters(),
            equalities=self._equality_parameters(),
            link_com=np.array(
                [p.at(x, np.eye(3)).position for p, x in zip(self.places, m.body_ipos, strict=True)]
            ),
            reference=m.qpos0.copy(),
            weights=InverseWeights(
                m.body_invweight0[:, 0].copy(),
                m.body_invweight0[:, 1].copy(),
                m.dof_invweight0.copy(),
            ),
            impratio=np.float64(m.opt.impratio),
        )
        compensated = bool(np.any(m.body_gravcomp))
        return Scene(
            name=_model_name(m),
            system=system,
            constraints=constraints,
            stiffness=m.jnt_stiffness[m.dof_jntid].copy(),
            spring_reference=m.qpos_spring.copy(),
            link_share=self._shares(system),
            gravity_compensation=m.body_gravcomp.copy() if compensated else None,
            actuators=self._actuators(),
            timestep=np.float64(m.opt.timestep),
            integrator=integrator[int(m.opt.integrator)],
            stored_keyframes=self._keyframes(),
            stored_members=self._members(system.topology),
        )

    # --- parts ---

    def part_of(self, root: str | None, freeze: Sequence[str]) -> Part:
        """What moves from a body on, but for joints that are welded."""
        m = self.model
        bodies = np.ones(m.nbody, bool)
        if root is not None:
            if root not in self.body_names:
                raise unknown_name("body", root, self.body_names, f"of {self.where}")
            first = self.body_names.index(root)
            for b in range(m.nbody):
                bodies[b] = b == first or (b > first and bodies[m.body_parentid[b]])
        joints = bodies[m.jnt_bodyid]
        for name in freeze:
            joints[self.joint(name)] = False
        return Part(bodies, joints)

    def joint(self, name: str) -> int:
        """The joint of a name."""
        if name not in self.joint_names:
            raise unknown_name("joint", name, self.joint_names, f"of {self.where}")
        return self.joint_names.index(name)

    def numbers(self, joints: Iterable[int]) -> tuple[list[int], list[int]]:
        """Where the coordinates of joints are in `qpos`, and their velocities in `qvel`."""
        m, q, v = self.model, [], []
        for j in joints:
            coordinates, freedoms = _SPANS[self.mujoco.mjtJoint(m.jnt_type[j]).name]
            q += [int(m.jnt_qposadr[j]) + k for k in range(coordinates)]
            v += [int(m.jnt_dofadr[j]) + k for k in range(freedoms)]
        return q, v

    # --- names ---

    def _names(self, kind: str, count: int, otherwise: Any) -> list[str]:
        """Unique names of all elements of a kind."""
        mujoco, obj = self.mujoco, getattr(self.mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        given = [mujoco.mj_id2name(self.model, obj, i) for i in range(count)]
        return _unique(given, [n or otherwise(i) for i, n in enumerate(given)])

    # --- bodies and joints ---

    def _place_bodies(self) -> list[_Place]:
        """Where each MuJoCo body is, and `self.bodies`, those of the forest."""
        m = self.model
        places = [_Place(WORLD, np.zeros(3), np.eye(3))]
        for b in range(1, m.nbody):
            place = places[m.body_parentid[b]].at(m.body_pos[b], _matrix(m.body_quat[b]))
            own = range(m.body_jntadr[b], m.body_jntadr[b] + m.body_jntnum[b])
            joints = [j for j in own if self.part.joints[j]]
            for j in joints:
                last = j == joints[-1]
                name = self.body_names[b] if last else f"{self.body_names[b]}.{self.joint_names[j]}"
                place = self._add_body(name, j, place)
            places.append(place)
        return places

    def _add_body(self, name: str, j: int, place: _Place) -> _Place:
        """Add the body that joint `j` moves; where that takes the MuJoCo body's frame."""
        m, kinds = self.model, self.mujoco.mjtJoint
        kind, axis, zero = m.jnt_type[j], m.jnt_axis[j].copy(), m.qpos0[m.jnt_qposadr[j]]
        anchor = m.jnt_pos[j].copy()
        rotation: Array = np.eye(3)
        ours = _JOINTS[kinds(kind).name]
        if kind == kinds.mjJNT_FREE:
            anchor, place = np.zeros(3), _Place(WORLD, np.zeros(3), np.eye(3))
        elif kind == kinds.mjJNT_SLIDE:
            # Where a slide is mounted does not matter: at the frame's origin, moved to zero.
            anchor = -place.rotation.T @ place.position if self._continues(j) else np.zeros(3)
            place = place.at(-zero * axis, np.eye(3))
        elif kind == kinds.mjJNT_HINGE:
            rotation = _turn(axis, -zero)
        if ours in ("spherical", "floating"):
            axis = np.array([1.0, 0.0, 0.0])
        mounted = place.at(anchor, rotation)
        joint = Joint(self.joint_names[j], ours, axis)
        self.bodies.append(_Body(name, joint, place.body, mounted.position, mounted.rotation))
        return _Place(len(self.bodies) - 1, -anchor, np.eye(3))

    def _continues(self, j: int) -> bool:
        """Whether a joint is not the first of its body."""
        return bool(j > self.model.body_jntadr[self.model.jnt_bodyid[j]])

    def system(self, layout: Layout | None) -> Robot:
        """The forest."""
        m, bodies = self.model, self.bodies
        mass, com, inertia = self._inertias()
        collision, visual = self._shapes(layout)
        limits = np.full((m.nv, 2), (-np.inf, np.inf))
        effort = self._effort_limits()
        damping, armature = m.dof_damping.copy(), m.dof_armature.copy()
        for j in range(m.njnt):
            dof, kind = m.jnt_dofadr[j], self.mujoco.mjtJoint(m.jnt_type[j]).name
            if m.jnt_limited[j] and kind in ("mjJNT_HINGE", "mjJNT_SLIDE"):
                limits[dof] = m.jnt_range[j]
            if m.jnt_limited[j] and kind == "mjJNT_BALL":
                limits[dof] = 0.0, m.jnt_range[j].max()
        for i, dof in self.driven():
            # What actuators add to their joints.
            gear = self._gear(i)
            damping[dof] += gear**2 * _optional(m, "actuator_damping", i)
            armature[dof] += gear**2 * _optional(m, "actuator_armature", i)
        weightless = m.opt.disableflags & int(self.mujoco.mjtDisableBit.mjDSBL_GRAVITY)
        q, v = self.numbers(map(int, np.flatnonzero(self.part.joints)))
        topology = Topology(
            name=_model_name(m),
            joints=tuple(b.joint for b in bodies),
            body_names=tuple(_unique([None] * len(bodies), [b.name for b in bodies])),
            parent=np.array([b.parent for b in bodies], int).reshape(-1),
            position=np.array([b.position for b in bodies]).reshape(-1, 3),
            rotation=np.array([b.rotation for b in bodies]).reshape(-1, 3, 3),
            frames=tuple(self._frames()),
            end_effectors={},
            collision_shapes=collision,
            visual_shapes=visual,
        )
        return Robot(
            topology=topology,
            mass=mass,
            com=com,
            inertia=inertia,
            gravity=np.zeros(3) if weightless else m.opt.gravity.copy(),
            armature=armature[v],
            damping=damping[v],
            friction=m.dof_frictionloss[v],
            position_limits=limits[v],
            stop_stiffness=np.zeros(len(v)),
            stop_damping=np.zeros(len(v)),
            velocity_limits=np.full(len(v), np.inf),
            effort_limits=effort[v],
            effort_rate_limits=np.full(len(v), np.inf),
            q_default=m.qpos0[q],
        )

    def driven(self) -> Iterator[tuple[int, int]]:
        """Actuators of single degrees of freedom, and these."""
        m = self.model
        for i in range(getattr(m, "nactuator", m.nu)):
            name = self.mujoco.mjtTrn(m.actuator_trntype[i]).name
            joint = m.actuator_trnid[i, 0]
            if name in _ON_JOINTS and m.jnt_type[joint] in self._scalar_types:
                yield i, int(m.jnt_dofadr[joint])

    def input(self, i: int) -> int:
        """The first input of an actuator; newer versions of MuJoCo let it have several."""
        m = self.model
        return int(m.actuator_ctrladr[i]) if hasattr(m, "actuator_ctrladr") else i

    def _gear(self, i: int) -> float:
        """Ratio of an actuator's transmission; newer versions of MuJoCo list them by output."""
        m = self.model
        row = m.actuator_outadr[i] if hasattr(m, "actuator_outadr") else i
        return float(m.actuator_gear[row, 0])

    def _effort_limits(self) -> Array:
        """The most that actuators can do at each degree of freedom, and that its joint allows."""
        m = self.model
        limits: Array = np.full(m.nv, np.inf)
        strongest: dict[int, float] = {}
        for i, dof in self.driven():
            force = np.inf
            unbiased = m.actuator_biastype[i] == self.mujoco.mjtBias.mjBIAS_NONE
            fixed = m.actuator_gaintype[i] == self.mujoco.mjtGain.mjGAIN_FIXED
            ctrl = self.input(i)
            if unbiased and fixed and m.actuator_ctrllimited[ctrl]:
                force = np.abs(m.actuator_gainprm[i, 0] * m.actuator_ctrlrange[ctrl]).max()
            if m.actuator_forcelimited[i]:
                force = min(force, np.abs(m.actuator_forcerange[i]).max())
            strongest[dof] = strongest.get(dof, 0.0) + force * abs(self._gear(i))
        for dof, force in strongest.items():
            limits[dof] = force
        for j in np.flatnonzero(m.jnt_actfrclimited):
            dof = m.jnt_dofadr[j]
            limits[dof] = min(limits[dof], np.abs(m.jnt_actfrcrange[j]).max())
        for j in np.flatnonzero(m.jnt_type == self.mujoco.mjtJoint.mjJNT_FREE):
            limits[m.jnt_dofadr[j] : m.jnt_dofadr[j] + 6] = 0.0  # nothing drives it, as in URDF
        return limits

    def _inertias(self) -> tuple[Array, Array, Array]:
        """Mass, centre of mass and inertia of the forest's bodies, merged from their links."""
        m, n = self.model, len(self.bodies)
        mass, com, inertia = np.zeros(n), np.zeros((n, 3)), np.zeros((n, 3, 3))
        parts: list[list[tuple[float, Array, Array]]] = [[] for _ in range(n)]
        for b, place in enumerate(self.places):
            if place.body != WORLD and m.body_mass[b] > 0:
                own = place.at(m.body_ipos[b], _matrix(m.body_iquat[b]))
                turned = own.rotation @ np.diag(m.body_inertia[b]) @ own.rotation.T
                parts[place.body].append((m.body_mass[b], own.position, turned))
        for i, links in enumerate(parts):
            if not links:
                continue
            mass[i] = sum(x for x, _, _ in links)
            com[i] = links[0][1] if len(links) == 1 else sum(x * c for x, c, _ in links) / mass[i]
            for x, c, own_inertia in links:
                r = c - com[i]
                inertia[i] += own_inertia + x * (r @ r * np.eye(3) - np.outer(r, r))
        return mass, com, 0.5 * (inertia + inertia.swapaxes(1, 2))

    def _shares(self, system: Robot) -> Array:
        mass = np.asarray(system.mass)
        total = np.array([mass[p.body] if p.body != WORLD else 0.0 for p in self.places])
        own = np.where(total > 0, self.model.body_mass, 0.0)
        return own / np.where(total > 0, total, 1.0)

    def _frames(self) -> Iterator[Frame]:
        """The world, and the part's bodies and sites; a site with a body's name is marked so."""
        m, inside = self.model, self.part.bodies
        for b, (name, p) in enumerate(zip(self.body_names, self.places, strict=True)):
            if inside[b] or b == 0:
                yield Frame(name, p.body, p.position, p.rotation)
        sites = self._names("site", m.nsite, lambda i: f"{self.body_names[m.site_bodyid[i]]}_site")
        taken = set(self.body_names)
        for i, name in enumerate(sites):
            if not inside[m.site_bodyid[i]]:
                continue
            p = self.places[m.site_bodyid[i]].at(m.site_pos[i], _matrix(m.site_quat[i]))
            unique = f"{name} (site)" if name in taken else name
            yield Frame(unique, p.body, p.position, p.rotation)

    def _members(self, topology: Topology) -> tuple[tuple[str, MemberSlices], ...]:
        """Each tree's slices, by the name of its root."""
        roots = [int(i) for i in np.flatnonzero(topology.parent == WORLD)]
        names = [self.body_names[self.model.jnt_bodyid[i]] for i in roots]
        axes = np.searchsorted(topology.axes.body, [*roots, len(topology.joints)])
        ends = [*roots[1:], len(topology.joints)]
        return tuple(
            (
                name,
                MemberSlices(
                    q=slice(int(topology.q_index[start]), int(topology.q_index[end])),
                    v=slice(int(topology.v_index[start]), int(topology.v_index[end])),
                    bodies=slice(start, end),
                    axes=slice(int(axes[k]), int(axes[k + 1])),
                ),
            )
            for k, (name, start, end) in enumerate(zip(names, roots, ends, strict=True))
        )

    # --- geoms and pairs ---

    def _kind(self, g: int) -> GeomKind | None:
        return _KINDS.get(self.mujoco.mjtGeom(self.model.geom_type[g]).name)

    def _contacts(self) -> tuple[Layout, Geoms, PairParameters]:
        m = self.model
        explicit = [(int(m.pair_geom1[k]), int(m.pair_geom2[k])) for k in range(m.npair)]
        mixed = list(self._mixed_pairs({frozenset(p) for p in explicit}))
        for one, other in (*mixed, *explicit):
            self._check_kinds(one, other)
        touching = sorted({g for pair in (*mixed, *explicit) for g in pair})
        index = {g: i for i, g in enumerate(touching)}
        geoms = tuple(self._geom(g) for g in touching)
        pairs = [self._pair(geoms, index, pair) for pair in mixed]
        pairs += [self._pair(geoms, index, pair, k) for k, pair in enumerate(explicit)]
        dof, kinds = m.jnt_dofadr, self.mujoco.mjtJoint
        limited = [j for j in range(m.njnt) if m.jnt_limited[j]]
        layout = Layout(
            geoms=geoms,
            links=tuple(
                Link(name, p.body, bool(m.body_simple[b] == 2))
                for b, (name, p) in enumerate(zip(self.body_names, self.places, strict=True))
            ),
            pairs=by_kinds(geoms, pairs),
            equalities=tuple(self._equality(e) for e in range(m.neq)),
            limited=tuple(int(dof[j]) for j in limited if m.jnt_type[j] in self._scalar_types),
            limited_balls=tuple(j for j in limited if m.jnt_type[j] == kinds.mjJNT_BALL),
            friction_loss=tuple(int(i) for i in np.flatnonzero(m.dof_frictionloss > 0)),
            cone=_CONES[self.mujoco.mjtCone(m.opt.cone).name],
        )
        return layout, self._geom_numbers(touching), self._pair_numbers()

    def _check_kinds(self, one: int, other: int) -> None:
        for g, partner in ((one, other), (other, one)):
            if self._kind(g) is None:
                kind = self.mujoco.mjtGeom(self.model.geom_type[g]).name.removeprefix("mjGEOM_")
                refuse(
                    self.where,
                    f"geom {self.geom_names[g]!r} is of type {kind.lower()!r} and may touch geom "
                    f"{self.geom_names[partner]!r}",
                    "colliders are for planes, spheres, capsules, cylinders and boxes",
                    "Let primitives collide in its place, and set contype='0' conaffinity='0' on "
                    "it, so that it only shows.",
                )

    def _geom(self, g: int) -> Geom:
        m, body = self.model, int(self.model.geom_bodyid[g])
        return Geom(
            self.geom_names[g],
            self._kind(g) or "plane",
            body=self.places[body].body,
            link=body,
            condim=int(m.geom_condim[g]),
            priority=int(m.geom_priority[g]),
        )

    def _mixed_pairs(self, explicit: set[frozenset[int]]) -> Iterator[tuple[int, int]]:
        """Pairs of geoms that MuJoCo's filters let pass, in its order, without explicit ones."""
        m = self.model
        weld, parent = m.body_weldid, m.body_weldid[m.body_parentid[m.body_weldid]]
        no_filter = int(self.mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)
        filter_parent = not m.opt.disableflags & no_filter
        excluded = {int(s) for s in m.exclude_signature}
        geoms_of = [
            range(m.body_geomadr[b], m.body_geomadr[b] + m.body_geomnum[b]) for b in range(m.nbody)
        ]
        for b1 in range(m.nbody):
            for b2 in range(b1 + 1, m.nbody):
                w1, w2 = weld[b1], weld[b2]
                family = w1 != 0 and w2 != 0 and (w1 == parent[b2] or w2 == parent[b1])
                if w1 == w2 or (filter_parent and family) or (b1 << 16) + b2 in excluded:
                    continue
                for g1 in geoms_of[b1]:
                    for g2 in geoms_of[b2]:
                        if frozenset((g1, g2)) not in explicit and self._may_touch(g1, g2):
                            yield g1, g2

    def _may_touch(self, g1: int, g2: int) -> bool:
        m = self.model
        masks = (m.geom_contype[g1] & m.geom_conaffinity[g2]) | (
            m.geom_contype[g2] & m.geom_conaffinity[g1]
        )
        # Of these, MuJoCo has no collider.
        flat = ("mjGEOM_PLANE", "mjGEOM_HFIELD")
        both_flat = all(self.mujoco.mjtGeom(m.geom_type[g]).name in flat for g in (g1, g2))
        return bool(masks) and not both_flat

    def _pair(
        self,
        geoms: tuple[Geom, ...],
        index: Mapping[int, int],
        pair: tuple[int, int],
        own: int = -1,
    ) -> Pair:
        i, j = ordered(geoms, index[pair[0]], index[pair[1]])
        condim = mixed_condim(geoms[i], geoms[j]) if own < 0 else int(self.model.pair_dim[own])
        kinds = geoms[i].kind, geoms[j].kind
        if kinds not in COLLIDERS:
            refuse(
                self.where,
                f"geoms {geoms[i].name!r} and {geoms[j].name!r}, a {kinds[0]} and a {kinds[1]}, "
                "may touch",
                "this pair of kinds is not modelled",
                f"{other_kinds(kinds)}; or keep them apart by contype, conaffinity or <exclude>.",
            )
        return Pair((i, j), condim, slots_of(*kinds), own)

    def _geom_numbers(self, touching: list[int]) -> Geoms:
        m = self.model
        at = [
            self.places[m.geom_bodyid[g]].at(m.geom_pos[g], _matrix(m.geom_quat[g]))
            for g in touching
        ]
        size = np.zeros((len(touching), 3))
        for row, g in zip(size, touching, strict=True):
            count = _SIZES[self._kind(g) or "plane"]
            row[:count] = m.geom_size[g, :count]
        return Geoms(
            size=size,
            position=np.array([p.position for p in at]).reshape(-1, 3),
            rotation=np.array([p.rotation for p in at]).reshape(-1, 3, 3),
            friction=m.geom_friction[touching],
            solref=m.geom_solref[touching],
            solimp=m.geom_solimp[touching],
            solmix=m.geom_solmix[touching],
            margin=m.geom_margin[touching],
            gap=m.geom_gap[touching],
        )

    def _pair_numbers(self) -> PairParameters:
        m = self.model
        return PairParameters(
            friction=m.pair_friction.copy(),
            solref=m.pair_solref.copy(),
            solref_friction=m.pair_solreffriction.copy(),
            solimp=m.pair_solimp.copy(),
            margin=m.pair_margin.copy(),
            gap=m.pair_gap.copy(),
        )

    def _shapes(self, layout: Layout | None) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
        """Collision shapes and visual shapes: primitives."""
        m = self.model
        if layout is None:
            masks = m.geom_contype | m.geom_conaffinity
            touching = {self.geom_names[g] for g in np.flatnonzero(masks)}
        else:
            touching = {g.name for g in layout.geoms}
        collision, visual = [], []
        for g in range(m.ngeom):
            kind = self._kind(g)
            if kind is None or kind == "plane" or not self.part.bodies[m.geom_bodyid[g]]:
                continue
            p = self.places[m.geom_bodyid[g]].at(m.geom_pos[g], _matrix(m.geom_quat[g]))
            shape = Shape(
                name=self.geom_names[g],
                kind=_SHAPES[kind],
                size=_shape_size(kind, m.geom_size[g]),
                body=p.body,
                position=p.position,
                rotation=p.rotation,
                rgba=self._colour(g),
            )
            if self.geom_names[g] in touching:
                collision.append(shape)
            if m.geom_group[g] < _DRAWN_GROUPS:
                visual.append(shape)
        return tuple(collision), tuple(visual)

    def _colour(self, g: int) -> Color:
        m = self.model
        material = m.geom_matid[g]
        own = m.geom_rgba[g]
        rgba = m.mat_rgba[material] if material >= 0 and np.all(own == _DEFAULT_RGBA) else own
        r, g_, b, a = (float(np.float64(x).round(6)) for x in rgba)
        return r, g_, b, a

    # --- limits, friction loss, equalities ---

    def _joint_parameters(self) -> JointParameters:
        m, joint = self.model, self.model.dof_jntid
        return JointParameters(
            margin=m.jnt_margin[joint],
            limit_solref=m.jnt_solref[joint],
            limit_solimp=m.jnt_solimp[joint],
            friction_solref=m.dof_solref.copy(),
            friction_solimp=m.dof_solimp.copy(),
        )

    def _ends(self, e: int) -> tuple[int, int]:
        """MuJoCo's bodies of a connect or weld constraint."""
        m = self.model
        one, two = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
        if m.eq_objtype[e] == self.mujoco.mjtObj.mjOBJ_SITE:
            return int(m.site_bodyid[one]), int(m.site_bodyid[two])
        return one, two

    def _equality(self, e: int) -> Equality:
        m, mujoco = self.model, self.mujoco
        name = mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_EQUALITY, e) or ""
        if m.eq_type[e] == mujoco.mjtEq.mjEQ_JOINT:
            first, second = m.eq_obj1id[e], m.eq_obj2id[e]
            other = int(m.jnt_dofadr[second]) if second >= 0 else -1
            return Equality(name, "joint", int(m.jnt_dofadr[first]), other)
        is_weld = m.eq_type[e] == mujoco.mjtEq.mjEQ_WELD
        kind: EqualityKind = "weld" if is_weld else "connect"
        one, two = self._ends(e)
        return Equality(name, kind, self.places[one].body, self.places[two].body, (one, two))

    def _equality_parameters(self) -> EqualityParameters:
        m, mujoco, n = self.model, self.mujoco, self.model.neq
        polynomial, reference = np.zeros((n, 5)), np.zeros((n, 2))
        position, rotation = np.zeros((n, 2, 3)), np.tile([1.0, 0, 0, 0], (n, 2, 1))
        torque_scale = np.ones(n)
        for e in range(n):
            data, ids = m.eq_data[e], (int(m.eq_obj1id[e]), int(m.eq_obj2id[e]))
            if m.eq_type[e] == mujoco.mjtEq.mjEQ_JOINT:
                polynomial[e] = data[:5]
                reference[e] = [m.qpos0[m.jnt_qposadr[j]] if j >= 0 else 0.0 for j in ids]
                continue
            weld = m.eq_type[e] == mujoco.mjtEq.mjEQ_WELD
            if m.eq_objtype[e] == mujoco.mjtObj.mjOBJ_SITE:
                anchors, turns = m.site_pos[list(ids)], [_matrix(m.site_quat[i]) for i in ids]
            else:  # a weld keeps its anchors crosswise
                anchors = np.array([data[3:6], data[:3]] if weld else [data[:3], data[3:6]])
                turns = [_matrix(data[6:10]) if weld else np.eye(3), np.eye(3)]
            for k, body in enumerate(self._ends(e)):
                end = self.places[body].at(anchors[k], turns[k])
                position[e, k] = end.position
                rotation[e, k] = _quaternion(mujoco, end.rotation) if weld else (1, 0, 0, 0)
            if weld:
                torque_scale[e] = data[10]
        return EqualityParameters(
            active=m.eq_active0.astype(float),
            polynomial=polynomial,
            reference=reference,
            position=position,
            rotation=rotation,
            torque_scale=torque_scale,
            solref=m.eq_solref.copy(),
            solimp=m.eq_solimp.copy(),
        )

    # --- actuators, keyframes ---

    def _actuators(self) -> JointActuators:
        m, mujoco, n = self.model, self.mujoco, self.model.nu
        gain, bias = m.actuator_gainprm[:, :3].copy(), m.actuator_biasprm[:, :3].copy()
        gain[m.actuator_gaintype == mujoco.mjtGain.mjGAIN_FIXED, 1:] = 0.0
        bias[m.actuator_biastype == mujoco.mjtBias.mjBIAS_NONE] = 0.0
        joints = m.actuator_trnid[:, 0]
        names = self._names("actuator", n, lambda i: f"{self.joint_names[joints[i]]}_actuator")
        joint_range = np.full((m.nv, 2), (-np.inf, np.inf))
        for j in np.flatnonzero(m.jnt_actfrclimited):
            joint_range[m.jnt_dofadr[j]] = m.jnt_actfrcrange[j]
        return JointActuators(
            names=tuple(names),
            dofs=tuple(int(m.jnt_dofadr[j]) for j in joints),
            gain=gain,
            bias=bias,
            gear=m.actuator_gear[:, 0].copy(),
            ctrl_range=_ranges(m.actuator_ctrllimited, m.actuator_ctrlrange),
            force_range=_ranges(m.actuator_forcelimited, m.actuator_forcerange),
            joint_range=joint_range,
        )

    def _keyframes(self) -> tuple[StoredKeyframe, ...]:
        m = self.model
        names = self._names("key", m.nkey, lambda i: f"key{i}")
        return tuple(
            StoredKeyframe(
                name, *(tuple(map(float, x[i])) for x in (m.key_qpos, m.key_qvel, m.key_ctrl))
            )
            for i, name in enumerate(names)
        )


@dataclass(frozen=True)
class _Body:
    """A body of the forest."""

    name: str
    joint: Joint
    parent: int
    position: Array
    rotation: Array


_JOINTS: dict[str, JointKind] = {
    "mjJNT_FREE": "floating",
    "mjJNT_BALL": "spherical",
    "mjJNT_SLIDE": "prismatic",
    "mjJNT_HINGE": "revolute",
}
_SPANS = {"mjJNT_FREE": (7, 6), "mjJNT_BALL": (4, 3), "mjJNT_SLIDE": (1, 1), "mjJNT_HINGE": (1, 1)}
_ON_JOINTS = ("mjTRN_JOINT", "mjTRN_JOINTINPARENT")
_CONES: dict[str, Any] = {"mjCONE_PYRAMIDAL": "pyramidal", "mjCONE_ELLIPTIC": "elliptic"}
_SIZES: dict[GeomKind, int] = {"plane": 0, "sphere": 1, "capsule": 2, "cylinder": 2, "box": 3}
_DEFAULT_RGBA = np.array([0.5, 0.5, 0.5, 1.0], np.float32)


def _shape_size(kind: GeomKind, size: Array) -> tuple[float, ...]:
    """A geom's size in the conventions of `Shape`: full lengths."""
    match kind:
        case "sphere":
            return (float(size[0]),)
        case "box":
            return tuple(float(2 * x) for x in size)
        case _:
            return float(size[0]), float(2 * size[1])


def _optional(model: Any, field: str, i: int) -> float:
    """An entry of a field that older versions of MuJoCo lack."""
    return float(getattr(model, field)[i]) if hasattr(model, field) else 0.0


def _ranges(limited: Array, ranges: Array) -> Array:
    return np.where(limited[:, None].astype(bool), ranges, np.array([-np.inf, np.inf]))


def _unique(given: Iterable[str | None], names: list[str]) -> list[str]:
    """Names made unique by numbers; those that are given stay."""
    fixed = [n for n in given if n]
    taken, result = set(fixed), []
    for own, name in zip([*given], names, strict=True):
        candidate, k = name, 1
        while not own and candidate in taken:
            candidate, k = f"{name}{k}", k + 1
        taken.add(candidate)
        result.append(candidate)
    return result


def _matrix(quaternion: Array) -> Array:
    """Rotation matrix of a quaternion wxyz of any length."""
    w, x, y, z = np.asarray(quaternion, float) / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _quaternion(mujoco: Any, rotation: Array) -> Array:
    """The quaternion of a rotation whose real part is not negative."""
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, rotation.ravel())
    return quaternion if quaternion[0] >= 0 else -quaternion


def _turn(axis: Array, angle: float) -> Array:
    """Rotation matrix by an angle, rad, about a unit axis."""
    half = 0.5 * angle
    return _matrix(np.array([np.cos(half), *(np.sin(half) * axis)]))
