"""Forests: against Pinocchio and MuJoCo, and against their robots one by one."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax import Array
from random_robots import robots
from support import dtype_with_slow, with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import OSC, PoseTarget
from fraxenv.cross_check.comparison import (
    comparable,
    one_by_one,
    oracle_quantities,
    our_quantities,
    random_torques,
    relative_errors,
    tolerance,
    trajectories,
)
from fraxenv.cross_check.mujoco import MujocoOracle
from fraxenv.cross_check.pinocchio import PinocchioOracle
from fraxenv.cross_check.quantities import States, random_states
from fraxenv.dynamics import Robot
from fraxenv.dynamics.body_motion import body_twists, kinematics_rate
from fraxenv.dynamics.model.bundled import bundled_urdf
from fraxenv.dynamics.model.combine import extract, tree_slices, with_extracted
from fraxenv.dynamics.model.urdf import ROOT_JOINT
from fraxenv.errors import ArrayError, ConfigError
from fraxenv.kernels import explain

STATES = 10
STEP = 1e-3  # s
TOLERANCE = 1e-10
GRAVITY = (2.0, -3.0, -9.0)
QUICK = {"xla_backend_optimization_level": 0}
# Every example is a program of its own; shrinking would compile hundreds.
FEW: dict[str, Any] = {
    "phases": (Phase.explicit, Phase.generate),
    "suppress_health_check": list(HealthCheck),
}

CUBE = """<robot name="cube"><link name="cube">
<inertial><origin xyz="0.01 0 0.02" rpy="0.3 0 0.1"/><mass value="0.4"/>
<inertia ixx="3e-3" iyy="4e-3" izz="5e-3" ixy="0" ixz="0" iyz="0"/></inertial>
<collision name="cube_1"><geometry><box size="0.05 0.06 0.07"/></geometry></collision>
<collision name="cube_2"><geometry><sphere radius="0.04"/></geometry></collision>
</link></robot>"""

Machine = tuple[str, bool]
Arrays = dict[str, np.ndarray]


@contextmanager
def written(*texts: str) -> Iterator[list[Path]]:
    with tempfile.TemporaryDirectory(prefix="fraxenv-") as folder:
        paths = [Path(folder) / f"{i}.urdf" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        yield paths


def load_cube(**options: Any) -> Robot:
    with written(CUBE) as (path,):
        return dynamics.load_urdf(
            path, floating_base=True, end_effectors={"object": "cube"}, **options
        )


@pytest.fixture(scope="module")
def cube() -> Robot:
    return load_cube()


# --- the model ------------------------------------------------------------------------------------


def test_everything_is_in_the_order_given(panda: Robot, cube: Robot) -> None:
    forest = dynamics.combine(panda, cube)
    assert forest.name == "panda+cube"
    assert (forest.nq, forest.nv, forest.nb) == (14, 13, 8)
    assert forest.joint_names == (*panda.joint_names, "root_joint")
    assert forest.frame_names == (*panda.frame_names, "cube")
    assert forest.end_effectors == ("hand", "object")
    assert forest.frame("object").body == 7
    assert forest.frame("hand").body == 6
    np.testing.assert_array_equal(forest.topology.parent, [-1, 0, 1, 2, 3, 4, 5, -1])
    np.testing.assert_array_equal(forest.topology.base, [-1] * 7 + [7])
    for leaf in ("mass", "com", "inertia", "position_limits", "effort_limits", "q_default"):
        joined = np.concatenate([getattr(panda, leaf), getattr(cube, leaf)])
        np.testing.assert_array_equal(getattr(forest, leaf), joined)
    np.testing.assert_array_equal(forest.gravity, panda.gravity)
    shapes = [s.name for s in forest.topology.collision_shapes]
    assert shapes == [s.name for r in (panda, cube) for s in r.topology.collision_shapes]
    assert dynamics.self_distance_names(forest) == dynamics.self_distance_names(panda)
    assert dynamics.combine(panda, cube, name="cell").name == "cell"


def test_pairs_and_followed_joints_are_renumbered(panda: Robot, joints: Robot) -> None:
    forest = dynamics.combine(joints.replace(gravity=panda.gravity), panda)
    assert dynamics.self_distance_names(forest) == dynamics.self_distance_names(panda)
    forest = dynamics.combine(panda, joints.replace(gravity=panda.gravity))
    followed = {
        j.name: forest.topology.joints[j.mimic.joint].name
        for j in forest.topology.joints
        if j.mimic
    }
    own = {
        j.name: joints.topology.joints[j.mimic.joint].name
        for j in joints.topology.joints
        if j.mimic
    }
    assert followed == own
    assert own


def test_one_robot_stays_what_it_is(panda: Robot, joints: Robot) -> None:
    for robot in (panda, joints, dynamics.lock_joints(panda, ["panda_joint2"])):
        chex.assert_trees_all_equal(dynamics.combine(robot), robot)


def test_what_has_no_visual_shapes_is_drawn_beside_others(panda: Robot, cube: Robot) -> None:
    assert panda.topology.visual_shapes
    assert not cube.topology.visual_shapes
    forest = dynamics.combine(panda, cube)
    drawn = forest.topology.visual_shapes[len(panda.topology.visual_shapes) :]
    assert [(s.name, s.body) for s in drawn] == [("cube_1", 7), ("cube_2", 7)]
    pair = dynamics.combine(cube, cube, prefixes=("", "other_"))
    assert not pair.topology.visual_shapes
    assert len(pair.topology.collision_shapes) == 4


def test_forests_can_be_combined(panda: Robot, cube: Robot) -> None:
    cartpole = dynamics.load_robot("cartpole")
    at_once = dynamics.combine(cartpole, cube, panda)
    nested = (
        dynamics.combine(dynamics.combine(cartpole, cube), panda),
        dynamics.combine(cartpole, dynamics.combine(cube, panda)),
    )
    chex.assert_trees_all_equal(at_once, *nested)


def test_slices_are_where_the_robots_are(cube: Robot, joints: Robot, panda: Robot) -> None:
    members = (cube, joints.replace(gravity=cube.gravity), panda)
    forest = dynamics.combine(*members)
    slices = dynamics.member_slices(*members)
    coordinates = np.arange(forest.nq)
    names, bodies = np.array(forest.topology.dof_names), np.array(forest.topology.body_names)
    for robot, own in zip(members, slices, strict=True):
        assert len(coordinates[own.q]) == robot.nq
        assert tuple(names[own.v]) == robot.topology.dof_names
        assert tuple(bodies[own.bodies]) == robot.topology.body_names
        directions = forest.topology.axes.direction[own.axes]
        np.testing.assert_array_equal(directions, robot.topology.axes.direction)
    assert slices[0].q.start == 0
    assert slices[-1].q.stop == forest.nq
    assert len({*slices, *dynamics.member_slices(*members)}) == 3  # hashable, by value


def test_a_robot_is_what_it_was_before(cube: Robot, joints: Robot, panda: Robot) -> None:
    """`extract` undoes `combine`, but that frames of the world are everybody's."""
    robots = cube, panda, joints.replace(gravity=panda.gravity)
    forest = dynamics.combine(*robots)
    for robot, own in zip(robots, dynamics.member_slices(*robots), strict=True):
        out = extract(forest, own, robot.name)
        chex.assert_trees_all_equal(jax.tree.leaves(out), jax.tree.leaves(robot))
        now, before = out.topology, robot.topology
        assert (now.name, now.body_names) == (before.name, before.body_names)
        assert list(now.end_effectors) == list(before.end_effectors)
        assert [j.mimic for j in now.joints] == [j.mimic for j in before.joints]
        np.testing.assert_array_equal(now.parent, before.parent)
        for alias in before.end_effectors:
            assert out.frame(alias).name == robot.frame(alias).name
            assert out.frame(alias).body == robot.frame(alias).body
        assert set(robot.frame_names) <= set(out.frame_names)
        pairs = [
            [tuple(t.collision_shapes[i].name for i in p) for p in t.self_collision_pairs]
            for t in (now, before)
        ]
        assert pairs[0] == pairs[1]
        again = with_extracted(forest, own, out)
        chex.assert_trees_all_equal(again, forest)


