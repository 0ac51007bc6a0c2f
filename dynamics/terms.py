"""Terms of the equations of motion, computed once per step for controllers and integrators."""

from __future__ import annotations

from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Real

from .crba import crba
from .kinematics import Kinematics, checked_configuration, checked_tangent, compute_kinematics
from .math.pytree import pytree_dataclass
from .math.tracing import traced_once
from .model.combine import MemberSlices
from .model.robot import Robot
from .rnea import bias_forces


@pytree_dataclass
class Terms:
    """Terms of the equations of motion at one state, from one forward kinematics.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        kin: kinematics at `q`.
        mass_matrix: (nv, nv), kg m^2 and kg, `crba(robot, q)`.
        bias: (nv,), N m and N, `bias_forces(robot, q, v)`.
    """

    q: Array
    v: Array
    kin: Kinematics
    mass_matrix: Array
    bias: Array


@traced_once
def compute_terms(robot: Robot, q: Real[ArrayLike, " nq"], v: Real[ArrayLike, " nv"]) -> Terms:
    """Kinematics, mass matrix and bias forces at a state.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.

    Raises:
        ArrayError: an argument has the wrong shape.
    """
    q, v = checked_configuration(robot, q), checked_tangent(robot, "v", v)
    kin = compute_kinematics(robot, q)
    return Terms(q, v, kin, crba(robot, q, kin=kin), bias_forces(robot, q, v, kin=kin))


def restrict_terms(terms: Terms, member: MemberSlices) -> Terms:
    """One robot's terms out of those of a forest, for a controller of that robot.

    They equal `compute_terms` of the robot on its own: robots of a forest share no inertia.

    Args:
        terms: the forest's.
        member: the robot's entries in it, from `member_slices`.
    """
    bodies, v, kin = member.bodies, member.v, terms.kin
    own = Kinematics(
        position=kin.position[bodies],
        rotation=kin.rotation[bodies],
        relative=kin.relative[bodies],
        offset=kin.offset[bodies],
        axis=kin.axis[member.axes],
        first_moment=kin.first_moment[bodies],
        inertia=kin.inertia[bodies],
    )
    return Terms(terms.q[member.q], terms.v[v], own, terms.mass_matrix[v, v], terms.bias[v])
