"""Whether contacts behave as bodies do: a table of what a person can check with a ruler.

    python scripts/measure/validate_contact.py
    python scripts/measure/validate_contact.py --float64
    python scripts/measure/validate_contact.py --quick

Rest, slopes, a stack, a grip, a fall, in float32 on the fused step. Lines without a limit say what
other parameters do. Exits with status 1 if a limit is exceeded.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fraxenv import dynamics, fuse
from fraxenv.dynamics import Scene
from fraxenv.dynamics.scene.step import scene_step

SCENES = Path(__file__).parent / "benchmark" / "scenes"
FRICTION = 0.5
"""Of the slope."""


@dataclass(frozen=True)
class Options:
    """Options of the validation."""

    float64: bool = False
    """In float64 rather than float32."""
    quick: bool = False
    """A stack of half a second, coarse angles: whether all works."""
    backend: str = "auto"
    """Of the fused step."""


class Row(NamedTuple):
    """A line of the table: what, how large, the limit (None: only reported), and the unit."""

    what: str
    worst: float
    limit: float | None
    unit: str


class Motion(NamedTuple):
    """Of n environments at t steps: configurations (t, n, nq), velocities (t, n, nv).

    `touches` (t, n) is whether a contact acted during a step, `unsolved` the number of solutions
    that did not converge.
    """

    q: NDArray[np.floating[Any]]
    v: NDArray[np.floating[Any]]
    touches: NDArray[np.bool_]
    unsolved: int


def load(name: str) -> Scene:
    """A scene of the benchmark."""
    return dynamics.load_mjcf(SCENES / f"{name}.xml")


def roll(
    scene: Scene,
    seconds: float,
    options: Options,
    gravity: NDArray[np.floating[Any]] | None = None,
    start: NDArray[np.floating[Any]] | None = None,
) -> Motion:
    """The motion from the first keyframe, or from `start` (nq,), without anything else that acts.

    Args:
        scene: the scene.
        seconds: how long.
        options: precision and backend.
        gravity: (n, 3), m/s^2, of n environments; of one, the scene's, if omitted.
        start: rad and m.
    """
    dtype = np.float64 if options.float64 else np.float32
    key = next(iter(scene.keyframes.values()))
    if gravity is None:
        gravity = np.asarray(scene.system.gravity)[None]
    n = len(gravity)

    def one(q: Array, v: Array, warm_start: Array, gravity: Array) -> Any:
        now = scene.replace(system=scene.system.replace(gravity=gravity))
        tau, ctrl = jnp.zeros(scene.nv, q.dtype), jnp.asarray(key.ctrl, q.dtype)
        q, v, s = scene_step(now, q, v, tau, None, warm_start, None, ctrl)
        return q, v, s.acceleration, jnp.any(s.force != 0), s.converged

    many = fuse(one, options.backend)

    @jax.jit
    def program(q: Array, v: Array, gravity: Array) -> Any:
        def step(state: Any, _: None) -> Any:
            *state, touches, converged = many(*state, gravity)
            return tuple(state), (*state[:2], touches, jnp.sum(~converged))

        steps = max(1, round(seconds / float(scene.timestep)))
        return jax.lax.scan(step, (q, v, jnp.zeros_like(v)), length=steps)[1]

    begin = key.q if start is None else start
    q, v = (np.tile(np.asarray(x, dtype), (n, 1)) for x in (begin, key.v))
    *arrays, unsolved = program(q, v, np.asarray(gravity, dtype))
    return Motion(*(np.asarray(x) for x in arrays), int(np.sum(unsolved)))


# --- what is looked at ----------------------------------------------------------------------------


def rest(options: Options) -> list[Row]:
    """A box of 1 kg on the floor."""
    scene = load("cube")
    moved = roll(scene, 2.0, options)
    half = float(np.asarray(scene.constraints.geoms.size)[scene.geom("cube"), 2])
    speed = np.linalg.norm(moved.v[len(moved.v) // 2 :, 0, :3], axis=1).max()
    drift = np.linalg.norm(moved.q[-1, 0, :3] - moved.q[len(moved.q) // 2, 0, :3])
    return [
        Row("box of 1 kg at rest: penetration", 1e3 * (half - moved.q[-1, 0, 2]), 0.5, "mm"),
        Row("box of 1 kg at rest: largest speed", 1e6 * speed, 1.0, "um/s"),
        Row("box of 1 kg at rest: drift in 1 s", 1e6 * drift, 1.0, "um"),
        Row("box of 1 kg at rest: not converged", moved.unsolved, 0, "steps"),
    ]


def slope(options: Options) -> list[Row]:
    """A box on a slope of growing angle: where it no longer stays, but goes faster and faster."""
    rows = []
    spacing = 0.1 if options.quick else 0.02
    exact = np.degrees(np.arctan(FRICTION))
    angles = exact + np.arange(-0.6, 0.6 + spacing / 2, spacing)
    turned = np.radians(angles)
    gravity = 9.81 * np.stack([np.sin(turned), 0 * turned, -np.cos(turned)], axis=1)
    for impratio in (1, 10):
        scene = load("cube").with_geom("cube", friction=FRICTION)
        scene = scene.with_geom("floor", friction=FRICTION)
        scene = with_impratio(scene, impratio)
        moved = roll(scene, 1.0, options, gravity)
        middle, end = moved.v[len(moved.v) // 2, :, 0], moved.v[-1, :, 0]
        slips = end - middle > 1e-3
        found = float(angles[slips.argmax()]) if slips.any() else np.inf
        what = f"slope, friction {FRICTION:g}, impratio {impratio}"
        rows += [
            Row(f"{what}: slips this far from atan(mu)", abs(found - exact), 0.2, "deg"),
            Row(f"{what}: creep below that", 1e6 * float(end[~slips].max(initial=0)), None, "um/s"),
        ]
    return rows


def stack(options: Options) -> list[Row]:
    """Three boxes on top of each other."""
    seconds = 0.5 if options.quick else 60.0
    moved = roll(load("stack"), seconds, options)
    at = moved.q[:, 0].reshape(len(moved.q), 3, 7)
    begun = at[min(len(at) - 1, 100)]
    shifted = np.linalg.norm(at[-1, :, :3] - begun[:, :3], axis=1).max()
    turned = 2 * np.linalg.norm(at[-1, :, 4:] - begun[:, 4:], axis=1).max()
    shifted, turned = (x if np.isfinite(x) else np.inf for x in (float(shifted), float(turned)))
    return [
        Row(f"stack of three, {seconds:g} s: farthest shift", 1e3 * shifted, 1.0, "mm"),
        Row(f"stack of three, {seconds:g} s: largest turn", float(np.degrees(turned)), 0.5, "deg"),
        Row(f"stack of three, {seconds:g} s: not converged", moved.unsolved, 0, "steps"),
    ]


def grip(options: Options) -> list[Row]:
    """A cube between two pads, which creeps down as long as its friction is soft."""
    rows = []
    for mass, text in ((0.064, "64 g"), (1.0, "1 kg")):
        held = with_mass(load("held"), mass)
        soft = {"solref": (0.02, 1.0), "solimp": (0.9, 0.95, 0.001, 0.5, 2.0)}
        cases: dict[str, tuple[Scene, float | None]] = {
            "impratio 10": (held, 10.0),
            "`grip`, the stiction": (dynamics.grip(with_geoms(held, **soft)), 1.0),
            "impratio 10, MuJoCo's defaults else": (with_geoms(held, **soft), None),
        }
        for name, (scene, limit) in cases.items():
            moved = roll(scene, 2.0, options)
            z = moved.q[:, 0, 4]
            creep = float(abs(z[-1] - z[len(z) // 2]) / 1.0)
            rows.append(Row(f"{text} held between pads, {name}: creep", 1e6 * creep, limit, "um/s"))
            if limit is not None:
                what = f"{text} held between pads, {name}: not converged"
                rows.append(Row(what, moved.unsolved, 0, "steps"))
        slippery = roll(with_geoms(held, friction=0.0), 0.2, options)
        speed = float(-slippery.v[-1, 0, 4])
        lost = abs(1 - speed / (9.81 * 0.2))
        rows.append(Row(f"{text} between pads, friction 0: falls slower by", 100 * lost, 0.1, "%"))
    return rows


def fall(options: Options) -> list[Row]:
    """A box that falls on a corner: kinetic and potential energy.

    Soft contacts store energy and give a part of it back: what must not rise is the energy in
    flight, when nothing is stored.
    """
    scene = load("cube")
    turned = np.array([0.8, 0.35, 0.45, 0.2])
    start = np.array([0, 0, 0.3, *(turned / np.linalg.norm(turned))])
    moved = roll(scene, 2.0, options, start=start)
    system = scene.system

    @jax.jit
    @jax.vmap
    def energy(q: Array, v: Array) -> Array:
        kinetic = dynamics.kinetic_energy(system, q, v)
        return kinetic + dynamics.potential_energy(system, q)

    E = np.asarray(energy(moved.q[:, 0], moved.v[:, 0]), float)
    dropped = float(E[0] - E[-1])
    flying = E[~moved.touches[:, 0]]
    rise = (_still_to_come(E) - E).max() / dropped
    gained = (_still_to_come(flying) - flying).max() / dropped
    what = "box falls 0.3 m on a corner"
    return [
        Row(f"{what}: energy gained, from flight to flight", 100 * float(gained), 1e-3, "%"),
        Row(f"{what}: energy that contacts give back", 100 * float(rise), None, "%"),
        Row(f"{what}: not converged", moved.unsolved, 0, "steps"),
    ]


def _still_to_come(x: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The largest number from each on."""
    return np.maximum.accumulate(x[::-1])[::-1]


