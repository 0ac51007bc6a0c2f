"""Scenes loaded from MJCF against MuJoCo: kinematics, terms, forces, weights, pairs."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from pathlib import Path

import jax
import mujoco
import numpy as np
import pytest
from scenes import SOURCES, compiled, mass_matrix, random_state
from support import with_slow

from fraxenv import dynamics
from fraxenv.dynamics import Scene
from fraxenv.dynamics.contact.model import GEOM_KINDS
from fraxenv.dynamics.contact.weights import inverse_weights
from fraxenv.dynamics.scene.forces import actuator_forces, passive_forces, velocity_slopes

STATES = 5
TOLERANCE = 1e-12


GYMNASIUM = Path(find_spec("gymnasium").origin).parent / "envs" / "mujoco" / "assets"  # type: ignore
SLOW = ("quadruped", "gantry", "balls", "equalities", "hand")
OTHERS = ("ant", "half_cheetah", "hopper", "humanoid", "reacher", "swimmer", "walker2d_v5")
"""Models of Gymnasium, which nobody wrote for these tests."""


@pytest.fixture(
    scope="module",
    params=with_slow((*SOURCES, *OTHERS), *set(OTHERS) - {"humanoid"}, *SLOW),
)
def both(request: pytest.FixtureRequest) -> tuple[Scene, mujoco.MjModel]:
    if request.param in SOURCES:
        model = compiled(request.param)
    else:
        model = mujoco.MjModel.from_xml_path(str(GYMNASIUM / f"{request.param}.xml"))
        # They are integrated by RK4, solved by PGS, and swim.
        model.opt.integrator, model.opt.solver = 0, int(mujoco.mjtSolver.mjSOL_NEWTON)
        model.opt.density = model.opt.viscosity = 0
    with jax.enable_x64(True):
        return dynamics.load_mjcf(model), model


def error(actual: object, expected: object) -> float:
    """Relative to the largest entry."""
    a, b = np.asarray(actual), np.asarray(expected)
    assert a.shape == b.shape
    return float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-300))


def test_terms_and_weights_equal_mujoco_s(both: tuple[Scene, mujoco.MjModel]) -> None:
    scene, model = both
    data, rng = mujoco.MjData(model), np.random.default_rng(1)

    def terms(q: jax.Array, v: jax.Array, ctrl: jax.Array) -> tuple[jax.Array, ...]:
        t = dynamics.compute_terms(scene.system, q, v)
        poses = [dynamics.frame_pose(scene.system, q, n, kin=t.kin) for n in scene.link_names]
        return (
            t.mass_matrix,
            t.bias,
            passive_forces(scene, q, v, kin=t.kin),
            actuator_forces(scene, q, v, ctrl),
            inverse_weights(scene.system, scene.constraints),
            *zip(*poses, strict=True),
        )

    with jax.enable_x64(True):
        of_state = jax.jit(terms)
        for _ in range(STATES):
            q, v, ctrl = random_state(model, rng)
            data.qpos, data.qvel, data.ctrl = q, v, ctrl
            mujoco.mj_forward(model, data)
            M, bias, passive, actuator, weights, positions, rotations = of_state(q, v, ctrl)
            assert error(M, mass_matrix(model, data)) < TOLERANCE
            assert error(bias, data.qfrc_bias) < TOLERANCE
            assert error(passive, data.qfrc_passive) < TOLERANCE
            assert error(actuator, data.qfrc_actuator) < TOLERANCE
            np.testing.assert_allclose(positions, data.xpos, rtol=0, atol=TOLERANCE)
            np.testing.assert_allclose(np.reshape(rotations, (-1, 9)), data.xmat, atol=TOLERANCE)
    translation, rotation = model.body_invweight0.T
    np.testing.assert_allclose(weights.translation, translation, rtol=TOLERANCE, atol=1e-14)
    np.testing.assert_allclose(weights.rotation, rotation, rtol=TOLERANCE, atol=1e-14)
    np.testing.assert_allclose(weights.dof, model.dof_invweight0, rtol=TOLERANCE)
    np.testing.assert_array_equal(scene.constraints.weights.dof, model.dof_invweight0)


def test_geoms_are_where_mujoco_has_them(both: tuple[Scene, mujoco.MjModel]) -> None:
    scene, model = both
    data = mujoco.MjData(model)
    q, _, _ = random_state(model, np.random.default_rng(2))
    data.qpos = q
    mujoco.mj_forward(model, data)
    with jax.enable_x64(True):
        poses = jax.jit(dynamics.forward_kinematics)(scene.system, q)
    geoms = scene.constraints.geoms
    for i, geom in enumerate(scene.constraints.layout.geoms):
        moves = geom.body >= 0
        p0 = np.asarray(poses.position)[geom.body] if moves else np.zeros(3)
        R0 = np.asarray(poses.rotation)[geom.body] if moves else np.eye(3)
        g = _ids(scene, model)[i]
        np.testing.assert_allclose(p0 + R0 @ geoms.position[i], data.geom_xpos[g], atol=TOLERANCE)
        np.testing.assert_allclose(
            (R0 @ geoms.rotation[i]).ravel(), data.geom_xmat[g], atol=TOLERANCE
        )
        assert GEOM_KINDS.index(geom.kind) == [0, 2, 3, 5, 6].index(model.geom_type[g])
        assert geom.link == model.geom_bodyid[g]


def _ids(scene: Scene, model: mujoco.MjModel) -> list[int]:
    """MuJoCo's geom of each of ours: those without a name are named after their body."""
    ids = {}
    for g in range(model.ngeom):
        if name := model.geom(g).name:
            ids[name] = g
    for name in scene.geom_names:
        if name not in ids:
            body = name.rpartition("_geom")[0]
            own = [b for b in range(model.nbody) if body == (model.body(b).name or f"body{b}")]
            ids[name] = int(model.body_geomadr[own[0]])
    return [ids[name] for name in scene.geom_names]


