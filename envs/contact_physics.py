"""Contact physics: a scene in the place of a robot, of which one member is controlled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from numpy.typing import NDArray

from fraxenv.dynamics import (
    WORLD,
    MemberSlices,
    Robot,
    Scene,
    Shape,
    Terms,
    compute_terms,
    forward_kinematics,
    restrict_terms,
)
from fraxenv.dynamics.math.rotation import rotation_to
from fraxenv.dynamics.model.combine import extract, with_extracted
from fraxenv.dynamics.model.fingerprint import fingerprint
from fraxenv.dynamics.scene.actuators import joint_actuators
from fraxenv.dynamics.scene.contacts import contacts as find_contacts
from fraxenv.dynamics.scene.pair_contacts import PairContacts, no_contacts, pair_contacts
from fraxenv.dynamics.scene.step import scene_step
from fraxenv.errors import ConfigError, unknown_name

from .control_loop import Physics
from .state import EnvParams
from .world import ObjectState, SceneState, SolverReport, World

FORCE_COLOR = (0.9, 0.15, 0.55, 1.0)
THICK = 0.003
"""m, radius of the lines that stand for forces."""
LONGEST, HALF = 0.3, 30.0
"""m, which no line reaches, and N, at which it is half as long."""


class Solved(NamedTuple):
    """One step of a whole forest.

    Attributes:
        q: (nq,), configuration afterwards.
        v: (nv,), velocity afterwards.
        acceleration: (nv,), the next warm start.
        contacts: by pair of geoms.
        report: how well the constraints were solved.
    """

    q: Array
    v: Array
    acceleration: Array
    contacts: PairContacts
    report: SolverReport


@dataclass(frozen=True, eq=False)
class ContactPhysics(Physics):
    """`fraxenv.dynamics.scene_step`: a scene with its contacts, joint limits and friction.

    Controller, safety filter and motors have the controlled robot alone, and what its hand holds if
    `EnvParams.payload` says so; the other members are objects in `EnvState.world`. The scene's own
    actuators are left out: the environment's motors drive the robot.

    The scene's numbers are constants of the compiled program, unless `EnvParams.scene` has others.

    Attributes:
        scene: the scene. Its timestep does not count; `physics_hz` of the environment does.
        controlled: name of the controlled member; the first if empty.

    Raises:
        UnknownNameError: the scene has no such member.
    """

    scene: Scene
    controlled: str = ""

    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        members = self.scene.members
        name = self.controlled or next(iter(members))
        if name not in members:
            raise unknown_name("member", name, members, f"of scene {self.scene.name!r}")
        object.__setattr__(self, "controlled", name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContactPhysics) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def _digest(self) -> bytes:
        return fingerprint((self.scene, self.controlled))

    @property
    def member(self) -> MemberSlices:
        """The controlled robot's entries in arrays of the scene's forest."""
        return self.scene.members[self.controlled]

    @cached_property
    def robot(self) -> Robot:
        """The controlled robot."""
        return extract(self.scene.system, self.member, self.controlled)

    @cached_property
    def objects(self) -> dict[str, MemberSlices]:
        """Entries of all other members, by name, in the order of the forest."""
        others = {n: m for n, m in self.scene.members.items() if n != self.controlled}
        return dict(sorted(others.items(), key=lambda item: item[1].q.start))

    @cached_property
    def loose(self) -> tuple[str, ...]:
        """Names of the objects that are one body each, and move freely."""
        joints = self.scene.system.topology.joints
        return tuple(
            name
            for name, m in self.objects.items()
            if [j.kind for j in joints[m.bodies.start : m.bodies.stop]] == ["floating"]
        )

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Names of the geoms of each pair that may touch."""
        return self.scene.pair_names

    def check(self, where: str, params: EnvParams) -> None:
        """Refuse parameters that a scene cannot have.

        Raises:
            ConfigError: `params.robot` is set, or `params.scene` is another scene, or friction is
                randomised of joints that have none, or sizes of objects where none moves freely.
        """
        if params.robot is not None:
            raise ConfigError(
                f"{where}: params.robot is set, expected None: the robot is a part of the scene. "
                "Set params.scene, e.g. to scene.with_system(system.replace(mass=...))."
            )
        given, own = params.scene, self.scene
        if given is not None and (
            given.system.topology != own.system.topology
            or given.constraints.layout != own.constraints.layout
        ):
            raise ConfigError(
                f"{where}: params.scene is {given.name!r} with other bodies, geoms or pairs, "
                f"expected {own.name!r} with other numbers. Make an environment of that scene."
            )
        random, v = params.randomisation, self.member.v
        if random is not None and random.object_size is not None and not self.loose:
            raise ConfigError(
                f"{where}: randomisation of object_size, expected a scene with an object that is "
                f"one body and moves freely; {own.name!r} has "
                f"{', '.join(self.objects) or 'no objects'}. Leave it out."
            )
        lossless = set(range(v.start, v.stop)) - set(own.constraints.layout.friction_loss)
        if random is not None and random.friction is not None and lossless:
            names = [own.system.topology.dof_names[i] for i in sorted(lossless)]
            raise ConfigError(
                f"{where}: randomisation of friction, which the scene's joints {', '.join(names)} "
                "do not have. Build the scene of a robot with some friction in every joint."
            )

    def nominal(self, robot: Robot, params: EnvParams) -> Robot:
        """The controlled robot as these parameters have it."""
        if params.scene is None:
            return robot
        return extract(params.scene.system, self.member, self.controlled)

    def model(
        self,
        robot: Robot,
        true_robot: Robot | None,
        params: EnvParams,
        drawn: Mapping[str, Any],
    ) -> Scene:
        """The scene that moves, with the numbers of the true robot, and what is drawn of it."""
        scene = self.scene if params.scene is None else params.scene
        system = scene.system
        if true_robot is not None:
            system = with_extracted(system, self.member, true_robot)
        if "object_mass" in drawn:
            factor = self._of_bodies(drawn["object_mass"])
            mass, inertia = jnp.asarray(system.mass), jnp.asarray(system.inertia)
            system = system.replace(mass=factor * mass, inertia=factor[:, None, None] * inertia)
        if "object_size" in drawn:
            factor = self._of_bodies(drawn["object_size"])
            com, inertia = jnp.asarray(system.com), jnp.asarray(system.inertia)
            squared = (factor * factor)[:, None, None]
            system = system.replace(com=factor[:, None] * com, inertia=squared * inertia)
        if system is not scene.system:
            scene = scene.with_system(system)
        scene = self._with_contacts(scene, drawn)
        return dataclasses.replace(scene, actuators=joint_actuators(scene.system, (), scene.name))

    def _of_bodies(self, factors: Mapping[str, ArrayLike]) -> Array:
        """Factors of all bodies (nb,), of those of objects by name; one of the others."""
        factor = jnp.ones(self.scene.system.nb, jnp.result_type(*factors.values()))
        for name, own in factors.items():
            factor = factor.at[self.objects[name].bodies].set(own)
        return factor

    def _with_contacts(self, scene: Scene, drawn: Mapping[str, Any]) -> Scene:
        """The scene with other friction of all geoms, other time constants of the robot's, and
        other sizes of the objects'.
        """
        constraints = scene.constraints
        geoms, bodies = constraints.geoms, self.member.bodies
        if "contact_friction" in drawn:
            geoms = dataclasses.replace(
                geoms, friction=drawn["contact_friction"] * jnp.asarray(geoms.friction)
            )
        if "pad_compliance" in drawn:
            owned = np.array(
                [g.body in range(bodies.start, bodies.stop) for g in constraints.layout.geoms]
            )
            factor = jnp.where(owned, drawn["pad_compliance"], 1.0)
            geoms = dataclasses.replace(
                geoms, solref=jnp.asarray(geoms.solref).at[:, 0].multiply(factor)
            )
        if "object_size" in drawn:
            moving = [(i, g.body) for i, g in enumerate(constraints.layout.geoms) if g.body >= 0]
            which, bodies_of = (np.array(x) for x in zip(*moving, strict=True))
            factor = self._of_bodies(drawn["object_size"])[bodies_of, None]
            geoms = dataclasses.replace(
                geoms,
                size=jnp.asarray(geoms.size).at[which].multiply(factor),
                position=jnp.asarray(geoms.position).at[which].multiply(factor),
            )
        if geoms is constraints.geoms:
            return scene
        return dataclasses.replace(scene, constraints=dataclasses.replace(constraints, geoms=geoms))

    def begin(self, where: str, world: World, dtype: DTypeLike) -> World:
        """The world with all objects, those it does not name as they are by default.

        Raises:
            UnknownNameError: the scene has no such object.
            ConfigError: an object's state has the wrong shape.
        """
        given, objects = world.objects, {}
        for name in given:
            if name not in self.objects:
                raise unknown_name("object", name, self.objects, f"in {where}")
        default = np.asarray(self.scene.system.q_default)
        for name, m in self.objects.items():
            start = given.get(name, ObjectState(default[m.q]))
            nv = m.v.stop - m.v.start
            q = jnp.asarray(start.q, dtype)
            v = jnp.zeros(nv, dtype) if start.v is None else jnp.asarray(start.v, dtype)
            if q.shape != default[m.q].shape or v.shape != (nv,):
                raise ConfigError(
                    f"{where}: object {name!r} has q of shape {q.shape} and v of shape {v.shape}, "
                    f"expected {default[m.q].shape} and ({nv},)."
                )
            objects[name] = ObjectState(q, v)
        scene = SceneState(
            objects,
            jnp.zeros(self.scene.nv, dtype),
            no_contacts(self.scene.pair_names, dtype),
            SolverReport.nothing(dtype),
        )
        return dataclasses.replace(world, scene=scene)

    def at_action(self, scene: Any) -> Any:
        """The scene's state with nothing yet to report of this policy step."""
        return dataclasses.replace(scene, solver=SolverReport.nothing(scene.warm_start.dtype))

    def terms(self, model: Any, q: Array, v: Array, scene: Any) -> tuple[Terms, Terms]:
        """Terms of the controlled robot, and of the forest."""
        whole = compute_terms(model.system, *self._joined(q, v, scene))
        return restrict_terms(whole, self.member), whole

    def step(
        self,
        model: Any,
        q: Array,
        v: Array,
        tau: Array,
        dt: Array,
        terms: Terms | None,
        scene: Any,
    ) -> tuple[Array, Array, Any]:
        """Configuration (nq,) and velocity (nv,) after `dt`, s, and the scene's next state."""
        q_all, v_all = self._joined(q, v, scene)
        own, nv = self.member, self.scene.nv
        tau_all = jnp.pad(tau, (own.v.start, nv - own.v.stop))
        after = self.solve(model, q_all, v_all, tau_all, dt, terms, scene)
        before: SolverReport = scene.solver
        report = SolverReport(
            jnp.maximum(before.residual, after.report.residual),
            jnp.maximum(before.rounds, after.report.rounds),
            before.converged & after.report.converged,
        )
        objects = {n: ObjectState(after.q[m.q], after.v[m.v]) for n, m in self.objects.items()}
        state = SceneState(objects, after.acceleration, after.contacts, report)
        return after.q[own.q], after.v[own.v], state

    def solve(
        self,
        model: Any,
        q: Array,
        v: Array,
        tau: Array,
        dt: Array,
        terms: Terms | None,
        scene: SceneState,
    ) -> Solved:
        """One step of the whole forest, from `q` (nq,) and `v` (nv,) under `tau` (nv,)."""
        q, v, s = scene_step(model, q, v, tau, dt, scene.warm_start, terms=terms)
        contacts = pair_contacts(model.pair_names, model.constraints.layout, s)
        report = SolverReport(s.residual, s.rounds, s.converged)
        return Solved(q, v, s.acceleration, contacts, report)

    def report(self, world: World) -> dict[str, Any]:
        """What `info` says: how well it was solved, contacts by pair, and where objects are."""
        scene: Any = world.scene
        solver, contacts = scene.solver, scene.contacts
        return {
            "contact_residual": solver.residual,
            "contact_rounds": solver.rounds,
            "contact_converged": solver.converged,
            "contacts": {
                "active": contacts.active,
                "normal_force": contacts.normal_force,
                "tangential_force": contacts.tangential_force,
                "slip_speed": contacts.slip_speed,
            },
            "objects": {n: {"q": o.q, "v": o.v} for n, o in scene.objects.items()},
        }

    def shapes(self, world: World, sizes: Mapping[str, ArrayLike] | None = None) -> list[Shape]:
        """Shapes of all that is not the controlled robot, where they are, to be drawn."""
        factor = np.append(np.asarray(self._of_bodies(sizes)), 1.0) if sizes else None
        q = self._configuration(None, world)
        position, rotation = (np.asarray(x, float) for x in jax.device_get(self._poses(q)))
        position = np.concatenate([position, np.zeros((1, 3))])  # the last, WORLD
        rotation = np.concatenate([rotation, np.eye(3)[None]])
        around = self._around
        if factor is not None:
            around = tuple(_scaled(s, float(factor[s.body])) for s in around)
        return [
            dataclasses.replace(
                s,
                body=WORLD,
                position=position[s.body] + rotation[s.body] @ s.position,
                rotation=rotation[s.body] @ s.rotation,
            )
            for s in around
        ]

    def force_shapes(
        self, q: ArrayLike, world: World, sizes: Mapping[str, ArrayLike] | None = None
    ) -> list[Shape]:
        """Shapes of the contact forces, to be drawn: of each pair that touches, the normal force.

        The points are those at this configuration, the forces those of the last physics step.
        """
        forces = np.asarray(world.contacts.normal_force, float).tolist()
        if not any(force > 0 for force in forces):
            return []
        scene = self._with_contacts(self.scene, {"object_size": sizes} if sizes else {})
        found = jax.device_get(self._contacts(scene, self._configuration(q, world)))
        points, normals = (np.asarray(x, float) for x in (found.position, found.frame[:, 0]))
        shapes: list[Shape] = []
        end = 0
        for pair, force in zip(self.scene.constraints.layout.pairs, forces, strict=True):
            own = slice(end, end := end + pair.slots)
            if force > 0:
                # The step may have parted them: then the nearest point.
                near = found.active[own] | (found.distance[own] == found.distance[own].min())
                point, normal = points[own][near].mean(axis=0), normals[own][near].mean(axis=0)
                shapes += _line(point, normal, LONGEST * force / (force + HALF))
        return shapes

    @cached_property
    def _contacts(self) -> Any:
        return jax.jit(lambda scene, q: dataclasses.replace(find_contacts(scene, q), pair=()))

    def _configuration(self, q: ArrayLike | None, world: World) -> NDArray[np.float64]:
        """The forest's, on the host; of the controlled robot None for its default."""
        whole = np.array(self.scene.system.q_default, float)
        if q is not None:
            whole[self.member.q] = np.asarray(q)
        for name, m in self.objects.items():
            whole[m.q] = np.asarray(world.objects[name].q)
        return whole

    @cached_property
    def _poses(self) -> Any:
        def poses(q: Array) -> tuple[Array, Array]:
            kin = forward_kinematics(self.scene.system, q)
            return kin.position, kin.rotation

        return jax.jit(poses)

    @cached_property
    def _around(self) -> tuple[Shape, ...]:
        """Shapes of bodies that are not the controlled robot's, in these bodies' frames."""
        topology, own = self.scene.system.topology, self.member.bodies
        shapes = topology.visual_shapes or topology.collision_shapes
        return tuple(s for s in shapes if not own.start <= s.body < own.stop)

    def _joined(self, q: Array, v: Array, scene: SceneState) -> tuple[Array, Array]:
        """Configuration and velocity of the forest."""
        parts = {n: (scene.objects[n].q, scene.objects[n].v) for n in self.objects}
        parts[self.controlled] = q, v
        ordered = sorted(self.scene.members.items(), key=lambda item: item[1].q.start)
        qs, vs = zip(*(parts[name] for name, _ in ordered), strict=True)
        return jnp.concatenate(qs), jnp.concatenate(vs)


def _scaled(shape: Shape, factor: float) -> Shape:
    """The shape of a body that is larger, or smaller."""
    size = tuple(factor * s for s in shape.size)
    return dataclasses.replace(shape, size=size, position=factor * np.asarray(shape.position))


def _line(start: NDArray[np.float64], normal: NDArray[np.float64], length: float) -> list[Shape]:
    ball = Shape("sphere", (2 * THICK,), start, rgba=FORCE_COLOR)
    size = float(np.linalg.norm(normal))
    if not size > 0:  # of the mean of opposite normals
        return [ball]
    way = normal / size
    middle, along = start + 0.5 * length * way, rotation_to(way)
    return [ball, Shape("cylinder", (THICK, length), middle, along, FORCE_COLOR)]
