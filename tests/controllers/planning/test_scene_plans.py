"""Plans that touch: what is pushed arrives in MuJoCo as well."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv import dynamics, plan
from fraxenv.controllers.planning import motion
from fraxenv.dynamics import Scene, build_scene, motor_actuator, position_actuator
from fraxenv.dynamics.scene.actuators import JointActuator, joint_actuators
from fraxenv.errors import ArrayError, ConfigError

DT, N = 0.005, 70

CART = """<robot name="{name}"><link name="{name}_base"/><link name="{name}">
<inertial><mass value="0.4"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><geometry><sphere radius="0.05"/></geometry></collision></link>
<joint name="{name}" type="prismatic"><parent link="{name}_base"/><child link="{name}"/>
<axis xyz="1 0 0"/><origin xyz="{start} 0 0"/><dynamics damping="{damping}"/>
<limit lower="-9" upper="9" effort="{effort}" velocity="9"/></joint></robot>"""
"""A ball on a rail."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """One that is driven, and before it another that is not."""
    made = []
    for name, start, damping, effort in (("cue", 0.0, 0.0, 8.0), ("ball", 0.12, 2.0, 0.0)):
        path = tmp_path_factory.mktemp("carts") / f"{name}.urdf"
        path.write_text(CART.format(name=name, start=start, damping=damping, effort=effort))
        made.append(dynamics.load_urdf(path))
    return build_scene(made[0], [made[1]], timestep=DT)


def driven(scene: Scene, actuator: JointActuator) -> Scene:
    return scene.replace(actuators=joint_actuators(scene.system, [actuator], "scene"))


def pushing(model: Scene, **options: object) -> plan.Problem:
    """The ball to where it is not yet, in 0.35 s."""
    running = {"effort": plan.torque(0.0, 1e-3)}
    there = plan.position("ball", [0.3, 0.0, 0.0], 1e3)
    return plan.Problem(
        model, horizon=N, dt=DT, running=running,
        terminal={"there": there, "still": plan.velocity(0.0, 1.0)}, **options,
    )  # fmt: skip


def test_the_ball_is_pushed_to_its_place(scene: Scene, x64: None) -> None:
    mujoco = pytest.importorskip("mujoco")
    problem, zero = pushing(scene, control_limits=True), np.zeros(2)
    push = np.tile([4.0, 1.0], (N, 1))

    @jax.jit
    def solve(push: jax.Array) -> tuple[plan.Guess, plan.Plan]:
        first = plan.guess(problem, zero, tau=push)
        return first, plan.solve(problem, (zero, zero), first)

    first, found = solve(push)
    assert (first.tau[:, 1] == 0).all()
    assert first.q[-1, 1] > 0.01
    assert plan.STATUS[int(found.status)] == "converged"
    assert found.gap < 1e-9
    assert (np.abs(found.tau) <= [8.0, 0.0]).all()
    assert (np.abs(found.tau[:, 0]) == 8.0).sum() > 3
    # It is touched, and then rolls on alone: the other one is left behind.
    apart = found.q[:, 1] + 0.12 - found.q[:, 0] - 0.1
    assert apart[0] > 0.01
    assert apart.min() < 0
    assert np.abs(found.q[-1, 1] - 0.18) < 2e-3

    model = scene.to_mujoco()
    model.opt.tolerance, model.opt.iterations = 0.0, 100
    data = mujoco.MjData(model)
    for tau in np.asarray(found.tau):
        data.qfrc_applied[:] = tau
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(data.qpos, found.q[-1], atol=1e-8)


@pytest.mark.slow
def test_exact_hessians_are_those_of_differences_of_first_ones(scene: Scene, x64: None) -> None:
    """Of the step by the state and the torques, while they touch."""
    problem, h, n = pushing(scene), 1e-6, 2
    draw = np.random.default_rng(0)
    # Some tenths of a millimetre in, where impedance grows with depth.
    q, v, tau, costate = [0.0203, 0.0], [0.3, 0.1], np.ones(2), draw.normal(size=4)
    q, v = np.array(q), np.array(v)

    def of_first(z: jax.Array) -> jax.Array:
        terms = dynamics.compute_terms(scene.system, q + z[:n], v + z[n : 2 * n])
        A, B = motion.linearised(problem, terms, tau + z[2 * n :], None)
        return costate @ jnp.concatenate([A, B], axis=1)

    terms = dynamics.compute_terms(scene.system, q, v)
    found = jax.jit(lambda: motion.curvature(problem, terms, jnp.asarray(tau), costate, None))()
    first = jax.jit(of_first)
    steps = h * np.eye(3 * n)
    expected = np.stack([(first(e) - first(-e)) / (2 * h) for e in steps])
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_nothing_drives_what_has_no_motor(scene: Scene) -> None:
    problem = pushing(scene)
    assert problem.robot is scene.system
    assert problem.scene is scene
    lower, upper = problem.control_limits
    np.testing.assert_array_equal(upper, [np.inf, 0.0])
    np.testing.assert_array_equal(lower, [-np.inf, 0.0])
    bound = jnp.array([1.0, 2.0])
    given = pushing(scene, control_limits=(-bound, bound)).control_limits
    np.testing.assert_array_equal(given[1], bound)
    system = scene.system.replace(effort_limits=np.array([8.0, 5.0]))
    strong = dataclasses.replace(scene, system=system)
    np.testing.assert_array_equal(pushing(strong, control_limits=True).control_limits[1], [8, 5])
    # Where the first has a motor the second has none.
    for limits, most in ((True, 8.0), (None, np.inf)):
        found = pushing(driven(strong, motor_actuator("cue")), control_limits=limits)
        np.testing.assert_array_equal(found.control_limits[1], [most, 0.0])


def test_what_cannot_be_planned_is_told(scene: Scene) -> None:
    with pytest.raises(ConfigError, match="has servos, which would act beside"):
        pushing(driven(scene, position_actuator("cue", 10.0)))
    with pytest.raises(ArrayError, match=r"guess: tau has shape \(3, 2\), expected \(70, 2\)"):
        plan.guess(pushing(scene), np.zeros(2), tau=np.zeros((3, 2)))
