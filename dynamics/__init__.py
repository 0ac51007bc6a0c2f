"""Rigid-body dynamics of articulated robots in pure JAX.

Every function takes one environment's arrays (`q: (nq,)`, `v, tau: (nv,)`) and is batched with
`jax.vmap`. All are pure, jittable and differentiable, and follow the dtype of their inputs.
SI units, radians; quaternions wxyz; spatial vectors `[linear; angular]`.
"""

from .bundled import list_robots, load_robot
from .crba import crba
from .energy import center_of_mass, kinetic_energy, potential_energy
from .errors import ArrayError, FraxenvError, RobotLoadError, UnknownNameError
from .forward_dynamics import forward_dynamics, spd_solve
from .integration import difference, integrate, neutral, step
from .jacobian import frame_jacobian, frame_jacobian_dot
from .kinematics import (
    Kinematics,
    Poses,
    compute_kinematics,
    forward_kinematics,
    frame_pose,
)
from .rnea import bias_forces, generalized_forces, gravity_forces, rnea
from .robot import WORLD, Frame, Robot, Shape, Topology
from .rotation import (
    matrix_to_quaternion,
    orientation_error,
    quaternion_conjugate,
    quaternion_exp,
    quaternion_log,
    quaternion_multiply,
    quaternion_normalize,
    quaternion_to_matrix,
    rotation_exp,
    rotation_log,
)
from .terms import Terms, compute_terms
from .urdf import RobotLoadWarning, load_urdf

__all__ = [
    "WORLD",
    "ArrayError",
    "Frame",
    "FraxenvError",
    "Kinematics",
    "Poses",
    "Robot",
    "RobotLoadError",
    "RobotLoadWarning",
    "Shape",
    "Terms",
    "Topology",
    "UnknownNameError",
    "bias_forces",
    "center_of_mass",
    "compute_kinematics",
    "compute_terms",
    "crba",
    "difference",
    "forward_dynamics",
    "forward_kinematics",
    "frame_jacobian",
    "frame_jacobian_dot",
    "frame_pose",
    "generalized_forces",
    "gravity_forces",
    "integrate",
    "kinetic_energy",
    "list_robots",
    "load_robot",
    "load_urdf",
    "matrix_to_quaternion",
    "neutral",
    "orientation_error",
    "potential_energy",
    "quaternion_conjugate",
    "quaternion_exp",
    "quaternion_log",
    "quaternion_multiply",
    "quaternion_normalize",
    "quaternion_to_matrix",
    "rnea",
    "rotation_exp",
    "rotation_log",
    "spd_solve",
    "step",
]
