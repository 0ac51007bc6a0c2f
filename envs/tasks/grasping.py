"""Grasps as data: the forces of a gripper's pads on an object, whether it is held, and slip."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics.scene.pair_contacts import PairContacts

LEAST_FORCE = 0.5
"""N, on each pad, from which an object counts as held: most of a 64 g cube's weight."""


def pad_forces(contacts: PairContacts, pads: tuple[str, ...], thing: str) -> Array:
    """Normal forces (p,), N, of pads on an object, in the pads' order.

    Args:
        contacts: `World.contacts`, of the last physics step.
        pads: names of the p pads' geoms.
        thing: name of the object's geom.

    Raises:
        UnknownNameError: there is no such geom.
        ConfigError: a pad and the object never touch.
    """
    return jnp.stack([jnp.sum(contacts.between(pad, thing).normal_force) for pad in pads])


def grasped(
    contacts: PairContacts, pads: tuple[str, ...], thing: str, least: ArrayLike = LEAST_FORCE
) -> Array:
    """Whether every pad presses on the object with at least `least`, N; () bool."""
    return jnp.all(pad_forces(contacts, pads, thing) >= least)


def slip_speed(contacts: PairContacts, pads: tuple[str, ...], thing: str) -> Array:
    """Speed (), m/s, at which the object slips along a pad, the fastest; zero without touch."""
    return jnp.max(contacts.between(pads, thing).slip_speed)