def test_trees_are_found_in_a_forest(cube: Robot, joints: Robot, panda: Robot) -> None:
    robots = cube, panda, joints.replace(gravity=panda.gravity)
    assert list(tree_slices(dynamics.combine(*robots)).values())[:2] == list(
        dynamics.member_slices(*robots)[:2]
    )


def test_prefixes_make_names_unique(panda: Robot) -> None:
    forest = dynamics.combine(panda, panda, prefixes=("", "right_"))
    assert forest.end_effectors == ("hand", "right_hand")
    assert forest.joint_names[7:] == tuple(f"right_{n}" for n in panda.joint_names)
    assert forest.name == "panda+right_panda"
    ours = set(panda.frame_names)
    assert set(forest.frame_names) == ours | {f"right_{n}" for n in ours}
    names = dynamics.self_distance_names(forest)
    assert len(set(names)) == len(names) == 2 * len(dynamics.self_distance_names(panda))


def test_names_that_clash_are_refused(panda: Robot, cube: Robot) -> None:
    with pytest.raises(ConfigError) as caught:
        dynamics.combine(panda, cube, panda)
    message = str(caught.value)
    assert "robots 'panda' and 'panda' have joints of the same name: 'panda_joint1'" in message
    assert "and 4 more" in message
    assert "prefixes=" in message
    with pytest.raises(ConfigError, match="joints of the same name: 'root_joint'"):
        dynamics.combine(cube, dynamics.load_robot("g1"))
    with written(CUBE.replace('"cube', '"box')) as (path,):
        box = dynamics.load_urdf(path, floating_base=True, end_effectors={"panda_link7": "box"})
    with pytest.raises(ConfigError, match=r"frames or end effectors of the same .* 'panda_link7'"):
        dynamics.combine(panda, box)
    shapes = panda.topology.collision_shapes[:1]
    touching = cube.replace(
        topology=dataclasses.replace(cube.topology, collision_shapes=shapes, visual_shapes=shapes)
    )
    with pytest.raises(ConfigError, match=f"collision shapes of the same name: '{shapes[0].name}'"):
        dynamics.combine(panda, touching)


