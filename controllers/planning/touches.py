"""Residuals of what touches: how hard, and whether it slips."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, Scene, Terms, scene_step
from fraxenv.dynamics.contact.newton import Solution
from fraxenv.dynamics.model.fingerprint import fingerprint
from fraxenv.dynamics.scene.pair_contacts import Names, chosen_pairs, pair_contacts, pair_slots

from .residuals import Residual, residual


def contact_force(
    scene: Scene,
    one: Names,
    other: Names | None = None,
    force: ArrayLike = 0.0,
    weight: ArrayLike = 1.0,
    **options: Any,
) -> Residual:
    """Normal forces of pairs of geoms (n,), N, less those that are wanted.

    Of a step of the scene's own length from the state, under its torques; so a terminal one is of
    no torques. What does not touch has no force and no derivative: begin with a motion that
    touches.

    Args:
        scene: the problem's, whose numbers are constants here.
        one: name of a geom, or of several.
        other: of what it touches; anything if omitted.
        force: (n,) or (), N, of the pairs in the scene's order; with `each`, (N, n).
        weight: (n,) or ().
        **options: `norm` and `each`, as of `residual`.

    Raises:
        UnknownNameError: there is no such geom; names the closest ones.
        ConfigError: no pair of the scene is of these geoms.
    """
    pairs = tuple(chosen_pairs(scene.pair_names, one, other))
    return residual(_Force(scene, pairs), jnp.asarray(force), weight, **options)


def slip(
    scene: Scene, one: Names, other: Names | None = None, weight: ArrayLike = 1.0, **options: Any
) -> Residual:
    """Velocities across the normal of all points where pairs of geoms touch (2 k,), m/s.

    Each of the k contact slots of these pairs has two, in the contact's axes, which are zero while
    nothing touches there.

    Args:
        scene: the problem's, whose numbers are constants here.
        one: name of a geom, or of several.
        other: of what it touches; anything if omitted.
        weight: (2 k,) or ().
        **options: `norm` and `each`, as of `residual`.

    Raises:
        UnknownNameError: there is no such geom; names the closest ones.
        ConfigError: no pair of the scene is of these geoms.
    """
    pairs = tuple(chosen_pairs(scene.pair_names, one, other))
    return residual(_Slip(scene, pairs), (), weight, **options)


@dataclass(frozen=True, eq=False)
class _Touching:
    """Of some pairs of a scene; equal where scene and pairs are, by their content."""

    scene: Scene
    pairs: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Touching) and other._digest == self._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def _digest(self) -> bytes:
        return fingerprint((type(self).__name__, self.scene, self.pairs))

    def _solved(self, robot: Robot, terms: Terms, tau: Array) -> Solution:
        scene = dataclasses.replace(self.scene, system=robot)
        return scene_step(scene, terms.q, terms.v, tau, terms=terms)[2]


class _Force(_Touching):
    def __call__(self, robot: Robot, terms: Terms, tau: Array, wanted: Array) -> Array:
        layout = self.scene.constraints.layout
        solved = self._solved(robot, terms, tau)
        forces = pair_contacts(self.scene.pair_names, layout, solved).normal_force
        return forces[np.array(self.pairs)] - wanted


class _Slip(_Touching):
    def __call__(self, robot: Robot, terms: Terms, tau: Array, _: Any) -> Array:
        slots = pair_slots(self.scene.constraints.layout)
        chosen = np.concatenate([np.r_[slots[i]] for i in self.pairs])
        solved = self._solved(robot, terms, tau)
        across = jnp.where(solved.touching[:, None], solved.velocity[:, 1:3], 0.0)
        return across[chosen].ravel()
