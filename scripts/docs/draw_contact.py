"""Draw contact forces and friction cones: the pictures of docs/contact.md.

    python scripts/docs/draw_contact.py
    python scripts/docs/draw_contact.py --output docs/pictures

Every force is of a simulated scene. Needs the extras `mujoco`, which reads the scenes, and `train`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from fraxenv import dynamics
from fraxenv.dynamics import Contacts, Scene, Shape, Solution
from fraxenv.dynamics.contact.cones import Friction, elliptic_force, pyramidal_force
from fraxenv.dynamics.math.rotation import rotation_to
from fraxenv.media.plots import COLOURS, picture
from fraxenv.rendering import Camera, render
from fraxenv.rendering import scene as shapes_of

SIZE = 420  # pixels
FORCE = (0.93, 0.45, 0.05, 1.0)
ZONES = ("#f4f4f4", "#fbe0c3", "#cfe0f1")  # free, slips, sticks
MU = 0.6
MASS = 2.0  # kg
WEIGHT = MASS * 9.81  # N
SETTLE, GROW = 200, 400  # steps in which nothing pushes, and in which the push grows to slipping

BOX = f"""
<geom name="floor" type="plane" size="1 1 .1"/>
<body name="box" pos="0 0 .06">
  <freejoint/>
  <geom name="box" type="box" size=".1 .08 .06" mass="{MASS}" rgba=".75 .77 .8 .45"/>
</body>
"""
STACK = """
<geom name="floor" type="plane" size="1 1 .1"/>
<body name="a" pos="0 0 .04"><freejoint/>
  <geom name="a" type="box" size=".07 .07 .04" mass="1" rgba=".75 .77 .8 .45"/></body>
<body name="b" pos=".01 .01 .12"><freejoint/>
  <geom name="b" type="box" size=".055 .06 .04" mass="1" rgba=".55 .7 .85 .45"/></body>
<body name="c" pos="-.015 .005 .2"><freejoint/>
  <geom name="c" type="box" size=".045 .05 .04" mass="1" rgba=".85 .75 .5 .45"/></body>
"""
HELD = """
<geom name="floor" type="plane" size="1 1 .1"/>
<body name="left" pos="0 -.075 .2"><joint name="left" type="slide" axis="0 1 0"/>
  <geom name="left" type="box" size=".03 .015 .03" mass=".2" rgba=".35 .37 .4 .45"/></body>
<body name="right" pos="0 .075 .2"><joint name="right" type="slide" axis="0 -1 0"/>
  <geom name="right" type="box" size=".03 .015 .031" mass=".2" rgba=".35 .37 .4 .45"/></body>
<body name="cube" pos="0 0 .2"><freejoint/>
  <geom name="cube" type="box" size=".04 .06 .045" mass="1" rgba=".85 .75 .5 .45"/></body>
"""


@dataclass(frozen=True)
class Options:
    """Options of the pictures."""

    output: Path = Path("docs/pictures")
    """The folder that they go to."""


def load(world: str) -> Scene:
    """The scene of a world's bodies, with elliptic cones."""
    return dynamics.load_mjcf(
        f"""<mujoco><option timestep=".002" cone="elliptic" impratio="10"/>
        <default><geom friction="{MU} .01 .001" solref=".004 1"/></default>
        <worldbody>{world}</worldbody></mujoco>"""
    )


def simulated(scene: Scene, torques: np.ndarray) -> tuple[Any, Solution]:
    """Configurations (T, nq) and solutions under torques (T, nv), from the default."""

    def one(carry: Any, tau: Any) -> Any:
        q, v, warm_start = carry
        q_next, v, solution = dynamics.scene_step(scene, q, v, tau, warm_start=warm_start)
        return (q_next, v, solution.acceleration), (q, solution)

    q = jnp.asarray(scene.system.q_default)
    still = jnp.zeros(scene.system.nv)
    return jax.jit(lambda x: jax.lax.scan(one, (q, still, still), x)[1])(jnp.asarray(torques))


def arrows(found: Contacts, force: np.ndarray, scale: float) -> list[Shape]:
    """The forces (slots, 6) of a scene's contacts, N, drawn `scale` m long for each N."""
    drawn = []
    frames, points = np.asarray(found.frame), np.asarray(found.position)
    for frame, point, f in zip(frames, points, force, strict=True):
        world = frame.T @ f[:3]
        size = float(np.linalg.norm(world))
        if size * scale < 1e-3:
            continue
        turned = np.asarray(rotation_to(world / size))
        length = size * scale
        middle, tip = (point + turned[:, 2] * length * x for x in (0.5, 1.0))
        drawn.append(Shape("cylinder", (0.0035, length), middle, turned, FORCE))
        drawn.append(Shape("sphere", (0.006,), tip, turned, FORCE))
    return drawn


def pushed_box() -> tuple[Scene, np.ndarray, Any, Solution]:
    """A box pushed sideways at its foot by a force that grows until it slips."""
    scene = load(BOX)
    push = np.zeros((SETTLE + int(1.1 * GROW), 6))
    push[SETTLE:, 0] = np.arange(len(push) - SETTLE) / GROW * MU * WEIGHT
    push[:, 4] = -0.06 * push[:, 0]  # at its foot: nothing tips it
    configurations, solution = simulated(scene, push)
    return scene, push, configurations, solution


