"""Train a policy with a library's algorithm, evaluate it, and leave everything in one folder."""

from .config import TrainConfig, load_config, save_config
from .evaluation import Evaluation, evaluate
from .policy import Policy
from .ppo import train
from .runs import load_policy

__all__ = [
    "Evaluation",
    "Policy",
    "TrainConfig",
    "evaluate",
    "load_config",
    "load_policy",
    "save_config",
    "train",
]
