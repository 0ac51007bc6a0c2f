"""Time of one control step of a Panda, beside frax's functions in the same run.

    python scripts/measure/measure_controllers.py
    python scripts/measure/measure_controllers.py --x64

From joint positions and velocities and a pose to torques (operational space control) or to joint
velocities (differential inverse kinematics), one robot at a time: as a native kernel for a batch of
one, as the Gymnasium environments run it, and by `jax.jit`. frax computes the same laws with its
own functions: in the way of its examples (which leave out `Jdot v`, and weigh the inverse
kinematics by the inertia), and with Cholesky solves. All load our URDF of the Panda. Needs the
extra `bench`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from rich.console import Console
from rich.table import Table

from fraxenv import controllers, dynamics
from fraxenv.controllers import OSC, DifferentialIK, PoseTarget
from fraxenv.dynamics.model.bundled import bundled_urdf
from fraxenv.errors import import_extra
from fraxenv.kernels import fusible

CALLS = 50  # timed one after the other before the next contender has its turn
ROUNDS = 60
DT = 1e-3

Law = Callable[[Array, Array, Array, Array], Array]  # of q, v, position, rotation
"""From `q`, `v` and the hand's desired position and rotation to what is commanded."""

ROBOT = dynamics.load_robot("panda")
OSC_LAW = OSC("hand")
MOTORS = dynamics.Actuators()
IK_LAW = DifferentialIK("hand")


# --- fraxenv --------------------------------------------------------------------------------------


def our_osc(q: Array, v: Array, position: Array, rotation: Array) -> Array:
    terms = dynamics.compute_terms(ROBOT, q, v)
    state = OSC_LAW.init(ROBOT, terms)
    tau, _, _ = OSC_LAW(ROBOT, terms, PoseTarget(position, rotation), state, DT)
    return MOTORS(ROBOT, tau, v, dynamics.ActuatorState(), DT)[0]


def our_ik(q: Array, v: Array, position: Array, rotation: Array) -> Array:
    terms = dynamics.compute_terms(ROBOT, q, v)
    target = PoseTarget(position, rotation)
    return controllers.differential_ik(IK_LAW, ROBOT, terms, target)[0]


def our_ik_torque(q: Array, v: Array, position: Array, rotation: Array) -> Array:
    terms = dynamics.compute_terms(ROBOT, q, v)
    state = IK_LAW.init(ROBOT, terms)
    return IK_LAW(ROBOT, terms, PoseTarget(position, rotation), state, DT)[0]


def native(law: Law) -> Law:
    """The law of one robot as a kernel for a batch of one."""
    batch = jax.vmap(fusible(law, "native"))

    def single(*arguments: Array) -> Array:
        return batch(*(x[None] for x in arguments))[0]

    return jax.jit(single)


# --- frax -----------------------------------------------------------------------------------------


