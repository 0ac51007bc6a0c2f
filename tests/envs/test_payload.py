"""Payloads: what controller and filter know that the hand carries."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experts import rollout
from scipy.spatial.transform import Rotation

import fraxenv
from fraxenv import dynamics
from fraxenv.dynamics import Payload
from fraxenv.envs import HeldObject
from fraxenv.errors import ConfigError, UnknownNameError

PADS = ("left_pad", "right_pad")


def steady_error(payload) -> float:
    """m, of a hand that is to stay, and carries 1 kg beside its origin, after 1 s."""
    env, params = fraxenv.make(
        "PandaReach-v0",
        action_options={"target": "desired"},
        randomisation={"payload": (1.0, 1.0)},
        payload=payload,
        control_hz=100,
        backend="vmap",
    )
    _, state = env.reset_env(jax.random.key(0), params)
    start = state.q

    def step(state, key):
        return env.step_env(key, state, jnp.zeros(env.num_actions), params)[1], None

    state, _ = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(jax.random.key(1), 50)))(
        state
    )
    hands = (dynamics.frame_pose(env.robot, q, "hand")[0] for q in (start, state.q))
    return float(np.linalg.norm(np.subtract(*hands)))


def test_a_known_weight_draws_no_hand_down() -> None:
    assert steady_error(None) > 3e-3
    assert steady_error({"mass": 1.0}) < 1e-4


@pytest.fixture(scope="module")
def pick():
    return fraxenv.make("PandaPick-v0", payload="held", scene_options={"mass": 1.0})


def test_the_object_is_a_payload_while_it_is_grasped(pick) -> None:
    env, params = pick
    load, robot = params.payload, env.robot
    assert (load.frame, load.thing, load.pads) == ("hand", "cube", PADS)
    assert float(load.mass) == pytest.approx(1.0)
    _, state = env.reset_env(jax.random.key(0), params)
    scene = state.world.scene
    load = dataclasses.replace(load, com=np.array([0.01, 0.0, 0.02], np.float32))
    terms = dynamics.compute_terms(robot, state.q, state.v)
    assert load.payload(robot, terms, scene).mass == 0.0

    pairs = scene.contacts.pairs
    pressing = jnp.array([5.0 if set(p) & set(PADS) and "cube" in p else 0.0 for p in pairs])
    one = jnp.array([5.0 if set(p) == {"left_pad", "cube"} else 0.0 for p in pairs])

    def with_force(force):
        return dataclasses.replace(
            scene, contacts=dataclasses.replace(scene.contacts, normal_force=force)
        )

    assert load.payload(robot, terms, with_force(one)).mass == 0.0
    held = load.payload(robot, terms, with_force(pressing))
    assert held.mass == pytest.approx(1.0)
    # In the world it is where the cube is, and turned as it.
    position, rotation = (np.asarray(x, float) for x in dynamics.frame_pose(robot, state.q, "hand"))
    q = np.asarray(scene.objects["cube"].q, float)
    turn = Rotation.from_quat(q[[4, 5, 6, 3]]).as_matrix()
    np.testing.assert_allclose(
        position + rotation @ held.com, q[:3] + turn @ np.asarray(load.com), atol=1e-5
    )
    np.testing.assert_allclose(
        rotation @ held.inertia @ rotation.T, turn @ np.asarray(load.inertia) @ turn.T, atol=1e-8
    )


def test_what_cannot_be_a_payload() -> None:
    for task in ("PandaReach-v0", "PandaPush-v0", "PandaDrawer-v0"):
        with pytest.raises(ConfigError, match=r"payload='held'.*grasped"):
            fraxenv.make(task, payload="held")
    with pytest.raises(ConfigError, match="payload='holds'"):
        fraxenv.make("PandaPick-v0", payload="holds")
    with pytest.raises(UnknownNameError, match="payload option 'mas'"):
        fraxenv.make("PandaReach-v0", payload={"mas": 1.0})
    with pytest.raises(UnknownNameError, match="wrist"):
        fraxenv.make("PandaReach-v0", payload=Payload("wrist", 1.0))
    env, _ = fraxenv.make("PandaPick-v0")
    scene = env.physics.scene
    with pytest.raises(UnknownNameError, match="cub"):
        HeldObject.of(scene, "hand", "cub", PADS)
    with pytest.raises(ConfigError, match="move freely"):
        HeldObject.of(scene, "hand", env.robot.name, PADS)
    with pytest.raises(ConfigError, match=r"no pair.*'table_pad'"):
        HeldObject.of(scene, "hand", "cube", ("left_pad", "table_pad"))
    load = HeldObject.of(scene, "hand", "cube", PADS)
    with pytest.raises(ConfigError, match="no scene"):
        fraxenv.make("PandaReach-v0", payload=load)[0].reset(jax.random.key(0))


@pytest.mark.slow
def test_a_kilogramme_is_held_where_it_should_be(pick) -> None:
    """At the end, the hand is where it was told to stay; without the option it sinks."""
    errors = {}
    for payload in (None, "held"):
        made = fraxenv.make("PandaPick-v0", payload=payload, scene_options={"mass": 1.0})
        _, results = rollout(*made)
        last = results[-1][2]
        held = np.asarray(last["grasped"])
        assert held.mean() > 0.9
        errors[payload] = float(np.median(np.asarray(last["controller"]["position_error"])[held]))
    assert errors["held"] < 2e-4
    assert errors[None] > 3e-3
