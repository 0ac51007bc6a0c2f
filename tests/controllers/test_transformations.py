"""Every controller under vmap, jit, scan and grad, and as a fused kernel, in both precisions."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import MOTORS, dtype_with_slow, with_slow

from fraxenv import dynamics
from fraxenv.controllers import (
    OSC,
    DifferentialIK,
    JointImpedance,
    JointTarget,
    JointVelocity,
    PoseTarget,
    Torque,
)
from fraxenv.dynamics import ActuatorState, Robot
from fraxenv.kernels import explain, fuse

BATCH = 5
DT = 1e-3
HANDS = ("left_hand", "right_hand")
compute_terms, rotations = jax.jit(dynamics.compute_terms), jax.jit(jax.vmap(dynamics.rotation_exp))
RAMP: dict[str, Any] = {"interpolation_time": 0.02}

CASES: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "osc": ("panda", OSC("hand"), ()),
    "osc, everything": (
        "panda",
        OSC("hand", decoupling="partial", posture="center", **RAMP),
        ("velocity", "acceleration", "wrench", "kp", "damping_ratio"),
    ),
    "osc, position": ("panda", OSC("hand", task="position", decoupling="none"), ()),
    "osc, two hands": ("g1", OSC(HANDS, **RAMP), ("velocity",)),
    "osc, hands in order": ("g1", OSC(HANDS, priority="ordered", decoupling="none"), ()),
    "ik": ("panda", DifferentialIK("hand", **RAMP), ("velocity", "kp")),
    "ik, two hands": ("g1", DifferentialIK(HANDS, priority="ordered"), ()),
    "impedance": ("panda", JointImpedance(), ()),
    "impedance, everything": (
        "panda",
        JointImpedance(decoupling="none"),
        ("velocity", "acceleration", "torque", "kp", "damping_ratio"),
    ),
    "velocity": ("panda", JointVelocity(), ()),
    "torque": ("panda", Torque(gravity_compensation=True), ()),
}


def robot_of(name: str) -> Robot:
    return dynamics.load_robot(name, floating_base=False)


def draw(robot: Robot, controller: Any, extras: tuple[str, ...], batch: int) -> tuple[Any, ...]:
    """Batches of states and targets."""
    rng = np.random.default_rng(0)
    nv = robot.nv
    q = np.asarray(robot.q_default) + rng.uniform(-0.3, 0.3, (batch, nv))
    v = rng.uniform(-0.5, 0.5, (batch, nv))
    if isinstance(controller, OSC | DifferentialIK):
        several = not isinstance(controller.end_effector, str)
        shape = (batch, 2) if several else (batch,)
        turns = jnp.asarray(rng.normal(size=(*shape, 3))).reshape(-1, 3)
        rotation = rotations(turns).reshape(*shape, 3, 3)
        arrays = {"position": rng.uniform(0.1, 0.5, (*shape, 3)), "rotation": rotation}
        arrays |= {n: rng.uniform(0.5, 2, (*shape, 6)) for n in extras}
        target: Any = PoseTarget(**arrays)
    elif isinstance(controller, JointImpedance):
        target = JointTarget(q + 0.1, **{n: rng.uniform(0.5, 2, (batch, nv)) for n in extras})
    else:
        target = rng.uniform(-1, 1, (batch, nv))
    return jax.tree.map(lambda x: jnp.asarray(x, float), (q, v, target))


def two_steps(robot: Robot, controller: Any) -> Any:
    """Torques of two control steps, with all that the controller remembers and reports."""

    def run(q: Array, v: Array, target: Any) -> Any:
        terms = dynamics.compute_terms(robot, q, v)
        _, state, _ = controller(robot, terms, target, controller.init(robot, terms), DT)
        return controller(robot, terms, target, state, DT)

    return run


@pytest.mark.parametrize(
    "case",
    with_slow(
        CASES,
        "osc, everything",
        "osc, position",
        "osc, two hands",
        "osc, hands in order",
        "ik, two hands",
        "impedance",
    ),
)
@dtype_with_slow("float64")
def test_fused_kernels_are_whole_and_right(case: str, dtype: np.dtype) -> None:
    name, controller, extras = CASES[case]
    if name == "g1" and dtype == np.float64:
        pytest.skip("takes a minute to compile, and differs from the Panda's in nothing")
    robot = robot_of(name)
    arguments = draw(robot, controller, extras, BATCH)
    run = two_steps(robot, controller)
    assert explain(run, "native")(*arguments).fallbacks == []
    expected = jax.jit(jax.vmap(run))(*arguments)
    actual = fuse(run, "native")(*arguments)
    bound = 1e-3 if dtype == np.float32 else 1e-10
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        scale = float(jnp.max(jnp.abs(b.astype(float)))) or 1.0
        np.testing.assert_allclose(a, b, rtol=0, atol=bound * scale)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["osc, everything", "ik, two hands", "impedance, everything"])
def test_batched_equals_one_by_one(case: str, x64: None) -> None:
    name, controller, extras = CASES[case]
    robot = robot_of(name)
    arguments = draw(robot, controller, extras, 3)
    run = jax.jit(two_steps(robot, controller))
    batched = jax.jit(jax.vmap(run))(*arguments)
    for i in range(3):
        one = run(*jax.tree.map(lambda x, i=i: x[i], arguments))
        ith = jax.tree.map(lambda x, i=i: x[i], batched)
        chex.assert_trees_all_close(one, ith, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", CASES)
@dtype_with_slow("float64")
def test_states_keep_their_types(case: str, dtype: np.dtype) -> None:
    """The state can be carried through a scan: same structure, shapes, dtypes, never weak."""
    name, controller, extras = CASES[case]
    robot = robot_of(name)
    q, v, target = jax.tree.map(lambda x: x[0], draw(robot, controller, extras, 1))
    terms = compute_terms(robot, q, v)
    state = controller.init(robot, terms)
    shapes = jax.eval_shape(lambda s: controller(robot, terms, target, s, DT), state)
    tau, after, _ = shapes
    assert (tau.shape, tau.dtype, tau.weak_type) == ((robot.nv,), dtype, False)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
    assert all((x.dtype, x.weak_type) == (dtype, False) for x in jax.tree.leaves(after))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    with_slow(
        ["osc", "osc, everything", "ik", "impedance, everything", "velocity"],
        "osc",
        "osc, everything",
        "ik",
        "impedance, everything",
    ),
)
def test_gradients_are_right(case: str, x64: None) -> None:
    """By gains, state and target: reverse equals forward equals central differences."""
    name, controller, extras = CASES[case]
    robot = robot_of(name)
    arguments = jax.tree.map(lambda x: x[0], draw(robot, controller, extras, 1))
    controller, arguments = jax.tree.map(lambda x: jnp.asarray(x, float), (controller, arguments))

    def effort(controller: Any, arguments: Any) -> Array:
        tau, _, _ = two_steps(robot, controller)(*arguments)
        return jnp.sum(tau**2)

    point = (controller, arguments)
    gradient = jax.jit(jax.grad(effort, argnums=(0, 1)))(*point)
    chex.assert_tree_all_finite(gradient)
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), point)
    rate = sum(jax.tree.leaves(jax.tree.map(lambda g, d: jnp.sum(g * d), gradient, direction)))
    forward = jax.jvp(effort, point, direction)[1]
    assert float(rate) == pytest.approx(float(forward), rel=1e-8)
    h = 1e-6
    at = [effort(*jax.tree.map(lambda x, d, s=s: x + s * h * d, point, direction)) for s in (-1, 1)]
    assert float(rate) == pytest.approx(float(at[1] - at[0]) / (2 * h), rel=1e-4)


@pytest.mark.slow
def test_gradients_are_finite_at_rest_at_the_target(x64: None) -> None:
    """Zero errors and velocities are where naive norms have gradients that are not numbers."""
    robot = robot_of("panda")
    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(7)
    target = PoseTarget(*dynamics.frame_pose(robot, q, "hand"))
    for controller in (OSC("hand", **RAMP), DifferentialIK("hand", **RAMP)):

        def effort(controller: Any, q: Array, target: Any) -> Array:
            tau, _, telemetry = two_steps(robot, controller)(q, v, target)
            return jnp.sum(tau**2) + telemetry["position_error"] + telemetry["orientation_error"]

        numbers = jax.tree.map(lambda x: jnp.asarray(x, float), controller)
        gradient = jax.jit(jax.grad(effort, argnums=(0, 1, 2)))(numbers, q, target)
        chex.assert_tree_all_finite(gradient)


def test_a_schedule_of_stiffness_is_an_input_of_a_scan(x64: None) -> None:
    """Gains that come with the target: as a policy would give them, step by step."""
    robot = robot_of("panda")
    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(7)
    start, rotation = jax.jit(lambda q: dynamics.frame_pose(robot, q, "hand"))(q)
    osc = OSC("hand")

    def step(carry: Any, kp: Array) -> Any:
        q, v, state = carry
        terms = dynamics.compute_terms(robot, q, v)
        goal = PoseTarget(start + 0.02, rotation, kp=jnp.full(6, kp), damping_ratio=jnp.ones(6))
        tau, state, telemetry = osc(robot, terms, goal, state, DT)
        tau, _, _ = MOTORS(robot, tau, v, ActuatorState(), DT)
        q, v = dynamics.step(robot, q, v, tau, DT, terms=terms)
        return (q, v, state), telemetry["position_error"]

    begin = (q, v, osc.init(robot, compute_terms(robot, q, v)))
    run = jax.jit(lambda kp: jax.lax.scan(step, begin, kp)[1])
    error = run(jnp.repeat(jnp.array([0.0, 400.0]), 300))
    np.testing.assert_allclose(error[:300], error[0], rtol=1e-3)  # no stiffness: it stays
    assert float(error[-1]) < 0.1 * float(error[300])
