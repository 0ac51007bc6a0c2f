"""An arm of a MuJoCo model for our controllers: its `Robot`, its inputs, its hand's actions."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fraxenv.controllers import OSC, DifferentialIK
from fraxenv.controllers.safety.filter import SafetyFilter, default_barriers
from fraxenv.controllers.servo_ik import ServoIK
from fraxenv.dynamics import (
    WORLD,
    Frame,
    MjcfIndices,
    Robot,
    compute_terms,
    forward_kinematics,
    frame_pose,
    load_mjcf_robot,
    mjcf_indices,
    mount,
    self_distances,
)
from fraxenv.dynamics.scene.unsupported import LEFT_OUT
from fraxenv.errors import ConfigError, check_choice, unknown_name

from .actions.base import ActionSpace
from .actions.impedance import VariableImpedance
from .actions.names import make_action
from .arm_control import ArmControl

Numbers = NDArray[np.floating[Any]]

HAND = "hand"
"""Name of the end effector in the arm's model."""
_POSTURES = 1000
_OWN_HAND = "end_effector_of_the_model"
_SAME = 5e-3
"""m and rad, within which a user's robot has its hand where MuJoCo's model has it."""
_REACH = 1.0
"""m, from the arm's base: the box that absolute positions are mapped to, by default."""


Writer = Callable[[Numbers, Any, Numbers], None]
"""Has a `mujoco.MjData` drive the arm with torques (nv,), N m and N, at velocities (nv,)."""


class Written(NamedTuple):
    """What a `mujoco.MjData` is given for torques (nv,) on the arm's joints, (nv,) each.

    The numbers `factor torque - at_rest - by_length length - by_speed v`, in a `field` at `places`,
    at the actuators' lengths and the joints' velocities.
    """

    field: str
    places: NDArray[np.intp]
    factor: Numbers
    at_rest: Numbers
    by_length: Numbers
    by_speed: Numbers
    actuator: NDArray[np.intp]

    def writer(self) -> Writer:
        """What writes them."""
        field, factor = self.field, self.factor
        places, actuator = span(self.places), span(self.actuator)
        _, _, _, at_rest, by_length, by_speed, _ = self
        if not (np.any(at_rest) or np.any(by_length) or np.any(by_speed)):

            def write_torques(torque: Numbers, data: Any, v: Numbers) -> None:
                getattr(data, field)[places] = factor * torque

            return write_torques

        def write(torque: Numbers, data: Any, v: Numbers) -> None:
            passive = at_rest + by_length * data.actuator_length[actuator] + by_speed * v
            getattr(data, field)[places] = factor * torque - passive

        return write


class Drive(NamedTuple):
    """Actuators of the arm's joints, (nv,) each: force = gain u + bias + by_length length +
    by_speed speed, torque = gear force, length = gear q, speed = gear v.
    """

    at: MjcfIndices
    actuator: NDArray[np.intp]
    gear: Numbers
    gain: Numbers
    bias: Numbers
    by_length: Numbers
    by_speed: Numbers

    def inputs(self, torque: Any, length: Any, v: Any) -> Any:
        """The inputs (nv,) that give torques (nv,), N m and N, at these lengths and velocities."""
        passive = self.bias + self.by_length * length + self.by_speed * self.gear * v
        return (torque / self.gear - passive) / self.gain

    def written(self) -> Written:
        """The inputs, as `inputs` has them."""
        return Written(
            "ctrl",
            self.at.ctrl,
            1 / (self.gear * self.gain),
            self.bias / self.gain,
            self.by_length / self.gain,
            self.by_speed * self.gear / self.gain,
            self.actuator,
        )


class Applied(NamedTuple):
    """Joints that are given torques as such, whatever actuators they have."""

    at: MjcfIndices

    @classmethod
    def of(cls, model: Any, robot: Robot) -> Applied:
        """The joints of an arm in a `mujoco.MjModel`."""
        return cls(mjcf_indices(model, robot))

    def written(self) -> Written:
        """The torques."""
        none, index = np.zeros(len(self.at.qvel)), self.at.qvel
        return Written("qfrc_applied", index, none + 1, none, none, none, none.astype(int))


