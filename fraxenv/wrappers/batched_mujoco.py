"""Actions that say where the hand goes, over many MuJoCo worlds at once: MJX's, or MuJoCo Warp's.

The controllers are those of `EndEffectorAction`, as pure functions of one world's arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from ..envs import ActionSpace
from ..envs.mujoco_arm import Drive
from ..envs.mujoco_batch import DrivenArm, checked_action, geom_rows, passive_of
from ..envs.mujoco_guarded import ArmOptions, guarded_arm
from ..errors import ConfigError, import_extra
from ..kernels import fusible
from ..making.composition import build_observer


class EEAction(NamedTuple):
    """Pure functions of one world, to be batched by `jax.vmap`, and compiled by `jax.jit`.

    An arm's memory is a pytree that only these functions make; but `memory.report` is the safety
    filter's, the worst since the last action (see `SafetyFilter`).

        init(qpos, qvel) -> memory                  the arm is told to stay where it is
        aim(memory, qpos, action) -> memory         an action, at the policy's rate
        control(memory, qpos, qvel) -> ctrl, memory
                                                    the arm's inputs, at every physics step
        control(memory, qpos, qvel, obstacles) -> ctrl, memory
                                                    likewise, where obstacles move
        obstacles(data) -> rows                     where they are in an `mjx.Data`
        step(model, data, memory, action, ctrl, n_substeps) -> data, memory
                                                    a policy's step of an `mjx.Data`

    `qpos` (nq,), `qvel` (nv,) and `ctrl` (nu,) are MuJoCo's, of the whole model, but the `ctrl`
    that `control` gives: (n,), of the arm's n joints, to be written at `ctrl_index`. `action` is
    (k,), of the numbers that `axes` names, clipped to [-1, 1]. `rows` is (m, 15): of each of
    `obstacle_names` the position, m, the rotation by rows, and the velocity, m/s, in the world;
    where it is given, it counts, even if the obstacles never move. `step` leaves the inputs of
    `ctrl` that are not the arm's as they are.

    Attributes:
        robot: the arm's model.
        axes: of an action.
        ctrl_index: (n,), which of the model's inputs are the arm's.
        obstacle_names: geoms that the filter keeps the arm off.
        moving: whether any of them can move, so that `control` has to be told where they are.
        init: see above.
        aim: see above; raises ActionError for an action of another shape.
        control: see above; raises ConfigError without obstacles that move.
        obstacles: see above; `data` may be anything with `geom_xpos`, `geom_xmat`, `cvel` and
            `subtree_com`.
        step: see above; raises MissingExtraError without MJX.
    """

    robot: Any
    axes: tuple[Any, ...]
    ctrl_index: NDArray[np.intp]
    obstacle_names: tuple[str, ...]
    moving: bool
    init: Callable[[Array, Array], Any]
    aim: Callable[[Any, Array, Array], Any]
    control: Callable[..., tuple[Array, Any]]
    obstacles: Callable[[Any], Array]
    step: Callable[..., tuple[Any, Any]]


def ee_action(
    model: Any,
    action: str | ActionSpace = "ee_delta_pose",
    *,
    end_effector: str,
    root: str | None = None,
    robot: Any = None,
    joints: Sequence[str] | None = None,
    action_options: Mapping[str, Any] | None = None,
    controller: Any = None,
    velocity_limits: float | Sequence[float] | None = None,
    safety: Any = None,
    observer: Any = None,
    obstacles: Sequence[str] | None = None,
    backend: str = "auto",
) -> EEAction:
    """Our action spaces and controllers for the arm of a model, over batches of worlds.

    The arm, its actuators and what else is asked of the model are as for `EndEffectorAction`.
    Springs and damping of joints and gravity compensation are subtracted, those of tendons are not.
    What the model's arrays are changed to later, as by domain randomisation, the controller does
    not know; nor what the hand holds.

    Args:
        model: the `mujoco.MjModel` that `mjx.put_model` or `mujoco_warp.put_model` got.
        action: name of an action space, or an `ActionSpace` of the end effector "hand".
        end_effector: name of the body or site that the arm moves.
        root: name of the body at which the arm begins; by default the tree's first one.
        robot: a model of the arm in place of what MuJoCo's says of it.
        joints: what MuJoCo's model calls the joints of `robot`, in its order, if not the same.
        action_options: of the action space, as for `fraxenv.make`.
        controller: of its targets; by default the action space's own, an `OSC`, or for an arm of
            position servos differential inverse kinematics.
        velocity_limits: of the arm's joints, rad/s and m/s; none by default.
        safety: "cbf" or a `SafetyFilter` of the end effector "hand".
        observer: of torques that act on the arm and that the model lacks, such as a load or
            friction, for controller and filter: "momentum", a `MomentumObserver`, or a dict of its
            fields. None by default, but with a robust filter.
        obstacles: names of geoms and bodies that the filter keeps the arm off; by default all that
            stand still in the world and can touch something.
        backend: of the kernels; see `fraxenv.fuse`.

    Raises:
        ConfigError: `model` is no `MjModel`; a joint of the arm has no actuator of its own, or one
            that cannot be given a torque; a `gravcomp` is below 0; the filter has obstacles, and
            knows no shape of the arm; or `robot` moves otherwise than the model.
        UnknownNameError: there is no such body, site, geom or action space.
        SceneLoadError: the arm has what a `Robot` cannot have.
        MissingExtraError: MuJoCo is not installed.
    """
    mujoco = import_extra("mujoco", "mujoco", "ee_action")
    if not isinstance(model, mujoco.MjModel):
        raise ConfigError(
            f"ee_action: the model is a {type(model).__module__}.{type(model).__name__}, which "
            "has not all that a robot is made of, expected the mujoco.MjModel that it was put "
            "from. Pass that; the functions are then the other's, too."
        )
    asked = ArmOptions(
        "ee_action",
        end_effector,
        root,
        action,
        action_options,
        controller,
        velocity_limits,
        safety,
        build_observer(observer, safety),
        obstacles,
        robot,
        joints,
    )
    guarded, drive = guarded_arm(mujoco, model, asked)
    passive = passive_of(mujoco, model, drive, end_effector, root)
    by_actuators = cast(Drive, drive)  # as `ArmOptions` asks for by default
    return _functions(DrivenArm(guarded, by_actuators, passive), model, backend)


def _functions(arm: DrivenArm, model: Any, backend: str) -> EEAction:
    around = arm.arm.around
    robot, index = arm.arm.law.robot, arm.drive.at.ctrl
    axes = arm.arm.law.space.axes(robot)
    axis_names = tuple(axis.name for axis in axes)
    names, moving = ((), False) if around is None else (around.names, around.moving)
    init, aimed = fusible(arm.init, backend), fusible(arm.aim, backend)
    controlled = fusible(arm.control, backend)

    def aim(memory: Any, qpos: Array, action: Array) -> Any:
        return aimed(memory, qpos, checked_action(jnp.asarray(action, qpos.dtype), axis_names))

    def control(
        memory: Any, qpos: Array, qvel: Array, obstacles: Array | None = None
    ) -> tuple[Array, Any]:
        if obstacles is None and moving:
            raise ConfigError(
                f"ee_action: control was not told where {', '.join(names)} are, expected rows of "
                "the obstacles, some of which move. Pass obstacles(data) of this physics step."
            )
        return controlled(memory, qpos, qvel, *(() if obstacles is None else (obstacles,)))

    def rows(data: Any) -> Array:
        if around is None:
            return jnp.zeros((0, 15), data.geom_xpos.dtype)
        bodies = model.geom_bodyid[around.geoms]
        roots = np.stack([bodies, model.body_rootid[bodies]], axis=1)
        return geom_rows(around, roots, data)

    def step(
        model: Any, data: Any, memory: Any, action: Array, ctrl: Array, n_substeps: int = 1
    ) -> tuple[Any, Any]:
        mjx = import_extra("mujoco.mjx", "mjx", "step of ee_action")
        memory = aim(memory, data.qpos, action)

        def substep(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
            data, memory = carry
            seen = None
            if moving:
                # After a step MJX's poses are still those of the step's beginning.
                now = mjx.com_vel(model, mjx.com_pos(model, mjx.kinematics(model, data)))
                seen = rows(now)
            inputs, memory = control(memory, data.qpos, data.qvel, seen)
            data = data.replace(ctrl=ctrl.at[index].set(inputs.astype(ctrl.dtype)))
            return (mjx.step(model, data), memory), None

        ctrl = jnp.asarray(ctrl, data.ctrl.dtype)
        return jax.lax.scan(substep, (data, memory), None, n_substeps)[0]

    return EEAction(robot, axes, index, names, moving, init, aim, control, rows, step)
