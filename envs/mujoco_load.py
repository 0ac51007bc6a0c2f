"""What the hand of an arm holds in a MuJoCo scene, as a payload of our model."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fraxenv.dynamics import Payload

from .mujoco_arm import HAND, Numbers, body_of, hand_pose
from .tasks.grasping import LEAST_FORCE

NOTHING = np.zeros(10)
"""No load."""


class HeldBodies(NamedTuple):
    """Bodies that a hand can hold.

    Attributes:
        end_effector: the body or site that is the hand.
        of_hand: (nbody,), whether a body moves with the hand.
        free: (nbody,), the body that moves freely and that a body is part of; 0 for none.
    """

    end_effector: str
    of_hand: NDArray[np.bool_]
    free: NDArray[np.intp]

    def read(self, mujoco: Any, model: Any, data: Any) -> Numbers:
        """The load (10,): mass, kg; centre of mass, m; moments and products of inertia, kg m^2.

        In the hand's frame, the moments (xx, yy, zz, xy, xz, yz) about the centre of mass. A body
        is held while two bodies of the hand press on it, against each other.
        """
        held = self._held(mujoco, model, data)
        if held is None:
            return NOTHING
        parts = np.flatnonzero(self.free == held)
        masses, places = model.body_mass[parts], data.xipos[parts]
        mass = float(masses.sum())
        centre = masses @ places / mass
        inertia = np.zeros((3, 3))
        for m, place, part in zip(masses, places - centre, parts, strict=True):
            turn = data.ximat[part].reshape(3, 3)
            own = turn @ np.diag(model.body_inertia[part]) @ turn.T
            inertia += own + m * (place @ place * np.eye(3) - np.outer(place, place))
        at, rotation = hand_pose(mujoco, model, data, self.end_effector)
        turned = rotation.T @ inertia @ rotation
        moments, products = np.diag(turned), turned[[0, 0, 1], [1, 2, 2]]
        return np.concatenate([[mass], rotation.T @ (centre - at), moments, products])

    def _held(self, mujoco: Any, model: Any, data: Any) -> int | None:
        """The free body that is held; None if none is."""
        pushes: dict[int, dict[int, Numbers]] = {}
        wrench = np.zeros(6)
        for k in range(data.ncon):
            contact = data.contact[k]
            one, other = (int(model.geom_bodyid[g]) for g in contact.geom)
            if self.of_hand[one] and self.free[other]:
                finger, thing, sign = one, int(self.free[other]), 1.0
            elif self.of_hand[other] and self.free[one]:
                finger, thing, sign = other, int(self.free[one]), -1.0
            else:
                continue
            mujoco.mj_contactForce(model, data, k, wrench)
            push = sign * wrench[0] * contact.frame[:3]
            fingers = pushes.setdefault(thing, {})
            fingers[finger] = fingers.get(finger, np.zeros(3)) + push
        for thing, fingers in pushes.items():
            strong = [f for f in fingers.values() if np.linalg.norm(f) >= LEAST_FORCE]
            if any(a @ b < 0 for i, a in enumerate(strong) for b in strong[:i]):
                return thing
        return None


def held_bodies(mujoco: Any, model: Any, end_effector: str) -> HeldBodies | None:
    """What the hand can hold; None where nothing moves freely.

    Args:
        mujoco: the package.
        model: a `mujoco.MjModel`.
        end_effector: the body or site that is the hand.

    Raises:
        UnknownNameError: there is no such body or site.
    """
    first = int(model.body_weldid[body_of(mujoco, model, end_effector)])
    of_hand = np.zeros(model.nbody, bool)
    free = np.zeros(model.nbody, np.intp)
    kind = int(mujoco.mjtJoint.mjJNT_FREE)
    for b in range(1, model.nbody):
        parent = model.body_parentid[b]
        of_hand[b] = b == first or of_hand[parent]
        joint = model.body_jntadr[b]
        begins = joint >= 0 and model.jnt_type[joint] == kind
        free[b] = b if begins else free[parent]
    free[of_hand] = 0
    return HeldBodies(end_effector, of_hand, free) if free.any() else None


def payload_of(load: Array) -> Payload:
    """The payload of the hand that numbers (10,) of `HeldBodies.read` are."""
    xx, yy, zz, xy, xz, yz = load[4:]
    inertia = jnp.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz]).reshape(3, 3)
    return Payload(HAND, load[0], load[1:4], inertia)