@pytest.mark.parametrize("prefixes", ["ab", (), ("a",), ("a", "b", "c")])
def test_one_prefix_for_each_robot(panda: Robot, cube: Robot, prefixes: Any) -> None:
    with pytest.raises(ConfigError, match="one for each of the 2 robots 'panda', 'cube'"):
        dynamics.combine(panda, cube, prefixes=prefixes)


def test_there_is_one_gravity(panda: Robot, cube: Robot) -> None:
    with pytest.raises(ConfigError, match=r"expected one for all.*other\.replace\(gravity="):
        dynamics.combine(panda, cube.replace(gravity=np.zeros(3)))


def test_batches_are_refused_and_numbers_stand_for_all(panda: Robot, cube: Robot) -> None:
    with pytest.raises(ArrayError, match=r"damping of robot 'cube' has shape \(4, 6\)"):
        dynamics.combine(panda, cube.replace(damping=np.zeros((4, 6))))
    forest = dynamics.combine(panda, cube.replace(damping=0.5))
    np.testing.assert_array_equal(forest.damping[7:], np.full(6, 0.5))


def test_parameters_may_be_traced(arm: Robot, cube: Robot, x64: None) -> None:
    """As in a batch of randomised robots; and derivatives go through."""
    q = np.concatenate([arm.q_default, cube.q_default])

    @jax.jit
    def pull(mass: Array) -> Array:
        forest = dynamics.combine(arm, cube.replace(mass=mass))
        return dynamics.gravity_forces(forest, q)[4]

    masses = jnp.array([[0.3], [0.7]])
    np.testing.assert_allclose(jax.vmap(pull)(masses), 9.81 * masses[:, 0], rtol=1e-12)
    np.testing.assert_allclose(jax.grad(pull)(masses[0]), [9.81], rtol=1e-12)


def test_locking_and_mounting_are_those_of_the_robots(panda: Robot, cube: Robot) -> None:
    locked = ["panda_joint1", "panda_joint6"]
    forest = dynamics.lock_joints(dynamics.combine(panda, cube), locked)
    expected = dynamics.combine(dynamics.lock_joints(panda, locked), cube)
    chex.assert_trees_all_close(forest, expected, rtol=1e-12, atol=1e-15)
    place = [0.3, -0.2, 0.8], np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    forest = dynamics.mount(dynamics.combine(panda, cube), *place)
    expected = dynamics.combine(*(dynamics.mount(r, *place) for r in (panda, cube)))
    chex.assert_trees_all_equal(forest, expected)


# --- against others' software ---------------------------------------------------------------------


def check(forest: Robot, oracles: list[Any], seed: int = 0, bound: float = TOLERANCE) -> None:
    states = random_states(forest, STATES, np.float64, seed)
    ours = our_quantities(forest, states, STEP)
    for oracle in oracles:
        errors = relative_errors(ours, oracle_quantities(oracle, one_by_one(states)))
        assert len(errors) >= 15
        for name, error in errors.items():
            allowed = tolerance(name, bound, ours["mass matrix"])
            assert error <= allowed, f"{type(oracle).__name__}: {name} differs by {error:.3g}"


def appended(forest: Robot, *parts: tuple[Path, str]) -> PinocchioOracle:
    """Pinocchio's model of several files, each with the name of its floating joint or ''."""
    pin = pytest.importorskip("pinocchio")
    models = [
        pin.buildModelFromUrdf(str(path), pin.JointModelFreeFlyer(), root)
        if root
        else pin.buildModelFromUrdf(str(path))
        for path, root in parts
    ]
    whole = models[0]
    for model in models[1:]:
        whole = pin.appendModel(whole, model, 0, pin.SE3.Identity())
    return PinocchioOracle.from_model(forest, whole)


# Of the first the base floats, of the second nothing does; of the third the base rolls.
FORESTS = [("g1", "panda"), ("panda", "cube"), ("cube", "planar_mobile_manipulator", "tree")]


