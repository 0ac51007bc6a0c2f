"""Environments of scenes: objects in the world, contacts as data, episodes in batches."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pushing import Push, scene_of_arm
from support import with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import Barrier, SafetyFilter
from fraxenv.dynamics import (
    build_scene,
    frame_jacobian,
    frame_pose,
    free_body,
    plane_geom,
    sphere_geom,
)
from fraxenv.envs import ContactPhysics, ObjectState, SceneState, Task, World, pytree_dataclass
from fraxenv.envs.contact_physics import FORCE_COLOR
from fraxenv.errors import CheckpointError, ConfigError, EnvStateError, UnknownNameError
from fraxenv.recording.stepping import flat, unescaped
from fraxenv.rendering import default_camera, env_camera, env_scene, render_env


@pytree_dataclass
class Still(Task):
    """Stay where you are."""

    def reset(self, key, robot):
        return jnp.asarray(robot.q_default, float), ()

    def observation_terms(self, robot, motion, state):
        return {"joints": motion.q}

    def reward_terms(self, robot, motion, state):
        return {"speed": -jnp.sum(jnp.abs(motion.v))}

    def measures(self, robot, motion, state):
        return {"success": jnp.ones((), bool)}


N = 64
STEPS, EPISODE = 24, 16


def make_push(**options):
    options = {
        "action": "ee_delta_position",
        "action_options": {"axes_used": ("x", "y")},
        **options,
    }
    return fraxenv.make(robot=scene_of_arm(), task=Push(), max_steps_in_episode=EPISODE, **options)


@pytest.fixture(scope="module")
def push():
    return make_push()


@pytest.fixture(scope="module")
def stepped(push):
    """The step of a batch, compiled once."""
    env, params = push
    return jax.jit(jax.vmap(lambda key, state, action: env.step(key, state, action, params)))


@pytest.fixture(scope="module")
def rollout(push, stepped):
    """Initial states, keys and actions, and all that `STEPS` steps forwards returned."""
    env, params = push
    keys = jax.random.split(jax.random.key(0), N)
    _, first = jax.vmap(lambda key: env.reset(key, params))(keys)
    actions = jnp.zeros((N, env.num_actions)).at[:, 0].set(jnp.linspace(0.5, 1.0, N))
    state, results = first, []
    for t in range(STEPS):
        out = stepped(keys_at(keys, t), state, actions)
        state = out[1]
        results.append(out)
    return first, keys, actions, results


def keys_at(keys, t):
    return jax.vmap(lambda key: jax.random.fold_in(key, t))(keys)


def series(results, read):
    return np.stack([np.asarray(read(out)) for out in results])


@pytest.mark.slow
def test_the_hand_pushes_the_cube(rollout):
    """The cube rests by its weight, is touched and moves on; the solver reports."""
    _first, _, _, results = rollout
    info = [out[5] for out in results]
    weight = 0.3 * 9.81
    at_rest = np.asarray(info[1]["contacts"]["normal_force"])[:, 0]
    np.testing.assert_allclose(at_rest, weight, rtol=5e-3)
    touched = series(results, lambda out: out[5]["contacts"]["active"])[..., 1]
    assert not touched[0].any()
    assert touched[: EPISODE - 1].any(0).all()
    moved = series(results, lambda out: out[5]["moved"])
    assert (moved[EPISODE - 1] > 0.002).all()
    assert np.abs(moved[0]).max() < 1e-3
    assert all(bool(i["contact_converged"].all()) for i in info)
    assert 1 <= max(int(i["contact_rounds"].max()) for i in info) <= 15
    assert not any(bool(i["diverged"].any()) for i in info)
    slip, across, normal = (
        series(results, lambda out, n=name: out[5]["contacts"][n])
        for name in ("slip_speed", "tangential_force", "normal_force")
    )
    assert (slip >= 0).all()
    assert (across <= 0.4 * normal * (1 + 1e-3) + 1e-4).all()


def test_tasks_see_objects_and_contacts(push, rollout):
    """Observations, rewards and measures come of the same contacts and objects as `info`."""
    env, _params = push
    _, _, _, results = rollout
    start = dict(
        zip(env.observation_layout, np.cumsum([0, *env.observation_layout.values()]), strict=False)
    )
    for obs, state, *_, info in results:
        seen = np.asarray(info["final_observation"])
        touching = np.asarray(info["contacts"]["active"])[:, 1]
        np.testing.assert_array_equal(seen[:, start["touching"]], touching)
        np.testing.assert_array_equal(info["reward_terms"]["touching"], touching)
        ended = np.asarray(info["terminated"] | info["truncated"])
        cube = np.asarray(state.world.objects["cube"].q)
        np.testing.assert_array_equal(np.asarray(obs)[:, start["cube"]], cube[:, 0])
        np.testing.assert_allclose(
            np.asarray(info["reward_terms"]["forwards"])[~ended],
            (cube[:, 0] - np.asarray(state.task_state))[~ended],
            atol=1e-6,
        )


def test_contacts_end_an_episode(push, rollout):
    """Termination by force, and a bound that nothing exceeded."""
    env, params = push
    states = [out[1] for out in rollout[3][: EPISODE - 1]]
    assert not any(bool(out[5]["terminated"].any()) for out in rollout[3])
    strict = params.replace(task=dataclasses.replace(params.task, strongest=5.0))
    ended = jax.jit(jax.vmap(lambda s: env.is_terminated(s, strict)))
    forces = [np.asarray(s.world.contacts.between("ball").normal_force)[:, 0] for s in states]
    assert np.max(forces) > 5
    for state, force in zip(states, forces, strict=True):
        np.testing.assert_array_equal(ended(state), force > 5)


def test_autoreset_puts_objects_back(rollout):
    """The new episode's cube is at rest in a new place; no contact and no warm start is left."""
    _, _, _, results = rollout
    _, state, _, _, truncated, info = results[EPISODE - 1]
    assert truncated.all()
    scene = state.world.scene
    cube = np.asarray(scene.objects["cube"].q)
    assert (cube[:, 0] >= 0.51).all()
    assert (cube[:, 0] <= 0.53).all()
    assert len(np.unique(cube[:, 0])) > N // 2
    np.testing.assert_array_equal(cube[:, 1:], [[0, np.float32(0.05), 1, 0, 0, 0]] * N)
    assert not np.any(scene.objects["cube"].v)
    assert not np.any(scene.warm_start)
    assert not np.any(scene.contacts.active)
    assert not np.any(scene.contacts.normal_force)
    assert np.asarray(info["contacts"]["active"]).any(), "info is of the episode that ended"