# --- other parameters -----------------------------------------------------------------------------


def with_impratio(scene: Scene, impratio: float) -> Scene:
    """The scene with friction that is stiffer than normal forces by `impratio`."""
    constraints = dataclasses.replace(scene.constraints, impratio=float(impratio))
    return scene.replace(constraints=constraints)


def with_geoms(scene: Scene, **numbers: Any) -> Scene:
    """The scene with the same numbers for all geoms."""
    for name in scene.geom_names:
        scene = scene.with_geom(name, **numbers)
    return scene


def with_mass(scene: Scene, mass: float) -> Scene:
    """The scene with another mass of its cube."""
    system = scene.system
    cube = system.topology.body_names.index("cube")
    scale = np.ones(system.nb)
    scale[cube] = mass / float(np.asarray(system.mass)[cube])
    return scene.with_system(
        system.replace(
            mass=np.asarray(system.mass) * scale,
            inertia=np.asarray(system.inertia) * scale[:, None, None],
        )
    )


CHECKS: dict[str, Callable[[Options], list[Row]]] = {
    "rest": rest,
    "slope": slope,
    "stack": stack,
    "grip": grip,
    "fall": fall,
}


def main(options: Options) -> int:
    """Print the table; the exit status says whether every limit holds."""
    with jax.enable_x64(options.float64):
        rows = [row for check in CHECKS.values() for row in check(options)]
    precision = "float64" if options.float64 else "float32"
    table = Table(title=f"Contacts, {precision}, steps of 2 ms", title_justify="left")
    for heading in ("what", "found", "limit", "unit"):
        table.add_column(heading, justify="left" if heading in ("what", "unit") else "right")
    within = [row.limit is None or row.worst <= row.limit for row in rows]
    for row, good in zip(rows, within, strict=True):
        limit = "" if row.limit is None else f"{row.limit:.3g}"
        style = None if good else "red"
        table.add_row(row.what, f"{row.worst:.3g}", limit, row.unit, style=style)
    Console(width=100).print(table)
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