@pytest.mark.slow
@pytest.mark.parametrize("names", with_slow(FORESTS, *FORESTS[:2]), ids="-".join)
def test_agrees_with_pinocchio_and_mujoco(
    names: tuple[str, ...], tree_path: Path, x64: None
) -> None:
    pytest.importorskip("mujoco")
    with written(CUBE) as (cube_path,):
        paths = {"tree": tree_path, "cube": cube_path}
        floating = {"g1": ROOT_JOINT, "cube": ROOT_JOINT}
        parts = [(paths.get(n) or bundled_urdf(n), floating.get(n, "")) for n in names]
        members = [
            dynamics.load_urdf(path, floating_base=bool(root), gravity=GRAVITY)
            for path, root in parts
        ]
        # Theirs have no rotors along axes that turn with the body.
        members = [
            r.replace(
                armature=np.array(
                    [0.1 * (j.nv == 1) for j in r.topology.joints for _ in range(j.nv)]
                )
            )
            for r in members
        ]
        forest = comparable(dynamics.combine(*members))
        check(forest, [appended(forest, *parts), MujocoOracle.from_robot(forest, STEP)])


WORLD_MJCF = f"""<mujoco>
<compiler angle="radian"/>
<option gravity="{GRAVITY[0]} {GRAVITY[1]} {GRAVITY[2]}" timestep="{STEP}" integrator="Euler"/>
<worldbody>
<body name="upper" pos="0.1 0.2 0.5" quat="0.8 0 0.6 0">
  <joint name="shoulder" axis="0 1 0" damping="0.7" armature="0.05"/>
  <inertial pos="0 0 0.15" mass="1.5" diaginertia="0.02 0.03 0.01"/>
  <body name="fore" pos="0 0 0.3">
    <joint name="elbow" axis="1 0 0" damping="0.4"/>
    <inertial pos="0.02 0 0.1" mass="0.8" diaginertia="0.01 0.01 0.005"/>
  </body>
</body>
<body name="ball"><freejoint/>
  <inertial pos="0.01 0 0.02" mass="0.4" diaginertia="0.003 0.004 0.005"/>
</body>
<body name="slider" pos="-1 0 0">
  <joint name="rail" type="slide" axis="0 0 1" damping="2"/>
  <inertial pos="0 0 0" mass="3" diaginertia="0.1 0.1 0.1"/>
</body>
</worldbody></mujoco>"""


def _link(name: str, mass: float, com: str, moments: tuple[float, float, float]) -> str:
    x, y, z = moments
    return (
        f'<link name="{name}"><inertial><origin xyz="{com}"/><mass value="{mass}"/><inertia '
        f'ixx="{x}" iyy="{y}" izz="{z}" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    )


def _joint(name: str, kind: str, ends: str, place: str, axis: str, damping: float) -> str:
    parent, child = ends.split()
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin {place}/><axis xyz="{axis}"/><dynamics damping="{damping}"/>'
        '<limit lower="-2" upper="2" effort="9" velocity="9"/></joint>'
    )


PITCH = 2 * np.arctan2(0.6, 0.8)
WORLD_URDFS = (
    '<robot name="arm"><link name="base"/>'
    + _link("upper", 1.5, "0 0 0.15", (0.02, 0.03, 0.01))
    + _link("fore", 0.8, "0.02 0 0.1", (0.01, 0.01, 0.005))
    + _joint(
        *("shoulder", "revolute", "base upper", f'xyz="0.1 0.2 0.5" rpy="0 {PITCH:.17g} 0"'),
        *("0 1 0", 0.7),
    )
    + _joint("elbow", "revolute", "upper fore", 'xyz="0 0 0.3"', "1 0 0", 0.4)
    + "</robot>",
    '<robot name="ball">' + _link("ball", 0.4, "0.01 0 0.02", (0.003, 0.004, 0.005)) + "</robot>",
    '<robot name="lift"><link name="floor"/>'
    + _link("slider", 3.0, "0 0 0", (0.1, 0.1, 0.1))
    + _joint("rail", "prismatic", "floor slider", 'xyz="-1 0 0"', "0 0 1", 2.0)
    + "</robot>",
)


def world_of_mujocos() -> tuple[Robot, MujocoOracle]:
    """MuJoCo reads bodies side by side in one file, we read a file for each."""
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(WORLD_MJCF)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
    with written(*WORLD_URDFS) as paths:
        arm, ball, lift = (
            dynamics.load_urdf(path, floating_base=floating, gravity=GRAVITY)
            for path, floating in zip(paths, (False, True, False), strict=True)
        )
    forest = dynamics.combine(arm.replace(armature=np.array([0.05, 0.0])), ball, lift)
    return forest, MujocoOracle(forest, model)


