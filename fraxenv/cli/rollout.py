"""`fraxenv rollout`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from ..errors import check_count
from ..interrupt import interruptible
from ..progress import on_terminal, progress
from ..storage.config import write_yaml
from .common import INTERRUPTED, new_folder, wrote
from .subject import RANDOM, EnvArguments, open_subject

if TYPE_CHECKING:
    from ..envs import Measure
    from ..recording import Recording


@dataclass(frozen=True)
class Options(EnvArguments):
    """Roll out a policy, film it, and draw errors, torques, barriers and rewards over time.

    Attributes:
        policy: "random"; "scripted", which moves straight to the goal; "expert", where the task has
            one; "mpc", which plans the hands' way; or the folder of a training run, whose
            environment is then the default.
        episodes: how many.
        seed: decides the episodes.
        record: write a recording as well, for `fraxenv view --recording` and fraxenv.replay.
        format: of the film; mp4 needs the extra `video`.
        size: of the film, pixels.
        output: folder of the results; a new one in `runs/` if omitted.
    """

    policy: Annotated[str, tyro.conf.arg(metavar="random|scripted|expert|mpc|RUN")] = RANDOM
    episodes: int = 3
    seed: int = 0
    record: bool = False
    format: Literal["gif", "mp4"] = "gif"
    size: int = 320
    output: Path | None = None


def run(options: Options) -> int:
    """Roll out, film, draw; returns the exit status."""
    import jax

    from ..media.drawers import drawers
    from ..media.plots import plot_rollout
    from ..media.rollouts import film, roll_out
    from ..media.video import check_video

    check_count("--size", options.size, least=16)
    check_video(f"rollout.{options.format}")
    subject = open_subject(options, options.policy)
    env, params = subject.env, subject.params
    output = options.output or new_folder(Path("runs"), f"rollout-{env.name}")
    files = ["config.yaml", "rollout.png", f"rollout.{options.format}"]

    # Processes that draw start while the policy acts.
    steps = options.episodes * int(np.asarray(params.max_steps_in_episode))
    with drawers(steps) as pool:
        with interruptible("Stopping after this step") as stop:
            print(f"{subject.title}: {options.episodes} episodes ...", flush=True)
            rolled = roll_out(
                env,
                params,
                subject.policy,
                jax.random.key(options.seed),
                episodes=options.episodes,
                recipe=subject.recipe,
                stop=stop,
                progress=on_terminal(),
            )
            whole = not stop()
        recording, states = rolled.recording, rolled.states
        write_yaml(
            output / files[0],
            {"environment": subject.recipe, "policy": options.policy, "seed": options.seed},
        )
        if options.record:
            recording.save(output / "recording.npz")
            files.append("recording.npz")
        plot_rollout(output / files[1], env, params, recording, subject.title)
        with interruptible("The film ends here") as stop, progress("filming", len(states)) as show:

            def on_frame(done: int, total: int) -> bool:
                show(done * len(states) / total)
                return stop()

            film(
                output / files[2], env, params, *rolled,
                size=options.size, on_frame=on_frame, pool=pool,
            )  # fmt: skip
            whole = whole and not stop()
    _tell(recording, env.reported)
    wrote(output, *files)
    return 0 if whole else INTERRUPTED


def _tell(recording: Recording, reported: tuple[Measure, ...]) -> None:
    """Say how the episodes went, and with which measures they ended."""
    from ..envs.tasks.measures import told

    for episode in recording.episodes():
        infos = episode.infos
        parts = [f"{len(episode)} steps", f"return {episode.rewards.sum():.2f}"]
        if measured := told(reported, {m.name: infos[m.name][-1] for m in reported}):
            parts.append(f"ends with {', '.join(measured)}")
        if np.any(infos["diverged"]):
            parts.append("diverged")
        print(f"episode {episode.id}: {', '.join(parts)}")
