"""Kinematics and dynamics against Pinocchio, which reads the same files with its own parser.

Errors are relative to the largest entry of the reference: max |ours - theirs| <= tolerance *
max |theirs|, for each state on its own, and for each frame on its own too except in the rate of the
Jacobian, which vanishes for some frames. Both sides get the same numbers, rounded to float32
beforehand in the float32 tests.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics import Robot

pin = pytest.importorskip("pinocchio")

STATES = 100
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
DERIVATIVES_TOLERANCE = 1e-9  # float64
# float32 is compiled as users compile it; in float64 formulas are what is tested, and compiling is
# what takes time.
COMPILER = {"float32": {}, "float64": {"xla_backend_optimization_level": 0}}
PER_FRAME = ("frame position", "frame rotation", "frame jacobian")
QUANTITIES = (
    *PER_FRAME,
    "frame jacobian dot",
    "body position",
    "body rotation",
    "inverse dynamics",
    "mass matrix",
    "bias",
    "bias with external forces",
    "gravity",
    "forward dynamics",
    "centre of mass",
    "kinetic energy",
    "potential energy",
)
CASES = [(robot, bits) for robot in ("panda", "tree", "ur10") for bits in TOLERANCE]

Quantities = dict[str, np.ndarray]


@dataclass(frozen=True)
class State:
    """A state, or a batch of them along the first axis."""

    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    tau: np.ndarray
    forces: np.ndarray  # (n, 6), as `rnea` takes them


jax.tree_util.register_dataclass(State, ["q", "v", "a", "tau", "forces"], [])


@dataclass(frozen=True)
class Oracle:
    """Pinocchio's model of a robot, spoken to in our order of joints."""

    model: object
    joints: tuple[int, ...]  # their joint of each of ours
    columns: np.ndarray  # and its index into their velocity

    def configuration(self, q: np.ndarray) -> np.ndarray:
        """Theirs holds cosine and sine for an unlimited revolute joint."""
        theirs = pin.neutral(self.model)
        for joint, value in zip(self.joints, q, strict=True):
            start, size = self.model.joints[joint].idx_q, self.model.joints[joint].nq
            theirs[start : start + size] = [np.cos(value), np.sin(value)] if size == 2 else value
        return theirs

    def tangent(self, v: np.ndarray) -> np.ndarray:
        theirs = np.zeros(self.model.nv)
        theirs[self.columns] = v
        return theirs

    def matrix(self, m: np.ndarray) -> np.ndarray:
        return m[np.ix_(self.columns, self.columns)]

    def forces(self, data: object, forces: np.ndarray) -> list[object]:
        """Ours are in world axes, theirs in the joint's; both about the joint's origin."""
        theirs = [pin.Force.Zero() for _ in range(self.model.njoints)]
        for joint, f in zip(self.joints, forces, strict=True):
            R = data.oMi[joint].rotation
            theirs[joint] = pin.Force(R.T @ f[:3], R.T @ f[3:])
        return theirs


def urdf(name: str, request: pytest.FixtureRequest) -> Path:
    if name == "ur10":
        try:
            files = metadata.files("example-robot-data")
        except metadata.PackageNotFoundError:
            pytest.skip("needs the UR10 of the package example-robot-data")
        wanted = "ur_description/urdf/ur10_robot.urdf"
        return Path(next(f for f in files if str(f).endswith(wanted)).locate())
    return request.getfixturevalue(f"{name}_path")


def load(name: str, request: pytest.FixtureRequest) -> tuple[Robot, Oracle]:
    """A robot and Pinocchio's model of it, in a gravity that is not along z.

    The Panda has no rotors, as it ships, which conditions its mass matrix worst. The others have
    some. The UR10 needs them in float32: with the 2e-3 kg m^2 of its wrist alone, its mass matrix
    has a condition number of 2e4, and one state in a thousand is accelerated wrongly by 1e-4 to
    2e-4. In float64 it would agree without.
    """
    path = urdf(name, request)
    model = pin.buildModelFromUrdf(str(path))
    robot = dynamics.load_urdf(path)
    joints = tuple(model.getJointId(name) for name in robot.joint_names)
    oracle = Oracle(model, joints, np.array([model.joints[j].idx_v for j in joints]))
    armature = np.linspace(0.0, 0.0 if name == "panda" else 0.3, robot.nv)
    gravity = np.array([2.0, -3.0, -9.0])
    model.armature = oracle.tangent(armature)
    model.gravity.linear = gravity
    return robot.replace(armature=armature, gravity=gravity), oracle


