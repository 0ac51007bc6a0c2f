"""Every pair of kinds of geoms against MuJoCo C, in random and in awkward poses.

Contacts are compared as sets, matched by their positions. Both sides get the same numbers: poses
are written into MuJoCo's data.

A result may be another one where MuJoCo's own is rounding: at a tie of two features, or where a
direction is that of a vector which is all but zero. Which poses these are is not ours to say: there
MuJoCo's own contacts jump if the geoms are moved by next to nothing, or move by many times as much.
How many there are is counted; everywhere else there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import contact_scenes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collision import (
    Found,
    MujocoNarrowphase,
    Poses,
    all_poses,
    compared,
    gridded_poses,
    joined,
    random_poses,
    rotations,
    shifted,
)
from jax import Array
from support import dtype_with_slow, with_slow

from fraxenv import dynamics
from fraxenv.dynamics.contact.colliders.points import Placed, Points
from fraxenv.dynamics.contact.narrowphase import COLLIDERS, Contacts, pair_contacts, slots_of
from fraxenv.dynamics.math.rotation import skew
from fraxenv.errors import ConfigError

pytest.importorskip("mujoco")

PAIRS = list(COLLIDERS)
QUICK = [("plane", "cylinder"), ("sphere", "box")]
"""Of which derivatives are compared in quick runs, too."""
FEW, MANY = 1_200, 10_002
TOLERANCE = 1e-12
"""m, and of unit vectors' entries."""
JUMP = 1e-4
"""m; where MuJoCo's contacts move this far by nothing, there is a choice of features."""

NOT_OURS = {
    ("plane", "sphere"): (2, 15, 0),
    ("plane", "capsule"): (110, 850, 10),
    ("plane", "cylinder"): (90, 830, 0),
    ("plane", "box"): (5, 40, 0),
    ("sphere", "sphere"): (5, 25, 0),
    ("sphere", "capsule"): (20, 135, 5),
    ("sphere", "cylinder"): (16, 90, 5),
    ("sphere", "box"): (2, 25, 0),
    ("capsule", "capsule"): (25, 150, 50),
    ("capsule", "box"): (28, 200, 20),
    ("box", "box"): (28, 190, 2),
}
"""In how many poses MuJoCo's result is a matter of rounding, and ours another one: choices of `FEW`
and of `MANY`, and ill-conditioned directions of `MANY`. Rounding is the
compiler's, too, which joins products and sums or does not: these are about a quarter more than the
most that was found.

- Any: a distance equal to the margin; a normal just where the tangent's rule changes.
- plane-capsule: upright; the frame is along a vector of rounding errors (or along x, ours within
  1e-9 rad). plane-cylinder: a disk lies nearly flat, where
  MuJoCo's distances are rounding (`leaning_cylinders`). plane-box: a corner is level with the
  centre.
- Round ones: centres, axes or surfaces meet within 1e-9 m, and so the normal is arbitrary; within
  1e-4 m, it has fewer than 12 digits. In a box or a cylinder, two faces are as near.
- capsule-box: two features are as near, often where the axis is parallel to a face; the segment is
  in the plane of a face.
- box-box: faces as deep, incident faces at 45 degrees, flush edges.
"""

pair = pytest.mark.parametrize("kinds", PAIRS, ids="-".join)


def placed(poses: tuple[Array, Array, Array], k: int) -> Placed:
    size, position, rotation = poses
    return Placed(position[k], rotation[k], size[k])


@cache
def ours(kinds: tuple[str, str]) -> Callable[[Poses, np.ndarray], list[Found]]:
    """Active contacts of each pose."""
    collide, _ = COLLIDERS[kinds]

    def single(pose: tuple[Array, Array, Array], margin: Array) -> Contacts:
        return pair_contacts(collide, placed(pose, 0), placed(pose, 1), margin)

    run = jax.jit(jax.vmap(single))

    def call(poses: Poses, margin: np.ndarray) -> list[Found]:
        arrays = [jnp.asarray(x) for x in (poses.size, poses.position, poses.rotation)]
        c = jax.tree.map(np.asarray, run(tuple(arrays), jnp.asarray(margin)))
        return [
            Found(*(x[k][c.active[k]].astype(float) for x in (c.distance, c.position, c.frame)))
            for k in range(len(poses))
        ]

    return call


