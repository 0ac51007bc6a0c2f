"""Where a scene's geoms touch."""

from __future__ import annotations

import dataclasses

from jax.typing import ArrayLike
from jaxtyping import Real

from ..contact.narrowphase import Contacts, find_contacts
from ..kinematics import forward_kinematics
from .scene import Scene


def contacts(scene: Scene, q: Real[ArrayLike, " nq"]) -> Contacts:
    """Contacts of a scene at a configuration, in a fixed number of slots for each pair.

    In slots without a contact, `active` is False and the numbers are finite.

    Args:
        scene: the scene.
        q: rad and m.

    Raises:
        ArrayError: `q` has the wrong shape.
    """
    found = find_contacts(scene.system, scene.constraints, forward_kinematics(scene.system, q))
    pairs = zip(scene.pair_names, scene.constraints.layout.pairs, strict=True)
    names = tuple(name for name, pair in pairs for _ in range(pair.slots))
    return dataclasses.replace(found, pair=names)
