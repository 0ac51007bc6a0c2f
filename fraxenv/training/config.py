"""The configuration of a training run: one flat dataclass per algorithm, stored as YAML."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from ..errors import ConfigError, check_choice, check_count, unknown_name
from ..making.make import env_config
from ..storage.config import TRAINING, list_presets, read_yaml, write_yaml

AlgorithmName = Literal["ppo", "sac", "shac", "apg", "bc", "dagger"]

_FRACTIONS = ("settling", "gamma", "gae_lambda", "td_lambda", "polyak")
"""Fields that are fractions: at most 1."""

ACTIVATIONS = ("tanh", "relu", "elu", "gelu", "swish")


@dataclass(frozen=True)
class TrainConfig:
    """The configuration of a training run, of any algorithm. Equal ones give the same policy.

    The algorithms are those of rejax, two that differentiate the environment, and two that imitate.
    A round goes from one evaluation, which writes a checkpoint, to the next. Presets hold only what
    differs from the defaults, and were measured with these.

    Attributes:
        env: id of the environment.
        overrides: passed to `fraxenv.make`.
        algorithm: what learns.
        seed: decides initial weights, episodes and exploration.
        total_timesteps: environment steps of all environments together, rounded up to whole rounds.
        num_envs: environments that run side by side.
        updates_per_round: updates between two evaluations.
        learning_rate: of Adam.
        gamma: discount per policy step.
        hidden_layer_sizes: of policy and value network.
        activation: of both: "tanh", "relu", "elu", "gelu" or "swish".
        eval_episodes: episodes of the evaluation after each round.
        final_episodes: episodes of the evaluation at the end, on goals never trained on.
    """

    env: str = "PandaReach-v0"
    overrides: dict[str, Any] = field(default_factory=dict)
    algorithm: AlgorithmName = "ppo"
    seed: int = 0
    total_timesteps: int = 1_000_000
    num_envs: int = 256
    updates_per_round: int = 8
    learning_rate: float = 1e-3
    gamma: float = 0.95
    hidden_layer_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    eval_episodes: int = 64
    final_episodes: int = 1000

    may_change: ClassVar[tuple[str, ...]] = ("total_timesteps", "final_episodes")
    """What may be another value when a run is resumed."""

    counted: ClassVar[str] = "environment steps"
    """What `total_timesteps` counts."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.name == "algorithm":
                check_choice("algorithm", value, (str(f.default),))
            elif f.type == "int" and f.name != "seed":
                object.__setattr__(self, f.name, check_count(f.name, value))
            elif f.type == "float":
                most = 1.0 if f.name in _FRACTIONS else math.inf
                if not 0.0 <= value <= most:
                    raise ConfigError(f"{f.name}={value!r}, expected a number from 0 to {most}.")
        if "id" in self.overrides:
            raise ConfigError(f"overrides: id={self.overrides['id']!r}, expected it as env.")
        check_choice("activation", self.activation, ACTIVATIONS)
        sizes = tuple(check_count("hidden_layer_sizes", n) for n in self.hidden_layer_sizes)
        object.__setattr__(self, "hidden_layer_sizes", sizes)

    @property
    def update_timesteps(self) -> int:
        """Environment steps between two updates."""
        return self.num_envs

    @property
    def round_timesteps(self) -> int:
        """Environment steps of one round."""
        return self.update_timesteps * self.updates_per_round

    @property
    def rounds(self) -> int:
        """Number of rounds of the whole run."""
        return -(-self.total_timesteps // self.round_timesteps)


@dataclass(frozen=True)
class PPOConfig(TrainConfig):
    """A run of proximal policy optimisation.

    Attributes:
        num_steps: policy steps per environment between two updates.
        num_epochs: passes over each batch.
        num_minibatches: parts that a batch is split into; divides `num_envs * num_steps`.
        gae_lambda: of generalised advantage estimation.
        clip_eps: of PPO's surrogate.
        ent_coef: weight of the entropy bonus.
        vf_coef: weight of the value loss.
        max_grad_norm: largest gradient element.
        settling: share of the training, at its end, in which the learning rate falls to zero.
    """

    num_steps: int = 32
    num_epochs: int = 2
    num_minibatches: int = 16
    gae_lambda: float = 0.95
    clip_eps: float = 0.2
    ent_coef: float = 0.0
    vf_coef: float = 1.0
    max_grad_norm: float = 0.5
    settling: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_divides(self, self.num_minibatches)

    @property
    def update_timesteps(self) -> int:
        """Environment steps between two updates."""
        return self.num_envs * self.num_steps


@dataclass(frozen=True)
class SACConfig(TrainConfig):
    """A run of soft actor-critic. An update follows every step of the environments.

    Attributes:
        num_epochs: gradient steps of each update.
        batch_size: transitions of a gradient step.
        buffer_size: transitions that are remembered.
        fill_buffer: transitions before the first gradient step.
        polyak: part of the target network that each update keeps.
    """

    algorithm: AlgorithmName = "sac"
    num_envs: int = 128
    updates_per_round: int = 256
    activation: str = "relu"
    num_epochs: int = 8
    batch_size: int = 512
    buffer_size: int = 65_536
    fill_buffer: int = 8192
    polyak: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_envs", "batch_size", "fill_buffer"):
            if getattr(self, name) > self.buffer_size:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is more than buffer_size={self.buffer_size}. "
                    "Choose a larger buffer."
                )
        if self.fill_buffer < self.batch_size:
            raise ConfigError(
                f"fill_buffer={self.fill_buffer} is less than batch_size={self.batch_size}: there "
                "would be too little to learn from. Choose a larger one."
            )