def test_pairs_are_those_that_mujoco_collides(both: tuple[Scene, mujoco.MjModel]) -> None:
    scene, model = both
    ids, pairs = _ids(scene, model), scene.constraints.layout.pairs
    expected = _collided(model)
    ours = [(ids[p.geoms[0]], ids[p.geoms[1]]) for p in pairs]
    assert len(set(ours)) == len(ours)
    assert {p: c.condim for p, c in zip(ours, pairs, strict=True)} == expected
    kinds = [tuple(model.geom_type[list(p)]) for p in ours]
    assert kinds == sorted(kinds)


def _collided(model: mujoco.MjModel) -> dict[tuple[int, int], int]:
    """Dimension of contacts of all pairs that MuJoCo's filters let pass: all geoms at one place."""
    model = copy.copy(model)
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
    model.geom_margin[:], model.pair_margin[:], model.body_margin[:] = 1e3, 1e3, 1e3
    rng, found = np.random.default_rng(3), {}
    for _ in range(5):
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        data.geom_xpos[:] = 1e-3 * rng.normal(size=(model.ngeom, 3))
        mujoco.mj_collision(model, data)
        for c in data.contact:
            found[int(c.geom[0]), int(c.geom[1])] = int(c.dim)
    return found


@pytest.mark.parametrize("name", ["gripper_arm", "servos", "many_joints"])
def test_implicitfast_step_equals_mujoco_s(name: str) -> None:
    """The slopes by velocity, by the step that they are for."""
    model = compiled(name)
    with jax.enable_x64(True):
        scene = dynamics.load_mjcf(SOURCES[name])
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    data, rng, h = mujoco.MjData(model), np.random.default_rng(4), model.opt.timestep
    of_state = jax.jit(velocity_slopes)
    for _ in range(STATES):
        q, v, ctrl = random_state(model, rng)
        data.qpos, data.qvel, data.ctrl = q, v, ctrl
        mujoco.mj_forward(model, data)
        M, smooth = mass_matrix(model, data), data.qfrc_smooth.copy()
        mujoco.mj_step(model, data)
        with jax.enable_x64(True):
            slopes = np.asarray(of_state(scene, q, v, ctrl))
        free = [start for _, _, start in scene.system.topology.quaternions]
        rigid = np.ones(model.nv, bool)
        for start in free:  # MuJoCo solves free bodies again, with their gyroscopic forces
            rigid[start - 3 : start + 3] = False
        ours = v + h * np.linalg.solve(M - h * np.diag(slopes), smooth)
        np.testing.assert_allclose(ours[rigid], data.qvel[rigid], rtol=1e-10, atol=1e-11)