def round_gap(kinds: tuple[str, str], poses: Poses, found: list[Found]) -> np.ndarray:
    """(n,), m, the least distance of the centres, axes or boxes that contacts are a radius from."""
    radii = sum(
        poses.size[:, k, 0] * (kind in ("sphere", "capsule")) for k, kind in enumerate(kinds)
    )
    is_round = kinds[0] in ("sphere", "capsule")
    return np.array(
        [
            np.abs(f.distance + r).min() if is_round and len(f.distance) else np.inf
            for f, r in zip(found, radii, strict=True)
        ]
    )


def on_the_fence(found: list[Found], margin: np.ndarray) -> np.ndarray:
    """(n,) whether a distance is that of the margin, or a normal that of another tangent."""
    return np.array(
        [
            np.any(np.abs(f.distance - m) < 1e-9)
            or np.any(np.abs(np.abs(f.frame[:, 0, 1]) - 0.5) < 1e-9)
            for f, m in zip(found, margin, strict=True)
        ],
        bool,
    )


@pytest.mark.usefixtures("x64")
@pair
@pytest.mark.parametrize("n", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_same_contacts_as_mujoco(kinds: tuple[str, str], n: int) -> None:
    poses, margin = all_poses(kinds, n)
    mujoco = MujocoNarrowphase(kinds)
    own, reference = ours(kinds)(poses, margin), mujoco(poses, margin)
    touching = np.mean([len(f.distance) > 0 for f in reference])
    assert 0.5 < touching <= 1
    error = compared(own, reference).worst()

    differs = np.flatnonzero(error > TOLERANCE)
    error, poses, margin = error[differs], poses[differs], margin[differs]
    own, reference = [own[k] for k in differs], [reference[k] for k in differs]
    # By rounding, by little, and by what capsule-box takes for as near (1e-15 of a square).
    slight = mujoco.moved(poses, margin, 1e-10)
    least = mujoco.moved(poses, margin, 1e-15)
    jumps = np.max([slight, least, mujoco.moved(poses, margin, 1e-7)], axis=0)
    is_choice = (jumps > JUMP) | on_the_fence(own, margin) | on_the_fence(reference, margin)
    with np.errstate(divide="ignore"):
        # Two faces within 1e-9 rad of flush: whose normal it is, the least push decides.
        rounding = np.maximum.reduce(
            [1e-3 * slight, 1.01 * least, 1e-15 / round_gap(kinds, poses, reference)]
        )
    is_ill = ~is_choice & (error < rounding)

    unexplained = ~is_choice & ~is_ill
    assert not unexplained.any(), f"poses {differs[unexplained]}, errors {error[unexplained]}"
    few, many, ill = NOT_OURS[kinds]
    # The table of docs/contact.md: pytest -s -m slow -k same_contacts.
    print(
        f"\n{'-'.join(kinds)}: {n} poses, {touching:.0%} with contacts, {n - len(differs)} equal; "
        f"{is_choice.sum()} ties, {is_ill.sum()} ill-conditioned, {unexplained.sum()} unexplained"
    )
    assert is_choice.sum() <= (few if n == FEW else many)
    assert is_ill.sum() <= ill


@pair
def test_single_precision(kinds: tuple[str, str]) -> None:
    # Poses as the single-precision numbers are, so that both sides get the same.
    poses = single(random_poses(np.random.default_rng(0), kinds, FEW))
    margin = np.full(FEW, 5.0)
    mujoco = MujocoNarrowphase(kinds)
    error = compared(ours(kinds)(poses, margin), mujoco(poses, margin)).worst()
    assert np.median(error) < 3e-7
    differs = np.flatnonzero(error > 1e-6)
    poses, margin, error = poses[differs], margin[differs], error[differs]
    slight = mujoco.moved(poses, margin, 1e-6)
    rounding = np.maximum(2 * slight, 5e-7 / round_gap(kinds, poses, mujoco(poses, margin)))
    assert (error < rounding).all()
    assert len(differs) < 0.01 * FEW


@pair
def test_far_from_the_origin_as_near_it(kinds: tuple[str, str]) -> None:
    """At a kilometre: differences of positions come first, so distances and frames are the same."""
    rng = np.random.default_rng(1)
    poses = random_poses(rng, kinds, FEW)
    # Multiples of a power of two, which shifted by one are exact in single precision.
    poses = single(Poses(poses.size, np.round(poses.position * 2**13) / 2**13, poses.rotation))
    there = shifted(poses, np.array([1024.0, -1024.0, 1024.0]))
    margin = np.full(FEW, 5.0)
    near, far = ours(kinds)(poses, margin), ours(kinds)(there, margin)
    for a, b in zip(near, far, strict=True):
        np.testing.assert_array_equal(a.distance, b.distance)
        np.testing.assert_array_equal(a.frame, b.frame)
        np.testing.assert_allclose(b.position - [1024.0, -1024.0, 1024.0], a.position, atol=2e-4)


def coincident(kinds: tuple[str, str], n: int) -> Poses:
    """One in the middle of the other, axes along each other or not; and a kilometre apart."""
    poses = gridded_poses(np.random.default_rng(2), kinds, n)
    position = poses.position.copy()
    position[: n // 2, 1] = position[: n // 2, 0]
    position[n // 2 :, 1] *= 1e3
    return Poses(poses.size, position, poses.rotation)


def slots(kinds: tuple[str, str]) -> Callable[[tuple[Array, ...], Array], Array]:
    """All slots' numbers (k, 13), active or not, of a pose moved, turned, scaled by a step."""
    collide, _ = COLLIDERS[kinds]

    def numbers(pose: tuple[Array, ...], step: Array) -> Array:
        size, position, rotation = pose
        first = Placed(position[0], rotation[0], size[0] * (1 + step[6]))
        turn = jnp.eye(3) + skew(step[3:6])
        second = Placed(position[1] + step[:3], rotation[1] @ turn, size[1] * (1 + step[7]))
        c = pair_contacts(collide, first, second, jnp.asarray(0.0))
        return jnp.concatenate([c.distance[:, None], c.position, c.frame.reshape(-1, 9)], axis=1)

    return numbers


@dtype_with_slow("float64")
@pytest.mark.parametrize(
    "kinds",
    with_slow(
        PAIRS,
        *(("plane", k) for k in ("sphere", "capsule", "box")),  # in test_acceleration.py, too
        *(("sphere", "capsule"), ("capsule", "box"), ("box", "box")),
    ),
    ids="-".join,
)
def test_derivatives_are_finite(kinds: tuple[str, str], dtype: np.dtype) -> None:
    poses = joined([all_poses(kinds, 900)[0], coincident(kinds, 300)])
    numbers = slots(kinds)

    @jax.jit
    @jax.vmap
    def forward_and_reverse(pose: tuple[Array, ...], along: Array) -> tuple[Array, ...]:
        of_step = partial(numbers, pose)
        value, forward = jax.jvp(of_step, (0 * along,), (along,))
        reverse = jax.vjp(of_step, 0 * along)[1](jnp.ones_like(value))[0]
        return value, forward, reverse

    # A derivative that is not finite in one direction is so in this one.
    along = np.random.default_rng(5).normal(size=(len(poses), 8))
    results = forward_and_reverse(arrays_of(poses, dtype), jnp.asarray(along, dtype))
    for x in results:
        bad = np.unique(np.argwhere(~np.isfinite(x))[:, 0])
        assert bad.size == 0, f"poses {bad}"
    _, forward, reverse = (np.asarray(x, float) for x in results)
    error = np.abs(forward.sum(axis=(1, 2)) - (reverse * along).sum(axis=1))
    error /= 1 + np.abs(forward).sum(axis=(1, 2))
    assert np.median(error) < (1e-14 if dtype == "float64" else 1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kinds", with_slow(PAIRS, *(set(PAIRS) - set(QUICK))), ids="-".join)
def test_derivatives_are_those_of_differences(kinds: tuple[str, str]) -> None:
    poses = arrays_of(random_poses(np.random.default_rng(3), kinds, 300), np.dtype(float))
    along = jnp.asarray(np.random.default_rng(4).normal(size=(300, 8)))
    numbers, h = slots(kinds), 1e-6

    @jax.jit
    @jax.vmap
    def slopes(pose: tuple[Array, ...], along: Array) -> tuple[Array, ...]:
        def of_step(step: Array) -> Array:
            return numbers(pose, step)

        value, exact = jax.jvp(of_step, (0 * along,), (along,))
        at = jax.vmap(of_step)(h * jnp.array([-2.0, -1.0, 1.0, 2.0])[:, None] * along)
        bend = (at[2] - 2 * value + at[1]) / h
        return exact, (at[2] - at[1]) / (2 * h), (at[3] - at[0]) / (4 * h), bend

    exact, near, far, bend = (np.asarray(x) for x in slopes(poses, along))
    # Differences err by a third of what they differ by, more where a feature changes in between.
    error, doubt, scale = np.abs(exact - near), np.abs(far - near), 1 + np.abs(exact)
    is_smooth = (doubt < 1e-4 * scale) & (np.abs(bend) < 1e-2 * scale)
    assert is_smooth.mean() > 0.9
    assert (error < doubt + 1e-6 * scale)[is_smooth].all()


def arrays_of(poses: Poses, dtype: np.dtype) -> tuple[Array, Array, Array]:
    return tuple(jnp.asarray(x, dtype) for x in (poses.size, poses.position, poses.rotation))


def single(poses: Poses) -> Poses:
    """Rounded to single precision."""
    arrays = (poses.size, poses.position, poses.rotation)
    return Poses(*(x.astype(np.float32).astype(float) for x in arrays))


@pair
def test_as_many_slots_as_told(kinds: tuple[str, str]) -> None:
    collide, count = COLLIDERS[kinds]
    geom = Placed(jnp.zeros(3), jnp.eye(3), jnp.ones(3))
    found: Points = jax.eval_shape(collide, geom, geom)
    assert slots_of(*kinds) == count
    assert found.distance.shape == found.exists.shape == (count,)
    assert found.position.shape == found.normal.shape == found.tangent.shape == (count, 3)


@pytest.mark.parametrize(
    "kinds", [("cylinder", "box"), ("sphere", "plane"), ("plane", "plane")], ids="-".join
)
def test_what_is_not_modelled_is_named(kinds: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"{kinds[0]} with a {kinds[1]} .* exclude the pair"):
        slots_of(*kinds)


def test_the_depth_of_a_box_that_lies_has_its_own_digits_in_float32() -> None:
    """Of the height 0.03 m, float32 holds 2e-9 m, a depth's force is 3e3 m/s^2 per metre."""
    rng = np.random.default_rng(0)
    turn = rng.uniform(-np.pi, np.pi, 300)
    tilt = rng.uniform(-1e-3, 1e-3, (300, 2))
    q = np.column_stack(
        [rng.normal(size=(300, 2)), rng.uniform(0.0298, 0.03, 300), np.cos(turn / 2), tilt,
         np.sin(turn / 2)]
    ).astype(np.float32)  # fmt: skip

    def distances(dtype: type) -> np.ndarray:
        with jax.enable_x64(dtype is float):
            scene = dynamics.load_mjcf(contact_scenes.cube())
            # Half sizes that both hold: those of 0.03 differ by more than the bar.
            scene = jax.tree.map(
                lambda x: x.astype(np.float32).astype(dtype) if x.dtype.kind == "f" else x, scene
            )
            return np.asarray(
                jax.jit(jax.vmap(lambda q: dynamics.contacts(scene, q).distance))(q.astype(dtype))
            )

    assert np.abs(distances(np.float32) - distances(float)).max() < 1e-10


@pytest.mark.usefixtures("x64")
def test_a_cylinder_s_distances_are_exact_where_mujoco_s_are_rounding() -> None:
    """Tilted by an angle t, MuJoCo's are off by 1e-16 / t of the radius, by extended precision."""
    poses, tilt, exact = leaning_cylinders(FEW)
    margin = np.full(len(poses), 5.0)
    kinds = ("plane", "cylinder")

    def errors(found: list[Found]) -> np.ndarray:
        return np.array(
            [np.abs(np.sort(f.distance) - e).max() for f, e in zip(found, exact, strict=True)],
            float,
        )

    assert errors(ours(kinds)(poses, margin)).max() < 1e-15
    theirs, radius = errors(MujocoNarrowphase(kinds)(poses, margin)), poses.size[:, 1, 0]
    assert (theirs < 1e-15 + 1e-15 * radius / tilt).all()
    assert np.median(theirs[tilt < 1e-6]) > 1e-12

    with jax.enable_x64(False):
        found = ours(kinds)(single(poses), margin)
    # Of sizes and heights up to 0.1 m, each rounded to 4e-9.
    assert errors(found)[tilt > 2e-5].max() < 3e-8


def leaning_cylinders(n: int) -> tuple[Poses, np.ndarray, np.ndarray]:
    """Cylinders that nearly stand or lie on planes, their tilts (n,), rad, and distances (n, 4), m.

    All is computed in extended precision, and all but the distances, which are sorted, rounded.
    """
    rng = np.random.default_rng(0)
    tilt = 10 ** rng.uniform(-8, -1, n).astype(np.longdouble)
    angle = np.where(rng.random(n) < 0.3, np.pi / np.longdouble(2) - tilt, tilt)
    turn, other = rng.uniform(-np.pi, np.pi, (2, n)).astype(np.longdouble)
    size = np.zeros((n, 2, 3))
    size[:, 1, :2] = rng.uniform(0.01, 0.1, (n, 2))
    plane = np.where((rng.random(n) < 0.5)[:, None, None], np.eye(3), rotations(rng, n))
    columns = plane.astype(np.longdouble).swapaxes(1, 2)
    # Orthogonal to the last digit: Gram and Schmidt.
    for i in (2, 1, 0):
        for j in range(2, i, -1):
            along = np.sum(columns[:, i] * columns[:, j], axis=1)
            columns[:, i] -= along[:, None] * columns[:, j]
        columns[:, i] /= np.sqrt(np.sum(columns[:, i] ** 2, axis=1))[:, None]
    exact = columns.swapaxes(1, 2)
    tilted = about(2, turn) @ about(0, angle) @ about(2, other)
    height = rng.uniform(0.02, 0.1, n)
    position = np.zeros((n, 2, 3))
    position[:, 1] = height[:, None] * exact[:, :, 2]
    height = np.sum(position[:, 1] * exact[:, :, 2], axis=1)
    poses = Poses(size, position, np.stack([exact, exact @ tilted], axis=1).astype(float))
    (radius, length), (sine, cosine) = size[:, 1, :2].T, (np.sin(angle), np.cos(angle))
    rim, axial = radius * sine, length * cosine
    low, beside = height - rim - axial, height + rim / 2 - axial
    distance = np.stack([low, height - rim + axial, beside, beside], axis=1)
    return poses, angle.astype(float), np.sort(distance, axis=1)


def about(axis: int, angle: np.ndarray) -> np.ndarray:
    """Rotations (n, 3, 3) about a coordinate axis, as precise as the angles (n,)."""
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrices = np.zeros((len(angle), 3, 3), angle.dtype)
    matrices[:, axis, axis] = 1
    matrices[:, i, i] = matrices[:, j, j] = np.cos(angle)
    matrices[:, j, i] = np.sin(angle)
    matrices[:, i, j] = -matrices[:, j, i]
    return matrices
