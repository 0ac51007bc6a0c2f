"""Two geoms in many poses: what MuJoCo finds between them, and the poses that are hard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import numpy as np

KINDS = ("plane", "sphere", "capsule", "cylinder", "box")
CUBE_ROTATIONS = np.array(
    [
        m
        for p in permutations(range(3))
        for s in product((1.0, -1.0), repeat=3)
        if np.linalg.det(m := np.diag(s)[list(p)]) > 0
    ]
)


@dataclass(frozen=True)
class Poses:
    """Two geoms, n times: sizes (n, 2, 3), positions (n, 2, 3), rotations (n, 2, 3, 3)."""

    size: np.ndarray
    position: np.ndarray
    rotation: np.ndarray

    def __getitem__(self, index: Any) -> Poses:
        return Poses(self.size[index], self.position[index], self.rotation[index])

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True)
class Found:
    """Contacts of one pose: distances (k,), positions (k, 3), frames (k, 3, 3)."""

    distance: np.ndarray
    position: np.ndarray
    frame: np.ndarray


def rotations(rng: np.random.Generator, n: int) -> np.ndarray:
    """(n, 3, 3), uniform."""
    q = rng.normal(size=(n, 4))
    return from_quaternions(q / np.linalg.norm(q, axis=1, keepdims=True))


def from_quaternions(q: np.ndarray) -> np.ndarray:
    w, x, y, z = q.T
    return np.stack(
        [
            np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], 1),
            np.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], 1),
            np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], 1),
        ],
        1,
    )


def turned(rng: np.random.Generator, rotation: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Rotations (n, 3, 3) turned by angles (n,), rad, about random axes."""
    axis = rng.normal(size=(len(rotation), 3))
    axis *= (np.sin(0.5 * angle) / np.linalg.norm(axis, axis=1))[:, None]
    small = from_quaternions(np.concatenate([np.cos(0.5 * angle)[:, None], axis], axis=1))
    return small @ rotation