def test_path_text_and_model_give_the_same() -> None:
    path = SOURCES["many_joints"]
    text, model = path.read_text(), compiled("many_joints")
    scenes = [dynamics.load_mjcf(x) for x in (path, str(path), text, model)]
    structures = {jax.tree.structure(s) for s in scenes}
    assert len(structures) == 1
    for other in scenes[1:]:
        for a, b in zip(jax.tree.leaves(scenes[0]), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)


def test_names_orders_and_keyframes() -> None:
    scene, model = dynamics.load_mjcf(SOURCES["many_joints"]), compiled("many_joints")
    assert (scene.nq, scene.nv, scene.nu) == (model.nq, model.nv, model.nu)
    assert scene.system.joint_names == ("s", "h", "h2", "s2", "b", "body4_joint", "body4_joint1")
    assert scene.link_names == ("world", "a", "w", "body3", "body4")
    assert "w (site)" in scene.system.frame_names
    assert scene.actuator_names == ("s_actuator", "servo", "h2_actuator", "h_actuator")
    assert scene.members["a"].axes == slice(0, 11)
    # Bodies between the joints of one body have no mass, and that may stay so.
    mass = np.asarray(scene.system.mass)
    assert (mass == 0).sum() == 4
    scene.system.replace(mass=2 * mass, inertia=2 * np.asarray(scene.system.inertia))
    home = scene.keyframes["home"]
    np.testing.assert_array_equal(home.v, np.arange(1.0, 12.0))
    np.testing.assert_array_equal(home.q, model.key_qpos[0])
    layout = scene.constraints.layout
    assert [scene.system.topology.dof_names[i] for i in layout.limited] == ["h"]
    assert [scene.system.topology.joints[i].name for i in layout.limited_balls] == ["b"]
    assert [scene.system.topology.dof_names[i] for i in layout.friction_loss] == ["h"]
    np.testing.assert_allclose(scene.system.position_limits[1], np.deg2rad([-100, 100]))
    np.testing.assert_allclose(scene.system.position_limits[4], [0, np.deg2rad(60)])


def test_trees_are_members() -> None:
    scene = dynamics.load_mjcf(SOURCES["gripper_arm"])
    assert set(scene.members) == {"shoulder", "cube"}
    cube = scene.members["cube"]
    assert (cube.q, cube.v, cube.bodies) == (slice(9, 16), slice(9, 15), slice(9, 10))
    assert cube.axes == slice(9, 15)


def test_visual_geoms_are_drawn_and_do_not_collide() -> None:
    scene = dynamics.load_mjcf(SOURCES["gripper_arm"])
    topology = scene.system.topology
    assert "palm (visual)" in [s.name for s in topology.visual_shapes]
    assert "palm (visual)" not in scene.geom_names
    assert "palm" in [s.name for s in topology.collision_shapes]
    assert "palm" not in [s.name for s in topology.visual_shapes]
    cube = next(s for s in topology.visual_shapes if s.name == "cube")
    assert cube.size == (0.04, 0.04, 0.042)
    np.testing.assert_allclose(cube.rgba, (0.8, 0.2, 0.2, 1.0), atol=1e-6)
    table = next(s for s in topology.visual_shapes if s.name == "table")
    np.testing.assert_allclose(table.rgba, (0.6, 0.6, 0.65, 1.0), atol=1e-6)


# --- robots ---------------------------------------------------------------------------------------


def test_robot_of_a_file_is_its_tree(tmp_path: Path) -> None:
    text = SOURCES["gripper_arm"].read_text()
    start, end = text.index('<body name="cube"'), text.index("</worldbody>")
    alone = text[:start] + text[end:]
    alone = alone[: alone.index("<keyframe>")] + "</mujoco>"
    path = tmp_path / "arm.xml"
    path.write_text(alone)
    robot = dynamics.load_mjcf_robot(path, end_effectors={"tool": "grasp"})
    scene = dynamics.load_mjcf(SOURCES["gripper_arm"])
    assert robot.nv == 9
    assert robot.end_effectors == ("tool",)
    np.testing.assert_array_equal(robot.mass, scene.system.mass[:9])
    np.testing.assert_allclose(robot.effort_limits[:8], [87] * 4 + [12] * 3 + [100])
    assert np.isinf(robot.effort_limits[8])
    assert len(robot.topology.collision_shapes) > 5


