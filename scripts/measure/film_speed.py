"""How long a film of 150 frames takes, of 320 x 320 pixels, to a GIF.

    python scripts/measure/film_speed.py
    python scripts/measure/film_speed.py PandaPick-v0

With the processes that draw started by it, and with those that `fraxenv train` and
`fraxenv rollout` start before.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

FRAMES = 150
START = 1.0
"""s, in which processes have surely started."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    id: tyro.conf.Positional[str] = "PandaReach-v0"
    """One of `fraxenv list`."""
    times: int = 5


def main(options: Options) -> None:
    """Measure, and print."""
    # The processes that draw import this module, and shall not load these.
    import jax
    import numpy as np

    import fraxenv
    from fraxenv.media.drawers import drawers
    from fraxenv.media.rollouts import film, roll_out

    env, params = fraxenv.make(options.id)
    episodes = -(-2 * FRAMES // int(params.max_steps_in_episode))
    recording, states, _ = roll_out(env, params, None, jax.random.key(0), episodes=episodes)
    states = states[: 2 * FRAMES]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.gif"
        film(path, env, params, recording, states)  # compiles what places the shapes
        for name, wait in (("started with it", 0.0), ("started before", START)):
            seconds = []
            for _ in range(options.times):
                began = time.perf_counter()
                with drawers(FRAMES) as pool:
                    time.sleep(wait)
                    film(path, env, params, recording, states, pool=pool)
                    seconds.append(time.perf_counter() - began - wait)
            low, middle, high = np.quantile(seconds, [0.0, 0.5, 1.0])
            print(f"{options.id}, processes {name}: {middle:.2f} s, {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main(tyro.cli(Options))
