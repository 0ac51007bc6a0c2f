"""Analytic policy gradients: rewards of short windows, differentiated through the environment."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct
from flax.training.train_state import TrainState
from jax import Array
from rejax.algos.algorithm import Algorithm, register_init
from rejax.algos.mixins import OnPolicyMixin
from rejax.networks import GaussianPolicy

from fraxenv.envs import pytree_dataclass

struct_field: Any = struct.field
"""A field of an algorithm. Flax has no types for it, nor for the next one."""
_train_state: Any = TrainState.create

_BETAS = (0.7, 0.95)
"""Decay of Adam's averages; shorter than usual, as the authors of SHAC have it."""

_LIMIT = 2.0
"""Largest norm of an environment's gradient, in medians of all."""


@pytree_dataclass
class Window:
    """What happened in all environments, (num_steps, num_envs, ...).

    Attributes:
        obs: observation that the policy saw.
        reward: of the step.
        next_obs: observation where the step led, before any reset.
        terminated: whether the episode ended there.
        truncated: whether its time ran out there.
    """

    obs: Array
    reward: Array
    next_obs: Array
    terminated: Array
    truncated: Array


class APG(OnPolicyMixin, Algorithm):  # type: ignore[misc]
    """Analytic policy gradients over windows of `num_steps`.

    The environment has to keep the gradients of its transitions. They end where an episode does,
    and where a window does: the next window begins with the states as constants. What lies beyond
    a window, or a time limit, counts for nothing here; `SHAC` has a critic for it. The
    environment's steps whose gradient is not finite have none, and are counted in `lost_gradients`;
    no environment's gradient is far larger than most are.

    The policy is a Gaussian squashed by the hyperbolic tangent, because clipped actions have no
    gradient that could bring them back. Takes the environments that `FiveTuple` makes.

    Attributes:
        actor: the policy network.
        num_updates: of the whole training; the learning rate falls linearly to zero over them.
        initial_std: standard deviation of the Gaussian at first.
    """

    actor: nn.Module = struct_field(pytree_node=False, default=None)
    num_updates: int = struct_field(pytree_node=False, default=1)
    initial_std: float = struct_field(pytree_node=False, default=0.5)

    @classmethod
    def create_agent(cls, config: dict[str, Any], env: Any, env_params: Any) -> dict[str, Any]:
        """The networks, of rejax's kinds."""
        space = env.action_space(env_params)
        network = config.pop("agent_kwargs")
        return {"actor": GaussianPolicy(space.shape[0], (space.low, space.high), **network)}

    @register_init  # type: ignore[untyped-decorator]
    def initialize_network_params(self, rng: Array) -> dict[str, Any]:
        """The policy's weights and optimiser."""
        weights = self.actor.init(rng, self._any_obs, rng)
        log_std = weights["params"]["action_log_std"]
        log_std = jnp.full_like(log_std, jnp.log(self.initial_std))
        weights = {"params": {**weights["params"], "action_log_std": log_std}}
        return {"actor_ts": self.learner(weights, self.num_updates)}

    @register_init  # type: ignore[untyped-decorator]
    def initialize_lost_gradients(self, rng: Array) -> dict[str, Array]:
        """How many steps had a gradient that is not finite so far."""
        return {"lost_gradients": jnp.zeros((), jnp.int32)}

    def learner(self, weights: Any, updates: int) -> Any:
        """Weights with their optimiser."""
        optimiser = optax.chain(
            optax.clip_by_global_norm(self.max_grad_norm),
            optax.adam(optax.linear_schedule(self.learning_rate, 0.0, updates), *_BETAS),
        )
        return _train_state(apply_fn=(), params=weights, tx=optimiser)

    def train_iteration(self, ts: Any) -> Any:
        """One window in all environments, and one step of the policy."""
        rng, key_noise, key_steps, key_worth = jax.random.split(ts.rng, 4)
        noise = jax.random.split(key_noise, self.num_steps)
        lanes, lost, (after, window, worth) = self.lane_gradients(ts, noise, key_steps)
        lanes, spoilt = limited(lanes)
        gradient = self.policy_gradient(ts.actor_ts.params, window.obs, noise, lanes)
        ts = ts.replace(
            rng=rng,
            actor_ts=ts.actor_ts.apply_gradients(grads=gradient),
            lost_gradients=ts.lost_gradients + lost + spoilt,
            global_step=ts.global_step + self.num_envs * self.num_steps,
            **after,
        )
        return self.learn_worth(ts, window, worth, key_worth)

    def lane_gradients(
        self, ts: Any, noise: Array, key: Array
    ) -> tuple[Array, Array, tuple[dict[str, Any], Window, Array]]:
        """Derivatives of the loss of a window by what the policy draws, (num_steps, num_envs, k).

        Not by the weights at once, so that the environments' are apart from each other.

        Args:
            ts: the state to begin with.
            noise: keys (num_steps,) of the policy's draws.
            key: decides what the environments draw.

        Returns:
            The derivatives; how many steps of environments had none that is finite, and have zero;
            and changes of the state, the window, and the worth of where its steps led.
        """

        def loss(push: Array, counter: Array) -> tuple[Array, tuple[Any, Window, Array]]:
            after, window = self.roll_out(ts, noise, key, push, counter)
            worth = self.worth(ts, window.next_obs)
            reached = returns(window, worth, self.gamma, 1.0)
            # Every stretch of an episode counts once, from where it begins in the window.
            ended = (window.terminated | window.truncated)[:-1]
            begins = jnp.concatenate([jnp.ones_like(window.terminated[:1]), ended])
            return -jnp.sum(jnp.where(begins, reached, 0.0)) / reached.size, (after, window, worth)

        dtype = ts.last_obs.dtype
        push = jnp.zeros((self.num_steps, self.num_envs, *self.action_space.shape), dtype)
        differentiate = jax.grad(loss, (0, 1), has_aux=True)
        (lanes, lost), happened = differentiate(push, jnp.zeros((), dtype))
        return lanes, lost.astype(jnp.int32), happened

    def roll_out(
        self, ts: Any, noise: Array, key: Array, push: Array, counter: Array
    ) -> tuple[dict[str, Any], Window]:
        """A window of all environments, `push` added to what the policy draws.

        The derivative by `counter`, zero, is how many gradients the environments lost.
        """
        params = self.env_params.replace(lost_gradients=counter)

        def step(carry: tuple[Array, Any], inputs: Any) -> tuple[tuple[Array, Any], Window]:
            (obs, state), (noise, key, push) = carry, inputs
            action = jnp.tanh(self.draw(ts.actor_ts.params, obs, noise) + push)
            keys = jax.random.split(key, self.num_envs)
            next_obs, state, reward, _, info = self.vmap_step(keys, state, action, params)
            ends = info["terminated"], info["truncated"]
            return (next_obs, state), Window(obs, reward, info["final_observation"], *ends)

        inputs = noise, jax.random.split(key, self.num_steps), push
        (obs, state), window = jax.lax.scan(step, (ts.last_obs, ts.env_state), inputs)
        return {"last_obs": obs, "env_state": state}, window

    def draw(self, weights: Any, obs: Array, key: Array) -> Array:
        """Draws (n, k) of the Gaussian for observations (n, m), before they are squashed."""
        drawn: Array = self.actor.apply(weights, obs, key)[0]
        return drawn

    def policy_gradient(self, weights: Any, obs: Array, noise: Array, lanes: Array) -> Any:
        """The gradient by the weights, of that by what the policy drew."""

        def pulled(weights: Any) -> Array:
            return jnp.vdot(lanes, jax.vmap(self.draw, (None, 0, 0))(weights, obs, noise))

        return jax.grad(pulled)(weights)

    def worth(self, ts: Any, obs: Array) -> Array:
        """What is expected beyond observations (..., m): nothing."""
        return jnp.zeros(obs.shape[:-1], obs.dtype)

    def learn_worth(self, ts: Any, window: Window, worth: Array, key: Array) -> Any:
        """The state after whatever `worth` learns of a window."""
        return ts

    @property
    def _any_obs(self) -> Array:
        """A batch of one observation, of which only the shape counts."""
        return jnp.zeros((1, *self.obs_space.shape))


