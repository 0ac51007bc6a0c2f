"""Environments: robot x task x action space x controller."""

from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from .actions.base import ActionAxis, ActionSpace, Steerable
from .actions.gripper import WithGripper
from .actions.hand import EEDelta, EEPose
from .actions.impedance import VariableImpedance
from .actions.joint import JointDelta, JointPosition, JointRate, JointTorque
from .actions.names import ACTION_SPACES, action_names, joint_action_names, make_action
from .arm_export import arm_library
from .contact_physics import ContactPhysics
from .environment import Environment
from .goal_environment import GoalEnvironment
from .payload import HeldObject
from .predictive import PredictivePolicy, mpc_policy
from .randomisation import Randomisation, RandomisedEpisode
from .state import EnvParams, EnvState
from .tasks.base import GoalTask, Motion, Task
from .tasks.door import Door
from .tasks.drawer import Drawer
from .tasks.furniture import door, drawer, furniture_scene, with_hand_across
from .tasks.grasping import grasped, pad_forces, slip_speed
from .tasks.insert import INSERT_WEIGHTS, Insert
from .tasks.joint_goals import OPEN_WEIGHTS, JointGoals, JointGoalState
from .tasks.measures import Measure
from .tasks.object_goals import ObjectGoals, ObjectGoalState
from .tasks.pick import PICK_WEIGHTS, Pick
from .tasks.pick_pose import PICK_POSE_WEIGHTS, PickPose
from .tasks.pose_goals import POSE_WEIGHTS, POSITION_WEIGHTS, PoseGoals, joint_terms
from .tasks.pull import PULL_WEIGHTS, Pull, PullState
from .tasks.push import PUSH_WEIGHTS, Push
from .tasks.reach import Reach, ReachState
from .tasks.reach_obstacles import OBSTACLE_WEIGHTS, ReachObstacles
from .tasks.references import FigureEight, MinimumJerk, Reference, Sampled
from .tasks.slide import SLIDE_WEIGHTS, Slide
from .tasks.stack import STACK_WEIGHTS, Stack, StackState
from .tasks.tabletop import (
    block,
    pad_names,
    peg,
    puck,
    socket,
    tabletop_scene,
    with_closed_fingers,
)
from .tasks.tabletop_obstacles import (
    InsertObstacles,
    PickObstacles,
    PickPoseObstacles,
    PushObstacles,
    StackObstacles,
    TabletopObstacles,
    UprightObstacles,
    among_obstacles,
)
from .tasks.track import Track, TrackState
from .tasks.trot import TROT_WEIGHTS, Trot, TrotState
from .tasks.trot_track import TROT_TRACK_WEIGHTS, TrotTrack, TrotTrackState
from .tasks.upright import UPRIGHT_WEIGHTS, Upright
from .tasks.walking import foot_names, pulling_scene, sled, walking_scene
from .tasks.wipe import WIPE_WEIGHTS, Wipe, WipeState
from .world import ObjectState, SceneState, World

__all__ = [
    "ACTION_SPACES",
    "INSERT_WEIGHTS",
    "OBSTACLE_WEIGHTS",
    "OPEN_WEIGHTS",
    "PICK_POSE_WEIGHTS",
    "PICK_WEIGHTS",
    "POSE_WEIGHTS",
    "POSITION_WEIGHTS",
    "PULL_WEIGHTS",
    "PUSH_WEIGHTS",
    "SLIDE_WEIGHTS",
    "STACK_WEIGHTS",
    "TROT_TRACK_WEIGHTS",
    "TROT_WEIGHTS",
    "UPRIGHT_WEIGHTS",
    "WIPE_WEIGHTS",
    "ActionAxis",
    "ActionSpace",
    "ContactPhysics",
    "Door",
    "Drawer",
    "EEDelta",
    "EEPose",
    "EnvParams",
    "EnvState",
    "Environment",
    "FigureEight",
    "GoalEnvironment",
    "GoalTask",
    "HeldObject",
    "Insert",
    "InsertObstacles",
    "JointDelta",
    "JointGoalState",
    "JointGoals",
    "JointPosition",
    "JointRate",
    "JointTorque",
    "Measure",
    "MinimumJerk",
    "Motion",
    "ObjectGoalState",
    "ObjectGoals",
    "ObjectState",
    "Pick",
    "PickObstacles",
    "PickPose",
    "PickPoseObstacles",
    "PoseGoals",
    "PredictivePolicy",
    "Pull",
    "PullState",
    "Push",
    "PushObstacles",
    "Randomisation",
    "RandomisedEpisode",
    "Reach",
    "ReachObstacles",
    "ReachState",
    "Reference",
    "Sampled",
    "SceneState",
    "Slide",
    "Stack",
    "StackObstacles",
    "StackState",
    "Steerable",
    "TabletopObstacles",
    "Task",
    "Track",
    "TrackState",
    "Trot",
    "TrotState",
    "TrotTrack",
    "TrotTrackState",
    "Upright",
    "UprightObstacles",
    "VariableImpedance",
    "Wipe",
    "WipeState",
    "WithGripper",
    "World",
    "action_names",
    "among_obstacles",
    "arm_library",
    "block",
    "door",
    "drawer",
    "foot_names",
    "furniture_scene",
    "grasped",
    "joint_action_names",
    "joint_terms",
    "make_action",
    "mpc_policy",
    "pad_forces",
    "pad_names",
    "peg",
    "puck",
    "pulling_scene",
    "pytree_dataclass",
    "sled",
    "slip_speed",
    "socket",
    "static",
    "tabletop_scene",
    "walking_scene",
    "with_closed_fingers",
    "with_hand_across",
]