def random_states(robot: Robot, dtype: np.dtype) -> State:
    """The whole joint range, and speeds of several times the limits."""
    rng = np.random.default_rng(0)
    lower, upper = np.clip(robot.position_limits, -np.pi, np.pi).T
    n = robot.nv
    state = State(
        q=rng.uniform(lower, upper, (STATES, n)),
        v=rng.uniform(-10.0, 10.0, (STATES, n)),
        a=rng.uniform(-30.0, 30.0, (STATES, n)),
        tau=rng.uniform(-100.0, 100.0, (STATES, n)),
        forces=rng.uniform(-50.0, 50.0, (STATES, n, 6)),
    )
    return jax.tree.map(lambda x: x.astype(dtype), state)


def ours(robot: Robot, s: State) -> dict[str, Array]:
    # One forward kinematics for all: that `kin` changes nothing is tested with the identities.
    kin = dynamics.compute_kinematics(robot, s.q)
    frames = robot.frame_names
    poses = [dynamics.frame_pose(robot, s.q, f, kin=kin) for f in frames]
    J = [dynamics.frame_jacobian(robot, s.q, f, kin=kin) for f in frames]
    J_dot = [dynamics.frame_jacobian_dot(robot, s.q, s.v, f, kin=kin) for f in frames]
    bodies = dynamics.forward_kinematics(robot, s.q)
    return {
        "frame position": jnp.stack([p for p, _ in poses]),
        "frame rotation": jnp.stack([R for _, R in poses]),
        "frame jacobian": jnp.stack(J),
        "frame jacobian dot": jnp.stack(J_dot),
        "body position": bodies.position,
        "body rotation": bodies.rotation,
        "inverse dynamics": dynamics.rnea(robot, s.q, s.v, s.a, s.forces, kin=kin),
        "mass matrix": dynamics.crba(robot, s.q, kin=kin),
        "bias": dynamics.bias_forces(robot, s.q, s.v, kin=kin),
        "bias with external forces": dynamics.bias_forces(robot, s.q, s.v, s.forces, kin=kin),
        "gravity": dynamics.gravity_forces(robot, s.q, kin=kin),
        "forward dynamics": dynamics.forward_dynamics(robot, s.q, s.v, s.tau, s.forces, kin=kin),
        "centre of mass": dynamics.center_of_mass(robot, s.q, kin=kin),
        "kinetic energy": dynamics.kinetic_energy(robot, s.q, s.v, kin=kin),
        "potential energy": dynamics.potential_energy(robot, s.q, kin=kin),
    }


def theirs(robot: Robot, oracle: Oracle, s: State) -> Quantities:
    model, columns = oracle.model, oracle.columns
    data = model.createData()
    q, v = oracle.configuration(s.q), oracle.tangent(s.v)
    pin.computeJointJacobiansTimeVariation(model, data, q, v)
    pin.computeJointJacobians(model, data, q)
    pin.forwardKinematics(model, data, q, v)
    pin.updateFramePlacements(model, data)
    ids = [model.getFrameId(name, pin.BODY) for name in robot.frame_names]
    world = pin.LOCAL_WORLD_ALIGNED
    forces = oracle.forces(data, s.forces)
    J = [pin.getFrameJacobian(model, data, i, world)[:, columns] for i in ids]
    J_dot = [pin.getFrameJacobianTimeVariation(model, data, i, world)[:, columns] for i in ids]
    upper = np.triu(pin.crba(model, data, q))
    zero = np.zeros(model.nv)
    # Pinocchio 4.1 leaves some joints' rotors out of the kinetic energy (those of revolute joints
    # about arbitrary axes), so they are added by hand.
    bare = pin.Model(model)
    bare.armature = zero
    rotors = 0.5 * model.armature @ v**2
    return {
        "frame position": np.stack([data.oMf[i].translation for i in ids]),
        "frame rotation": np.stack([data.oMf[i].rotation for i in ids]),
        "frame jacobian": np.stack(J),
        "frame jacobian dot": np.stack(J_dot),
        "body position": np.stack([data.oMi[j].translation for j in oracle.joints]),
        "body rotation": np.stack([data.oMi[j].rotation for j in oracle.joints]),
        "inverse dynamics": pin.rnea(model, data, q, v, oracle.tangent(s.a), forces)[columns],
        "mass matrix": oracle.matrix(upper + np.triu(upper, 1).T),
        "bias": pin.nonLinearEffects(model, data, q, v)[columns],
        "bias with external forces": pin.rnea(model, data, q, v, zero, forces)[columns],
        "gravity": pin.computeGeneralizedGravity(model, data, q)[columns],
        "forward dynamics": pin.aba(model, data, q, v, oracle.tangent(s.tau), forces)[columns],
        "centre of mass": pin.centerOfMass(model, data, q).copy(),
        "kinetic energy": np.array(
            pin.computeKineticEnergy(bare, bare.createData(), q, v) + rotors
        ),
        "potential energy": np.array(pin.computePotentialEnergy(model, data, q)),
    }


