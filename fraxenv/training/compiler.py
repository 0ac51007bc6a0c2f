"""How a training is compiled, for a CPU above all."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax

_FASTER: Final = ("ppo", "sac")
"""Algorithms that learn 6 to 15 % faster with `_OPTIONS`; SHAC learns 5 % slower."""

_OPTIONS: Mapping[str, int | str] = {
    "xla_cpu_prefer_vector_width": 512,
    "xla_cpu_experimental_ynn_fusion_type": "",
}
"""Vectors as wide as the processor's, and products of small matrices that are Eigen's own."""


def compiled_round(
    algorithm: Any, name: str, known: Any = None
) -> Callable[[Any], tuple[Any, dict[str, Any]]]:
    """A function of an algorithm's state: the state after a round of training, and its evaluation.

    Args:
        algorithm: of `create_algorithm`.
        name: its own, "ppo".
        known: demonstrations that it learns from; None of those that learn without.
    """
    jit = functools.partial(jax.jit, compiler_options=compiler_options(name))
    if name == "ppo" and jax.default_backend() == "cpu" and _cores() > 1:
        from .ppo import two_at_a_time

        return two_at_a_time(algorithm, jit)

    # What is learnt from may be gigabytes: an argument of the program, not a constant in it.
    @jit
    def train(state: Any, known: Any) -> tuple[Any, dict[str, Any]]:
        learner = algorithm if known is None else algorithm.replace(demonstrations=known)
        state, evaluations = learner.train(train_state=state)
        return state, jax.tree.map(lambda x: x[0], evaluations)

    return lambda state: train(state, known)


def _cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compiler_options(algorithm: str) -> dict[str, int | str]:
    """Options for `jax.jit` of a round: those that this version of XLA knows.

    What `XLA_FLAGS` says about them holds.
    """
    if algorithm not in _FASTER or jax.default_backend() != "cpu":
        return {}
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        name: value for name, value in _OPTIONS.items() if name not in flags and _known(name, value)
    }


@functools.cache
def _known(name: str, value: int | str) -> bool:
    try:
        jax.jit(lambda: 0.0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
