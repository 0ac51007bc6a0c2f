"""Contacts of a whole scene, and their parameters, against MuJoCo C and against single pairs."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collision import random_sizes, rotations
from support import with_slow

import fraxenv
from fraxenv.dynamics import Robot
from fraxenv.dynamics.contact.colliders.points import Placed
from fraxenv.dynamics.contact.model import (
    WORLD,
    Constraints,
    EqualityParameters,
    Geom,
    GeomKind,
    Geoms,
    InverseWeights,
    JointParameters,
    Layout,
    Link,
    Pair,
    PairParameters,
)
from fraxenv.dynamics.contact.narrowphase import (
    COLLIDERS,
    contact_frame,
    find_contacts,
    mixed_parameters,
    pair_contacts,
    slots_of,
)
from fraxenv.dynamics.kinematics import compute_kinematics, forward_kinematics

PARAMETERS = {"friction": 5, "solref": 2, "solref_friction": 2, "solimp": 5}


def constraints_of(geoms: list[Geom], pairs: list[Pair], numbers: Geoms) -> Constraints:
    """Constraints that are nothing but geoms and pairs."""
    none = np.zeros(0)
    return Constraints(
        layout=Layout(tuple(geoms), (Link("world", WORLD),), tuple(pairs)),
        geoms=numbers,
        pairs=PairParameters(*(np.zeros((0, n)) for n in PARAMETERS.values()), none, none),
        joints=JointParameters(none, none, none, none, none),
        equalities=EqualityParameters(none, none, none, none, none, none, none, none),
        link_com=np.zeros((1, 3)),
        reference=none,
        weights=InverseWeights(np.zeros(1), np.zeros(1), none),
    )


def random_geoms(rng: np.random.Generator, kinds: list[GeomKind]) -> Geoms:
    n = len(kinds)
    direct = rng.random(n) < 0.3
    time = np.stack([rng.uniform(0.005, 0.1, n), rng.uniform(0.5, 2, n)], axis=1)
    stiffness = -np.stack([rng.uniform(100, 5000, n), rng.uniform(10, 200, n)], axis=1)
    solimp = rng.uniform([0.5, 0.9, 0.001, 0.2, 1.0], [0.9, 0.99, 0.01, 0.8, 3.0], (n, 5))
    return Geoms(
        size=np.concatenate([random_sizes(rng, kind, 1) for kind in kinds]),
        position=rng.normal(scale=0.1, size=(n, 3)),
        rotation=rotations(rng, n),
        friction=rng.uniform(0, 1, (n, 3)) * rng.choice([0.0, 1.0], (n, 1), p=[0.1, 0.9]),
        solref=np.where(direct[:, None], stiffness, time),
        solimp=solimp,
        solmix=rng.choice([0.0, 1e-16, 1.0, 0.3, 7.0], n),
        margin=rng.uniform(0, 0.5, n),
        gap=rng.uniform(0, 0.02, n),
    )


SLOW_TO_COMPILE = (("capsule", "box"), ("box", "box"))


@pytest.fixture(params=with_slow(["some", "all"], "all"))
def scene(request: pytest.FixtureRequest) -> Constraints:
    """Two geoms of every kind, on links and in the world, and every pair that is modelled."""
    rng = np.random.default_rng(0)
    kinds = [k for k in ("plane", "sphere", "capsule", "cylinder", "box") for _ in range(2)]
    geoms = [
        Geom(str(k), kind, WORLD if kind == "plane" else int(rng.integers(-1, 7)), 0)
        for k, kind in enumerate(kinds)
    ]
    pairs = [
        Pair((i, j), 3, slots_of(*alike))
        for alike in COLLIDERS
        if request.param == "all" or alike not in SLOW_TO_COMPILE
        for i in range(len(kinds))
        for j in range(i + 1, len(kinds))
        if (kinds[i], kinds[j]) == alike
    ]
    return constraints_of(geoms, pairs, random_geoms(rng, kinds))


@pytest.mark.usefixtures("x64")
def test_every_pair_is_in_its_slots(panda: Robot, scene: Constraints) -> None:
    q = panda.q_default + 0.3
    kin = jax.jit(forward_kinematics)(panda, q)
    found = jax.jit(find_contacts)(panda, scene, kin)
    assert found.distance.shape == (scene.layout.slots,)

    def at(g: int) -> Placed:
        geom = scene.layout.geoms[g]
        position, rotation = scene.geoms.position[g], scene.geoms.rotation[g]
        if geom.body != WORLD:
            body = np.asarray(kin.rotation[geom.body])
            position = np.asarray(kin.position[geom.body]) + body @ position
            rotation = body @ rotation
        return Placed(*(jnp.asarray(x) for x in (position, rotation, scene.geoms.size[g])))

    for k, pair in enumerate(scene.layout.pairs):
        i, j = pair.geoms
        kinds = scene.layout.geoms[i].kind, scene.layout.geoms[j].kind
        margin = scene.geoms.margin[i] + scene.geoms.margin[j]
        expected = jax.jit(pair_contacts, static_argnums=0)(
            COLLIDERS[kinds][0], at(i), at(j), margin
        )
        slots = scene.layout.slot_pair == k
        for name in ("distance", "position", "frame", "active"):
            ours, single = (np.asarray(getattr(x, name)) for x in (found, expected))
            np.testing.assert_allclose(ours[slots], single, atol=1e-13, err_msg=f"{kinds} {name}")


def test_fused_as_vmapped(panda: Robot, scene: Constraints) -> None:
    def contacts(q: jax.Array) -> tuple[jax.Array, ...]:
        found = find_contacts(panda, scene, compute_kinematics(panda, q))
        return found.distance, found.position, found.frame, found.active

    rng = np.random.default_rng(0)
    q = np.asarray(panda.q_default + rng.normal(scale=0.3, size=(64, 7)), np.float32)
    fused, plain = fraxenv.fuse(contacts)(q), jax.jit(jax.vmap(contacts))(q)
    # Of a few, rounding chooses another feature.
    for a, b in zip(fused, plain, strict=True):
        apart = np.abs(np.asarray(a, float) - np.asarray(b, float))
        assert np.mean(apart > 3e-6) < 2e-3


@pytest.mark.usefixtures("x64")
def test_no_pairs(panda: Robot, scene: Constraints) -> None:
    none = replace(scene, layout=replace(scene.layout, pairs=()))
    found = jax.eval_shape(
        lambda q: find_contacts(panda, none, forward_kinematics(panda, q)), panda.q_default
    )
    shapes = found.distance.shape, found.position.shape, found.frame.shape, found.active.shape
    assert shapes == ((0,), (0, 3), (0, 3, 3), (0,))


@pytest.mark.usefixtures("x64")
def test_parameters_are_mixed_as_in_mujoco() -> None:
    mujoco = pytest.importorskip("mujoco")
    n = 200
    rng = np.random.default_rng(1)
    body = '<body><freejoint/><geom type="sphere" size=".1"/></body>'
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{body}{body}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    numbers = random_geoms(rng, ["sphere"] * (2 * n))
    priority = rng.integers(0, 2, 2 * n)
    geoms = [Geom(str(k), "sphere", 0, 0, priority=int(priority[k])) for k in range(2 * n)]
    pairs = [Pair((2 * k, 2 * k + 1), 3, 1) for k in range(n)]
    mixed = mixed_parameters(constraints_of(geoms, pairs, numbers), np.dtype(float))
    for k in range(n):
        two = slice(2 * k, 2 * k + 2)
        for name in ("friction", "solref", "solimp", "solmix", "margin", "gap"):
            getattr(model, f"geom_{name}")[:] = getattr(numbers, name)[two]
        model.geom_priority[:] = priority[two]
        mujoco.mj_forward(model, data)
        contact = data.contact
        for name, theirs in {
            "friction": contact.friction,
            "solref": contact.solref,
            "solref_friction": contact.solreffriction,
            "solimp": contact.solimp,
            "margin": contact.includemargin,
        }.items():
            ours = np.asarray(getattr(mixed, name))[k]
            np.testing.assert_allclose(ours, theirs[0], rtol=1e-15, atol=1e-17, err_msg=name)
        np.testing.assert_allclose(mixed.gap[k], numbers.gap[two].sum())


@pytest.mark.usefixtures("x64")
def test_a_pairs_own_parameters_are_taken() -> None:
    rng = np.random.default_rng(2)
    geoms = [Geom(str(k), "sphere", 0, 0) for k in range(3)]
    pairs = [Pair((0, 1), 3, 1), Pair((1, 2), 3, 1, parameters=1), Pair((0, 2), 3, 1, parameters=0)]
    constraints = constraints_of(geoms, pairs, random_geoms(rng, ["sphere"] * 3))
    all_mixed = replace(constraints.layout, pairs=tuple(replace(p, parameters=-1) for p in pairs))
    parameters = jax.jit(mixed_parameters, static_argnums=1)
    mixed = parameters(replace(constraints, layout=all_mixed), np.dtype(float))
    own = {name: rng.uniform(0.1, 1, (2, n)) for name, n in PARAMETERS.items()}
    own["friction"][1, 0] = 0.0
    given = PairParameters(**own, margin=rng.uniform(0, 1, 2), gap=rng.uniform(0, 1, 2))
    found = parameters(replace(constraints, pairs=given), np.dtype(float))
    for name in (*PARAMETERS, "margin", "gap"):
        expected = np.asarray(getattr(given, name))[[1, 0]]
        if name == "friction":
            expected = np.maximum(expected, 1e-5)
        np.testing.assert_array_equal(getattr(found, name)[0], getattr(mixed, name)[0])
        np.testing.assert_array_equal(getattr(found, name)[1:], expected)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("normal", [(0, 0, 1), (1, 0, 0), (0, -1, 0), (0.6, 0.0, -0.8)])
def test_an_upright_frame_has_right_angles(normal: tuple[float, ...]) -> None:
    n = jnp.asarray(normal, float)
    for tangent in (n, -n, jnp.zeros(3)):
        frame = np.asarray(jax.jit(contact_frame)(n, tangent))
        np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-15)
        np.testing.assert_allclose(frame[0], n)
        assert np.linalg.det(frame) > 0
        slope = jax.jit(jax.jacfwd(contact_frame, argnums=(0, 1)))(n, tangent)
        assert all(np.isfinite(x).all() for x in slope)