def load_frax() -> Any:
    """The manipulator of frax of our URDF, with our hand's frame."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it advises flags
        frax = import_extra("frax", "bench", "The comparison")
    plain = frax.Manipulator(str(bundled_urdf("panda")))
    last = np.asarray(plain.joint_to_world_transforms(np.zeros(7))[-1], float)
    hand = np.eye(4)
    hand[:3, 3], hand[:3, :3] = dynamics.frame_pose(ROBOT, np.zeros(7), "hand")
    return frax.Manipulator(str(bundled_urdf("panda")), ee_offset=np.linalg.solve(last, hand))


def frax_laws() -> dict[str, dict[str, Law]]:
    theirs = load_frax()
    q_default, effort = np.asarray(ROBOT.q_default), np.asarray(ROBOT.effort_limits)
    speed = np.asarray(ROBOT.velocity_limits)

    def error(hand: Array, position: Array, rotation: Array) -> Array:
        turn = dynamics.orientation_error(rotation, hand[:3, :3])
        return jnp.concatenate([position - hand[:3, 3], turn])

    def osc_example(q: Array, v: Array, position: Array, rotation: Array) -> Array:
        M, M_inv, gravity, coriolis, J, hand = theirs.torque_control_matrices(q, v)
        inertia = jnp.linalg.inv(J @ M_inv @ J.T)
        J_bar = M_inv @ J.T @ inertia
        wanted = 150.0 * error(hand, position, rotation) - 2 * 150.0**0.5 * (J @ v)
        posture = M @ (10.0 * (q_default - q) - 2 * 10.0**0.5 * v)
        nullspace = jnp.eye(7) - J.T @ J_bar.T
        tau = J.T @ (inertia @ wanted) + gravity + coriolis + nullspace @ posture
        return jnp.clip(tau, -effort, effort)

    def osc_cholesky(q: Array, v: Array, position: Array, rotation: Array) -> Array:
        J, J_dot = theirs.ee_jacobian_and_derivative(q, v)
        M = theirs.crba(q)
        u = 10.0 * (q_default - q) - 2 * 10.0**0.5 * v
        wanted = 150.0 * error(theirs.ee_transform(q), position, rotation)
        wanted = wanted - 2 * 150.0**0.5 * (J @ v) - J_dot @ v - J @ u
        inverse = J @ jax.scipy.linalg.solve(M, J.T, assume_a="pos")
        force = jax.scipy.linalg.solve(inverse, wanted, assume_a="pos")
        tau = J.T @ force + M @ u + theirs.nonlinear_bias(q, v)
        return jnp.clip(tau, -effort, effort)

    def ik_example(q: Array, v: Array, position: Array, rotation: Array) -> Array:
        M_inv, J, hand = theirs.dynamically_consistent_velocity_control_matrices(q)
        J_bar = M_inv @ J.T @ jnp.linalg.inv(J @ M_inv @ J.T)
        u = 2.0 * (q_default - q)
        command = J_bar @ (10.0 * error(hand, position, rotation)) + u - J_bar @ (J @ u)
        return jnp.clip(command, -speed, speed)

    def ik_cholesky(q: Array, v: Array, position: Array, rotation: Array) -> Array:
        J, hand = theirs.velocity_control_matrices(q)
        u = 2.0 * (q_default - q)
        wanted = 10.0 * error(hand, position, rotation) - J @ u
        command = J.T @ jax.scipy.linalg.solve(J @ J.T, wanted, assume_a="pos") + u
        return jnp.clip(command, -speed, speed)

    return {
        "operational space control": {
            "frax, as in its example": osc_example,
            "frax, Cholesky": osc_cholesky,
        },
        "differential inverse kinematics": {
            "frax, as in its example": ik_example,
            "frax, Cholesky": ik_cholesky,
        },
    }


# --- The run --------------------------------------------------------------------------------------


def arguments() -> list[Array]:
    """A state near the ready posture, and a target 4 cm away: where no limit is reached."""
    rng = np.random.default_rng(0)
    q = np.asarray(ROBOT.q_default) + rng.uniform(-0.1, 0.1, 7)
    position, rotation = dynamics.frame_pose(ROBOT, q, "hand")
    goal = position + jnp.array([0.02, -0.03, 0.02])
    return [jnp.asarray(x, float) for x in (q, rng.uniform(-0.05, 0.05, 7), goal, rotation)]


def measure(programs: dict[str, Law], given: list[Array]) -> dict[str, np.ndarray]:
    """Microseconds of every call, the contenders in turns."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        jax.block_until_ready(program(*given))
    for _ in range(ROUNDS):
        for name, program in programs.items():
            for _ in range(CALLS):
                began = time.perf_counter_ns()
                jax.block_until_ready(program(*given))
                times[name].append((time.perf_counter_ns() - began) / 1e3)
    return {name: np.array(us) for name, us in times.items()}


def table(title: str, programs: dict[str, Law], reference: str, given: list[Array]) -> Table:
    """Medians and spread, and how far each result is from that of the reference."""
    expected = np.asarray(programs[reference](*given))
    shown = Table("", "median, us", "5 %", "95 %", "ratio", "difference", title=title)
    times = measure(programs, given)
    base = np.median(times[reference])
    for name, us in times.items():
        low, middle, high = np.percentile(us, [5, 50, 95])
        result = np.asarray(programs[name](*given))
        comparable = "torque" not in name
        difference = np.abs(result - expected).max() / np.abs(expected).max()
        shown.add_row(
            name,
            f"{middle:.1f}",
            f"{low:.1f}",
            f"{high:.1f}",
            f"{middle / base:.2f}",
            f"{difference:.0e}" if comparable else "-",
        )
    return shown


def main() -> None:
    if "--x64" in sys.argv[1:]:
        jax.config.update("jax_enable_x64", True)
    ours: dict[str, dict[str, Law]] = {
        "operational space control": {
            "fraxenv, native": native(our_osc),
            "fraxenv, jit": jax.jit(our_osc),
        },
        "differential inverse kinematics": {
            "fraxenv, native": native(our_ik),
            "fraxenv, jit": jax.jit(our_ik),
            "fraxenv with torques, native": native(our_ik_torque),
        },
    }
    console, given = Console(), arguments()
    for title, laws in frax_laws().items():
        programs = ours[title] | {name: jax.jit(law) for name, law in laws.items()}
        precision = jnp.result_type(float).name
        console.print(table(f"{title}, {precision}", programs, "fraxenv, native", given))


if __name__ == "__main__":
    main()