@dataclass(frozen=True)
class APGConfig(TrainConfig):
    """A run of analytic policy gradients: short-horizon actor-critic without the critic.

    The learning rate falls linearly to zero over `total_timesteps`, which therefore stays as it is
    when a run is resumed.

    Attributes:
        num_steps: policy steps per environment between two updates, through which gradients go.
        initial_std: standard deviation of the policy's Gaussian at first, before it is squashed.
        max_grad_norm: largest norm of a gradient.
    """

    algorithm: AlgorithmName = "apg"
    num_envs: int = 64
    learning_rate: float = 1e-2
    num_steps: int = 32
    initial_std: float = 0.5
    max_grad_norm: float = 1.0

    may_change: ClassVar[tuple[str, ...]] = ("final_episodes",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_std == 0.0:
            raise ConfigError(
                "initial_std=0.0, expected more: there would be nothing to learn from."
            )

    @property
    def update_timesteps(self) -> int:
        """Environment steps between two updates."""
        return self.num_envs * self.num_steps


@dataclass(frozen=True)
class SHACConfig(APGConfig):
    """A run of short-horizon actor-critic.

    Attributes:
        num_epochs: passes of the critic over each window.
        num_minibatches: parts that a window is split into; divides `num_envs * num_steps`.
        td_lambda: of the returns that the critic learns.
        polyak: part of the target critic that each update keeps.
    """

    algorithm: AlgorithmName = "shac"
    num_epochs: int = 4
    num_minibatches: int = 4
    td_lambda: float = 0.95
    polyak: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_divides(self, self.num_minibatches)


COPIED = ("last_action", "joint_velocity", "object_velocity")
"""Observation terms that tell what was done last; imitation copies that instead of deciding."""


@dataclass(frozen=True)
class BCConfig(TrainConfig):
    """A run of behaviour cloning: supervised learning of what demonstrations do.

    `total_timesteps` counts steps of demonstrations, as often as they are learnt from; `num_envs`
    and `gamma` have no meaning. The learning rate falls linearly to zero over `total_timesteps`,
    which therefore stays as it is when a run is resumed.

    Attributes:
        demonstrations: how many episodes; of the expert, of which those that succeed are learnt
            from, or the first successful ones of the recording.
        recording: a recording of this environment, as `fraxenv record` writes it, or a folder of
            them, as `fraxenv view --teleop` does; demonstrations are drawn from the task's expert
            if omitted.
        chunk: actions that the network foresees from one observation. The policy takes the first.
        batch_size: steps of demonstrations in each update.
        hidden: observation terms that the policy does not see; if omitted those that the expert
            does not look at, or, of a recording, `COPIED`.
    """

    algorithm: AlgorithmName = "bc"
    total_timesteps: int = 10_240_000
    updates_per_round: int = 2000
    learning_rate: float = 1e-3
    hidden_layer_sizes: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    demonstrations: int = 1000
    recording: str = ""
    chunk: int = 8
    batch_size: int = 256
    hidden: tuple[str, ...] = ()

    may_change: ClassVar[tuple[str, ...]] = ("final_episodes",)
    counted: ClassVar[str] = "steps of demonstrations"

    @property
    def update_timesteps(self) -> int:
        """Steps of demonstrations in each update."""
        return self.batch_size


@dataclass(frozen=True)
class DAggerConfig(BCConfig):
    """A run of DAgger: behaviour cloning that asks the task's expert wherever the policy gets to.

    `total_timesteps` counts environment steps, `gamma` has no meaning.

    Attributes:
        num_steps: policy steps per environment between two updates.
        num_epochs: gradient steps of each update.
        buffer_size: steps that are remembered.
    """

    algorithm: AlgorithmName = "dagger"
    total_timesteps: int = 524_288
    num_envs: int = 256
    updates_per_round: int = 64
    demonstrations: int = 256
    chunk: int = 1
    batch_size: int = 512
    num_steps: int = 8
    num_epochs: int = 80
    buffer_size: int = 262_144

    counted: ClassVar[str] = "environment steps"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunk != 1:
            raise ConfigError(f"chunk={self.chunk}, expected 1: the expert is asked step by step.")
        if self.update_timesteps > self.buffer_size:
            raise ConfigError(
                f"num_envs * num_steps = {self.update_timesteps} is more than buffer_size="
                f"{self.buffer_size}. Choose a larger buffer."
            )

    @property
    def update_timesteps(self) -> int:
        """Environment steps between two updates."""
        return self.num_envs * self.num_steps


ALGORITHMS: dict[str, type[TrainConfig]] = {
    "ppo": PPOConfig,
    "sac": SACConfig,
    "shac": SHACConfig,
    "apg": APGConfig,
    "bc": BCConfig,
    "dagger": DAggerConfig,
}
"""Algorithm -> its configuration."""


def preset(env: str, algorithm: str = "ppo") -> TrainConfig:
    """The preset that ships for an environment, or the algorithm's defaults where none does.

    Raises:
        UnknownNameError: there is no such algorithm.
    """
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise unknown_name("algorithm", algorithm, ALGORITHMS)
    name = f"{env}-{algorithm}"
    if name not in list_presets(TRAINING):
        return ALGORITHMS[algorithm](env=env)
    return load_config(name)


def load_config(source: str | Path) -> TrainConfig:
    """Read a configuration from YAML.

    Args:
        source: a file; or the name of a preset, such as `PandaReach-v0-sac`.

    Raises:
        ConfigError: the file cannot be read, or a value is not possible.
        UnknownNameError: the file has an unknown key; names its neighbours.
    """
    values, where = read_yaml(source, TRAINING)
    algorithm = values.get("algorithm", "ppo")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise unknown_name("algorithm", algorithm, ALGORITHMS, f"in {where}")
    kind = ALGORITHMS[algorithm]
    defaults = dataclasses.asdict(kind())
    for key in values:
        if key not in defaults:
            raise unknown_name("key", key, defaults, f"in {where}")
    values = {k: _coerced(where, k, v, defaults[k]) for k, v in values.items()}
    values["overrides"] = env_config(values.get("overrides", {}), f"overrides in {where}")
    return kind(**values)


def save_config(path: str | Path, config: TrainConfig) -> None:
    """Write a configuration as YAML; atomic."""
    write_yaml(path, dataclasses.asdict(config))


def _check_divides(config: TrainConfig, num_minibatches: int) -> None:
    if config.update_timesteps % num_minibatches:
        raise ConfigError(
            f"num_minibatches={num_minibatches} does not divide num_envs * num_steps = "
            f"{config.update_timesteps}. Choose a divisor."
        )


def _coerced(where: str, key: str, value: Any, default: Any) -> Any:
    """A YAML value as the type of the field's default: lists are tuples, and 1 is a float too."""
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(
                f"{where}: {key}={value!r}, expected a number that a float can hold."
            ) from None
    if type(value) is not type(default):
        raise ConfigError(
            f"{where}: {key}={value!r} is a {type(value).__name__}, expected a "
            f"{type(default).__name__} such as {default!r}."
        )
    return value
