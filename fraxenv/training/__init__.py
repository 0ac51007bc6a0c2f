"""Train a policy with a library's algorithm, evaluate it, and leave everything in one folder."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .config import (
        APGConfig,
        BCConfig,
        DAggerConfig,
        PPOConfig,
        SACConfig,
        SHACConfig,
        TrainConfig,
        load_config,
        preset,
        save_config,
    )
    from .evaluation import Evaluation, evaluate, evaluate_in_parts, join_evaluations
    from .policy import Policy
    from .rounds import read_metrics, train
    from .runs import load_policy

__all__ = [
    "APGConfig",
    "BCConfig",
    "DAggerConfig",
    "Evaluation",
    "PPOConfig",
    "Policy",
    "SACConfig",
    "SHACConfig",
    "TrainConfig",
    "evaluate",
    "evaluate_in_parts",
    "join_evaluations",
    "load_config",
    "load_policy",
    "preset",
    "read_metrics",
    "save_config",
    "train",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "APGConfig": "config",
        "BCConfig": "config",
        "DAggerConfig": "config",
        "Evaluation": "evaluation",
        "PPOConfig": "config",
        "Policy": "policy",
        "SACConfig": "config",
        "SHACConfig": "config",
        "TrainConfig": "config",
        "evaluate": "evaluation",
        "evaluate_in_parts": "evaluation",
        "join_evaluations": "evaluation",
        "load_config": "config",
        "load_policy": "runs",
        "preset": "config",
        "read_metrics": "rounds",
        "save_config": "config",
        "train": "rounds",
    },
)
