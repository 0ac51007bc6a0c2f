"""Environments: robot x task x action space x controller."""

from fraxenv.controllers.base import configuration

from .action_space import ActionAxis, ActionSpace
from .actions import ACTION_SPACES, action_names, make_action
from .ee_actions import EEDelta, EEPose
from .environment import Environment, EnvParams, EnvState
from .goal_environment import GoalEnvironment
from .hand_task import POSE_WEIGHTS, POSITION_WEIGHTS, HandTask, joint_terms
from .impedance_actions import VariableImpedance
from .joint_actions import JointDelta, JointPosition, JointRate, JointTorque
from .randomisation import Episode, Randomisation
from .reach import Reach, ReachState
from .reach_obstacles import OBSTACLE_WEIGHTS, ReachObstacles, ReachObstaclesState
from .references import FigureEight, MinimumJerk, Reference, Sampled
from .task import GoalTask, Marker, Motion, Task
from .track import Track, TrackState

__all__ = [
    "ACTION_SPACES",
    "OBSTACLE_WEIGHTS",
    "POSE_WEIGHTS",
    "POSITION_WEIGHTS",
    "ActionAxis",
    "ActionSpace",
    "EEDelta",
    "EEPose",
    "EnvParams",
    "EnvState",
    "Environment",
    "Episode",
    "FigureEight",
    "GoalEnvironment",
    "GoalTask",
    "HandTask",
    "JointDelta",
    "JointPosition",
    "JointRate",
    "JointTorque",
    "Marker",
    "MinimumJerk",
    "Motion",
    "Randomisation",
    "Reach",
    "ReachObstacles",
    "ReachObstaclesState",
    "ReachState",
    "Reference",
    "Sampled",
    "Task",
    "Track",
    "TrackState",
    "VariableImpedance",
    "action_names",
    "configuration",
    "joint_terms",
    "make_action",
]
