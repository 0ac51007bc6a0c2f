"""A scene as a MuJoCo model, for cross-checks: the same numbers, built with `mujoco.MjSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fraxenv.errors import ConfigError, import_extra, is_concrete

from ..contact.model import Equality, Layout, Pair
from ..geometry.shapes import Shape
from ..model.robot import WORLD, Frame, Robot
from .parts import SceneParts

Array = NDArray[np.floating[Any]]

_LARGEST = 1e10
"""What MuJoCo takes for infinite."""
_MASK_BITS = 31
_HIDDEN_GROUP = 3
_SAME_POSE = 1e-12


def scene_to_mujoco(scene: SceneParts) -> Any:
    """The scene as a `mujoco.MjModel`, with the numbers that its leaves have now.

    Coordinates, velocities, controls and names are the same, and so are all terms of the equations
    of motion, to rounding; `load_mjcf` makes the scene of it again. MuJoCo's solver keeps its
    default options: for comparisons, set `model.opt.tolerance = 0`.

    A link without joints is a child of the link that its body is named after, wherever the file had
    it; a planar joint is two slides and a hinge, and a floating joint that is mounted off the
    world's origin three slides and a ball joint.

    Raises:
        MissingExtraError: MuJoCo is not installed.
        ConfigError: the scene is batched or traced, has joints that follow others exactly, or
            something that MuJoCo refuses; says what.
    """
    mujoco = import_extra("mujoco", "mujoco", "to_mujoco")
    _check(scene)
    return _Writer(mujoco, jax.tree.map(lambda x: np.asarray(x, float), scene)).model()


def _check(scene: SceneParts) -> None:
    what = f"to_mujoco of scene {scene.name!r}"
    if not is_concrete(scene):
        raise ConfigError(f"{what} is called while its numbers are traced. Call it outside jit.")
    if np.shape(scene.system.mass) != (scene.system.nb,):
        raise ConfigError(
            f"{what}: its masses have shape {np.shape(scene.system.mass)}, expected "
            f"({scene.system.nb},). Take one scene of the batch: jax.tree.map(lambda x: x[0], "
            "scene)."
        )
    for joint in scene.system.topology.joints:
        if joint.mimic is not None:
            raise ConfigError(
                f"{what}: joint {joint.name!r} follows another exactly, which MuJoCo's joints "
                "cannot. Load the robot without <mimic>, and couple both joints by an equality."
            )


@dataclass(frozen=True)
class _Pose:
    position: Array
    rotation: Array

    def __matmul__(self, other: _Pose) -> _Pose:
        return _Pose(self.position + self.rotation @ other.position, self.rotation @ other.rotation)

    def is_near(self, other: _Pose) -> bool:
        """Whether both are the same to rounding."""
        apart = [self.position - other.position, *(self.rotation - other.rotation)]
        return bool(np.abs(apart).max() <= _SAME_POSE)

    @property
    def inverse(self) -> _Pose:
        return _Pose(-self.rotation.T @ self.position, self.rotation.T)


_IDENTITY = _Pose(np.zeros(3), np.eye(3))


class _Writer:
    """Writes a scene of NumPy arrays into an `MjSpec`, part after part."""

    def __init__(self, mujoco: Any, scene: SceneParts) -> None:
        self.mujoco, self.scene = mujoco, scene
        self.system: Robot = scene.system
        self.layout: Layout = scene.constraints.layout
        self.spec = mujoco.MjSpec()
        frames = {f.name: f for f in self.system.topology.frames}
        self.link_pose = [
            _pose_of(frames[link.name]) if link.name in frames else _IDENTITY
            for link in self.layout.links
        ]
        # The link that each body of the forest is named after: its first.
        self.main: dict[int, int] = {}
        for i, link in enumerate(self.layout.links):
            self.main.setdefault(link.body, i)
        self.chains = self._chains()
        self.sites: dict[str, tuple[int, _Pose]] = {}
        self.elements: list[Any] = []
        self.equality_data: list[Array | None] = []

    def model(self) -> Any:
        self._set_options()
        self._add_bodies()
        self._add_geoms()
        self._add_frames()
        self._add_pairs()
        self._add_equalities()
        self._add_actuators()
        for key in self.scene.stored_keyframes:
            self.spec.add_key(name=key.name, qpos=key.q, qvel=key.v, ctrl=key.ctrl)
        try:
            model = self.spec.compile()
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"to_mujoco of scene {self.scene.name!r}: MuJoCo refuses the model: {reason}"
            ) from error
        self._check_order(model)
        self._finish(model)
        return model

    # --- options ---

    def _set_options(self) -> None:
        mujoco, scene, spec = self.mujoco, self.scene, self.spec
        spec.modelname = scene.name
        spec.compiler.degree = False
        spec.compiler.autolimits = False
        spec.option.gravity = self.system.gravity
        spec.option.timestep = float(np.asarray(scene.timestep))
        spec.option.impratio = float(np.asarray(scene.constraints.impratio))
        elliptic = self.layout.cone == "elliptic"
        cones = mujoco.mjtCone
        spec.option.cone = cones.mjCONE_ELLIPTIC if elliptic else cones.mjCONE_PYRAMIDAL
        integrator = f"mjINT_{scene.integrator.upper()}"
        if not hasattr(mujoco.mjtIntegrator, integrator):
            raise ConfigError(
                f"to_mujoco of scene {scene.name!r}: MuJoCo {mujoco.__version__} has no "
                f"integrator {scene.integrator!r}. Use scene.replace(integrator='euler')."
            )
        spec.option.integrator = getattr(mujoco.mjtIntegrator, integrator)
        if any(self._is_family(p) for p in self.layout.pairs if p.parameters < 0):
            spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)

    # --- bodies and joints ---

    def _add_bodies(self) -> None:
        topology, mujoco = self.system.topology, self.mujoco
        inertias = self._link_inertias()
        for i, link in enumerate(self.layout.links):
            if i == 0:
                self.elements.append(self.spec.worldbody)
                continue
            if link.body == WORLD or self.main[link.body] != i:
                above, chain = link.body, []
            else:
                chain = self.chains[link.body]
                above = int(topology.parent[chain[0]])
            parent = self.elements[0 if above == WORLD else self.main[above]]
            start = _IDENTITY if above == WORLD else self.link_pose[self.main[above]].inverse
            pose, placed = start, []
            for b in chain:
                pose = pose @ _Pose(topology.position[b], topology.rotation[b])
                pose = pose @ self._displacement(b)
                placed.append(pose)
            pose = pose @ self.link_pose[i]
            element = parent.add_body(
                name=link.name, pos=pose.position, quat=_quaternion(mujoco, pose.rotation)
            )
            mass, com, inertia = inertias[i]
            element.explicitinertial = True
            element.mass, element.ipos = mass, com
            element.inertia, element.iquat = _principal(mujoco, inertia)
            if self.scene.gravity_compensation is not None:
                element.gravcomp = float(np.asarray(self.scene.gravity_compensation)[i])
            if hasattr(element, "simple"):
                slides = all(topology.joints[b].kind == "prismatic" for b in chain)
                element.simple = link.simple or not slides
            self.elements.append(element)
            for b, at in zip(chain, placed, strict=True):
                self._add_joint(element, b, pose.inverse @ at)

    def _chains(self) -> dict[int, list[int]]:
        """Of each body with a link, itself and the bodies without one that it is mounted on."""
        parent = self.system.topology.parent
        chains: dict[int, list[int]] = {}
        used: set[int] = set()
        for body in self.main:
            if body == WORLD:
                continue
            chain, above = [body], int(parent[body])
            while above != WORLD and above not in self.main:
                chain.insert(0, above)
                above = int(parent[above])
            shared = used & set(chain)
            if shared:
                name = self.system.topology.body_names[shared.pop()]
                raise ConfigError(
                    f"to_mujoco of scene {self.scene.name!r}: body {name!r} has no link of its "
                    "own and carries several bodies. Give it a link."
                )
            used |= set(chain)
            chains[body] = chain
        return chains

    def _displacement(self, b: int) -> _Pose:
        """What joint `b` does at MuJoCo's reference, where ball joints are not turned."""
        joint, q = self.system.topology.joints[b], self._coordinates(b)
        match joint.kind:
            case "prismatic":
                return _Pose(q[0] * joint.axis, np.eye(3))
            case "revolute" | "continuous":
                return _Pose(np.zeros(3), _turn(self.mujoco, joint.axis, q[0]))
            case "planar":
                x, y, _ = joint.axes
                return _Pose(q[0] * x + q[1] * y, _turn(self.mujoco, joint.axis, q[2]))
            case "floating" if self._is_free(b):
                return _Pose(q[:3], _matrix(self.mujoco, q[3:]))
            case "floating":
                return _Pose(q[:3], np.eye(3))
            case _:
                return _IDENTITY

    def _coordinates(self, b: int) -> Array:
        start, end = self.system.topology.q_index[b : b + 2]
        return np.asarray(self.scene.constraints.reference)[start:end]

    def _is_free(self, b: int) -> bool:
        """Whether MuJoCo's free joint can stand for a floating one: mounted at the origin."""
        topology = self.system.topology
        return bool(
            topology.parent[b] == WORLD
            and not topology.position[b].any()
            and np.array_equal(topology.rotation[b], np.eye(3))
        )

    def _add_joint(self, element: Any, b: int, at: _Pose) -> None:
        """Joints whose coordinates are those of joint `b`; `at` is its frame in the element's."""
        joint, kinds = self.system.topology.joints[b], self.mujoco.mjtJoint
        dof = int(self.system.topology.v_index[b])
        if joint.kind == "floating" and self._is_free(b):
            added = element.add_joint(name=joint.name, type=kinds.mjJNT_FREE)
            if hasattr(self.mujoco, "mjtAlignFree"):
                added.align = self.mujoco.mjtAlignFree.mjALIGNFREE_FALSE
            self._set_joint(added, b, dof)
            return
        # Axes are given where the joints before them have not moved yet: a planar joint's slides
        # are fixed in its mount, which its own turn has left.
        turn = self._displacement(b).rotation
        q = self._coordinates(b)
        for k, (rotates, axis) in enumerate(zip(joint.rotates, joint.axes, strict=True)):
            name = joint.name if len(joint.rotates) == 1 else f"{joint.name}.{k}"
            ball = rotates and joint.kind in ("floating", "spherical")
            kind = kinds.mjJNT_SLIDE if not rotates else kinds.mjJNT_HINGE
            if ball:
                name = joint.name
            fixed = axis if rotates or joint.kind == "prismatic" else turn.T @ axis
            added = element.add_joint(
                name=name,
                type=kinds.mjJNT_BALL if ball else kind,
                pos=at.position if rotates else np.zeros(3),
                axis=at.rotation @ fixed,
            )
            if not ball:
                added.ref = float(q[k])
            self._set_joint(added, b, dof + k)
            if ball:
                return

    def _set_joint(self, added: Any, b: int, dof: int) -> None:
        """A joint's numbers, of its first degree of freedom; `_finish` sets those of the others."""
        system, parameters = self.system, self.scene.constraints.joints
        if dof in self.layout.limited or b in self.layout.limited_balls:
            added.limited = True
            limits = np.asarray(system.position_limits)[dof]
            added.range = np.clip(limits, -_LARGEST, _LARGEST)
        added.margin = float(np.asarray(parameters.margin)[dof])
        added.solref_limit = np.asarray(parameters.limit_solref)[dof]
        added.solimp_limit = np.asarray(parameters.limit_solimp)[dof]
        added.solref_friction = np.asarray(parameters.friction_solref)[dof]
        added.solimp_friction = np.asarray(parameters.friction_solimp)[dof]
        _set_first(added, "stiffness", float(np.asarray(self.scene.stiffness)[dof]))
        force_range = np.asarray(self.scene.actuators.joint_range)[dof]
        if np.isfinite(force_range).any():
            added.actfrclimited = True
            added.actfrcrange = np.clip(force_range, -_LARGEST, _LARGEST)

    def _link_inertias(self) -> list[tuple[float, Array, Array]]:
        """Mass, centre of mass and inertia of each link, in its own frame.

        Links that are welded together share their body's mass as `link_share` says, and the rest of
        its inertia likewise: only the sum counts.
        """
        system, links = self.system, self.layout.links
        share = np.asarray(self.scene.link_share)
        com = np.array(self.scene.constraints.link_com)
        result = [(0.0, c, np.zeros((3, 3))) for c in com]
        for body in self.main:
            if body == WORLD:
                continue
            own = [i for i, link in enumerate(links) if link.body == body]
            massive = [i for i in own if share[i] > 0]
            mass, centre = np.asarray(system.mass)[body], np.asarray(system.com)[body]
            off = centre - sum(share[i] * com[i] for i in massive)
            rest = np.array(np.asarray(system.inertia)[body])
            for i in massive:
                com[i] += off
                r = com[i] - centre
                rest -= share[i] * mass * (r @ r * np.eye(3) - np.outer(r, r))
            for i in own:
                result[i] = (share[i] * mass, com[i], share[i] * rest)
        local: list[tuple[float, Array, Array]] = []
        for (mass, c, inertia), pose in zip(result, self.link_pose, strict=True):
            inverse = pose.inverse
            turned = inverse.rotation @ inertia @ inverse.rotation.T
            local.append((float(mass), inverse.position + inverse.rotation @ c, turned))
        return local

    # --- geoms, frames, pairs ---

    def _add_geoms(self) -> None:
        mujoco, geoms, masks = self.mujoco, self.scene.constraints.geoms, self._masks()
        shapes = {s.name: s for s in self.system.topology.collision_shapes if s.name}
        visible = {s.name for s in self.system.topology.visual_shapes if s.name}
        for i, geom in enumerate(self.layout.geoms):
            pose = self.link_pose[geom.link].inverse @ _Pose(
                np.asarray(geoms.position)[i], np.asarray(geoms.rotation)[i]
            )
            size = np.array(np.asarray(geoms.size)[i])
            contype, conaffinity = masks[i]
            shape = shapes.get(geom.name)
            added = self.elements[geom.link].add_geom(
                name=geom.name,
                type=getattr(mujoco.mjtGeom, f"mjGEOM_{geom.kind.upper()}"),
                size=np.array([0.0, 0.0, 1.0]) if geom.kind == "plane" else size,
                pos=pose.position,
                quat=_quaternion(mujoco, pose.rotation),
                contype=contype,
                conaffinity=conaffinity,
                condim=geom.condim,
                priority=geom.priority,
                friction=np.asarray(geoms.friction)[i],
                solref=np.asarray(geoms.solref)[i],
                solimp=np.asarray(geoms.solimp)[i],
                solmix=float(np.asarray(geoms.solmix)[i]),
                margin=float(np.asarray(geoms.margin)[i]),
                gap=float(np.asarray(geoms.gap)[i]),
                group=0 if geom.name in visible or geom.kind == "plane" else _HIDDEN_GROUP,
            )
            if shape is not None:
                added.rgba = shape.rgba
        names = {g.name for g in self.layout.geoms}
        for shape in self.system.topology.visual_shapes:
            if shape.name not in names:
                names.add(shape.name)
                self._add_visual(shape)

    def _add_visual(self, shape: Shape) -> None:
        mujoco, link = self.mujoco, self.main.get(shape.body, 0)
        pose = self.link_pose[link].inverse @ _Pose(shape.position, shape.rotation)
        size = np.zeros(3)
        full = np.array(shape.size)
        if shape.kind == "box":
            size[:] = full / 2
        elif shape.kind == "sphere":
            size[0] = full[0]
        else:
            size[:2] = full[0], full[1] / 2
        added = self.elements[link].add_geom(
            type=getattr(mujoco.mjtGeom, f"mjGEOM_{shape.kind.upper()}"),
            size=size,
            pos=pose.position,
            quat=_quaternion(mujoco, pose.rotation),
            contype=0,
            conaffinity=0,
            group=2,
            rgba=shape.rgba,
        )
        if shape.name:
            added.name = shape.name

    def _add_frames(self) -> None:
        """Frames as sites: of the link that their body is named after, or that a weld needs."""
        names = {link.name for link in self.layout.links}
        needed = [
            (link, self.link_pose[link] @ pose)
            for e, equality in enumerate(self.layout.equalities)
            if self._between_sites(e)
            for link, pose in zip(equality.links, self._ends(e), strict=True)
        ]
        for frame in self.system.topology.frames:
            if frame.name in names:
                continue
            owner, at = self.main.get(frame.body, 0), _pose_of(frame)
            for link, pose in needed:
                if self.layout.links[link].body == frame.body and pose.is_near(at):
                    owner = link
            self._add_site(frame.name, owner, self.link_pose[owner].inverse @ at)

    def _is_family(self, pair: Pair) -> bool:
        """Whether a pair is of a body and its parent, which MuJoCo leaves out by default."""
        one, two = (self.layout.geoms[g].body for g in pair.geoms)
        if WORLD in (one, two):
            return False
        above = [int(self.system.topology.parent[self.chains[b][0]]) for b in (one, two)]
        return one == above[1] or two == above[0]

    def _masks(self) -> list[tuple[int, int]]:
        """`contype` and `conaffinity` of each geom, so that precisely the mixed pairs remain.

        Geoms that touch the same others are of one class, which has one bit. Pairs that MuJoCo
        leaves out anyway may count as touching or not: whichever needs fewer classes.
        """
        layout, n = self.layout, len(self.layout.geoms)
        touch = np.zeros((n, n), bool)
        for pair in layout.pairs:
            if pair.parameters < 0:
                i, j = pair.geoms
                touch[i, j] = touch[j, i] = True
        touches: NDArray[np.bool_] = np.any(touch, axis=1)
        named = {frozenset(p.geoms) for p in layout.pairs if p.parameters >= 0}
        left_out = np.array(
            [[self._left_out(i, j) or {i, j} in named for j in range(n)] for i in range(n)], bool
        ).reshape(n, n)
        for wanted in (touch | left_out & touches & touches[:, None], touch):
            classes = [row for row in dict.fromkeys(map(tuple, wanted)) if any(row)]
            if len(classes) > _MASK_BITS:
                continue
            bits = [0 if not any(row) else 1 << classes.index(tuple(row)) for row in wanted]
            affinity = [
                reduce(or_, (bits[j] for j in range(n) if wanted[i, j]), 0) for i in range(n)
            ]
            return list(zip(bits, affinity, strict=True))
        raise ConfigError(
            f"to_mujoco of scene {self.scene.name!r}: its {len(layout.pairs)} pairs need more than "
            f"{_MASK_BITS} bits of contype and conaffinity. Let more pairs touch, or fewer geoms."
        )

    def _left_out(self, i: int, j: int) -> bool:
        """Whether MuJoCo's filters leave out the pair of two geoms whatever their bits are."""
        one, two = self.layout.geoms[i], self.layout.geoms[j]
        if one.body == two.body or one.kind == two.kind == "plane":
            return True
        disabled = self.spec.option.disableflags & int(
            self.mujoco.mjtDisableBit.mjDSBL_FILTERPARENT
        )
        return not disabled and self._is_family(Pair((i, j), 3, 1))

    def _add_pairs(self) -> None:
        numbers, geoms = self.scene.constraints.pairs, self.layout.geoms
        own = sorted(
            (p for p in self.layout.pairs if p.parameters >= 0), key=lambda p: p.parameters
        )
        for pair in own:
            k = pair.parameters
            self.spec.add_pair(
                geomname1=geoms[pair.geoms[0]].name,
                geomname2=geoms[pair.geoms[1]].name,
                condim=pair.condim,
                friction=np.asarray(numbers.friction)[k],
                solref=np.asarray(numbers.solref)[k],
                solreffriction=np.asarray(numbers.solref_friction)[k],
                solimp=np.asarray(numbers.solimp)[k],
                margin=float(np.asarray(numbers.margin)[k]),
                gap=float(np.asarray(numbers.gap)[k]),
            )

    # --- equalities, actuators ---

    def _add_equalities(self) -> None:
        mujoco, numbers = self.mujoco, self.scene.constraints.equalities
        for e, equality in enumerate(self.layout.equalities):
            added = self.spec.add_equality(
                type=getattr(mujoco.mjtEq, f"mjEQ_{equality.kind.upper()}"),
                active=bool(np.asarray(numbers.active)[e]),
                solref=np.asarray(numbers.solref)[e],
                solimp=np.asarray(numbers.solimp)[e],
            )
            if equality.name:
                added.name = equality.name
            if equality.kind == "joint":
                added.objtype = mujoco.mjtObj.mjOBJ_JOINT
                added.name1 = self._joint_of(equality.first)
                if equality.second >= 0:
                    added.name2 = self._joint_of(equality.second)
                data = np.zeros(len(added.data))
                data[:5] = np.asarray(numbers.polynomial)[e]
                added.data = data
                self.equality_data.append(None)
            else:
                self._set_ends(added, e, equality)

    def _set_ends(self, added: Any, e: int, equality: Equality) -> None:
        """The points, or frames, that a connect or weld constraint holds together."""
        mujoco, numbers = self.mujoco, self.scene.constraints.equalities
        one, two = self._ends(e)
        data = np.zeros(len(added.data))
        data[10] = np.asarray(numbers.torque_scale)[e]
        if self._between_sites(e):
            added.objtype = mujoco.mjtObj.mjOBJ_SITE
            added.name1 = self._site_at(equality.links[0], one)
            added.name2 = self._site_at(equality.links[1], two)
            added.data = data
            self.equality_data.append(None)
            return
        added.objtype = mujoco.mjtObj.mjOBJ_BODY
        added.name1, added.name2 = (self.layout.links[i].name for i in equality.links)
        if equality.kind == "weld":
            data[:3], data[3:6] = two.position, one.position
            data[6:10] = _quaternion(mujoco, one.rotation)
        else:
            data[:3], data[3:6] = one.position, two.position
        added.data = data
        self.equality_data.append(data)

    def _ends(self, e: int) -> tuple[_Pose, _Pose]:
        """Poses, in the links, of what a connect or weld constraint holds together."""
        numbers, links = self.scene.constraints.equalities, self.layout.equalities[e].links
        one, two = (
            self.link_pose[link].inverse
            @ _Pose(
                np.asarray(numbers.position)[e, k],
                _matrix(self.mujoco, np.asarray(numbers.rotation)[e, k]),
            )
            for k, link in enumerate(links)
        )
        return one, two

    def _between_sites(self, e: int) -> bool:
        """Whether MuJoCo needs sites for a weld: it turns the frame of the first body only."""
        if self.layout.equalities[e].kind != "weld":
            return False
        return not np.allclose(self._ends(e)[1].rotation, np.eye(3), rtol=0, atol=_SAME_POSE)

    def _site_at(self, link: int, pose: _Pose) -> str:
        """Name of a site at a pose in a link's frame; added if there is none."""
        for name, (owner, at) in self.sites.items():
            if owner == link and pose.is_near(at):
                return name
        name = f"equality site {len(self.sites)}"
        self._add_site(name, link, pose)
        return name

    def _add_site(self, name: str, link: int, pose: _Pose) -> None:
        self.elements[link].add_site(
            name=name, pos=pose.position, quat=_quaternion(self.mujoco, pose.rotation)
        )
        self.sites[name] = link, pose

    def _joint_of(self, dof: int) -> str:
        """Name of MuJoCo's joint of a single degree of freedom."""
        topology = self.system.topology
        body = int(np.searchsorted(topology.v_index, dof, side="right")) - 1
        joint = topology.joints[body]
        k = dof - int(topology.v_index[body])
        return joint.name if joint.nv == 1 else f"{joint.name}.{k}"

    def _add_actuators(self) -> None:
        mujoco, act = self.mujoco, self.scene.actuators
        for i, name in enumerate(act.names):
            gain, bias = np.asarray(act.gain)[i], np.asarray(act.bias)[i]
            affine = mujoco.mjtGain.mjGAIN_AFFINE
            added = self.spec.add_actuator(
                name=name,
                trntype=mujoco.mjtTrn.mjTRN_JOINT,
                target=self._joint_of(act.dofs[i]),
                gaintype=affine if gain[1:].any() else mujoco.mjtGain.mjGAIN_FIXED,
                biastype=mujoco.mjtBias.mjBIAS_AFFINE if bias.any() else mujoco.mjtBias.mjBIAS_NONE,
            )
            added.gear = [float(np.asarray(act.gear)[i]), 0, 0, 0, 0, 0]
            added.gainprm[:3] = gain
            added.biasprm[:3] = bias
            for which, ranges in (("ctrl", act.ctrl_range), ("force", act.force_range)):
                own = np.asarray(ranges)[i]
                if np.isfinite(own).any():
                    setattr(added, f"{which}limited", True)
                    setattr(added, f"{which}range", np.clip(own, -_LARGEST, _LARGEST))

    # --- after compilation ---

    def _check_order(self, model: Any) -> None:
        """Joints must come in the same order: MuJoCo numbers bodies depth first."""
        mujoco = self.mujoco
        theirs = [
            mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, j).partition(".")[0]
            for j in range(model.njnt)
        ]
        ours = [j.name.partition(".")[0] for j in self.system.topology.joints]
        if list(dict.fromkeys(theirs)) != list(dict.fromkeys(ours)):
            raise ConfigError(
                f"to_mujoco of scene {self.scene.name!r}: its bodies are not numbered depth first, "
                f"as MuJoCo's are: joints are {ours}, and would be {theirs}."
            )

    def _finish(self, model: Any) -> None:
        """Numbers by degree of freedom, and those that MuJoCo's compiler would compute anew."""
        mujoco, constraints = self.mujoco, self.scene.constraints
        model.dof_armature[:] = np.broadcast_to(self.system.armature, model.nv)
        model.dof_damping[:] = np.broadcast_to(self.system.damping, model.nv)
        friction = np.broadcast_to(self.system.friction, model.nv)
        counts = np.isin(np.arange(model.nv), self.layout.friction_loss)
        model.dof_frictionloss[:] = np.where(counts, friction, 0.0)
        model.dof_solref[:] = constraints.joints.friction_solref
        model.dof_solimp[:] = constraints.joints.friction_solimp
        mujoco.mj_setConst(model, mujoco.MjData(model))  # some of the mass matrix is precomputed
        model.qpos_spring[:] = self.scene.spring_reference
        for e, data in enumerate(self.equality_data):
            if data is not None:
                model.eq_data[e] = data
        model.body_invweight0[:, 0] = constraints.weights.translation
        model.body_invweight0[:, 1] = constraints.weights.rotation
        model.dof_invweight0[:] = constraints.weights.dof


