"""Self-collision pairs, found by sampling configurations."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import jax
import numpy as np
from numpy.typing import NDArray

from fraxenv.errors import ConfigError, RobotLoadError, import_extra, unknown_name

from .. import Robot, forward_kinematics
from ..model.robot import WORLD
from .options import Options
from .source import Array

_PENETRATION: Final = 0.01  # m, above which two spheres count as colliding
_BATCH: Final = 500  # sampled configurations at a time
_FREE_RANGE: Final = np.pi  # rad or m, either side of the default, of a joint without limits


@dataclass(frozen=True)
class Pairs:
    """Self-collision pairs, and how well they detect collisions.

    Attributes:
        names: names of the two spheres of each pair.
        clearance: m, distance of the closest pair in the default configuration; infinite without
            pairs.
        colliding: fraction of the random configurations in which spheres of bodies that are not
            neighbours interpenetrate.
        coverage: fraction of those that the pairs detect, measured on configurations that the pairs
            were not chosen from; NaN if none collides.
    """

    names: list[tuple[str, str]]
    clearance: float
    colliding: float
    coverage: float


def find_pairs(robot: Robot, options: Options) -> Pairs:
    """Pairs of spheres that detect self-collisions in random configurations."""
    shapes = robot.topology.collision_shapes
    names = [shape.name for shape in shapes]
    for shape in shapes:
        if shape.kind != "sphere":
            raise RobotLoadError(
                f"{options.shapes_from}: the <collision> {shape.name!r} is a {shape.kind}, "
                "expected spheres only. Replace it by spheres."
            )
    pairs = _candidates(robot, options)
    if not len(pairs) or options.collision_pairs < 1:
        return Pairs([], np.inf, 0.0, np.nan)
    at_default = _gaps(robot, np.asarray(robot.q_default)[None], pairs)[0]
    pairs, at_default = (x[at_default >= options.clearance] for x in (pairs, at_default))
    q = _random_configurations(robot, options.samples, options.seed)
    steps = range(0, len(q), _BATCH)
    track = import_extra("rich.progress", "cli", "The progress bar").track
    hits = np.concatenate(
        [
            _gaps(robot, q[i : i + _BATCH], pairs) < -_PENETRATION
            for i in track(steps, description=f"{options.name}: sampling configurations")
        ]
    )
    chosen_from, measured_on = hits[::2], hits[1::2]
    first = _numbers_of(options.first_pairs, names, pairs)
    chosen = _cover(chosen_from, _mirror(names, pairs), first, options)
    colliding = np.any(measured_on, axis=1)
    found = np.any(measured_on[:, chosen], axis=1)
    return Pairs(
        [(names[a], names[b]) for a, b in pairs[sorted(chosen)]],
        float(at_default[chosen].min(initial=np.inf)),
        float(colliding.mean()),
        float(found[colliding].mean()) if colliding.any() else np.nan,
    )


def _candidates(robot: Robot, options: Options) -> NDArray[np.intp]:
    """Candidate pairs (k, 2) of spheres, whose bodies are neither the same nor neighbours."""
    body_of = {frame.name: frame.body for frame in robot.topology.frames}
    for name in itertools.chain.from_iterable(options.keep_clear):
        if name not in body_of:
            raise unknown_name("link", name, body_of)
    apart = {frozenset((i, int(p))) for i, p in enumerate(robot.topology.parent)}
    apart |= {frozenset((body_of[a], body_of[b])) for a, b in options.keep_clear}
    bodies = [shape.body for shape in robot.topology.collision_shapes]
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(bodies)), 2)
        if bodies[i] != bodies[j] and frozenset((bodies[i], bodies[j])) not in apart
    ]
    return np.array(pairs, int).reshape(-1, 2)


def _random_configurations(robot: Robot, count: int, seed: int) -> Array:
    """Random configurations (count, nq): joints uniform in their limits, quaternions as by default.

    In a robot with several limbs, each limb stays at its default half of the time. Otherwise the
    legs of a humanoid, which nearly always collide, would hide collisions of its arms.
    """
    topology = robot.topology
    q = np.tile(np.asarray(robot.q_default, float), (count, 1))
    scalar = topology.dof_coordinate >= 0
    coordinate = topology.dof_coordinate[scalar]
    lower, upper = np.asarray(robot.position_limits)[scalar].T
    middle = q[0, coordinate]
    lower = np.where(np.isfinite(lower), lower, middle - _FREE_RANGE)
    upper = np.where(np.isfinite(upper), upper, middle + _FREE_RANGE)
    rng = np.random.default_rng(seed)
    random = rng.uniform(lower, upper, (count, len(coordinate)))
    limb = np.repeat(_limbs(topology.parent), [j.nv for j in topology.joints])[scalar]
    moves = rng.random((count, limb.max() + 1)) < (0.5 if limb.max() else 1.0)
    q[:, coordinate] = np.where(moves[:, limb], random, middle)
    return q


def _limbs(parent: NDArray[np.intp]) -> NDArray[np.intp]:
    """Limb number (nb,) of each body; limbs begin at roots, and where the tree forks."""
    children = Counter(map(int, parent))
    limb: list[int] = []
    for above in parent:
        begins = above == WORLD or children[int(above)] > 1
        limb.append(max(limb, default=-1) + 1 if begins else limb[above])
    return np.array(limb)


_poses = jax.jit(jax.vmap(forward_kinematics, in_axes=(None, 0)))


def _gaps(robot: Robot, q: Array, pairs: NDArray[np.intp]) -> Array:
    """Distances (batch, k), m, between the surfaces of pairs of spheres; negative in collision."""
    shapes = robot.topology.collision_shapes
    position, rotation = (np.asarray(x, float) for x in _poses(robot, q))
    # The body WORLD = -1 is the last one.
    position = np.concatenate([position, np.zeros((len(q), 1, 3))], axis=1)
    rotation = np.concatenate([rotation, np.broadcast_to(np.eye(3), (len(q), 1, 3, 3))], axis=1)
    body = [shape.body for shape in shapes]
    local = np.array([shape.position for shape in shapes])
    centre = position[:, body] + np.einsum("bsij,sj->bsi", rotation[:, body], local)
    radius = np.array([shape.size[0] for shape in shapes])
    first, second = pairs.T
    distance = np.linalg.norm(centre[:, first] - centre[:, second], axis=2)
    gaps: Array = distance - radius[first] - radius[second]
    return gaps


def _mirror(names: Sequence[str], pairs: NDArray[np.intp]) -> list[int]:
    """Index of each pair's mirror image, left for right; its own index if it has none."""
    index = {name: i for i, name in enumerate(names)}
    other = [index.get(_other_side(name), i) for i, name in enumerate(names)]
    number = {frozenset(map(int, pair)): k for k, pair in enumerate(pairs)}
    return [number.get(frozenset((other[a], other[b])), k) for k, (a, b) in enumerate(pairs)]