def test_a_batch_is_its_environments(push, stepped, rollout):
    """Bit for bit, in batches of other sizes and orders."""
    first, keys, actions, results = rollout
    order = np.random.default_rng(0).permutation(N)[:7]
    state = jax.tree.map(lambda x: x[order], first)
    for t in range(4):
        state = stepped(keys_at(keys[order], t), state, actions[order])[1]
    expected = jax.tree.map(lambda x: x[order], results[3][1])
    jax.tree.map(np.testing.assert_array_equal, state, expected)


@pytest.mark.slow
def test_a_batch_is_a_loop_and_a_fused_kernel(push, rollout):
    """`fuse` gives the same bits as `vmap`; one environment after the other the same numbers."""
    env, params = push
    _first, keys, actions, results = rollout
    at, going = results[7][1], results[8]
    keys = keys_at(keys, 8)
    fused = fraxenv.fuse(lambda key, state, action: env.step(key, state, action, params))
    jax.tree.map(np.testing.assert_array_equal, fused(keys, at, actions), going)
    for i in range(3):
        one = jax.tree.map(lambda x, i=i: x[i], (keys, at, actions))
        got, expected = env.step(*one, params), jax.tree.map(lambda x, i=i: x[i], going)
        for name in ("q", "v"):
            for part in (lambda s: s, lambda s: s.world.objects["cube"]):
                np.testing.assert_allclose(
                    getattr(part(got[1]), name), getattr(part(expected[1]), name), atol=2e-4
                )


