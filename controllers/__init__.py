"""Controllers: from where the hands or joints should go to joint torques."""

from .base import Controller, ControllerState, Telemetry
from .differential_ik import DifferentialIK, differential_ik
from .joint_impedance import JointImpedance, JointTarget
from .joint_velocity import JointVelocity
from .osc import OSC, osc_torque
from .pose import PoseTarget
from .torque import Torque

__all__ = [
    "OSC",
    "Controller",
    "ControllerState",
    "DifferentialIK",
    "JointImpedance",
    "JointTarget",
    "JointVelocity",
    "PoseTarget",
    "Telemetry",
    "Torque",
    "differential_ik",
    "osc_torque",
]