def span(index: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """The index as a slice, if its numbers follow each other: which NumPy takes sooner."""
    first, count = int(index[0]), len(index)
    follows = first >= 0 and np.array_equal(index, first + np.arange(count))
    return slice(first, first + count) if follows else index


def arm_of(mujoco: Any, model: Any, end_effector: str, root: str | None) -> Robot:
    """The arm that carries a body or site: the joints on the way to it, all others frozen.

    Raises:
        UnknownNameError: there is no such body or site.
        ConfigError: nothing moves it, a joint on the way is free or a ball, or the tree begins with
            a body that has no name.
    """
    root = first_body(mujoco, model, end_effector) if root is None else root
    named: dict[str, Any] = {"root": root, "end_effectors": {HAND: end_effector}}
    whole = load_mjcf_robot(model, **named, leave_out=LEFT_OUT)
    topology, body = whole.topology, whole.frame(HAND).body
    way = np.zeros(whole.nb, bool) if body == WORLD else topology.supported[body]
    odd = [
        joint.name
        for joint, on_way in zip(topology.joints, way, strict=True)
        if on_way and joint.kind in ("floating", "spherical")
    ]
    if odd or not way.any():
        what = f"joint {odd[0]!r} is free or a ball" if odd else "no joint moves it"
        raise ConfigError(
            f"on the way to end_effector={end_effector!r} {what}, expected hinges and slides. "
            "Choose another root."
        )
    others = [j.name for j, on_way in zip(topology.joints, way, strict=True) if not on_way]
    arm = load_mjcf_robot(model, **named, freeze=others, leave_out=LEFT_OUT)
    return _with_ends(arm, whole, others)


def given_arm(
    mujoco: Any,
    model: Any,
    robot: Robot,
    end_effector: str,
    root: str | None,
    joints: Sequence[str] | None,
) -> Robot:
    """A user's model of an arm, put where MuJoCo's model has the arm, with its names.

    Its root link is where `root` is, if it is not in place already, and the end effector "hand"
    moves with its last link as `end_effector` does in the model.

    Args:
        mujoco: the package.
        model: a `mujoco.MjModel`.
        robot: a chain of hinges and slides.
        end_effector: a body or site of the model.
        root: a body of the model; None for the one that the tree begins with.
        joints: what the model calls the robot's joints; None if the same.

    Raises:
        UnknownNameError: the model has no such joint, body or site.
        ConfigError: there is not one name for each joint; or the robot moves the hand otherwise
            than the model does.
    """
    own = robot.joint_names
    names = own if joints is None else tuple(joints)
    if len(names) != len(own) or robot.nq != len(own):
        raise ConfigError(
            f"joints={list(names)}, expected one name for each of the robot's joints "
            f"{', '.join(own)}, which have to be hinges and slides."
        )
    renamed = tuple(
        dataclasses.replace(joint, name=name)
        for joint, name in zip(robot.topology.joints, names, strict=True)
    )
    topology = dataclasses.replace(robot.topology, joints=renamed)
    arm = dataclasses.replace(robot, topology=topology)
    at = mjcf_indices(model, arm)
    data = mujoco.MjData(model)
    base = first_body(mujoco, model, end_effector) if root is None else root

    def there(q: Numbers, name: str) -> tuple[Numbers, Numbers]:
        data.qpos[at.qpos] = q
        mujoco.mj_kinematics(model, data)
        return hand_pose(mujoco, model, data, name)

    link = arm.topology.frames[0]
    place, turn = there(data.qpos[at.qpos].copy(), base)
    turn = turn @ link.rotation.T
    postures = np.asarray(random_postures(arm), float)[:3]
    ends = [there(q, end_effector) for q in postures]
    tried = [
        _with_hand(each, postures, ends)
        for each in (arm, mount(arm, place - turn @ link.position, turn))
    ]
    found, far, angle = min(tried, key=lambda x: max(x[1:]))
    if max(far, angle) > _SAME:
        raise ConfigError(
            f"robot: in some posture its hand is {far:.3f} m and {angle:.3f} rad from where the "
            f"model has {end_effector!r}, expected the same kinematics from body {base!r} on. Say "
            "by `root` where its root link is, and by `joints` which joints are its own, in their "
            "order."
        )
    return found


def _with_hand(
    arm: Robot, postures: Numbers, ends: Sequence[tuple[Numbers, Numbers]]
) -> tuple[Robot, float, float]:
    """The arm with a hand on its last link, and how far it is off, m and rad.

    The hand is where the model has its end effector in the first posture.
    """
    link = arm.topology.body_names[-1]

    def seen(arm: Robot, frame: str, k: int) -> tuple[Numbers, Numbers]:
        position, rotation = (np.asarray(x, float) for x in frame_pose(arm, postures[k], frame))
        return rotation.T @ (ends[k][0] - position), rotation.T @ ends[k][1]

    hand = Frame(_OWN_HAND, arm.nb - 1, *seen(arm, link, 0))
    topology = dataclasses.replace(
        arm.topology,
        frames=(*arm.topology.frames, hand),
        end_effectors={HAND: len(arm.topology.frames)},
    )
    arm = dataclasses.replace(arm, topology=topology)
    others = [seen(arm, HAND, k) for k in range(1, len(postures))]
    far = max(float(np.linalg.norm(offset)) for offset, _ in others)
    angle = max(float(np.linalg.norm(turn - np.eye(3))) for _, turn in others) / np.sqrt(2.0)
    return arm, far, angle


def hand_pose(mujoco: Any, model: Any, data: Any, name: str) -> tuple[Numbers, Numbers]:
    """Position (3,), m, and rotation (3, 3), world, of a body or site."""
    body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name)
    if body >= 0:
        return data.xpos[body].copy(), data.xmat[body].reshape(3, 3).copy()
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, name)
    return data.site_xpos[site].copy(), data.site_xmat[site].reshape(3, 3).copy()


