"""Kinematics and dynamics against Pinocchio, which reads the same files with its own parser.

Errors are relative to the largest entry of the reference: max |ours - theirs| <= tolerance *
max |theirs|, for each state on its own. Both sides get the same numbers, rounded to float32
beforehand in the float32 tests.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import load_script, with_slow

from fraxenv import dynamics
from fraxenv.cross_check.pinocchio import PinocchioOracle
from fraxenv.cross_check.quantities import States, quantities, random_states
from fraxenv.dynamics import Robot
from fraxenv.dynamics.model.bundled import bundled_urdf

pin = pytest.importorskip("pinocchio")

STATES = 30
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
DERIVATIVES_TOLERANCE = 1e-9
# float32 is compiled as users compile it; in float64 formulas are what is tested, and compiling is
# what takes time.
COMPILER = {"float32": {}, "float64": {"xla_backend_optimization_level": 0}}
GRAVITY = (2.0, -3.0, -9.0)

validate = load_script("measure/validate_dynamics")
BUNDLED = dynamics.list_robots()
# Real robots are as published, without the rotors that would help light wrists. Of the made-up one
# the mass matrix is so badly conditioned that rounding the right one to float32 costs 8e-5.
ROTORS_FLOAT32 = {"joints": 0.3}
# The others run with `scripts/test.sh --slow`.
QUICK = {
    ("joints", "float64"),  # and `tree` in a forest, in model/test_combine.py
    ("panda", "float32"),
}
EVERY = [
    (name, bits)
    for name in (*BUNDLED, "g1_floating", "tree", "joints", *validate.ELSEWHERE)
    for bits in TOLERANCE
]
CASES = with_slow(EVERY, *(set(EVERY) - QUICK))


def load(name: str, bits: str, tree_path: Path, joints_path: Path) -> tuple[Robot, PinocchioOracle]:
    """A robot and Pinocchio's model of it, in a gravity that is not along z."""
    if name in validate.ELSEWHERE:
        try:
            robot, path = validate.load(name)
        except metadata.PackageNotFoundError:
            pytest.skip("needs the package example-robot-data")
    else:
        paths = {"tree": tree_path, "joints": joints_path}
        path = paths.get(name) or bundled_urdf(name.removesuffix("_floating"))
        robot = dynamics.load_urdf(path, floating_base=name.endswith("_floating"))
    rotors = ROTORS_FLOAT32.get(name, 0.0) if bits == "float32" else 0.1 * (name != "panda")
    # Theirs have no rotors along axes that turn with the body.
    single = [j.nv == 1 for j in robot.topology.joints for _ in range(j.nv)]
    armature = np.where(single, rotors, 0.0)
    robot = robot.replace(gravity=np.array(GRAVITY), armature=armature)
    if name == "joints":
        # What rotors are to single axes, for a body that turns about three.
        robot = robot.replace(inertia=robot.inertia + rotors * np.eye(3))
        return robot, PinocchioOracle.from_model(robot, spherical_model(robot))
    return robot, PinocchioOracle.from_urdf(robot, path)


