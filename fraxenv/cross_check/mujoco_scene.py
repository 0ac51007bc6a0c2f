"""MuJoCo's model of a scene, spoken to in our coordinates.

Three things differ from our own steps of the same scene. Fingers that follow one another have a
coordinate each, coupled by a stiff equality, and are put together again after every step
(`fraxenv.dynamics.scene.followers`). MuJoCo has no integrator like our "discrete", in which damping
and stiffness of joints are those at the step's end: its own of that name has constraints ten times
as hard, between which a held peg turns; with "implicitfast" dampers and constraints, solved one
after the other, chatter. So it is told to the Euler integrator as armature and force. What the
scene's actuators would do is left to the environment's motors, as there.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fraxenv.dynamics import Scene
from fraxenv.dynamics.scene.actuators import joint_actuators
from fraxenv.dynamics.scene.followers import Freed, free_followers
from fraxenv.dynamics.scene.parts import Integrator

from .scenes import solve_exactly

Array = NDArray[np.floating[Any]]


ROUNDING = 1e-15
"""Improvement of the scaled cost at which MuJoCo's solver ends; with 0 it takes all its rounds."""


class SceneStep(NamedTuple):
    """What a step does.

    Attributes:
        q: (nq,), rad and m, afterwards.
        v: (nv,), rad/s and m/s, afterwards.
        acceleration: (nv,), rad/s^2 and m/s^2: the next warm start.
        active: (n,) bool, of each of the scene's pairs of geoms, whether they touch.
        normal_force: (n,), N, sum over the pair's points.
        tangential_force: (n,), N, sum of the points' magnitudes.
        slip_speed: (n,), m/s, the fastest of the points across their normals.
        residual: norm of the gradient as MuJoCo's solver scales it, 0 without constraints.
        rounds: of MuJoCo's solver.
        converged: whether the solver ended before its last round.
    """

    q: Array
    v: Array
    acceleration: Array
    active: NDArray[np.bool_]
    normal_force: Array
    tangential_force: Array
    slip_speed: Array
    residual: float
    rounds: int
    converged: bool


def model_without_actuators(freed: Freed, integrator: Integrator, timestep: float) -> Any:
    """MuJoCo's model of a scene, with an integrator of MuJoCo's.

    Args:
        freed: the scene with a coordinate for each finger.
        integrator: the integrator that has this name in MuJoCo.
        timestep: s.

    Raises:
        MissingExtraError: MuJoCo is not installed.
        ConfigError: MuJoCo cannot have such a scene.
    """
    scene = dataclasses.replace(
        freed.scene,
        actuators=joint_actuators(freed.scene.system, (), freed.scene.name),
        integrator=integrator,
        timestep=timestep,
    )
    model = scene.to_mujoco()
    solve_exactly(model)
    model.opt.disableflags |= int(_mujoco().mjtDisableBit.mjDSBL_AUTORESET)
    return model


