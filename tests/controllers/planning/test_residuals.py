"""Residuals: their own derivatives are the automatic ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy.spatial.transform import Rotation

from fraxenv import dynamics, plan
from fraxenv.controllers import barriers
from fraxenv.controllers.planning import residuals
from fraxenv.dynamics import Robot, Sphere, compute_terms
from fraxenv.errors import ArrayError, ConfigError

TURN = Rotation.from_rotvec([0.4, -0.2, 0.9]).as_matrix()
HAND = "tip"
configuration = jax.jit(dynamics.random_configuration)


def arm_urdf() -> str:
    """A revolute, a continuous and a prismatic joint, one after the other."""
    inertia = '<inertia ixx=".02" iyy=".03" izz=".025" ixy=".001" ixz="0" iyz=".002"/>'
    body = f'<inertial><origin xyz=".1 .02 .05"/><mass value="1.5"/>{inertia}</inertial>'
    links = "".join(f'<link name="{name}">{body}</link>' for name in ("base", "a", "b", HAND))
    joints = "".join(
        f'<joint name="to_{child}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz=".2 .1 .05" rpy=".3 -.2 .5"/><axis xyz="{axis}"/>'
        '<limit lower="-1.5" upper="1.5" effort="50" velocity="3"/></joint>'
        for parent, child, kind, axis in (
            ("base", "a", "revolute", "0 .6 .8"), ("a", "b", "continuous", "1 0 0"),
            ("b", HAND, "prismatic", "0 .8 -.6"),
        )
    )  # fmt: skip
    return f'<robot name="arm">{links}{joints}</robot>'


def all_of(robot: Robot) -> dict[str, plan.Residual]:
    place, some = np.array([0.3, -0.1, 0.6]), np.linspace(-0.3, 0.4, robot.nv)
    q = configuration(robot, jax.random.key(5))
    return {
        "pose": plan.pose(HAND, place, TURN), "position": plan.position(HAND, place),
        "orientation": plan.orientation(HAND, TURN), "posture": plan.posture(q),
        "velocity": plan.velocity(some), "twist": plan.frame_twist(HAND, np.arange(6.0)),
        "torque": plan.torque(some), "beyond": plan.torque(some, beyond_gravity=True),
        "com": plan.com(place), "momentum": plan.momentum(np.arange(6.0)),
        "below": plan.below(barriers.joint_velocity()),
    }  # fmt: skip


@pytest.fixture(scope="module", params=["fixed", pytest.param("floating", marks=pytest.mark.slow)])
def robot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Robot:
    path: Path = tmp_path_factory.mktemp("arm") / "arm.urdf"
    path.write_text(arm_urdf())
    return dynamics.load_urdf(path, floating_base=request.param == "floating")


class Knot:
    """A state, and all residuals as functions of a tangent vector and torques there."""

    def __init__(self, robot: Robot) -> None:
        self.robot, self.terms, n = robot, all_of(robot), robot.nv
        draw = np.random.default_rng(0)
        self.q = configuration(robot, jax.random.key(0))
        self.v, self.tau = (jnp.asarray(draw.normal(size=n)) for _ in range(2))

    def moved(self, z: Array) -> dict[str, Array]:
        robot, n = self.robot, self.robot.nv
        q = dynamics.integrate(robot, self.q, z[:n], 1.0)
        there, tau = compute_terms(robot, q, self.v + z[n : 2 * n]), self.tau + z[2 * n :]
        return {k: residuals.value(t, robot, there, tau) for k, t in self.terms.items()}


def test_own_derivatives_are_the_automatic_ones(robot: Robot, x64: None) -> None:
    knot, zero = Knot(robot), jnp.zeros(3 * robot.nv)
    expected = jax.jit(jax.jacfwd(knot.moved))(zero)

    @jax.jit
    def ours() -> Any:
        at = compute_terms(robot, knot.q, knot.v)
        return {k: residuals.slopes(t, robot, at, knot.tau) for k, t in knot.terms.items()}

    for name, slopes in ours().items():
        found = np.concatenate(slopes, axis=1)
        np.testing.assert_allclose(found, expected[name], atol=1e-10, err_msg=name)


@pytest.mark.slow
def test_curvature_is_the_automatic_one(robot: Robot, x64: None) -> None:
    knot, zero = Knot(robot), jnp.zeros(3 * robot.nv)
    draw = np.random.default_rng(1)
    weights = {k: jnp.asarray(draw.normal(size=len(x))) for k, x in knot.moved(zero).items()}

    def weighted(z: Array) -> dict[str, Array]:
        return {k: weights[k] @ x for k, x in knot.moved(z).items()}

    expected = jax.jit(jax.hessian(weighted))(zero)

    @jax.jit
    def ours() -> Any:
        at = compute_terms(robot, knot.q, knot.v)
        return {
            k: residuals.bend(t, robot, at, knot.tau, weights[k]) for k, t in knot.terms.items()
        }

    for name, found in ours().items():
        np.testing.assert_allclose(found, expected[name], atol=1e-8, err_msg=name)


def test_continuous_joints_go_the_short_way(robot: Robot) -> None:
    """A turn away is nowhere else."""
    turning = np.array([j.kind == "continuous" for j in robot.topology.joints for _ in range(j.nv)])
    assert turning.sum() == 1
    q = dynamics.neutral(robot)

    @jax.jit
    def far(v: Array) -> Array:
        there = dynamics.integrate(robot, q, v, 1.0)
        terms = compute_terms(robot, there, jnp.zeros(robot.nv))
        return residuals.value(plan.posture(q), robot, terms, None)

    np.testing.assert_allclose(far(turning * (2 * np.pi + 0.1)), 0.1 * turning, atol=1e-5)


@pytest.mark.slow
def test_a_barrier_costs_below_its_margin() -> None:
    robot = dynamics.load_robot("panda")
    ball = Sphere(np.array([[0.4, 0.0, 0.5]]), np.array([0.1]))
    term = plan.below(barriers.obstacles(margin=0.05), dynamics.Obstacles(ball))
    terms = compute_terms(robot, robot.q_default, np.zeros(7, np.float32))
    found = residuals.value(term, robot, terms, jnp.zeros(7))
    world = dynamics.obstacle_distances(robot, robot.q_default, dynamics.Obstacles(ball))
    np.testing.assert_allclose(found, 0.05 - world[:, 0], atol=1e-6)


def test_wrong_shapes_are_told() -> None:
    with pytest.raises(ArrayError, match=r"rotation has shape \(4,\), expected \(3, 3\)"):
        plan.pose("hand", np.zeros(3), np.zeros(4))
    robot = dynamics.load_robot("panda")
    with pytest.raises(ConfigError, match=r"running\['mine'\] is a function, expected a Residual"):
        plan.Problem(robot, running={"mine": lambda: 0})
    with pytest.raises(ConfigError, match="dt=0, expected a positive time"):
        plan.Problem(robot, dt=0)
    assert dataclasses.replace(plan.velocity(), weight=2.0).weight == 2.0
