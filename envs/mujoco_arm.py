"""An arm of a MuJoCo model for our controllers: its `Robot`, its inputs, its hand's actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fraxenv.dynamics import MjcfIndices, Robot, compute_terms, load_mjcf_robot, mjcf_indices
from fraxenv.errors import ConfigError, unknown_name

from .actions.base import ActionSpace
from .actions.names import make_action
from .arm_control import ArmControl

Numbers = NDArray[np.floating[Any]]

HAND = "hand"
"""Name of the end effector in the arm's model."""
_POSTURES = 1000
_REACH = 1.0
"""m, from the arm's base: the box that absolute positions are mapped to, by default."""


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

    def inputs(self, torque: Numbers, data: Any, v: Numbers) -> Numbers:
        """The inputs (nv,) that give torques (nv,), N m and N."""
        length = data.actuator_length[self.actuator]
        passive = self.bias + self.by_length * length + self.by_speed * self.gear * v
        found: Numbers = (torque / self.gear - passive) / self.gain
        return found


def arm_of(mujoco: Any, model: Any, end_effector: str, root: str | None) -> Robot:
    """The arm that carries a body or site: the joints on the way to it, all others frozen.

    Raises:
        UnknownNameError: there is no such body or site.
        ConfigError: nothing moves it, or a joint on the way is free or a ball.
    """
    kinds = mujoco.mjtObj
    body = mujoco.mj_name2id(model, kinds.mjOBJ_BODY, end_effector)
    if body < 0:
        site = mujoco.mj_name2id(model, kinds.mjOBJ_SITE, end_effector)
        if site < 0:
            names = [mujoco.mj_id2name(model, kinds.mjOBJ_BODY, i) for i in range(1, model.nbody)]
            names += [mujoco.mj_id2name(model, kinds.mjOBJ_SITE, i) for i in range(model.nsite)]
            raise unknown_name("body or site", end_effector, [n for n in names if n], "of MuJoCo's")
        body = int(model.site_bodyid[site])
    first = int(model.body_rootid[body])
    if root is not None:
        first = mujoco.mj_name2id(model, kinds.mjOBJ_BODY, root)
        if first < 0:
            names = [mujoco.mj_id2name(model, kinds.mjOBJ_BODY, i) for i in range(1, model.nbody)]
            raise unknown_name("body", root, [n for n in names if n], "of MuJoCo's")
    way, at = [], body
    while at not in (0, first):
        way.append(at)
        at = int(model.body_parentid[at])
    if at == 0:
        raise ConfigError(
            f"root={root!r} does not carry end_effector={end_effector!r}, "
            "expected a body on the way to it."
        )
    way.append(first)
    inside, joints = set(way), range(model.njnt)
    name = {j: mujoco.mj_id2name(model, kinds.mjOBJ_JOINT, j) for j in joints}
    mine = [j for j in joints if model.jnt_bodyid[j] in inside]
    odd = [j for j in mine if model.jnt_type[j] < int(mujoco.mjtJoint.mjJNT_SLIDE)]
    if odd or not mine:
        what = f"joint {name[odd[0]]!r} is free or a ball" if odd else "no joint moves it"
        raise ConfigError(
            f"on the way to end_effector={end_effector!r} {what}, expected "
            "hinges and slides. Choose another root."
        )
    others = [
        j for j in joints if j not in mine and _carried(model, int(model.jnt_bodyid[j]), first)
    ]
    return load_mjcf_robot(
        model,
        root=mujoco.mj_id2name(model, kinds.mjOBJ_BODY, first),
        end_effectors={HAND: end_effector},
        freeze=[name[j] for j in others],
        leave_out=("springs", "tendons", "gravity compensation"),
    )


def _carried(model: Any, body: int, by: int) -> bool:
    while body not in (0, by):
        body = int(model.body_parentid[body])
    return body == by


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
                "expected one on each joint. Choose another root, or give the model one."
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


def usual_controller(robot: Robot, space: ActionSpace) -> Any:
    """The action space's controller, with singularities where this arm has them.

    Its `singularity_threshold` is a third of the conditioning in a comfortable posture, as that of
    the bundled robots is: here of what one random posture in ten exceeds.
    """
    controller: Any = space.controller()
    if not hasattr(controller, "singularity_threshold"):
        return controller
    limits = np.asarray(robot.position_limits, float)
    low, high = np.maximum(limits[:, 0], -np.pi), np.minimum(limits[:, 1], np.pi)
    random = np.random.default_rng(0).uniform(low, high, (_POSTURES, robot.nq))

    def conditioning(q: Array) -> Array:
        control = ArmControl(robot, space, controller, 1e-3)
        memory = control.begin(q, jnp.zeros(robot.nv))
        terms = compute_terms(robot, q, jnp.zeros(robot.nv))
        telemetry = controller(robot, terms, memory.target, memory.controller, 1e-3)[2]
        return jnp.asarray(telemetry["conditioning"])

    found = np.asarray(jax.jit(jax.vmap(conditioning))(jnp.asarray(random)))
    comfortable = float(np.quantile(found, 0.9))
    return dataclasses.replace(controller, singularity_threshold=comfortable / 3)