def test_a_step_is_mujocos(x64):
    """Configuration, velocity and contact forces in 40 steps, the ball pressing."""
    mujoco = pytest.importorskip("mujoco")
    scene = scene_of_arm()
    env, params = fraxenv.make(robot=scene, task=Push(), action="torque")
    physics, dt = env.physics, 0.002
    tau = jnp.array([0.0, -1.0, 0.0])
    # Not at the height at which contacts begin, which rounding would decide.
    cube = ObjectState(np.array([0.51, 0.0, 0.0499, 1.0, 0.0, 0.0, 0.0]))
    world = physics.begin("test", World(scene=SceneState({"cube": cube})), np.float64)

    def step(q, v, state):
        model = physics.model(env.robot, None, params, {})
        return physics.step(model, q, v, tau, jnp.asarray(dt), None, state)

    batch = fraxenv.fuse(step)
    carry = jax.tree.map(
        lambda x: jnp.asarray(x)[None], (env.robot.q_default, np.zeros(3), world.scene)
    )
    model = scene.to_mujoco()
    model.opt.timestep, model.opt.tolerance, model.opt.iterations = dt, 0.0, 100
    data = mujoco.MjData(model)
    data.qpos[:] = np.concatenate([env.robot.q_default, cube.q])
    names = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, g) for g in range(model.ngeom)]
    seen = np.zeros(2, int)
    for _ in range(40):
        data.qfrc_applied[:3] = tau
        mujoco.mj_step(model, data)
        carry = batch(*carry)
        q, v, state = jax.tree.map(lambda x: np.asarray(x[0]), carry)
        cube, contacts = state.objects["cube"], state.contacts
        np.testing.assert_allclose(np.concatenate([q, cube.q]), data.qpos, atol=1e-9)
        np.testing.assert_allclose(np.concatenate([v, cube.v]), data.qvel, atol=1e-8)
        touching, forces, slip = np.zeros(2, bool), np.zeros((2, 2)), np.zeros(2)
        for c in range(data.ncon):
            force = np.zeros(6)
            mujoco.mj_contactForce(model, data, c, force)
            pair = {names[g] for g in data.contact[c].geom}
            k = [set(p) for p in contacts.pairs].index(pair)
            forces[k] += force[0], np.hypot(*force[1:3])
            touching[k] = True
            row = data.contact[c].efc_address
            slip[k] = max(slip[k], np.hypot(*data.efc_vel[row + 1 : row + 3]))
        seen += touching
        np.testing.assert_array_equal(contacts.active, touching)
        np.testing.assert_allclose(contacts.normal_force, forces[:, 0], atol=1e-6)
        np.testing.assert_allclose(contacts.tangential_force, forces[:, 1], atol=1e-6)
        np.testing.assert_allclose(contacts.slip_speed, slip, atol=1e-8)
    assert (seen >= 3).all()


@pytest.mark.slow
def test_gradients_reach_the_cube_through_the_hand(x64):
    """The derivative of the cube's velocity by the action is the difference quotient."""
    env, params = make_push()
    differentiable = env.with_transition_gradients()
    key, ahead = jax.random.key(0), jnp.array([0.9, 0.0])
    step = jax.jit(jax.vmap(lambda state, action: env.step_env(key, state, action, params)))
    state = jax.tree.map(lambda x: x[None], env.reset(key, params)[1])
    for _ in range(10):
        _, state, *_, info = step(state, ahead[None])
    assert info["contacts"]["active"][0, 1]

    def pushed(state, action):
        new = differentiable.step_env(key, state, action, params)[1]
        return new.world.objects["cube"].v[0]

    gradient = jax.jit(jax.vmap(jax.grad(pushed, argnums=1)))(state, ahead[None])[0]
    assert np.isfinite(gradient).all()
    assert gradient[0] > 0
    h = 1e-6
    around = ahead + jnp.array([[h, 0.0], [-h, 0.0]])
    both = jax.tree.map(lambda x: jnp.concatenate([x, x]), state)
    more, less = step(both, around)[1].world.objects["cube"].v[:, 0]
    np.testing.assert_allclose(gradient[0], (more - less) / (2 * h), rtol=1e-4)


@pytest.mark.slow
def test_scenes_numbers_are_parameters(push, rollout):
    """A batch of cubes of different masses weighs what each does; randomised links move alike."""
    env, params = push
    first, keys, _actions, _ = rollout
    scene = env.physics.scene
    system = scene.system
    cube = env.physics.objects["cube"].bodies.start

    def advanced(factor, key, state):
        mass = jnp.asarray(system.mass).at[cube].multiply(factor)
        inertia = jnp.asarray(system.inertia).at[cube].multiply(factor)
        other = scene.with_system(system.replace(mass=mass, inertia=inertia))
        own = params.replace(scene=other)
        return env.step(key, state, jnp.zeros(2), own)

    factors = jnp.array([1.0, 2.0, 0.5])
    step = jax.jit(jax.vmap(advanced))
    _, state, *_ = step(factors, keys[:3], jax.tree.map(lambda x: x[:3], first))
    info = step(factors, keys[:3], state)[5]
    normal = np.asarray(info["contacts"]["normal_force"])[:, 0]
    np.testing.assert_allclose(normal, 0.3 * 9.81 * np.asarray(factors), rtol=1e-2)


