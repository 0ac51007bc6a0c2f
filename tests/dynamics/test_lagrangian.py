"""Small robots against their Lagrangians, which sympy derives here from first principles.

Lengths, masses and moments of inertia are read from the URDF's text, not by our loader. All
rotations of these robots are about parallel axes, so that a body's kinetic energy is that of its
centre of mass plus half of its moment of inertia times the square of the sum of the joints' rates.
The velocities of the `planar` joint are the rates of its coordinates, x and y along the world's
axes, so that the Lagrangian's coordinates and ours are the same; a test makes sure of that.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
import sympy as sp
from jax import Array
from support import with_slow

from fraxenv import dynamics
from fraxenv.dynamics import Robot
from fraxenv.dynamics.model.bundled import bundled_urdf

STATES = 100
TOLERANCE = 1e-12
GRAVITY = (2, -3, -9)  # so that the arm that lies level has weight, too

t = sp.Symbol("t")


@dataclass(frozen=True)
class Body:
    """A rigid body: its link, where its joint's frame is and how it is turned about the axis."""

    link: str
    position: sp.Matrix
    rotation: sp.Matrix
    angle: sp.Expr


class Description:
    """The numbers in a URDF, exact."""

    def __init__(self, name: str) -> None:
        self.root = ET.fromstring(bundled_urdf(name).read_bytes())

    def vector(self, path: str) -> sp.Matrix:
        element = self.root.find(path)
        text = "0 0 0" if element is None else element.attrib["xyz"]
        return sp.Matrix([sp.Rational(x) for x in text.split()])

    def joint(self, name: str) -> sp.Matrix:
        return self.vector(f"joint[@name='{name}']/origin")

    def com(self, link: str) -> sp.Matrix:
        return self.vector(f"link[@name='{link}']/inertial/origin")

    def number(self, link: str, tag: str, attribute: str) -> sp.Rational:
        element = self.root.find(f"link[@name='{link}']/inertial/{tag}")
        assert element is not None
        return sp.Rational(element.attrib[attribute])


def about_y(angle: sp.Expr) -> sp.Matrix:
    c, s = sp.cos(angle), sp.sin(angle)
    return sp.Matrix([[c, 0, s], [0, 1, 0], [-s, 0, c]])


