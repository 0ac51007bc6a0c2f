"""The commands, run for real with small settings; what they say where something is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from PIL import Image, ImageSequence

import fraxenv
from fraxenv.cli import COMMANDS, main
from fraxenv.cli.common import console
from fraxenv.media.rollouts import film, roll_out
from fraxenv.recording.scripted import scripted_policy
from fraxenv.rendering.scenery import path_shapes
from fraxenv.training import Evaluation
from fraxenv.training.report import table

SMALL = ("action=joint_velocity", "control_hz=500", "physics_hz=500", "max_steps_in_episode=10")
SETTINGS = [x for s in SMALL for x in ("--set", s)]

Capture = pytest.CaptureFixture[str]


def test_help_names_every_command(capsys: Capture) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == fraxenv.__version__


@pytest.mark.parametrize(
    ("command", "texts"),
    [
        ("list", ("PATTERN", "--presets")),
        ("info", ("ID", "--set", "--env-config")),
        ("train", ("--learning-rate", "--gae-lambda", "--resume", "--set")),
        ("train --algorithm sac", ("--buffer-size", "--polyak", "(default: sac)")),
        ("train --algorithm shac", ("--initial-std", "--td-lambda", "(default: shac)")),
        ("train --algorithm apg", ("--initial-std", "--num-steps", "(default: apg)")),
        ("train --algorithm bc", ("--demonstrations", "--chunk", "(default: bc)")),
        ("train --algorithm dagger", ("--num-epochs", "--buffer-size", "(default: dagger)")),
        ("eval", ("RUN", "--episodes")),
        ("rollout", ("random|scripted|expert|mpc|RUN", "{gif,mp4}")),
        ("record", ("random|scripted|expert|mpc|RUN", "--successful", "--num-envs")),
        ("view", ("--port", "--recording")),
        ("bench", ("--batches", "--backends")),
        ("cross-check", ("ROBOT", "--float32")),
        ("gradient-check", ("scripted|RUN", "--environments", "--steps")),
        ("explain", ("--backend",)),
    ],
)
def test_help_of_commands(command: str, texts: tuple[str, ...], capsys: Capture) -> None:
    assert main([*command.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: fraxenv {command.split()[0]}" in out
    for text in texts:
        assert text in out


def test_listing_and_help_load_little() -> None:
    """`python -m fraxenv` as users type it; it stays quick because of what it does not import."""
    code = (
        "import sys; from fraxenv.cli import main; main(['list']); main(['--help']); "
        "print(*(m for m in ('matplotlib', 'rejax', 'mujoco', 'viser', 'fraxenv.envs', 'flax') "
        "if m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    command = [sys.executable, "-m", "fraxenv", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == fraxenv.list_envs()


def test_who_reads_may_have_seen_enough() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "fraxenv", "list"]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (1, "")


def test_list_finds(capsys: Capture) -> None:
    assert main(["list", "ur10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    ids = [line.split()[0] for line in lines]
    assert ids == [id for id in fraxenv.list_envs() if id.startswith("UR10")]
    assert {"UR10Reach-v0", "UR10Pick-v0"} < set(ids)
    assert main(["list", "--presets"]) == 0
    out = capsys.readouterr().out
    assert "PandaReach-v0-sac  " in out
    assert re.search(r"^panda-reach-randomised +PandaReach with the randomisation", out, re.M)


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["lst"], 2, "unknown command 'lst'. Did you mean 'list'"),
        (["list", "Pandaa"], 1, "unknown environment 'Pandaa'"),
        (["info"], 1, "ConfigError: no environment"),
        (["info", "PandaReech-v0"], 1, "Did you mean 'PandaReach-v0'"),
        (["info", "PandaReach-v0", "--set", "contrl_hz=1"], 1, "Did you mean 'control_hz'"),
        (["info", "PandaReach-v0", "--set", "action=torqe"], 1, "Did you mean 'torque'"),
        (["info", "--env-config", "nothing.yaml"], 1, "cannot read the configuration"),
        (["info", "PandaReach-v0", "--sett", "a=1"], 2, "--set"),
        (["rollout", "PandaReach-v0", "--policy", "scriptd"], 1, "Did you mean 'scripted'"),
        (["rollout", "PandaReach-v0", "--size", "1"], 1, "--size=1, expected a whole number >= 16"),
        (["rollout", "PandaReach-v0", "--episodes", "0"], 1, "episodes=0"),
        (["record", "PandaReach-v0", "--episodes", "0"], 1, "--episodes=0"),
        (["record", "PandaReach-v0", "--num-envs", "0"], 1, "--num-envs=0"),
        (["record", "PandaReach-v0", "--policy", "expert"], 1, "has no expert, expected a task"),
        (["record", "PandaReach-v0", "--infos", "x", "--successful"], 1, "'success' among them"),
        (["rollout", "--set", "action=torque", "--policy", "scripted"], 1, "no environment"),
        (["eval"], 1, "no run"),
        (["eval", "runs/nothing"], 1, "unknown policy or run"),
        (["bench", "PandaReach-v0", "--backends", "nativ"], 1, "nativ"),
        (["bench", "PandaReach-v0", "--batches", "0"], 1, "--batches=0, expected"),
        (["explain", "PandaReach-v0", "--backend", "cuda"], 1, "cuda"),
        (["cross-check", "pandda"], 1, "Did you mean 'panda'"),
        (["gradient-check", "PandaReach-v0", "--steps", "0"], 1, "--steps=0, expected"),
        (["gradient-check", "PandaReach-v0", "--policy", "random"], 1, "has no gradient"),
        (["gradient-check", "PandaReach-v0", "--policy", "mpc"], 1, "has no gradient"),
        (
            ["rollout", "PandaStack-v0", "--policy", "mpc"],
            1,
            "needs a task of hands and goals for them",
        ),
        (["view", "PandaReach-v0", "--recording", "nothing.npz"], 1, "nothing.npz"),
    ],
)
def test_errors_are_one_line(
    argv: list[str], status: int, message: str, capsys: Capture, tmp_path: Path
) -> None:
    assert main(argv) == status
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    if status == 1:
        assert len(error.strip().splitlines()) == 1


def test_info_is_in_physical_units(capsys: Capture) -> None:
    settings = ["--set", "policy_hz=25", "--set", "action_options.position_scale=0.02"]
    assert main(["info", "PandaTrack-v0", *settings]) == 0
    out = capsys.readouterr().out
    for text in ("25 Hz", "an episode has 150 steps, 6 s", "-0.02", "-0.5", "rad", "figure eight"):
        assert text in out
    for row in (
        r"to_goal_ahead",
        "position_fine",
        "0.2",
        "kp",
        "150",
        "1/s^2",
        "size: [0.12, 0.06]",
    ):
        assert row in out
    assert "[linear;" in out  # and not taken for markup


def test_info_of_a_preset(capsys: Capture) -> None:
    assert main(["info", "--env-config", "panda-reach-randomised"]) == 0
    out = capsys.readouterr().out
    assert "randomisation, of Randomisation" in out
    assert "0.7, 1.3" in out


@pytest.mark.slow
def test_orientations_are_told_where_they_count(tmp_path: Path, capsys: Capture) -> None:
    command = ["rollout", "PandaReachPose-v0", *SETTINGS, "--policy", "scripted", "--size", "48"]
    assert main([*command, "--episodes", "1", "--output", str(tmp_path)]) == 0
    told = r"ends with distance \d+\.\d mm, turn \d+\.\d°\n"
    assert re.search(told, capsys.readouterr().out)
    measures = {"position_error": np.full(3, 0.002), "orientation_error": np.full(3, np.radians(3))}
    result = Evaluation(*(np.full(3, x) for x in (1.0, 1.0, 0.0)), measures)
    for id, turns in (("PandaReachPose-v0", True), ("PandaReach-v0", False)):
        reported = fraxenv.make(id)[0].reported
        console().print(table(result, [], 1.0, "title", reported))
        out = capsys.readouterr().out
        assert ("3.0°" in out) == turns
        assert out.count("2.0 mm") == 2  # the median, and the 95th percentile


def test_record_leaves_a_recording_that_replays(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("pyarrow")
    loose = ["--set", "task_options.position_tolerance=0.2", *SETTINGS]
    more = ["--episodes", "7", "--num-envs", "4", "--successful", "--seed", "5"]
    exports = {"robomimic.hdf5", "maniskill.h5", "maniskill.json", "lerobot", "lerobot-v2.1"}
    for name in ("robomimic", "maniskill", "lerobot", "lerobot-v2.1"):
        more += ["--export", name]
    command = ["record", "PandaReach-v0", *loose, "--policy", "random", *more]
    for folder in ("a", "b"):
        assert main([*command, "--output", str(tmp_path / folder)]) == 0
    text = capsys.readouterr().out
    recording, again = (fraxenv.load_recording(tmp_path / f / "recording.npz") for f in "ab")
    np.testing.assert_array_equal(recording.observations, again.observations)
    kept = list(recording.episodes())
    assert 0 < len(kept) < 8  # of both kinds, so that leaving out can be seen
    assert (
        f"{len(kept)} of 8 episodes successful ({100 * len(kept) / 8:.1f} %), {len(kept)} kept"
        in text
    )
    assert "80 steps in" in text
    assert all(episode.success for episode in kept)
    assert [episode.id for episode in kept] == list(range(len(kept)))
    assert recording.infos["success"][9::10].sum() == len(kept)
    assert set(recording.infos) == {"success", "diverged"}
    assert fraxenv.replay(recording).identical
    names = {"config.yaml", "recording.npz", *exports}
    assert {path.name for path in (tmp_path / "a").iterdir()} == names


def test_rollout_leaves_everything(tmp_path: Path, capsys: Capture) -> None:
    more = ["--episodes", "2", "--size", "48", "--record", "--format", "mp4", "--seed", "5"]
    command = ["rollout", "PandaReach-v0", *SETTINGS, "--policy", "scripted", *more]
    assert main([*command, "--output", str(tmp_path)]) == 0
    names = {"config.yaml", "rollout.png", "rollout.mp4", "recording.npz"}
    assert {p.name for p in tmp_path.iterdir()} == names
    out = capsys.readouterr().out
    assert f"Written to {tmp_path}/: " in out
    assert len(re.findall(r"ends with distance \d+\.\d mm\n", out)) == 2
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert written["environment"] == {
        "id": "PandaReach-v0", "action": "joint_velocity", "control_hz": 500, "physics_hz": 500,
        "max_steps_in_episode": 10,
    }  # fmt: skip
    report = fraxenv.replay(fraxenv.load_recording(tmp_path / "recording.npz"))
    assert report.identical, report
    assert (tmp_path / "rollout.mp4").read_bytes()[4:8] == b"ftyp"
    with Image.open(tmp_path / "rollout.png") as picture:
        assert picture.size[0] > 1000


def test_a_film_that_cannot_be_written_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    output = tmp_path / "rollout"
    argv = ["rollout", "PandaReach-v0", "--format", "mp4", "--output", str(output), *SETTINGS]
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert 'pip install "fraxenv[video]"' in err
    assert not out
    assert not output.exists()


def test_films_show_what_the_filter_does(tmp_path: Path) -> None:
    small = {"action": "joint_velocity", "control_hz": 500, "physics_hz": 500}
    env, params = fraxenv.make("PandaReach-v0", max_steps_in_episode=4, **small)
    recording, states, _ = roll_out(env, params, None, jax.random.key(0), episodes=2)
    safety = recording.infos["safety"]
    unsafe = {**safety, "min_barrier": np.full_like(safety["min_barrier"], -1.0)}
    recording = replace(recording, infos={**recording.infos, "safety": unsafe})
    path = tmp_path / "film.gif"
    film(path, env, params, recording, states, size=60, frames_per_second=env.policy_hz)
    with Image.open(path) as frames:
        lowest = [
            np.asarray(frame.convert("RGB"), int)[-1].mean(axis=0)
            for frame in ImageSequence.Iterator(frames)
        ]
    red = [bool(r > 2 * g and r > 2 * b) for r, g, b in lowest]
    assert red == [True, True, True, False] * 2  # nothing is known of an episode's first state


class Upwards:
    """A policy that does nothing, and has the hand go up."""

    def begin(self, obs: Any) -> Any:
        return jnp.zeros(())

    def __call__(self, obs: Any, key: Any, memory: Any) -> Any:
        return jnp.zeros(6), memory + 1.0

    def path(self, memory: Any, state: Any) -> Any:
        return memory * jnp.linspace(0.0, 0.1, 9)[None, :, None] * jnp.ones(3)


def test_films_show_where_hands_are_to_go(tmp_path: Path) -> None:
    env, params = fraxenv.make("PandaReach-v0", max_steps_in_episode=4)
    rolled = roll_out(env, params, Upwards(), jax.random.key(0), episodes=1)
    assert [path.max() for path in rolled.paths] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    beads = path_shapes(rolled.paths[0])
    assert len(beads) == 9
    assert beads[0].size > beads[-1].size
    drawn = []
    for paths in (rolled.paths, ()):
        path = tmp_path / f"{len(paths)}.gif"
        film(path, env, params, rolled.recording, rolled.states, paths, frames_per_second=50)
        with Image.open(path) as frames:
            drawn.append([np.array(f.convert("RGB"), int) for f in ImageSequence.Iterator(frames)])
    differ = [bool(np.abs(a - b).max() > 50) for a, b in zip(*drawn, strict=True)]
    assert differ == [True, True, True, False]  # nor of what the next episode begins with


def raising_at(fn: Callable[..., Any], call: int) -> Callable[..., Any]:
    """The function, with Ctrl-C in its n-th call."""
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            signal.raise_signal(signal.SIGINT)
        return fn(*args, **kwargs)

    return wrapped


def test_rollout_keeps_what_there_is_at_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    record = fraxenv.record

    def cut(*args: Any, watch: Any, **kwargs: Any) -> Any:
        return record(*args, watch=raising_at(watch, 4), **kwargs)

    monkeypatch.setattr("fraxenv.media.rollouts.record", cut)
    command = ["rollout", "PandaReach-v0", *SETTINGS, "--record", "--size", "32"]
    assert main([*command, "--output", str(tmp_path)]) == 130
    assert fraxenv.load_recording(tmp_path / "recording.npz").num_steps == 4
    with Image.open(tmp_path / "rollout.gif") as film:
        assert film.n_frames == 2
    assert "Stopping after this step; Ctrl-C again stops at once." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("id", "overrides"),
    [
        ("PandaReach-v0", {}),
        pytest.param(
            "PandaReachPose-v0",
            {"action": "ee_pose", "task_options": {"goal_rotation": 0.3}},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "PandaReach-v0",
            {"action": "ee_delta_pose", "action_options": {"frame": "ee"}},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "PandaReach-v0", {"action": "ee_delta_position+impedance"}, marks=pytest.mark.slow
        ),
        pytest.param("UR10Reach-v0", {"action": "joint_velocity"}, marks=pytest.mark.slow),
        pytest.param("PandaReach-v0", {"action": "joint_position"}, marks=pytest.mark.slow),
        ("MobileReach-v0", {"action": "joint_delta"}),
        pytest.param("PandaTrack-v0", {}, marks=pytest.mark.slow),
    ],
)
def test_the_scripted_policy_arrives(id: str, overrides: dict[str, Any]) -> None:
    """Through every action space: within the tolerance of 20 mm, and 0.1 rad, after 3 s."""
    import jax

    env, params = fraxenv.make(id, control_hz=500, physics_hz=500, **overrides)
    policy = scripted_policy(env, params)
    recording = fraxenv.record(
        env, params, policy, jax.random.key(0), episodes=2, num_envs=2, infos=["success"]
    )
    assert all(episode.infos["success"][-1] for episode in recording.episodes())


def test_the_scripted_policy_says_what_it_cannot(capsys: Capture) -> None:
    command = ["rollout", "PandaReach-v0", "--policy", "scripted", "--set"]
    assert main([*command, "action=torque"]) == 1
    assert "no scripted policy for JointTorque" in capsys.readouterr().err
    assert main([*command, "goal_env=true"]) == 1
    assert "a goal environment of PandaReach-v0 has no scripted policy" in capsys.readouterr().err


@pytest.mark.slow
def test_bench_compares_executors(tmp_path: Path, capsys: Capture) -> None:
    small = ["--batches", "1", "4", "--steps", "2", "--rounds", "2", "--output", str(tmp_path)]
    assert main(["bench", "PandaReach-v0", *SETTINGS, "--backends", "native", "vmap", *small]) == 0
    written = json.loads((tmp_path / "bench.json").read_text())
    assert [(r["backend"], r["batch"]) for r in written["results"]] == [
        ("native", 1), ("vmap", 1), ("native", 4), ("vmap", 4)
    ]  # fmt: skip
    assert all(0 < r["least"] <= r["median"] <= r["most"] for r in written["results"])
    assert written["environment"]["control_hz"] == 500
    assert {p.name for p in tmp_path.iterdir()} == {"bench.json", "bench.png"}
    assert "native / this" in capsys.readouterr().out


def test_bench_keeps_what_there_is_at_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = raising_at(lambda: 0.5, 1)
    monkeypatch.setattr("fraxenv.cli.timing.stepping", lambda *args: (call, 1.0))
    small = ["--batches", "1", "2", "--backends", "vmap", "--steps", "1", "--rounds", "1"]
    assert main(["bench", "PandaReach-v0", *small, "--output", str(tmp_path)]) == 130
    written = json.loads((tmp_path / "bench.json").read_text())
    assert [(r["batch"], r["median"]) for r in written["results"]] == [(1, 2.0)]


def test_explain(capsys: Capture) -> None:
    assert main(["explain", "PandaReach-v0", *SETTINGS, "--backend", "native"]) == 0
    out = capsys.readouterr().out
    assert "PandaReach-v0, 10 control steps in a step" in out
    assert "executor 'native'" in out
    assert "outside the kernel   nothing" in out


@pytest.mark.slow
def test_cross_check(tmp_path: Path, capsys: Capture) -> None:
    picture = tmp_path / "cartpole.png"
    small = ["--states", "3", "--seconds", "0.05", "--output", str(picture)]
    assert main(["cross-check", "cartpole", *small]) == 0
    assert "pass: cartpole agrees with" in capsys.readouterr().out
    assert picture.exists()


@pytest.fixture
def viewer(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the viewer is opened with; its own tests open it for real."""
    pytest.importorskip("viser")
    opened: dict[str, Any] = {}

    def run() -> None:  # returns at Ctrl-C
        opened["ran"] = True

    def open_viewer(env: Any, params: Any, **options: Any) -> Any:
        opened.update(env=env, params=params, **options)
        return SimpleNamespace(url="http://here", run=run, close=lambda: opened.update(closed=True))

    def serve(host: str, port: int) -> Any:
        opened.update(host=host, port=port, stopped=False)
        return SimpleNamespace(
            get_host=lambda: host, get_port=lambda: port, stop=lambda: opened.update(stopped=True)
        )

    monkeypatch.setattr("fraxenv.viewer.open_viewer", open_viewer)
    monkeypatch.setattr("fraxenv.cli.view.serve", serve)
    return opened


