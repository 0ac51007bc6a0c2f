"""Draw an arm with a load that nobody told of, among spheres that move, with each filter.

    python scripts/docs/draw_unknown_load.py            # writes docs/pictures/unknown_load.png

The same robot, spheres and actions for all: full deflections towards the nearest sphere. Of some
arms it is the one that the plain filter lets in deepest. Needs the extra `train`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array

import fraxenv
from fraxenv.rendering import env_camera, env_scene, render

sys.path.insert(0, str(Path(__file__).parents[1] / "measure"))

from unknown_robot import FILTERS as COUNTED
from unknown_robot import ID, towards

FILTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("no filter", {"safety": "none"}),
    "cbf": ("the plain filter", {"safety": "cbf"}),
    "robust": ("the robust filter", {"safety": "robust"}),
    "foresight": ("robust, with foresight", COUNTED["robust, with foresight"]),
}
UNKNOWN = {"payload": [1.0, 1.0], "payload_offset": 0.03, "link_mass": [0.7, 1.3]}
COLOURS = "#c0392b", "#7f8c8d", "#2471a3", "#1e8449"


@dataclass(frozen=True)
class Options:
    """Options of the picture."""

    arms: int = 128
    """Of which one is drawn."""
    seconds: float = 2.0
    seed: int = 0
    size: int = 360
    """Width and height of each picture, pixels."""
    output: Path = Path("docs/pictures/unknown_load.png")


def rolled(safety: dict[str, Any], options: Options) -> tuple[Any, Any, Any, np.ndarray]:
    """The environment, its parameters, all states (steps, arms), and clearances likewise, m."""
    env, params = fraxenv.make(
        ID, **safety, task_options={"moving_count": 4}, randomisation=UNKNOWN
    )
    n, steps = options.arms, round(options.seconds * env.policy_hz)

    @jax.jit
    def roll(key: Array) -> Any:
        keys = jax.random.split(key, n)
        _, state = jax.vmap(env.reset, (0, None))(keys, params)

        def step(state: Any, _: None) -> Any:
            spheres = state.world.obstacles.spheres
            still = jnp.zeros((n, env.num_actions))
            action = jax.vmap(towards, (None, 0, 0, 0))(env.robot, state.q, spheres, still)
            _, state, *_, info = jax.vmap(env.step_env, (0, 0, 0, None))(
                keys, state, action, params
            )
            return state, (state, info["clearance"])

        return jax.lax.scan(step, state, None, steps)[1]

    states, clearance = roll(jax.random.key(options.seed))
    return env, params, states, np.asarray(clearance)


def main(options: Options) -> None:
    """Roll out, choose, and draw."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = {safety: rolled(given, options) for safety, (_, given) in FILTERS.items()}
    least = {safety: x[3].min(axis=0) for safety, x in found.items()}
    arm = int(np.argmin(least["cbf"]))
    at = int(np.argmin(found["cbf"][3][:, arm]))
    figure = plt.figure(figsize=(12.8, 5.4), layout="constrained")
    grid = figure.add_gridspec(2, len(FILTERS), height_ratios=[3.2, 2.0])
    curves = figure.add_subplot(grid[1, :])
    for k, (safety, (name, _)) in enumerate(FILTERS.items()):
        env, params, states, clearance = found[safety]
        state = jax.device_get(jax.tree.map(lambda x: x[at, arm], states))
        picture = render(env_scene(env, state, params), env_camera(env), options.size, options.size)
        axes = figure.add_subplot(grid[0, k])
        axes.imshow(picture)
        axes.set_axis_off()
        axes.set_title(f"{name}: {1e3 * clearance[at, arm]:+.0f} mm")
        time = np.arange(1, len(clearance) + 1) / env.policy_hz
        curves.plot(time, 1e3 * clearance[:, arm], color=COLOURS[k], label=name)
    curves.axhline(0.0, color="black", linewidth=0.8)
    curves.axvline((at + 1) / env.policy_hz, color="black", linewidth=0.8, linestyle=":")
    curves.set(xlabel="time, s", ylabel="to the nearest sphere, mm")
    curves.legend(frameon=False, loc="upper right")
    figure.savefig(options.output, dpi=100)
    for safety, (name, _) in FILTERS.items():
        hit, deepest = int((least[safety] < 0).sum()), 1e3 * min(0.0, least[safety].min())
        print(f"{name}: {hit} of {options.arms} arms touch a sphere, {deepest:.1f} mm at most")
    print(f"Wrote {options.output}.")


if __name__ == "__main__":
    main(tyro.cli(Options))