@pytest.mark.slow
def test_links_are_randomised_in_the_scene():
    """The physics has the drawn robot, with the inverse weights of its masses."""
    env, params = make_push(randomisation={"link_mass": (2.0, 2.0), "gravity": 0.0})
    _, state = env.reset(jax.random.key(0), params)
    true_robot = state.episode.true_robot(env.robot)
    moved = env.physics.model(env.robot, true_robot, params, {})
    nominal = env.physics.model(env.robot, None, params, {})
    np.testing.assert_allclose(moved.system.mass[:3], 2 * np.asarray(nominal.system.mass[:3]))
    np.testing.assert_array_equal(moved.system.mass[3:], np.float32(nominal.system.mass[3:]))
    weights = [m.constraints.weights.dof[:3] for m in (moved, nominal)]
    np.testing.assert_allclose(weights[0], 0.5 * np.asarray(weights[1]), rtol=1e-5)
    out = jax.vmap(lambda s: env.step(jax.random.key(0), s, jnp.ones(2), params))(
        jax.tree.map(lambda x: x[None], state)
    )
    assert out[5]["contact_converged"].all()
    assert not out[5]["diverged"].any()


def test_states_are_saved_with_objects(push, stepped, rollout, tmp_path):
    """A saved state goes on bit for bit, and another scene's is refused by name."""
    env, params = push
    _, keys, actions, results = rollout
    state = results[5][1]
    fraxenv.save_state(tmp_path / "state.npz", env, state, params)
    loaded, _, _ = fraxenv.load_state(tmp_path / "state.npz", env)
    jax.tree.map(np.testing.assert_array_equal, loaded, state)
    going = stepped(keys_at(keys, 6), loaded, actions)
    jax.tree.map(np.testing.assert_array_equal, going, results[6])
    heavier, _ = fraxenv.make(
        robot=scene_of_arm(0.5),
        task=Push(),
        action="ee_delta_position",
        action_options={"axes_used": ("x", "y")},
    )
    with pytest.raises(CheckpointError, match="its scene is another"):
        fraxenv.load_state(tmp_path / "state.npz", heavier)


def test_objects_are_drawn_where_they_are(push, rollout):
    env, params = push
    state = jax.tree.map(lambda x: np.asarray(x[0]), rollout[3][10][1])
    (cube,) = (s for s in env.markers(state, params) if s.name == "cube")
    np.testing.assert_allclose(cube.position, state.world.objects["cube"].q[:3], atol=1e-6)
    assert cube.kind == "box"
    assert cube.size == (0.1, 0.1, 0.1)
    drawn = [s for s in env_scene(env, state, params) if s.kind == "box"]
    assert any(np.allclose(s.position, cube.position) for s in drawn)


def test_forces_are_drawn(push, rollout):
    """A line for each pair that touches, from between its geoms, the longer the stronger."""
    env, params = push
    states = [jax.tree.map(lambda x: np.asarray(x[0]), out[1]) for out in rollout[3][: EPISODE - 1]]
    found = set()
    for state in states:
        world, bare = state.world, env_scene(env, state, params)
        drawn = env_scene(env, state, params, contacts=True)
        forces = drawn[len(bare) :]
        assert {s.rgba for s in forces} <= {FORCE_COLOR}
        assert all(s.rgba[3] < 0.5 for s in drawn[: len(bare)]), "they would hide forces"
        lines = [s for s in forces if s.kind == "cylinder"]
        strong = world.contacts.normal_force > 0
        assert len(lines) == strong.sum() == len(forces) / 2
        found.add(tuple(strong.tolist()))
        if strong[0]:
            floor, weight = lines[0], world.contacts.normal_force[0]
            np.testing.assert_allclose(floor.size[1], 0.3 * weight / (30 + weight), rtol=1e-5)
            np.testing.assert_allclose(floor.rotation[:, 2], [0, 0, 1], atol=1e-6)
            np.testing.assert_allclose(floor.position[2], floor.size[1] / 2, atol=1e-3)
        if strong[1]:
            # From the ball to the cube, which is what is pushed.
            ball, cube = (
                s.position for s in (forces[-2], next(s for s in bare if s.kind == "box"))
            )
            assert (cube - ball) @ lines[-1].rotation[:, 2] > 0.04
    assert {(True, False), (True, True)} <= found
    state = states[-1]
    with_, without = (
        render_env(env, state, params, 200, 200, contacts=on, renderer="raycast")
        for on in (True, False)
    )
    assert (with_ != without).any()
    plain, plain_params = fraxenv.make("PandaReach-v0")
    _, state = plain.reset(jax.random.key(0), plain_params)
    assert plain.physics.force_shapes(state.q, state.world) == []