def mocap_welds(model: Any, robot: Robot) -> NDArray[np.intp]:
    """Numbers of the equality constraints by which a mocap body holds what joints of an arm move.

    Args:
        model: a `mujoco.MjModel`.
        robot: the arm.
    """
    at = mjcf_indices(model, robot)
    arm = np.zeros(model.nbody, bool)
    for b in range(1, model.nbody):
        own = model.body_dofadr[b] + np.arange(model.body_dofnum[b])
        arm[b] = arm[model.body_parentid[b]] or bool(np.isin(own, at.qvel).any())
    mocap = model.body_mocapid >= 0
    ends = np.stack([model.eq_obj1id, model.eq_obj2id])
    of_bodies = model.eq_objtype == 1
    found = of_bodies & (arm[ends] & mocap[ends[::-1]]).any(axis=0)
    return np.flatnonzero(found)


def boxed(mujoco: Any, model: Any) -> Any:
    """The model with boxes in place of geoms that a `Robot` has no shapes for, as meshes.

    MuJoCo's own boxes around them, in their frames.
    """
    kinds = mujoco.mjtGeom
    touching = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    odd = (kinds.mjGEOM_MESH, kinds.mjGEOM_ELLIPSOID, kinds.mjGEOM_SDF)
    geoms = np.flatnonzero(np.isin(model.geom_type, [int(kind) for kind in odd]) & touching)
    if not len(geoms):
        return model
    changed, turn = copy.copy(model), np.zeros(9)
    for g in geoms:
        mujoco.mju_quat2Mat(turn, model.geom_quat[g])
        changed.geom_pos[g] += turn.reshape(3, 3) @ model.geom_aabb[g, :3]
    changed.geom_size[geoms] = model.geom_aabb[geoms, 3:]
    changed.geom_type[geoms] = int(kinds.mjGEOM_BOX)
    return changed


