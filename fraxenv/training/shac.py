"""Short-horizon actor-critic: analytic policy gradients, and a critic for what lies beyond."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax import Array
from rejax.algos.algorithm import register_init
from rejax.networks import VNetwork

from .apg import APG, Window, returns, struct_field


class SHAC(APG):
    """Analytic policy gradients over windows, each continued by what a critic expects.

    The critic learns TD(lambda) returns. A copy that follows it slowly is what the policy is led
    by.

    Source: Xu et al., "Accelerated policy learning with parallel differentiable simulation", ICLR
    2022, arXiv 2204.07137.

    Attributes:
        critic: the value network.
        num_epochs: passes of the critic over each window.
        td_lambda: of its returns.
        polyak: part of the copy that each update keeps.
    """

    critic: nn.Module = struct_field(pytree_node=False, default=None)
    num_epochs: int = struct_field(pytree_node=False, default=16)
    td_lambda: float = struct_field(pytree_node=True, default=0.95)
    polyak: float = struct_field(pytree_node=True, default=0.2)

    @classmethod
    def create_agent(cls, config: dict[str, Any], env: Any, env_params: Any) -> dict[str, Any]:
        """The networks, of rejax's kinds."""
        critic = VNetwork(**config["agent_kwargs"])
        return {"critic": critic, **super().create_agent(config, env, env_params)}

    @register_init  # type: ignore[untyped-decorator]
    def initialize_network_params(self, rng: Array) -> dict[str, Any]:
        """The networks' weights and optimisers."""
        rng_actor, rng_critic = jax.random.split(rng)
        weights = self.critic.init(rng_critic, self._any_obs)
        updates = self.num_updates * self.num_epochs * self.num_minibatches
        return {
            "critic_ts": self.learner(weights, updates),
            "critic_target_params": weights,
            **super().initialize_network_params(rng_actor),
        }

    def worth(self, ts: Any, obs: Array) -> Array:
        """What the critic's copy expects beyond observations (..., m)."""
        flat = obs.reshape(-1, obs.shape[-1])
        worth: Any = self.critic.apply(ts.critic_target_params, flat)
        return jnp.reshape(worth, obs.shape[:-1])

    def learn_worth(self, ts: Any, window: Window, worth: Array, key: Array) -> Any:
        """The state with a critic that was brought nearer to the returns of a window."""
        batch = window.obs, returns(window, worth, self.gamma, self.td_lambda)

        def loss(weights: Any, obs: Array, target: Array) -> Array:
            value: Any = self.critic.apply(weights, obs)
            return jnp.mean(jnp.square(value - target))

        def step(critic: Any, part: tuple[Array, Array]) -> tuple[Any, None]:
            return critic.apply_gradients(grads=jax.grad(loss)(critic.params, *part)), None

        def epoch(critic: Any, key: Array) -> tuple[Any, None]:
            return jax.lax.scan(step, critic, self.shuffle_and_split(batch, key))

        critic, _ = jax.lax.scan(epoch, ts.critic_ts, jax.random.split(key, self.num_epochs))
        follower = optax.incremental_update(
            critic.params, ts.critic_target_params, 1.0 - self.polyak
        )
        return ts.replace(critic_ts=critic, critic_target_params=follower)
