"""Derivatives of a step are finite where something is zero: a distance, a direction, a speed.

Two geoms at one place, just touching, side by side, edge on edge, upright, at rest: for every pair
of kinds of geoms.
"""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics import ContactGeom, Scene
from fraxenv.dynamics.contact.narrowphase import COLLIDERS
from fraxenv.dynamics.math.rotation import matrix_to_quaternion, rotation_exp

SIZES = {"sphere": 0.1, "capsule": (0.1, 0.2), "cylinder": (0.1, 0.2), "box": (0.1, 0.1, 0.1)}
DISTANCES = (0.1, 0.2, 0.3, 0.4)
"""m, at which geoms of these sizes touch, or an axis meets an end, in one pose or another."""
TURNS = ((0, 0, 0), (0, 0, 0.25), (0, 0.5, 0), (0.5, 0, 0), (0.25, 0, 0), (0.25, 0.25, 0))
"""Half turns about the axes."""


def geom(kind: str, name: str) -> ContactGeom:
    if kind == "plane":
        return dynamics.plane_geom(name, condim=6)
    size = np.atleast_1d(SIZES[kind])
    make = getattr(dynamics, f"{kind}_geom")
    return make(name, tuple(size), condim=6) if kind == "box" else make(name, *size, condim=6)


def scene(kinds: tuple[str, str]) -> Scene:
    moving = dynamics.free_body("moving", geom(kinds[1], "second"), mass=1.0)
    return dynamics.build_scene(objects=(moving,), static=(geom(kinds[0], "first"),))


def states() -> tuple[np.ndarray, np.ndarray]:
    """Poses (n, 7), and velocities (n, 6): at rest and not."""
    places = [np.zeros(3), *(d * e for d, e in product(DISTANCES, np.eye(3)))]
    turns = [rotation_exp(np.pi * np.array(t, float)) for t in TURNS]
    pairs = product(places, turns)
    q = np.array([np.concatenate([p, matrix_to_quaternion(R)]) for p, R in pairs])
    moving = np.tile([0.1, 0.2, -0.3, 0.4, 0.5, 0.6], (len(q), 1))
    return np.concatenate([q, q]), np.concatenate([0 * moving, moving])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kinds", COLLIDERS, ids="-".join)
@pytest.mark.slow
def test_derivatives_of_a_step_are_finite(kinds: tuple[str, str]) -> None:
    """Forward, reverse and in closed form; and forward equals reverse."""
    q, v = states()
    own = scene(kinds)

    def step(q: Array, v: Array, tau: Array) -> tuple[Array, Array]:
        return dynamics.scene_step(own, q, v, tau)[:2]

    @jax.jit
    @jax.vmap
    def derivatives(q: Array, v: Array) -> tuple[object, ...]:
        tau = jnp.zeros(6)
        return (
            step(q, v, tau),
            jax.jacfwd(step, (0, 1, 2))(q, v, tau),
            jax.jacrev(step, (0, 1, 2))(q, v, tau),
            dynamics.contact_transition_derivatives(own, q, v, tau),
        )

    found = derivatives(q, v)
    for x in jax.tree.leaves(found):
        bad = np.unique(np.argwhere(~np.isfinite(x))[:, 0])
        assert bad.size == 0, f"states {bad}: {q[bad]}"
    _, forward, reverse, _ = found
    for x, y in zip(jax.tree.leaves(forward), jax.tree.leaves(reverse), strict=True):
        scale = 1 + np.abs(x).max(axis=(1, 2))
        assert (np.abs(x - y).max(axis=(1, 2)) < 1e-9 * scale).all()
    active = jax.vmap(lambda q: dynamics.contacts(own, q).active.any())(q)
    assert 0.3 < np.mean(active) < 1
