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
from fraxenv.dynamics.scene.pair_contacts import PairContacts
from fraxenv.envs import HeldObject, ObjectState, SceneState
from fraxenv.errors import ConfigError, UnknownNameError

PADS = ("left_pad", "right_pad")
QUICK = {"xla_backend_optimization_level": 0}  # to compile


@pytest.mark.slow
def test_the_arm_is_held_with_what_it_carries() -> None:
    """First torques of a hand that stays where it is: against gravity, of arm and load."""
    load = {"mass": 1.5, "com": (0.02, -0.01, 0.1)}
    env, params = fraxenv.make(
        "PandaReach-v0",
        payload=load,
        action="ee_delta_position",
        task_options={"start_noise": 0.0},
        control_hz=50,
        physics_hz=50,
        backend="vmap",
    )
    robot = env.robot

    def torque(key):
        _, state = env.reset_env(key, params)
        return env.step_env(key, state, jnp.zeros(3), params)[-1]["controller"]["torque"]

    tau = jax.jit(torque, compiler_options=QUICK)(jax.random.key(0))
    carrying = dynamics.with_payload(robot, Payload("hand", **load))
    q = jnp.asarray(robot.q_default, jnp.float32)
    gravity = jax.jit(dynamics.gravity_forces)
    np.testing.assert_allclose(tau, gravity(carrying, q), atol=1e-3)
    assert np.abs(np.asarray(tau - gravity(robot, q))).max() > 5.0


@pytest.fixture(scope="module")
def pick():
    return fraxenv.make("PandaPick-v0", payload="held", scene_options={"mass": 1.0})


def test_the_object_is_a_payload_while_it_is_grasped(pick) -> None:
    env, params = pick
    load, robot = params.payload, env.robot
    assert (load.frame, load.thing, load.pads) == ("hand", "cube", PADS)
    assert float(load.mass) == pytest.approx(1.0)
    np.testing.assert_allclose(load.inertia, 1.0 / 6.0 * 0.04**2 * np.eye(3), rtol=1e-6)
    load = dataclasses.replace(
        load, com=np.array([0.01, 0.0, 0.02]), inertia=np.diag([1.0, 2.0, 2.5])
    )
    place = np.array([0.5, 0.1, 0.2, 0.8, 0.0, 0.6, 0.0])
    q = jnp.asarray(robot.q_default, jnp.float32)
    terms = jax.jit(dynamics.compute_terms)(robot, q, jnp.zeros(robot.nv))

    def carried(*force: float) -> Payload:
        none = jnp.zeros(2)
        pairs = tuple((pad, "cube") for pad in PADS)
        contacts = PairContacts(pairs, none > 0, jnp.array(force), none, none)
        scene = SceneState({"cube": ObjectState(jnp.asarray(place))}, contacts=contacts)
        return load.payload(robot, terms, scene)

    for force in ((0.0, 0.0), (5.0, 0.0), (5.0, 0.4)):
        assert carried(*force).mass == 0.0
        assert not carried(*force).inertia.any()
    held = carried(5.0, 0.6)
    assert held.mass == pytest.approx(1.0)
    # In the world it is where the cube is, and turned as it.
    hand = jax.jit(lambda q: dynamics.frame_pose(robot, q, "hand"))(q)
    position, rotation = (np.asarray(x, float) for x in hand)
    turn = Rotation.from_quat(place[[4, 5, 6, 3]]).as_matrix()
    np.testing.assert_allclose(
        position + rotation @ held.com, place[:3] + turn @ load.com, atol=1e-5
    )
    np.testing.assert_allclose(
        rotation @ held.inertia @ rotation.T, turn @ load.inertia @ turn.T, atol=1e-5
    )


def test_what_cannot_be_a_payload(pick) -> None:
    with pytest.raises(ConfigError, match=r"payload='held' of PandaReach-v0.*grasped"):
        fraxenv.make("PandaReach-v0", payload="held")
    with pytest.raises(ConfigError, match="payload='holds'"):
        fraxenv.make("PandaReach-v0", payload="holds")
    with pytest.raises(UnknownNameError, match="payload option 'mas'"):
        fraxenv.make("PandaReach-v0", payload={"mas": 1.0})
    with pytest.raises(UnknownNameError, match="wrist"):
        fraxenv.make("PandaReach-v0", payload=Payload("wrist", 1.0))
    env, params = pick
    scene = env.physics.scene
    with pytest.raises(UnknownNameError, match="cub"):
        HeldObject.of(scene, "hand", "cub", PADS)
    with pytest.raises(ConfigError, match="move freely"):
        HeldObject.of(scene, "hand", env.robot.name, PADS)
    with pytest.raises(ConfigError, match=r"no pair.*'table_pad'"):
        HeldObject.of(scene, "hand", "cube", ("left_pad", "table_pad"))
    with pytest.raises(ConfigError, match="no scene"):
        params.payload.payload(env.robot, None, None)


@pytest.mark.slow
def test_a_kilogramme_is_held_where_it_should_be() -> None:
    """At the end, the hand is where it was told to stay; without the option it sinks."""
    errors = {}
    for payload in (None, "held"):
        made = fraxenv.make("PandaPick-v0", payload=payload, scene_options={"mass": 1.0})
        _, results = rollout(*made)
        last = results[-1][2]
        held = np.asarray(last["grasped"])
        assert held.mean() > 0.9
        errors[payload] = float(np.median(np.asarray(last["object_distance"])[held]))
    assert errors["held"] < 2e-4
    assert errors[None] > 3e-3
