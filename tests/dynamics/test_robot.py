"""What holds for every public function: dtypes, wrong arguments, and the `Robot` itself."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import with_slow

from fraxenv import dynamics
from fraxenv.dynamics import (
    ArrayError,
    FraxenvError,
    Robot,
    RobotLoadWarning,
    UnknownNameError,
)

FRAME = "hand"

# Every public function of arrays, with arguments by name; `robot` where it takes one.
CALLS: dict[str, tuple[str, ...]] = {
    "bias_forces": ("q", "v", "f"),
    "center_of_mass": ("q",),
    "compute_kinematics": ("q",),
    "compute_terms": ("q", "v"),
    "constrained_dynamics": ("q", "v", "tau", "constraints"),
    "constrained_step": ("q", "v", "tau", "dt", "constraints"),
    "constrained_step_derivatives": ("q", "v", "tau", "dt", "constraints"),
    "crba": ("q",),
    "difference": ("q", "v"),
    "forward_dynamics": ("q", "v", "tau", "f"),
    "forward_kinematics": ("q",),
    "frame_jacobian": ("q", "frame"),
    "frame_jacobian_dot": ("q", "v", "frame"),
    "frame_pose": ("q", "frame"),
    "center_of_mass_jacobian": ("q",),
    "centroidal_momentum": ("q", "v"),
    "centroidal_momentum_derivative": ("q", "v"),
    "centroidal_momentum_matrix": ("q",),
    "coordinate_rates": ("q",),
    "coriolis_matrix": ("q", "v"),
    "difference_derivatives": ("q", "q"),
    "effort_bounds": ("v",),
    "forward_dynamics_derivatives": ("q", "v", "tau", "f"),
    "frame_acceleration": ("q", "v", "tau", "frame"),
    "frame_derivatives": ("q", "v", "tau", "frame"),
    "frame_bias_acceleration": ("q", "v", "frame"),
    "frame_velocity": ("q", "v", "frame"),
    "generalized_forces": ("q", "f"),
    "integrate_derivatives": ("q", "v", "dt"),
    "impulse_dynamics": ("q", "v", "constraints"),
    "inverse_dynamics_derivatives": ("q", "v", "tau", "f"),
    "inverse_dynamics_second_derivatives": ("q", "v", "tau", "v"),
    "manipulability": ("q", "frame"),
    "transition_derivatives": ("q", "v", "tau", "dt", "f"),
    "gravity_forces": ("q",),
    "integrate": ("q", "v", "dt"),
    "kinetic_energy": ("q", "v"),
    "potential_energy": ("q",),
    "rnea": ("q", "v", "tau", "f"),
    "step": ("q", "v", "tau", "dt", "f"),
    "matrix_to_quaternion": ("matrix",),
    "orientation_error": ("matrix", "matrix"),
    "quaternion_conjugate": ("quaternion",),
    "quaternion_exp": ("vector",),
    "quaternion_log": ("quaternion",),
    "quaternion_multiply": ("quaternion", "quaternion"),
    "quaternion_normalize": ("quaternion",),
    "quaternion_to_matrix": ("quaternion",),
    "rotation_exp": ("vector",),
    "rotation_log": ("matrix",),
    "self_distances": ("q",),
    "spd_solve": ("matrix", "vector"),
}
# Functions that take no arrays (`neutral` has the default dtype), or more than arrays.
OTHERS = {
    "actuator_forces",
    "attach",
    "box_geom",
    "build_scene",
    "capsule_box",
    "capsule_capsule",
    "capsule_geom",
    "capsule_half_space",
    "combine",
    "connect_equality",
    "constrained_acceleration",
    "contact_transition_derivatives",
    "contacts",
    "cylinder_geom",
    "free_body",
    "grip",
    "grown_obstacles",
    "joint_equality",
    "jointed_body",
    "list_assemblies",
    "list_robots",
    "load_mjcf",
    "load_mjcf_robot",
    "load_robot",
    "load_urdf",
    "lock_joints",
    "member_slices",
    "mjcf_indices",
    "motor_actuator",
    "mount",
    "move_obstacles",
    "nearest_obstacles",
    "neutral",
    "obstacle_count",
    "obstacle_distance_names",
    "obstacle_distances",
    "obstacle_rates",
    "obstacle_shapes",
    "passive_forces",
    "placed_body",
    "plane_geom",
    "position_actuator",
    "random_configuration",
    "residual_derivatives",
    "restrict_terms",
    "robot_geometry",
    "robot_geometry_rate",
    "scene_step",
    "self_distance_names",
    "soften",
    "sphere_box",
    "sphere_capsule",
    "sphere_geom",
    "sphere_half_space",
    "sphere_sphere",
    "terms_with_payload",
    "velocity_actuator",
    "weld_equality",
    "with_payload",
}


@pytest.fixture(scope="module")
def short(panda: Robot) -> Robot:
    """The arm with four joints, of which functions are traced sooner."""
    return dynamics.lock_joints(panda, [f"panda_joint{i}" for i in (1, 3, 5)])


def arguments(robot: Robot, dtype: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = {
        "q": robot.q_default,
        "v": rng.uniform(-1, 1, robot.nv),
        "tau": rng.uniform(-1, 1, robot.nv),
        "f": rng.uniform(-1, 1, (robot.nb, 6)),
        "matrix": np.eye(3),
        "quaternion": np.array([0.6, 0.0, 0.8, 0.0]),
        "vector": np.array([0.1, 0.2, 0.3]),
    }
    # A Python number for the time step, as users write it.
    return {name: jnp.asarray(x, dtype) for name, x in arrays.items()} | {
        "dt": 1e-3,
        "frame": FRAME,
        "constraints": dynamics.FrameConstraints((FRAME,)),
    }


def call(robot: Robot, name: str, values: dict[str, Any]) -> Any:
    function = getattr(dynamics, name)
    first = [robot] if "robot" in inspect.signature(function).parameters else []
    return function(*first, *(values[a] for a in CALLS[name]))


def test_no_public_function_is_left_out() -> None:
    public = {n for n in dynamics.__all__ if inspect.isfunction(getattr(dynamics, n))}
    wrapped = {n for n in dynamics.__all__ if hasattr(getattr(dynamics, n), "__wrapped__")}
    assert public | wrapped == set(CALLS) | OTHERS


# Results follow the dtype of the arguments, not the global default, and are strongly typed: a
# weakly typed leaf in a carried state would compile a step twice.


# What does not follow float32 is in float64, the default here; the other way round is rarer.
@pytest.mark.parametrize("given", with_slow([np.float32, np.float64], np.float64))
@pytest.mark.parametrize("name", CALLS)
def test_dtype_follows_the_arguments(short: Robot, x64: None, name: str, given: Any) -> None:
    values = arguments(short, given)
    result = jax.eval_shape(lambda values: call(short, name, values), _arrays_only(values))
    leaves = jax.tree.leaves(result)
    assert leaves
    for leaf in leaves:
        assert leaf.dtype == given
        assert not leaf.weak_type


@pytest.mark.parametrize("given", with_slow([np.float32, np.float64], np.float64))
def test_dtype_follows_the_arguments_of_traced_parameters(
    short: Robot, x64: None, given: Any
) -> None:
    """Also where the robot's parameters are arguments of the program, in the other dtype."""
    other = {np.float32: np.float64, np.float64: np.float32}[given]
    robot = jax.tree.map(lambda x: jnp.asarray(x, other), short)
    values = _arrays_only(arguments(short, given))

    def everything(robot: Robot, values: dict[str, Any]) -> list[Any]:
        return [call(robot, name, values) for name in CALLS]

    for leaf in jax.tree.leaves(jax.eval_shape(everything, robot, values)):
        assert leaf.dtype == given
        assert not leaf.weak_type


