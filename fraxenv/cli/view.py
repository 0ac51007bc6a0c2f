"""`fraxenv view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import import_extra
from ..making.make import make
from .common import console
from .subject import EnvArguments, open_subject, recipe


@dataclass(frozen=True)
class Options(EnvArguments):
    """Open the interactive viewer in a browser: drag the target, watch a policy, scrub a recording.

    Attributes:
        policy: "random", "scripted", "expert", or the folder of a training run, whose environment
            is then the default; nothing but the target that you drag if omitted.
        recording: a recording, as `fraxenv rollout --record` writes it, to scrub through.
        host: address to serve on.
        port: to serve on.
        seed: decides the episodes.
    """

    policy: Annotated[
        str, tyro.conf.arg(metavar="random|scripted|expert|RUN", help_behavior_hint="")
    ] = ""
    recording: Annotated[str, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = ""
    host: str = "127.0.0.1"
    port: int = 8080
    seed: int = 0


def run(options: Options) -> int:
    """Serve until Ctrl-C; returns the exit status."""
    import_extra("viser", "viewer", "The viewer")
    from ..recording import load_recording
    from ..viewer import open_viewer

    more: dict[str, Any] = {}
    if options.recording:
        more["recording"] = load_recording(Path(options.recording))
    if options.policy:
        subject = open_subject(options, options.policy)
        env, params = subject.env, subject.params
        more["policy"] = subject.policy or (lambda obs, key: env.action_space(params).sample(key))
    else:
        recorded = more["recording"].metadata["recipe"] if more else None
        env, params = make(**recipe(options, recorded))
    doing = "Taking the recorded actions again" if options.recording else "Opening"
    with console().status(f"{doing} ..."):
        viewer = open_viewer(
            env, params, host=options.host, port=options.port, seed=options.seed, **more
        )
    print(f"{env.name} at {viewer.url}; Ctrl-C ends.", flush=True)
    try:
        viewer.run()
    finally:
        viewer.close()
    return 0
