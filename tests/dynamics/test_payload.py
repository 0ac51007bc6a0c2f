"""Payloads: a robot that carries one is that robot with one more link."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.dynamics import Payload, Robot
from fraxenv.errors import ConfigError, UnknownNameError

COM = (0.03, -0.05, 0.12)
INERTIA = ((0.02, 0.003, -0.001), (0.003, 0.03, 0.002), (-0.001, 0.002, 0.04))

pytestmark = pytest.mark.usefixtures("x64")


def tool(folder: Path) -> Robot:
    """A link with the mass of the payload, whose base floats."""
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = INERTIA
    path = folder / "tool.urdf"
    path.write_text(
        f'<robot name="tool"><link name="tool"><inertial><origin xyz="{COM[0]} {COM[1]} {COM[2]}"/>'
        f'<mass value="1.7"/><inertia ixx="{xx}" ixy="{xy}" ixz="{xz}" iyy="{yy}" iyz="{yz}" '
        f'izz="{zz}"/></inertial></link></robot>'
    )
    return dynamics.load_urdf(path, floating_base=True)


@pytest.mark.parametrize("frame", ["right_tool", "left_bracket"])
def test_a_payload_is_a_link_that_is_attached(tree: Robot, frame: str, tmp_path: Path) -> None:
    expected = dynamics.attach(tree, tool(tmp_path), frame)
    robot = dynamics.with_payload(tree, Payload(frame, 1.7, COM, INERTIA))
    for name in ("mass", "com", "inertia"):
        np.testing.assert_allclose(getattr(robot, name), getattr(expected, name), atol=1e-14)


@pytest.mark.parametrize(("name", "inertia"), [("tree", INERTIA), ("panda_gripper", None)])
def test_terms_are_those_of_the_robot_that_carries_it(name: str, inertia, tree: Robot) -> None:
    robot = tree if name == "tree" else dynamics.load_robot(name)
    payload = Payload("right_tool" if name == "tree" else "hand", 1.7, COM, inertia)
    rng = np.random.default_rng(1)
    q = jnp.asarray(robot.q_default + rng.uniform(-0.5, 0.5, robot.nq))
    v = jnp.asarray(rng.uniform(-3.0, 3.0, robot.nv))

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def both(q, v):
        terms = dynamics.compute_terms(robot, q, v)
        whole = dynamics.compute_terms(dynamics.with_payload(robot, payload), q, v)
        return terms, dynamics.terms_with_payload(robot, terms, payload), whole

    bare, ours, expected = both(q, v)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
    assert np.abs(np.asarray(bare.bias - expected.bias)).max() > 1.0
    assert np.abs(np.asarray(bare.mass_matrix - expected.mass_matrix)).max() > 0.1


def test_nothing_and_what_the_world_carries_change_nothing(tree: Robot) -> None:
    terms = jax.jit(dynamics.compute_terms)(tree, tree.q_default, jnp.ones(tree.nv))
    for payload in (Payload("right_tool"), Payload("mast", 3.0, COM, INERTIA)):
        robot = dynamics.with_payload(tree, payload)
        for name in ("mass", "com", "inertia"):
            np.testing.assert_array_equal(getattr(robot, name), getattr(tree, name))
        loaded = jax.jit(lambda t, p=payload: dynamics.terms_with_payload(tree, t, p))(terms)
        for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(terms), strict=True):
            np.testing.assert_array_equal(a, b)


def test_bad_payloads(tree: Robot) -> None:
    with pytest.raises(ConfigError, match="mass=-1"):
        Payload("right_tool", -1.0)
    with pytest.raises(ConfigError, match=r"com=.*expected finite numbers of shape \(3,\)"):
        Payload("right_tool", 1.0, (0.0, 0.1))
    with pytest.raises(ConfigError, match="inertia="):
        Payload("right_tool", 1.0, inertia=((1.0, 0.0), (0.0, 1.0)))
    with pytest.raises(UnknownNameError, match="right_tool"):
        dynamics.with_payload(tree, Payload("right_tol", 1.0))
