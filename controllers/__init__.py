"""Controllers: from where the hand should go to joint torques."""

from .base import Controller, Telemetry, limit_effort
from .osc import OSC, PoseTarget, osc_torque
from .torque import Torque

__all__ = ["OSC", "Controller", "PoseTarget", "Telemetry", "Torque", "limit_effort", "osc_torque"]