def limited(lanes: Array) -> tuple[Array, Array]:
    """Gradients of environments (steps, environments, k), none of them far larger than most are.

    One in a thousand windows passes close to where the dynamics are stiff or singular, and its
    gradient is some powers of ten larger than all others together, which it would silence.

    Returns:
        Those whose norm is more than `_LIMIT` times the median scaled down to that, and zero for
        those that are not finite; and the number of the latter.
    """
    norm = jnp.linalg.norm(lanes, axis=(0, 2), keepdims=True)
    finite = jnp.isfinite(norm)
    some = finite & (norm > 0.0)
    most = _LIMIT * jnp.nanmedian(jnp.where(some, norm, jnp.nan))
    kept = jnp.where(some, lanes * jnp.minimum(1.0, most / norm), 0.0)
    return kept, jnp.sum(~finite, dtype=jnp.int32)


def returns(window: Window, worth: Array, gamma: Any, lam: Any) -> Array:
    """TD(lambda) returns (num_steps, num_envs) of the steps of a window.

    With `lam=1` the discounted rewards up to the end of the episode or of the window, and what is
    expected beyond it; with less, more and more of what is expected after fewer steps.

    Args:
        window: of rewards, and ends of episodes. Beyond a time limit there is something to expect,
            after a termination nothing.
        worth: (num_steps, num_envs), what is expected beyond `window.next_obs`.
        gamma: discount per step.
        lam: the weight of a step's successors falls with its powers.

    Source: Sutton and Barto, "Reinforcement Learning", 2nd ed., eq. 12.18.
    """

    def before(after: Array, step: tuple[Window, Array]) -> tuple[Array, Array]:
        window, worth = step
        weight = jnp.where(window.truncated, 0.0, lam)
        rest = (1.0 - weight) * worth + weight * after
        total = window.reward + gamma * jnp.where(window.terminated, 0.0, rest)
        return total, total

    _, totals = jax.lax.scan(before, worth[-1], (window, worth), reverse=True)
    return totals
