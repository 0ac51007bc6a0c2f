"""Wrappers: fraxenv's environments in the forms that other libraries expect."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .arm_adapter import ArmAdapter
    from .batched_mujoco import EEAction, ee_action
    from .brax import BraxEnv as BraxEnv
    from .brax import RandomResetWrapper as RandomResetWrapper
    from .brax import wrap_for_brax as wrap_for_brax
    from .end_effector_action import EndEffectorAction
    from .five_tuple import FiveTuple
    from .gymnasium import GymnasiumEnv, GymnasiumVectorEnv
    from .stable_baselines3 import StableBaselinesVecEnv as StableBaselinesVecEnv
    from .statistics import EpisodeStatistics

# Without those that need another library, for `import *`.
__all__ = [
    "ArmAdapter",
    "EEAction",
    "EndEffectorAction",
    "EpisodeStatistics",
    "FiveTuple",
    "GymnasiumEnv",
    "GymnasiumVectorEnv",
    "ee_action",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ArmAdapter": "arm_adapter",
        "BraxEnv": "brax",
        "EEAction": "batched_mujoco",
        "EndEffectorAction": "end_effector_action",
        "EpisodeStatistics": "statistics",
        "FiveTuple": "five_tuple",
        "GymnasiumEnv": "gymnasium",
        "GymnasiumVectorEnv": "gymnasium",
        "RandomResetWrapper": "brax",
        "StableBaselinesVecEnv": "stable_baselines3",
        "ee_action": "batched_mujoco",
        "wrap_for_brax": "brax",
    },
)
