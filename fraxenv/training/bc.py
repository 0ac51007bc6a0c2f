"""Behaviour cloning: a policy learns to act as demonstrations do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax import Array
from rejax.algos.algorithm import Algorithm, register_init
from rejax.networks import MLP

from fraxenv.envs import pytree_dataclass

from .apg import _train_state, struct_field

LEAST_DEVIATION = 1e-3
"""Below which a number of the observations counts as constant: it is not blown up."""


@pytree_dataclass
class Demonstrations:
    """The steps of all demonstrations, one after the other.

    Attributes:
        observations: (n, m), before the action.
        actions: (n, k), in [-1, 1].
        last: (n,), the number of the last step of the demonstration that a step is of.
    """

    observations: Array
    actions: Array
    last: Array

    def chunk(self, steps: Array, length: int) -> Array:
        """The actions (b, length, k) from each of these steps on; beyond the end the last one."""
        ahead = steps[:, None] + jnp.arange(length)
        chosen: Array = self.actions[jnp.minimum(ahead, self.last[steps][:, None])]
        return chosen


class ChunkNetwork(nn.Module):
    """The next actions, as a network of dense layers sees them in one observation.

    Attributes:
        num_actions: k.
        chunk: how many actions it foresees.
        hidden_layer_sizes: of the layers before the last.
        activation: between them.
    """

    num_actions: int
    chunk: int
    hidden_layer_sizes: tuple[int, ...]
    activation: Any

    def setup(self) -> None:
        """The layers, and the scale of observations."""
        self.layers = MLP(self.hidden_layer_sizes, self.activation)
        self.head = nn.Dense(self.num_actions * self.chunk)
        self.mean = self.variable("scale", "mean", jnp.zeros, ())
        self.deviation = self.variable("scale", "deviation", jnp.ones, ())

    def features(self, obs: Array) -> Array:
        """The last layer's for observations (b, m)."""
        hidden: Array = self.layers((obs - self.mean.value) / self.deviation.value)
        return hidden

    def actions(self, features: Array) -> Array:
        """The next actions (b, chunk, k)."""
        foreseen: Array = self.head(features)
        return foreseen.reshape(-1, self.chunk, self.num_actions)

    def action_mean(self, features: Array) -> Array:
        """The first of them, (b, k), which is the one that is taken."""
        return self.actions(features)[:, 0]

    def __call__(self, obs: Array) -> Array:
        """The next actions (b, chunk, k) for observations (b, m)."""
        return self.actions(self.features(obs))


class BC(Algorithm):  # type: ignore[misc]
    """Behaviour cloning with chunks of actions.

    The network foresees `chunk` actions from one observation, and learns them by the mean of
    absolute errors, which, unlike squares, does not mix an expert's two minds into one that is
    neither. The policy takes the first of them and looks again: what it foresaw further serves
    learning alone. Observations are brought to mean zero and deviation one over the demonstrations;
    some are hidden, lest it learns to go on as it did (de Haan et al., "Causal confusion in
    imitation learning", NeurIPS 2019).
    The learning rate falls linearly to zero over the whole training.

    Source: Zhao et al., "Learning fine-grained bimanual manipulation with low-cost hardware", RSS
    2023, section IV, without its transformer, its style variable and its ensembles over time.

    Attributes:
        actor: the network.
        demonstrations: what is learnt from; None where weights are only to be loaded.
        chunk: how many actions the network foresees.
        batch_size: steps of demonstrations in each update.
        updates_per_round: updates between two evaluations.
        num_updates: of the whole training.
        hidden: which numbers of the observation the policy does not see.
    """

    actor: nn.Module = struct_field(pytree_node=False, default=None)
    demonstrations: Any = struct_field(pytree_node=True, default=None)
    chunk: int = struct_field(pytree_node=False, default=1)
    batch_size: int = struct_field(pytree_node=False, default=256)
    updates_per_round: int = struct_field(pytree_node=False, default=1)
    num_updates: int = struct_field(pytree_node=False, default=1)
    hidden: tuple[int, ...] = struct_field(pytree_node=False, default=())

    @classmethod
    def create_agent(cls, config: dict[str, Any], env: Any, env_params: Any) -> dict[str, Any]:
        """The network."""
        space = env.action_space(env_params)
        return {
            "actor": ChunkNetwork(space.shape[0], config["chunk"], **config.pop("agent_kwargs"))
        }

    @register_init  # type: ignore[untyped-decorator]
    def initialize_network_params(self, rng: Array) -> dict[str, Any]:
        """The network's weights, the scale of observations, and the optimiser."""
        size = self.obs_space.shape[0]
        weights = dict(self.actor.init(rng, jnp.zeros((1, size))))
        weights["scale"] = self._scale(size)
        schedule = optax.linear_schedule(self.learning_rate, 0.0, self.num_updates)
        state = _train_state(apply_fn=(), params=weights, tx=optax.adam(schedule))
        return {"actor_ts": state}

    def _scale(self, size: int) -> dict[str, Array]:
        if self.demonstrations is None:
            return {"mean": jnp.zeros(size), "deviation": jnp.ones(size)}
        seen = np.asarray(self.demonstrations.observations)
        mean, deviation = seen.mean(axis=0), seen.std(axis=0)
        deviation = np.where(deviation > LEAST_DEVIATION, deviation, np.float32(1.0))
        # What is divided by infinity is zero, whatever it was.
        deviation[list(self.hidden)] = np.inf
        return {"mean": jnp.asarray(mean), "deviation": jnp.asarray(deviation)}

    def train(self, rng: Array | None = None, train_state: Any = None) -> tuple[Any, Any]:
        """One round: its updates, and an evaluation, (1,) each of its numbers."""
        state = self.init_state(rng) if train_state is None else train_state
        state = jax.lax.fori_loop(0, self.updates_per_round, lambda _, s: self.update(s), state)
        measured = self.eval_callback(self, state, state.rng)
        return state, jax.tree.map(lambda x: x[None], measured)

    def update(self, ts: Any) -> Any:
        """One step of the optimiser, on steps of the demonstrations drawn at random."""
        rng, key = jax.random.split(ts.rng)
        count = self.demonstrations.actions.shape[0]
        steps = jax.random.randint(key, (self.batch_size,), 0, count)
        seen = self.demonstrations.observations[steps]
        meant = self.demonstrations.chunk(steps, self.chunk)
        return ts.replace(rng=rng, actor_ts=self.towards(ts.actor_ts, seen, meant))

    def towards(self, actor: Any, seen: Array, meant: Array) -> Any:
        """The actor after a step towards these actions (b, chunk, k) for observations (b, m)."""
        scale = actor.params["scale"]

        def loss(weights: Any) -> Array:
            foreseen: Any = self.actor.apply({"params": weights, "scale": scale}, seen)
            return jnp.mean(jnp.abs(foreseen - meant))

        gradient = jax.grad(loss)(actor.params["params"])
        gradient = {"params": gradient, "scale": jax.tree.map(jnp.zeros_like, scale)}
        return actor.apply_gradients(grads=gradient)
