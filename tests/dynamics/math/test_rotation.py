"""Rotations against SciPy and against each other, at every angle from zero to pi.

Tolerances are absolute: quaternions, rotation matrices and rotation vectors are all of order one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import Array
from scipy.spatial.transform import Rotation

from fraxenv import dynamics
from fraxenv.dynamics.math import algebra, rotation

TOLERANCE = {"float32": 2e-6, "float64": 1e-14}
# Zero, below and above what rounding can see, both sides of where series take over (about 6e-3 in
# float32 and 4e-5 in float64), quarter turns, and both sides of pi.
ANGLES = [0.0, 1e-300, 1e-20, 1e-9, 1e-6, 3.8e-5, 4e-5, 1e-3, 5.8e-3, 5.9e-3, 0.1, 1.0, np.pi / 2]
ANGLES += [2.0, 3.0, np.pi - 1e-2, np.pi - 1e-4, np.pi - 1e-8, np.nextafter(np.pi, 0), np.pi]
AXES = [[1, 0, 0], [0, -1, 0], [0, 0, 1], [0.6, 0, 0.8], [1, 1, 1], [-1, 2, -3], [1e-9, 1, 0]]

Vector = np.ndarray


def unit(axis: list[float]) -> Vector:
    return np.array(axis, float) / np.linalg.norm(axis)


axes = st.sampled_from(AXES).map(unit) | st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(
    lambda a: np.linalg.norm(a) > 1e-3
).map(unit)
angles = st.sampled_from(ANGLES) | st.floats(0, np.pi)
rotation_vectors = st.builds(lambda angle, axis: angle * axis, angles, axes)
GRID = np.array([angle * unit(axis) for angle in ANGLES for axis in AXES])


# Compiled once, for properties that call them many times.
EXP = jax.jit(dynamics.quaternion_exp)
LOG = jax.jit(dynamics.quaternion_log)
MATRIX = jax.jit(dynamics.quaternion_to_matrix)
QUATERNION = jax.jit(dynamics.matrix_to_quaternion)
ROTATION_LOG = jax.jit(dynamics.rotation_log)
MULTIPLY = jax.jit(dynamics.quaternion_multiply)
ERROR = jax.jit(dynamics.orientation_error)
EXP_JACOBIAN = jax.jit(jax.jacfwd(dynamics.rotation_exp))


def every(f: Callable[..., Array], *arguments: np.ndarray) -> np.ndarray:
    """Values of a function of one rotation for stacked arguments."""
    # Formulas are what is tested here, and compiling is what takes time.
    fast = {"xla_backend_optimization_level": 0}
    return np.asarray(jax.jit(jax.vmap(f), compiler_options=fast)(*arguments))


def wxyz(r: Rotation) -> np.ndarray:
    return np.roll(r.as_quat(), 1, axis=-1)


def same_rotation_vector(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    """Compare up to sign where the angle is pi: both are right there."""
    flipped = np.abs(np.linalg.norm(theirs, axis=-1) - np.pi) < 1e-3
    other = theirs * (1 - 2 * np.pi / np.maximum(np.linalg.norm(theirs, axis=-1), 1))[..., None]
    error = np.abs(ours - theirs).max(axis=-1)
    error = np.where(flipped, np.minimum(error, np.abs(ours - other).max(axis=-1)), error)
    assert error.max() <= tolerance


# --- Values ---------------------------------------------------------------------------------------


def test_exp_agrees_with_scipy(dtype: np.dtype) -> None:
    w = GRID.astype(dtype)
    theirs = Rotation.from_rotvec(w.astype(float))
    tolerance = TOLERANCE[dtype.name]
    matrices = every(dynamics.rotation_exp, w)
    np.testing.assert_allclose(matrices, theirs.as_matrix(), rtol=0, atol=tolerance)
    ours, reference = every(dynamics.quaternion_exp, w), wxyz(theirs)
    # Either sign is the same rotation; ours has a non-negative real part up to pi.
    sign = np.where(np.sum(ours * reference, axis=1, keepdims=True) < 0, -1, 1)
    np.testing.assert_allclose(ours, sign * reference, rtol=0, atol=tolerance)


def test_log_agrees_with_scipy(dtype: np.dtype) -> None:
    r = Rotation.from_rotvec(GRID)
    for f, argument in (
        (dynamics.rotation_log, r.as_matrix()),
        (dynamics.quaternion_log, wxyz(r)),
        (dynamics.quaternion_log, -wxyz(r)),
    ):
        ours = every(f, argument.astype(dtype))
        assert ours.dtype == dtype
        assert np.linalg.norm(ours, axis=1).max() <= np.pi * (1 + np.finfo(dtype).eps)
        same_rotation_vector(ours, GRID, 4 * TOLERANCE[dtype.name])


def test_log_keeps_the_relative_precision_of_small_rotations(x64: None) -> None:
    """Small angles have a logarithm that is small to the last digit, not just small."""
    small = GRID[(np.linalg.norm(GRID, axis=1) < 1e-2) & (np.linalg.norm(GRID, axis=1) > 1e-100)]
    a = every(dynamics.quaternion_exp, small)
    again = every(dynamics.quaternion_log, a)
    error = np.linalg.norm(again - small, axis=1) / np.linalg.norm(small, axis=1)
    assert error.max() <= 1e-15


@given(w=rotation_vectors)
def test_exp_and_log_are_inverse(x64: None, w: Vector) -> None:
    a = np.asarray(EXP(w))
    matrix = np.asarray(MATRIX(a))
    assert np.abs(np.linalg.norm(a) - 1) <= 1e-15
    assert np.abs(matrix @ matrix.T - np.eye(3)).max() <= 1e-14
    assert np.linalg.det(matrix) == pytest.approx(1.0, abs=1e-14)
    same_rotation_vector(np.asarray(LOG(a)), w, 1e-14)
    same_rotation_vector(np.asarray(ROTATION_LOG(matrix)), w, 1e-14)
    back = np.asarray(QUATERNION(matrix))
    assert back[0] >= 0
    assert min(np.abs(back - a).max(), np.abs(back + a).max()) <= 1e-14


@given(w=rotation_vectors, u=rotation_vectors)
@example(w=np.array([np.pi, 0, 0]), u=np.array([0, np.pi, 0]))
def test_product_of_quaternions_is_product_of_matrices(x64: None, w: Vector, u: Vector) -> None:
    a, b = EXP(w), EXP(u)
    product = MULTIPLY(a, b)
    expected = np.asarray(MATRIX(a)) @ np.asarray(MATRIX(b))
    np.testing.assert_allclose(MATRIX(product), expected, rtol=0, atol=1e-14)
    inverse = MULTIPLY(dynamics.quaternion_conjugate(product), product)
    np.testing.assert_allclose(inverse, [1, 0, 0, 0], rtol=0, atol=1e-14)


@given(w=rotation_vectors, u=rotation_vectors)
@example(w=np.array([np.pi, 0, 0]), u=np.zeros(3))
def test_orientation_error_agrees_with_scipy(x64: None, w: Vector, u: Vector) -> None:
    desired, actual = Rotation.from_rotvec(w), Rotation.from_rotvec(u)
    ours = np.array(ERROR(desired.as_matrix(), actual.as_matrix()))
    same_rotation_vector(ours, (desired * actual.inv()).as_rotvec(), 1e-13)
    turned = Rotation.from_rotvec(ours) * actual
    np.testing.assert_allclose(turned.as_matrix(), desired.as_matrix(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("axis", AXES)
def test_orientation_error_does_not_vanish_at_pi(axis: list[float], dtype: np.dtype) -> None:
    half_turn = Rotation.from_rotvec(np.pi * unit(axis)).as_matrix().astype(dtype)
    error = np.asarray(ERROR(half_turn, np.eye(3, dtype=dtype)))
    assert np.linalg.norm(error) == pytest.approx(np.pi, abs=1e-6)
    np.testing.assert_allclose(np.abs(error), np.pi * np.abs(unit(axis)), rtol=0, atol=2e-6)


def test_matrix_to_quaternion_in_float32_at_every_angle(dtype: np.dtype) -> None:
    """The four pivots keep full precision: near pi the naive formula loses half the digits."""
    r = Rotation.from_rotvec(GRID)
    ours = every(dynamics.matrix_to_quaternion, r.as_matrix().astype(dtype))
    sign = np.where(np.sum(ours * wxyz(r), axis=1, keepdims=True) < 0, -1, 1)
    np.testing.assert_allclose(ours, sign * wxyz(r), rtol=0, atol=TOLERANCE[dtype.name] / 4)
    assert (ours[:, 0] >= 0).all()


@given(scale=st.floats(1e-15, 1e15), w=rotation_vectors)
def test_normalize(x64: None, scale: float, w: Vector) -> None:
    a = np.asarray(EXP(w))
    ours = np.asarray(dynamics.quaternion_normalize(jnp.asarray(scale * a)))
    np.testing.assert_allclose(ours, a, rtol=0, atol=1e-15)


def test_normalize_zero_is_identity(dtype: np.dtype) -> None:
    zero = jnp.zeros(4, dtype)
    np.testing.assert_array_equal(dynamics.quaternion_normalize(zero), [1, 0, 0, 0])
    assert np.isfinite(jax.jit(jax.jacfwd(dynamics.quaternion_normalize))(zero)).all()


# --- Derivatives ----------------------------------------------------------------------------------


def test_gradients_are_finite_at_every_angle(dtype: np.dtype) -> None:
    """Forward and reverse mode; zero, half turns and a quaternion of -1 included."""
    r = Rotation.from_rotvec(GRID)
    w, matrices, a = GRID.astype(dtype), r.as_matrix().astype(dtype), wxyz(r).astype(dtype)
    a = np.concatenate([a, -a, np.array([[1, 0, 0, 0], [-1, 0, 0, 0]], dtype)])
    functions = (
        (dynamics.rotation_exp, w),
        (dynamics.quaternion_log, a),
        (dynamics.rotation_log, matrices),
        (lambda m: dynamics.orientation_error(m, m), matrices),
        (algebra.norm, w),
    )

    def both_ways() -> list[tuple[Array, Array]]:  # in one program, to compile
        return [
            (jax.vmap(jax.jacfwd(f))(x), jax.vmap(jax.grad(lambda x, f=f: jnp.sum(f(x))))(x))
            for f, x in functions
        ]

    for (_, argument), found in zip(functions, jax.jit(both_ways)(), strict=True):
        forward, reverse = map(np.asarray, found)
        assert np.isfinite(forward).all()
        expected = forward.sum(axis=tuple(range(1, forward.ndim - argument.ndim + 1)))
        np.testing.assert_allclose(reverse, expected, rtol=1e-4, atol=1e-6)


def test_log_undoes_exp_to_first_order(dtype: np.dtype) -> None:
    """The Jacobian of log(exp(w)) is the identity, as far as pi."""
    w = GRID[np.linalg.norm(GRID, axis=1) < 3.1].astype(dtype)
    tolerance = {"float32": 1e-4, "float64": 1e-12}[dtype.name]
    for log, exp in (
        (dynamics.quaternion_log, dynamics.quaternion_exp),
        (dynamics.rotation_log, dynamics.rotation_exp),
    ):
        jacobian = every(jax.jacfwd(lambda w, log=log, exp=exp: log(exp(w))), w)
        np.testing.assert_allclose(jacobian - np.eye(3), 0, rtol=0, atol=tolerance)


@settings(max_examples=20)
@given(w=rotation_vectors.filter(lambda w: np.linalg.norm(w) < 3.0))
def test_derivative_of_exp_agrees_with_differences(x64: None, w: Vector) -> None:
    jacobian = np.asarray(EXP_JACOBIAN(w))
    step = 1e-5
    for i, e in enumerate(step * np.eye(3)):
        plus, minus = (Rotation.from_rotvec(x).as_matrix() for x in (w + e, w - e))
        np.testing.assert_allclose(jacobian[..., i], (plus - minus) / (2 * step), atol=1e-9)


# --- Algebra --------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [1e-7, 3.5e-5, 4.5e-5, 1e-3, 0.1, 1.0, 3.0, 6.0])
def test_right_jacobian_and_its_inverse(x64: None, angle: float) -> None:
    """By their series, either side of where ours takes two terms of it."""
    axes = np.random.default_rng(2).normal(size=(20, 3))
    w = angle * axes / np.linalg.norm(axes, axis=1, keepdims=True)
    W = np.cross(np.eye(3)[None], w[:, None, :])
    x = np.longdouble(angle)
    terms = [(-1) ** k * x ** (2 * k) for k in range(20)]
    first = float(sum(t / math.factorial(2 * k + 2) for k, t in enumerate(terms)))
    second = float(sum(t / math.factorial(2 * k + 3) for k, t in enumerate(terms)))
    ours = every(rotation.right_jacobian, w)
    np.testing.assert_allclose(ours, np.eye(3) - first * W + second * W @ W, atol=1e-14)
    np.testing.assert_allclose(0.5 * (ours - ours.mT), -first * W, rtol=1e-12, atol=1e-22)
    inverse = every(rotation.right_jacobian_inverse, w)
    np.testing.assert_allclose(inverse @ ours, np.broadcast_to(np.eye(3), ours.shape), atol=1e-11)


def test_skew_and_cross(dtype: np.dtype) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 3)).astype(dtype)
    expected = np.cross(a, b)
    tolerance = TOLERANCE[dtype.name]
    np.testing.assert_allclose(algebra.cross(jnp.asarray(a), b), expected, atol=tolerance)
    products = every(lambda a, b: rotation.skew(a) @ b, a, b)
    np.testing.assert_allclose(products, expected, atol=tolerance)


def test_norm(dtype: np.dtype) -> None:
    assert algebra.norm(jnp.asarray([3, 0, -4], dtype)) == 5
    zero = jnp.zeros(3, dtype)
    assert algebra.norm(zero) == 0
    np.testing.assert_array_equal(jax.jit(jax.grad(algebra.norm))(zero), zero)
