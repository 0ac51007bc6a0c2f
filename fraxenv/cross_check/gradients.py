"""Gradients of an environment under a policy, three ways, and how long a window they serve.

The kernel's, in reverse and forwards; central differences; and a zeroth-order estimate, which needs
no derivative at all (Nesterov and Spokoiny, "Random gradient-free minimization of convex
functions", 2017, eq. 26). First-order gradients are no use over windows in which small changes
grow large (Suh et al., "Do differentiable simulators give better policy gradients?", 2022): how
they grow is told as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from ..errors import check_count, import_extra
from ..media.plots import BAND, picture

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams

Policy = Callable[[Array], Array]

AFFORDABLE = 10.0
"""Growth of a displacement up to which a window's gradient is taken to be of use."""

DIFFERENCE = {4: 1e-2, 8: 1e-6}
"""Step of central differences, in actions, by the bytes of a float."""


@dataclass(frozen=True)
class GradientCheck:
    """Gradients of a window's return by a constant that is added to all of its actions.

    Attributes:
        name: of the environment.
        reverse: (n, k), the kernel's, in reverse mode, of each environment.
        forward: (n, k), the kernel's, in forward mode.
        differences: (n, k), central ones.
        sampled: (k,), the zeroth-order estimate of the mean over the environments.
        deviation: (k,), its standard error.
        growth: (steps, n), how many times as large a small displacement of the joints has become
            after each policy step.
        lost: environments' steps whose gradient was not finite, and became zero.
        saturated: the part of the torques that were at their limits, where they have no derivative.
    """

    name: str
    reverse: NDArray[Any]
    forward: NDArray[Any]
    differences: NDArray[Any]
    sampled: NDArray[Any]
    deviation: NDArray[Any]
    growth: NDArray[Any]
    lost: int
    saturated: float

    @property
    def window(self) -> int:
        """Policy steps over which 19 of 20 displacements grow less than tenfold."""
        beyond = np.quantile(self.growth, 0.95, axis=1) > AFFORDABLE
        return int(np.argmax(beyond)) if beyond.any() else len(self.growth)

    def errors(self, other: NDArray[Any]) -> NDArray[Any]:
        """(n,), the distance of each environment's gradient from another, of the larger's norm."""
        scale = np.maximum(np.linalg.norm(self.reverse, axis=1), np.linalg.norm(other, axis=1))
        difference = np.linalg.norm(self.reverse - other, axis=1)
        found: NDArray[Any] = difference / np.maximum(scale, np.finfo(scale.dtype).tiny)
        return found

    def table(self) -> Any:
        """The check as a rich table."""
        rich = import_extra("rich.table", "cli", "The table")
        n = len(self.reverse)
        steps = len(self.growth)
        table = rich.Table(title=f"{self.name}: gradients over {steps} policy steps")
        for column in ("", "median", "95th percentile", "worst"):
            table.add_column(column, justify="left" if not column else "right")
        for label, other in (("forward mode", self.forward), ("differences", self.differences)):
            found = self.errors(other)
            cells = [np.median(found), np.quantile(found, 0.95), found.max()]
            table.add_row(f"reverse mode against {label}", *(f"{x:.1e}" for x in cells))
        marks = sorted({min(steps, m) for m in (1, 4, 16, 64, 256, steps) if m <= steps})
        for t in marks:
            at = self.growth[t - 1]
            cells = [np.median(at), np.quantile(at, 0.95), at.max()]
            table.add_row(f"a displacement after {t} steps", *(f"{x:.2g}" for x in cells))
        mean = self.reverse.mean(axis=0)
        off = np.abs(mean - self.sampled) / np.maximum(self.deviation, np.finfo(float).tiny)
        table.add_section()
        table.add_row("mean gradient", f"{np.linalg.norm(mean):.2e}", "", "")
        table.add_row("the same without derivatives", f"{np.linalg.norm(self.sampled):.2e}", "", "")
        table.add_row("their difference, standard errors", f"{np.median(off):.1f}", "",
                      f"{off.max():.1f}")  # fmt: skip
        table.add_row("window that can be afforded", f"{self.window} steps", "", "")
        table.add_row("gradients that were not finite", f"{self.lost} of {n * steps}", "", "")
        table.add_row("torques at their limits", f"{100 * self.saturated:.1f} %", "", "")
        return table

    def plot(self, path: str | Path) -> None:
        """Draw the check to a PNG; atomic."""
        with picture(path, 10, 4) as figure:
            figure.suptitle(f"{self.name}: gradients of a window's return")
            left, right = figure.subplots(1, 2)
            t = np.arange(1, len(self.growth) + 1)
            low, middle, high = np.quantile(self.growth, [0.05, 0.5, 0.95], axis=1)
            left.fill_between(t, low, high, alpha=BAND, label="9 of 10 displacements")
            left.plot(t, middle, label="median")
            left.axhline(AFFORDABLE, color="0.5", linestyle="--", linewidth=1)
            left.set(yscale="log", xlabel="policy steps", title="growth of a small displacement")
            left.legend()
            for label, other in (("differences", self.differences), ("forward", self.forward)):
                right.plot(other.ravel(), self.reverse.ravel(), ".", markersize=4, label=label)
            right.errorbar(
                self.sampled, self.reverse.mean(axis=0), xerr=2 * self.deviation, fmt="o",
                label="the mean, without derivatives",
            )  # fmt: skip
            ends = [self.reverse.min(), self.reverse.max()]
            right.plot(ends, ends, color="0.5", linewidth=1, linestyle="--")
            right.set(xlabel="another way", ylabel="reverse mode")
            right.set_title("each number of the gradient")
            right.legend()


