"""Derivatives of a scene's step: against MuJoCo's differences, JAX's own, and each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from contact_scenes import EQUALITIES, cube, grasp, option, pregrasp, quadruped
from jax import Array
from scenes import SOURCES
from support import with_slow

from fraxenv import dynamics
from fraxenv.dynamics import Scene
from fraxenv.dynamics.scene.step import scene_step
from fraxenv.errors import ConfigError

FAST = {"xla_backend_optimization_level": 0}

SERVO = f"""<mujoco>{option()}<worldbody><body><joint name="upper" axis="0 1 0" damping=".1"
 range="-20 20" stiffness="2" frictionloss=".2"/><geom type="capsule" size=".02 .2" mass=".3"/>
<body pos="0 0 .4"><joint name="lower" axis="1 0 0"/><geom size=".05" pos=".1 0 0" mass=".2"/>
</body></body></worldbody><actuator><position joint="upper" kp="200" kv="3"/>
<velocity joint="lower" kv="2"/></actuator></mujoco>"""

MODELS: dict[str, Callable[[], mujoco.MjModel]] = {
    "cube": lambda: mujoco.MjModel.from_xml_string(cube()),
    "cube, pyramidal": lambda: mujoco.MjModel.from_xml_string(cube("pyramidal")),
    "quadruped": lambda: mujoco.MjModel.from_xml_string(quadruped(condim=4)),
    "quadruped, pyramidal": lambda: mujoco.MjModel.from_xml_string(quadruped("pyramidal")),
    "grasp": lambda: mujoco.MjModel.from_xml_string(grasp()),
    "grasp, pyramidal": lambda: mujoco.MjModel.from_xml_string(grasp("pyramidal")),
    "equalities": lambda: mujoco.MjModel.from_xml_string(EQUALITIES),
    "servo": lambda: mujoco.MjModel.from_xml_string(SERVO),
    **{
        name: lambda name=name: mujoco.MjModel.from_xml_path(str(SOURCES[name]))
        for name in ("gripper_arm", "servos", "balls", "hand")
    },
}
QUICK = [("servo", "discrete")]
SLOW = [
    ("cube", "euler"),
    ("cube", "implicitfast"),
    ("cube, pyramidal", "euler"),
    ("quadruped", "euler"),
    ("quadruped, pyramidal", "implicitfast"),
    ("grasp", "euler"),
    ("grasp", "discrete"),
    ("grasp, pyramidal", "euler"),
    ("equalities", "euler"),
    ("gripper_arm", "implicitfast"),
    ("servos", "implicitfast"),
    ("servos", "discrete"),
    ("balls", "euler"),
    ("hand", "implicitfast"),
]
CASES = [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
STATES = 4

PUSH = 10.0
"""m/s^2 or rad/s^2, of what moves by itself, about."""

TOUCHING = f"""<mujoco>{option()}<worldbody>
<geom name="{{name}}0" type="{{kind}}" size="{{size}}" mass="1"/>
<body name="{{name}}1" pos="0 0 .05"><freejoint/>
<geom name="{{name}}1" type="{{kind}}" size="{{size}}" mass="1"/></body></worldbody></mujoco>"""


def model_and_scene(name: str) -> tuple[mujoco.MjModel, Scene]:
    """The model, solved to convergence."""
    model = MODELS[name]()
    model.opt.tolerance, model.opt.iterations, model.opt.ls_iterations = 0, 200, 200
    return model, dynamics.load_mjcf(model)


def states(model: mujoco.MjModel, n: int = STATES) -> tuple[np.ndarray, ...]:
    """States (n, ...) of a random motion: q, v, generalized forces, controls, accelerations."""
    data, rng, found = mujoco.MjData(model), np.random.default_rng(0), []
    if model.nq == 16 and model.nu == 9:
        data.qpos[:] = pregrasp(model)
    for step in range(90 + 30 * n):
        if step % 10 == 0:
            # In proportion to inertia: nothing light flies apart.
            data.qfrc_applied[:] = PUSH * rng.normal(size=model.nv) / model.dof_invweight0
            data.ctrl[:] = data.qpos[: model.nu] if model.nu == 9 else 0.3
            data.ctrl[:] += 0.05 * rng.normal(size=model.nu)
            if model.nu == 9:
                data.ctrl[7:] = -10
        mujoco.mj_step(model, data)
        if step >= 90 and step % 30 == 0:
            s = (data.qpos, data.qvel, data.qfrc_applied, data.ctrl, data.qacc)
            found.append([np.array(x) for x in s])
    return tuple(np.stack(x) for x in zip(*found, strict=True))


def automatic(scene: Scene, integrator: str) -> Callable[..., tuple[Array, Array, Array]]:
    """A, B and the part of the controls, by JAX differentiating the step."""

    def derivatives(q: Array, v: Array, tau: Array, ctrl: Array, warm: Array) -> Any:
        def step(q: Array, v: Array, tau: Array, ctrl: Array) -> tuple[Array, Array]:
            return scene_step(scene, q, v, tau, None, warm, integrator, ctrl)[:2]

        q1, _ = step(q, v, tau, ctrl)

        def moved(dq: Array, v: Array, tau: Array, ctrl: Array) -> Array:
            q2, v2 = step(dynamics.integrate(scene.system, q, dq, 1.0), v, tau, ctrl)
            return jnp.concatenate([dynamics.difference(scene.system, q1, q2), v2])

        J = jax.jacfwd(moved, (0, 1, 2, 3))(jnp.zeros_like(v), v, tau, ctrl)
        return jnp.concatenate(J[:2], axis=1), J[2], J[3]

    return derivatives


def closed(scene: Scene, integrator: str) -> Callable[..., Any]:
    def derivatives(q: Array, v: Array, tau: Array, ctrl: Array, warm: Array) -> Any:
        return dynamics.contact_transition_derivatives(
            scene, q, v, tau, None, warm, integrator, ctrl
        )

    return derivatives


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.vmap(f), compiler_options=FAST)


@pytest.mark.parametrize(("name", "integrator"), CASES)
def test_closed_forms_are_the_automatic_derivatives(name: str, integrator: str) -> None:
    with jax.enable_x64(True):
        model, scene = model_and_scene(name)
        arrays = states(model)
        ours = compiled(closed(scene, integrator))(*arrays)
        theirs = compiled(automatic(scene, integrator))(*arrays)
        for a, b in zip(ours, theirs, strict=True):
            assert np.abs(a - b).max(initial=0) <= 1e-10 * np.abs(b).max(initial=0)


@pytest.mark.parametrize(
    ("name", "integrator"),
    [
        ("cube", "euler"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in SLOW
            if case[1] != "discrete" and case[0] != "balls"
        ),
    ],
)
@pytest.mark.slow
def test_transitions_equal_mujoco_s_differences(name: str, integrator: str) -> None:
    """Where differences of two sizes disagree, they cross a border of zones, or are noise."""
    kinds = mujoco.mjtIntegrator
    with jax.enable_x64(True):
        model, scene = model_and_scene(name)
        model.opt.integrator = getattr(kinds, f"mjINT_{integrator.upper()}")
        arrays = states(model)
        ours = compiled(closed(scene, integrator))(*arrays)
        touching = compiled(lambda q: dynamics.contacts(scene, q).active)(arrays[0]).sum(axis=1)
    data, nv, nu = mujoco.MjData(model), model.nv, model.nu
    agree = total = 0
    for k in range(STATES):
        data.qpos, data.qvel, data.qfrc_applied, data.ctrl, data.qacc_warmstart = (
            x[k] for x in arrays
        )
        mujoco.mj_forward(model, data)
        # `servos` has a capsule whose axis lies in the face of a box: which contacts there are is
        # a matter of rounding, and tested by itself.
        if data.ncon != touching[k]:
            continue
        data.qacc_warmstart = arrays[-1][k]
        found = []
        for size in (2e-6, 1e-6):
            A, B = np.zeros((2 * nv, 2 * nv)), np.zeros((2 * nv, nu))
            mujoco.mjd_transitionFD(model, data, size, True, A, B, None, None)
            found.append(np.concatenate([A, B], axis=1))
        whole = np.concatenate([ours.A[k], ours.B_ctrl[k]], axis=1)
        scale = np.abs(whole).max()
        smooth = np.abs(found[0] - found[1]).max(axis=0) < 1e-6 * scale
        agree += np.sum(np.abs(whole - found[1]).max(axis=0)[smooth] < 1e-6 * scale)
        total += smooth.sum()
    assert total > 0.5 * STATES * (2 * nv + nu)
    assert agree == total


def rolled(scene: Scene, q: Array, v: Array, tau: Array, steps: int = 30) -> Array:
    """How far and how fast a scene is after some steps, as one number."""

    def one(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        q, v, warm = carry
        q, v, solved = scene_step(scene, q, v, tau, warm_start=warm)
        return (q, v, solved.acceleration), None

    (q, v, _), _ = jax.lax.scan(one, (q, v, jnp.zeros_like(v)), length=steps)
    weights = jnp.linspace(0.5, 1.5, len(v))
    return jnp.sum(jnp.tanh(v) * weights) + 10 * jnp.sum(q[:3] * weights[:3])


def thrown() -> tuple[Array, Array, Array]:
    """A box tilted above the floor, which it hits and slides on."""
    q = jnp.array([0.0, 0.0, 0.046, 0.97, 0.15, 0.2, 0.05])
    return (
        q / jnp.ones(7).at[3:].set(jnp.linalg.norm(q[3:])),
        jnp.array([0.5, 0.2, -0.4, 0.3, 0.5, 0.1]),
        jnp.array([0.1, 0.0, -0.3, 0.0, 0.01, 0.0]),
    )


@pytest.mark.slow
def test_gradients_through_many_steps() -> None:
    """In reverse through a scan of steps that touch, stick and slip; and the adjoint identity."""
    with jax.enable_x64(True):
        scene = dynamics.soften(model_and_scene("cube")[1])
        q, v, tau = thrown()

        def f(v: Array, tau: Array) -> Array:
            return rolled(scene, q, v, tau)

        value = jax.jit(f, compiler_options=FAST)
        gradient = jax.jit(jax.grad(f, (0, 1)), compiler_options=FAST)
        pushed = jax.jit(lambda at, along: jax.jvp(f, at, along)[1], compiler_options=FAST)
        gradients, rng, h = gradient(v, tau), np.random.default_rng(0), 1e-7
        for _ in range(3):
            along = tuple(rng.normal(size=6) for _ in range(2))
            forward = pushed((v, tau), along)
            reverse = sum(np.sum(g * d) for g, d in zip(gradients, along, strict=True))
            np.testing.assert_allclose(reverse, forward, rtol=1e-9)
            ends = [value(v + s * h * along[0], tau + s * h * along[1]) for s in (1, -1)]
            np.testing.assert_allclose(forward, (ends[0] - ends[1]) / (2 * h), rtol=1e-5)


PARAMETERS = {"mass": 1.1, "friction": 0.7, "solref": 0.015, "solimp": 0.93, "size": 0.03}


def with_parameters(scene: Scene, p: dict[str, Array]) -> Scene:
    """The cube with other numbers."""
    mass = jnp.asarray(scene.system.mass) * p["mass"]
    scene = scene.with_system(scene.system.replace(mass=mass))
    for name in ("floor", "cube"):
        scene = scene.with_geom(
            name,
            friction=p["friction"],
            solref=jnp.stack([p["solref"], jnp.array(1.0)]),
            solimp=jnp.array([0.5, 0.0, 1e-3, 0.5, 2.0]).at[1].set(p["solimp"]),
        )
    return scene.with_geom("cube", size=jnp.array([0.05, 0.04, 0.0]).at[2].set(p["size"]))


@pytest.mark.slow
def test_gradients_by_parameters() -> None:
    with jax.enable_x64(True):
        scene = model_and_scene("cube")[1]
        q = jnp.array([0.0, 0, 0.0295, 1, 0, 0, 0])
        v, tau = jnp.array([0.3, 0.1, 0, 0, 0, 0.2]), jnp.zeros(6)

        def f(p: dict[str, Array]) -> Array:
            return rolled(with_parameters(scene, p), q, v, tau, steps=5)

        value_at = jax.jit(f, compiler_options=FAST)
        at = {name: jnp.asarray(x) for name, x in PARAMETERS.items()}
        gradient = jax.jit(jax.grad(f), compiler_options=FAST)(at)
        for name, value in at.items():
            h = 1e-6 * value
            ends = [value_at({**at, name: value + s * h}) for s in (1, -1)]
            assert abs(gradient[name]) > 1e-6, name
            difference = (ends[0] - ends[1]) / (2 * h)
            np.testing.assert_allclose(gradient[name], difference, rtol=1e-5, err_msg=name)


@pytest.mark.slow
def test_gradients_by_gains() -> None:
    with jax.enable_x64(True):
        model, scene = model_and_scene("servos")
        q, v, tau, ctrl, _ = (x[0] for x in states(model, 1))

        def f(scale: Array) -> Array:
            actuators = scene.actuators
            changed = jax.tree.map(lambda x: x, actuators)
            changed = type(actuators)(
                **{
                    **{k: getattr(actuators, k) for k in actuators.__dataclass_fields__},
                    "gain": jnp.asarray(actuators.gain) * scale,
                    "bias": jnp.asarray(actuators.bias) * scale,
                }
            )
            return jnp.sum(scene_step(scene.replace(actuators=changed), q, v, tau, ctrl=ctrl)[1])

        h, one = 1e-6, jnp.array(1.0)
        difference = (f(one + h) - f(one - h)) / (2 * h)
        assert abs(difference) > 1e-6
        np.testing.assert_allclose(jax.grad(f)(one), difference, rtol=1e-6)


@pytest.mark.parametrize("kind", with_slow(["sphere", "capsule", "box"], "box", "capsule"))
@pytest.mark.slow
def test_derivatives_are_finite_in_degenerate_poses(kind: str) -> None:
    """Edge on edge, centres and axes that coincide, geoms that just touch or are far apart."""
    size = {"box": ".05 .05 .05", "sphere": ".05", "capsule": ".05 .1"}[kind]
    xml = TOUCHING.format(name=kind, kind=kind, size=size)
    turn = np.array([np.cos(np.pi / 8), 0, 0, np.sin(np.pi / 8)])
    edge = np.array([np.cos(np.pi / 8), np.sin(np.pi / 8), 0, 0])
    level = np.array([1.0, 0, 0, 0])
    poses = [
        np.concatenate([p, r])
        for p in ([0, 0, 0], [0, 0, 0.1], [0, 0, 0.0999], [0.1, 0.1, 0], [0, 0, 0.12], [9, 0, 0])
        for r in (level, turn, edge)
    ]
    with jax.enable_x64(True):
        scene = dynamics.load_mjcf(xml)
        n, zero = len(poses), np.zeros(6)

        def gradient(q: Array, v: Array) -> Array:
            return jax.grad(lambda v: scene_step(scene, q, v, zero)[1].sum())(v)

        f, g = compiled(closed(scene, "euler")), compiled(gradient)
        for v in (zero, np.array([0.1, 0, -0.1, 0, 0, 0])):
            found = f(np.stack(poses), *(np.tile(x, (n, 1)) for x in (v, zero, zero[:0], zero)))
            assert all(np.isfinite(x).all() for x in found)
            assert np.isfinite(g(np.stack(poses), np.tile(v, (n, 1)))).all()


def test_soft_contacts_begin_with_no_force() -> None:
    """The step of the acceleration at touch is the thousandth part of what it is otherwise."""
    with jax.enable_x64(True):
        scene = model_and_scene("cube")[1]
        v, zero = jnp.array([0, 0, -0.5, 0, 0, 0]), jnp.zeros(6)
        touching = jnp.array([[0, 0, z, 1, 0, 0, 0] for z in (0.03 - 1e-9, 0.03 + 1e-9)])

        def upwards(scene: Scene, q: Array) -> Array:
            return scene_step(scene, q, v, zero)[2].acceleration[2]

        both = jax.jit(jax.vmap(upwards, (None, 0)), compiler_options=FAST)
        jump, soft = (
            near - far for near, far in (both(s, touching) for s in (scene, dynamics.soften(scene)))
        )
        assert jump > 10
        assert soft < 1e-2 * jump


@pytest.mark.slow
def test_soft_boxes_rest_as_deep_as_documented() -> None:
    with jax.enable_x64(True):
        scene = model_and_scene("cube")[1]
        for made, depth in ((scene, 0.11e-3), (dynamics.soften(scene), 1.1e-3)):
            q, v = jnp.array([0, 0, 0.03, 1, 0, 0, 0]), jnp.zeros(6)
            step = jax.jit(lambda q, v, made=made: scene_step(made, q, v, jnp.zeros(6))[:2])
            for _ in range(1500):
                q, v = step(q, v)
            assert abs(0.03 - q[2] - depth) < 0.05 * depth


def test_soft_needs_a_width() -> None:
    with pytest.raises(ConfigError, match=r"width=0.0, expected a positive length"):
        dynamics.soften(dynamics.load_mjcf(cube()), width=0.0)