def over_states(f: Callable[[State], Quantities], states: State) -> Quantities:
    rows = [f(jax.tree.map(lambda x, i=i: x[i].astype(float), states)) for i in range(STATES)]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def comparison(
    request: pytest.FixtureRequest, precision: Callable[[str], AbstractContextManager[np.dtype]]
) -> tuple[Quantities, Quantities, float]:
    """Ours, theirs and the tolerance."""
    name, bits = request.param
    robot, oracle = load(name, request)
    with precision(bits) as dtype:
        states = random_states(robot, dtype)
        program = jax.vmap(lambda s: ours(robot, s))
        result = jax.jit(program, compiler_options=COMPILER[bits])(states)
        assert all(x.dtype == dtype for x in result.values())
    reference = over_states(lambda s: theirs(robot, oracle, s), states)
    return jax.tree.map(np.asarray, result), reference, TOLERANCE[bits]


def assert_close(ours: np.ndarray, theirs: np.ndarray, tolerance: float, batch: int = 1) -> None:
    """Compare arrays, each on its own, that are stacked along the first `batch` axes."""
    assert ours.shape == theirs.shape
    assert np.isfinite(ours).all()
    axes = tuple(range(batch, theirs.ndim))
    error = np.abs(ours - theirs).max(axis=axes)
    bound = tolerance * np.abs(theirs).max(axis=axes)
    worst = np.unravel_index(np.argmax(error - bound), error.shape)
    assert (error <= bound).all(), f"error {error[worst]:.3g} > {bound[worst]:.3g} at {worst}"


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_agrees_with_pinocchio(
    comparison: tuple[Quantities, Quantities, float], quantity: str
) -> None:
    result, reference, tolerance = comparison
    assert_close(result[quantity], reference[quantity], tolerance, 1 + (quantity in PER_FRAME))


def test_nothing_is_left_out(comparison: tuple[Quantities, Quantities, float]) -> None:
    result, reference, _ = comparison
    assert set(result) == set(reference) == set(QUANTITIES)


def test_derivatives_agree_with_pinocchio(request: pytest.FixtureRequest, x64: None) -> None:
    robot, oracle = load("tree", request)
    states = random_states(robot, np.dtype(float))

    def derivatives(s: State) -> Array:
        def forward_dynamics(*x: Array) -> Array:
            return dynamics.forward_dynamics(robot, *x)

        return jnp.stack(jax.jacfwd(forward_dynamics, (0, 1, 2))(s.q, s.v, s.tau))

    def reference(s: State) -> Quantities:
        model, data = oracle.model, oracle.model.createData()
        q, v, tau = oracle.configuration(s.q), oracle.tangent(s.v), oracle.tangent(s.tau)
        parts = pin.computeABADerivatives(model, data, q, v, tau)
        return {"": np.stack([oracle.matrix(part) for part in parts])}

    program = jax.jit(jax.vmap(derivatives), compiler_options=COMPILER["float64"])
    result = np.asarray(program(states))
    assert_close(result, over_states(reference, states)[""], DERIVATIVES_TOLERANCE, batch=2)
