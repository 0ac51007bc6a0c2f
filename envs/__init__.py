"""Environments: robot x task x action space x controller."""

from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from .actions.base import ActionAxis, ActionSpace, Steerable
from .actions.hand import EEDelta, EEPose
from .actions.impedance import VariableImpedance
from .actions.joint import JointDelta, JointPosition, JointRate, JointTorque
from .actions.names import ACTION_SPACES, action_names, make_action
from .contact_physics import ContactPhysics
from .environment import Environment
from .goal_environment import GoalEnvironment
from .randomisation import Randomisation, RandomisedEpisode
from .state import EnvParams, EnvState
from .tasks.base import GoalTask, Motion, Task
from .tasks.measures import Measure
from .tasks.pose_goals import POSE_WEIGHTS, POSITION_WEIGHTS, PoseGoals, joint_terms
from .tasks.reach import Reach, ReachState
from .tasks.reach_obstacles import OBSTACLE_WEIGHTS, ReachObstacles
from .tasks.references import FigureEight, MinimumJerk, Reference, Sampled
from .tasks.track import Track, TrackState
from .world import ObjectState, SceneState, World

__all__ = [
    "ACTION_SPACES",
    "OBSTACLE_WEIGHTS",
    "POSE_WEIGHTS",
    "POSITION_WEIGHTS",
    "ActionAxis",
    "ActionSpace",
    "ContactPhysics",
    "EEDelta",
    "EEPose",
    "EnvParams",
    "EnvState",
    "Environment",
    "FigureEight",
    "GoalEnvironment",
    "GoalTask",
    "JointDelta",
    "JointPosition",
    "JointRate",
    "JointTorque",
    "Measure",
    "MinimumJerk",
    "Motion",
    "ObjectState",
    "PoseGoals",
    "Randomisation",
    "RandomisedEpisode",
    "Reach",
    "ReachObstacles",
    "ReachState",
    "Reference",
    "Sampled",
    "SceneState",
    "Steerable",
    "Task",
    "Track",
    "TrackState",
    "VariableImpedance",
    "World",
    "action_names",
    "joint_terms",
    "make_action",
    "pytree_dataclass",
    "static",
]