def about_z(angle: sp.Expr) -> sp.Matrix:
    c, s = sp.cos(angle), sp.sin(angle)
    return sp.Matrix([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def mobile_manipulator(urdf: Description, q: list[sp.Expr]) -> list[Body]:
    x, y, yaw, shoulder, elbow = q
    cart = Body("cart", sp.Matrix([x, y, 0]), about_z(yaw), yaw)
    angle = yaw + shoulder
    place = cart.position + cart.rotation * urdf.joint("shoulder")
    upper = Body("upper_arm", place, about_z(angle), angle)
    place = upper.position + upper.rotation * urdf.joint("elbow")
    return [cart, upper, Body("forearm", place, about_z(angle + elbow), angle + elbow)]


def double_pendulum(urdf: Description, q: list[sp.Expr]) -> list[Body]:
    rod1 = Body("rod1", urdf.joint("joint1"), about_y(q[0]), q[0])
    place = rod1.position + rod1.rotation * urdf.joint("joint2")
    return [rod1, Body("rod2", place, about_y(q[0] + q[1]), q[0] + q[1])]


def cartpole(urdf: Description, q: list[sp.Expr]) -> list[Body]:
    cart = urdf.joint("slide") + sp.Matrix([q[0], 0, 0])
    pole = Body("pole", cart + urdf.joint("hinge"), about_y(q[1]), q[1])
    return [Body("cart", cart, sp.eye(3), sp.Integer(0)), pole]


BODIES: dict[str, tuple[Callable[[Description, list[sp.Expr]], list[Body]], int, str]] = {
    "planar_mobile_manipulator": (mobile_manipulator, 5, "izz"),
    "double_pendulum": (double_pendulum, 2, "iyy"),
    "cartpole": (cartpole, 2, "iyy"),
}


def lagrangian_mechanics(name: str) -> Callable[..., dict[str, np.ndarray]]:
    """The equations of motion at one state, as a function of q, v and a."""
    bodies, n, moment = BODIES[name]
    urdf = Description(name)
    q = [sp.Function(f"q{i}")(t) for i in range(n)]
    v, a = ([sp.diff(x, t, order) for x in q] for order in (1, 2))
    kinetic, potential = sp.Integer(0), sp.Integer(0)
    for body in bodies(urdf, q):
        mass = urdf.number(body.link, "mass", "value")
        com = body.position + body.rotation * urdf.com(body.link)
        velocity, spin = com.diff(t), body.angle.diff(t)
        kinetic += mass * velocity.dot(velocity) / 2
        kinetic += urdf.number(body.link, "inertia", moment) * spin**2 / 2
        potential -= mass * com.dot(sp.Matrix(GRAVITY))
    L = kinetic - potential
    torques = sp.Matrix([L.diff(v_i).diff(t) - L.diff(q_i) for q_i, v_i in zip(q, v, strict=True)])
    at_rest = dict.fromkeys(a, sp.Integer(0))
    terms = {
        "mass matrix": torques.jacobian(a),
        "bias": torques.xreplace(at_rest),
        "gravity": sp.Matrix([potential.diff(x) for x in q]),
        "inverse dynamics": torques,
        "kinetic energy": kinetic,
        "potential energy": potential,
    }
    names = {
        x: sp.Symbol(f"{kind}{i}")
        for kind, of in {"q": q, "v": v, "a": a}.items()
        for i, x in enumerate(of)
    }
    arguments = [[names[x] for x in of] for of in (q, v, a)]
    programs = {
        key: sp.lambdify(arguments, value.xreplace(names), "numpy", cse=True)
        for key, value in terms.items()
    }

    def at(q: np.ndarray, v: np.ndarray, a: np.ndarray) -> dict[str, np.ndarray]:
        return {key: np.squeeze(program(q, v, a)) for key, program in programs.items()}

    return at


@pytest.fixture(scope="module", params=with_slow(BODIES, "planar_mobile_manipulator"))
def robot(request: pytest.FixtureRequest) -> Robot:
    return dynamics.load_robot(request.param).replace(gravity=np.array(GRAVITY, float))


@pytest.fixture(scope="module")
def states(robot: Robot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    q, v, a = (rng.uniform(-s, s, (STATES, robot.nv)) for s in (np.pi, 10, 30))
    return q, v, a


@pytest.fixture(scope="module")
def both(
    robot: Robot,
    states: tuple[np.ndarray, np.ndarray, np.ndarray],
    precision: Callable[[str], AbstractContextManager[Any]],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Our quantities, and those of the Lagrangian."""

    def quantities(q: Array, v: Array, a: Array) -> dict[str, Array]:
        return {
            "mass matrix": dynamics.crba(robot, q),
            "bias": dynamics.bias_forces(robot, q, v),
            "gravity": dynamics.gravity_forces(robot, q),
            "inverse dynamics": dynamics.rnea(robot, q, v, a),
            "kinetic energy": dynamics.kinetic_energy(robot, q, v),
            "potential energy": dynamics.potential_energy(robot, q),
            "coordinate rates": dynamics.coordinate_rates(robot, q),
            "forward dynamics": dynamics.forward_dynamics(robot, q, v, a),  # any numbers do
        }

    with precision("float64"):
        ours = jax.tree.map(np.asarray, jax.jit(jax.vmap(quantities))(*states))
    at = lagrangian_mechanics(robot.name)
    rows = [at(*state) for state in zip(*states, strict=True)]
    theirs = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    unbalanced = states[2] - theirs["bias"]
    solved = np.linalg.solve(theirs["mass matrix"], unbalanced[..., None])
    return ours, theirs | {"forward dynamics": solved[..., 0]}


@pytest.mark.parametrize(
    "quantity",
    [
        "mass matrix",
        "bias",
        "gravity",
        "inverse dynamics",
        "forward dynamics",
        "kinetic energy",
        "potential energy",
    ],
)
def test_agrees_with_the_lagrangian(
    both: tuple[dict[str, np.ndarray], dict[str, np.ndarray]], quantity: str
) -> None:
    """Relative to the largest entry, or to that of the median state for energies about zero."""
    ours, theirs = both[0][quantity], both[1][quantity]
    assert ours.shape == theirs.shape
    assert ours.dtype == np.float64
    axes = tuple(range(1, theirs.ndim))
    scale = np.abs(theirs).max(axis=axes)
    error = np.abs(ours - theirs).max(axis=axes) / np.maximum(scale, np.median(scale))
    print(f"{quantity}: {error.max():.0e}")
    assert error.max() <= TOLERANCE


def test_velocities_are_the_rates_of_the_coordinates(
    robot: Robot, both: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
) -> None:
    rates = both[0]["coordinate rates"]
    np.testing.assert_array_equal(rates, np.broadcast_to(np.eye(robot.nv), rates.shape))
