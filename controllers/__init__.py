"""Controllers: joint torques from targets of the hands or of the joints."""

from fraxenv.dynamics.solvers.qp import QP, QPSolution, solve_qp

from .base import Controller, Telemetry
from .differential_ik import DifferentialIK, differential_ik
from .groups import ArmWithGripper, GripperTarget, finger_joints
from .hands import PoseTarget
from .joint_impedance import JointImpedance, JointTarget
from .joint_velocity import JointVelocity
from .observer import MomentumObserver
from .osc import OSC, osc_torque
from .safety import barriers
from .safety.barriers import Barrier, Situation
from .safety.filter import SafetyFilter, SafetyReport, default_barriers
from .safety.foresight import Foresight, WayOut
from .safety.robust import Robustness
from .torque import Torque

__all__ = [
    "OSC",
    "QP",
    "ArmWithGripper",
    "Barrier",
    "Controller",
    "DifferentialIK",
    "Foresight",
    "GripperTarget",
    "JointImpedance",
    "JointTarget",
    "JointVelocity",
    "MomentumObserver",
    "PoseTarget",
    "QPSolution",
    "Robustness",
    "SafetyFilter",
    "SafetyReport",
    "Situation",
    "Telemetry",
    "Torque",
    "WayOut",
    "barriers",
    "default_barriers",
    "differential_ik",
    "finger_joints",
    "osc_torque",
    "solve_qp",
]
