"""Rigid-body dynamics of articulated robots in pure JAX.

Every function takes one environment's arrays (`q: (nq,)`, `v, tau: (nv,)`) and is batched with
`jax.vmap`. All are pure, jittable and differentiable, and follow the dtype of their inputs.
SI units, radians; quaternions wxyz; spatial vectors `[linear; angular]`.
"""

from .bundled import list_robots, load_robot
from .crba import crba
from .energy import kinetic_energy, potential_energy
from .derivatives import (
    ForwardDynamicsDerivatives,
    InverseDynamicsDerivatives,
    SecondDerivatives,
    TransitionDerivatives,
    coriolis_matrix,
    forward_dynamics_derivatives,
    inverse_dynamics_derivatives,
    inverse_dynamics_second_derivatives,
    residual_derivatives,
    transition_derivatives,
)
from .errors import ArrayError, FraxenvError, RobotLoadError, UnknownNameError
from .forward_dynamics import forward_dynamics, spd_solve
from .integration import step
from .jacobian import (
    frame_acceleration,
    frame_jacobian,
    frame_jacobian_dot,
    frame_velocity,
    manipulability,
)
from .kinematics import (
    Kinematics,
    Poses,
    compute_kinematics,
    forward_kinematics,
    frame_pose,
)
from .manifold import (
    coordinate_rates,
    difference,
    difference_derivatives,
    integrate,
    integrate_derivatives,
    neutral,
    random_configuration,
)
from .momentum import (
    center_of_mass,
    center_of_mass_jacobian,
    centroidal_momentum,
    centroidal_momentum_matrix,
)
from .rnea import bias_forces, generalized_forces, gravity_forces, rnea
from .robot import WORLD, Axes, Frame, Joint, Mimic, Robot, Shape, Topology
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
    "Axes",
    "ForwardDynamicsDerivatives",
    "Frame",
    "FraxenvError",
    "InverseDynamicsDerivatives",
    "Joint",
    "Kinematics",
    "Mimic",
    "Poses",
    "Robot",
    "RobotLoadError",
    "RobotLoadWarning",
    "SecondDerivatives",
    "Shape",
    "Terms",
    "Topology",
    "TransitionDerivatives",
    "UnknownNameError",
    "bias_forces",
    "center_of_mass",
    "center_of_mass_jacobian",
    "centroidal_momentum",
    "centroidal_momentum_matrix",
    "compute_kinematics",
    "compute_terms",
    "coordinate_rates",
    "coriolis_matrix",
    "crba",
    "difference",
    "difference_derivatives",
    "forward_dynamics",
    "forward_dynamics_derivatives",
    "forward_kinematics",
    "frame_acceleration",
    "frame_jacobian",
    "frame_jacobian_dot",
    "frame_pose",
    "frame_velocity",
    "generalized_forces",
    "gravity_forces",
    "integrate",
    "integrate_derivatives",
    "inverse_dynamics_derivatives",
    "inverse_dynamics_second_derivatives",
    "kinetic_energy",
    "list_robots",
    "load_robot",
    "load_urdf",
    "manipulability",
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
    "random_configuration",
    "residual_derivatives",
    "rnea",
    "rotation_exp",
    "rotation_log",
    "spd_solve",
    "step",
    "transition_derivatives",
]
