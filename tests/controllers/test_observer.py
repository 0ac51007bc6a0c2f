"""The momentum observer: what it finds of torques that the model lacks, and what it is good for."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import OSC, MomentumObserver, PoseTarget
from fraxenv.controllers.observer import ObserverState
from fraxenv.dynamics import Robot
from fraxenv.dynamics.model.bundled import bundled_urdf
from fraxenv.errors import ConfigError, EnvStateError

DT = 1e-3
compute_terms = jax.jit(dynamics.compute_terms)
frame_pose = jax.jit(dynamics.frame_pose, static_argnums=2)


def panda(**changes: Any) -> Robot:
    return dataclasses.replace(dynamics.load_robot("panda"), **changes)


def filtered(w: np.ndarray, gain: float, dt: float) -> np.ndarray:
    """Values (n, nv) after a filter of first order that begins at zero."""
    share, r, out = 1 - np.exp(-gain * dt), np.zeros(w.shape[1]), []
    for x in w:
        r = r + share * (x - r)
        out.append(r)
    return np.array(out)


def test_the_estimate_is_the_filtered_disturbance() -> None:
    """Of a robot that Pinocchio moves: to rounding, at any speed, whatever acts."""
    pin = pytest.importorskip("pinocchio")
    none = np.zeros(7)
    robot = panda(damping=none, friction=none, armature=none, stop_stiffness=none)
    model = pin.buildModelFromUrdf(str(bundled_urdf("panda")))
    data, rng, steps = model.createData(), np.random.default_rng(0), 60
    observer = MomentumObserver(gain=80.0)
    q, v = np.asarray(robot.q_default, float), rng.uniform(-1, 1, 7)
    with jax.enable_x64(True):
        after = jax.jit(lambda q, v, tau, s: _after(observer, robot, q, v, tau, s))
        look = jax.jit(lambda q, v, s: observer(robot, dynamics.compute_terms(robot, q, v), s, DT))
        state = observer.init(compute_terms(robot, q, v))
        acting, found = rng.uniform(-20, 20, (steps, 7)), []
        for w in acting:
            tau = pin.rnea(model, data, q, v, none) + rng.uniform(-5, 5, 7)
            state = after(q, v, tau, state)
            v = v + DT * pin.aba(model, data, q, v, tau + w)
            q = pin.integrate(model, q, DT * v)
            state = look(q, v, state)
            found.append(np.asarray(state.estimate))
    np.testing.assert_allclose(found, filtered(acting, 80.0, DT), atol=1e-8)
    assert np.abs(found).max() > 1.0


def _after(
    observer: MomentumObserver, robot: Robot, q: Array, v: Array, tau: Array, s: ObserverState
) -> ObserverState:
    return observer.after(robot, dynamics.compute_terms(robot, q, v), tau, s, DT)


def follow(
    robot: Robot, true: Robot, *each: tuple[MomentumObserver, float], steps: int = 1000
) -> list[dict[str, np.ndarray]]:
    """What OSC does whose hand is told to move about, of a robot that is another than it thinks.

    For each of the observers and swings, m: position errors, estimates, and what the model lacks
    indeed.
    """
    osc, motors = OSC("hand"), dynamics.Actuators()
    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(robot.nv)
    terms = compute_terms(robot, q, v)
    place, turn = frame_pose(robot, q, "hand")

    def step(observer: MomentumObserver, swing: Array, carry: Any, k: Array) -> Any:
        q, v, state = carry
        terms = dynamics.compute_terms(robot, q, v)
        state = observer(robot, terms, state, DT)
        seen = observer.informed(terms, state)
        t = k * DT
        target = PoseTarget(
            place + swing * jnp.stack([jnp.sin(4 * t), jnp.sin(3 * t), jnp.sin(5 * t)]), turn
        )
        tau, _, report = osc(robot, seen, target, None, DT)
        applied, command, _ = motors(robot, tau, v, dynamics.ActuatorState(), DT)
        state = observer.after(robot, terms, command, state, DT)
        ahead = dynamics.step(true, q, v, applied, DT)
        a = (ahead[1] - v) / DT
        lacking = dynamics.rnea(robot, q, v, a) - dynamics.rnea(true, q, v, a)
        return (*ahead, state), (report["position_error"], state.estimate, lacking)

    @jax.jit
    def run(observer: MomentumObserver, swing: float) -> Any:
        start = q, v, observer.init(terms)
        return jax.lax.scan(partial(step, observer, swing), start, jnp.arange(steps))[1]

    names = ("error", "found", "lacking")
    results = [map(np.asarray, run(observer, swing)) for observer, swing in each]
    return [dict(zip(names, x, strict=True)) for x in results]


def test_a_kilogramme_is_found_and_held() -> None:
    """To 5 % within 0.3 s of motion; and OSC holds it within 1 mm, where it sagged by 15."""
    robot = panda()
    true = dynamics.with_payload(robot, dynamics.Payload("hand", 1.0, (0.0, 0.0, 0.05)))
    own, blind = MomentumObserver(), MomentumObserver(gain=0.0)
    moving, held, sagging = follow(robot, true, (own, 0.05), (own, 0.0), (blind, 0.0))
    off = np.linalg.norm(moving["found"] - moving["lacking"], axis=1)
    assert (off[300:] < 0.05 * np.linalg.norm(moving["lacking"][300:], axis=1)).all()
    assert (held["error"][500:] < 1e-3).all()
    assert sagging["error"][-1] > 10e-3


def test_a_robot_as_modelled_lacks_nothing() -> None:
    """With damping, friction and stops, and torques at their limits."""
    robot = panda(friction=np.full(7, 1.0), armature=np.full(7, 0.1))
    (moving,) = follow(robot, robot, (MomentumObserver(), 1.0))
    assert np.abs(moving["found"]).max() < 2e-3


def test_late_commands_are_those_that_act() -> None:
    """With a delay that it knows nothing is lacking, and `ahead` is where the robot will be."""
    robot = panda()
    n = 3
    q, v = jnp.asarray(robot.q_default, float), jnp.zeros(robot.nv)
    motors = dynamics.Actuators(delay=n * DT, steps=n)
    rng = np.random.default_rng(0)
    pushes = jnp.asarray(np.repeat(rng.uniform(-20, 20, (20, 7)), 10, axis=0), float)

    def run(observer: MomentumObserver) -> Any:
        terms = dynamics.compute_terms(robot, q, v)

        def step(carry: Any, push: Array) -> Any:
            q, v, state, queue = carry
            terms = dynamics.compute_terms(robot, q, v)
            state = observer(robot, terms, state, DT)
            seen = observer.ahead(robot, terms, state, DT)
            tau = terms.bias + terms.mass_matrix @ push
            applied, command, queue = motors(robot, tau, v, queue, DT)
            state = observer.after(robot, terms, command, state, DT)
            moved = dynamics.step(robot, q, v, applied, DT)
            return (*moved, state, queue), (state.estimate, seen.q, seen.v, q, v)

        start = (q, v, observer.init(terms), motors.init(robot, terms.bias, DT))
        return jax.lax.scan(step, start, pushes)[1]

    found, *_ = jax.jit(run)(MomentumObserver())
    assert np.abs(found).max() > 0.5
    found, q_ahead, v_ahead, q_then, v_then = map(
        np.asarray, jax.jit(run)(MomentumObserver(late=n))
    )
    assert np.abs(found).max() < 1e-3
    for ahead, then in ((q_ahead, q_then), (v_ahead, v_then)):
        error = np.abs(ahead[:-n] - then[n:]).max()
        assert error < 0.05 * np.abs(then[:-n] - then[n:]).max()


def test_a_sensor_that_fails_leaves_the_estimate_where_it_is() -> None:
    robot, observer = panda(), MomentumObserver()
    q = jnp.asarray(robot.q_default, float)
    terms = compute_terms(robot, q, jnp.zeros(7))
    look = jax.jit(lambda terms, state: observer(robot, terms, state, DT))
    state = observer.after(robot, terms, terms.bias + 1.0, observer.init(terms), DT)
    before = look(terms, state)  # frozen: a push, and no motion
    assert (before.estimate < 0).all()
    failed = dataclasses.replace(terms, v=terms.v.at[2].set(jnp.nan))
    after = look(failed, before)
    chex.assert_trees_all_close(after.estimate, before.estimate, rtol=0, atol=0)
    # Torques that nothing answers for ever are not answered by ever more.
    stuck = before
    for _ in range(200):
        stuck = look(terms, dataclasses.replace(stuck, momentum=1e3 + 0 * q))
    np.testing.assert_allclose(stuck.estimate, -robot.effort_limits, rtol=1e-6)


def test_what_an_observer_cannot_be() -> None:
    with pytest.raises(ConfigError, match="gain"):
        MomentumObserver(gain=-1.0)
    with pytest.raises(ConfigError, match="late"):
        MomentumObserver(late=0.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="informs"):
        MomentumObserver(informs="all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="observer='luenberger'"):
        fraxenv.make("PandaReach-v0", observer="luenberger")
    env, params = fraxenv.make("PandaReach-v0", observer="momentum", backend="vmap")
    _, state = jax.eval_shape(env.reset_env, jax.random.key(0), params)
    with pytest.raises(EnvStateError, match="with an observer"):
        env.check_state(state, params.replace(observer=None))


@pytest.mark.slow
def test_an_environment_with_an_observer_holds_what_it_does_not_know() -> None:
    """After half a second, fused, at two rates of physics and control; one that is blind sags."""
    env, params = fraxenv.make(
        "PandaReach-v0",
        observer="momentum",
        randomisation={"payload": (1.0, 1.0)},
        task_options={"start_noise": 0.0},
        action_options={"target": "desired"},
        control_hz=100,
        physics_hz=200,
        backend="vmap",
    )
    nothing = dataclasses.replace(params.observer, gain=0 * params.observer.gain)
    blind = params.replace(observer=nothing)
    step = jax.jit(lambda k, s, p: env.step_env(k, s, jnp.zeros(6), p)[1])
    sunk = []
    for own in (params, blind):
        _, state = env.reset(jax.random.key(0), own)
        start = frame_pose(env.robot, state.q, "hand")[0]
        for _ in range(25):
            state = step(jax.random.key(0), state, own)
        sunk.append(float((start - frame_pose(env.robot, state.q, "hand")[0])[2]))
    assert abs(sunk[0]) < 1e-3
    assert sunk[1] > 5e-3
