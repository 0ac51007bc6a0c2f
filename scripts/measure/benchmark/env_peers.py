"""Peers' environments with end-effector actions, each as fast as it is: one per process."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from .contenders import Case, Prepare
from .workloads import Workload

_STEPS = 20
"""Steps of each environment in one call."""


class _Peer(NamedTuple):
    """An environment, how much time a step of it is, s, and what else to know of it."""

    env: Any
    step: float
    note: str


def _panda_gym(picks: bool) -> _Peer:
    import gymnasium
    import panda_gym  # noqa: F401

    env = gymnasium.make("PandaPickAndPlace-v3" if picks else "PandaReach-v3")
    note = "20 physics steps of 2 ms per step; joint position control from Bullet's IK"
    return _Peer(env, 0.04, f"{env.spec.id}; {note}")


def _fetch(picks: bool) -> _Peer:
    import gymnasium
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    env = gymnasium.make("FetchPickAndPlace-v4" if picks else "FetchReach-v4")
    note = "20 physics steps of 2 ms per step; a mocap body pulls the hand"
    return _Peer(env, 0.04, f"{env.spec.id}; {note}")


class _Robosuite:
    """robosuite's environment as one of Gymnasium's."""

    def __init__(self) -> None:
        import robosuite
        from robosuite import load_controller_config

        self.env = robosuite.make(
            "Lift",
            robots="Panda",
            controller_configs=load_controller_config(default_controller="OSC_POSE"),
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            control_freq=20,
        )
        self.low, self.high = self.env.action_spec

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode."""
        self.env.reset()

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        """One step, as Gymnasium returns it."""
        obs, reward, done, info = self.env.step(action)
        return obs, reward, False, done, info


def _robosuite(picks: bool) -> _Peer:
    return _Peer(_Robosuite(), 0.05, "25 physics and control steps of 2 ms per step")


_MAKERS: dict[str, Callable[[bool], _Peer]] = {
    "panda_gym": _panda_gym,
    "fetch": _fetch,
    "robosuite": _robosuite,
}


def peer(name: str) -> Prepare:
    """An environment by the name of its maker."""
    _MAKERS[name](False)  # fails where it is not installed

    def prepare(workload: Workload, batch: int, threads: int) -> Case:
        picks = workload.quantity == "pick"
        made, pipes = _MAKERS[name](picks), []
        for _ in range(batch):
            ours, theirs = multiprocessing.Pipe()
            arguments = theirs, name, picks
            multiprocessing.Process(target=_serve, args=arguments, daemon=True).start()
            pipes.append(ours)

        def call() -> None:
            for pipe in pipes:
                pipe.send(_STEPS)
            for pipe in pipes:
                pipe.recv()

        counted = batch * _STEPS * (made.step if workload.unit == "simulated seconds" else 1)
        return Case(call, None, counted, compiles=False, note=made.note)

    return prepare


def _serve(pipe: Connection, name: str, picks: bool) -> None:
    env = _MAKERS[name](picks).env
    env.reset(seed=0)
    low, high = (env.low, env.high) if name == "robosuite" else (-1.0, 1.0)
    size = len(env.low) if name == "robosuite" else env.action_space.shape[0]
    actions = np.random.default_rng(0).uniform(low, high, (64, size)).astype(np.float32)
    count, parent = 0, os.getppid()
    while True:
        while not pipe.poll(5):
            if os.getppid() != parent:  # the pipe does not tell: others hold its other end, too
                return
        for _ in range(pipe.recv()):
            _, _, terminated, truncated, _ = env.step(actions[count % len(actions)])
            count += 1
            if terminated or truncated:
                env.reset()
        pipe.send(count)