def spherical_model(robot: Robot) -> Any:
    """Pinocchio's model, joint by joint: its URDF parser knows no spherical joints."""
    topology, model = robot.topology, pin.Model()
    ids: list[int] = []
    for i, joint in enumerate(topology.joints):
        kinds = {
            "spherical": pin.JointModelSpherical,
            "floating": pin.JointModelFreeFlyer,
            "planar": pin.JointModelPlanar,
            "revolute": lambda axis=joint.axis: pin.JointModelRevoluteUnaligned(axis),
            "continuous": lambda axis=joint.axis: pin.JointModelRevoluteUnaligned(axis),
            "prismatic": lambda axis=joint.axis: pin.JointModelPrismaticUnaligned(axis),
        }
        parent = 0 if topology.parent[i] < 0 else ids[topology.parent[i]]
        place = pin.SE3(topology.rotation[i], topology.position[i])
        ids.append(model.addJoint(parent, kinds[joint.kind](), place, joint.name))
        inertia = pin.Inertia(robot.mass[i], robot.com[i], robot.inertia[i])
        model.appendBodyToJoint(ids[i], inertia, pin.SE3.Identity())
    for frame in topology.frames:
        joint = 0 if frame.body < 0 else ids[frame.body]
        place = pin.SE3(frame.rotation, frame.position)
        model.addFrame(pin.Frame(frame.name, joint, 0, place, pin.BODY))
    return model


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def comparison(
    request: pytest.FixtureRequest,
    tree_path: Path,
    joints_path: Path,
    precision: Callable[[str], AbstractContextManager[np.dtype]],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Ours, theirs and the tolerance."""
    name, bits = request.param
    robot, oracle = load(name, bits, tree_path, joints_path)
    with precision(bits) as dtype:
        states = random_states(robot, STATES, dtype)
        program = jax.jit(jax.vmap(lambda s: quantities(robot, s)), compiler_options=COMPILER[bits])
        ours = jax.tree.map(np.asarray, program(states))
        assert all(x.dtype == dtype for x in ours.values())
    rows = [oracle.quantities(*one(states, i)) for i in range(STATES)]
    theirs = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return ours, theirs, TOLERANCE[bits]


def one(states: States, i: int) -> tuple[np.ndarray, ...]:
    s = jax.tree.map(lambda x: np.asarray(x[i], float), states)
    return s.q, s.v, s.a, s.tau, s.forces


def assert_close(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    assert ours.shape == theirs.shape
    assert np.isfinite(ours).all()
    axes = tuple(range(1, theirs.ndim))
    error = np.abs(ours - theirs).max(axis=axes)
    bound = tolerance * np.abs(theirs).max(axis=axes)
    worst = np.argmax(error - bound)
    assert (error <= bound).all(), f"error {error[worst]:.3g} > {bound[worst]:.3g} at {worst}"


def test_agrees_with_pinocchio(
    comparison: tuple[dict[str, np.ndarray], dict[str, np.ndarray], float],
) -> None:
    ours, theirs, tolerance = comparison
    assert set(ours) == set(theirs)
    assert len(ours) == 20
    for quantity, reference in theirs.items():
        try:
            assert_close(ours[quantity], reference, tolerance)
        except AssertionError as error:
            raise AssertionError(f"{quantity}: {error}") from error


@pytest.mark.parametrize("name", with_slow(["panda", "tree", "g1"], "panda", "g1"))
def test_derivatives_agree_with_pinocchio(
    name: str, tree_path: Path, joints_path: Path, x64: None
) -> None:
    robot, oracle = load(name, "float64", tree_path, joints_path)
    states = random_states(robot, STATES, np.dtype(float))

    def ours(s: States) -> tuple[Array, Array]:
        of_a = dynamics.forward_dynamics_derivatives(robot, s.q, s.v, s.tau)
        of_tau = dynamics.inverse_dynamics_derivatives(robot, s.q, s.v, s.a)
        of_momentum = dynamics.centroidal_momentum_derivative(robot, s.q, s.v)
        return jnp.stack([*of_a, *of_tau]), of_momentum

    def theirs(q: np.ndarray, v: np.ndarray, a: np.ndarray, tau: np.ndarray) -> Any:
        model, data = oracle.model, oracle.model.createData()
        T, _ = oracle.transform(q, v)  # the order of degrees of freedom
        q = oracle.configuration(q)
        forward = pin.computeABADerivatives(model, data, q, T @ v, T @ tau)
        forward = [np.array(part) for part in forward]
        inverse = [np.array(x) for x in pin.computeRNEADerivatives(model, data, q, T @ v, T @ a)]
        inverse[2] = np.triu(inverse[2]) + np.triu(inverse[2], 1).T
        momentum, *_ = pin.computeCentroidalDynamicsDerivatives(model, data, q, T @ v, T @ a)
        return np.stack([T.T @ part @ T for part in (*forward, *inverse)]), momentum @ T

    program = jax.jit(jax.vmap(ours), compiler_options=COMPILER["float64"])
    result, momentum = map(np.asarray, program(states))
    reference, of_momentum = zip(*(theirs(*one(states, i)[:4]) for i in range(STATES)), strict=True)
    for part in range(6):
        assert_close(result[:, part], np.stack(reference)[:, part], DERIVATIVES_TOLERANCE)
    assert_close(momentum, np.stack(of_momentum), DERIVATIVES_TOLERANCE)


@pytest.mark.parametrize("name", with_slow(["panda_floating", "g1_floating"], "g1_floating"))
def test_derivatives_of_a_floating_base_agree_with_pinocchio(
    name: str, tree_path: Path, joints_path: Path, x64: None
) -> None:
    """Theirs displaces the base in body axes and has velocities there: we change variables."""
    robot, oracle = load(name, "float64", tree_path, joints_path)
    states = random_states(robot, 5, np.dtype(float))

    def accelerations(x: Array, v: Array, tau: Array, s: States) -> Array:
        R = dynamics.quaternion_to_matrix(s.q[3:7])
        q = dynamics.integrate(robot, s.q, x.at[:3].set(R @ x[:3]), 1.0)
        R = dynamics.quaternion_to_matrix(q[3:7])
        world = v.at[:3].set(R @ v[:3])
        a = dynamics.forward_dynamics(robot, q, world, tau.at[:3].set(R @ tau[:3]))
        return a.at[:3].set(R.T @ a[:3] - jnp.cross(v[3:6], v[:3]))

    def ours(s: States) -> Array:
        args = (jnp.zeros(robot.nv), s.v, s.tau)
        return jnp.stack(jax.jacfwd(accelerations, (0, 1, 2))(*args, s))

    program = jax.jit(jax.vmap(ours), compiler_options=COMPILER["float64"])
    result = np.asarray(program(states))
    for i in range(5):
        q, v, _, tau, _ = one(states, i)
        data = oracle.model.createData()
        assert np.array_equal(oracle.transform(q, v)[0][6:, 6:], np.eye(robot.nv - 6))
        parts = pin.computeABADerivatives(oracle.model, data, oracle.configuration(q), v, tau)
        for mine, reference in zip(result[i], parts, strict=True):
            assert_close(mine[None], np.array(reference)[None], DERIVATIVES_TOLERANCE)