def _set_first(element: Any, field: str, value: float) -> None:
    """Set a number that is the first of several in newer versions of MuJoCo."""
    if np.ndim(getattr(element, field)) == 0:
        setattr(element, field, value)
    else:
        getattr(element, field)[0] = value


def _pose_of(frame: Frame) -> _Pose:
    return _Pose(np.asarray(frame.position, float), np.asarray(frame.rotation, float))


def _quaternion(mujoco: Any, rotation: Array) -> Array:
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(rotation).ravel())
    return quaternion


def _matrix(mujoco: Any, quaternion: Array | Sequence[float]) -> Array:
    matrix, unit = np.zeros(9), np.array(quaternion, float)
    mujoco.mju_normalize4(unit)
    mujoco.mju_quat2Mat(matrix, unit)
    return matrix.reshape(3, 3)


def _turn(mujoco: Any, axis: Array, angle: float) -> Array:
    return _matrix(mujoco, np.array([np.cos(angle / 2), *(np.sin(angle / 2) * axis)]))


def _principal(mujoco: Any, inertia: Array) -> tuple[Array, Array]:
    """Principal moments and the quaternion of their axes; the identity where it is diagonal.

    Not left to the compiler, whose own decomposition is exact to 1e-12 kg m^2 only.
    """
    off = np.abs(inertia - np.diag(np.diag(inertia))).max()
    if off <= 1e-15 * np.abs(inertia).max():
        return np.diag(inertia).copy(), np.array([1.0, 0.0, 0.0, 0.0])
    moments, axes = np.linalg.eigh(inertia)
    axes[:, 0] *= np.sign(np.linalg.det(axes))
    return moments, _quaternion(mujoco, axes)
