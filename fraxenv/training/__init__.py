"""Train a policy with a library's algorithm, evaluate it, and leave everything in one folder."""

from .config import PPOConfig, SACConfig, TrainConfig, load_config, preset, save_config
from .evaluation import Evaluation, evaluate, evaluate_in_parts, joined
from .policy import Policy
from .rounds import read_metrics, train
from .runs import load_policy

__all__ = [
    "Evaluation",
    "PPOConfig",
    "Policy",
    "SACConfig",
    "TrainConfig",
    "evaluate",
    "evaluate_in_parts",
    "joined",
    "load_config",
    "load_policy",
    "preset",
    "read_metrics",
    "save_config",
    "train",
]
