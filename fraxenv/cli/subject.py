"""Which environment a command is about, and which policy moves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ..errors import ConfigError, unknown_name
from ..making.make import env_config, load_env_config, make
from ..storage.config import apply_settings, merge

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams
    from ..recording import MemoryPolicy, Policy

RANDOM, SCRIPTED, EXPERT, MPC = "random", "scripted", "expert", "mpc"

SettingArguments = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(metavar="KEY=VALUE", aliases=["-s"]),
]


@dataclass(frozen=True)
class EnvArguments:
    """Which environment.

    Attributes:
        id: one of `fraxenv list`.
        env_config: a YAML file with arguments of fraxenv.make, or the name of a preset.
        set: override of fraxenv.make, the value in YAML: `--set control_hz=500`,
            `--set action_options.position_scale=0.02`; may be repeated. `fraxenv info ID` lists
            what there is.
    """

    id: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="[ID]", help_behavior_hint="")
    ] = ""
    env_config: Annotated[str, tyro.conf.arg(metavar="FILE|PRESET", help_behavior_hint="")] = ""
    set: SettingArguments = ()


def recipe(arguments: EnvArguments, otherwise: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The arguments of `fraxenv.make` that are asked for.

    Args:
        arguments: of the command line.
        otherwise: on which all is put where no id is given.

    Raises:
        ConfigError: no environment is asked for.
        UnknownNameError: `make` has no such argument.
    """
    asked = load_env_config(arguments.env_config) if arguments.env_config else {}
    if arguments.id:
        asked["id"] = arguments.id
    elif "id" not in asked and otherwise:
        asked = merge(otherwise, asked)
    asked = env_config(apply_settings(asked, arguments.set), "the command line")
    if "id" not in asked and not {"robot", "task"} <= asked.keys():
        raise ConfigError(
            "no environment, expected an id, such as PandaReach-v0, or --set robot=... --set "
            "task=...; `fraxenv list` names all ids."
        )
    return asked


@dataclass(frozen=True)
class Subject:
    """An environment and what moves it.

    Attributes:
        env: the environment.
        params: its parameters.
        policy: as of `fraxenv.record`; None for random ones.
        recipe: arguments of `make` that make the environment.
        title: of both, for people.
    """

    env: Environment
    params: EnvParams
    policy: Policy | MemoryPolicy | None
    recipe: dict[str, Any]
    title: str


def open_subject(arguments: EnvArguments, policy: str) -> Subject:
    """The environment that is asked for, and the policy.

    Args:
        arguments: which environment; the one that the policy was trained on if none.
        policy: "random", "scripted", "expert", which is the scripted one of a task that has an
            expert, "mpc", which plans, or the folder of a training run.

    Raises:
        ConfigError: the policy does not fit the environment, or there is none.
        UnknownNameError: there is no such policy, environment or option.
    """
    if policy in (RANDOM, SCRIPTED, EXPERT, MPC):
        made = recipe(arguments)
        env, params = make(**made)
        act: Any = None
        if policy != RANDOM:
            from ..envs import mpc_policy
            from ..recording.scripted import expert_policy, scripted_policy

            makes: dict[str, Callable[..., Any]] = {
                SCRIPTED: scripted_policy, EXPERT: expert_policy, MPC: mpc_policy
            }  # fmt: skip
            act = makes[policy](env, params)
        return Subject(env, params, act, made, f"{env.name}, {policy} policy")
    check_run(policy)
    from ..training import load_policy

    trained, trained_env, _, config = load_policy(policy)
    made = recipe(arguments, {"id": config.env, **config.overrides})
    env, params = make(**made)
    for what, theirs, ours in (
        ("observations", trained_env.observation_layout, env.observation_layout),
        ("actions", trained_env.num_actions, env.num_actions),
    ):
        if theirs != ours:
            raise ConfigError(
                f"{policy} was trained with {what} {theirs} of {trained_env.name}, and {env.name} "
                f"has {ours}. Choose a policy of this environment, or its action space."
            )
    title = f"{env.name}, {config.algorithm.upper()} policy {Path(policy).name}"
    return Subject(env, params, lambda obs, key: trained(obs), made, title)


def check_run(folder: str | Path) -> None:
    """Check that there is a training run in a folder.

    Raises:
        UnknownNameError: there is none; names the closest that there are.
    """
    path = Path(folder)
    if not (path / "config.yaml").is_file():
        around = path.parent if path.parent.is_dir() else Path("runs")
        runs = [str(p.parent) for p in sorted(around.glob("*/policy.npz"))]
        raise unknown_name("policy or run", str(folder), [RANDOM, SCRIPTED, EXPERT, MPC, *runs])