def forces(path: Path) -> None:
    """What touches, and how hard: three scenes with their contact forces."""
    box, _, q, solution = pushed_box()
    held = load(HELD)
    squeeze = np.zeros((500, 8))
    squeeze[:, :2] = 25.0
    titles = ("pushed to the right, just before it slips", "a stack of three", "held by two pads")
    stack = load(STACK)
    runs = (
        (
            box,
            (q, solution),
            SETTLE + int(0.97 * GROW),
            0.018,
            Camera((0.4, -0.65, 0.3), (0.0, 0.0, 0.05), 28.0),
        ),
        (
            stack,
            simulated(stack, np.zeros((500, 18))),
            -1,
            0.006,
            Camera((0.35, -0.6, 0.4), (0.0, 0.0, 0.11), 28.0),
        ),
        (
            held,
            simulated(held, squeeze),
            -1,
            0.007,
            Camera((0.6, -0.3, 0.35), (0.0, 0.0, 0.18), 28.0),
        ),
    )
    with picture(path, 10.2, 3.65, 110) as figure:
        for axes, title, run in zip(figure.subplots(1, 3), titles, runs, strict=True):
            scene, (configurations, solution), k, scale, camera = run
            found = dynamics.contacts(scene, configurations[k])
            shapes = [
                *shapes_of(scene.system, configurations[k]),
                *arrows(found, np.asarray(solution.force[k], float), scale),
            ]
            axes.imshow(render(shapes, camera, SIZE, SIZE))
            axes.set_title(title)
            axes.axis("off")


def cones(path: Path) -> None:
    """The zones of both cones, and the forces of a box that is pushed until it slips."""
    with picture(path, 10.2, 3.5, 110) as figure:
        left, middle, right = figure.subplots(1, 3)
        for axes, function, name in (
            (left, elliptic_force, "elliptic"),
            (middle, pyramidal_force, "pyramidal"),
        ):
            zones(axes, function)
            axes.set_title(name)
        _, push, _, solution = pushed_box()
        slip = np.max(np.linalg.norm(np.asarray(solution.velocity, float), axis=2), axis=1)
        friction = np.sum(np.linalg.norm(solution.force[:, :, 1:3], axis=2), axis=1)
        shown = slice(SETTLE, SETTLE + int(1.025 * GROW))
        right.plot(push[shown, 0], friction[shown], color=COLOURS[0], label="friction, N")
        right.plot(push[shown, 0], 1e3 * slip[shown], color=COLOURS[1], label="slip, mm/s")
        right.axhline(WEIGHT * MU, color="0.4", lw=1, ls="--")
        right.set(title="a box on the floor", xlabel="sideways push, N", ylim=(0, 13))
        right.legend()


def zones(axes: Any, function: Any) -> None:
    """Colour the relative accelerations by what the contact does, and draw its force."""

    def force(points: np.ndarray) -> np.ndarray:
        n = len(points)
        friction = Friction(jnp.ones(n), jnp.full((n, 1), MU), jnp.full(n, MU))
        return np.asarray(function(jnp.asarray(points), friction))

    edge = np.linspace(-1, 1, 301)
    normal, tangential = np.meshgrid(edge, edge, indexing="ij")
    f = force(np.stack([normal.ravel(), tangential.ravel()], 1))
    pushes = f[:, 0] > 1e-6
    slips = pushes & (np.abs(f[:, 1]) > MU * f[:, 0] * (1 - 1e-4))
    zone = np.where(pushes, np.where(slips, 1, 2), 0).reshape(normal.shape)
    axes.contourf(
        tangential, normal, zone, [-0.5, 0.5, 1.5, 2.5], colors=["#f4f4f4", "#fbe0c3", "#cfe0f1"]
    )
    coarse = np.linspace(-0.9, 0.9, 11)
    normal, tangential = (x.ravel() for x in np.meshgrid(coarse, coarse, indexing="ij"))
    f = force(np.stack([normal, tangential], 1))
    some, scale = f[:, 0] > 1e-6, 9 * np.max(np.abs(f))
    axes.quiver(
        tangential[some],
        normal[some],
        f[some, 1],
        f[some, 0],
        color="0.3",
        width=0.005,
        scale=scale,
    )
    for text, place in (("free", (0, 0.6)), ("slips", (0.72, -0.05)), ("sticks", (0, -0.55))):
        axes.text(*place, text, ha="center", va="center", weight="bold", color="0.2")
    axes.set(
        xlabel="acceleration across, over the reference",
        ylabel="along the normal",
        xticks=[],
        yticks=[],
        aspect="equal",
    )


def main(options: Options) -> None:
    """Draw both."""
    for name, draw in {"contact_forces": forces, "contact_cones": cones}.items():
        path = options.output / f"{name}.png"
        draw(path)
        print(f"Wrote {path}")


if __name__ == "__main__":
    main(tyro.cli(Options))
