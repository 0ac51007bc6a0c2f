"""MuJoCo's physics in the place of ours: to debug one against the other, and to judge policies.

Everything else is the environment's own: actions, controller, observations, rewards, resets. The
step of the compiled program calls MuJoCo on the host for each step of the physics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics.joint_resistance import implicit_resistance
from fraxenv.dynamics.scene.pair_contacts import PairContacts, no_contacts
from fraxenv.envs import Environment, EnvParams, GoalEnvironment
from fraxenv.envs.contact_physics import ContactPhysics, Solved
from fraxenv.envs.control_loop import Physics
from fraxenv.envs.randomisation import OF_SCENES
from fraxenv.envs.world import SceneState, SolverReport

from ..errors import ConfigError
from .mujoco import MujocoOracle
from .mujoco_scene import MujocoScene

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

_MODELLED_IN_SCENES = (*_MODELLED, "damping", "friction", *OF_SCENES)
"""Of scenes MuJoCo has all."""


def with_mujoco(env: Environment) -> Environment:
    """The same environment with MuJoCo's physics; what `backend="mujoco"` of Gymnasium steps.

    Gradients do not pass through MuJoCo, and it steps the environments of a batch one by one.

    Raises:
        MissingExtraError: MuJoCo is not installed.
        ConfigError: MuJoCo cannot model the robot, or the parameters change it.
    """
    timestep = 1.0 / env.physics_hz
    own = env.physics
    physics: MujocoPhysics | MujocoContactPhysics
    if isinstance(own, ContactPhysics):
        physics = MujocoContactPhysics(own.scene, own.controlled, timestep)
    else:
        physics = MujocoPhysics(env.robot, timestep)
    physics.check(env.name, env.default_params)
    _ = physics.oracle  # so that a robot that cannot be modelled is refused here
    options: dict[str, Any] = {}
    if isinstance(env, GoalEnvironment):
        options = {"goal_reward": env.goal_reward}
    return type(env)(
        env.name,
        env.robot,
        env.default_params,
        policy_hz=env.policy_hz,
        control_hz=env.control_hz,
        physics_hz=env.physics_hz,
        backend="vmap",
        physics=physics,
        **options,
    )


@dataclass(frozen=True)
class MujocoPhysics(Physics):
    """MuJoCo's rigid-body dynamics and integrator, in float64.

    It is given the model of `fraxenv.cross_check.mujoco.mujoco_model`, without contacts. The
    resistance of the joints (damping, friction, soft stops) is ours and reaches MuJoCo as a force
    and as the damping that its Euler integrator treats implicitly, which is exactly how our own
    step does it.

    Attributes:
        robot: what is modelled.
        timestep: s.
    """

    robot: Robot
    timestep: float

    differentiable: ClassVar[bool] = False

    @cached_property
    def oracle(self) -> MujocoOracle:
        """The model and its data.

        Raises:
            MissingExtraError: MuJoCo is not installed.
            ConfigError: MuJoCo cannot model the robot.
        """
        return MujocoOracle.from_robot(self.robot, self.timestep)

    def check(self, where: str, params: EnvParams) -> None:
        """Refuse parameters that change the model, which is built once.

        Raises:
            ConfigError: they do.
        """
        super().check(where, params)
        where = f"{where} with backend='mujoco'"
        if params.robot is not None:
            raise ConfigError(
                f"{where}: params.robot is set, expected None: MuJoCo's model is built once. Make "
                "the environment with robot=... instead."
            )
        _check_constant(where, params, _MODELLED)

    def step(
        self,
        model: Any,
        q: Array,
        v: Array,
        tau: Array,
        dt: Array,
        terms: Terms | None,
        scene: SceneState | None,
    ) -> tuple[Array, Array, SceneState | None]:
        """Configuration (nq,) and velocity (nv,) after `dt`, s, under the torques `tau` (nv,)."""
        # Force and `dt * slope`, of which `slope * v` is a part of the force.
        resistance, slope = implicit_resistance(model, q, v, dt)
        damping = slope / dt
        q_next, v_next = jax.pure_callback(
            self._steps_on_host,
            (q, v),  # the shapes and dtypes of the results
            q,
            v,
            tau - (resistance - damping * v),
            damping,
            vmap_method="broadcast_all",
        )
        return q_next, v_next, scene

    def _steps_on_host(self, *batch: Any) -> Any:
        return _one_by_one(self._step_on_host, batch)

    def _step_on_host(
        self, q: Any, v: Any, force: Any, damping: Any
    ) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
        """`q` and `v` after one step of MuJoCo under joint forces and damping."""
        dtype = np.asarray(q).dtype
        inputs = [np.asarray(x, float) for x in (q, v, force, damping)]
        if not all((np.abs(x) < _MUJOCO_MAX).all() for x in inputs):
            return tuple(np.full(x.shape, np.nan, dtype) for x in inputs[:2])  # type: ignore[return-value]
        with _LOCK:
            q_next, v_next = self.oracle.step(*inputs)
        return q_next.astype(dtype), v_next.astype(dtype)


@dataclass(frozen=True, eq=False)
class MujocoContactPhysics(ContactPhysics):
    """MuJoCo's contacts, solver and integrator, in float64, of the same scene.

    See `fraxenv.cross_check.mujoco_scene` for what differs. Each step begins with the
    environment's state, and MuJoCo keeps none of its own.

    Attributes:
        timestep: s.
    """

    timestep: float = 0.002

    differentiable: ClassVar[bool] = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MujocoContactPhysics) and self._own_digest == other._own_digest

    def __hash__(self) -> int:
        return hash(self._own_digest)

    @cached_property
    def _own_digest(self) -> tuple[bytes, float]:
        return self._digest, self.timestep

    @cached_property
    def oracle(self) -> MujocoScene:
        """The model and its data.

        Raises:
            MissingExtraError: MuJoCo is not installed.
            ConfigError: MuJoCo cannot have such a scene.
        """
        return MujocoScene.of(self.scene, self.timestep)

    def check(self, where: str, params: EnvParams) -> None:
        """Refuse parameters that change the model, which is built once.

        Raises:
            ConfigError: they do.
        """
        super().check(where, params)
        where = f"{where} with backend='mujoco'"
        if params.scene is not None:
            raise ConfigError(
                f"{where}: params.scene is set, expected None: MuJoCo's model is built once. Make "
                "the environment of that scene, with robot=scene."
            )
        _check_constant(where, params, _MODELLED_IN_SCENES)

    def solve(
        self,
        model: Any,
        q: Array,
        v: Array,
        tau: Array,
        dt: Array,
        terms: Terms | None,
        scene: SceneState,
    ) -> Solved:
        """One step of MuJoCo: see `ContactPhysics.solve`."""
        dtype = v.dtype
        alike = Solved(q, v, v, no_contacts(self.pairs, dtype), SolverReport.nothing(dtype))
        found: Solved = jax.pure_callback(
            self._steps_on_host,
            alike,
            q,
            v,
            tau,
            scene.warm_start,
            vmap_method="broadcast_all",
        )
        return found

    def _steps_on_host(self, *batch: Any) -> Any:
        return _one_by_one(self._step_on_host, batch)

    def _step_on_host(self, q: Any, v: Any, tau: Any, warm_start: Any) -> Solved:
        dtype = np.asarray(q).dtype
        inputs = [np.asarray(x, float) for x in (q, v, tau, warm_start)]
        if not all((np.abs(x) < _MUJOCO_MAX).all() for x in inputs):
            q, v = (np.full(x.shape, np.nan, dtype) for x in inputs[:2])
            none: Any = np.zeros(len(self.pairs), dtype)
            contacts = PairContacts(self.pairs, none > 0, none, none, none)
            return Solved(q, v, v, contacts, _report(np.nan, 0, False, dtype))
        with _LOCK:
            step = self.oracle.step(*inputs)
        # Any: the program's types are JAX's, the callback's results NumPy's.
        moved: Any = step.q, step.v, step.acceleration
        touching: Any = step.normal_force, step.tangential_force, step.slip_speed
        q, v, acceleration, *numbers = (x.astype(dtype) for x in (*moved, *touching))
        active: Any = step.active
        contacts = PairContacts(self.pairs, active, *numbers)
        report = _report(step.residual, step.rounds, step.converged, dtype)
        return Solved(q, v, acceleration, contacts, report)


def _one_by_one(step: Callable[..., Any], batch: tuple[Any, ...]) -> Any:
    """What a step of one environment gives for each of a batch, of any number of axes, or of none.

    One call of a compiled program for all of them: each costs as much as a step.
    """
    arrays = [np.asarray(x) for x in batch]
    axes = arrays[0].shape[:-1]
    rows = [x.reshape(-1, x.shape[-1]) for x in arrays]
    results = [step(*row) for row in zip(*rows, strict=True)]
    return jax.tree.map(
        lambda *leaves: np.stack(leaves).reshape(axes + np.shape(leaves[0])), *results
    )


def _report(residual: float, rounds: int, converged: bool, dtype: Any) -> SolverReport:
    """Of NumPy's numbers, since a callback must not call JAX."""
    numbers: list[Any] = [dtype.type(residual), np.int32(rounds), np.bool_(converged)]
    return SolverReport(*numbers)


def _check_constant(where: str, params: EnvParams, modelled: tuple[str, ...]) -> None:
    """Refuse what would change MuJoCo's model from episode to episode."""
    if params.reset_pool is not None:
        raise ConfigError(
            f"{where}: there is a reset_pool, expected None: pools are for the resets of "
            "batches. Leave reset_pool out."
        )
    random = params.randomisation
    changed = [n for n in modelled if random is not None and getattr(random, n) is not None]
    if changed:
        raise ConfigError(
            f"{where}: randomisation of {', '.join(changed)}, expected none of these: "
            "MuJoCo's model is built once. Leave them out, or use fraxenv's own physics."
        )
