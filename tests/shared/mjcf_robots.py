"""Robots of MJCF files beside MuJoCo: mass matrix, bias, poses and Jacobians."""

from __future__ import annotations

from typing import Any

import jax
import mujoco
import numpy as np

from fraxenv import dynamics
from fraxenv.dynamics import Robot


def differences(model: Any, robot: Robot, seed: int = 0) -> tuple[dict[str, float], int]:
    """Largest differences at a random state, in parts of the largest number, or of one where that
    is smaller; and how many frames were compared."""
    at = dynamics.mjcf_indices(model, robot)
    data = mujoco.MjData(model)
    random = np.random.default_rng(seed)
    v = random.normal(size=robot.nv)
    q = np.asarray(dynamics.integrate(robot, robot.q_default, random.normal(size=robot.nv), 1.0))
    data.qpos[at.qpos], data.qvel[at.qvel] = q, v
    mujoco.mj_forward(model, data)
    M = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, M)

    @jax.jit
    def terms(q: Any, v: Any) -> Any:
        by_name = {f: (dynamics.frame_pose(robot, q, f)[0], dynamics.frame_jacobian(robot, q, f))
                   for f in robot.frame_names}  # fmt: skip
        return dynamics.crba(robot, q), dynamics.bias_forces(robot, q, v), by_name

    found: dict[str, float] = {}

    def compare(what: str, ours: Any, theirs: Any) -> None:
        off = np.abs(np.asarray(ours) - theirs).max() / max(1.0, np.abs(theirs).max())
        found[what] = max(found.get(what, 0.0), float(off))

    mass_matrix, bias, by_name = jax.device_get(terms(q, v))
    compare("mass matrix", mass_matrix, M[np.ix_(at.qvel, at.qvel)])
    compare("bias", bias, data.qfrc_bias[at.qvel])
    frames = 0
    for kind, jacobian, where in (
        (mujoco.mjtObj.mjOBJ_BODY, mujoco.mj_jacBody, data.xpos),
        (mujoco.mjtObj.mjOBJ_SITE, mujoco.mj_jacSite, data.site_xpos),
    ):
        for i in range(len(where)):
            name = mujoco.mj_id2name(model, kind, i)
            if name not in by_name:
                continue
            J = np.zeros((6, model.nv))
            jacobian(model, data, J[:3], J[3:], i)
            position, ours = by_name[name]
            compare("positions", position, where[i])
            compare("Jacobians", ours, J[:, at.qvel])
            frames += 1
    return found, frames