@pytest.mark.slow
def test_agrees_with_mujocos_own_world(x64: None) -> None:
    forest, oracle = world_of_mujocos()
    np.testing.assert_array_equal(oracle.coordinates, np.arange(forest.nq))
    np.testing.assert_array_equal(oracle.dofs, np.arange(forest.nv))
    check(forest, [oracle])


@pytest.mark.slow
def test_moves_as_in_mujocos_own_world(x64: None) -> None:
    forest, oracle = world_of_mujocos()
    torques = random_torques(forest, 0.5, STEP, np.float64, 0)
    assert trajectories(forest, oracle, torques).error < 1e-8


def renamed(text: str) -> str:
    """The links and joints of a random robot with other names, in its file."""
    return re.sub(r'"([lj]\d+)"', r'"b_\1"', text)


# Pinocchio's reader takes every planar joint's normal for z.
machines = robots(normal="0 0 1", max_bodies=4)
free_machines = robots(normal="0 0 1", max_bodies=4, mimics=False)


@pytest.mark.slow
@given(machines | free_machines, free_machines, st.integers(0, 1000))
@settings(max_examples=25, **FEW)
def test_random_forests(x64: None, one: Machine, other: Machine, seed: int) -> None:
    with written(one[0], renamed(other[0]), other[0]) as (first, second, unprefixed):
        a = dynamics.load_urdf(first, floating_base=one[1], gravity=GRAVITY)
        b = dynamics.load_urdf(unprefixed, floating_base=other[1], gravity=GRAVITY)
        forest = dynamics.combine(a, b, prefixes=("", "b_"))
        parts = (first, ROOT_JOINT if one[1] else ""), (second, "b_root_joint" if other[1] else "")
        oracles: list[Any] = [appended(forest, *parts)]
        if not any(j.mimic for j in forest.topology.joints):  # which MuJoCo lacks
            oracles.append(MujocoOracle.from_robot(forest, STEP))
        check(forest, oracles, seed, 1e-9)


def test_derivatives_agree_with_pinocchio(tree_path: Path, x64: None) -> None:
    pin = pytest.importorskip("pinocchio")
    paths = [tree_path, bundled_urdf("panda")]
    tree, panda = (dynamics.load_urdf(path, gravity=GRAVITY) for path in paths)
    forest = dynamics.combine(tree, panda)
    oracle = appended(forest, *((path, "") for path in paths))
    states = random_states(forest, STATES, np.float64)

    @partial(jax.jit, compiler_options=QUICK)
    @jax.vmap
    def ours(s: States) -> tuple[Array, ...]:
        return (
            *dynamics.forward_dynamics_derivatives(forest, s.q, s.v, s.tau),
            *dynamics.inverse_dynamics_derivatives(forest, s.q, s.v, s.a),
        )

    mine = [np.asarray(x) for x in ours(states)]
    for i, s in enumerate(one_by_one(states)):
        model, data = oracle.model, oracle.model.createData()
        q, (T, _) = oracle.configuration(s.q), oracle.transform(s.q, s.v)
        forward = pin.computeABADerivatives(model, data, q, T @ s.v, T @ s.tau)
        forward = [np.array(x) for x in forward]
        inverse = [
            np.array(x) for x in pin.computeRNEADerivatives(model, data, q, T @ s.v, T @ s.a)
        ]
        inverse[2] = np.triu(inverse[2]) + np.triu(inverse[2], 1).T
        for x, reference in zip(mine, (*forward, *inverse), strict=True):
            expected = T.T @ reference @ T
            assert np.abs(x[i] - expected).max() <= 1e-9 * np.abs(expected).max()


# --- against the robots one by one ----------------------------------------------------------------


