"""What is drawn for an episode, what it does, and that it costs nothing when off."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support import with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.dynamics import Actuators
from fraxenv.envs import (
    Environment,
    EnvParams,
    EnvState,
    Insert,
    PickPose,
    Push,
    Randomisation,
    Slide,
    Upright,
)
from fraxenv.envs.randomisation import _draw_robot, draw_episode, draw_scene
from fraxenv.errors import ConfigError, EnvStateError, UnknownNameError
from fraxenv.making.make import load_env_config

Env = tuple[Environment, EnvParams]

KEY = jax.random.key(0)
EVERYTHING = load_env_config("panda-reach-everything")["randomisation"]


def make(randomisation: Any = None, **options: Any) -> Env:
    options = {"control_hz": 100, "backend": "vmap"} | options
    # One step of the physics for each of control: all of them are traced one by one.
    options.setdefault("physics_hz", options["control_hz"])
    if "robot" not in options:
        options["id"] = "PandaReach-v0"
    return fraxenv.make(randomisation=randomisation, **options)


def resets(env: Env, size: int, seed: int = 0) -> tuple[Array, EnvState]:
    keys = jax.random.split(jax.random.key(seed), size)
    return jax.jit(jax.vmap(env[0].reset_env, (0, None)))(keys, env[1])  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def pendulum() -> dict[str, Any]:
    """Options of a small environment, for what is the same of every one."""
    robot = dynamics.load_robot("double_pendulum").replace(q_default=np.array([0.5, 0.5]))
    return {"robot": robot, "task": "reach", "action": "joint_delta"}


@pytest.fixture(scope="module")
def everything() -> Env:
    return make(EVERYTHING, control_hz=200)


def test_off_by_default_and_free() -> None:
    environment, params = make()
    assert params.randomisation is None
    _, state = resets((environment, params), 2)
    assert state.episode is None


def test_everything_is_drawn_within_its_range(everything: Env) -> None:
    environment, _ = everything
    robot = environment.robot
    _, state = resets(everything, 512)
    episode = state.episode
    assert episode is not None
    loaded = robot.frame("hand").body
    own = jax.vmap(lambda episode: episode.true_robot(robot))(episode)
    ratio = np.asarray(own.mass) / np.asarray(robot.mass)
    light = np.delete(ratio, loaded, axis=1)
    assert 0.7 <= light.min() < 0.71
    assert 1.29 < light.max() <= 1.3 + 1e-6
    added = np.asarray(own.mass)[:, loaded] - 0.7 * np.asarray(robot.mass)[loaded]
    assert added.min() >= 0
    for name, largest in (("damping", 2.0), ("friction", 1.0), ("armature", 0.2)):
        more = np.asarray(getattr(own, name)) - getattr(robot, name)
        assert 0 <= more.min() < 0.01 * largest
        assert 0.99 * largest < more.max() <= largest * (1 + 1e-6)
    assert np.abs(np.asarray(own.gravity) - robot.gravity).max() <= 0.1 + 1e-6
    assert 0.9 <= np.min(episode.actuators["gain"]) < 0.91
    assert 0 <= np.min(episode.actuators["delay"]) < np.max(episode.actuators["delay"]) <= 0.005
    assert set(np.unique(state.actuator_state.delayed.steps)) == {0, 1}
    assert set(np.unique(episode.actions.steps)) == {0, 1, 2}
    assert set(np.unique(episode.observations.steps)) == {0, 1, 2}
    gains = np.asarray(episode.controller["kp"]) / 150
    assert 0.5 <= gains.min() < 0.51
    assert 1.99 < gains.max() <= 2.0 + 1e-6
    assert 0.199 < np.abs(state.v).max() <= 0.2
    # All different, and everything that is drawn is physical.
    assert len(np.unique(ratio[:, 0])) == 512
    eigenvalues = np.linalg.eigvalsh(np.asarray(own.inertia))
    assert eigenvalues.min() > 0


FACTORS = ("link_mass", "link_inertia", "motor_gain", "kp", "damping_ratio")
OF_SCENES = ("object_mass", "contact_friction", "pad_compliance", "object_size")
OTHERS = (*OF_SCENES, "end_effectors", "steps")
KINDS = [f.name for f in fields(Randomisation) if f.name not in OTHERS]


def test_everything_is_every_kind() -> None:
    assert list(EVERYTHING) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_makes_a_difference(everything: Env, kind: str) -> None:
    """One at a time, at the end of its range, in the program of all."""
    environment, params = everything
    actions = jax.random.uniform(jax.random.key(5), (4, 6), minval=-1.0)

    def run(**ends: float) -> tuple[np.ndarray, np.ndarray]:
        ranges = {k: np.full_like(EVERYTHING[k], ends.get(k, k in FACTORS)) for k in KINDS}
        ranged = params.replace(randomisation=replace(params.randomisation, **ranges))
        _, state = environment.reset(KEY, ranged)
        seen = []
        for action in actions:
            obs, state, *_ = environment.step(KEY, state, action, ranged)
            seen.append(obs)
        return np.array(seen), np.asarray(state.q)

    largest = {kind: float(np.max(EVERYTHING[kind]))}
    before = {"payload": 1.0} if kind == "payload_offset" else {}
    without, with_it = run(**before), run(**before, **largest)
    assert np.abs(with_it[0] - without[0]).max() > 1e-4
    moves = not kind.startswith("observation")
    assert (np.abs(with_it[1] - without[1]).max() > 1e-5) == moves


@pytest.mark.parametrize("kind", ["damping", "friction", "armature"])
def test_a_floating_base_has_no_joint_to_resist(kind: str) -> None:
    robot = dynamics.load_robot("g1", floating_base=True)
    ranges = Randomisation(**{kind: (0.1, 0.2)})
    drawn = _draw_robot({kind: KEY}, ranges, robot, np.dtype(np.float32))[kind]
    assert (drawn[:6] == 0).all()
    assert (drawn[6:] >= 0.1).all()


def test_no_hand_carries_no_payload() -> None:
    robot = dynamics.load_robot("double_pendulum")
    assert _draw_robot({"payload": KEY}, Randomisation(payload=(1.0, 1.0)), robot, np.float32) == {}


def test_payload_is_a_point_mass_in_the_hand(x64: None) -> None:
    """Against a robot whose mass matrix is that of the arm plus `m J^T J` of the point."""
    environment, params = make({"payload": (2.0, 2.0), "payload_offset": 0.1})
    _, state = jax.jit(environment.reset_env)(jax.random.key(3), params)
    robot = environment.robot
    loaded = state.episode.true_robot(robot)
    assert float(loaded.mass[-1] - robot.mass[-1]) == pytest.approx(2.0)
    # The point: where the moment of the added mass puts it, in the hand's body.
    before, after = (np.asarray(r.mass)[-1] * np.asarray(r.com)[-1] for r in (robot, loaded))
    point = (after - before) / 2.0
    frame = robot.frame("hand")
    offset = frame.rotation.T @ (point - frame.position)
    assert np.abs(offset).max() <= 0.1
    q = np.asarray(robot.q_default) + 0.2

    @jax.jit
    def known(q: Array) -> Any:
        kin = dynamics.forward_kinematics(robot, q)
        at = kin.position[-1] + kin.rotation[-1] @ point
        arm = at - dynamics.frame_pose(robot, q, "hand", kin=kin)[0]
        masses = dynamics.crba(robot, q), dynamics.crba(loaded, q)
        return arm, dynamics.frame_jacobian(robot, q, "hand"), *masses

    arm, J, alone, together = map(np.asarray, known(q))
    Jp = J[:3] + np.cross(J[3:].T, arm).T
    np.testing.assert_allclose(together, alone + 2.0 * Jp.T @ Jp, atol=1e-10)


@pytest.mark.slow
def test_the_controller_does_not_know_of_it() -> None:
    """A payload makes the hand sag: the controller compensates the nominal weight."""
    sag = {}
    environment, params = make({"payload": (0.0, 3.0)}, control_hz=500)
    for load in (0.0, 3.0):
        loads = replace(params.randomisation, payload=np.full(2, load, np.float32))
        params = params.replace(randomisation=loads)
        _, state = environment.reset(KEY, params)
        before = dynamics.frame_pose(environment.robot, state.q, "hand")[0][2]
        for _ in range(10):
            _, state, *_ = environment.step(KEY, state, jnp.zeros(6), params)
        after = dynamics.frame_pose(environment.robot, state.q, "hand")[0][2]
        sag[load] = float(before - after)
    assert abs(sag[0.0]) < 1e-3
    assert sag[3.0] > 5e-3


@pytest.fixture(scope="module")
def late() -> Env:
    return make({"action_delay": (0.0, 0.04), "observation_delay": (0.0, 0.04)})


def with_delays(env: Env, **delays: float) -> Env:
    """The same program with other numbers."""
    ranges = {n: np.full(2, delays.get(n, 0.0), np.float32) for n in DELAYS}
    return env[0], env[1].replace(randomisation=replace(env[1].randomisation, **ranges))


DELAYS = ("action_delay", "observation_delay")


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_actions_are_late_by_whole_steps(late: Env, steps: int) -> None:
    """With a delay the motion is that without it, later; before that the robot stays."""
    actions = jax.random.uniform(jax.random.key(5), (5, 6), minval=-1.0)

    def run(env: Env) -> np.ndarray:
        environment, params = env
        _, state = environment.reset(KEY, params)
        out = [np.asarray(state.q)]
        for action in actions:
            _, state, *_ = environment.step(KEY, state, action, params)
            out.append(np.asarray(state.q))
        return np.array(out)

    reference, found = run(with_delays(late)), run(with_delays(late, action_delay=steps / 50))
    np.testing.assert_allclose(found[: steps + 1], found[[0] * (steps + 1)], atol=2e-3)
    np.testing.assert_allclose(found[steps:], reference[: 6 - steps], atol=5e-3)
    assert np.abs(found[steps + 1] - found[0]).max() > 5e-3


@pytest.mark.parametrize("action", with_slow(["ee_pose", "torque"], "ee_pose"))
def test_before_the_first_action_arrives_the_robot_stays(action: str) -> None:
    environment, params = make({"action_delay": (0.04, 0.04)}, action=action, control_hz=1000)
    _, state = jax.jit(environment.reset_env)(jax.random.key(0), params)
    start = np.asarray(state.q)
    step = jax.jit(environment.step_env)
    full = jnp.ones(environment.num_actions)
    for _ in range(2):
        _, state, *_ = step(jax.random.key(0), state, full, params)
    np.testing.assert_allclose(state.q, start, atol=5e-3)
    _, state, *_ = step(jax.random.key(0), state, full, params)
    assert np.abs(np.asarray(state.q) - start).max() > 2e-3


def test_observations_are_late_by_whole_steps(pendulum: dict[str, Any]) -> None:
    """The same motion, seen two steps later; and `observe` shows what `step` did."""
    delays = {"action_delay": (0.0, 0.04), "observation_delay": (0.0, 0.04)}
    late = make(delays, **pendulum)
    seen = {}
    for delay in (0, 2):
        environment, params = with_delays(late, observation_delay=delay / 50)
        obs, state = environment.reset(KEY, params)
        seen[delay] = [np.asarray(obs)]
        for _ in range(4):
            obs, state, *_ = environment.step(KEY, state, 0.3 * jnp.ones(2), params)
            np.testing.assert_array_equal(obs, environment.observe(KEY, state, None, params))
            seen[delay].append(np.asarray(obs))
    exact = seen[0]
    np.testing.assert_array_equal(seen[2], [exact[0], exact[0], *exact[:3]])
    assert np.abs(exact[0] - exact[1]).max() > 1e-3


def test_noise_has_its_size_and_is_new_at_every_step() -> None:
    environment, params = make({"observation_noise": 0.1})
    clean, clean_params = make()
    _, state = environment.reset(jax.random.key(0), params)
    exact = jax.jit(lambda s: clean.observe(KEY, s, None, clean_params))(state)
    keys = jax.random.split(jax.random.key(1), 2000)
    seen = jax.jit(jax.vmap(lambda k: environment.observe(k, state, None, params)))(keys)
    noise = np.asarray(seen - exact)
    np.testing.assert_allclose(noise.std(axis=0), 0.1, rtol=0.1)
    assert np.abs(noise.mean(axis=0)).max() < 0.02


def test_motor_delay_and_gain() -> None:
    """Factors are of the nominal gain, and the delay is in the place of the nominal one."""
    made, params = make({"motor_delay": (0.003, 0.003), "motor_gain": (1.2, 1.2)}, control_hz=1000)
    nominal = Actuators(effort_limit=80.0, gain=0.5, delay=0.001)
    environment = Environment("late", made.robot, params.replace(actuators=nominal), backend="vmap")
    params = environment.default_params
    assert params.actuators.steps == 3
    _, state = environment.reset(jax.random.key(0), params)
    assert state.episode is not None
    assert set(state.episode.actuators) == {"gain", "delay"}
    actuators = state.episode.own_actuators(params.actuators)
    motors = state.actuator_state
    assert motors.delayed.values.shape == (4, 7)
    tau = np.arange(1.0, 8.0)
    apply = jax.jit(lambda tau, m: actuators(environment.robot, tau, np.zeros(7), m, 1e-3))
    applied = []
    for k in range(5):
        out, _, motors = apply((k + 1) * tau, motors)
        applied.append(np.asarray(out))
    for k in (3, 4):
        command = np.minimum((k - 2) * tau, environment.robot.effort_limits)
        np.testing.assert_allclose(applied[k], 0.5 * 1.2 * command, rtol=1e-6)


def test_parameters_are_leaves(everything: Env) -> None:
    """A curriculum is a change of numbers: nothing is compiled again."""
    environment, params = everything
    reset = jax.jit(chex.assert_max_traces(environment.reset_env, n=1))
    _, wide = reset(jax.random.key(0), params)
    narrow_range = replace(params.randomisation, link_mass=np.ones(2, np.float32))
    _, narrow = reset(jax.random.key(0), params.replace(randomisation=narrow_range))
    np.testing.assert_allclose(narrow.episode.robot["link_mass"], 1.0, rtol=1e-6)
    assert not np.allclose(wide.episode.robot["link_mass"], 1.0)


@pytest.mark.slow
def test_every_part_in_one_step_and_fused_as_vmap() -> None:
    results = []
    for backend in ("vmap", "native"):
        environment, params = make(EVERYTHING, backend=backend, physics_hz=1000)
        keys = jax.random.split(jax.random.key(0), 21)
        _, state = jax.jit(jax.vmap(environment.reset_env, (0, None)))(keys, params)
        actions = jax.random.uniform(jax.random.key(1), (21, 6), minval=-1.0)
        step = jax.jit(jax.vmap(environment.step, (0, 0, 0, None)))
        for _ in range(3):
            obs, state, reward, *_ = step(keys, state, actions, params)
        results.append((obs, reward, state.q))
        chex.assert_tree_all_finite(results[-1])
    chex.assert_trees_all_close(*results, rtol=1e-7, atol=2e-3)


# --- Wrong input ----------------------------------------------------------------------------------

WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "negative noise": ({"observation_noise": -0.1}, ConfigError, "observation_noise=-0.1.*zero"),
    "inside out": ({"link_mass": (1.3, 0.7)}, ConfigError, r"link_mass=.*smallest, largest"),
    "one number": ({"link_mass": 1.3}, ConfigError, r"link_mass=1.3.*smallest, largest"),
    "massless": ({"link_mass": (0.0, 1.0)}, ConfigError, "link_mass=.*greater than zero"),
    "not a number": ({"payload": (0.0, np.nan)}, ConfigError, "payload=.*finite"),
    "text": ({"gravity": "low"}, ConfigError, "gravity='low'"),
    "unknown": ({"mass": (0.9, 1.1)}, UnknownNameError, "'mass' of .*mean 'link_mass'"),
    "no dict": (3, ConfigError, "randomisation=3.*Randomisation"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ranges_are_refused(name: str) -> None:
    given, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        make(given)


def test_longer_delays_than_there_is_room_for() -> None:
    environment, params = make({"action_delay": (0.0, 0.02)})
    longer = replace(params.randomisation, action_delay=(0.0, 0.1))
    with pytest.raises(ConfigError, match=r"delays of up to \(0, 0, 5\).*steps=\(0, 0, 1\)"):
        environment.reset(jax.random.key(0), params.replace(randomisation=longer))


@pytest.mark.parametrize("kind", ["motor_delay", "observation_delay", "action_delay"])
def test_delays_that_nobody_made_room_for(kind: str) -> None:
    environment, params = make()
    late = params.replace(randomisation=Randomisation(**{kind: (0.0, 0.1)}))
    with pytest.raises(ConfigError, match="a delay is set, and steps is None"):
        environment.reset(jax.random.key(0), late)


def test_states_without_an_episode_are_refused(everything: Env) -> None:
    environment, params = everything
    plain, plain_params = make()
    _, state = plain.reset(jax.random.key(0), plain_params)
    with pytest.raises(EnvStateError, match="without randomisation"):
        environment.step(jax.random.key(0), state, jnp.zeros(6), params)


# --- of scenes ------------------------------------------------------------------------------------

OBJECTS = {
    "object_mass": (0.5, 2.0),
    "contact_friction": (0.3, 1.2),
    "pad_compliance": (1.0, 4.0),
    "object_size": (0.8, 1.2),
}


@pytest.fixture(scope="module")
def stack() -> Env:
    return fraxenv.make("PandaStack-v0", randomisation={**OBJECTS, "kp": (0.5, 2.0)})


def episodes(env: Env, n: int) -> Any:
    """Draws of n episodes."""
    environment, params = env
    some = jnp.zeros(2)
    physics, ranges = environment.physics, params.randomisation

    def draw(key: Array) -> Any:
        scene = draw_scene(key, ranges, tuple(physics.objects), physics.loose, some.dtype)
        motors = params.controller, params.actuators, environment.policy_hz
        return draw_episode(key, ranges, environment.robot, *motors, some, some, scene)

    return jax.jit(jax.vmap(draw))(jax.random.split(KEY, n))


def test_draws_of_scenes_are_in_their_ranges_and_independent(stack: Env) -> None:
    found = episodes(stack, 2000)
    several = ("object_mass", "object_size")
    numbers = [found.scene[kind][name] for kind in several for name in ("base", "cube")]
    numbers += [found.scene["contact_friction"], found.scene["pad_compliance"]]
    numbers.append(found.controller["kp"] / 150.0)
    ranges = [OBJECTS[kind] for kind in several for _ in range(2)]
    ranges += [OBJECTS["contact_friction"], OBJECTS["pad_compliance"], (0.5, 2.0)]
    for number, (low, high) in zip(numbers, ranges, strict=True):
        margin = 0.01 * (high - low)
        assert low - 1e-6 <= np.min(number) < low + margin
        assert high - margin < np.max(number) <= high + 1e-6
    correlation = np.corrcoef(np.array(numbers)) - np.eye(7)
    assert np.abs(correlation).max() < 0.1


def test_gains_of_an_arm_with_a_gripper(stack: Env) -> None:
    """The arm's, and not the gripper's."""
    own = jax.tree.map(lambda x: x[0], episodes(stack, 1))
    nominal: Any = stack[1].controller
    changed = own.own_controller(nominal)
    assert float(changed.arm.kp) == pytest.approx(float(own.controller["kp"]))
    assert changed.arm.kp != nominal.arm.kp
    assert changed.gripper_kp == nominal.gripper_kp


def test_what_is_drawn_is_in_the_scene_that_moves(stack: Env) -> None:
    environment, params = stack
    physics: Any = environment.physics
    drawn = {
        "object_mass": {"cube": jnp.array(2.0), "base": jnp.array(0.5)},
        "contact_friction": jnp.array(0.7),
        "pad_compliance": jnp.array(3.0),
    }
    before, after = physics.scene, physics.model(environment.robot, None, params, drawn)
    for name, factor in drawn["object_mass"].items():
        body = before.members[name].bodies
        for kind in ("mass", "inertia"):
            old, new = (np.asarray(getattr(s.system, kind))[body] for s in (before, after))
            np.testing.assert_allclose(new, factor * old, rtol=1e-6)
    arm = before.members[physics.controlled].bodies
    np.testing.assert_array_equal(after.system.mass[arm], np.float32(before.system.mass[arm]))
    old, new = (s.constraints.geoms for s in (before, after))
    np.testing.assert_allclose(new.friction, 0.7 * old.friction, rtol=1e-6)
    for name in before.geom_names:
        factor = 3.0 if name.endswith("_pad") else 1.0
        i = before.geom(name)
        np.testing.assert_allclose(new.solref[i], old.solref[i] * [factor, 1.0], rtol=1e-6)
    # What follows from the masses: MuJoCo's inverse weights.
    expected = before.with_system(after.system).constraints.weights
    chex.assert_trees_all_close(after.constraints.weights, expected, rtol=1e-6)
    nothing = physics.model(environment.robot, None, params, {})
    assert nothing.constraints is before.constraints
    assert nothing.system is before.system


SIZES = {"cube": 0.8, "base": 1.2}


def test_larger_objects_are_those_of_a_scene_that_was_built_so(stack: Env) -> None:
    """All numbers of it; and the task's are those of a task that was made for it."""
    environment, params = stack
    physics: Any = environment.physics
    half = {name: 0.02 * factor for name, factor in SIZES.items()}
    apart = np.hypot(np.sqrt(2) * sum(half.values()), 2 * half["base"])
    goal = 2 * half["base"] + half["cube"]
    built, other = fraxenv.make(
        "PandaStack-v0",
        scene_options={
            "half_extents": (half["cube"],) * 3,
            "base_half_extents": (half["base"],) * 3,
        },
        task_options={
            "goal_low": (0.4, -0.15, goal),
            "goal_high": (0.6, 0.15, goal),
            "least_distance": max(0.08, apart),
        },
    )
    factors = {name: jnp.array(factor) for name, factor in SIZES.items()}
    drawn = {"object_size": factors}
    found = physics.model(environment.robot, None, params, drawn)
    wanted: Any = built.physics
    wanted = wanted.model(built.robot, None, other, {})

    def numbers(scene: Any) -> Any:
        """All but where the objects are by default."""
        system = scene.system.replace(q_default=np.zeros(scene.nq))
        return jax.tree.leaves((system, replace(scene.constraints, reference=np.zeros(scene.nq))))

    for a, b in zip(numbers(found), numbers(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-9)
    chex.assert_trees_all_close(params.task.resized(factors), other.task, rtol=1e-6)
    nothing = physics.model(environment.robot, None, params, {})
    assert nothing.constraints is physics.scene.constraints


def test_objects_of_every_size_rest_on_the_table_and_are_drawn_so() -> None:
    environment, params = fraxenv.make("PandaPick-v0", randomisation={"object_size": (0.8, 1.2)})
    keys = jax.random.split(KEY, 64)
    _, state = jax.vmap(environment.reset, (0, None))(keys, params)
    half = 0.02 * np.asarray(state.episode.sizes["cube"])
    assert np.ptp(half) > 0.006
    start, goal = np.asarray(state.task_state.start), np.asarray(state.task_state.position)[:, 0]
    np.testing.assert_allclose(start[:, 2], half, rtol=1e-6)
    # Goals are from where it rests to 0.3 m above.
    assert ((goal[:, 2] >= half - 1e-6) & (goal[:, 2] <= half + 0.3 + 1e-6)).all()
    one = jax.tree.map(lambda x: np.asarray(x)[0], state.replace(controller_state=None))
    (cube,) = (s for s in environment.markers(one, params) if s.kind == "box" and s.size[0] < 0.1)
    np.testing.assert_allclose(cube.size, 2 * half[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "changed"),
    [
        (Upright(), {"half_height": 0.03, "half_length": 0.144}),
        (PickPose(), {"half_height": 0.036, "goal_low": (0.4, -0.1, 0.106)}),
        (Slide(), {"half_height": 0.03, "goal_low": (0.8, -0.15, 0.03)}),
        (Push(), {"half_height": 0.024, "goal_high": (0.62, 0.15, 0.024)}),
        (Push(goal_from_object=True), {"half_height": 0.024, "goal_high": (0.62, 0.15, 0.02)}),
    ],
)
def test_numbers_of_tasks_follow_sizes(task: Any, changed: dict[str, Any]) -> None:
    task = task.resized({task.object: jnp.array(1.2)})
    for name, value in changed.items():
        np.testing.assert_allclose(getattr(task, name), value, rtol=1e-6)


def test_sizes_that_are_refused(stack: Env) -> None:
    with pytest.raises(ConfigError, match=r"Insert: randomisation of object_size.*`resized`"):
        Insert().resized({"peg": jnp.array(1.1)})
    with pytest.raises(ConfigError, match=r"object_size, expected a scene.*furniture.*has drawer"):
        fraxenv.make("PandaDrawer-v0", randomisation={"object_size": (1.0, 1.1)})
    large = stack[1].replace(randomisation=Randomisation(object_size=(1.0, 1.5)))
    with pytest.raises(ConfigError, match=r"Stack: least_distance=0.1039.* at most half"):
        stack[0].check_params(large)
    with pytest.raises(ConfigError, match=r"object_size=\(0.0, 1.0\).*or size"):
        Randomisation(object_size=(0.0, 1.0))


def test_scenes_are_needed() -> None:
    with pytest.raises(ConfigError, match="randomisation of object_mass, expected none of these"):
        make({"object_mass": (0.5, 2.0)})
    with pytest.raises(ConfigError, match=r"pad_compliance=.*greater than zero"):
        Randomisation(pad_compliance=(0.0, 1.0))
    assert Randomisation(contact_friction=(0.0, 1.0)).of_scenes == ("contact_friction",)


@pytest.mark.slow
def test_heavier_objects_weigh_more() -> None:
    """Each as its own factor says, on the table, after they have settled."""
    environment, params = fraxenv.make("PandaStack-v0", randomisation=OBJECTS)
    keys = jax.random.split(KEY, 8)
    _, state = jax.vmap(environment.reset, (0, None))(keys, params)
    step = jax.jit(jax.vmap(environment.step_env, (0, 0, 0, None)))
    for _ in range(15):
        _, state, *_ = step(keys, state, jnp.zeros((8, 7)), params)
    for name in environment.physics.objects:
        pair = state.world.contacts.between(name, "table")
        weight = 9.81 * 0.064 * np.asarray(state.episode.scene["object_mass"][name])
        np.testing.assert_allclose(np.ravel(pair.normal_force), weight, rtol=0.02)
        # And rests as high as its size says.
        height = 0.02 * np.asarray(state.episode.sizes[name])
        np.testing.assert_allclose(state.world.objects[name].q[:, 2], height, atol=3e-4)
