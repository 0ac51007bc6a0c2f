"""States of environments whose objects are elsewhere, and what tasks measure of them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fraxenv.envs import ObjectState


def measure(env, params, states):
    return jax.jit(jax.vmap(lambda s: params.task.measures(*env._inputs(s, params))))(states)


def changed(state, name: str, q=None, v=None):
    """The state with an object elsewhere, or faster; contacts are as they were."""
    scene = state.world.scene
    own = scene.objects[name]
    own = ObjectState(
        own.q if q is None else jnp.asarray(q), own.v if v is None else jnp.asarray(v)
    )
    scene = dataclasses.replace(scene, objects={**scene.objects, name: own})
    return state.replace(world=dataclasses.replace(state.world, scene=scene))


def tilted(q, angle: float):
    """A pose turned by `angle`, rad, about its own x axis."""
    a, b = np.cos(angle / 2), np.sin(angle / 2)
    w, x, y, z = q[3:]
    turned = jnp.stack([w * a - x * b, w * b + x * a, y * a + z * b, z * a - y * b])
    return jnp.concatenate([q[:3], turned])


def touching(state, one: str, other: str, touch: bool):
    """The state in which two geoms touch, or do not."""
    contacts = state.world.contacts
    index = next(i for i, pair in enumerate(contacts.pairs) if set(pair) == {one, other})
    contacts = dataclasses.replace(contacts, active=contacts.active.at[index].set(touch))
    scene = dataclasses.replace(state.world.scene, contacts=contacts)
    return state.replace(world=dataclasses.replace(state.world, scene=scene))
