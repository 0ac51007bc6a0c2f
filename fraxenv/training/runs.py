"""Training runs on disk: the policy of one, and the latest one."""

from __future__ import annotations

from pathlib import Path

from ..envs import Environment, EnvParams
from ..errors import CheckpointError
from ..storage.pytrees import load_pytree
from .algorithms import create_algorithm, policy_of, weights_like
from .config import TrainConfig, load_config
from .policy import Policy
from .rounds import CHECKPOINT, CONFIG, POLICY, make_env


def load_policy(run: str | Path) -> tuple[Policy, Environment, EnvParams, TrainConfig]:
    """The policy of a training run, and the environment it was trained on.

    Args:
        run: the run's folder, e.g. `runs/PandaReach-v0`.

    Raises:
        CheckpointError: the run has no policy, or a damaged one.
        ConfigError: the run's configuration cannot be read.
    """
    run = Path(run)
    config = load_config(run / CONFIG)
    env, params = make_env(config)
    algorithm = create_algorithm(config, env, params)
    weights, _ = load_pytree(run / POLICY, weights_like(algorithm))
    return policy_of(config, algorithm, weights), env, params, config


def latest_run(runs: str | Path, env: str | None = None, algorithm: str | None = None) -> Path:
    """The run in a folder of runs that was trained last; of an environment, an algorithm, if given.

    Raises:
        CheckpointError: there is none.
    """
    found = [p.parent for p in Path(runs).glob(f"*/{CHECKPOINT}")]
    configs = {run: load_config(run / CONFIG) for run in found}
    found = [
        run
        for run, config in configs.items()
        if env in (None, config.env) and algorithm in (None, config.algorithm)
    ]
    if not found:
        asked = (f" of {env}" if env else "") + (f" with {algorithm}" if algorithm else "")
        raise CheckpointError(
            f"{runs}/ holds no run{asked} to resume. Start one without --resume, or name its "
            "folder with --runs."
        )
    return max(found, key=lambda run: (run / CHECKPOINT).stat().st_mtime)
