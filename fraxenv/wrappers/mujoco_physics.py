"""Where Gymnasium environments keep MuJoCo's model and data, and when they write its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium

from ..errors import ConfigError


class Physics(NamedTuple):
    """MuJoCo within an environment.

    Attributes:
        model: its `mujoco.MjModel`.
        data: its `mujoco.MjData`, which a reset may make anew.
        stepper: what steps the physics right after the environment has written the inputs, too late
            for MuJoCo's control callback: an object and the name of its method; None where the
            callback comes after.
    """

    model: Any
    data: Callable[[], Any]
    stepper: Callable[[], tuple[Any, str]] | None = None


def physics_of(env: gymnasium.Env[Any, Any], model: Any, data: Any) -> Physics:
    """MuJoCo within an environment: one's own, a `MujocoEnv`, robosuite's or dm_control's.

    Args:
        env: the environment.
        model: given by its user; None to look for it.
        data: likewise; or a function that returns it.

    Raises:
        ConfigError: it was not found.
    """
    own: Any = env.unwrapped
    given = data if callable(data) or data is None else lambda: data
    simulation: Any = getattr(own, "sim", None)
    if hasattr(simulation, "step2"):  # robosuite
        found = Physics(simulation.model._model, lambda: own.sim.data._data)
        if getattr(own, "lite_physics", False):
            # It writes inputs between `mj_step1`, which calls back, and `mj_step2`.
            found = found._replace(stepper=lambda: (own.sim, "step2"))
        return found._replace(data=given or found.data)
    physics: Any = getattr(own, "physics", None) or getattr(
        getattr(own, "_env", None), "physics", None
    )
    if hasattr(physics, "legacy_step"):  # dm_control
        # It begins with `mj_step2`, and has written inputs since `mj_step1`.
        stepper = (lambda: (physics, "step")) if physics.legacy_step else None
        return Physics(physics.model.ptr, given or (lambda: physics.data.ptr), stepper)
    return Physics(_found(own, "model", model), given or (lambda: _found(own, "data", None)))


def _found(own: Any, what: str, given: Any) -> Any:
    """The environment's model or data."""
    found = getattr(own, what, None) if given is None else given
    if found is None:
        raise ConfigError(
            f"EndEffectorAction: {type(own).__name__} has no `{what}`, expected MuJoCo's. Pass "
            f"it: {what}=..."
        )
    return found


@contextmanager
def preceded(stepper: tuple[Any, str], first: Callable[[], None]) -> Iterator[None]:
    """Meanwhile something is done first, every time an object's method is called."""
    owner, name = stepper
    usual = getattr(owner, name)

    def both(*args: Any, **kwargs: Any) -> Any:
        first()
        return usual(*args, **kwargs)

    setattr(owner, name, both)
    try:
        yield
    finally:
        delattr(owner, name)
