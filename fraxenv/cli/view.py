"""`fraxenv view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ..making.make import make
from ..viewer.page import serve, url_of
from .common import console, new_folder
from .subject import EnvArguments, open_subject, recipe

if TYPE_CHECKING:
    from ..viewer import Viewer


@dataclass(frozen=True)
class Options(EnvArguments):
    """Open the interactive viewer in a browser: drag the target, watch a policy, scrub a recording.

    With `--teleop`, move the hand by keyboard or gamepad, and record demonstrations.

    Attributes:
        policy: "random", "scripted", "expert", "mpc", or the folder of a training run, whose
            environment is then the default; nothing but the target that you drag if omitted.
        recording: a recording, as `fraxenv rollout --record` writes it, to scrub through.
        teleop: keys and gamepad move the hand; with --policy, they take over while they are held.
        output: folder of the demonstrations that are recorded on the page; a new one in `runs/` if
            omitted.
        host: address to serve on.
        port: to serve on.
        seed: decides the episodes.
    """

    policy: Annotated[
        str, tyro.conf.arg(metavar="random|scripted|expert|mpc|RUN", help_behavior_hint="")
    ] = ""
    recording: Annotated[str, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = ""
    teleop: bool = False
    output: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    host: str = "127.0.0.1"
    port: int = 8080
    seed: int = 0


def run(options: Options) -> int:
    """Serve until Ctrl-C; returns the exit status."""
    # First of all: a browser takes as long to load the page as we take to import JAX.
    server = serve(options.host, options.port)
    try:
        doing = "Taking the recorded actions again for" if options.recording else "Opening"
        with console().status(f"{doing} {url_of(server)} ..."):
            viewer, name, output = _opened(options, server)
    except BaseException:
        server.stop()
        raise
    print(f"{name} at {viewer.url}; Ctrl-C ends.", flush=True)
    try:
        viewer.run()
    finally:
        viewer.close()
        if output.exists():
            print(f"Demonstrations in {output}/")
    return 0


def _opened(options: Options, server: Any) -> tuple[Viewer, str, Path]:
    """The viewer, the name of its environment, and the folder of demonstrations."""
    from ..kernels import keep_programs
    from ..recording import load_recording
    from ..viewer import open_viewer

    keep_programs()
    more: dict[str, Any] = {}
    if options.recording:
        more["recording"] = load_recording(Path(options.recording))
    if options.policy:
        subject = open_subject(options, options.policy)
        env, params, made = subject.env, subject.params, subject.recipe
        more["policy"] = subject.policy or (lambda obs, key: env.action_space(params).sample(key))
    else:
        recorded = more["recording"].metadata["recipe"] if more else None
        made = recipe(options, recorded)
        env, params = make(**made)
    output = options.output or new_folder(Path("runs"), f"demonstrations-{env.name}")
    viewer = open_viewer(
        env,
        params,
        teleop=options.teleop,
        demonstrations=output,
        recipe=made,
        server=server,
        seed=options.seed,
        **more,
    )
    return viewer, env.name, output