def rows(robot: Robot, s: States, frames: Sequence[str]) -> dict[str, Array]:
    """What a forest has one robot after the other."""
    kin = dynamics.compute_kinematics(robot, s.q)
    twists = body_twists(robot, kin, jnp.asarray(s.v))
    q, v = dynamics.step(robot, s.q, s.v, s.tau, STEP, s.forces)
    q4, v4 = dynamics.step(robot, s.q, s.v, s.tau, STEP, s.forces, integrator="rk4")
    poses = [dynamics.frame_pose(robot, s.q, n, kin=kin) for n in frames]
    velocities = [dynamics.frame_velocity(robot, s.q, s.v, n, kin=kin) for n in frames]
    accelerations = [dynamics.frame_acceleration(robot, s.q, s.v, s.a, n, kin=kin) for n in frames]
    geometry = dynamics.robot_geometry(robot, s.q, kin=kin)
    rates = dynamics.robot_geometry_rate(robot, geometry, kin, twists)
    return {
        **{f"kinematics.{name}": x for name, x in vars(kin).items()},
        **{f"rate.{name}": x for name, x in vars(kinematics_rate(robot, kin, twists)).items()},
        "frame position": jnp.stack([p for p, _ in poses]),
        "frame rotation": jnp.stack([R for _, R in poses]),
        "frame velocity": jnp.stack(velocities),
        "frame acceleration": jnp.stack(accelerations),
        "rnea": dynamics.rnea(robot, s.q, s.v, s.a, s.forces, kin=kin),
        "bias": dynamics.bias_forces(robot, s.q, s.v, kin=kin),
        "gravity": dynamics.gravity_forces(robot, s.q, kin=kin),
        "external": dynamics.generalized_forces(robot, s.q, s.forces, kin=kin),
        "acceleration": dynamics.forward_dynamics(robot, s.q, s.v, s.tau, s.forces, kin=kin),
        "integrate": dynamics.integrate(robot, s.q, s.v, 0.1),
        "difference": dynamics.difference(robot, s.q, q4),
        "neutral": dynamics.neutral(robot),
        "step q": q,
        "step v": v,
        "rk4 q": q4,
        "rk4 v": v4,
        "sphere rates": rates.spheres.position,
        "capsule rates": rates.capsules.end,
        "self distances": dynamics.self_distances(robot, s.q, kin=kin),
    }


def blocks(robot: Robot, s: States, frames: Sequence[str]) -> dict[str, Array]:
    """What a forest has in blocks along the diagonal."""
    kin = dynamics.compute_kinematics(robot, s.q)
    jacobians = [dynamics.frame_jacobian(robot, s.q, f, kin=kin) for f in frames]
    dots = [dynamics.frame_jacobian_dot(robot, s.q, s.v, f, kin=kin) for f in frames]
    return {
        "mass matrix": dynamics.crba(robot, s.q, kin=kin),
        "coriolis": dynamics.coriolis_matrix(robot, s.q, s.v, kin=kin),
        "rates of coordinates": dynamics.coordinate_rates(robot, s.q),
        "jacobians": jnp.concatenate(jacobians),
        "jacobians dot": jnp.concatenate(dots),
    }


def blocks_and_derivatives(robot: Robot, s: States, frames: Sequence[str]) -> dict[str, Array]:
    """The same with derivatives, which compile for long."""
    forward = dynamics.forward_dynamics_derivatives(robot, s.q, s.v, s.tau, s.forces)
    inverse = dynamics.inverse_dynamics_derivatives(robot, s.q, s.v, s.a, s.forces)
    A, B = dynamics.transition_derivatives(robot, s.q, s.v, s.tau, STEP, s.forces)
    n = robot.nv
    return {
        **blocks(robot, s, frames),
        **{f"forward {name}": x for name, x in forward._asdict().items()},
        **{f"inverse {name}": x for name, x in inverse._asdict().items()},
        **{f"transition {i}{j}": A[i * n :, j * n :][:n, :n] for i in (0, 1) for j in (0, 1)},
        "transition q": B[:n],
        "transition v": B[n:],
        "integrate": jnp.concatenate(dynamics.integrate_derivatives(robot, s.q, s.v, 0.1), axis=0)[
            :n
        ],
    }


def totals(robot: Robot, s: States) -> dict[str, Array]:
    """What a forest has once."""
    kin = dynamics.compute_kinematics(robot, s.q)
    return {
        "mass": jnp.sum(jnp.asarray(robot.mass)),
        "centre": dynamics.center_of_mass(robot, s.q, kin=kin),
        "momentum": dynamics.centroidal_momentum(robot, s.q, s.v, kin=kin),
        "com velocity": dynamics.center_of_mass_jacobian(robot, s.q, kin=kin) @ s.v,
        "kinetic": dynamics.kinetic_energy(robot, s.q, s.v, kin=kin),
        "potential": dynamics.potential_energy(robot, s.q, kin=kin),
    }


def summed(one: Arrays, other: Arrays) -> Arrays:
    """The totals of two robots together."""
    mass = one["mass"] + other["mass"]
    centre, velocity = (
        (one["mass"][:, None] * one[x] + other["mass"][:, None] * other[x]) / mass[:, None]
        for x in ("centre", "com velocity")
    )
    angular = sum(
        r["momentum"][:, 3:] + np.cross(r["centre"] - centre, r["momentum"][:, :3])
        for r in (one, other)
    )
    linear = one["momentum"][:, :3] + other["momentum"][:, :3]
    return {
        "mass": mass,
        "centre": centre,
        "momentum": np.concatenate([linear, angular], axis=1),
        "com velocity": velocity,
        **{x: one[x] + other[x] for x in ("kinetic", "potential")},
    }


def block_diagonal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    result = np.zeros((len(a), a.shape[1] + b.shape[1], a.shape[2] + b.shape[2]))
    result[:, : a.shape[1], : a.shape[2]], result[:, a.shape[1] :, a.shape[2] :] = a, b
    return result


