"""What is measured, and the numbers that it is measured with: the same for all contenders."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[np.float64], ...]

COMPARED = 64
"""Rows of a batch whose results are compared with the reference."""

PICK, PICK_HZ = "PandaPick-v0", 50
"""The environment of picks, and its steps per second."""

_DISTINCT = 1024
"""Rows that differ; larger batches repeat them."""


@dataclass(frozen=True)
class Workload:
    """Something to compute.

    Attributes:
        name: for the command line.
        title: for people.
        quantity: what of the robot is computed, or what is done.
        robot: a bundled robot.
        unit: of what is counted per second.
        batches: the only batch sizes that make sense, if not all do.
    """

    name: str
    title: str
    quantity: str
    robot: str = "panda"
    unit: str = "evaluations"
    batches: tuple[int, ...] = ()


WORKLOADS = {
    w.name: w
    for w in (
        Workload("panda-forward-dynamics", "Forward dynamics, Panda", "forward_dynamics"),
        Workload("g1-forward-dynamics", "Forward dynamics, G1", "forward_dynamics", "g1"),
        Workload("rnea", "Inverse dynamics (RNEA), Panda", "rnea"),
        Workload("crba", "Mass matrix (CRBA), Panda", "crba"),
        Workload("osc", "OSC torque, Panda", "osc"),
        Workload("control-step", "Control step (OSC, dynamics, Euler), Panda", "control_step"),
        Workload("environment", "Environment steps", "environment", unit="environment steps"),
        Workload(
            "gradient-step",
            "Gradient of a physics step, Panda",
            "gradient_step",
            unit="gradients",
            batches=(256,),
        ),
        Workload(
            "gradient-rollout",
            "Gradient of 32 environment steps by a policy's weights",
            "gradient_rollout",
            unit="environment steps",
            batches=(256,),
        ),
        Workload(
            "gymnasium",
            "Gymnasium step() of one environment",
            "gymnasium",
            unit="environment steps",
            batches=(1,),
        ),
        Workload(
            "memory",
            "Memory of 100 environment steps",
            "memory",
            unit="environment steps",
            batches=(65_536,),
        ),
        *(
            Workload(name, title, "contact", unit="physics steps", batches=(4096,))
            for name, title in (
                ("contact-cube-rest", "Contact: a cube at rest"),
                ("contact-cube-pushed", "Contact: a cube, random forces"),
                ("contact-grasp-lift", "Contact: grasp and lift"),
                ("contact-grasp-random", "Contact: grasp, random actions"),
                ("contact-drag", "Contact: pads dragged on the floor"),
                ("contact-quadruped-stand", "Contact: a quadruped stands"),
                ("contact-quadruped-kicked", "Contact: a quadruped, kicked, random actions"),
                ("contact-stack", "Contact: a stack of three"),
            )
        ),
        *(
            Workload(name, title, "pick", unit="simulated seconds", batches=(4096,))
            for name, title in (
                ("pick-random", "Pick, random actions"),
                ("pick-expert", "Pick, the expert"),
            )
        ),
        Workload("ids", "Environments by id", "ids", unit="environment steps", batches=(4096,)),
        Workload("planning", "Planning, B1 to B13", "planning", unit="benchmarks", batches=(1,)),
    )
}


@cache
def robot(name: str) -> Any:
    """The model that everybody computes: without damping, of which only some know."""
    from fraxenv.dynamics import load_robot

    model = load_robot(name)
    return model.replace(damping=np.zeros(model.nv))


def inputs(workload: Workload, batch: int) -> Arrays:
    """Arguments of the dynamics function, float64, each (batch, ...): row by row the same for all.

    Forward dynamics, gradient of a step: q, v, tau. RNEA: q, v, a. CRBA: q. OSC and control step:
    q, v, the hand's target position and rotation, near the default configuration, as control steps
    are.
    """
    distinct = min(batch, _DISTINCT)
    rows = _rows(workload, distinct)
    return tuple(np.ascontiguousarray(np.resize(x, (batch, *x.shape[1:]))) for x in rows)


def _rows(workload: Workload, n: int) -> Arrays:
    model = robot(workload.robot)

    def random(stream: int, *shape: int) -> NDArray[np.float64]:
        """Numbers in [-1, 1] of which the first rows do not depend on how many there are."""
        return np.random.default_rng([1, stream]).uniform(-1, 1, (n, *shape))

    default = np.asarray(model.q_default, float)
    if workload.quantity in ("osc", "control_step"):
        position, rotation = _hand(workload.robot)
        turn = 0.05 * random(3, 3)
        return (
            default + 0.1 * random(0, model.nv),
            0.2 * random(1, model.nv),
            position + 0.02 * random(2, 3),
            _rotations(turn) @ rotation,
        )
    low, high = np.asarray(model.position_limits, float)[-_joints(model) :].T
    joints = (low + high) / 2 + random(0, len(low)) * (high - low) / 2
    q = joints
    if model.nq != model.nv:
        quaternion = random(1, 4)
        quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
        q = np.concatenate([random(2, 3), quaternion, joints], axis=1)
    v = 2 * random(3, model.nv)
    force = (5 if workload.quantity == "rnea" else 20) * random(4, model.nv)
    return (q,) if workload.quantity == "crba" else (q, v, force)


def _joints(model: Any) -> int:
    return model.nv - 6 if model.nq != model.nv else model.nv


def _rotations(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotation matrices (n, 3, 3) of rotation vectors (n, 3), by Rodrigues' formula."""
    angle = np.linalg.norm(vectors, axis=1)[:, None, None]
    x, y, z = (vectors / angle[:, 0]).T
    o = np.zeros_like(x)
    K = np.stack([np.stack(r, -1) for r in ((o, -z, y), (z, o, -x), (-y, x, o))], -2)
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * (K @ K)


@cache
def _hand(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The hand's pose by default, rounded so that it is the same in every precision."""
    from fraxenv.dynamics import frame_pose

    model = robot(name)
    position, rotation = frame_pose(model, model.q_default, "hand")
    u, _, vt = np.linalg.svd(np.round(np.asarray(rotation, float), 4))
    return np.round(np.asarray(position, float), 4), u @ vt