def test_the_camera_sees_objects():
    """Also those that are far from the robot; and a robot whose links have no shapes is drawn."""
    scene = scene_of_arm()
    far = free_body("far", sphere_geom("", 0.05), mass=1.0, position=(3.0, 2.0, 0.05))
    robot = ContactPhysics(scene).robot
    wide = build_scene(robot, [far], [plane_geom("floor")], name="wide")
    env, params = fraxenv.make(robot=wide, task=Still(), action="joint_velocity")
    _, state = env.reset(jax.random.key(0), params)
    near, away = default_camera(env.robot), env_camera(env)
    assert np.linalg.norm(np.subtract(away.eye, away.target)) > 2 * np.linalg.norm(
        np.subtract(near.eye, near.target)
    )
    assert sum(s.kind == "cylinder" for s in env_scene(env, state, params)) >= 3


@dataclasses.dataclass(frozen=True)
class Off:
    """The hand's distance from the cube, less what it is to keep."""

    def __call__(self, robot, situation, barrier):
        place, _ = frame_pose(robot, situation.q, "hand", kin=situation.kin)
        cube = situation.scene.objects["cube"].position
        return jnp.linalg.norm((place - cube)[:2], keepdims=True) - barrier.parameters


@dataclasses.dataclass(frozen=True)
class Gentle:
    """The hand goes forwards as fast as 0.05 m/s for every newton that is left of a limit."""

    def __call__(self, robot, situation, barrier):
        force = jnp.sum(situation.scene.contacts.between("ball", "cube").normal_force)
        jacobian = frame_jacobian(robot, situation.q, "hand", kin=situation.kin)
        return 0.05 * (barrier.parameters - force)[None] - (jacobian[:1] @ situation.v)


@pytest.mark.slow
@pytest.mark.parametrize("degree", with_slow([2, 1], 1))
def test_barriers_read_objects_and_contacts(degree, rollout):
    """The hand keeps off a cube that is an object; or it pushes, and no harder than it may."""
    free = series(rollout[3][: EPISODE - 1], lambda out: out[5]["contacts"]["normal_force"])
    function, limit = (Off(), 0.085) if degree == 2 else (Gentle(), 2.0)
    own = Barrier(function, degree, "cube", lambda robot, around: ["cube"], jnp.float32(limit))
    env, params = make_push(safety=SafetyFilter((own,)))
    step = jax.jit(jax.vmap(lambda key, state, action: env.step(key, state, action, params)))
    keys, forwards = jax.random.split(jax.random.key(0), N), jnp.array([[1.0, 0.0]] * N)
    _, state = jax.vmap(lambda key: env.reset(key, params))(keys)
    forces, least = [], []
    for t in range(EPISODE - 1):
        _, state, *_, info = step(keys_at(keys, t), state, forwards)
        forces.append(info["contacts"]["normal_force"][:, 1])
        least.append(info["safety"]["min_barrier"])
    assert info["safety"]["intervened"].any()
    assert free[..., 1].max() > 4.0
    if degree == 2:
        assert np.min(least) > -1e-3
        assert np.max(forces) == 0
    else:
        assert np.max(forces) > 0
        assert np.max(forces) < 0.75 * free[..., 1].max()


def test_the_controlled_robot_is_a_member(push):
    env, _ = push
    scene = env.physics.scene
    assert env.robot.name == "arm"
    assert env.robot.nq == 3
    assert env.num_actions == 2
    assert env.control_hz == env.physics_hz == 500
    alike, _ = make_push()
    assert alike == env
    assert hash(alike) == hash(env)
    assert ContactPhysics(scene_of_arm(0.5)) != ContactPhysics(scene)
    other = ContactPhysics(scene, "cube")
    assert other.robot.nv == 6
    assert list(other.objects) == ["arm"]


