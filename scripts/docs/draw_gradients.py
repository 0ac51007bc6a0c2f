"""Draw how far gradients can be trusted: the picture of docs/gradients.md.

    python scripts/docs/draw_gradients.py
    python scripts/docs/draw_gradients.py --steps 128 --environments 128

It is `fraxenv gradient-check` of the scripted policy, with its table. Needs the extra `train`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
import tyro
from rich.console import Console

import fraxenv
from fraxenv.recording.scripted import scripted_policy


@dataclass(frozen=True)
class Options:
    """Draw how far gradients can be trusted."""

    env: str = "PandaTrack-v0"
    """The environment."""
    steps: int = 64
    """Policy steps of the window."""
    environments: int = 64
    """States to begin from."""
    settle: int = 40
    """Policy steps before: the hand comes to where it follows, and actions are clipped no more."""
    control_hz: int = 200
    """Controller updates and physics steps per second."""
    output: Path = Path("docs/pictures")
    """Folder of the picture."""


def main(options: Options) -> None:
    """Compare, tell and draw."""
    rates = {"control_hz": options.control_hz, "physics_hz": options.control_hz}
    env, params = fraxenv.make(options.env, **rates)
    act = scripted_policy(env, params)
    check = fraxenv.gradient_check(
        env,
        lambda obs: act(obs, jax.random.key(0)),
        params,
        steps=options.steps,
        environments=options.environments,
        settle=options.settle,
    )
    Console().print(check.table())
    path = options.output / "gradient_check.png"
    check.plot(path)
    print(f"Wrote {path}.")


if __name__ == "__main__":
    main(tyro.cli(Options))
