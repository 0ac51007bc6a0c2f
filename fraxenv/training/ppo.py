"""rejax's PPO, to which an episode that ran out of time is not over, and faster on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import optax
import rejax
from jax import Array
from rejax.algos.algorithm import register_init
from rejax.algos.ppo import AdvantageMinibatch, Trajectory

from .apg import struct_field
from .dense import quick_gradients

Update = Callable[[Any, AdvantageMinibatch], Any]


class PPO(rejax.PPO):  # type: ignore[misc]
    """Proximal policy optimisation that goes on counting on rewards beyond a time limit.

    rejax knows one `done`, and expects nothing after it. What the critic expects of the rest is
    added to the reward of a step at which time ran out, so that the advantages are those of an
    episode that went on. Takes the environments that `FiveTuple` makes, and none of rejax's
    normalisations.

    Attributes:
        num_updates: of the whole training, iterations. None for a learning rate that stays.
        settling: share of these, the last ones, in which the learning rate falls to zero.

    Source: Pardo et al., "Time limits in reinforcement learning", ICML 2018, eq. 6; the decay,
    which keeps the last policy from being a bad one by chance: Andrychowicz et al., "What matters
    for on-policy deep actor-critic methods?", ICLR 2021.
    """

    num_updates: int | None = struct_field(pytree_node=False, default=None)
    settling: float = struct_field(pytree_node=False, default=0.25)

    @register_init  # type: ignore[untyped-decorator]
    def initialize_network_params(self, rng: Array) -> dict[str, Any]:
        """The networks' weights and optimisers."""
        networks: dict[str, Any] = super().initialize_network_params(rng)
        if self.num_updates is None:
            return networks
        steps = self.num_updates * self.num_epochs * self.num_minibatches
        falls = max(1, round(steps * self.settling))
        schedule = optax.linear_schedule(self.learning_rate, 0.0, falls, steps - falls)
        tx = optax.chain(optax.clip(self.max_grad_norm), optax.adam(schedule))
        return {
            name: state.replace(tx=tx, opt_state=tx.init(state.params))
            for name, state in networks.items()
        }

    def collect_trajectories(self, ts: Any) -> tuple[Any, Any]:
        """Take `num_steps` in all environments: rejax's new state, and the transitions.

        All random numbers are drawn before, and the critic is asked once, of all steps together:
        small programs, one for each step, take longer.
        """
        space = self.env.action_space(self.env_params)
        rng, noise, keys = self._drawn(ts.rng)
        ts = ts.replace(rng=rng)

        def step(ts: Any, drawn: tuple[Array, Array]) -> tuple[Any, Any]:
            noise, keys = drawn
            policy = self.actor.apply(ts.actor_ts.params, ts.last_obs, method="_action_dist")
            action = policy.loc + policy.scale_diag * noise
            obs, env_state, reward, done, info = self.vmap_step(
                keys, ts.env_state, jnp.clip(action, space.low, space.high), self.env_params
            )
            taken = Trajectory(ts.last_obs, action, policy.log_prob(action), reward, None, done)
            ts = ts.replace(
                env_state=env_state,
                last_obs=obs,
                last_done=done,
                global_step=ts.global_step + self.num_envs,
            )
            ran_out = jnp.logical_and(done, jnp.logical_not(info["terminated"]))
            return ts, (taken, ran_out, info["final_observation"])

        ts, (taken, ran_out, final) = jax.lax.scan(step, ts, (noise, keys))

        def worth(obs: Array) -> Array:
            rows = self.critic.apply(ts.critic_ts.params, obs.reshape(-1, *obs.shape[2:]))
            value: Array = rows.reshape(obs.shape[:2])
            return value

        rest = jax.lax.cond(
            jnp.any(ran_out),
            lambda: jnp.where(ran_out, worth(final), 0.0),
            lambda: jnp.zeros_like(taken.reward),
        )
        reward = taken.reward + self.gamma * rest
        return ts, taken.replace(reward=reward, value=worth(taken.obs))

    def _drawn(self, rng: Array) -> tuple[Array, Array, Array]:
        """The next key, and all steps' noise (T, N, actions) and keys (T, N)."""

        def three(rng: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
            rng, key_action, key_step = jax.random.split(rng, 3)
            return rng, (key_action, key_step)

        rng, (key_action, key_step) = jax.lax.scan(three, rng, None, self.num_steps)
        shape = self.num_envs, *self.env.action_space(self.env_params).shape
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(key_action)
        return rng, noise, jax.vmap(lambda key: jax.random.split(key, self.num_envs))(key_step)

    def prepare(self, ts: Any) -> tuple[Any, AdvantageMinibatch, Array]:
        """The first half of `train_iteration`: new state, what to learn from, and epochs' keys."""
        ts, taken = self.collect_trajectories(ts)
        last = self.critic.apply(ts.critic_ts.params, ts.last_obs)
        advantages, targets = self.calculate_gae(taken, jnp.where(ts.last_done, 0, last))

        def two(rng: Array, _: None) -> tuple[Array, Array]:
            rng, key = jax.random.split(rng)
            return rng, key

        rng, keys = jax.lax.scan(two, ts.rng, None, self.num_epochs)
        return ts.replace(rng=rng), AdvantageMinibatch(taken, advantages, targets), keys

    def learn(self, update: Update, ts: Any, batch: AdvantageMinibatch, keys: Array) -> Any:
        """The second half, for one network: all updates of one kind, `update_actor` or the other.

        Neither needs what the other has changed.
        """

        def epoch(ts: Any, key: Array) -> tuple[Any, None]:
            minibatches = self.shuffle_and_split(batch, key)
            return jax.lax.scan(lambda ts, part: (update(ts, part), None), ts, minibatches)

        with flax.linen.intercept_methods(quick_gradients):
            return jax.lax.scan(epoch, ts, keys)[0]

    def update_critic(self, ts: Any, batch: Any) -> Any:
        """One step of the critic's weights downhill the mean square of its errors.

        rejax's critic may not move further from what it said before than `clip_eps`, in units of
        reward, whatever these are. Ours may, as Andrychowicz et al., "What matters for on-policy
        deep actor-critic methods?", ICLR 2021, on advantage estimation, found better.
        """

        def loss(params: Any) -> Array:
            value = self.critic.apply(params, batch.trajectories.obs)
            cost: Array = 0.5 * self.vf_coef * jnp.mean((value - batch.targets) ** 2)
            return cost

        critic = ts.critic_ts
        return ts.replace(critic_ts=critic.apply_gradients(grads=jax.grad(loss)(critic.params)))

    def shuffle_and_split(self, data: Any, rng: Array) -> Any:
        """Minibatches of `data`, drawn at random: rejax's, by our permutation."""
        order = permutation(rng, self.iteration_size)

        def split(x: Array) -> Array:
            rows = x.reshape(self.iteration_size, *x.shape[2:])[order]
            return rows.reshape(self.num_minibatches, -1, *x.shape[2:])

        return jax.tree.map(split, data)


def two_at_a_time(algorithm: PPO, jit: Callable[..., Any]) -> Callable[[Any], tuple[Any, Any]]:
    """A function of a state that trains as `algorithm.train` does, both networks side by side.

    XLA runs the loop of one program after that of another, and of networks this small it computes a
    product on one core as fast as on two. Programs that two threads run take half the time.

    It returns the state and its evaluation, without rejax's axis of evaluations.

    Args:
        algorithm: with one evaluation, at the end.
        jit: `jax.jit`, with options.
    """
    prepare = jit(algorithm.prepare)
    actor = jit(lambda *given: algorithm.learn(algorithm.update_actor, *given).actor_ts)
    critic = jit(lambda *given: algorithm.learn(algorithm.update_critic, *given).critic_ts)
    evaluate = jit(lambda ts: algorithm.eval_callback(algorithm, ts, ts.rng))
    iterations = -(-algorithm.total_timesteps // algorithm.iteration_size)
    second = ThreadPoolExecutor(1, "fraxenv-critic")

    def waited_for(program: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        return jax.block_until_ready(program(*given))

    def train(ts: Any) -> tuple[Any, Any]:
        for _ in range(iterations):
            given = prepare(ts)
            other = second.submit(waited_for, critic, given)
            actor_ts = waited_for(actor, given)
            ts = given[0].replace(actor_ts=actor_ts, critic_ts=other.result())
        return ts, evaluate(ts)

    return train


def permutation(key: Array, n: int) -> Array:
    """A random order of the numbers below `n`, (n,).

    `jax.random.permutation` sorts two arrays twice, which takes eight times as long on a CPU, and
    there a fifth of an update. Here numbers lie in the low bits of random words, and these are
    sorted: where two words are equal above them, the smaller number comes first.
    """
    low = (n - 1).bit_length()
    words = jax.random.bits(key, (n,), jnp.uint32) << low
    sorted_words = jnp.sort(words | jnp.arange(n, dtype=jnp.uint32))
    return (sorted_words & ((1 << low) - 1)).astype(jnp.int32)
