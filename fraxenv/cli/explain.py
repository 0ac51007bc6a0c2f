"""`fraxenv explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from ..making.make import make
from .common import console
from .subject import EnvArguments, recipe


@dataclass(frozen=True)
class Options(EnvArguments):
    """Say what `fuse` made of an environment's step: operations, kernels, what is outside of them.

    Attributes:
        backend: the executor: auto, native, pallas, xla or vmap.
    """

    backend: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"


def run(options: Options) -> int:
    """Compile a step, and print what became of it; returns the exit status."""
    import jax
    import jax.numpy as jnp

    from ..kernels import check_backend, explain

    check_backend(options.backend)
    made = recipe(options)
    env, params = make(**made)
    with console().status(f"Compiling a step of {env.name} ..."):
        keys = jax.random.split(jax.random.key(0), 1)
        _, state = jax.vmap(env.reset, (0, None))(keys, params)
        action = jnp.zeros((1, env.num_actions))

        # The parameters are constants here, as they are to a training that does not batch them.
        def step(key: Any, state: Any, action: Any) -> Any:
            return env.step(key, state, action, params)

        explanation = explain(step, options.backend)
        text = explanation(keys, state, action)
    print(f"{env.name}, {env.control_hz // env.policy_hz} control steps in a step")
    print(text)
    return 0