def part(s: States, own: dynamics.MemberSlices) -> States:
    q, (v, a, tau) = s.q[:, own.q], (x[:, own.v] for x in (s.v, s.a, s.tau))
    return States(q, v, a, tau, s.forces[:, own.bodies])


def check_one_by_one(
    a: Robot,
    b: Robot,
    forest: Robot,
    seed: int = 0,
    blocks: Callable[..., Any] = blocks_and_derivatives,
) -> None:
    states = random_states(forest, 3, np.float64, seed)
    own = dynamics.member_slices(a, b)

    def all_of(robot: Robot, s: States, frames: Sequence[int]) -> tuple[Arrays, ...]:
        names = [robot.frame_names[i] for i in frames]

        @partial(jax.jit, compiler_options=QUICK)
        @jax.vmap
        def program(s: States) -> tuple[dict[str, Array], ...]:
            return rows(robot, s, names), blocks(robot, s, names), totals(robot, s)

        return jax.tree.map(np.asarray, program(s))

    count = len(a.frame_names)
    together = all_of(forest, states, (0, count - 1, count, len(forest.frame_names) - 1))
    one, other = (
        all_of(r, part(states, where), (0, len(r.frame_names) - 1))
        for r, where in zip((a, b), own, strict=True)
    )
    expected = (
        {name: np.concatenate([one[0][name], other[0][name]], axis=1) for name in one[0]},
        {name: block_diagonal(one[1][name], other[1][name]) for name in one[1]},
        summed(one[2], other[2]),
    )
    for found, reference in zip(together, expected, strict=True):
        assert set(found) == set(reference)
        for name, value in reference.items():
            assert found[name].shape == value.shape, name
            error = np.abs(found[name] - value).max(initial=0.0)
            assert error <= TOLERANCE * max(1.0, np.abs(value).max(initial=0.0)), (name, error)


@pytest.mark.slow
def test_is_its_robots_side_by_side(arm: Robot, cube: Robot, x64: None) -> None:
    """A robot that stands, and one that floats; with their shapes."""
    check_one_by_one(arm, cube, dynamics.combine(arm, cube), blocks=blocks)


@pytest.mark.slow
def test_two_that_travel_side_by_side(joints: Robot, x64: None) -> None:
    """With every kind of joint, mimics included."""
    cube = load_cube(gravity=joints.gravity)
    check_one_by_one(cube, joints, dynamics.combine(cube, joints), blocks=blocks)


@pytest.mark.slow
def test_bundled_robots_side_by_side(panda: Robot, cube: Robot, joints: Robot, x64: None) -> None:
    check_one_by_one(panda, cube, dynamics.combine(panda, cube))
    rolling = dynamics.load_robot("planar_mobile_manipulator").replace(gravity=joints.gravity)
    check_one_by_one(rolling, joints, dynamics.combine(rolling, joints, prefixes=("rolling_", "")))


small = robots(max_bodies=3)


@pytest.mark.slow
@given(small, small, st.integers(0, 1000))
@settings(max_examples=25, **FEW)
def test_random_robots_side_by_side(x64: None, one: Machine, other: Machine, seed: int) -> None:
    with written(one[0], other[0]) as (first, second):
        a = dynamics.load_urdf(first, floating_base=one[1], gravity=GRAVITY)
        b = dynamics.load_urdf(second, floating_base=other[1], gravity=GRAVITY)
    check_one_by_one(a, b, dynamics.combine(a, b, prefixes=("a_", "b_")), seed)


def test_rates_of_two_that_travel(cube: Robot, x64: None) -> None:
    forest = dynamics.combine(cube, cube, prefixes=("one_", "other_"))
    rng = np.random.default_rng(8)
    v = rng.normal(size=forest.nv)
    q = dynamics.integrate(forest, forest.q_default, rng.normal(size=forest.nv), 1.0)

    def at(t: Array) -> tuple[Any, Any]:
        kin = dynamics.compute_kinematics(forest, dynamics.integrate(forest, q, t * v, 1.0))
        return kin, dynamics.robot_geometry(forest, q, kin=kin)

    @partial(jax.jit, compiler_options=QUICK)
    def both(t: Array) -> tuple[Any, Any]:
        (kin, geometry), reference = jax.jvp(at, (t,), (jnp.ones(()),))
        twists = body_twists(forest, kin, jnp.asarray(v))
        rate = dynamics.robot_geometry_rate(forest, geometry, kin, twists)
        return (kinematics_rate(forest, kin, twists), rate), reference

    ours, theirs = both(jnp.zeros(()))
    assert all(x.size for x in jax.tree.leaves(ours))
    chex.assert_trees_all_close(ours, theirs, rtol=1e-7, atol=1e-12)