def gradient_check(
    env: Environment,
    policy: Policy,
    params: EnvParams | None = None,
    *,
    steps: int = 32,
    environments: int = 64,
    samples: int = 16,
    noise: float = 0.05,
    settle: int = 8,
    seed: int = 0,
) -> GradientCheck:
    """Compare an environment's gradients under a policy with differences and with estimates.

    Args:
        env: the environment.
        policy: action (k,) of an observation (n,), with derivatives.
        params: its parameters; its own if None.
        steps: policy steps of the window; episodes do not begin anew within it.
        environments: states to begin from.
        samples: pairs of perturbed windows of each environment for the zeroth-order estimate.
        noise: its standard deviation, in actions.
        settle: policy steps from the beginning of an episode to that of the window.
        seed: decides episodes and noise.

    Raises:
        ConfigError: a number is not possible.
    """
    for name, number in (("steps", steps), ("environments", environments), ("samples", samples)):
        check_count(name, number)
    env = env.with_transition_gradients()
    params = env.default_params if params is None else params
    keys = jax.random.split(jax.random.key(seed), 4)
    each = jax.random.split(keys[0], environments)
    obs, state = jax.vmap(env.reset, (0, None))(each, params)
    size = env.num_actions
    dtype = obs.dtype

    def advance(carry: Any, key: Array, offset: Array, params: EnvParams) -> tuple[Any, Any]:
        obs, state, alive = carry
        obs, state, reward, ended, info = env.step_env(key, state, policy(obs) + offset, params)
        reward = jnp.where(alive, reward, 0.0)
        return (obs, state, alive & ~ended), (reward, state.q, info["controller"]["saturation"])

    def window(offset: Array, lost: Array, obs: Array, state: Any, key: Array) -> tuple[Any, Any]:
        counted = params.replace(lost_gradients=lost)
        start = obs, state, jnp.ones((), bool)
        _, (rewards, q, saturation) = jax.lax.scan(
            lambda c, k: advance(c, k, offset, counted), start, jax.random.split(key, steps)
        )
        return jnp.sum(rewards), (q, jnp.mean(saturation))

    def settled(obs: Array, state: Any, key: Array) -> Any:
        start = obs, state, jnp.ones((), bool)
        step = lambda c, k: advance(c, k, jnp.zeros(size, dtype), params)  # noqa: E731
        return jax.lax.scan(step, start, jax.random.split(key, settle))[0][:2]

    each = jax.random.split(keys[1], environments)
    obs, state = jax.jit(jax.vmap(settled))(obs, state, each)
    each = jax.random.split(keys[2], environments)
    none, zero = jnp.zeros((environments, size), dtype), jnp.zeros((), dtype)

    of_each = jax.vmap(jax.grad(window, (0, 1), has_aux=True), (0, None, 0, 0, 0))
    (reverse, lost), (_, saturated) = jax.jit(of_each)(none, zero, obs, state, each)

    def along(direction: Array) -> Array:
        def returns(offsets: Array) -> Array:
            every = jax.vmap(window, (0, None, 0, 0, 0))
            found: Array = every(offsets, zero, obs, state, each)[0]
            return found

        moved = jnp.broadcast_to(direction, none.shape)
        change: Array = jax.jvp(returns, (none,), (moved,))[1]
        return change

    forward = jax.jit(jax.vmap(along, out_axes=1))(jnp.eye(size, dtype=dtype))

    batch = jax.jit(
        jax.vmap(
            lambda offset: jax.vmap(window, (0, None, 0, 0, 0))(offset, zero, obs, state, each)[0]
        )
    )
    step = DIFFERENCE[dtype.itemsize]
    shifts = step * jnp.eye(size, dtype=dtype)[:, None, :]
    both = batch(jnp.broadcast_to(jnp.concatenate([shifts, -shifts]), (2 * size, *none.shape)))
    differences = (both[:size] - both[size:]).T / (2 * step)

    draws = jax.random.normal(keys[3], (samples, *none.shape), dtype)
    both = batch(noise * jnp.concatenate([draws, -draws]))
    slopes = (both[:samples] - both[samples:])[..., None] / (2 * noise) * draws
    slopes = slopes.reshape(-1, size)

    def displaced(direction: Array, obs: Array, state: Any, key: Array) -> Array:
        def motion(q: Array) -> Array:
            moved = state.replace(q=q)
            passed: Array = window(jnp.zeros(size, dtype), zero, obs, moved, key)[1][0]
            return passed

        _, moved = jax.jvp(motion, (state.q,), (direction,))
        growth: Array = jnp.linalg.norm(moved, axis=1) / jnp.linalg.norm(direction)
        return growth

    directions = jax.random.normal(jax.random.fold_in(keys[3], 1), state.q.shape, dtype)
    growth = jax.jit(jax.vmap(displaced, out_axes=1))(directions, obs, state, each)
    return GradientCheck(
        name=env.name,
        reverse=np.asarray(reverse, float),
        forward=np.asarray(forward, float),
        differences=np.asarray(differences, float),
        sampled=np.asarray(slopes.mean(axis=0), float),
        deviation=np.asarray(slopes.std(axis=0) / np.sqrt(len(slopes)), float),
        growth=np.asarray(growth, float),
        lost=int(np.sum(np.asarray(lost))),
        saturated=float(np.mean(np.asarray(saturated))),
    )
