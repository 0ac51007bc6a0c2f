"""What controllers refuse, and what they do about targets that are not finite."""

from __future__ import annotations

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import MOTORS, with_slow

import fraxenv
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
from fraxenv.errors import ArrayError, ConfigError, UnknownNameError

DT = 1e-3
POSE = PoseTarget(jnp.zeros(3), jnp.eye(3))


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


compute_terms = jax.jit(dynamics.compute_terms)


def call(robot: Robot, controller: Any, target: Any, state: Any = None) -> Any:
    terms = compute_terms(robot, robot.q_default, np.zeros(robot.nv))
    state = controller.init(robot, terms) if state is None else state
    return jax.eval_shape(lambda: controller(robot, terms, target, state, DT))


# --- Options --------------------------------------------------------------------------------------

NUMBERS = {
    OSC: (
        "kp damping_ratio posture_kp posture_damping_ratio max_linear_velocity max_angular_velocity"
        " singularity_damping singularity_threshold interpolation_time"
    ),
    DifferentialIK: (
        "kp posture_kp max_linear_velocity max_angular_velocity singularity_damping"
        " singularity_threshold interpolation_time gain limit_gain"
    ),
    JointImpedance: "kp damping_ratio",
    JointVelocity: "gain limit_gain",
    Torque: "",
}


def make(kind: type, **options: Any) -> Any:
    return kind("hand", **options) if kind in (OSC, DifferentialIK) else kind(**options)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in NUMBERS.items() for name in names.split()]
)
def test_negative_numbers_are_refused(kind: type, name: str) -> None:
    for value in (-1.0, np.nan, np.array([1.0, -1.0]), (1.0, -2.0), jnp.array(-1.0), "stiff"):
        with pytest.raises(ConfigError, match=rf"{kind.__name__}: {name}=.*of at least zero"):
            make(kind, **{name: value})
    make(kind, **{name: 0.0})


@pytest.mark.parametrize("kind", NUMBERS)
def test_every_number_is_checked(kind: type) -> None:
    static = {f.name for f in dataclasses.fields(kind) if f.metadata.get("static")}
    assert {*NUMBERS[kind].split(), *static} == {f.name for f in dataclasses.fields(kind)}


@pytest.mark.parametrize("kind", [OSC, DifferentialIK])
@pytest.mark.parametrize(
    ("name", "value"),
    [("task", "orientation"), ("posture", "home"), ("priority", "first"), ("end_effector", ())]
    + [("end_effector", x) for x in (["hand"], ("hand", "hand"), ("hand", 3), None)],
)
def test_unknown_options_are_refused(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{name}=.*, expected"):
        kind(**({"end_effector": "hand"} | {name: value}))


def test_other_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="decoupling='half', expected one of 'full', 'partial'"):
        OSC("hand", decoupling="half")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="decoupling='partial', expected one of 'full', 'none'"):
        JointImpedance(decoupling="partial")  # type: ignore[arg-type]


def test_options_of_environments_are_checked() -> None:
    with pytest.raises(ConfigError, match="OSC: kp=-5"):
        fraxenv.make("PandaReach-v0", controller_options={"kp": -5.0})


def test_what_jax_puts_in_the_place_of_numbers_is_not_checked() -> None:
    osc = OSC("hand", kp=jnp.full(6, 100.0))
    assert jax.tree.map(lambda _: -1, osc).kp == -1
    assert jax.tree.map(lambda _: None, osc).kp is None
    gradient = jax.grad(lambda c: -jnp.sum(c.kp))(osc)
    np.testing.assert_array_equal(gradient.kp, -np.ones(6))
    batch = jax.vmap(lambda kp: OSC("hand", kp=kp))(jnp.array([1.0, 2.0]))
    assert batch.kp.shape == (2,)


@pytest.mark.parametrize("kind", [OSC, DifferentialIK])
def test_unknown_frames_are_refused(panda: Robot, kind: Any) -> None:
    message = r"unknown frame 'hnad' of robot 'panda'.*'hand'"
    with pytest.raises(UnknownNameError, match=message):
        call(panda, kind("hnad"), POSE)
    with pytest.raises(UnknownNameError, match=message):
        kind("hnad")(panda, moving(panda), POSE, None, DT)
    with pytest.raises(UnknownNameError, match=message):
        call(panda, kind(("hand", "hnad")), POSE)