@dataclass(frozen=True, eq=False)
class MujocoScene:
    """MuJoCo's model of a scene, and what steps it.

    Attributes:
        freed: the scene with a coordinate for each finger, and how ours are those of it.
        model: MuJoCo's.
        damping: (nv,), of the model's joints, what is not left to MuJoCo.
    """

    freed: Freed
    model: Any
    damping: Array

    @classmethod
    def of(cls, scene: Scene, timestep: float) -> MujocoScene:
        """Of a scene without its actuators.

        Args:
            scene: the scene; its own timestep does not count.
            timestep: s.

        Raises:
            MissingExtraError: MuJoCo is not installed.
            ConfigError: MuJoCo cannot have such a scene; says why.
        """
        freed = free_followers(scene)
        own = scene.integrator
        model = model_without_actuators(freed, "euler" if own == "discrete" else own, timestep)
        model.opt.tolerance = ROUNDING
        damping = np.zeros(model.nv)
        if scene.integrator == "discrete":
            springs = np.maximum(model.jnt_stiffness[model.dof_jntid], 0)
            damping += model.dof_damping + timestep * springs
            model.dof_armature += timestep * damping
            model.dof_M0 += timestep * damping  # of lone bodies nothing else is asked for
            model.dof_damping[:] = 0
        return cls(freed, model, damping)

    @cached_property
    def data(self) -> Any:
        """MuJoCo's data: written to by `step`, and nothing in it is kept."""
        return _mujoco().MjData(self.model)

    @cached_property
    def pair_of(self) -> NDArray[np.intp]:
        """(ngeom, ngeom), index of the pair of two of MuJoCo's geoms; -1 for none."""
        found = np.full((self.model.ngeom, self.model.ngeom), -1, np.intp)
        geoms = {name: self.model.geom(name).id for name in self.freed.scene.geom_names}
        for i, (a, b) in enumerate(self.freed.scene.pair_names):
            found[geoms[a], geoms[b]] = found[geoms[b], geoms[a]] = i
        return found

    def step(self, q: Array, v: Array, tau: Array, warm_start: Array) -> SceneStep:
        """One step of MuJoCo.

        Args:
            q: (nq,), rad and m, of the scene.
            v: (nv,), rad/s and m/s.
            tau: (nv,), N m and N.
            warm_start: (nv,), the last step's acceleration.
        """
        mujoco, model, data, (_, to_q, to_v) = _mujoco(), self.model, self.data, self.freed
        data.qpos[:], data.qvel[:] = to_q.out(q), to_v.out(v)
        data.qacc_warmstart[:] = to_v.out(warm_start)
        data.qfrc_applied[:] = to_v.share * tau[to_v.source] - self.damping * data.qvel
        mujoco.mj_step(model, data)
        # Contacts, and all that depends on positions and velocities, are still those before the
        # integration.
        touching = self._contacts()
        rounds = int(data.solver_niter[0])
        return SceneStep(
            to_q.back(data.qpos),
            to_v.back(data.qvel),
            to_v.back(data.qacc),
            *touching,
            residual=float(data.solver[rounds - 1].gradient) if rounds else 0.0,
            rounds=rounds,
            converged=rounds < model.opt.iterations,
        )

    def _contacts(self) -> tuple[NDArray[np.bool_], Array, Array, Array]:
        """Whether pairs touch, their forces, and how fast they slip."""
        mujoco, model, data = _mujoco(), self.model, self.data
        n = len(self.freed.scene.pair_names)
        active = np.zeros(n, bool)
        normal, tangential, slip = np.zeros((3, n))
        chosen = np.flatnonzero(data.contact.efc_address >= 0)
        if not len(chosen):
            return active, normal, tangential, slip
        geoms = data.contact.geom[chosen]
        pair = self.pair_of[geoms[:, 0], geoms[:, 1]]
        forces = np.zeros((len(chosen), 6))
        for k, force in zip(chosen.tolist(), forces, strict=True):
            mujoco.mj_contactForce(model, data, k, force)
        active[pair] = True
        np.add.at(normal, pair, forces[:, 0])
        np.add.at(tangential, pair, np.hypot(forces[:, 1], forces[:, 2]))
        one, two = self._velocities(data.contact.pos[chosen], geoms)
        frames = data.contact.frame[chosen].reshape(-1, 3, 3)
        across = (frames @ (two - one)[:, :, None])[:, 1:, 0]
        rubs = data.contact.dim[chosen] > 1
        np.maximum.at(slip, pair, np.where(rubs, np.hypot(*across.T), 0.0))
        return active, normal, tangential, slip

    def _velocities(self, points: Array, geoms: NDArray[np.intp]) -> tuple[Array, Array]:
        """Velocities (k, 3), m/s, world, of points (k, 3) on both of their geoms (k, 2)."""
        body = self.model.geom_bodyid[geoms]
        twist = self.data.cvel[body]
        lever = points[:, None] - self.data.subtree_com[self.model.body_rootid[body]]
        velocity = twist[..., 3:] + np.cross(twist[..., :3], lever)
        return velocity[:, 0], velocity[:, 1]


def _mujoco() -> Any:  # not kept: modules cannot be pickled
    import mujoco

    return mujoco
