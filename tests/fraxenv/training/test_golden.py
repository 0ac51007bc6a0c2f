"""The golden curve: a short training of Pick goes as it went when its numbers were stored.

What breaks physics, reward, expert, learner or evaluation without an error leaves these ranges.
A program that is compiled in another way rounds in another way, and learns as with another seed: of
four seeds, with quick compilation and, two of them, without, returns were from 5.64 to 5.70, from
17.6 to 19.5 and from 19.2 to 19.7, success 0, from 0.77 to 0.97 and from 0.95 to 1. The ranges are
that wide, and a little more on either side. Outside are, of what was tried, a controller that is
softer by a fifth (5.48, 15.8, 17.0), a grip of a third (14.0, 15.4, 15.3), a reward for precision
that is less by a quarter (18.4 in the end), and a learner that never asks its expert (5.6 always).
Inside is friction of a fifth, which is enough to hold a cube of 64 g.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fraxenv.training import DAggerConfig, preset, read_metrics, train

SHORT = DAggerConfig(
    env="PandaPick-v0",
    overrides={
        "action": "ee_delta_position",
        "max_steps_in_episode": 80,
        "task_options": {
            "object_low": (0.47, -0.03),
            "object_high": (0.53, 0.03),
            "object_turn": 0.0,
            "goal_low": (0.45, -0.05, 0.08),
            "goal_high": (0.55, 0.05, 0.15),
            "least_distance": 0.03,
        },
        "reset_pool": 512,  # less to compile
    },
    total_timesteps=3 * 5120,
    num_envs=64,
    num_steps=16,
    updates_per_round=5,
    demonstrations=64,
    num_epochs=64,
    batch_size=256,
    buffer_size=65_536,
    hidden_layer_sizes=(128, 128),
)
"""A cube that is turned as the hand is, in a small box: learnt in 15 000 steps."""

CURVE = {
    5120: ((5.66, 0.08), (0.0, 0.05)),
    10240: ((18.5, 1.4), (0.87, 0.16)),
    15360: ((19.45, 0.5), (0.97, 0.06)),
}
"""Step -> return and success, and how far off each may be."""


@pytest.mark.slow
def test_a_short_training_goes_as_it_went(tmp_path: Path) -> None:
    assert train(SHORT, tmp_path)
    curve = {int(m["step"]): (m["return"], m["success"]) for m in read_metrics(tmp_path)}
    assert list(curve) == list(CURVE)
    for step, ranges in CURVE.items():
        for value, (stored, tolerance) in zip(curve[step], ranges, strict=True):
            assert value == pytest.approx(stored, abs=tolerance), (step, curve)


@pytest.mark.slow
def test_the_preset_learns_as_it_did(tmp_path: Path) -> None:
    """Seeds 0 and 1: success 0, 0.91, 0.98, 0.98 and 0, 0.92, 1, 0.98; return 51.9 and 52.5."""
    assert train(preset("PandaPick-v0", "dagger"), tmp_path)
    success, returns = ([m[k] for m in read_metrics(tmp_path)] for k in ("success", "return"))
    assert len(success) == 4
    assert success[0] < 0.1
    assert success[1] > 0.8
    assert min(success[2:]) > 0.93
    assert returns[0] == pytest.approx(9.5, abs=1.5)
    assert returns[3] == pytest.approx(52.2, abs=1.5)
