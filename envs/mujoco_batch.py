"""An arm's control over many MuJoCo worlds: pure functions of one world's arrays.

Worlds are MJX's or MuJoCo Warp's, or anybody's who has `qpos` and `qvel`.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.dynamics import Robot, gravity_forces
from fraxenv.errors import ActionError, ConfigError

from .mujoco_arm import Applied, Drive, Numbers, arm_of, disabled, joint_damping
from .mujoco_guarded import GuardedArm, GuardedMemory
from .mujoco_obstacles import GeomObstacles


class Passive(NamedTuple):
    """What a model does at the arm's joints besides its actuators.

    Attributes:
        stiffness: (nv,), of the joints' springs, N m/rad and N/m.
        rest: (nv,), where they are at rest, rad and m.
        damping: (nv,), of the joints, N m s/rad and N s/m.
        held: the arm with the masses that `gravcomp` holds; None if it holds none.
    """

    stiffness: Numbers
    rest: Numbers
    damping: Numbers
    held: Robot | None

    def forces(self, q: Array, v: Array) -> Array:
        """(nv,), N m and N, of springs, damping and gravity compensation."""
        stiffness, rest, damping = (jnp.asarray(x, q.dtype) for x in self[:3])
        own = stiffness * (rest - q) - damping * v
        return own if self.held is None else own + gravity_forces(self.held, q)


def passive_of(
    mujoco: Any, model: Any, drive: Drive | Applied, end_effector: str, root: str | None
) -> Passive:
    """The springs, the damping and the gravity compensation of an arm.

    Raises:
        ConfigError: a `gravcomp` is below 0.
    """
    joints = model.dof_jntid[drive.at.qvel]
    off = disabled(mujoco, model, "PASSIVE") or disabled(mujoco, model, "SPRING")
    stiffness = model.jnt_stiffness[joints] * (0.0 if off else 1.0)
    held = None
    if (model.body_gravcomp < 0).any():
        raise ConfigError(
            "ee_action: a body of the model has a gravcomp below 0, expected what holds weights. "
            "Leave it out, or give the body another mass."
        )
    if model.body_gravcomp.any():
        weighed = copy.copy(model)
        # A body that moves needs a mass; this one's weight is below what torques are rounded to.
        held_mass = np.maximum(model.body_mass * model.body_gravcomp, 1e-9)
        weighed.body_mass[:] = np.where(model.body_mass > 0, held_mass, 0.0)
        held = arm_of(mujoco, weighed, end_effector, root)
    rest = model.qpos_spring[drive.at.qpos].copy()
    return Passive(stiffness, rest, joint_damping(mujoco, model, drive), held)


class DrivenArm(NamedTuple):
    """An arm's control in one world, from its `qpos` and `qvel` to its actuators' inputs.

    Attributes:
        arm: from its coordinates to its torques.
        drive: from its torques to its inputs.
        passive: what its actuators are not to do.
    """

    arm: GuardedArm
    drive: Drive
    passive: Passive

    def init(self, qpos: Array, qvel: Array) -> GuardedMemory:
        """The memory of an arm that is told to stay where it is."""
        at = self.drive.at
        return self.arm.begin(qpos[at.qpos], qvel[at.qvel])

    def aim(self, memory: GuardedMemory, qpos: Array, action: Array) -> GuardedMemory:
        """The memory after an action (k,)."""
        return self.arm.aim(memory, qpos[self.drive.at.qpos], action)

    def control(
        self, memory: GuardedMemory, qpos: Array, qvel: Array, *seen: Array
    ) -> tuple[Array, GuardedMemory]:
        """Inputs of the arm's actuators; `seen` is what `geom_rows` gave of obstacles."""
        at = self.drive.at
        q, v = qpos[at.qpos], qvel[at.qvel]
        torque, memory = self.arm.control(memory, q, v, *seen)
        numbers: list[Any] = [jnp.asarray(x, q.dtype) for x in self.drive[2:]]
        drive = Drive(*self.drive[:2], *numbers)
        wanted = torque - self.passive.forces(q, v)
        return drive.inputs(wanted, drive.gear * q, v), memory


def checked_action(action: Array, names: tuple[str, ...]) -> Array:
    """An action (k,), of a number for each of the arm's axes.

    Raises:
        ActionError: it has another shape.
    """
    if action.shape != (len(names),):
        raise ActionError(
            f"ee_action: the action has shape {action.shape}, expected {(len(names),)}, of one "
            f"world: {', '.join(names)}. Of several worlds, say jax.vmap."
        )
    return action


def geom_rows(around: GeomObstacles, roots: Numbers, data: Any) -> Array:
    """Poses and velocities (m, 15) of obstacles in one world, as `GeomObstacles.read` gives them.

    Args:
        around: the obstacles.
        roots: (m, 2), numbers of each geom's body, and of the body its tree begins with.
        data: has `geom_xpos` (ngeom, 3), m, `geom_xmat` (ngeom, 3, 3) or (ngeom, 9), `cvel`
            (nbody, 6), `[angular; linear]` at the tree's centre of mass, and `subtree_com`
            (nbody, 3), m; all in the world.
    """
    body, root = roots[:, 0], roots[:, 1]
    at = data.geom_xpos[around.geoms]
    turn = data.geom_xmat[around.geoms].reshape(-1, 3, 3)
    centres = jnp.asarray(around.centres, at.dtype)
    position = at + jnp.einsum("mij,mj->mi", turn, centres)
    spin, linear = data.cvel[body, :3], data.cvel[body, 3:]
    velocity = linear + jnp.cross(spin, at - data.subtree_com[root])
    return jnp.concatenate([position, turn.reshape(-1, 9), velocity], axis=1)
