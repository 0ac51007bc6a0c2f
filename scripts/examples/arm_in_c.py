"""An arm that C programs move: a library, loops of 1 kHz in C and C++ against MuJoCo's C API.

    python scripts/examples/arm_in_c.py --output runs/arm_in_c

Exports the controller and the safety filter of an environment, compiles `arm_in_c/close_loop.c` and
`.cpp` with MuJoCo's headers, runs them, and compiles what goes into libfranka's callback and into a
controller of ros2_control against stubs. Needs a C and a C++ compiler.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import tyro

import fraxenv
from fraxenv.cross_check.mujoco import mujoco_model
from fraxenv.envs import arm_library

HERE = Path(__file__).parent / "arm_in_c"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]


@dataclass(frozen=True)
class Options:
    """Where, and how long.

    Attributes:
        output: folder of everything that is made.
        steps: control steps of each loop, 1 ms each.
        fast: without waiting for the clock.
        cc: the C compiler; gcc or clang.
        cxx: the C++ compiler.
    """

    output: Path = Path("runs/arm_in_c")
    steps: int = 2000
    fast: bool = False
    cc: str = "cc"
    cxx: str = "c++"


def main(options: Options) -> None:
    """Export, compile, run."""
    folder = options.output.resolve()
    # Actions move the target, which stays where it is without one.
    env, params = fraxenv.make("PandaReachObstacles-v0", action_options={"target": "desired"})
    library = fraxenv.export(**arm_library(env, params), name="arm", output=folder)
    mujoco.mj_saveModel(mujoco_model(env.robot, 1.0 / env.control_hz), str(folder / "arm.mjb"))

    wheel = Path(mujoco.__file__).parent
    shared = next(wheel.glob("libmujoco.*"))
    posture = ", ".join(f"{x:.9g}" for x in np.asarray(env.robot.q_default))
    step = float(np.asarray(params.action.position_scale))
    define = [f"-DARM_POSTURE={{{posture}}}", f"-DARM_STEP={step!r}"]
    use = [f"-I{folder}", f"-I{HERE}", "-isystem", str(wheel / "include")]
    link = [str(library.library), str(shared), "-lm"]
    link += [f"-Wl,-rpath,{folder}", f"-Wl,-rpath,{wheel}"]
    languages = {
        "c": [*options.cc.split(), "-std=c99"],
        "cpp": [*options.cxx.split(), "-std=c++17"],
    }
    for suffix, compiler in languages.items():
        source, program = HERE / f"close_loop.{suffix}", folder / f"close_loop_{suffix}"
        run([*compiler, *WARNINGS, *define, *use, str(source), *link, "-o", str(program)])
        print(f"close_loop.{suffix}:")
        waiting = ["fast"] if options.fast and suffix == "c" else []
        run([str(program), str(folder / "arm.mjb"), str(options.steps), *waiting])
    for name in ("franka", "ros2_controller"):
        made = ["-c", str(HERE / f"{name}.cpp"), "-o", str(folder / f"{name}.o")]
        run([*languages["cpp"], *WARNINGS, f"-I{HERE / 'stubs'}", *use, *made])
        print(f"{name}.cpp compiles against its stubs")


def run(command: list[str]) -> None:
    """Run a command, its output after ours."""
    print(end="", flush=True)
    subprocess.run(command, check=True, env=os.environ)


if __name__ == "__main__":
    main(tyro.cli(Options))
