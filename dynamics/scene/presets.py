"""Ready choices of a scene's contact parameters."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fraxenv.errors import ConfigError, is_concrete

from ..contact.impedance import LEAST_IMPEDANCE
from .scene import Scene


def soften(scene: Scene, width: ArrayLike = 2e-3, limit_width: ArrayLike = 2e-2) -> Scene:
    """The preset "soft", for gradients: forces of contacts and of joint limits begin at zero.

    With MuJoCo's default impedance of 0.9 at the surface, a body that touches another at the speed
    `u` is stopped by a force of about `9 B u` at once. The step jumps there, and gradients, which
    are exact on either side, do not see the jump: they do not tell that moving a little further
    would touch. Here the impedance at the surface is the least that MuJoCo allows, and rises within
    `width`, which is to be the expected depth: then the force grows continuously from (nearly)
    zero, and gradients lead through touch and lift-off. The price is that bodies rest deeper: a box
    on its four corners, at a `solref` of 0.02 s, 1.1 mm in place of 0.11 mm.

    Args:
        scene: the scene.
        width: m, over which the impedance of contacts rises.
        limit_width: rad or m, over which that of joint limits rises.

    Raises:
        ConfigError: a width is not positive.
    """
    for name, value in (("width", width), ("limit_width", limit_width)):
        if is_concrete(value) and not (np.asarray(value) > 0).all():
            raise ConfigError(
                f"soften of scene {scene.name!r}: {name}={value!r}, expected a positive length "
                "over which forces begin, such as the depth to which bodies sink in."
            )
    c = scene.constraints
    return dataclasses.replace(
        scene,
        constraints=dataclasses.replace(
            c,
            geoms=dataclasses.replace(c.geoms, solimp=_rising(c.geoms.solimp, width)),
            pairs=dataclasses.replace(c.pairs, solimp=_rising(c.pairs.solimp, width)),
            joints=dataclasses.replace(
                c.joints, limit_solimp=_rising(c.joints.limit_solimp, limit_width)
            ),
        ),
    )


def grip(scene: Scene, impratio: ArrayLike = 100.0) -> Scene:
    """The preset "grip", for what is held: contacts as stiff as the timestep allows.

    Friction is damped and has no stiffness, so that what is held creeps: at the speed of
    `load / contacts (1 - d) / d w / (impratio B)` with the inverse weight `w` of both bodies, the
    impedance `d` and the damping `B = 2 / (d solref)`. Here contacts have a `solref` of two
    timesteps, and an impedance of 0.999 at any depth. The price is that they take blows harder, and
    that the friction of a slipping contact jumps more.

    Args:
        scene: the scene, with elliptic cones.
        impratio: how much stiffer friction is than what presses.

    Raises:
        ConfigError: the cones are pyramids, or `impratio` is not positive.
    """
    c = scene.constraints
    if c.layout.cone != "elliptic":
        raise ConfigError(
            f"grip of scene {scene.name!r}: its cones are {c.layout.cone}, expected elliptic ones, "
            "whose friction alone impratio makes stiffer."
        )
    if is_concrete(impratio) and not (np.asarray(impratio) > 0).all():
        raise ConfigError(
            f"grip of scene {scene.name!r}: impratio={impratio!r}, expected a positive number."
        )
    xp = np if is_concrete(scene.timestep) else jnp
    solref = xp.stack([2.0 * xp.asarray(scene.timestep), xp.ones(())])
    solimp = np.array([0.999, 0.999, 1e-3, 0.5, 2.0])

    def stiff(part: Any) -> Any:
        n = np.shape(part.solref)[:-1]
        return dataclasses.replace(
            part,
            solref=xp.broadcast_to(solref, (*n, 2)),
            solimp=np.broadcast_to(solimp, (*n, 5)),
        )

    stiffer = dataclasses.replace(c, geoms=stiff(c.geoms), pairs=stiff(c.pairs), impratio=impratio)
    return dataclasses.replace(scene, constraints=stiffer)


def _rising(solimp: ArrayLike, width: ArrayLike) -> Any:
    """Impedances (..., 5) that begin with the least, and rise within the width."""
    if is_concrete(solimp, width):
        changed = np.array(solimp)
        changed[..., 0], changed[..., 2] = LEAST_IMPEDANCE, width
        return changed
    return jnp.asarray(solimp).at[..., 0].set(LEAST_IMPEDANCE).at[..., 2].set(width)
