"""Shapes as the annotations of public functions give them, checked by jaxtyping and beartype."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from beartype.door import is_bearable
from jax import Array
from jaxtyping import Float, jaxtyped
from support import with_slow

from fraxenv import dynamics
from fraxenv.dynamics import Actuators, Box, Capsule, HalfSpace, Obstacles, Robot, Sphere

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(dynamics, name)
    for name in dynamics.__all__
    if inspect.isfunction(getattr(dynamics, name))
} | {f"Actuators.{f.__name__}": f for f in (Actuators.init, Actuators.range, Actuators.__call__)}

STATE = ("q", "v", "tau", "dt", "external_forces")
ROBOTS = {"fixed": False, "floating": True}
ACTUATORS = Actuators(effort_limit=50.0, rate_limit=100.0)


def dimensions(hint: Any) -> list[str] | None:
    """Names of the dimensions in an annotation, None if it gives no shape."""
    names = (getattr(part, "dim_str", None) for part in (hint, *get_args(hint)))
    return next((name.split() for name in names if name is not None), None)


ANNOTATED = [
    name
    for name, function in FUNCTIONS.items()
    if any(dimensions(hint) is not None for hint in get_type_hints(function).values())
]


def test_arguments_of_a_state_have_shapes() -> None:
    bare = {
        (name, argument)
        for name, function in FUNCTIONS.items()
        for argument, hint in get_type_hints(function).items()
        if argument in STATE and dimensions(hint) is None
    }
    assert bare == {("lock_joints", "q")}  # which is no part of any program


@pytest.mark.parametrize("base", with_slow(ROBOTS, "fixed"))
@pytest.mark.parametrize("name", ANNOTATED)
def test_shapes(name: str, base: str) -> None:
    """What a function says that it takes it takes, and what it says that it returns it returns."""
    robot = panda(ROBOTS[base])
    function = FUNCTIONS[name]
    hints = get_type_hints(function)
    given = inspect.signature(function).parameters
    others = {a: x for a, x in unbatched(hints, ROBOTS[base]).items() if a in given}
    sizes = {"nq": robot.nq, "nv": robot.nv, "nb": robot.nb, "nu": 0, "n": 7, "*k": 2}
    batch = {
        argument: jnp.ones((3, *(sizes[d] if d in sizes else int(d) for d in names)))
        for argument, hint in hints.items()
        if argument != "return" and (names := dimensions(hint)) is not None
    }
    checked = jaxtyped(function, typechecker=beartype)

    def call(batch: dict[str, Array]) -> Any:
        result = checked(**batch, **others)
        with jaxtyped("context"):  # within which a dimension has one size
            assert isinstance(jnp.zeros(robot.nq), Float[Array, " nq"])
            assert isinstance(jnp.zeros(robot.nv), Float[Array, " nv"])
            assert is_bearable(result, hints["return"]), jax.tree.map(jnp.shape, result)
        return result

    jax.eval_shape(jax.jit(jax.vmap(call, axis_size=3)), batch)


@functools.cache
def panda(floating_base: bool) -> Robot:
    """With fewer joints: no two of its sizes are equal, and functions are traced sooner."""
    whole = dynamics.load_robot("panda", floating_base=floating_base)
    return dynamics.lock_joints(whole, [f"panda_joint{i}" for i in (1, 3, 5)])


@functools.cache
def touching_floor(floating_base: bool) -> dynamics.Scene:
    """A Panda alone over a floor."""
    robot = panda(floating_base)
    hand = dynamics.sphere_geom("hand", 0.1, frame="hand")
    floor = dynamics.plane_geom("floor")
    return dynamics.build_scene(robot, static=(floor,), geoms=(hand,))


@functools.cache
def computed(floating_base: bool) -> dict[Any, Any]:
    """What is computed of a Panda in its default posture, by its type."""
    robot = panda(floating_base)

    def of_posture(q: Array) -> dict[str, Any]:
        kin = dynamics.compute_kinematics(robot, q)
        return {
            "Kinematics": kin,
            "RobotGeometry": dynamics.robot_geometry(robot, q, kin=kin),
            "ActuatorState": ACTUATORS.init(robot, jnp.zeros(robot.nv), 0.001),
        }

    return {getattr(dynamics, n): x for n, x in jax.jit(of_posture)(robot.q_default).items()}


def unbatched(hints: dict[str, Any], floating_base: bool) -> dict[str, Any]:
    """Arguments that are no arrays: by their names, or by their types."""
    sphere = Sphere(np.zeros(3), 0.1)
    scene = touching_floor(floating_base) if dynamics.Scene in hints.values() else None
    values = computed(floating_base) | {
        dynamics.Scene: scene,
        Robot: panda(floating_base),
        Sphere: sphere,
        Capsule: Capsule(np.zeros(3), np.ones(3), 0.1),
        Box: Box(np.zeros(3), np.eye(3), np.ones(3)),
        HalfSpace: HalfSpace(np.eye(3)[2], 0.0),
        Obstacles: Obstacles(spheres=Sphere(np.zeros((4, 3)), np.ones(4))),
    }
    return {a: values[hint] for a, hint in hints.items() if hint in values} | {
        "self": ACTUATORS,
        "frame": "hand",
        "constraints": dynamics.FrameConstraints(("hand",)),
        "key": jax.random.key(0),
        "count": 2,
        "residual": lambda q, v, tau: jnp.concatenate([q, v, tau]),
    }