def test_time_step_and_forces_do_not_decide_the_dtype(panda: Robot, x64: None) -> None:
    q, v, tau = np.zeros((3, 7), np.float32)
    for dt in (1e-3, np.float64(1e-3), jnp.asarray(1e-3)):
        step = partial(dynamics.step, panda, q, v, tau, dt, np.zeros((7, 6)))
        for leaf in jax.eval_shape(step):
            assert leaf.dtype == np.float32
            assert not leaf.weak_type


def _arrays_only(values: dict[str, Any]) -> Any:
    """Make the values that are not arrays static, as they are when a user's program is traced."""
    return _Values(
        {k: v for k, v in values.items() if isinstance(v, jax.Array)},
        tuple((k, v) for k, v in values.items() if not isinstance(v, jax.Array)),
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Values:
    arrays: dict[str, Any]
    others: tuple[tuple[str, Any], ...] = dataclasses.field(metadata={"static": True})

    def __getitem__(self, name: str) -> Any:
        return {**self.arrays, **dict(self.others)}[name]


def test_integers_and_lists_become_the_default_dtype(panda: Robot, dtype: np.dtype) -> None:
    for q in ([0] * 7, np.zeros(7, int), [0.0] * 7, jnp.zeros(7, int)):
        M = jax.eval_shape(lambda q=q: dynamics.crba(panda, q))
        assert M.dtype == dtype
        assert not M.weak_type
    assert dynamics.neutral(panda).dtype == dtype


def test_x64_is_off_outside_of_the_tests_that_want_it() -> None:
    assert jnp.zeros(1).dtype == np.float32


# --- Wrong arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda r: dynamics.crba(r, np.zeros(6)),
            r"q of robot 'panda' has shape \(6,\), expected \(7,\).*jax.vmap",
        ),
        (
            lambda r: dynamics.forward_kinematics(r, np.zeros((5, 7))),
            r"q of robot 'panda' has shape \(5, 7\), expected \(7,\).*jax.vmap",
        ),
        (
            lambda r: dynamics.bias_forces(r, np.zeros(7), np.zeros(())),
            r"v of robot 'panda' has shape \(\), expected \(7,\)",
        ),
        (
            lambda r: dynamics.rnea(r, np.zeros(7), np.zeros(7), np.zeros(8)),
            r"a of robot 'panda' has shape \(8,\), expected \(7,\)",
        ),
        (
            lambda r: dynamics.forward_dynamics(r, np.zeros(7), np.zeros(7), np.zeros(1)),
            r"tau of robot 'panda' has shape \(1,\), expected \(7,\)",
        ),
        (
            lambda r: dynamics.step(r, np.zeros(7), np.zeros(7), np.zeros(1), 1e-3),
            r"tau of robot 'panda' has shape \(1,\), expected \(7,\)",
        ),
        (
            lambda r: dynamics.kinetic_energy(r, np.zeros(7), np.zeros(1)),
            r"v of robot 'panda' has shape \(1,\), expected \(7,\)",
        ),
        (
            lambda r: dynamics.generalized_forces(r, np.zeros(7), np.zeros(6)),
            r"external_forces of robot 'panda' has shape \(6,\), expected \(7, 6\).*panda_link7",
        ),
    ],
)
def test_wrong_shapes(panda: Robot, wrong: Callable[[Robot], Any], message: str) -> None:
    with pytest.raises(ArrayError, match=message) as caught:
        jax.eval_shape(lambda: wrong(panda))
    assert isinstance(caught.value, FraxenvError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("wrong", [dynamics.frame_pose, dynamics.frame_jacobian])
def test_unknown_frame_suggests_the_closest(panda: Robot, wrong: Callable[..., Any]) -> None:
    message = r"unknown frame 'panda_hnd' of robot 'panda'.*mean 'panda_hand'.*Known: hand, panda_"
    with pytest.raises(UnknownNameError, match=message):
        jax.eval_shape(lambda q: wrong(panda, q, "panda_hnd"), panda.q_default)


# --- Robot ----------------------------------------------------------------------------------------

FRAME_POSE = jax.jit(dynamics.frame_pose, static_argnums=2)


def test_end_effectors_are_frames(panda: Robot) -> None:
    assert panda.frame("hand") is panda.frame("panda_hand_tcp")
    poses = (FRAME_POSE(panda, panda.q_default, name) for name in ("hand", "panda_hand_tcp"))
    for ours, theirs in zip(*poses, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_root_frame_does_not_move(panda: Robot) -> None:
    position, rotation = FRAME_POSE(panda, panda.q_default, "panda_link0")
    np.testing.assert_array_equal(position, np.zeros(3))
    np.testing.assert_array_equal(rotation, np.eye(3))
    jacobian = jax.jit(dynamics.frame_jacobian, static_argnums=2)
    found = jacobian(panda, panda.q_default, "panda_link0")
    np.testing.assert_array_equal(found, np.zeros((6, 7)))


def test_replace(panda: Robot) -> None:
    damped = panda.replace(damping=np.ones(7))
    assert damped.damping.tolist() == [1] * 7
    assert panda.damping.tolist() == [0] * 7
    assert damped.topology is panda.topology
    with pytest.raises(UnknownNameError, match=r"unknown field 'dampign' of Robot.*'damping'"):
        panda.replace(dampign=np.ones(7))


def test_replace_takes_what_robots_have() -> None:
    for name in dynamics.list_robots():
        robot = dynamics.load_robot(name)
        for kind in (np.asarray, jnp.asarray):  # float64 and float32
            robot.replace(mass=kind(robot.mass), inertia=kind(robot.inertia))


def changed(array: Any, at: tuple[Any, ...], value: Any) -> np.ndarray:
    array = np.array(array)
    array[at] = value
    return array


def test_the_first_of_several_bad_masses_is_named(panda: Robot) -> None:
    mass = changed(changed(panda.mass, 2, -1.5), 4, -2.5)
    with pytest.raises(ArrayError, match=r"^mass\[2\] of robot 'panda' is -1.5 kg"):
        panda.replace(mass=mass)


IMPOSSIBLE: dict[str, tuple[str, tuple[Any, ...], Any, str]] = {
    "no mass": ("mass", (2,), 0.0, "is 0 kg, expected a positive number"),
    "negative mass": ("mass", (2,), -1.5, "is -1.5 kg, expected a positive number"),
    "infinite mass": ("mass", (2,), np.inf, "is inf kg, expected a positive number"),
    "mass that is nan": ("mass", (2,), np.nan, "is nan kg, expected a positive number"),
    "no inertia": ("inertia", (2,), 0.0, "not positive definite.*moments are .0, 0, 0."),
    "negative moment": ("inertia", (2,), np.diag([1, 1, -0.1]), "not positive definite.*-0.1"),
    "large product": (
        "inertia",
        (2,),
        [[1, 2, 0], [2, 1, 0], [0, 0, 1]],
        r"not positive definite.*moments are \[-1, 1, 3\] kg m\^2.*signs",
    ),
    "not symmetric": ("inertia", (2, 0, 1), 0.1, "expected finite numbers and a symmetric matrix"),
    "inertia that is nan": ("inertia", (2, 1, 1), np.nan, "expected finite numbers"),
}


@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
@pytest.mark.parametrize(("field", "at", "value", "says"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_replace_refuses_what_no_body_has(
    panda: Robot, field: str, at: tuple[Any, ...], value: Any, says: str, batch: tuple[int, ...]
) -> None:
    good = np.asarray(getattr(panda, field))
    last = tuple(n - 1 for n in batch)
    bad = changed(np.broadcast_to(good, (*batch, *good.shape)), (*last, *at), value)
    place = rf"{field}\{[*last, 2]}".replace("]", r"\]")
    for kind in (np.asarray, jnp.asarray):
        with pytest.raises(ArrayError, match=rf"^{place} of robot 'panda'.*{says}") as caught:
            panda.replace(**{field: kind(bad)})
        assert "the body 'panda_link3'" in str(caught.value)


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_replace_doubts_what_published_robots_have(panda: Robot, batch: tuple[int, ...]) -> None:
    """Loading a URDF warns of the same: a robot that could be loaded can be changed."""
    inertia = changed(panda.inertia, (2,), np.diag([0.1, 0.3, 0.1]))
    message = (
        rf"^inertia\[{'0, ' * len(batch)}2\] of robot 'panda', of the body 'panda_link3', breaks "
        r"the triangle inequality.*\[0.1, 0.1, 0.3\] kg m\^2.*exceeds the sum.*used as it is"
    )
    with pytest.warns(RobotLoadWarning, match=message) as warned:
        robot = panda.replace(inertia=np.broadcast_to(inertia, (*batch, *inertia.shape)))
    assert [w.filename for w in warned] == [__file__]
    np.testing.assert_array_equal(robot.inertia[(0,) * len(batch)], inertia)


def test_replace_refuses_constants_of_a_program(panda: Robot) -> None:
    with pytest.raises(ArrayError, match="'panda_link1'"):
        jax.jit(lambda: panda.replace(mass=-np.ones(7)).mass)()


def test_replace_leaves_tracers_alone(panda: Robot) -> None:
    """Whatever they turn out to be, and without a single operation."""
    impossible = {"mass": -np.ones(7), "inertia": -np.ones((7, 3, 3))}

    def total(changes: dict[str, Any]) -> Any:
        robot = panda.replace(**changes)
        return jnp.sum(robot.mass) + jnp.sum(robot.inertia)

    assert jax.jit(total)(impossible) == -70
    batch = jax.tree.map(lambda x: np.stack([x, 2 * x]), impossible)
    assert jax.vmap(total)(batch).tolist() == [-70, -140]
    assert jax.jit(jax.vmap(total))(batch).tolist() == [-70, -140]
    gradient = jax.grad(total)(jax.tree.map(jnp.asarray, impossible))
    assert gradient["mass"].tolist() == [1.0] * 7
    tangent = jax.tree.map(np.ones_like, impossible)
    assert jax.jvp(total, (impossible,), (tangent,))[1] == 70
    program = jax.make_jaxpr(lambda x: panda.replace(mass=x).mass)(np.ones(7))
    assert program.eqns == []


def test_replace_makes_axes_for_vmap(panda: Robot) -> None:
    """Numbers that are no masses: which axis of each leaf is the batch."""
    masses = np.asarray(panda.mass) * np.array([[1.0], [2.0]])
    axes = jax.tree.map(lambda _: None, panda).replace(mass=0, inertia=None)
    gravity = jax.jit(jax.vmap(dynamics.gravity_forces, in_axes=(axes, None)))
    one, two = gravity(panda.replace(mass=masses), panda.q_default)
    np.testing.assert_allclose(two, 2 * one, rtol=1e-6)


def test_robot_is_immutable(panda: Robot) -> None:
    terms = jax.jit(dynamics.compute_terms)(panda, panda.q_default, np.zeros(7))
    things = (
        (panda, "mass"),
        (panda.topology, "name"),
        (panda.frame("hand"), "name"),
        (terms, "bias"),
        (terms.kin, "axis"),
    )
    for thing, name in things:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, None)


def test_only_parameters_are_leaves(panda: Robot) -> None:
    leaves, _ = jax.tree.flatten(panda)
    assert len(leaves) == len(dataclasses.fields(panda)) - 1
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
    again = jax.tree.map(lambda x: x, panda)
    assert again.topology is panda.topology


def test_joints_are_numbered_depth_first_in_the_order_of_the_file(tree: Robot) -> None:
    bodies = ("trunk", "right_slider", "right_wrist", "left_upper", "left_slider", "gantry", "arm")
    assert tree.topology.body_names == bodies
    assert tree.joint_names == tuple(f"to_{body}" for body in bodies)
    assert tree.frame_names == (
        *("base", "trunk", "right_slider", "right_wrist", "right_tool"),
        *("left_upper", "left_bracket", "left_slider", "left_tip", "gantry", "arm", "mast"),
    )
    expected = [[0], [0, 1], [0, 1, 2], [0, 3], [0, 3, 4], [5], [5, 6]]
    topology = tree.topology
    assert [np.flatnonzero(row).tolist() for row in topology.axes.moves] == expected
    assert [level.tolist() for level in topology.levels] == [[0, 5], [1, 3, 6], [2, 4]]
    assert (topology.parent < np.arange(7)).all()


def test_a_tree_can_be_batched_twice(joints: Robot) -> None:
    robot = joints
    q = jnp.asarray(robot.q_default)
    steps = 0.1 * jnp.eye(robot.nv)[:2]

    def moved(q: jax.Array) -> jax.Array:
        def one(d: jax.Array) -> jax.Array:
            return dynamics.forward_kinematics(robot, dynamics.integrate(robot, q, d, 1.0)).rotation

        return jax.vmap(one)(steps)

    twice = jax.jit(jax.vmap(moved))(jnp.stack([q, q, q]))
    assert twice.shape == (3, 2, robot.nb, 3, 3)
    np.testing.assert_allclose(twice[1], jax.jit(moved)(q), atol=1e-6)


def test_robots_are_told_apart_by_identity() -> None:
    """Their arrays may be tracers, which cannot be compared."""
    robot = dynamics.load_robot("panda")
    copy = dataclasses.replace(robot)
    assert robot == robot
    assert robot != copy
    assert len({robot, copy}) == 2


def test_every_axis_is_a_direction() -> None:
    for name in dynamics.list_robots():
        topology = dynamics.load_robot(name).topology
        axes = [*(j.axis for j in topology.joints), *topology.axes.direction]
        np.testing.assert_allclose(np.linalg.norm(axes, axis=1), 1.0, err_msg=name)


def test_shapes_without_a_colour_can_be_seen() -> None:
    shape = dynamics.Shape("sphere", (0.1,), np.zeros(3), name="ball", body=0)
    assert shape.rgba[3] == 1
