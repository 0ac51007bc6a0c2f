"""Draw the pictures of the viewer in the documentation.

    python scripts/docs/draw_viewer.py                        # writes docs/viewer.png
    python scripts/docs/draw_viewer.py --picture by-hand --size 1440 900

The target is dragged behind a box; a cube is held above another one by sticks, pushed as the task's
expert would.

Needs the extras `train` and `viewer`, playwright, and Chromium or Chrome on the PATH.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro

import fraxenv
from fraxenv.dynamics import frame_pose
from fraxenv.envs import Environment, EnvParams
from fraxenv.envs.world import world_shapes
from fraxenv.errors import ConfigError, import_extra
from fraxenv.recording.scripted import expert_policy
from fraxenv.viewer import Viewer, open_viewer
from fraxenv.viewer.teleoperation import DEADZONE, STICKS

ONE_OF_EACH = {"sphere_count": 1, "capsule_count": 1, "box_count": 1}
BOX = 2  # its index among them
NEAR, STILL = 5e-3, 0.1  # m from the box, and rad/s, when the picture is taken
FLAGS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
"""Of Chromium, so that it draws without a GPU."""


@dataclass(frozen=True)
class Options:
    """Options of the picture."""

    picture: Literal["drag", "by-hand"] = "drag"
    """Which one."""
    output: Path | None = None
    """The PNG; where the documentation has it if omitted."""
    size: tuple[int, int] = (1440, 830)
    """Width and height of the browser's window, pixels."""
    seed: int = 6
    """Where things are."""


OUTPUTS = {"drag": Path("docs/viewer.png"), "by-hand": Path("docs/pictures/teleoperation.png")}
OVER = 0.07
"""m, height of the cube that is carried, in the picture."""


def wait(condition: Callable[[], Any], seconds: float = 300.0) -> None:
    """Until something holds that another thread brings about."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.05)


@contextmanager
def page(viewer: Viewer, size: tuple[int, int]) -> Iterator[Any]:
    """A browser's page that shows a viewer."""
    api = import_extra("playwright.sync_api", "test", "The picture")
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    browser = next(filter(None, found), None)
    if browser is None:
        raise ConfigError("no browser, expected chromium or google-chrome on the PATH. Install it.")
    with api.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser, args=list(FLAGS))
        opened = chromium.new_page(viewport={"width": size[0], "height": size[1]})
        opened.goto(viewer.url)
        opened.wait_for_selector("canvas")
        yield opened
        chromium.close()


def photograph(opened: Any, path: Path) -> None:
    """Write what a page shows to a PNG, once it changes no more, without its word about no GPU."""
    for close in opened.locator(".mantine-Notification-closeButton").all():
        close.click()
    before, seen = b"", opened.screenshot()
    while before != seen:
        opened.wait_for_timeout(3000)
        before, seen = seen, opened.screenshot(path=path)


def drag_behind_the_box(viewer: Viewer, env: Environment) -> None:
    """Move the target through the box and beyond, a little at a time, until the hand is held up."""
    wait(lambda: viewer.snapshot is not None and viewer.snapshot.info is not None)
    state = viewer.snapshot.state
    hand = np.asarray(frame_pose(env.robot, state.q, "hand")[0])
    box = world_shapes(state.world)[BOX].position
    for part in np.linspace(0.0, 1.25, 60):
        viewer.move_target(hand + part * (box - hand))
        wait(lambda step=viewer.snapshot.step: viewer.snapshot.step > step)
    wait(
        lambda: (
            viewer.snapshot.barriers["obstacles"] < NEAR and np.ptp(viewer.snapshot.state.v) < STILL
        )
    )
    viewer.choose_obstacle(BOX)
    viewer.pause()


def carry_by_hand(viewer: Viewer, opened: Any, env: Environment, params: EnvParams) -> None:
    """Record how a cube is picked up and carried over the other one, and hold a key."""
    expert = jax.jit(expert_policy(env, params))
    wait(lambda: viewer.snapshot is not None)
    viewer.set_hand_speed(1.0)
    viewer.record()
    wait(lambda: viewer.snapshot.step > 0)
    presses = 0
    while True:
        here = viewer.snapshot
        cube, base = (here.state.world.objects[name].q[:3] for name in ("cube", "base"))
        if cube[2] > OVER and np.linalg.norm((cube - base)[:2]) < 0.01:
            break
        action = np.asarray(expert(here.obs, jax.random.key(0)))
        presses += (presses % 2 == 1) != bool(action[-1] < 0)
        axes = [sign * np.sign(action[i]) * (DEADZONE + abs(action[i]) * (1 - DEADZONE))
                for i, sign in STICKS]  # fmt: skip
        told = {"page": "sticks", "held": [], "presses": {"Pad0": presses}}
        viewer.tell(json.dumps({**told, "axes": list(map(float, axes))}))
        wait(lambda step=here.step: viewer.snapshot.step > step)
    viewer.pause()
    wait(lambda: not viewer.playing)
    opened.keyboard.down("f")


def main() -> None:
    """Draw the picture."""
    options = tyro.cli(Options)
    by_hand = options.picture == "by-hand"
    made: dict[str, Any] = (
        {"id": "PandaStack-v0"}
        if by_hand
        else {"id": "PandaReachObstacles-v0", "task_options": ONE_OF_EACH}
    )
    env, params = fraxenv.make(**made)
    output = options.output or OUTPUTS[options.picture]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    viewer = open_viewer(env, params, port=port, seed=options.seed, teleop=by_hand)
    try:
        with page(viewer, options.size) as opened:
            if by_hand:
                carry_by_hand(viewer, opened, env, params)
            else:
                drag_behind_the_box(viewer, env)
            photograph(opened, output)
    finally:
        viewer.close()
    print(f"Written to {output}")


if __name__ == "__main__":
    main()
