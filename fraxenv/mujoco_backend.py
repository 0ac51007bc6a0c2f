"""Environments whose physics is MuJoCo's: to debug one physics against the other.

Everything else is the environment's own: actions, controller, observations, rewards, resets. The
step of the compiled program calls MuJoCo on the host for each step of the physics.
"""

from __future__ import annotations

import threading
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics.integration import implicit_resistance
from fraxenv.envs import Environment, EnvParams, GoalEnvironment

from .cross_check.mujoco import MujocoOracle
from .errors import ConfigError

_LOCK = threading.Lock()
"""MuJoCo's model and data are written to; environments that are equal share one program."""


_MUJOCO_MAX = 1e10
"""Beyond this MuJoCo calls a state bad, and writes a log file that nobody asked for."""


_MODELLED = (
    "link_mass",
    "link_com",
    "link_inertia",
    "payload",
    "payload_offset",
    "armature",
    "gravity",
)
"""Randomisation of what MuJoCo's model holds; damping and friction are ours, and reach it anew."""


def with_mujoco(env: Environment) -> Environment:
    """The same environment with MuJoCo's physics.

    Raises:
        MissingExtraError: MuJoCo is not installed.
        ConfigError: MuJoCo cannot model the robot, or the parameters change it.
    """
    if isinstance(env, GoalEnvironment):
        return MujocoGoalEnvironment(env, goal_reward=env.goal_reward)
    return MujocoEnvironment(env)


class MujocoEnvironment(Environment):
    """An environment whose rigid-body dynamics and integrator are MuJoCo's.

    It is what `gymnasium.make(..., backend="mujoco")` steps. MuJoCo computes in float64 and is
    given the model of `fraxenv.cross_check.mujoco.mujoco_model`, without contacts. The resistance
    of the joints (damping, friction, soft stops) is ours and reaches MuJoCo as a force and as the
    damping that its Euler integrator treats implicitly, which is exactly how our own step does it.
    Gradients do not pass through MuJoCo, and `jax.vmap` steps environments one by one.

    Args:
        env: the environment to take everything else from.
        **options: of the class of environments that it belongs to.

    Raises:
        MissingExtraError: MuJoCo is not installed.
        ConfigError: MuJoCo cannot model the robot, or the parameters change it.
    """

    _supports_transition_gradients = False

    def __init__(self, env: Environment, **options: Any) -> None:
        super().__init__(
            env.name,
            env.robot,
            env.default_params,
            policy_hz=env.policy_hz,
            control_hz=env.control_hz,
            physics_hz=env.physics_hz,
            backend="vmap",
            **options,
        )
        self._robot(env.default_params)
        self._oracle = MujocoOracle.from_robot(env.robot, 1.0 / env.physics_hz)

    def _robot(self, params: EnvParams) -> Robot:
        where = f"{self.name} with backend='mujoco'"
        if params.robot is not None:
            raise ConfigError(
                f"{where}: params.robot is set, expected None: MuJoCo's model is built once. Make "
                "the environment with robot=... instead."
            )
        if params.reset_pool is not None:
            raise ConfigError(
                f"{where}: there is a reset_pool, expected None: pools are for the resets of "
                "batches. Leave reset_pool out."
            )
        random = params.randomisation
        changed = [n for n in _MODELLED if random is not None and getattr(random, n) is not None]
        if changed:
            raise ConfigError(
                f"{where}: randomisation of {', '.join(changed)}, expected none of these: "
                "MuJoCo's model is built once. Leave them out, or use fraxenv's own physics."
            )
        return self.robot

    def _physics_step(
        self, robot: Robot, q: Array, v: Array, tau: Array, dt: Array, terms: Terms | None
    ) -> tuple[Array, Array]:
        # Force and `dt * slope`, of which `slope * v` is a part of the force.
        resistance, slope = implicit_resistance(robot, q, v, dt)
        damping = slope / dt
        return jax.pure_callback(  # type: ignore[no-any-return]
            self._mujoco_step,
            (q, v),  # the shapes and dtypes of the results
            q,
            v,
            tau - (resistance - damping * v),
            damping,
            vmap_method="sequential",
        )

    def _mujoco_step(
        self, q: Any, v: Any, force: Any, damping: Any
    ) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
        """`q` and `v` after one step of MuJoCo under joint forces and damping."""
        oracle, dtype = self._oracle, np.asarray(q).dtype
        inputs = [np.asarray(x, float) for x in (q, v, force, damping)]
        if not all((np.abs(x) < _MUJOCO_MAX).all() for x in inputs):
            return tuple(np.full(x.shape, np.nan, dtype) for x in inputs[:2])  # type: ignore[return-value]
        with _LOCK:
            q_next, v_next = oracle.step(*inputs)
        return q_next.astype(dtype), v_next.astype(dtype)


class MujocoGoalEnvironment(MujocoEnvironment, GoalEnvironment):
    """A goal environment whose rigid-body dynamics and integrator are MuJoCo's."""