def test_far_travels_cost_a_tree_nothing(panda: Robot, cube: Robot) -> None:
    """In float32, ten kilometres away: the mass matrix is that near the origin, bit for bit."""
    forest = dynamics.combine(panda, cube, cube, prefixes=("", "one_", "other_"))
    q = np.asarray(forest.q_default, np.float32)
    far = q.copy()
    far[7:10] = far[14:17] = 1e4
    far[7] += 1.0

    @jax.jit
    def both(q: Array) -> tuple[Array, Array]:
        v = jnp.linspace(-1.0, 1.0, forest.nv)
        return dynamics.crba(forest, q), dynamics.bias_forces(forest, q, v)

    for near, there in zip(both(q), both(far), strict=True):
        np.testing.assert_array_equal(near, there)


def test_momentum_of_two_that_travelled_far_together(cube: Robot, x64: None) -> None:
    pair = dynamics.combine(cube, cube, prefixes=("one_", "other_"))
    v = np.random.default_rng(3).normal(size=pair.nv)
    q = np.asarray(pair.q_default, float)
    q[0] += 0.5
    momentum = jax.jit(partial(dynamics.centroidal_momentum, pair), compiler_options=QUICK)
    expected = momentum(q, v)
    q[[0, 7]] += 8192.0
    single = [jnp.asarray(x, jnp.float32) for x in (q, v)]
    found = momentum(*single)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-6)


# --- controllers, batches and kernels -------------------------------------------------------------


@pytest.mark.slow
def test_a_controller_works_on_its_robots_part(panda: Robot, cube: Robot, x64: None) -> None:
    """The robot second, so that nothing is where it would be on its own."""
    forest = dynamics.combine(cube, panda)
    _, own = dynamics.member_slices(cube, panda)
    osc = OSC("hand")
    rng = np.random.default_rng(0)
    q = rng.uniform(-0.3, 0.3, (4, forest.nq)) + np.asarray(forest.q_default)
    v = rng.normal(size=(4, forest.nv))

    def torque(terms: dynamics.Terms) -> Array:
        place = dynamics.frame_pose(panda, panda.q_default, "hand")
        target = PoseTarget(place[0] + 0.05, place[1])
        return osc(panda, terms, target, osc.init(panda, terms), STEP)[0]

    @jax.jit
    @jax.vmap
    def both(q: Array, v: Array) -> tuple[Any, Any]:
        alone = dynamics.compute_terms(panda, q[own.q], v[own.v])
        cut = dynamics.restrict_terms(dynamics.compute_terms(forest, q, v), own)
        return (alone, torque(alone)), (cut, torque(cut))

    one, other = both(q, v)
    assert np.abs(one[1]).max() > 1.0
    chex.assert_trees_all_equal_shapes(one, other)
    chex.assert_trees_all_close(one, other, rtol=1e-9, atol=1e-9)


@dtype_with_slow("float64")
def test_fused_is_vmapped(arm: Robot, cube: Robot, dtype: np.dtype) -> None:
    forest = dynamics.combine(arm, cube)
    states = random_states(forest, 16, dtype)

    def program(q: Array, v: Array, tau: Array) -> tuple[Array, ...]:
        q, v = dynamics.step(forest, q, 0.1 * v, 0.1 * tau, STEP)
        return q, v, dynamics.crba(forest, q)

    args = states.q, states.v, states.tau
    fused, mapped = fraxenv.fuse(program)(*args), jax.jit(jax.vmap(program))(*args)
    for a, b in zip(fused, mapped, strict=True):
        assert a.dtype == dtype
        scale = np.abs(b).max()
        np.testing.assert_allclose(a, b, atol=scale * (1e-10 if dtype == np.float64 else 1e-4))
    M = np.asarray(fused[2])
    assert not M[:, :2, 2:].any()
    assert not M[:, 2:, :2].any()


def operations(robot: Robot, name: str) -> int:
    q = jnp.tile(jnp.asarray(robot.q_default, float), (8, 1))
    v = jnp.zeros((8, robot.nv))
    function = getattr(dynamics, name)
    explanation = explain(lambda q, v, tau: function(robot, q, v, tau))(q, v, v)
    assert not explanation.fallbacks
    return int(explanation.operations_run)


@pytest.mark.parametrize(
    "name",
    with_slow(["forward_dynamics", "forward_dynamics_derivatives"], "forward_dynamics_derivatives"),
)
def test_a_kernel_of_a_forest_is_those_of_its_robots(name: str, arm: Robot, cube: Robot) -> None:
    """All that is zero between the trees folds away."""
    separately = operations(arm, name) + operations(cube, name)
    assert operations(dynamics.combine(arm, cube), name) <= separately