def _with_ends(arm: Robot, whole: Robot, frozen: Sequence[str]) -> Robot:
    """The arm with what frozen joints move at both ends of their ranges, as shapes, too."""
    topology = whole.topology
    held = np.array([joint.name in frozen for joint in topology.joints], bool)
    moved = (topology.supported & held).any(axis=1)
    shapes = [s for s in topology.collision_shapes if s.body != WORLD and moved[s.body]]
    limits = np.asarray(whole.position_limits, float)
    added = []
    for end in (0, 1):
        q = np.array(whole.q_default, float)
        for k in np.flatnonzero(held & (np.diff(topology.v_index) == 1)):
            bound = limits[topology.v_index[k], end]
            q[topology.q_index[k]] = bound if np.isfinite(bound) else q[topology.q_index[k]]
        poses = jax.tree.map(np.asarray, forward_kinematics(whole, q))
        for shape in shapes:
            carriers = np.flatnonzero(topology.supported[shape.body] & ~moved)
            position = poses.position[shape.body] + poses.rotation[shape.body] @ shape.position
            rotation, body = poses.rotation[shape.body] @ shape.rotation, WORLD
            if carriers.size:
                carrier = carriers[-1]
                turn = poses.rotation[carrier].T
                position, rotation = turn @ (position - poses.position[carrier]), turn @ rotation
                body = arm.topology.body_names.index(topology.body_names[carrier])
            added.append(
                dataclasses.replace(shape, body=body, position=position, rotation=rotation)
            )
    shapes_too = dataclasses.replace(
        arm.topology, collision_shapes=(*arm.topology.collision_shapes, *added)
    )
    return dataclasses.replace(arm, topology=shapes_too)


def with_self_collision(arm: Robot) -> Robot:
    """The arm with the pairs of its shapes that are to keep apart.

    Those of bodies that three joints or more lie between, which touch in some of a thousand random
    postures, and neither in most of them nor at rest, where they are made to.
    """
    shapes, parent = arm.topology.collision_shapes, arm.topology.parent

    def near(body: int) -> set[int]:
        """A body, and those that two joints or fewer lie between and the base."""
        found = {body}
        for _ in range(2):
            body = WORLD if body == WORLD else int(parent[body])
            found.add(body)
        return found

    every = [
        (i, j)
        for i, j in itertools.combinations(range(len(shapes)), 2)
        if shapes[i].body not in near(shapes[j].body) and shapes[j].body not in near(shapes[i].body)
    ]
    if not every:
        return arm

    def among(pairs: Any) -> Robot:
        topology = dataclasses.replace(arm.topology, self_collision_pairs=np.array(pairs, int))
        return dataclasses.replace(arm, topology=topology)

    robot = among(every)
    distances = jax.jit(jax.vmap(lambda q: self_distances(robot, q)))
    touch = np.asarray(distances(random_postures(arm))) < 0
    at_rest = np.asarray(distances(jnp.asarray(arm.q_default)[None]))[0] < 0
    share = touch.mean(axis=0)
    kept = (share > 0) & (share < 0.5) & ~at_rest
    return among(np.array(every, int)[kept])


def random_postures(robot: Robot) -> Array:
    """Random postures (1000, nq) within the limits; joints that turn freely within a turn."""
    limits = np.asarray(robot.position_limits, float)
    low, high = np.maximum(limits[:, 0], -np.pi), np.minimum(limits[:, 1], np.pi)
    return jnp.asarray(np.random.default_rng(0).uniform(low, high, (_POSTURES, robot.nq)))


def body_of(mujoco: Any, model: Any, end_effector: str) -> int:
    """Number of the body that a body or site is on.

    Raises:
        UnknownNameError: there is no such body or site.
    """
    kinds = mujoco.mjtObj
    body = int(mujoco.mj_name2id(model, kinds.mjOBJ_BODY, end_effector))
    site = int(mujoco.mj_name2id(model, kinds.mjOBJ_SITE, end_effector))
    if body < 0 and site < 0:
        counts = ((kinds.mjOBJ_BODY, model.nbody), (kinds.mjOBJ_SITE, model.nsite))
        names = [mujoco.mj_id2name(model, kind, i) for kind, n in counts for i in range(n)]
        raise unknown_name("body or site", end_effector, [n for n in names if n], "of the model")
    return body if body >= 0 else int(model.site_bodyid[site])


def first_body(mujoco: Any, model: Any, end_effector: str) -> str:
    """Name of the body that the tree of a body or site begins with.

    Raises:
        UnknownNameError: there is no such body or site.
        ConfigError: that body has no name.
    """
    first = int(model.body_rootid[body_of(mujoco, model, end_effector)])
    name: str | None = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, first)
    if name is None:
        raise ConfigError(
            f"the body that the tree of end_effector={end_effector!r} begins with has no name, "
            "expected one. Give it one, or choose another root."
        )
    return name


