"""Environments: robot x task x action space x controller."""

from .actions import ACTION_SPACES, ActionAxis, ActionSpace, EEDelta, JointTorque
from .environment import Environment, EnvParams, EnvState
from .reach import POSE_WEIGHTS, POSITION_WEIGHTS, Reach, ReachState
from .reach_obstacles import OBSTACLE_WEIGHTS, ReachObstacles, ReachObstaclesState
from .task import Marker, Motion, Task

__all__ = [
    "ACTION_SPACES",
    "OBSTACLE_WEIGHTS",
    "POSE_WEIGHTS",
    "POSITION_WEIGHTS",
    "ActionAxis",
    "ActionSpace",
    "EEDelta",
    "EnvParams",
    "EnvState",
    "Environment",
    "JointTorque",
    "Marker",
    "Motion",
    "Reach",
    "ReachObstacles",
    "ReachObstaclesState",
    "ReachState",
    "Task",
]