def test_what_cannot_be_is_refused(push, rollout):
    """Each error names what was wrong, and the remedy."""
    env, params = push
    scene, state = env.physics.scene, jax.tree.map(lambda x: x[0], rollout[3][0][1])
    plain, plain_params = fraxenv.make("PandaReach-v0")
    with pytest.raises(UnknownNameError, match=r"cup.*cube"):
        ContactPhysics(scene, "cup")
    with pytest.raises(ConfigError, match=r"member='arm'.*no scene"):
        fraxenv.make("PandaReach-v0", member="arm")
    with pytest.raises(ConfigError, match=r"params.robot is set.*params\.scene"):
        env.reset(jax.random.key(0), params.replace(robot=env.robot))
    with pytest.raises(ConfigError, match=r"params.scene is set"):
        plain.reset(jax.random.key(0), plain_params.replace(scene=scene))
    with pytest.raises(ConfigError, match=r"friction.*a, b, c"):
        make_push(randomisation={"friction": (0.0, 1.0)})
    with pytest.raises(UnknownNameError, match="cup"):
        env.physics.begin("x", World(scene=SceneState({"cup": ObjectState(jnp.ones(7))})), float)
    with pytest.raises(ConfigError, match=r"'cube' has q of shape \(3,\)"):
        env.physics.begin("x", World(scene=SceneState({"cube": ObjectState(jnp.ones(3))})), float)
    with pytest.raises(ConfigError, match="has the objects cube, expected none"):
        plain.physics.begin("x", state.world, float)
    empty = state.replace(world=World())
    with pytest.raises(EnvStateError, match="objects none, expected cube"):
        env.step(jax.random.key(0), empty, jnp.zeros(2), params)
    contacts = state.world.contacts
    with pytest.raises(UnknownNameError, match="bal"):
        contacts.between("bal")
    with pytest.raises(ConfigError, match="no pair of geoms"):
        contacts.between("ball", "floor")
    assert contacts.between("cube").pairs == contacts.pairs
    assert contacts.between(("ball", "floor"), "cube").pairs == contacts.pairs
    with pytest.raises(ConfigError, match="no contacts"):
        _ = World().contacts


def test_a_loaded_scene_acts_by_its_trees():
    """Of an MJCF file, a tree by the name of its root body; the first unless one is named."""
    scene = dynamics.load_mjcf(
        """<mujoco><worldbody>
        <geom name="floor" type="plane" size="1 1 1"/>
        <body name="ball" pos="0.5 0 0.1"><freejoint/><geom name="ball" size="0.05"/></body>
        <body name="slider"><joint name="x" type="slide" axis="1 0 0"/>
          <geom name="pad" type="box" size="0.1 0.1 0.1" pos="0 0 0.2"/></body>
        </worldbody></mujoco>"""
    )
    assert list(scene.members) == ["ball", "slider"]
    assert ContactPhysics(scene).robot.nv == 6
    physics = ContactPhysics(scene, "slider")
    assert physics.robot.joint_names == ("x",)
    world = physics.begin("test", World(), np.float32)
    _, v, state = jax.jit(
        lambda tau: physics.step(
            scene, jnp.zeros(1), jnp.zeros(1), tau, jnp.float32(0.01), None, world.scene
        )
    )(jnp.array([scene.system.mass[1]]))
    np.testing.assert_allclose(v, [0.01], rtol=1e-5)
    np.testing.assert_allclose(state.objects["ball"].v[2], -0.0981, rtol=1e-5)
    np.testing.assert_allclose(state.objects["ball"].position, [0.5, 0, 0.1], atol=1e-2)


def test_recordings_have_contacts(push, rollout, tmp_path):
    env, params = push
    recording = fraxenv.record(env, params, None, jax.random.key(0), num_envs=N, steps=3)
    recording.save(tmp_path / "recording.npz")
    loaded = fraxenv.load_recording(tmp_path / "recording.npz")
    force = loaded.infos["contacts"]["normal_force"]
    assert force.shape == (3, N, 2)
    np.testing.assert_array_equal(force, recording.infos["contacts"]["normal_force"])
    assert loaded.start["state.world.scene.objects['cube'].q"].shape == (N, 7)
    states = []
    report = fraxenv.replay(loaded, env, params, watch=states.append)
    assert report.identical, str(report)
    for name in ("q", "v"):
        where = np.stack([getattr(s.world.objects["cube"], name) for s in states])
        np.testing.assert_array_equal(loaded.infos["objects"]["cube"][name], where)


def test_names_of_objects_may_have_slashes():
    """They are one name each in a recording's file."""
    array = np.zeros(1)
    (name,) = flat("infos", {"objects": {"table/cube~1": {"q": array}}})
    assert [*map(unescaped, name.split("/"))] == ["infos", "objects", "table/cube~1", "q"]
