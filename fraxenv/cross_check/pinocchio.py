"""Pinocchio as an oracle: it reads the same URDF with its own parser.

Its floating and planar joints move with velocities in body axes, ours with linear velocities in the
axes of the joint. With `v' = T(q) v` for its velocity, `a' = T a + T_dot v`, `tau = T^T tau'`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fraxenv.dynamics import Robot
from fraxenv.dynamics.model.urdf import ROOT_JOINT
from fraxenv.errors import RobotLoadError, import_extra

from .quantities import compared_frames

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class PinocchioOracle:
    """Pinocchio's model of a robot, spoken to in our conventions.

    Attributes:
        robot: our model, whose gravity and armature it is given.
        model: theirs.
    """

    robot: Robot
    model: Any

    @classmethod
    def from_urdf(cls, robot: Robot, path: Path) -> PinocchioOracle:
        """Read the URDF that `robot` was loaded from; its floating base is taken from `robot`.

        Raises:
            MissingExtraError: Pinocchio is not installed.
            RobotLoadError: Pinocchio cannot read the file, or reads another robot.
        """
        pin = import_extra("pinocchio", "cross-check", "cross-checking with Pinocchio")
        for joint in robot.topology.joints:
            if joint.kind == "planar" and joint.axis[2] != 1.0:
                raise RobotLoadError(
                    f"{path.name}: planar joint {joint.name!r} has the normal {joint.axis}, "
                    "expected [0, 0, 1]: Pinocchio's reader ignores the <axis> of planar joints, "
                    "and would compare another robot. Turn the joint's <origin> instead."
                )
        floating = robot.joint_names[0] == ROOT_JOINT
        root = (pin.JointModelFreeFlyer(),) if floating else ()
        # Joints that follow others move freely in its model, and are held in `T`: most of its
        # algorithms refuse them otherwise.
        try:
            model = pin.buildModelFromUrdf(str(path), *root)
        except ValueError as error:
            raise RobotLoadError(
                f"{path.name}: Pinocchio cannot read it ({error}), expected joints that it "
                "knows, which spherical ones are not. Replace these."
            ) from error
        return cls.from_model(robot, model)

    @classmethod
    def from_model(cls, robot: Robot, model: Any) -> PinocchioOracle:
        """Take a model whose joints have the names of ours."""
        oracle = cls(robot, model)
        model.gravity.linear = np.asarray(robot.gravity)
        model.armature = oracle._to_pinocchio(np.asarray(robot.armature))
        return oracle

    # --- conventions ---

    @cached_property
    def _pin(self) -> Any:
        import pinocchio

        return pinocchio

    @cached_property
    def joints(self) -> tuple[int, ...]:
        """Pinocchio's joint of each of our bodies."""
        return tuple(self.model.getJointId(j.name) for j in self.robot.topology.joints)

    def _to_pinocchio(self, x: np.ndarray) -> np.ndarray:
        """Our values (nv,) at Pinocchio's degrees of freedom, (model.nv,); zero elsewhere."""
        theirs = np.zeros(self.model.nv)
        index = self.robot.topology.v_index
        for i, id_ in enumerate(self.joints):
            start = self.model.joints[id_].idx_v
            theirs[start : start + index[i + 1] - index[i]] = x[index[i] : index[i + 1]]
        return theirs

    def configuration(self, q: np.ndarray) -> np.ndarray:
        """Pinocchio's configuration: quaternions xyzw, cosine and sine for unlimited angles."""
        theirs = np.zeros(self.model.nq)
        topology = self.robot.topology
        for i, id_ in enumerate(self.joints):
            joint, mimic = self.model.joints[id_], topology.joints[i].mimic
            if mimic is None:
                own = q[topology.q_index[i] : topology.q_index[i + 1]]
            else:
                own = mimic.multiplier * q[topology.q_index[mimic.joint], None] + mimic.offset
            match topology.joints[i].kind:
                case "floating" | "spherical":
                    own = np.concatenate([own[:-4], own[-3:], own[-4:-3]])
                case _ if joint.nq > own.size:
                    own = np.concatenate([own[:-1], [np.cos(own[-1]), np.sin(own[-1])]])
            theirs[joint.idx_q : joint.idx_q + joint.nq] = own
        return theirs

    def transform(self, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`T` and `T_dot`, (model.nv, nv)."""
        topology = self.robot.topology
        T = np.zeros((self.model.nv, self.robot.nv))
        T_dot = np.zeros_like(T)
        for i, joint in enumerate(topology.joints):
            theirs = self.model.joints[self.joints[i]]
            k, own_q = topology.v_index[i], q[topology.q_index[i] : topology.q_index[i + 1]]
            if joint.mimic:
                T[theirs.idx_v, topology.v_index[joint.mimic.joint]] = joint.mimic.multiplier
                continue
            T[theirs.idx_v : theirs.idx_v + joint.nv, k : k + joint.nv] = np.eye(joint.nv)
            if joint.kind == "floating":
                w, x, y, z = own_q[3:]
                R = self._pin.Quaternion(w, x, y, z).normalized().toRotationMatrix()
                spin, size = self._pin.skew(v[k + 3 : k + 6]), 3
            elif joint.kind == "planar":
                c, s = np.cos(own_q[2]), np.sin(own_q[2])
                R, size = np.array([[c, -s], [s, c]]), 2
                spin = v[k + 2] * np.array([[0.0, -1.0], [1.0, 0.0]])
            else:
                continue
            block = (slice(theirs.idx_v, theirs.idx_v + size), slice(k, k + size))
            T[block], T_dot[block] = R.T, -spin @ R.T
        return T, T_dot

    def _forces(self, data: Any, forces: np.ndarray) -> list[Any]:
        """Ours are in world axes, theirs in the joint's; both about the joint's origin."""
        theirs = [self._pin.Force.Zero() for _ in range(self.model.njoints)]
        for joint, f in zip(self.joints, forces, strict=True):
            R = data.oMi[joint].rotation
            theirs[joint] = self._pin.Force(R.T @ f[:3], R.T @ f[3:])
        return theirs

    # --- what it computes ---

    def quantities(
        self, q: np.ndarray, v: np.ndarray, a: np.ndarray, tau: np.ndarray, forces: np.ndarray
    ) -> Arrays:
        """The quantities of `fraxenv.cross_check.quantities`, by name, at one state."""
        pin, model = self._pin, self.model
        data = model.createData()
        T, T_dot = self.transform(q, v)
        q_, v_ = self.configuration(q), T @ v
        a_, free = T @ a + T_dot @ v, T_dot @ v
        pin.computeJointJacobiansTimeVariation(model, data, q_, v_)
        pin.computeJointJacobians(model, data, q_)
        pin.forwardKinematics(model, data, q_, v_, a_)
        pin.updateFramePlacements(model, data)
        ids = [model.getFrameId(name, pin.BODY) for name in compared_frames(self.robot)]
        world = pin.LOCAL_WORLD_ALIGNED

        def columns(x: np.ndarray) -> np.ndarray:
            """Matrices also for one degree of freedom, for which Pinocchio returns vectors."""
            return np.reshape(x, (-1, model.nv))

        J = [columns(pin.getFrameJacobian(model, data, i, world)) for i in ids]
        J_dot = [columns(pin.getFrameJacobianTimeVariation(model, data, i, world)) for i in ids]
        velocity = [pin.getFrameVelocity(model, data, i, world).vector for i in ids]
        acceleration = [
            pin.getFrameClassicalAcceleration(model, data, i, world).vector for i in ids
        ]
        result = {
            "frame position": np.stack([data.oMf[i].translation for i in ids]),
            "frame rotation": np.stack([data.oMf[i].rotation for i in ids]),
            "frame jacobian": np.stack(J) @ T,
            "frame jacobian dot": np.stack(J_dot) @ T + np.stack(J) @ T_dot,
            "frame velocity": np.stack(velocity),
            "frame acceleration": np.stack(acceleration),
            "body position": np.stack([data.oMi[j].translation for j in self.joints]),
            "body rotation": np.stack([data.oMi[j].rotation for j in self.joints]),
        }
        f = self._forces(data, forces)
        upper = np.triu(columns(pin.crba(model, data, q_)))
        M = T.T @ (upper + np.triu(upper, 1).T) @ T
        bias = T.T @ pin.rnea(model, data, q_, v_, free)
        pushed = T.T @ pin.rnea(model, data, q_, v_, free, f)
        zero = np.zeros(model.nv)
        if model.nv == self.robot.nv:
            forces_ = np.linalg.solve(T.T, tau)
            forward = np.linalg.solve(T, pin.aba(model, data, q_, v_, forces_, f) - free)
        else:  # joints that follow others: the constraint is ours
            forward = np.linalg.solve(M, tau - pushed)
        momentum_matrix = columns(pin.computeCentroidalMap(model, data, q_)) @ T
        # Body by body, because their own sum leaves out the rotors of some joints.
        kinetic = 0.5 * np.sum(self.robot.armature * np.square(v)) + sum(
            0.5 * inertia.vtiv(twist) for inertia, twist in zip(model.inertias, data.v, strict=True)
        )
        return result | {
            "inverse dynamics": T.T @ pin.rnea(model, data, q_, v_, a_, f),
            "mass matrix": M,
            "bias": bias,
            "bias with external forces": pushed,
            "gravity": T.T @ pin.rnea(model, data, q_, zero, zero),
            "forward dynamics": forward,
            "centre of mass": pin.centerOfMass(model, data, q_).copy(),
            "centre of mass jacobian": columns(pin.jacobianCenterOfMass(model, data, q_)) @ T,
            "centroidal momentum": pin.computeCentroidalMomentum(model, data, q_, v_).vector,
            "centroidal momentum matrix": momentum_matrix,
            "kinetic energy": np.array(kinetic),
            "potential energy": np.array(pin.computePotentialEnergy(model, data, q_)),
        }
