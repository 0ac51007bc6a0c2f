"""Dataset aggregation: behaviour cloning that asks the expert wherever the policy gets to."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from rejax.algos.algorithm import register_init
from rejax.algos.mixins import VectorizedEnvMixin

from .apg import struct_field
from .bc import BC


class DAgger(VectorizedEnvMixin, BC):  # type: ignore[misc]
    """Behaviour cloning, of demonstrations first, and then of what the expert would have done.

    The policy acts, in `num_envs` environments; what it saw is remembered with the expert's action
    for it, the latest `buffer_size` steps of it, and learnt from as in `BC`. So it learns the way
    back from its own mistakes, which no demonstration shows.

    Source: Ross, Gordon, Bagnell, "A reduction of imitation learning and structured prediction to
    no-regret online learning", AISTATS 2011, algorithm 3.1, with the expert acting in the first
    iteration alone. Takes the environments that `FiveTuple` makes.

    Attributes:
        expert: (observation (m,), key) -> action (k,); None where weights are only to be loaded.
        num_steps: steps of every environment between two updates.
        num_epochs: steps of the optimiser in each update.
        buffer_size: steps that are remembered.
    """

    expert: Any = struct_field(pytree_node=False, default=None)
    num_steps: int = struct_field(pytree_node=False, default=8)
    num_epochs: int = struct_field(pytree_node=False, default=16)
    buffer_size: int = struct_field(pytree_node=False, default=131_072)

    @register_init  # type: ignore[untyped-decorator]
    def initialize_memory(self, rng: Array) -> dict[str, Any]:
        """The demonstrations, as many of their last steps as there is room for."""
        known = self.demonstrations
        count = min(len(known.actions), self.buffer_size)

        def memory(steps: Array) -> Array:
            room = jnp.zeros((self.buffer_size, steps.shape[1]), steps.dtype)
            return room.at[:count].set(steps[-count:])

        return {
            "seen": memory(known.observations),
            "meant": memory(known.actions),
            "remembered": jnp.asarray(count, jnp.int32),
            "oldest": jnp.asarray(count % self.buffer_size, jnp.int32),
        }

    def update(self, ts: Any) -> Any:
        """Steps of all environments, and of the optimiser."""
        rng, key_steps, key_learn = jax.random.split(ts.rng, 3)
        ts = self.remember(ts.replace(rng=rng), key_steps)
        keys = jax.random.split(key_learn, self.num_epochs)
        actor, _ = jax.lax.scan(lambda a, k: (self.learn(ts, a, k), None), ts.actor_ts, keys)
        return ts.replace(actor_ts=actor)

    def remember(self, ts: Any, key: Array) -> Any:
        """The state after `num_steps` of the policy, and with what the expert would have done."""

        def step(carry: tuple[Array, Any], key: Array) -> tuple[tuple[Array, Any], Any]:
            obs, state = carry
            meant = jax.vmap(self.expert, (0, None))(obs, key)
            foreseen: Any = self.actor.apply(ts.actor_ts.params, obs)
            action = jnp.clip(foreseen[:, 0], -1.0, 1.0)
            keys = jax.random.split(key, self.num_envs)
            after, state, *_ = self.vmap_step(keys, state, action, self.env_params)
            return (after, state), (obs, meant)

        keys = jax.random.split(key, self.num_steps)
        (obs, state), new = jax.lax.scan(step, (ts.last_obs, ts.env_state), keys)
        count = self.num_steps * self.num_envs
        places = (ts.oldest + jnp.arange(count)) % self.buffer_size
        seen, meant = (x.reshape(count, -1) for x in new)
        return ts.replace(
            last_obs=obs,
            env_state=state,
            global_step=ts.global_step + count,
            seen=ts.seen.at[places].set(seen),
            meant=ts.meant.at[places].set(meant),
            remembered=jnp.minimum(ts.remembered + count, self.buffer_size),
            oldest=(ts.oldest + count) % self.buffer_size,
        )

    def learn(self, ts: Any, actor: Any, key: Array) -> Any:
        """The actor after a step of the optimiser, on steps drawn from what is remembered."""
        steps = jax.random.randint(key, (self.batch_size,), 0, ts.remembered)
        return self.towards(actor, ts.seen[steps], ts.meant[steps][:, None])