def drive_of(mujoco: Any, model: Any, robot: Robot) -> Drive:
    """How inputs become torques.

    Raises:
        ConfigError: a joint has no actuator of its own, or one whose force is not affine in its
            input, or has a state.
    """
    names, at = robot.topology.dof_names, mjcf_indices(model, robot)
    for dof, ctrl in enumerate(at.ctrl):
        if ctrl < 0:
            raise ConfigError(
                f"joint {names[dof]!r} of the arm has no actuator of its own, "
                "expected one on each joint. Choose another root, give the model one, or pass "
                "drive='joints' for torques without actuators."
            )
    first = model.actuator_ctrladr if hasattr(model, "actuator_ctrladr") else np.arange(model.nu)
    actuator = np.array([int(np.flatnonzero(first == c)[0]) for c in at.ctrl])
    servo = model.actuator_biastype[actuator] == int(mujoco.mjtBias.mjBIAS_AFFINE)
    affine = servo | (model.actuator_biastype[actuator] == int(mujoco.mjtBias.mjBIAS_NONE))
    affine &= model.actuator_gaintype[actuator] == int(mujoco.mjtGain.mjGAIN_FIXED)
    affine &= model.actuator_dyntype[actuator] == int(mujoco.mjtDyn.mjDYN_NONE)
    affine &= model.actuator_gainprm[actuator, 0] != 0
    if not affine.all():
        raise ConfigError(
            f"the actuator of joint {names[int(np.argmin(affine))]!r} has a state, or a force that "
            "is not affine in its input, expected a motor, or a servo of position or velocity. "
            "Give the model one."
        )
    bias = np.where(servo[:, None], model.actuator_biasprm[actuator, :3], 0.0)
    rows = model.actuator_outadr[actuator] if hasattr(model, "actuator_outadr") else actuator
    gear = model.actuator_gear[rows, 0].copy()
    return Drive(at, actuator, gear, model.actuator_gainprm[actuator, 0].copy(), *bias.T.copy())


def as_stepped(mujoco: Any, model: Any, robot: Robot, drive: Drive | Applied) -> Robot:
    """The arm as it answers to torques when passive forces, of damping too, are made up for.

    Damping that an integrator takes implicitly also resists acceleration, as inertia
    `time step x damping` of the joints: of joints' damping with Euler's, and of servos' with the
    implicit ones; see MuJoCo's documentation, Computation, Numerical integration.
    """
    option, kinds = model.opt, mujoco.mjtIntegrator
    damping = np.zeros(robot.nv)
    implicit = option.integrator in (kinds.mjINT_IMPLICIT, kinds.mjINT_IMPLICITFAST)
    euler = option.integrator == kinds.mjINT_EULER and not disabled(mujoco, model, "EULERDAMP")
    if implicit or euler:
        damping += joint_damping(mujoco, model, drive)
    if implicit and isinstance(drive, Drive):
        damping += np.maximum(-drive.by_speed * drive.gear**2, 0.0)
    armature = np.asarray(robot.armature, float) + option.timestep * damping
    return dataclasses.replace(robot, armature=armature, damping=np.zeros(robot.nv))


def joint_damping(mujoco: Any, model: Any, drive: Drive | Applied) -> Numbers:
    """(nv,), N m s/rad and N s/m, of the arm's joints."""
    found: Numbers = model.dof_damping[drive.at.qvel].copy()
    off = disabled(mujoco, model, "PASSIVE") or disabled(mujoco, model, "DAMPER")
    return found * (0.0 if off else 1.0)


def disabled(mujoco: Any, model: Any, flag: str) -> bool:
    """Whether a flag of the model's is set that disables something; False if MuJoCo has none so."""
    bit = getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}", None)
    return bit is not None and bool(model.opt.disableflags & int(bit))


def checked_velocity_limits(
    who: str, robot: Robot, given: float | Sequence[float]
) -> NDArray[np.floating[Any]]:
    """One limit for each joint (nv,), rad/s and m/s.

    Raises:
        ConfigError: they are not that, or not positive.
    """
    limits = np.asarray(given, float)
    if limits.shape not in ((), (robot.nv,)) or not (limits > 0).all():
        raise ConfigError(
            f"{who}: velocity_limits={given}, expected a positive number, or one for each of the "
            f"joints {', '.join(robot.joint_names)}."
        )
    return np.broadcast_to(limits, (robot.nv,)).copy()


