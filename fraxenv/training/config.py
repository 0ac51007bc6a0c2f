"""The configuration of a training run: one flat dataclass, stored as YAML."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ..checkpoint import write_atomic
from ..errors import ConfigError, import_extra, unknown_name


@dataclass(frozen=True)
class TrainConfig:
    """What decides a training run. The same configuration gives the same policy.

    The algorithm is PPO as rejax implements it.

    Attributes:
        env: id of the environment.
        overrides: passed to `fraxenv.make`.
        seed: decides initial weights, episodes and exploration.
        total_timesteps: environment steps of all environments together, rounded up to whole rounds.
        num_envs: environments that run side by side.
        num_steps: policy steps per environment between two updates.
        num_epochs: passes over each batch.
        num_minibatches: parts that a batch is split into; divides `num_envs * num_steps`.
        updates_per_round: updates between two evaluations, each of which writes a checkpoint.
        learning_rate: of Adam.
        gamma: discount per policy step.
        gae_lambda: of generalised advantage estimation.
        clip_eps: of PPO's surrogate.
        ent_coef: weight of the entropy bonus.
        vf_coef: weight of the value loss.
        max_grad_norm: largest gradient element.
        hidden_layer_sizes: of policy and value network.
        activation: of both; a name in flax.linen.
        eval_episodes: episodes of the evaluation after each round.
        final_episodes: episodes of the evaluation at the end, on goals never trained on.
    """

    env: str = "PandaReach-v0"
    overrides: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    total_timesteps: int = 917_504
    num_envs: int = 256
    num_steps: int = 32
    num_epochs: int = 4
    num_minibatches: int = 8
    updates_per_round: int = 8
    learning_rate: float = 1e-3
    gamma: float = 0.95
    gae_lambda: float = 0.9
    clip_eps: float = 0.2
    ent_coef: float = 0.0
    vf_coef: float = 1.0
    max_grad_norm: float = 0.5
    hidden_layer_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    eval_episodes: int = 64
    final_episodes: int = 1000

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name}={value!r}, expected a whole number >= 1.")
        if self.num_envs * self.num_steps % self.num_minibatches:
            raise ConfigError(
                f"num_minibatches={self.num_minibatches} does not divide num_envs * num_steps = "
                f"{self.num_envs * self.num_steps}. Choose a divisor."
            )

    @property
    def round_timesteps(self) -> int:
        """Environment steps of one round: from one evaluation to the next."""
        return self.num_envs * self.num_steps * self.updates_per_round

    @property
    def rounds(self) -> int:
        """Number of rounds of the whole run."""
        return -(-self.total_timesteps // self.round_timesteps)


_POSITIVE = (
    "total_timesteps",
    "num_envs",
    "num_steps",
    "num_epochs",
    "num_minibatches",
    "updates_per_round",
    "eval_episodes",
    "final_episodes",
)


def preset(env: str) -> TrainConfig:
    """The preset that ships for an environment, or the defaults where none does."""
    file = resources.files("fraxenv.configs").joinpath(f"{env}-ppo.yaml")
    if not file.is_file():
        return TrainConfig(env=env)
    return _parse(file.read_text("utf-8"), file.name)


def load_config(path: str | Path) -> TrainConfig:
    """Read a configuration from YAML.

    Raises:
        ConfigError: the file cannot be read, or a value is not possible.
        UnknownNameError: the file has an unknown key; names its neighbours.
    """
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration {str(path)!r}: {error.strerror}."
        ) from error
    return _parse(text, str(path))


def save_config(path: str | Path, config: TrainConfig) -> None:
    """Write a configuration as YAML; atomic."""
    yaml = import_extra("yaml", "train", "Saving a configuration")
    values = dataclasses.asdict(config)
    values["hidden_layer_sizes"] = list(config.hidden_layer_sizes)
    write_atomic(path, yaml.safe_dump(values, sort_keys=False).encode())


def _parse(text: str, where: str) -> TrainConfig:
    yaml = import_extra("yaml", "train", "Reading a configuration")
    try:
        values = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected `key: value` lines, found a {type(values).__name__}.")
    defaults = {f.name: getattr(TrainConfig(), f.name) for f in dataclasses.fields(TrainConfig)}
    for key, value in values.items():
        if key not in defaults:
            raise unknown_name(f"key in {where}", key, defaults)
        values[key] = _coerce(where, key, value, defaults[key])
    return TrainConfig(**values)


def _coerce(where: str, key: str, value: Any, default: Any) -> Any:
    """A YAML value as the type of the field's default: lists are tuples, and 1 is a float too."""
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise ConfigError(
            f"{where}: {key}={value!r} is a {type(value).__name__}, expected a "
            f"{type(default).__name__} such as {default!r}."
        )
    return value
