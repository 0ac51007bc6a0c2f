"""The configuration manifold: inverses, derivatives, and what random configurations are."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.manifold import coordinate_rates, displacement_rate

pytestmark = pytest.mark.usefixtures("x64")


@jax.jit
def configurations(robot: Robot) -> Array:
    keys = jax.random.split(jax.random.key(0), 2000)
    return jax.vmap(partial(dynamics.random_configuration, robot))(keys)


def velocities(robot: Robot, count: int, size: float) -> np.ndarray:
    """Of all sizes up to `size`, which stays short of a half turn."""
    rng = np.random.default_rng(1)
    v = rng.normal(size=(count, robot.nv))
    return size * v / np.linalg.norm(v, axis=1, keepdims=True) * rng.uniform(size=(count, 1))


def test_neutral(joints: Robot) -> None:
    q = np.asarray(dynamics.neutral(joints))
    assert joints.nq == 3 + 4 + 1 + 7
    assert joints.nv == 3 + 3 + 1 + 6
    assert q.tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    np.testing.assert_array_equal(joints.q_default, q)


def test_difference_undoes_integrate(joints: Robot) -> None:
    q = configurations(joints)[:100]

    @jax.jit
    @jax.vmap
    def there_and_back(q: Array, v: Array) -> Array:
        return dynamics.difference(joints, q, dynamics.integrate(joints, q, v, 1.0))

    for size in (3.1, 1e-3, 1e-9):
        v = velocities(joints, 100, size)
        np.testing.assert_allclose(there_and_back(q, v), v, rtol=0, atol=1e-14 + 1e-13 * size)


def test_integrate_undoes_difference(joints: Robot) -> None:
    q0, q1 = configurations(joints)[:200].reshape(2, 100, -1)

    @jax.jit
    @jax.vmap
    def back_and_there(q0: Array, q1: Array) -> Array:
        there = dynamics.integrate(joints, q0, dynamics.difference(joints, q0, q1), 1.0)
        return dynamics.difference(joints, there, q1)

    np.testing.assert_allclose(back_and_there(q0, q1), 0, atol=1e-13)


def test_derivatives_are_the_automatic_ones(joints: Robot) -> None:
    q = configurations(joints)[:30]
    v = np.concatenate([velocities(joints, 10, size) for size in (3.0, 1e-4, 0.0)])
    zero = jnp.zeros(joints.nv)

    @jax.jit
    @jax.vmap
    def both(q: Array, v: Array) -> tuple[Array, Array]:
        q1 = dynamics.integrate(joints, q, v, 0.7)

        def integrated(d: Array, e: Array) -> Array:
            moved = dynamics.integrate(joints, q, d, 1.0)
            return dynamics.difference(joints, q1, dynamics.integrate(joints, moved, v + e, 0.7))

        def different(d: Array, e: Array) -> Array:
            ends = (dynamics.integrate(joints, x, y, 1.0) for x, y in ((q, d), (q1, e)))
            return dynamics.difference(joints, *ends)

        ours = (
            *dynamics.integrate_derivatives(joints, q, v, 0.7),
            *dynamics.difference_derivatives(joints, q, q1),
        )
        automatic = (
            *jax.jacfwd(integrated, (0, 1))(zero, zero),
            *jax.jacrev(different, (0, 1))(zero, zero),
        )
        return jnp.stack(ours), jnp.stack(automatic)

    ours, automatic = both(q, v)
    np.testing.assert_allclose(ours, automatic, atol=1e-10)


def test_displacements_change_at_their_rate(joints: Robot) -> None:
    """Which moves the configuration on as the velocity does."""
    q, v = configurations(joints)[:30], velocities(joints, 30, 5.0)
    d = np.concatenate([velocities(joints, 10, size) for size in (3.0, 1e-4, 0.0)])
    zero = jnp.zeros(())

    @jax.jit
    @jax.vmap
    def both(q: Array, d: Array, v: Array) -> tuple[Array, Array]:
        rate = displacement_rate(joints, d, v)
        there = dynamics.integrate(joints, q, d, 1.0)

        def displaced(t: Array) -> Array:
            moved = dynamics.integrate(joints, q, d + t * rate, 1.0)
            return dynamics.difference(joints, there, moved)

        return jax.jvp(displaced, (zero,), (jnp.ones(()),))[1], v

    moved, wanted = both(q, d, v)
    np.testing.assert_allclose(moved, wanted, atol=1e-10)


def test_coordinates_change_at_their_rates() -> None:
    """Those of an arm on a floating base: behind the quaternion, velocities are rates."""
    robot = dynamics.load_robot("panda", floating_base=True)
    start, v = velocities(robot, 2, 3.0)

    @jax.jit
    def both(start: Array, v: Array) -> tuple[Array, Array, Array, Array]:
        q = dynamics.integrate(robot, dynamics.neutral(robot), start, 1.0)
        moved, rates = jax.jvp(lambda t: dynamics.integrate(robot, q, v, t), (0.1,), (1.0,))
        return q, moved, rates, coordinate_rates(robot, moved) @ v

    q, moved, rates, ours = both(start, v)
    np.testing.assert_allclose(moved[7:] - q[7:], 0.1 * v[6:], atol=1e-14)
    np.testing.assert_allclose(ours, rates, atol=1e-14)


def test_random_configurations_cover_the_range(joints: Robot) -> None:
    q = np.asarray(configurations(joints))
    for _, start, _ in joints.topology.quaternions:
        np.testing.assert_allclose(np.linalg.norm(q[:, start : start + 4], axis=1), 1.0)
        # Uniform rotations have no preferred axis: second moments are a quarter each.
        moments = np.mean(q[:, start : start + 4] ** 2, axis=0)
        np.testing.assert_allclose(moments, 0.25, atol=0.02)
    elbow = q[:, 7]
    assert elbow.min() < -1.45
    assert elbow.max() > 1.45
    assert np.abs(elbow).max() <= 1.5


def test_one_sided_limits_keep_their_side(panda: Robot) -> None:
    limits = np.array([[5.0, np.inf], [-np.inf, -5.0]] + [[-np.inf, np.inf]] * 5)
    q = np.asarray(configurations(panda.replace(position_limits=limits)))
    assert q[:, 0].min() >= 5.0
    assert q[:, 1].max() <= -5.0
    assert np.abs(q[:, 2:]).max() <= np.pi


def test_quaternions_stay_unit_over_many_steps(joints: Robot) -> None:
    q, v = dynamics.neutral(joints), jnp.linspace(-3.0, 3.0, joints.nv)
    q, _ = jax.lax.scan(
        lambda q, _: (dynamics.integrate(joints, q, v, 0.01), None), q, None, length=10_000
    )
    for _, start, _ in joints.topology.quaternions:
        assert abs(float(jnp.linalg.norm(q[start : start + 4])) - 1) < 1e-15


@pytest.mark.parametrize("normal", [(0, 0, 1), (0, 0, -1), (1, 0, 0), (0.3, -0.5, -0.8)])
def test_planar_axes_are_a_right_handed_frame(normal: tuple[float, float, float]) -> None:
    axis = np.array(normal, float) / np.linalg.norm(normal)
    axes = dynamics.Joint("plane", "planar", axis).axes
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(axes[2], axis, atol=1e-14)
    assert np.linalg.det(axes) == pytest.approx(1.0)
    if normal == (0, 0, 1):
        np.testing.assert_array_equal(axes, np.eye(3))
