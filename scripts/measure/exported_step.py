"""How long exported control steps take, in states that an arm comes to by itself.

    python scripts/measure/exported_step.py
    python scripts/measure/exported_step.py --scenes 100 --steps 10000

Exports an environment's controller and safety filter, and closes its loop in C against MuJoCo among
obstacles that are drawn anew for each scene, under random actions; see `exported_step.c`. Needs a C
compiler, and the environment to be of a Panda among eight spheres.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import jax
import mujoco
import numpy as np
import tyro

import fraxenv
from fraxenv.cross_check.mujoco import mujoco_model
from fraxenv.envs import arm_library


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes:
        scenes: obstacles and postures.
        steps: control steps in each, 1 ms each.
        seed: decides the scenes.
        output: folder of the library and the program.
        cc: the C compiler.
    """

    scenes: int = 500
    steps: int = 2000
    seed: int = 0
    output: Path = Path("runs/exported_step")
    cc: str = "cc"


def main(options: Options) -> None:
    """Export, compile, run."""
    folder = options.output.resolve()
    env, params = fraxenv.make("PandaReachObstacles-v0")
    library = fraxenv.export(**arm_library(env, params), name="arm", output=folder)
    mujoco.mj_saveModel(mujoco_model(env.robot, 1.0 / env.control_hz), str(folder / "arm.mjb"))
    (folder / "scenes").write_bytes(scenes(env, params, options))
    wheel = Path(mujoco.__file__).parent
    shared = next(wheel.glob("libmujoco.*"))
    program = folder / "exported_step"
    source = Path(__file__).with_suffix(".c")
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    use = [f"-I{folder}", "-isystem", str(wheel / "include")]
    link = [str(library.library), str(shared), "-lm", f"-Wl,-rpath,{folder}", f"-Wl,-rpath,{wheel}"]
    subprocess.run(
        [*options.cc.split(), *flags, *use, str(source), *link, "-o", str(program)], check=True
    )
    model, drawn = str(folder / "arm.mjb"), str(folder / "scenes")
    subprocess.run([str(program), model, drawn, str(options.steps)], check=True)


def scenes(
    env: fraxenv.envs.Environment, params: fraxenv.envs.EnvParams, options: Options
) -> bytes:
    """Postures and obstacles of episodes, as the program's `scene` has them."""
    keys = jax.random.split(jax.random.key(options.seed), options.scenes)
    _, states = jax.vmap(env.reset, (0, None))(keys, params)
    around = states.world.obstacles
    parts = [states.q, around.spheres.position, around.spheres.radius, around.active]
    rows = [np.asarray(x).reshape(options.scenes, -1) for x in parts]
    return b"".join(part.tobytes() for row in zip(*rows, strict=True) for part in row)


if __name__ == "__main__":
    main(tyro.cli(Options))
