"""Planning: trajectories that cost little, by exact derivatives. Public as `fraxenv.plan`."""

from .ddp import STATUS, Options, Plan, solve
from .explain import PlanExplanation, explain
from .guess import guess
from .inverse_kinematics import IKSolution, inverse_kinematics
from .legs import balance, height, swing, swing_heights, upright
from .mpc import MPC, MPCState, shift
from .norms import (
    Norm,
    cosh,
    l2,
    l22,
    power_loss,
    quadratic,
    rectify,
    smooth_abs,
    smooth_abs2,
)
from .problem import Problem
from .reach import Motion, reach
from .residuals import (
    Residual,
    below,
    com,
    frame_twist,
    momentum,
    orientation,
    pose,
    position,
    posture,
    residual,
    torque,
    velocity,
)
from .sample import Sampled, Sampling, sample, sample_controls
from .scheduled import Schedule, friction_cone, schedule
from .states import Guess
from .touches import contact_force, slip

__all__ = [
    "MPC",
    "STATUS",
    "Guess",
    "IKSolution",
    "MPCState",
    "Motion",
    "Norm",
    "Options",
    "Plan",
    "PlanExplanation",
    "Problem",
    "Residual",
    "Sampled",
    "Sampling",
    "Schedule",
    "balance",
    "below",
    "com",
    "contact_force",
    "cosh",
    "explain",
    "frame_twist",
    "friction_cone",
    "guess",
    "height",
    "inverse_kinematics",
    "l2",
    "l22",
    "momentum",
    "orientation",
    "pose",
    "position",
    "posture",
    "power_loss",
    "quadratic",
    "reach",
    "rectify",
    "residual",
    "sample",
    "sample_controls",
    "schedule",
    "shift",
    "slip",
    "smooth_abs",
    "smooth_abs2",
    "solve",
    "swing",
    "swing_heights",
    "torque",
    "upright",
    "velocity",
]
