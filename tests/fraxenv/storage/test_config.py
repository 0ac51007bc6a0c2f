"""Configurations: strict, overridable, written back as they were; and the presets that ship."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from support import with_slow

import fraxenv
from fraxenv.cli.train import parse
from fraxenv.errors import ConfigError, FraxenvError, UnknownNameError
from fraxenv.making.make import load_env_config
from fraxenv.storage.config import (
    ENVIRONMENTS,
    TRAINING,
    apply_settings,
    list_presets,
    parse_yaml,
    read_yaml,
)
from fraxenv.training import (
    APGConfig,
    BCConfig,
    PPOConfig,
    SACConfig,
    SHACConfig,
    load_config,
    preset,
    save_config,
)

TASKS = ("Reach", "ReachPose", "Track", "ReachObstacles")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("learnin_rate: 1.0", UnknownNameError, "Did you mean 'learning_rate'"),
        ("learning_rate: fast", ConfigError, "learning_rate='fast' is a str, expected a float"),
        ("num_envs: 0", ConfigError, "num_envs=0, expected a whole number >= 1"),
        ("num_envs: true", ConfigError, "num_envs=True is a bool, expected a int"),
        ("hidden_layer_sizes: [64, 0]", ConfigError, "expected a whole number >= 1"),
        ("num_minibatches: 7", ConfigError, "does not divide"),
        ("activation: tahn", ConfigError, "activation='tahn', expected one of 'tanh'"),
        ("algorithm: td3", UnknownNameError, "unknown algorithm 'td3' in "),
        ("algorithm: sac\nnum_steps: 3", UnknownNameError, "unknown key 'num_steps' in "),
        ("algorithm: sac\nbuffer_size: 100", ConfigError, "is more than buffer_size=100"),
        ("algorithm: sac\nfill_buffer: 100", ConfigError, "less than batch_size"),
        ("algorithm: apg\ntd_lambda: 0.9", UnknownNameError, "unknown key 'td_lambda' in "),
        ("algorithm: shac\ntd_lambda: 1.1", ConfigError, "td_lambda=1.1, expected a number from"),
        ("algorithm: shac\nnum_minibatches: 3", ConfigError, "3 does not divide .* = 2048"),
        ("algorithm: apg\ninitial_std: 0", ConfigError, "initial_std=0.0, expected more"),
        ("overrides: {actoin: torque}", UnknownNameError, "Did you mean 'action'"),
        ("overrides: {id: UR10Reach-v0}", ConfigError, "expected it as env"),
        ("algorithm: [ppo]", UnknownNameError, "unknown algorithm"),
        ("gamma: 1.5", ConfigError, "gamma=1.5, expected a number from 0 to 1"),
        ("learning_rate: .nan", ConfigError, "learning_rate=nan"),
        ("overrides: &a {task_options: *a}", ConfigError, "not valid YAML"),
        ("seed: 2001-13-45", ConfigError, "not valid YAML"),
        ("a: " + 5000 * "[", ConfigError, "not valid YAML"),
        ("- 1", ConfigError, "expected `key: value` lines"),
        ("a: [", ConfigError, "not valid YAML"),
        ("env: !!python/object/apply:os.system ['false']", ConfigError, "not valid YAML"),
    ],
)
def test_wrong_training_configurations_are_refused(
    tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(error, match=message):
        load_config(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("id: PandaReach-v0\ncontrol_hs: 100", UnknownNameError, "Did you mean 'control_hz'"),
        ("id: PandaReech-v0", UnknownNameError, "Did you mean 'PandaReach-v0'"),
        ("id: PandaReach-v0\ncontrol_hz: fast", ConfigError, "control_hz='fast'"),
        (
            "id: PandaReach-v0\ntask_options: {goal_hihg: [1, 1, 1]}",
            UnknownNameError,
            "Did you mean 'goal_high'",
        ),
        (
            "id: PandaReach-v0\ntask_options: {goal_high: far}",
            ConfigError,
            "goal_high of Reach: 'far', expected a number, or several",
        ),
        (
            "id: PandaReach-v0\ntask_options: {orientation: 1}",
            ConfigError,
            "orientation of Reach: 1, expected True or False",
        ),
        (
            "id: PandaReach-v0\naction_options: {frame: 3}",
            ConfigError,
            "frame of EEDelta: 3, expected a name, such as 'base'",
        ),
        (
            "id: PandaReach-v0\ntask_options: {reward_weights: {position_eror: 1}}",
            UnknownNameError,
            "Did you mean 'position_error'",
        ),
        (
            "id: PandaReach-v0\ntask_options: {reward_weights: 1}",
            ConfigError,
            "expected a dict",
        ),
        ("id: PandaReach-v0\nrandomisation: {mass: 1}", UnknownNameError, "'link_mass'"),
        ("{}: 1", FraxenvError, "."),
    ],
)
def test_wrong_environment_configurations_are_refused(
    tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(error, match=message):
        fraxenv.make(**load_env_config(tmp_path / "c.yaml"))


def test_what_is_bundled_is_found_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`import fraxenv` failed beside a folder named panda."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "panda").mkdir()
    assert read_yaml("panda", "robots")[1] == "panda.yaml"
    (tmp_path / "mine").write_text("robot: panda\n")
    assert read_yaml("mine", "robots") == ({"robot": "panda"}, "mine")


def test_a_missing_file_and_a_missing_preset_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        load_env_config(tmp_path / "none.yaml")
    with pytest.raises(UnknownNameError, match="Did you mean 'panda-reach-randomised'"):
        load_env_config("panda-reach-randomized")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        load_config(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    "config",
    [
        PPOConfig(seed=3),
        SACConfig(gamma=0.9),
        SHACConfig(num_steps=8),
        APGConfig(),
        BCConfig(recording="a.npz", chunk=4),
    ],
)
def test_configurations_come_back_as_they_were_saved(tmp_path: Path, config: Any) -> None:
    config = dataclasses.replace(config, overrides={"task_options": {"goal_low": (0.3, 0.0, 0.2)}})
    save_config(tmp_path / "c.yaml", config)
    assert load_config(tmp_path / "c.yaml").overrides["task_options"]["goal_low"] == (0.3, 0.0, 0.2)
    assert load_config(tmp_path / "c.yaml") == config


def test_assignments_reach_into_dicts() -> None:
    values = {"control_hz": 1000, "task_options": {"goal_low": (0, 0, 0)}}
    texts = ["control_hz=500", "task_options.goal_low=[1, 2, 3e-1]", "action_options.frame=ee"]
    assert apply_settings(values, texts) == {
        "control_hz": 500,
        "task_options": {"goal_low": (1, 2, 0.3)},
        "action_options": {"frame": "ee"},
    }
    assert values == {"control_hz": 1000, "task_options": {"goal_low": (0, 0, 0)}}
    for wrong in ("control_hz", "=1", "a..b=1"):
        with pytest.raises(ConfigError, match="expected KEY=VALUE"):
            apply_settings({}, [wrong])
    with pytest.raises(ConfigError, match="control_hz is 1000, which has nothing below it"):
        apply_settings(values, ["control_hz.x=1"])


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 1e-3), ("-2.5E+3", -2500.0), ("1e", "1e"), ("1", 1), ("e3", "e3")]
)
def test_numbers_with_exponents_are_numbers(text: str, value: object) -> None:
    assert parse_yaml(text, "here") == value


@pytest.mark.parametrize("name", list_presets(ENVIRONMENTS))
def test_environment_presets_make_environments(name: str) -> None:
    env, params = fraxenv.make(**load_env_config(name))
    assert env.num_actions == len(params.action.axes(env.robot))


# Their scenes take seconds to make.
OTHER_SCENES = [
    n for n in list_presets(TRAINING) if n.endswith("dagger") and n != "PandaPick-v0-dagger"
]


@pytest.mark.parametrize("name", with_slow(list_presets(TRAINING), *OTHER_SCENES))
def test_training_presets_are_of_their_environments(name: str) -> None:
    env, algorithm = name.rsplit("-", 1)
    config = preset(env, algorithm)
    assert (config.env, config.algorithm) == (env, algorithm)
    fraxenv.make(config.env, **config.overrides)


@pytest.mark.parametrize("name", list_presets(TRAINING))
def test_training_presets_hold_only_what_differs(name: str) -> None:
    values, _ = read_yaml(name, TRAINING)
    config = load_config(name)
    default = dataclasses.asdict(type(config)())
    same = {key for key in values if getattr(config, key) == default[key]}
    named = {"env", "total_timesteps"} | ({"algorithm"} if config.algorithm != "ppo" else set())
    assert named <= values.keys()
    assert same <= named


def test_there_is_a_preset_for_each_task() -> None:
    wanted = {f"Panda{task}-v0-{algorithm}" for task in TASKS for algorithm in ("ppo", "sac")}
    assert wanted <= set(list_presets(TRAINING))


def test_environments_without_a_preset_have_defaults() -> None:
    assert preset("UR10Track-v0", "sac") == SACConfig(env="UR10Track-v0")
    with pytest.raises(UnknownNameError, match="unknown algorithm 'pppo'"):
        preset("UR10Track-v0", "pppo")


def test_the_command_line_changes_the_preset(tmp_path: Path) -> None:
    config, run, resume = parse(["PandaTrack-v0", "--gamma", "0.9", "--name", "x"])
    assert config == dataclasses.replace(preset("PandaTrack-v0"), gamma=0.9)
    assert (run, resume) == (Path("runs/x"), False)
    config, *_ = parse(["--algorithm", "sac", "--batch-size", "64", "--set", "control_hz=500"])
    expected = preset("PandaReach-v0", "sac")
    assert config == dataclasses.replace(
        expected, batch_size=64, overrides={"control_hz": 500, **expected.overrides}
    )
    file = tmp_path / "env.yaml"
    file.write_text("id: UR10Reach-v0\ntask_options: {goal_rotation: 0.1, start_noise: 0.2}\n")
    config, *_ = parse(["--env-config", str(file), "--set", "task_options.start_noise=0"])
    assert config.env == "UR10Reach-v0"
    assert config.overrides == {"task_options": {"goal_rotation": 0.1, "start_noise": 0}}
    with pytest.raises(ConfigError, match="which is of UR10Reach-v0"):
        parse(["--env-config", str(file), "--env", "PandaReach-v0"])
