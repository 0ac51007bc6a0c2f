"""Gymnasium's methods in any order, with anything: only our own errors, and it goes on working."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fraxenv.errors import ActionError, ConfigError, EnvStateError, UnknownNameError
from fraxenv.wrappers.gymnasium import GymnasiumEnv, GymnasiumVectorEnv

OPTIONS: dict[str, Any] = {
    "action": "torque",
    "control_hz": 50,
    "physics_hz": 50,
    "max_steps_in_episode": 3,
}
SIZE = 7
numbers = st.floats(-2, 2, width=32)
actions = st.lists(numbers, min_size=SIZE, max_size=SIZE).map(lambda x: np.array(x, np.float32))
WRONG: dict[str, Any] = {
    "one too few": np.zeros(SIZE - 1, np.float32),
    "one more axis": np.zeros((1, 1, SIZE), np.float32),
    "none": np.zeros(0, np.float32),
    "not a number": np.full(SIZE, np.nan, np.float32),
    "infinite": np.full(SIZE, np.inf),
    "whole numbers": np.zeros(SIZE, int),
    "texts": ["a"] * SIZE,
    "ragged": [[0.0], [0.0, 1.0]],
    "nothing": None,
    "a dict": {"action": 1},
    "objects": np.array([None] * SIZE),
    "complex": np.zeros(SIZE, complex),
}
wrong = st.sampled_from(sorted(WRONG)).map(WRONG.__getitem__)
seeds = st.none() | st.integers(0, 2**31)


class Single(RuleBasedStateMachine):
    """One environment, and what is expected of it."""

    def __init__(self) -> None:
        super().__init__()
        self.env = GymnasiumEnv("PandaReach-v0", **OPTIONS)
        self.open, self.running, self.over = True, False, False
        self.steps = 0

    @rule(seed=seeds)
    def reset(self, seed: int | None) -> None:
        if not self.open:
            with pytest.raises(EnvStateError, match="close"):
                self.env.reset(seed=seed)
            return
        obs, info = self.env.reset(seed=seed)
        assert obs in self.env.observation_space
        assert info == {}
        self.running, self.over, self.steps = True, False, 0

    @rule(action=actions)
    def step(self, action: np.ndarray) -> None:
        if not self.open or not self.running or self.over:
            with pytest.raises(EnvStateError, match=r"close|reset"):
                self.env.step(action)
            return
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        assert obs in self.env.observation_space
        assert np.isfinite(reward)
        assert truncated == (self.steps == OPTIONS["max_steps_in_episode"])
        assert not info["diverged"]
        self.over = terminated or truncated

    @rule(action=wrong)
    def wrong_action(self, action: Any) -> None:
        with pytest.raises((ActionError, EnvStateError)):
            self.env.step(action)

    @rule(size=st.sampled_from([-1, "large", {}]))
    def wrong_seed(self, size: Any) -> None:
        before = self.env.state
        with pytest.raises((EnvStateError, gymnasium.error.Error)):  # Gymnasium checks seeds
            self.env.reset(seed=size)
        assert self.env.state is before

    @rule()
    def unknown_option(self) -> None:
        with pytest.raises((UnknownNameError, EnvStateError)):
            self.env.reset(options={"colour": "red"})

    @rule()
    def render(self) -> None:
        if self.open and self.running:
            with pytest.warns(UserWarning, match="without a render mode"):
                assert self.env.render() is None
        else:
            with pytest.raises(EnvStateError):
                self.env.render()

    @precondition(lambda self: self.steps or not self.open)
    @rule()
    def close(self) -> None:
        self.env.close()
        self.open = self.running = False

    @invariant()
    def holds_its_state(self) -> None:
        assert (self.env.state is not None) == self.running


class Batch(RuleBasedStateMachine):
    """A batch that is reset by masks; so that environments wait for it."""

    n = 3

    def __init__(self) -> None:
        super().__init__()
        mode = AutoresetMode.DISABLED
        self.env = GymnasiumVectorEnv("PandaReach-v0", self.n, autoreset_mode=mode, **OPTIONS)
        self.open, self.running = True, False
        self.steps = np.zeros(self.n, int)

    @rule(seed=seeds, mask=st.none() | st.lists(st.booleans(), min_size=3, max_size=3))
    def reset(self, seed: int | None, mask: list[bool] | None) -> None:
        options = None if mask is None else {"reset_mask": np.array(mask)}
        chosen = np.ones(self.n, bool) if mask is None else np.array(mask)
        if not self.open or not chosen.any() or not (self.running or chosen.all()):
            if self.open and self.running:  # a mask that resets nothing
                return
            with pytest.raises((EnvStateError, ConfigError)):
                self.env.reset(seed=seed, options=options)
            return
        obs, _ = self.env.reset(seed=seed, options=options)
        assert obs in self.env.observation_space
        self.running = True
        self.steps[chosen] = 0

    @rule(action=actions)
    def step(self, action: np.ndarray) -> None:
        waiting = self.steps >= OPTIONS["max_steps_in_episode"]
        batch = np.tile(action, (self.n, 1))
        if not self.open or not self.running or waiting.any():
            with pytest.raises(EnvStateError, match=r"close|reset"):
                self.env.step(batch)
            return
        obs, reward, terminated, truncated, _ = self.env.step(batch)
        self.steps += 1
        assert obs in self.env.observation_space
        assert np.isfinite(reward).all()
        assert not terminated.any()
        np.testing.assert_array_equal(truncated, self.steps == OPTIONS["max_steps_in_episode"])

    @rule(action=wrong)
    def wrong_action(self, action: Any) -> None:
        with pytest.raises((ActionError, EnvStateError)):
            self.env.step(action)

    @rule(mask=st.sampled_from([[True], np.zeros(3), "all", np.ones((3, 1), bool)]))
    def wrong_mask(self, mask: Any) -> None:
        with pytest.raises((ConfigError, EnvStateError)):
            self.env.reset(options={"reset_mask": mask})

    @rule(seed=st.sampled_from([[1, 2], "abc", {1: 2}, [1, 2, "x"], [1.5, 2, 3]]))
    def wrong_seed(self, seed: Any) -> None:
        with pytest.raises((ConfigError, EnvStateError, gymnasium.error.Error)):
            self.env.reset(seed=seed)

    @precondition(lambda self: self.steps.any() or not self.open)
    @rule()
    def close(self) -> None:
        self.env.close()
        self.open = self.running = False


# Without shrinking, which would take minutes.
PHASES = (Phase.explicit, Phase.generate)
few = settings(max_examples=5, stateful_step_count=20, phases=PHASES)
Single.TestCase.settings = few
Batch.TestCase.settings = few


class TestSingle(Single.TestCase):
    pass


class TestBatch(Batch.TestCase):
    pass


class ManySingle(Single):
    pass


class ManyBatch(Batch):
    pass


ManySingle.TestCase.settings = settings(max_examples=200, stateful_step_count=50, phases=PHASES)
ManyBatch.TestCase.settings = settings(max_examples=200, stateful_step_count=50, phases=PHASES)


@pytest.mark.slow
class TestManySingle(ManySingle.TestCase):
    pass


@pytest.mark.slow
class TestManyBatch(ManyBatch.TestCase):
    pass
