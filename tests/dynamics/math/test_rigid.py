"""The logarithm of a pose, and its derivative, against Pinocchio's."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.dynamics.math.rigid import pose_log, pose_log_derivative

pin = pytest.importorskip("pinocchio")


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-5, 0.3, 2.0, 3.1])
def test_equals_pinocchios(angle: float, x64: None) -> None:
    axis = np.array([0.6, -0.48, 0.64])
    pose = pin.exp6(pin.Motion(np.array([0.3, -1.2, 0.7]), angle * axis))
    at = jnp.asarray(pose.translation), jnp.asarray(pose.rotation)
    np.testing.assert_allclose(pose_log(*at), pin.log6(pose).vector, atol=1e-12)
    np.testing.assert_allclose(pose_log_derivative(*at), pin.Jlog6(pose), atol=1e-9)
