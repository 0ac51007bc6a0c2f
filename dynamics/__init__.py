"""Rigid-body dynamics of articulated robots in pure JAX.

Every function takes one environment's arrays (`q: (nq,)`, `v, tau: (nv,)`) and is batched with
`jax.vmap`. All are pure, jittable and differentiable, and follow the dtype of their inputs.
Annotations give shapes, as of jaxtyping: nq coordinates, nv degrees of freedom, nb moving bodies.
SI units, radians; quaternions wxyz; spatial vectors `[linear; angular]`.
"""

from fraxenv.errors import (
    ArrayError,
    FraxenvError,
    RobotLoadError,
    RobotLoadWarning,
    SceneLoadError,
    UnknownNameError,
)

from .actuation import Actuators, ActuatorState, effort_bounds
from .clearance import (
    nearest_obstacles,
    obstacle_distance_names,
    obstacle_distances,
    self_distance_names,
    self_distances,
)
from .collision_geometry import RobotGeometry, robot_geometry, robot_geometry_rate
from .constrained_dynamics import FrameConstraints, constrained_dynamics, impulse_dynamics
from .constrained_step import (
    ConstrainedStepDerivatives,
    constrained_step,
    constrained_step_derivatives,
)
from .contact.narrowphase import Contacts
from .contact.newton import Solution
from .crba import crba
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
from .energy import kinetic_energy, potential_energy
from .forward_dynamics import forward_dynamics, spd_solve
from .frame_derivatives import FrameDerivatives, frame_derivatives
from .geometry.distance import (
    capsule_box,
    capsule_capsule,
    capsule_half_space,
    sphere_box,
    sphere_capsule,
    sphere_half_space,
    sphere_sphere,
)
from .geometry.obstacles import (
    Obstacles,
    grown_obstacles,
    move_obstacles,
    obstacle_count,
    obstacle_rates,
    obstacle_shapes,
)
from .geometry.shapes import Box, Capsule, HalfSpace, Shape, Sphere
from .integration import step
from .jacobian import (
    frame_acceleration,
    frame_bias_acceleration,
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
from .math.rotation import (
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
from .model.attach import attach
from .model.bundled import list_assemblies, list_robots, load_robot
from .model.combine import MemberSlices, combine, member_slices
from .model.lock import lock_joints
from .model.mount import mount
from .model.robot import WORLD, Axes, Frame, Joint, Mimic, Robot, Topology
from .model.urdf import load_urdf
from .momentum import (
    center_of_mass,
    center_of_mass_jacobian,
    centroidal_momentum,
    centroidal_momentum_matrix,
)
from .momentum_derivatives import centroidal_momentum_derivative
from .payload import Payload, terms_with_payload, with_payload
from .rnea import bias_forces, generalized_forces, gravity_forces, rnea
from .scene.actuators import (
    JointActuator,
    motor_actuator,
    position_actuator,
    velocity_actuator,
)
from .scene.build import (
    ContactGeom,
    SceneObject,
    box_geom,
    build_scene,
    capsule_geom,
    cylinder_geom,
    free_body,
    plane_geom,
    sphere_geom,
)
from .scene.contacts import contacts
from .scene.derivatives import ContactTransitionDerivatives, contact_transition_derivatives
from .scene.equalities import (
    SceneEquality,
    connect_equality,
    joint_equality,
    weld_equality,
)
from .scene.forces import actuator_forces, passive_forces
from .scene.jointed import jointed_body, placed_body
from .scene.mjcf import MjcfIndices, load_mjcf, load_mjcf_robot, mjcf_indices
from .scene.parts import JointActuators
from .scene.presets import grip, soften
from .scene.scene import Scene
from .scene.step import constrained_acceleration, scene_step
from .terms import Terms, compute_terms, restrict_terms

__all__ = [
    "WORLD",
    "ActuatorState",
    "Actuators",
    "ArrayError",
    "Axes",
    "Box",
    "Capsule",
    "ConstrainedStepDerivatives",
    "ContactGeom",
    "ContactTransitionDerivatives",
    "Contacts",
    "ForwardDynamicsDerivatives",
    "Frame",
    "FrameConstraints",
    "FrameDerivatives",
    "FraxenvError",
    "HalfSpace",
    "InverseDynamicsDerivatives",
    "Joint",
    "JointActuator",
    "JointActuators",
    "Kinematics",
    "MemberSlices",
    "Mimic",
    "MjcfIndices",
    "Obstacles",
    "Payload",
    "Poses",
    "Robot",
    "RobotGeometry",
    "RobotLoadError",
    "RobotLoadWarning",
    "Scene",
    "SceneEquality",
    "SceneLoadError",
    "SceneObject",
    "SecondDerivatives",
    "Shape",
    "Solution",
    "Sphere",
    "Terms",
    "Topology",
    "TransitionDerivatives",
    "UnknownNameError",
    "actuator_forces",
    "attach",
    "bias_forces",
    "box_geom",
    "build_scene",
    "capsule_box",
    "capsule_capsule",
    "capsule_geom",
    "capsule_half_space",
    "center_of_mass",
    "center_of_mass_jacobian",
    "centroidal_momentum",
    "centroidal_momentum_derivative",
    "centroidal_momentum_matrix",
    "combine",
    "compute_kinematics",
    "compute_terms",
    "connect_equality",
    "constrained_acceleration",
    "constrained_dynamics",
    "constrained_step",
    "constrained_step_derivatives",
    "contact_transition_derivatives",
    "contacts",
    "coordinate_rates",
    "coriolis_matrix",
    "crba",
    "cylinder_geom",
    "difference",
    "difference_derivatives",
    "effort_bounds",
    "forward_dynamics",
    "forward_dynamics_derivatives",
    "forward_kinematics",
    "frame_acceleration",
    "frame_bias_acceleration",
    "frame_derivatives",
    "frame_jacobian",
    "frame_jacobian_dot",
    "frame_pose",
    "frame_velocity",
    "free_body",
    "generalized_forces",
    "gravity_forces",
    "grip",
    "grown_obstacles",
    "impulse_dynamics",
    "integrate",
    "integrate_derivatives",
    "inverse_dynamics_derivatives",
    "inverse_dynamics_second_derivatives",
    "joint_equality",
    "jointed_body",
    "kinetic_energy",
    "list_assemblies",
    "list_robots",
    "load_mjcf",
    "load_mjcf_robot",
    "load_robot",
    "load_urdf",
    "lock_joints",
    "manipulability",
    "matrix_to_quaternion",
    "member_slices",
    "mjcf_indices",
    "motor_actuator",
    "mount",
    "move_obstacles",
    "nearest_obstacles",
    "neutral",
    "obstacle_count",
    "obstacle_distance_names",
    "obstacle_distances",
    "obstacle_rates",
    "obstacle_shapes",
    "orientation_error",
    "passive_forces",
    "placed_body",
    "plane_geom",
    "position_actuator",
    "potential_energy",
    "quaternion_conjugate",
    "quaternion_exp",
    "quaternion_log",
    "quaternion_multiply",
    "quaternion_normalize",
    "quaternion_to_matrix",
    "random_configuration",
    "residual_derivatives",
    "restrict_terms",
    "rnea",
    "robot_geometry",
    "robot_geometry_rate",
    "rotation_exp",
    "rotation_log",
    "scene_step",
    "self_distance_names",
    "self_distances",
    "soften",
    "spd_solve",
    "sphere_box",
    "sphere_capsule",
    "sphere_geom",
    "sphere_half_space",
    "sphere_sphere",
    "step",
    "terms_with_payload",
    "transition_derivatives",
    "velocity_actuator",
    "weld_equality",
    "with_payload",
]
