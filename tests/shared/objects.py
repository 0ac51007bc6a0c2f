"""States of environments whose objects are elsewhere, and what tasks measure of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fraxenv.envs import ObjectState

LEAST = 20
"""Near misses of every task."""


def check_near_misses(
    env,
    params,
    at: Callable[..., Any],
    misses: Mapping[str, tuple[Any, ...]],
    accepted: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Every near miss is refused, and accepted with the one thing put right that is wrong.

    Args:
        env: the environment.
        params: its parameters.
        at: keywords -> a state; without any one of success.
        misses: name -> a keyword, its value that spoils success, and one that does not; and perhaps
            other keywords, which matter neither way.
        accepted: name -> keywords that do not matter.

    Returns:
        What is measured of every near miss, by name.
    """
    assert len(misses) >= LEAST
    cases = {("as it should be", True): at()}
    cases |= {(name, True): at(**keywords) for name, keywords in accepted.items()}
    assert not accepted.keys() & misses.keys()
    for name, (keyword, wrong, right, *others) in misses.items():
        for value, expected in ((wrong, False), (right, True)):
            cases[name, expected] = at(**{keyword: value}, **dict(*others))
    found = measure(env, params, batched(cases.values()))
    wrongly = [case for case, ok in zip(cases, found["success"], strict=True) if ok != case[1]]
    assert not wrongly
    return {
        name: {measured: values[i] for measured, values in found.items()}
        for i, (name, expected) in enumerate(cases)
        if not expected
    }


def measure(env, params, states):
    """What is measured of states at the end of a policy step."""

    def one(state):
        robot, motion, before = env._inputs(state, params)
        after = params.task.after(robot, motion, before)
        return params.task.measures(robot, motion, after)

    return jax.device_get(jax.jit(jax.vmap(one))(states))


def left_alone(env, params, states, steps: int):
    """The last states and infos, and the infos of all steps, of episodes whose actions are zero."""
    n = len(states.time)
    keys, idle = jax.random.split(jax.random.key(1), n), jnp.zeros((n, env.num_actions))
    step = jax.jit(jax.vmap(lambda k, s, a: env.step_env(k, s, a, params)[1::3]))
    infos = []
    for _ in range(steps):
        states, info = step(keys, states, idle)
        infos.append(info)
    return states, infos


def batched(states):
    """One batch of states."""
    return jax.tree.map(lambda *x: np.stack(x), *states)


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
