"""The rows of all constraints at a state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ..kinematics import Kinematics
from ..model.robot import Robot
from .contact_rows import contact_rows
from .equality_rows import equality_rows
from .limit_rows import friction_loss_rows, limit_rows
from .model import Constraints
from .narrowphase import Contacts
from .rows import Rows, ScalarRows


def constraint_rows(
    robot: Robot,
    constraints: Constraints,
    kin: Kinematics,
    q: Array,
    v: Array,
    contacts: Contacts,
    timestep: Array,
) -> Rows:
    """The rows of all constraints at a state.

    Args:
        robot: the forest.
        constraints: what constrains it.
        kin: kinematics at `q`.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        contacts: `find_contacts(robot, constraints, kin)`.
        timestep: s, of which no time constant is less than twice.
    """
    scalar = scalar_rows(robot, constraints, kin, q, v, timestep)
    return Rows(scalar, contact_rows(robot, constraints, kin, v, contacts, timestep))


def scalar_rows(
    robot: Robot, constraints: Constraints, kin: Kinematics, q: Array, v: Array, timestep: Array
) -> ScalarRows:
    """The rows of equalities, friction loss and limits: see `constraint_rows`."""
    parts = [
        *equality_rows(robot, constraints, kin, q, v, timestep),
        *friction_loss_rows(robot, constraints, v, timestep),
        *limit_rows(robot, constraints, q, v, timestep),
    ]
    parts.append(ScalarRows(jnp.zeros((0, robot.nv), v.dtype), *(jnp.zeros(0, v.dtype),) * 4))
    rows: ScalarRows = jax.tree.map(lambda *columns: jnp.concatenate(columns), *parts)
    return rows