def test_view_a_policy(viewer: dict[str, Any], capsys: Capture) -> None:
    options = ["--policy", "random", "--port", "8123", "--seed", "3"]
    assert main(["view", "PandaReach-v0", *SETTINGS, *options]) == 0
    assert viewer["env"].name == "PandaReach-v0"
    assert viewer["env"].control_hz == 500
    assert (viewer["port"], viewer["seed"], viewer["host"]) == (8123, 3, "127.0.0.1")
    assert (viewer["ran"], viewer["closed"]) == (True, True)
    assert "PandaReach-v0 at http://here" in capsys.readouterr().out
    import jax

    action = viewer["policy"](None, jax.random.key(0))
    assert action.shape == (7,)
    assert np.abs(action).max() <= 1


def test_a_page_of_what_there_is_not_is_closed(viewer: dict[str, Any], capsys: Capture) -> None:
    assert main(["view", "PandaReach-v0", "--policy", "no-such-run"]) == 1
    assert "no-such-run" in capsys.readouterr().err
    assert viewer["stopped"]


def test_a_page_is_served_before_jax_is_imported() -> None:
    pytest.importorskip("viser")
    program = """
import sys
import fraxenv.cli.view as view
def serve(host, port):
    assert "jax" not in sys.modules, "JAX was imported first"
    raise SystemExit(5)
view.serve = serve
from fraxenv.cli import main
sys.exit(main(["view", "PandaReach-v0"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 5, done.stderr


def test_view_by_hand(viewer: dict[str, Any], tmp_path: Path, capsys: Capture) -> None:
    assert main(["view", "PandaReach-v0", *SETTINGS, "--teleop", "--output", str(tmp_path)]) == 0
    assert viewer["teleop"]
    assert viewer["demonstrations"] == tmp_path
    assert fraxenv.make(**viewer["recipe"])[0] == viewer["env"]
    assert f"Demonstrations in {tmp_path}/" in capsys.readouterr().out
    assert main(["view", "PandaReach-v0", *SETTINGS]) == 0
    assert not viewer["teleop"]
    assert "Demonstrations" not in capsys.readouterr().out


def test_view_a_recording(viewer: dict[str, Any], tmp_path: Path) -> None:
    command = ["rollout", "PandaReach-v0", *SETTINGS, "--record", "--episodes", "1"]
    assert main([*command, "--size", "32", "--output", str(tmp_path)]) == 0
    assert main(["view", "--recording", str(tmp_path / "recording.npz")]) == 0
    assert viewer["env"].control_hz == 500
    assert viewer["recording"].num_steps == 10
    assert "policy" not in viewer
