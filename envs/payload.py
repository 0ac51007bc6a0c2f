"""What the hand holds, for the model that controller and filter have of the robot."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fraxenv.dynamics import Payload, Robot, Scene, Terms, frame_pose
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, check_not_negative, unknown_name

from .tasks.grasping import LEAST_FORCE, grasped
from .world import ObjectState


@pytree_dataclass
class HeldObject:
    """An object of a scene, as a payload of the hand while it is grasped; nothing otherwise.

    It is grasped when every pad presses on it in the last physics step, as `grasped` has it. While
    it is, it counts as fixed to the hand where it is now. Its numbers are what the controller knows
    of it: drawn factors of objects' masses do not change them.

    Attributes:
        frame: of the hand.
        thing: name of the object, which moves freely, and of its geom.
        pads: names of the geoms that hold it.
        mass: (), kg.
        com: (3,), m, its centre of mass, in its own frame.
        inertia: (3, 3), kg m^2, about its centre of mass, in its own axes.
        least_force: N, of each pad.

    Raises:
        ConfigError: the mass, or the force, is negative.
    """

    frame: str = static()
    thing: str = static()
    pads: tuple[str, ...] = static()
    mass: ArrayLike
    com: ArrayLike
    inertia: ArrayLike
    least_force: ArrayLike = LEAST_FORCE

    def __post_init__(self) -> None:
        check_not_negative(self, "mass", "least_force")

    @classmethod
    def of(cls, scene: Scene, frame: str, thing: str, pads: tuple[str, ...]) -> HeldObject:
        """An object with the mass and inertia that the scene has of it.

        Raises:
            UnknownNameError: the scene has no such member.
            ConfigError: the object does not move freely, or a pad never touches it.
        """
        if thing not in scene.members:
            raise unknown_name("member", thing, scene.members, f"of scene {scene.name!r}")
        bodies, system = scene.members[thing].bodies, scene.system
        own = range(bodies.start, bodies.stop)
        if len(own) != 1 or system.topology.joints[own[0]].kind != "floating":
            raise ConfigError(
                f"HeldObject: {thing!r} of scene {scene.name!r} does not move freely, expected a "
                "dynamics.free_body. What hangs on something else is no load of the hand."
            )
        touching = {frozenset(pair) for pair in scene.pair_names}
        for pad in pads:
            if frozenset((pad, thing)) not in touching:
                raise ConfigError(
                    f"HeldObject: no pair of scene {scene.name!r} is of {pad!r} and {thing!r}, "
                    "expected one for every pad. Name the object's geom as the object, and the "
                    "pair among the scene's pairs."
                )
        i = own[0]
        numbers = (np.asarray(x)[i] for x in (system.mass, system.com, system.inertia))
        return cls(frame, thing, pads, *numbers)

    def payload(self, robot: Robot, terms: Terms, scene: Any) -> Payload:
        """What the hand holds now; without a mass if that is nothing.

        Args:
            robot: the model, without it.
            terms: its terms.
            scene: `SceneState`, with the contacts of the last physics step.

        Raises:
            ConfigError: there is no scene.
        """
        if scene is None:
            raise ConfigError(
                f"payload: {self.thing!r} is to be held, but the environment has no scene, "
                "expected one with it. Give a constant Payload, or make an environment of a scene."
            )
        thing: ObjectState = scene.objects[self.thing]
        position, rotation = frame_pose(robot, terms.q, self.frame, kin=terms.kin)
        dtype = position.dtype
        turn = matmul(rotation.T, thing.rotation)
        com = matmul(turn, jnp.asarray(self.com, dtype))
        held = grasped(scene.contacts, self.pads, self.thing, self.least_force)
        return Payload(
            self.frame,
            jnp.where(held, jnp.asarray(self.mass, dtype), 0.0),
            matmul(rotation.T, thing.position - position) + com,
            jnp.where(held, matmul(matmul(turn, jnp.asarray(self.inertia, dtype)), turn.T), 0.0),
        )


Load = Payload | HeldObject
"""What the controller's model of the robot carries: always the same, or what is held."""


def carried(load: Load, robot: Robot, terms: Terms, scene: Any) -> Payload:
    """What the robot carries now; for the arguments and errors see `HeldObject.payload`."""
    return load if isinstance(load, Payload) else load.payload(robot, terms, scene)
