"""MuJoCo as an oracle: its model is built from ours, joint by joint.

What is handed over are the numbers of a `Robot`; that these are what the URDF says is Pinocchio's
part to check, which parses the file itself. Velocities mean the same in both, but for the planar
joint, which MuJoCo lacks and which becomes two slides and a hinge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fraxenv.dynamics import WORLD, Robot
from fraxenv.errors import ConfigError, import_extra

Array = NDArray[np.float64]
Addresses = NDArray[np.intp]


def mujoco_model(robot: Robot, timestep: float = 1e-3) -> Any:
    """MuJoCo's model (`mujoco.MjModel`) of a robot: bodies, inertias, joints and gravity.

    It has one body for each of ours, of the same name (but for links named `world`), and for each
    joint those of its axes:

    | ours | MuJoCo's |
    |---|---|
    | revolute, continuous | hinge |
    | prismatic | slide |
    | planar | two slides and a hinge |
    | spherical | ball |
    | floating | free at the world's origin, else three slides and a ball, which are the same |

    Armature and damping are taken over, and Euler integration with implicit damping is chosen.
    Joint friction and stops are not: MuJoCo has constraints for them, which are another model.
    There is no geometry, nor any limit, so that nothing collides. The robot's parameters must be
    numbers, not tracers.

    Args:
        robot: the model.
        timestep: of `mj_step`, s.

    Raises:
        MissingExtraError: MuJoCo is not installed.
        ConfigError: MuJoCo has no such joint (those that follow others), or refuses an inertia.
    """
    mujoco = import_extra("mujoco", "mujoco", "MuJoCo's model of a robot")
    topology = robot.topology
    spec = mujoco.MjSpec()
    spec.modelname = robot.name
    spec.option.timestep = timestep
    spec.option.gravity = np.asarray(robot.gravity)
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    # A state that diverges is to stay so, instead of becoming the initial one.
    spec.option.disableflags = int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)

    bodies: list[Any] = []
    for i, joint in enumerate(topology.joints):
        if joint.mimic:
            raise ConfigError(
                f"robot {robot.name!r}: joint {joint.name!r} follows "
                f"{topology.joints[joint.mimic.joint].name!r}, expected joints that move freely: "
                "MuJoCo holds a <mimic> joint by a soft constraint only, which is another robot. "
                "Make it fixed, or remove <mimic>."
            )
        parent = spec.worldbody if topology.parent[i] == WORLD else bodies[topology.parent[i]]
        body = parent.add_body(name=_body_name(topology.body_names[i]))
        body.pos, body.quat = topology.position[i], _quaternion(mujoco, topology.rotation[i])
        _set_inertia(mujoco, body, robot, i)
        _add_joints(mujoco, body, robot, i)
        bodies.append(body)
    try:
        model = spec.compile()
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"robot {robot.name!r}: MuJoCo refuses the model: {reason}. Expected a positive mass, "
            "and principal moments of inertia of which none exceeds the sum of the other two, as "
            "any real body has. Correct the <inertial> of that link."
        ) from error
    dofs = _dofs(robot, model)
    model.dof_armature[dofs] = np.broadcast_to(robot.armature, robot.nv)
    model.dof_damping[dofs] = np.broadcast_to(robot.damping, robot.nv)
    mujoco.mj_setConst(model, mujoco.MjData(model))  # some of the mass matrix is precomputed
    return model


def _body_name(link: str) -> str:
    return "world (link)" if link == "world" else link  # MuJoCo's own world has that name


def _quaternion(mujoco: Any, rotation: Array) -> Array:
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, rotation.ravel())
    return quaternion


def _set_inertia(mujoco: Any, body: Any, robot: Robot, i: int) -> None:
    # Principal moments, because the compiler's own decomposition of a full matrix is exact to
    # 1e-12 kg m^2 only.
    moments, axes = np.linalg.eigh(np.asarray(robot.inertia)[i])
    axes[:, 0] *= np.sign(np.linalg.det(axes))
    body.explicitinertial = True
    body.mass, body.ipos = float(np.asarray(robot.mass)[i]), np.asarray(robot.com)[i]
    body.inertia, body.iquat = moments, _quaternion(mujoco, axes)


def _add_joints(mujoco: Any, body: Any, robot: Robot, i: int) -> None:
    """Joints whose coordinates, one after the other, are those of joint `i`."""
    joint, kinds = robot.topology.joints[i], mujoco.mjtJoint
    at_origin = (
        robot.topology.parent[i] == WORLD
        and not robot.topology.position[i].any()
        and np.array_equal(robot.topology.rotation[i], np.eye(3))
    )
    if joint.kind == "floating" and at_origin:  # MuJoCo allows it there only
        body.add_joint(
            name=joint.name, type=kinds.mjJNT_FREE, align=mujoco.mjtAlignFree.mjALIGNFREE_FALSE
        )
        return
    turns_freely = joint.kind in ("floating", "spherical")
    for k, (rotates, axis) in enumerate(zip(joint.rotates, joint.axes, strict=True)):
        name = joint.name if len(joint.rotates) == 1 else f"{joint.name}.{k}"
        if not rotates:
            body.add_joint(name=name, type=kinds.mjJNT_SLIDE, axis=axis)
        elif not turns_freely:
            body.add_joint(name=name, type=kinds.mjJNT_HINGE, axis=axis)
        else:  # one ball for the remaining three axes
            body.add_joint(name=name, type=kinds.mjJNT_BALL)
            return


def _addresses(robot: Robot, model: Any, address: Array, sizes: Iterable[int]) -> Addresses:
    """Where MuJoCo has the coordinates of our joints, one body after the other.

    Those of a body's joints follow each other.
    """
    first = [int(model.body(_body_name(name)).jntadr[0]) for name in robot.topology.body_names]
    return np.concatenate([address[j] + np.arange(n) for j, n in zip(first, sizes, strict=True)])


def _coordinates(robot: Robot, model: Any) -> Addresses:
    """(nq,), index into MuJoCo's `qpos` of each of our coordinates."""
    return _addresses(robot, model, model.jnt_qposadr, [j.nq for j in robot.topology.joints])