def random_sizes(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    """(n, 3), between a finger's and a table's."""
    size = np.exp(rng.uniform(np.log(0.01), np.log(0.3), (n, 3)))
    used = {"plane": 0, "sphere": 1, "capsule": 2, "cylinder": 2, "box": 3}[kind]
    return np.where(np.arange(3) < used, size, 0.0)


def extent(size: np.ndarray) -> np.ndarray:
    """Radii of spheres around geoms of these sizes, m, roughly."""
    return np.linalg.norm(size, axis=-1)


def random_poses(rng: np.random.Generator, kinds: tuple[str, str], n: int) -> Poses:
    """Every rotation, from one in the other to a little apart."""
    size = np.stack([random_sizes(rng, kind, n) for kind in kinds], axis=1)
    position = rng.uniform(-1, 1, (n, 2, 3))
    step = rng.normal(size=(n, 3))
    step /= np.linalg.norm(step, axis=1, keepdims=True)
    reach = extent(size).sum(axis=1) * rng.uniform(0, 1.3, n)
    position[:, 1] = position[:, 0] + reach[:, None] * step
    rotation = np.stack([rotations(rng, n), rotations(rng, n)], axis=1)
    return Poses(size, position, rotation)


def aligned_poses(rng: np.random.Generator, kinds: tuple[str, str], n: int) -> Poses:
    """Axes along each other but for some power of ten of a radian, or exactly; one above the other."""
    poses = random_poses(rng, kinds, n)
    angle = np.where(rng.random(n) < 0.3, 0.0, 10.0 ** rng.uniform(-12, -1, n))
    relative = turned(rng, CUBE_ROTATIONS[rng.integers(24, size=n)], angle)
    frame = np.where((rng.random(n) < 0.5)[:, None, None], np.eye(3), poses.rotation[:, 0])
    rotation = np.stack([frame, frame @ relative], axis=1)
    reach = extent(poses.size).sum(axis=1)[:, None]
    step = rng.uniform(-1, 1, (n, 3)) * reach * rng.choice([0.0, 0.3, 1.0], (n, 3))
    position = poses.position.copy()
    position[:, 1] = position[:, 0] + np.einsum("nij,nj->ni", frame, step)
    return Poses(poses.size, position, rotation)


def gridded_poses(rng: np.random.Generator, kinds: tuple[str, str], n: int) -> Poses:
    """Sizes and offsets of a few values, axes along each other: flush faces, edges, centres."""
    poses = aligned_poses(rng, kinds, n)
    size = np.where(poses.size > 0, rng.choice([0.05, 0.1], poses.size.shape), 0.0)
    relative = CUBE_ROTATIONS[rng.integers(24, size=n)]
    angle = rng.choice([0.0, np.pi / 4, np.pi / 6, 1e-9, 1e-5], n)
    axis = rng.integers(3, size=n)
    q = np.zeros((n, 4))
    q[:, 0], q[np.arange(n), 1 + axis] = np.cos(angle / 2), np.sin(angle / 2)
    frame = poses.rotation[:, 0]
    step = rng.integers(-4, 5, (n, 3)) * 0.05
    step += rng.choice([0.0, 1e-9, 1e-6, 1e-3], (n, 1)) * rng.choice([-1, 0, 1], (n, 3))
    position = poses.position.copy()
    position[:, 1] = position[:, 0] + np.einsum("nij,nj->ni", frame, step)
    rotation = np.stack([frame, frame @ from_quaternions(q) @ relative], axis=1)
    return Poses(size, position, rotation)


class MujocoNarrowphase:
    """`mj_collision` of two geoms whose poses are written where kinematics would leave them."""

    def __init__(self, kinds: tuple[str, str]) -> None:
        import mujoco

        self.mujoco = mujoco
        size = {"plane": "1 1 1", "sphere": ".1", "capsule": ".1 .1", "cylinder": ".1 .1"}
        bodies = "".join(
            f'<geom name="{k}" type="{kind}" size="1 1 1"/>'
            if kind == "plane"
            else f'<body><freejoint/><geom name="{k}" type="{kind}" '
            f'size="{size.get(kind, ".1 .1 .1")}"/></body>'
            for k, kind in enumerate(kinds)
        )
        self.model = mujoco.MjModel.from_xml_string(
            f'<mujoco><worldbody>{bodies}</worldbody><contact><pair geom1="0" geom2="1"/></contact>'
            "</mujoco>"
        )
        self.model.geom_contype[:] = 0
        self.model.geom_conaffinity[:] = 0
        self.model.geom_rbound[:] = np.where(self.model.geom_rbound > 0, 100.0, 0.0)
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)

    def __call__(self, poses: Poses, margin: float) -> list[Found]:
        model, data = self.model, self.data
        model.pair_margin[:] = margin
        results = []
        for k in range(len(poses)):
            model.geom_size[:] = poses.size[k]
            data.geom_xpos[:] = poses.position[k]
            data.geom_xmat[:] = poses.rotation[k].reshape(2, 9)
            self.mujoco.mj_collision(model, data)
            contact = data.contact
            results.append(
                Found(
                    contact.dist.copy(), contact.pos.copy(), contact.frame.reshape(-1, 3, 3).copy()
                )
            )
        return results


@dataclass(frozen=True)
class Agreement:
    """Differences of two results, n poses: counts, and the largest of matched contacts, per pose.

    Attributes:
        counts: (n, 2) int, contacts of ours and of the reference.
        distance: (n,), m, nan where counts differ.
        position: (n,), m.
        frame: (n,).
    """

    counts: np.ndarray
    distance: np.ndarray
    position: np.ndarray
    frame: np.ndarray

    def worst(self) -> np.ndarray:
        """(n,), infinite where counts differ."""
        worst = np.max([self.distance, self.position, self.frame], axis=0)
        return np.where(np.isnan(worst), np.inf, worst)


def compared(ours: list[Found], reference: list[Found]) -> Agreement:
    """Match the contacts of each pose by position, nearest first."""
    n = len(ours)
    counts = np.array([(len(a.distance), len(b.distance)) for a, b in zip(ours, reference)])
    errors = np.full((3, n), np.nan)
    for k in range(n):
        a, b = ours[k], reference[k]
        if len(a.distance) != len(b.distance):
            continue
        apart = np.linalg.norm(a.position[:, None] - b.position[None], axis=2)
        errors[:, k] = 0.0
        for _ in range(len(a.distance)):
            i, j = np.unravel_index(np.argmin(apart), apart.shape)
            errors[0, k] = max(errors[0, k], abs(a.distance[i] - b.distance[j]))
            errors[1, k] = max(errors[1, k], apart[i, j])
            errors[2, k] = max(errors[2, k], np.abs(a.frame[i] - b.frame[j]).max())
            apart[i], apart[:, j] = np.inf, np.inf
    return Agreement(counts, *errors)


def shifted(poses: Poses, step: np.ndarray) -> Poses:
    """The same, elsewhere."""
    return replace(poses, position=poses.position + step)
