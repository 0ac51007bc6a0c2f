"""Playground's Panda with the hand's actions: the script runs, where Playground has its robots."""

from __future__ import annotations

import numpy as np
import pytest
from support import load_script

pytest.importorskip("mujoco_playground")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_hands_come_to_their_cubes() -> None:
    from mujoco_playground._src import mjx_env

    if not mjx_env.MENAGERIE_PATH.exists():
        pytest.skip("Playground has not downloaded its robots")
    script = load_script("examples/playground_panda")
    far = np.asarray(script.main(script.Options(num_envs=2, steps=40)))
    assert (far[:, 0] > 0.2).all()
    assert (far[:, -1] < 0.5 * far[:, 0]).all()