# --- Targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "shape"),
    [("position", (2, 3)), ("rotation", (4,)), ("velocity", (3,)), ("kp", (3,)), ("kp", ())],
)
@pytest.mark.parametrize("kind", [OSC, DifferentialIK])
def test_wrong_shapes_are_refused(panda: Robot, kind: Any, field: str, shape: Any) -> None:
    target = dataclasses.replace(POSE, **{field: jnp.ones(shape)})
    message = rf"{kind.__name__}: target.{field} has shape .*, expected .*batch them with jax.vmap"
    with pytest.raises(ArrayError, match=message):
        call(panda, kind("hand"), target)


def test_two_hands_need_two_rows() -> None:
    g1 = dynamics.load_robot("g1", floating_base=False)
    with pytest.raises(ArrayError, match=r"expected \(2, 3\): one row for each of 'left_hand', 'r"):
        call(g1, OSC(("left_hand", "right_hand")), POSE)


@pytest.mark.parametrize(
    ("controller", "target", "message"),
    [
        (OSC("hand", kp=np.ones(3)), POSE, r"kp has shape \(3,\), expected \(\) or \(6,\) or"),
        (OSC("hand", posture_kp=np.ones(3)), POSE, r"posture_kp has shape \(3,\)"),
        (DifferentialIK("hand", gain=np.ones(3)), POSE, r"gain has shape \(3,\)"),
        (JointImpedance(kp=np.ones(3)), JointTarget(jnp.zeros(7)), r"kp has shape \(3,\)"),
        (JointImpedance(), JointTarget(jnp.zeros(6)), r"target.position has shape \(6,\)"),
        (JointVelocity(), jnp.zeros(6), r"JointVelocity: the target has shape \(6,\)"),
        (Torque(), jnp.zeros((2, 7)), r"Torque: the target has shape \(2, 7\)"),
    ],
)
def test_other_wrong_shapes_are_refused(
    panda: Robot, controller: Any, target: Any, message: str
) -> None:
    with pytest.raises(ArrayError, match=message):
        call(panda, controller, target)


