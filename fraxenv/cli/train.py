"""`fraxenv train`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from ..errors import ConfigError
from ..making.make import env_config, load_env_config
from ..progress import progress
from ..storage.config import apply_settings, merge
from ..training.config import (
    AlgorithmName,
    APGConfig,
    BCConfig,
    DAggerConfig,
    PPOConfig,
    SACConfig,
    SHACConfig,
    TrainConfig,
    load_config,
    preset,
)
from .common import INTERRUPTED, console, evaluate_with_bar, wrote
from .common import parse as parse_options
from .subject import SettingArguments

if TYPE_CHECKING:
    from ..envs import Measure
    from ..training.rounds import Metrics

_FILMED = 3
"""Episodes."""


@dataclass(frozen=True)
class Basis:
    """The options on which the defaults of all others depend."""

    env: str | None = None
    algorithm: AlgorithmName | None = None
    env_config: str = ""
    name: str = ""
    runs: Path = Path("runs")
    resume: bool = False
    config: str = ""


@dataclass(frozen=True)
class _Run:
    """Where a run is, and what it starts from.

    Attributes:
        name: name of the run; a new one after the environment if omitted.
        runs: folder of all runs.
        resume: continue the run `name`, or the latest; of `env` and `algorithm`, if given.
        config: a YAML file, or the name of a preset, in place of the environment's preset.
        env_config: a YAML file with arguments of fraxenv.make, or the name of a preset.
        set: override of fraxenv.make, the value in YAML: `--set control_hz=500`; may be repeated.
    """

    name: str = ""
    runs: Path = Path("runs")
    resume: bool = False
    config: Annotated[str, tyro.conf.arg(metavar="FILE|PRESET", help_behavior_hint="")] = ""
    env_config: Annotated[str, tyro.conf.arg(metavar="FILE|PRESET", help_behavior_hint="")] = ""
    set: SettingArguments = ()


@dataclass(frozen=True)
class Options(PPOConfig, _Run):
    """Train a policy, evaluate it on fresh goals, and leave everything in a folder.

    The defaults are the preset's of the environment and the algorithm (`fraxenv list --presets`);
    `fraxenv train --algorithm sac --help` shows the options of SAC, and likewise
    shac, apg, bc and dagger.
    `fraxenv train ID` is `fraxenv train --env ID`.
    """

    overrides: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class SACOptions(SACConfig, _Run):
    """Train a policy with SAC, evaluate it on fresh goals, and leave everything in a folder.

    The defaults are the preset's of the environment and the algorithm (`fraxenv list --presets`).
    `fraxenv train ID` is `fraxenv train --env ID`.
    """

    overrides: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class SHACOptions(SHACConfig, _Run):
    """Train a policy with SHAC, evaluate it on fresh goals, and leave everything in a folder.

    The defaults are the preset's of the environment and the algorithm (`fraxenv list --presets`).
    `fraxenv train ID` is `fraxenv train --env ID`.
    """

    overrides: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class APGOptions(APGConfig, _Run):
    """Train a policy with APG, evaluate it on fresh goals, and leave everything in a folder.

    The defaults are the preset's of the environment and the algorithm (`fraxenv list --presets`).
    `fraxenv train ID` is `fraxenv train --env ID`.
    """

    overrides: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class BCOptions(BCConfig, _Run):
    """Clone an expert, or a recording, evaluate the policy, and leave everything in a folder.

    The defaults are the preset's of the environment and the algorithm (`fraxenv list --presets`).
    `fraxenv train ID` is `fraxenv train --env ID`.
    """

    overrides: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DAggerOptions(DAggerConfig, _Run):
    """Clone an expert wherever the policy gets to, evaluate, and leave everything in a folder.

    The defaults are the preset's of the environment and the algorithm (`fraxenv list --presets`).
    `fraxenv train ID` is `fraxenv train --env ID`.
    """

    overrides: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)


def parse(argv: Sequence[str]) -> tuple[TrainConfig, Path, bool]:
    """The configuration of a command line, the run's folder, and whether to resume it."""
    argv = ["--env", *argv] if argv and not argv[0].startswith("-") else list(argv)
    # Twice: the environment, or the run to resume, decides the defaults of everything else.
    asked = [a for a in argv if a not in ("-h", "--help")]
    basis, _ = tyro.cli(
        Basis, args=asked, return_unknown_args=True, config=(tyro.conf.FlagCreatePairsOff,)
    )
    run, default = _defaults(basis)
    kinds: dict[type, type] = {
        PPOConfig: Options,
        SACConfig: SACOptions,
        SHACConfig: SHACOptions,
        APGConfig: APGOptions,
        BCConfig: BCOptions,
        DAggerConfig: DAggerOptions,
    }
    kind = kinds[type(default)]
    own = {f.name: getattr(default, f.name) for f in dataclasses.fields(default)}
    options: Any = parse_options(kind, "train", argv, kind(**own))
    overrides = env_config(apply_settings(options.overrides, options.set), "the command line")
    values = {name: getattr(options, name) for name in own} | {"overrides": overrides}
    return type(default)(**values), run, options.resume