def test_robot_may_have_a_tendon_that_only_transmits() -> None:
    text = """<mujoco><worldbody><body><joint name="a"/><geom size=".1"/></body></worldbody>
    <tendon><fixed name="t"><joint joint="a" coef="1"/></fixed></tendon>
    <actuator><position tendon="t" kp="3"/></actuator></mujoco>"""
    assert dynamics.load_mjcf_robot(text).nv == 1
    with pytest.raises(
        dynamics.SceneLoadError, match="actuator 0: transmissions of the kind 'tendon'"
    ):
        dynamics.load_mjcf(text)


# --- derived scenes -------------------------------------------------------------------------------


def test_new_masses_give_mujoco_s_weights() -> None:
    model = compiled("welded")
    with jax.enable_x64(True):
        scene = dynamics.load_mjcf(model)
        system = scene.system.replace(
            mass=2 * np.asarray(scene.system.mass), inertia=2 * np.asarray(scene.system.inertia)
        )
        heavier = scene.with_system(system)
    model.body_mass[:] *= 2
    model.body_inertia[:] *= 2
    mujoco.mj_setConst(model, mujoco.MjData(model))
    weights = heavier.constraints.weights
    np.testing.assert_allclose(weights.dof, model.dof_invweight0, rtol=TOLERANCE)
    np.testing.assert_allclose(weights.translation, model.body_invweight0[:, 0], rtol=TOLERANCE)


def test_weights_are_differentiable_by_mass_and_batched() -> None:
    with jax.enable_x64(True):
        scene = dynamics.load_mjcf(SOURCES["welded"])
        mass = np.asarray(scene.system.mass)

        def total(scale: jax.Array) -> jax.Array:
            system = scene.system.replace(mass=scale * mass)
            return scene.with_system(system).constraints.weights.translation.sum()

        scales = np.array([1.0, 1 + 1e-6, 1 - 1e-6])
        values, slopes = jax.jit(jax.vmap(jax.value_and_grad(total)))(scales)
        np.testing.assert_allclose(slopes[0], (values[1] - values[2]) / 2e-6, rtol=1e-6)
        expected = scene.constraints.weights.translation.sum()
        np.testing.assert_allclose(values[0], expected, rtol=TOLERANCE)


def test_numbers_of_one_geom_change() -> None:
    scene = dynamics.load_mjcf(SOURCES["gripper_arm"])
    slippery = scene.with_geom("cube", friction=0.1, size=np.array([0.01, 0.02, 0.03]))
    i = scene.geom("cube")
    np.testing.assert_array_equal(slippery.constraints.geoms.friction[i], [0.1, 0.005, 0.0001])
    np.testing.assert_array_equal(slippery.constraints.geoms.size[i], [0.01, 0.02, 0.03])
    assert scene.constraints.geoms.friction[i, 0] == 1.0
    with pytest.raises(dynamics.UnknownNameError, match=r"cubes.*Did you mean 'cube'"):
        scene.with_geom("cubes", friction=1.0)
    with pytest.raises(dynamics.UnknownNameError, match="unknown field 'mu'"):
        scene.with_geom("cube", mu=1.0)
    with pytest.raises(dynamics.ArrayError, match="size of geom 'cube' has shape"):
        scene.with_geom("cube", size=np.ones(2))


def test_works_in_float32_under_jit_and_vmap() -> None:
    scene = dynamics.load_mjcf(SOURCES["gripper_arm"])
    q = np.tile(np.float32(scene.keyframes["home"].q), (3, 1))
    v, ctrl = np.zeros((3, scene.nv), np.float32), np.zeros((3, scene.nu), np.float32)
    forces = jax.jit(
        jax.vmap(lambda *x: passive_forces(scene, *x[:2]) + actuator_forces(scene, *x))
    )
    result = forces(q, v, ctrl)
    assert result.dtype == np.float32
    assert np.isfinite(result).all()