@pytest.mark.parametrize(
    ("controller", "target", "message"),
    [
        (OSC("hand"), jnp.zeros(6), "OSC: the target is a .*, expected a PoseTarget"),
        (JointImpedance(), POSE, "JointImpedance: the target is a PoseTarget, expected a JointTar"),
        (
            DifferentialIK("hand"),
            dataclasses.replace(POSE, wrench=jnp.zeros(6)),
            "DifferentialIK: the target has 'wrench', expected None.*Use OSC",
        ),
    ],
)
def test_other_targets_are_refused(
    panda: Robot, controller: Any, target: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        call(panda, controller, target)


@pytest.mark.parametrize("kind", [OSC, DifferentialIK])
def test_a_state_of_another_controller_is_refused(panda: Robot, kind: Any) -> None:
    with pytest.raises(ConfigError, match="interpolation_time is set, and the state has no set-po"):
        kind("hand", interpolation_time=1.0)(panda, moving(panda), POSE, None, DT)


# --- Targets that are not finite ------------------------------------------------------------------


def pose_targets(bad: float) -> list[PoseTarget]:
    """One for each array that a target may have, with a bad number somewhere in it."""
    full = {
        "position": jnp.array([0.4, 0.0, 0.5]),
        "rotation": jnp.diag(jnp.array([1.0, -1.0, -1.0])),
        **{n: jnp.ones(6) for n in ("velocity", "acceleration", "wrench", "kp", "damping_ratio")},
    }
    return [
        PoseTarget(**{n: x.at[(1,) * x.ndim].set(bad) if n == name else x for n, x in full.items()})
        for name in full
    ]


def moving(robot: Robot) -> dynamics.Terms:
    return compute_terms(robot, robot.q_default, 0.5 * np.ones(7))


@jax.jit
def controlled(
    robot: Robot, controller: Any, terms: dynamics.Terms, target: Any, state: Any
) -> tuple[Array, Any, Any]:
    """One program for all targets of a kind."""
    return controller(robot, terms, target, state, DT)


def check_brakes(robot: Robot, controller: Any, target: Any) -> None:
    """Torques are finite, reported as such, and take energy out of the robot."""
    terms = moving(robot)
    state = controller.init(robot, terms)
    tau, state, telemetry = controlled(robot, controller, terms, target, state)
    assert not bool(telemetry["target_finite"])
    chex.assert_tree_all_finite((tau, state, telemetry))
    assert float((tau - terms.bias) @ terms.v) < 0


@pytest.mark.parametrize("bad", with_slow([np.nan, np.inf, -np.inf], np.inf, -np.inf))
@pytest.mark.parametrize(
    "options",
    with_slow([{}, {"interpolation_time": 0.02}, {"task": "position"}], {"task": "position"}),
)
def test_osc_brakes(panda: Robot, bad: float, options: Any) -> None:
    for target in pose_targets(bad):
        check_brakes(panda, OSC("hand", **options), target)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_differential_ik_brakes(panda: Robot, bad: float) -> None:
    for target in pose_targets(bad)[:3]:
        target = dataclasses.replace(target, acceleration=None, wrench=None, damping_ratio=None)
        check_brakes(panda, DifferentialIK("hand", interpolation_time=0.1), target)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_joint_controllers_brake(panda: Robot, bad: float) -> None:
    wrong = jnp.ones(7).at[3].set(bad)
    for field in ("position", "velocity", "acceleration", "torque", "kp", "damping_ratio"):
        target = JointTarget(**({"position": jnp.ones(7)} | {field: wrong}))
        check_brakes(panda, JointImpedance(), target)
    check_brakes(panda, JointVelocity(), wrong)
    check_brakes(panda, Torque(), wrong)
    check_brakes(panda, Torque(gravity_compensation=True), wrong)


def test_a_hand_stops_and_goes_on_when_the_target_is_back(panda: Robot) -> None:
    start, rotation = jax.jit(lambda q: dynamics.frame_pose(panda, q, "hand"))(panda.q_default)
    goal = start + jnp.array([0.0, 0.3, 0.0])
    osc = OSC("hand", interpolation_time=0.02)

    def step(carry: Any, finite: Any) -> Any:
        q, v, state = carry
        terms = dynamics.compute_terms(panda, q, v)
        target = PoseTarget(jnp.where(finite, goal, jnp.nan), rotation)
        tau, state, telemetry = osc(panda, terms, target, state, DT)
        tau, _, _ = MOTORS(panda, tau, v, ActuatorState(), DT)
        q, v = dynamics.step(panda, q, v, tau, DT, terms=terms)
        return (q, v, state), (dynamics.frame_pose(panda, q, "hand")[0], telemetry)

    q, v = jnp.asarray(panda.q_default, float), jnp.zeros(7)
    state = osc.init(panda, compute_terms(panda, q, v))
    finite = (jnp.arange(2500) < 200) | (jnp.arange(2500) >= 1000)
    _, (hand, telemetry) = jax.jit(lambda c: jax.lax.scan(step, c, finite))((q, v, state))
    np.testing.assert_array_equal(telemetry["target_finite"], finite)
    stopped = np.asarray(hand[700:999])
    assert np.abs(stopped - stopped[0]).max() < 5e-3  # nearly at rest, and not at the goal
    assert np.linalg.norm(stopped[0] - goal) > 0.05
    assert np.linalg.norm(hand[-1] - goal) < 1e-3


def test_gains_that_come_with_a_target_are_never_negative(panda: Robot, x64: None) -> None:
    terms = moving(panda)

    @jax.jit
    def torque(kp: float) -> Any:
        target = dataclasses.replace(POSE, kp=jnp.full(6, kp))
        return OSC("hand")(panda, terms, target, None, DT)[0]

    np.testing.assert_array_equal(torque(-100.0), torque(0.0))
    assert bool(jnp.all(jnp.isfinite(torque(0.0))))


def test_no_stiffness_and_no_damping_are_finite(panda: Robot, x64: None) -> None:
    terms = moving(panda)

    @jax.jit
    def torque(osc: OSC, position: Any) -> Any:
        target = dataclasses.replace(POSE, position=position)
        return osc(panda, terms, target, None, DT)[0]

    for kp in (0.0, 100.0):
        for ratio in (0.0, 1.0):
            osc = OSC("hand", kp=kp, damping_ratio=ratio, singularity_threshold=1.0)
            assert bool(jnp.all(jnp.isfinite(torque(osc, POSE.position))))
    undamped = OSC("hand", damping_ratio=0.0)
    jacobian = jax.jit(jax.jacrev(torque, argnums=1))(undamped, POSE.position)
    assert bool(jnp.all(jnp.isfinite(jacobian)))
    # An undamped spring has no speed at which it balances, and is not weakened by the limits.
    pure = dataclasses.replace(undamped, max_linear_velocity=np.inf, max_angular_velocity=np.inf)
    np.testing.assert_array_equal(torque(undamped, POSE.position), torque(pure, POSE.position))