def _defaults(basis: Basis) -> tuple[Path, TrainConfig]:
    """The run's folder, and the configuration that the command line changes."""
    given = load_env_config(basis.env_config) if basis.env_config else {}
    id = given.pop("id", None)
    if id is not None and basis.env not in (None, id):
        raise ConfigError(
            f"--env {basis.env} with {basis.env_config}, which is of {id}. Leave one out."
        )
    env = basis.env or id or TrainConfig.env
    algorithm = basis.algorithm or TrainConfig.algorithm
    if basis.resume:
        from ..training.rounds import CONFIG
        from ..training.runs import latest_run

        run = basis.runs / basis.name
        if not basis.name:
            run = latest_run(basis.runs, basis.env or id, basis.algorithm)
        return run, load_config(run / CONFIG)
    default = load_config(basis.config) if basis.config else preset(env, algorithm)
    if basis.config and basis.algorithm not in (None, default.algorithm):
        raise ConfigError(
            f"--algorithm {basis.algorithm} with {basis.config}, which is of {default.algorithm}. "
            "Leave one out."
        )
    if given or id:
        overrides = merge(default.overrides, given)
        default = dataclasses.replace(default, env=env, overrides=overrides)
    name = basis.name or f"{default.env}-{time.strftime('%Y%m%d-%H%M%S')}"
    return basis.runs / name, default


def run(options: tuple[TrainConfig, Path, bool]) -> int:
    """Train, evaluate, report; returns the exit status."""
    import jax

    from ..training.rounds import CHECKPOINT, POLICY, make_env, read_metrics, train

    started = time.perf_counter()
    config, run, resume = options
    reported = make_env(config)[0].reported
    device = jax.devices()[0]
    steps = config.rounds * config.round_timesteps
    print(
        f"{config.env}: {config.algorithm.upper()}, {steps:,} {config.counted}, "
        f"{_source(config)} on {device.platform} ({device.device_kind}); into {run}/",
        flush=True,
    )
    before = len(read_metrics(run)) if resume else 0
    with progress("training", config.rounds, before) as show:
        show(before, "compiling ...")

        def on_round(metrics: Metrics) -> None:
            show(int(metrics["round"]), _told(config, reported, metrics))

        complete = train(config, run, resume=resume, on_round=on_round)
    if not complete:
        print(
            f"Interrupted. {run / CHECKPOINT} and {run / POLICY} are usable. Continue with "
            f"--resume --name {run.name} --runs {run.parent}"
        )
        return INTERRUPTED
    _report(config, run, started)
    return 0


def _source(config: TrainConfig) -> str:
    """What a run learns from."""
    if isinstance(config, BCConfig):
        return f"{config.demonstrations} demonstrations of {config.recording or 'the expert'}"
    return f"{config.num_envs} environments"


def _told(config: TrainConfig, reported: tuple[Measure, ...], metrics: Metrics) -> str:
    """The text beside the progress bar after a round."""
    from ..envs.tasks.measures import told

    left = (config.rounds - metrics["round"]) * config.round_timesteps
    parts = [
        f"{metrics['steps_per_second']:,.0f} steps/s",
        f"return {metrics['return']:.1f}",
        f"success {100 * metrics['success']:.0f} %",
        *told(reported, metrics),
        *([f"{lost:.0f} gradients lost"] if (lost := metrics.get("lost_gradients", 0.0)) else []),
        f"{left / metrics['steps_per_second']:.0f} s left",
    ]
    return "  ".join(parts)


def _report(config: TrainConfig, run: Path, started: float) -> None:
    """Evaluate a finished run, draw and film it, and print its summary."""
    import jax

    from ..media.drawers import drawers
    from ..media.plots import plot_learning_curves, plot_rollout
    from ..media.rollouts import film, roll_out
    from ..training import load_policy, read_metrics
    from ..training.report import EVALUATION, save_summary, table
    from ..training.rounds import CHECKPOINT, CONFIG, METRICS, POLICY

    policy, env, params, _ = load_policy(run)
    metrics = read_metrics(run)
    title = f"{config.env}, {config.algorithm.upper()}, seed {config.seed}"
    share = 0.0

    def on_frame(done: int, total: int) -> bool:
        nonlocal share
        share = done / total
        return False

    steps = _FILMED * int(np.asarray(params.max_steps_in_episode))
    # Processes that draw start while the policy acts, and draw while it is evaluated, which takes a
    # core at most.
    with drawers(steps) as pool, ThreadPoolExecutor(1) as beside:
        recording, states, _ = roll_out(
            env, params, lambda obs, _: policy(obs), jax.random.PRNGKey(2), episodes=_FILMED
        )
        filmed = beside.submit(
            film, run / "rollout.gif", env, params, recording, states, on_frame=on_frame, pool=pool
        )
        result, _ = evaluate_with_bar(env, params, policy, config.final_episodes)
        save_summary(run / EVALUATION, result, env=config.env, algorithm=config.algorithm)
        curves = {config.algorithm.upper(): [metrics]}
        plot_learning_curves(run / "learning_curve.png", curves, title, env.reported)
        plot_rollout(run / "rollout.png", env, params, recording, title)
        with progress("filming", 1) as show:
            while wait([filmed], timeout=0.1).not_done:
                show(share)
            filmed.result()
            show(1)
    wall = time.perf_counter() - started
    console().print(table(result, metrics, wall, config.env, env.reported, config.counted))
    pictures = ("learning_curve.png", "rollout.png", "rollout.gif")
    wrote(run, CONFIG, POLICY, CHECKPOINT, METRICS, EVALUATION, *pictures)
