"""`fraxenv record`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ..errors import check_count, import_extra
from ..interrupt import interruptible
from ..progress import on_terminal
from ..storage.config import write_yaml
from .common import INTERRUPTED, new_folder, wrote
from .subject import RANDOM, EnvArguments, open_subject

if TYPE_CHECKING:
    from ..recording import Recording

ExportName = Literal["robomimic", "maniskill", "lerobot", "lerobot-v2.1"]

FILES: dict[ExportName, tuple[str, str]] = {
    "robomimic": ("robomimic.hdf5", "h5py"),
    "maniskill": ("maniskill.h5", "h5py"),
    "lerobot": ("lerobot", "pyarrow"),
    "lerobot-v2.1": ("lerobot-v2.1", "pyarrow"),
}
"""Export -> its file, or folder, and the module that it needs."""

ALL = "all"
"""In place of names: every entry of what steps report."""

SIDE_BY_SIDE = 1000
"""Environments, at most, if their number is not given."""


@dataclass(frozen=True)
class Options(EnvArguments):
    """Record episodes of a policy, many side by side, such as demonstrations of an expert.

    Equal options give the same recording. `fraxenv.load_recording` reads it, `fraxenv view
    --recording` shows it, `fraxenv.replay` takes its actions again.

    Attributes:
        policy: "random"; "scripted", which moves straight to the goal; "expert", where the task has
            one; "mpc", which plans the hands' way; or the folder of a training run, whose
            environment is then the default.
        episodes: how many, rounded up to equally many of every environment.
        num_envs: environments side by side; up to 1000 if omitted.
        successful: keep the episodes alone that end in success.
        seed: decides the episodes.
        infos: which entries of what steps report are kept, or "all".
        export: write the episodes in this format as well; may be repeated. Needs the extra `data`.
        output: folder of the results; a new one in `runs/` if omitted.
    """

    policy: Annotated[str, tyro.conf.arg(metavar="random|scripted|expert|mpc|RUN")] = RANDOM
    episodes: int = 100
    num_envs: int | None = None
    successful: bool = False
    seed: int = 0
    infos: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = (
        "success",
        "diverged",
    )
    export: Annotated[tuple[ExportName, ...], tyro.conf.UseAppendAction] = ()
    output: Path | None = None


def run(options: Options) -> int:
    """Record, count, save; returns the exit status."""
    import jax

    from ..recording import record

    num_envs, episodes = _shares(options)
    for name in options.export:
        import_extra(FILES[name][1], "data", f"--export {name}")
    subject = open_subject(options, options.policy)
    output = options.output or new_folder(Path("runs"), f"record-{subject.env.name}")
    print(f"{subject.title}: {episodes} episodes, {num_envs} side by side ...", flush=True)
    started = time.perf_counter()
    with interruptible("Stopping after this step") as stop:
        recording = record(
            subject.env,
            subject.params,
            subject.policy,
            jax.random.key(options.seed),
            episodes=episodes,
            num_envs=num_envs,
            infos=None if options.infos == (ALL,) else options.infos,
            successful=options.successful,
            recipe=subject.recipe,
            watch=lambda states: stop(),
            progress=on_terminal(),
        )
        seconds = time.perf_counter() - started
        whole = not stop()
    write_yaml(
        output / "config.yaml",
        {"environment": subject.recipe, "policy": options.policy, "seed": options.seed},
    )
    recording.save(output / "recording.npz")
    told = f"{recording.num_steps * num_envs:,} steps in {seconds:.1f} s"
    if "success" in recording.infos:
        succeeded, ended = recording.num_successful
        share = f" ({100 * succeeded / ended:.1f} %)" if ended else ""
        kept = succeeded if options.successful else ended
        told = f"{succeeded} of {ended} episodes successful{share}, {kept} kept; {told}"
    print(told)
    for name in options.export:
        _export(recording, output, name)
    wrote(output, "config.yaml", "recording.npz", *(FILES[name][0] for name in options.export))
    return 0 if whole else INTERRUPTED


def _shares(options: Options) -> tuple[int, int]:
    """Environments side by side, and episodes of all of them."""
    check_count("--episodes", options.episodes)
    if options.num_envs is not None:
        check_count("--num-envs", options.num_envs)
    side_by_side = options.num_envs or min(SIDE_BY_SIDE, options.episodes)
    share = -(-options.episodes // side_by_side)
    num_envs = options.num_envs or -(-options.episodes // share)
    return num_envs, num_envs * share


def _export(recording: Recording, folder: Path, name: ExportName) -> None:
    """Write an export into a folder."""
    from ..recording import to_lerobot, to_maniskill, to_robomimic

    path = folder / FILES[name][0]
    if name == "robomimic":
        to_robomimic(recording, path)
    elif name == "maniskill":
        to_maniskill(recording, path)
    else:
        to_lerobot(recording, path, version="v3.0" if name == "lerobot" else "v2.1")
