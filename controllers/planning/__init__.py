"""Planning: trajectories that cost little, by exact derivatives. Public as `fraxenv.plan`."""

from .ddp import STATUS, Options, Plan, solve
from .guess import Guess, guess
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

__all__ = [
    "STATUS",
    "Guess",
    "Norm",
    "Options",
    "Plan",
    "Problem",
    "Residual",
    "below",
    "com",
    "cosh",
    "frame_twist",
    "guess",
    "l2",
    "l22",
    "momentum",
    "orientation",
    "pose",
    "position",
    "posture",
    "power_loss",
    "quadratic",
    "rectify",
    "residual",
    "smooth_abs",
    "smooth_abs2",
    "solve",
    "torque",
    "velocity",
]