def _dofs(robot: Robot, model: Any) -> Addresses:
    """(nv,), index into MuJoCo's `qvel` of each of our degrees of freedom."""
    return _addresses(robot, model, model.jnt_dofadr, [j.nv for j in robot.topology.joints])


@dataclass(frozen=True)
class MujocoOracle:
    """MuJoCo's model of a robot, spoken to in our conventions.

    Attributes:
        robot: our model.
        model: theirs, as `mujoco_model` names its bodies.
    """

    robot: Robot
    model: Any

    @classmethod
    def from_robot(cls, robot: Robot, timestep: float = 1e-3) -> MujocoOracle:
        """Build the model with `mujoco_model`, which see."""
        return cls(robot, mujoco_model(robot, timestep))

    # --- conventions ---

    @property
    def _mujoco(self) -> Any:  # not cached: modules cannot be pickled
        import mujoco

        return mujoco

    @cached_property
    def coordinates(self) -> Addresses:
        """(nq,), index into `qpos` of each of our coordinates."""
        return _coordinates(self.robot, self.model)

    @cached_property
    def dofs(self) -> Addresses:
        """(nv,), index into `qvel` of each of our degrees of freedom."""
        return _dofs(self.robot, self.model)

    @cached_property
    def bodies(self) -> Addresses:
        """(nb,), MuJoCo's body of each of our bodies."""
        names = self.robot.topology.body_names
        return np.array([self.model.body(_body_name(name)).id for name in names])

    def data(self, q: Array, v: Array) -> Any:
        """A new `mujoco.MjData` in this state; nothing is computed yet."""
        data = self._mujoco.MjData(self.model)
        data.qpos[self.coordinates], data.qvel[self.dofs] = q, v
        return data

    # --- what it computes ---

    def quantities(
        self, q: Array, v: Array, a: Array, tau: Array, forces: Array
    ) -> dict[str, Array]:
        """The quantities of `fraxenv.cross_check.quantities` that MuJoCo has, at one state."""
        mujoco, model, dofs, bodies = self._mujoco, self.model, self.dofs, self.bodies
        data = self.data(q, np.zeros_like(v))
        mujoco.mj_forward(model, data)
        result = {"gravity": data.qfrc_bias[dofs]}

        pushed = np.zeros(model.nv)
        for body, f in zip(bodies, forces, strict=True):
            mujoco.mj_applyFT(model, data, f[:3], f[3:], data.xpos[body], body, pushed)
        data.qvel[dofs], data.qfrc_applied[:] = v, pushed
        data.qfrc_applied[dofs] += tau
        mujoco.mj_forward(model, data)
        mujoco.mj_subtreeVel(model, data)
        mujoco.mj_energyPos(model, data)
        mujoco.mj_energyVel(model, data)
        mass_matrix = np.zeros((model.nv, model.nv))
        for column, unit in zip(mass_matrix, np.eye(model.nv), strict=True):
            mujoco.mj_mulM(model, data, column, unit)
        momentum = [model.body_subtreemass[0] * data.subtree_linvel[0], data.subtree_angmom[0]]
        result |= {
            "body position": data.xpos[bodies],
            "body rotation": data.xmat[bodies].reshape(-1, 3, 3),
            "mass matrix": mass_matrix[np.ix_(dofs, dofs)],
            "bias": data.qfrc_bias[dofs],
            "bias with external forces": (data.qfrc_bias - pushed)[dofs],
            "damped forward dynamics": data.qacc[dofs],
            "centre of mass": data.subtree_com[0].copy(),
            "centroidal momentum": np.concatenate(momentum),
            "potential energy": np.array(data.energy[0]),
            "kinetic energy": np.array(data.energy[1]),
        }

        data.qacc[dofs] = a
        mujoco.mj_inverse(model, data)
        # MuJoCo's is what all external forces must add up to, and overcomes damping, too.
        inverse = data.qfrc_inverse + data.qfrc_passive - pushed
        result["inverse dynamics"] = inverse[dofs]

        integrated = data.qpos.copy()
        mujoco.mj_integratePos(model, integrated, data.qvel, model.opt.timestep)
        mujoco.mj_step(model, data)
        return result | {
            "integrated configuration": integrated[self.coordinates],
            "configuration after a step": data.qpos[self.coordinates],
            "velocity after a step": data.qvel[dofs],
        }

    def rollout(self, q: Array, torques: Array) -> Array:
        """Configurations (n, nq) after each of n steps from rest under torques (n, nv)."""
        data = self.data(q, np.zeros(self.robot.nv))
        result = np.zeros((len(torques), self.robot.nq))
        for i, tau in enumerate(torques):
            data.qfrc_applied[self.dofs] = tau
            self._mujoco.mj_step(self.model, data)
            result[i] = data.qpos[self.coordinates]
        return result

    def step(self, q: Array, v: Array, force: Array, damping: Array) -> tuple[Array, Array]:
        """Configuration and velocity after one `mj_step`; one thread at a time.

        Args:
            q: (nq,).
            v: (nv,).
            force: (nv,), of the joints.
            damping: (nv,), implicit, in place of the robot's.
        """
        data = self._stepped
        self.model.dof_damping[self.dofs] = damping
        data.qpos[self.coordinates], data.qvel[self.dofs] = q, v
        data.qfrc_applied[self.dofs] = force
        self._mujoco.mj_step(self.model, data)
        return data.qpos[self.coordinates], data.qvel[self.dofs]

    @cached_property
    def _stepped(self) -> Any:
        return self._mujoco.MjData(self.model)  # it takes longer to make than a step does
