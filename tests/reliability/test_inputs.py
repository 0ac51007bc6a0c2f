"""Any states, actions and options: finite numbers, or an error of ours."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fraxenv
from fraxenv.errors import FraxenvError
from fraxenv.kernels import KernelError

anything = st.one_of(
    st.floats(width=32),  # infinities and NaNs among them
    st.floats(-4, 4, width=32),
    st.sampled_from([0.0, -0.0, 1e-40, 1e38, -3e3, np.pi]),
)
vectors = arrays(np.float32, 7, elements=anything)


@pytest.fixture(scope="module")
def env() -> Any:
    env, params = fraxenv.make(
        "PandaReach-v0", control_hz=100, physics_hz=100, action="joint_velocity", backend="native"
    )
    keys = jax.random.split(jax.random.key(0), 1)
    state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)[1]
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    return env, lambda state, action: step(keys, state, action, params), state


@given(q=vectors, v=vectors, action=vectors)
@settings(max_examples=150)
def test_any_state_and_action(env: Any, q: np.ndarray, v: np.ndarray, action: np.ndarray) -> None:
    """What is returned is finite and within the space; what was not is reported."""
    env, step, state = env
    state = state.replace(q=jnp.asarray(q)[None], v=jnp.asarray(v)[None])
    obs, state, reward, terminated, _, info = step(state, action[None])
    for x in (obs, state.q, state.v, reward):
        assert np.isfinite(x).all()
    space = env.observation_space(env.default_params)
    assert ((obs >= space.low) & (obs <= space.high)).all()
    limit = np.asarray(env.robot.effort_limits, np.float32)
    finite = np.isfinite(np.concatenate([q, v, action])).all()
    if not finite:
        assert bool(info["diverged"][0])
        assert bool(terminated[0])
    elif not bool(info["diverged"][0]):
        assert (np.abs(info["controller"]["torque"][0]) <= limit).all()


WRONG = st.sampled_from(
    [None, 0, -1, 1.5, True, "", "a", (), (1, 2, 3), ("a", "b"), {}, {"a": 1}, [], 10**400,
     float("nan"), float("inf"), object(), print, np.float32(2), b"x"]
)  # fmt: skip
RIGHT: dict[str, Any] = {
    "id": "PandaReach-v0",
    "robot": "panda",
    "task": "reach",
    "end_effector": "hand",
    "action": st.sampled_from(["torque", "ee_delta_pose", "joint_position"]),
    "action_options": {},
    "controller_options": {},
    "task_options": st.sampled_from([{}, {"position_tolerance": 0.1}]),
    "safety": st.sampled_from(["none", "cbf"]),
    "safety_options": {},
    "randomisation": st.sampled_from([None, {"payload": (0.0, 1.0)}]),
    "goal_env": st.booleans(),
    "goal_reward": st.sampled_from(["sparse", "dense"]),
    "policy_hz": st.sampled_from([10, 50]),
    "control_hz": st.sampled_from([100, 1000]),
    "physics_hz": st.sampled_from([1000, 2000]),
    "max_steps_in_episode": st.integers(1, 1000),
    "backend": st.sampled_from(["auto", "vmap", "native"]),
}
NESTED = ("action_options", "controller_options", "task_options", "safety_options", "randomisation")
FIELDS = ("scale", "position_scale", "position_tolerance", "goal_low", "kp", "payload", "frame",
          "reward_weights", "orientation", "end_effector", "link_mass", "steps")  # fmt: skip


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `make`: mostly possible ones, one or two of them anything."""
    names = draw(st.sets(st.sampled_from(sorted(RIGHT)), max_size=6)) | {"id"}
    chosen = {}
    for name in sorted(names):
        right = RIGHT[name]
        chosen[name] = draw(right) if isinstance(right, st.SearchStrategy) else right
    for name in draw(st.lists(st.sampled_from(sorted(RIGHT)), max_size=2)):
        chosen[name] = draw(WRONG)
    if draw(st.booleans()):
        chosen[draw(st.sampled_from(NESTED))] = {draw(st.sampled_from(FIELDS)): draw(WRONG)}
    return chosen


def make(chosen: dict[str, Any]) -> None:
    try:
        env, params = fraxenv.make(**chosen)
    except (FraxenvError, KernelError):
        return
    assert env.action_space(params).shape == (env.num_actions,)


@given(options())
@settings(max_examples=60)
def test_any_options(chosen: dict[str, Any]) -> None:
    make(chosen)


@pytest.mark.slow
@given(options())
@settings(max_examples=1500)
def test_any_options_at_length(chosen: dict[str, Any]) -> None:
    make(chosen)