def arm_space(
    robot: Robot, action: str | ActionSpace, options: Mapping[str, Any] | None
) -> ActionSpace:
    """The action space of the arm's hand.

    Raises:
        UnknownNameError: there is no such action space, or it has no such option.
    """
    space: Any = action
    if isinstance(action, str):
        base = robot.topology.position[0]
        space = make_action(action, HAND, (base - _REACH, base + _REACH))
    known = [field.name for field in dataclasses.fields(space)]
    for name in options or {}:
        if name not in known:
            raise unknown_name("option", name, known, f"of {type(space).__name__}")
    changed: ActionSpace = dataclasses.replace(space, **(options or {}))
    return changed


def usual_controller(robot: Robot, space: ActionSpace, drive: Drive | Applied | None = None) -> Any:
    """The controller of an action space's targets, with singularities where this arm has them.

    The space's own; but for poses of the hand of an arm whose joints all have position servos,
    `ServoIK` with the servos' gains.

    Args:
        robot: the arm.
        space: of its actions.
        drive: of its joints, where MuJoCo has some.

    Raises:
        ConfigError: it cannot do what the action asks for in any posture.
    """
    controller: Any = space.controller()
    servos = _servo_gains(drive)
    poses = isinstance(controller, OSC) and not isinstance(space, VariableImpedance)
    if poses and servos is not None:
        ik = DifferentialIK(controller.end_effector, task=controller.task)
        return ServoIK(_aware(robot, space, ik, 0.5), *servos)
    return _aware(robot, space, controller, 0.9)


def _servo_gains(drive: Drive | Applied | None) -> tuple[Numbers, Numbers] | None:
    """Stiffness and damping (nv,) where all joints have position servos; else None."""
    if not isinstance(drive, Drive) or not (drive.by_length < 0).all():
        return None
    square = drive.gear**2
    return -drive.by_length * square, np.maximum(-drive.by_speed * square, 0.0)


def _aware(robot: Robot, space: ActionSpace, controller: Any, comfortable: float) -> Any:
    """The controller with singularities where this arm has them.

    Its `singularity_threshold` is a third of the conditioning in a comfortable posture: than which
    the share `comfortable` of random postures is worse. That of operational space controllers is
    as of the bundled robots; `J J^T` is much better in a few postures than in most.
    """
    if not hasattr(controller, "singularity_threshold"):
        return controller

    def conditioning(q: Array) -> Array:
        control = ArmControl(robot, space, controller, 1e-3)
        memory = control.begin(q, jnp.zeros(robot.nv))
        terms = compute_terms(robot, q, jnp.zeros(robot.nv))
        telemetry = controller(robot, terms, memory.target, memory.controller, 1e-3)[2]
        return jnp.asarray(telemetry["conditioning"])

    found = np.asarray(jax.jit(jax.vmap(conditioning))(random_postures(robot)))
    if np.isnan(found).all():
        names = ", ".join(robot.joint_names)
        raise ConfigError(
            f"the arm's joints ({names}) cannot move the hand, or cannot turn it, in any posture: "
            "expected joints for the action. Choose another root, or action='joint_delta'."
        )
    good = float(np.quantile(np.nan_to_num(found), comfortable))
    if good <= 0:  # as of an arm in a plane: it is damped everywhere
        return controller
    return dataclasses.replace(controller, singularity_threshold=good / 3)


def usual_filter(given: str | SafetyFilter | None) -> SafetyFilter | None:
    """The filter that an option `safety` asks for: "cbf", "none", or one of its own.

    Raises:
        ConfigError: it is another word.
    """
    if isinstance(given, str):
        check_choice("safety", given, ("cbf", "none"))
        if given == "none":
            return None
        # Arms of MJCF are of capsules and boxes, whose distances bend as bundled robots' do not.
        return SafetyFilter(default_barriers(bounded_curvature=True), end_effectors=(HAND,))
    return given