def _other_side(name: str) -> str:
    sides = {"left": "right", "right": "left"}
    return re.sub("left|right", lambda m: sides[m.group()], name)


def _numbers_of(
    wanted: Sequence[tuple[str, str]], names: Sequence[str], pairs: NDArray[np.intp]
) -> list[int]:
    number = {frozenset((names[a], names[b])): k for k, (a, b) in enumerate(pairs)}
    for pair in wanted:
        if frozenset(pair) not in number:
            raise ConfigError(
                f"first_pairs names {pair}, expected two spheres of bodies that are not "
                "neighbours, and far enough apart in the default configuration (clearance). "
                f"Spheres: {', '.join(names)}."
            )
    return [number[frozenset(pair)] for pair in wanted]


def _cover(
    hits: NDArray[np.bool_], mirror: Sequence[int], first: Sequence[int], options: Options
) -> list[int]:
    """Greedy cover: columns, with their mirror images, that each hit the most rows not hit yet."""
    chosen = sorted({c for k in first for c in (k, mirror[k])})
    left = hits[hits.any(axis=1)]
    enough = (1 - options.coverage) * len(left)
    left = left[~left[:, chosen].any(axis=1)]
    while len(left) > enough and len(chosen) < options.collision_pairs:
        gain = left.sum(axis=0)
        gain += np.where(np.arange(len(gain)) == mirror, 0, gain[mirror])
        best = int(np.argmax(gain))
        chosen += sorted({best, mirror[best]})
        left = left[~left[:, chosen].any(axis=1)]
    return chosen
