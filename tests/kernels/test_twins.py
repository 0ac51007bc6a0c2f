"""Loops that compute the same are one, and others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fraxenv.kernels import fuse, fusible
from fraxenv.kernels.native import module
from fraxenv.kernels.program import live_values

pytestmark = pytest.mark.cpu

X = np.random.default_rng(0).uniform(0.5, 2, (40, 5)).astype(np.float32)


def roots(x: Any, rounds: int = 30, start: Any = None) -> Any:
    """By Newton, with a loop in the loop: the rounds, and the roots."""

    def inner(c: Any) -> Any:
        return c[0] + 1, 0.5 * (c[1] + x / c[1])

    def turn(c: Any) -> Any:
        n, y = c
        m, y = lax.while_loop(lambda c: (c[0] < 2) & (jnp.min(c[1]) > 0.1), inner, (0, y))
        return n + m, y

    begin = (0, x + 1 if start is None else start)
    wanting = lambda c: (c[0] < rounds) & (jnp.max(jnp.abs(c[1] ** 2 - x)) > 1e-3)  # noqa: E731
    return lax.while_loop(wanting, turn, begin)


def sums(x: Any, factor: float = 0.5) -> Any:
    """A loop of known length, which keeps each round."""
    return lax.scan(lambda c, _: (factor * c + x * x[0], c.sum()), x, None, length=70)


def loops_of(fn: Callable[..., Any]) -> int:
    """How many loops a function's kernel has."""
    counts = []
    write = module.write_module

    def written(program: Any, buffers: Any, outputs: Any, *rest: Any) -> Any:
        alive = live_values(program, [int(x) for o in outputs for x in o.ravel()])
        counts.append(sum(program.ops[i] == "loop" for i in np.flatnonzero(alive)))
        return write(program, buffers, outputs, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fraxenv.kernels.native.cpu.write_module", written)
        patch.setattr("fraxenv.kernels.native.cache.load", lambda *_: None)
        jax.jit(jax.vmap(fusible(lambda x: fn(x), "native"))).lower(X)
    return counts[-1]


def assert_right(fn: Callable[..., Any]) -> None:
    found, right = fuse(fn, "native")(X), jax.jit(jax.vmap(fn))(X)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        # Numbers that vanish do so in steps: below 1e-30 they have fewer digits.
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-30)


def test_twice_the_same_is_once() -> None:
    def fn(x: Any) -> Any:
        return roots(x), sums(x), roots(x)[1] * 2, sums(x)[1][3:]

    assert loops_of(fn) == 3
    assert_right(fn)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: roots(x, rounds=3),
        lambda x: roots(x, start=x + 2),
        lambda x: roots(x * 1.25, start=x + 1),
    ],
)
def test_others_are_not(other: Callable[..., Any]) -> None:
    """Another end, another beginning, another number in the rounds."""
    fn = lambda x: (roots(x), other(x))  # noqa: E731
    assert loops_of(fn) == 4
    assert_right(fn)


def test_a_number_makes_another_scan() -> None:
    assert loops_of(lambda x: (sums(x), sums(x, 0.25))) == 2


def test_other_rounds_of_the_same_values_are_not() -> None:
    def one(x: Any, y: Any, z: Any) -> Any:
        return lax.scan(lambda c, _: (jnp.sin(c) * y + c * z, None), x, None, length=70)[0]

    def fn(x: Any) -> Any:
        y, z = 0.3 * jnp.cos(x), 0.1 * x
        return one(x, y, z), one(x, z, y), one(x, y, z)

    assert loops_of(fn) == 2
    assert_right(fn)


def test_in_a_loop() -> None:
    """What is twice in each round is once in each."""

    def fn(x: Any) -> Any:
        def turn(c: Any, _: Any) -> Any:  # errors of rounding die out
            return roots(c)[1] * 0.5 + roots(c)[1] * (0.2 * x), roots(c)[1]

        return lax.scan(turn, x, None, length=70)

    assert loops_of(fn) == 3
    assert_right(fn)


def test_both_orders_of_a_product() -> None:
    """Which operand stands first depends on which was computed first."""

    def one(x: Any, y: Any, swap: bool) -> Any:
        product = (lambda a, b: b * a) if swap else (lambda a, b: a * b)
        turn = lambda c, _: (product(jnp.sin(c), y) + product(y, c) * 0.1, None)  # noqa: E731
        return lax.scan(turn, x, None, length=70)[0]

    assert loops_of(lambda x: (one(x, x + 1, False), one(x, x + 1, True))) == 1


def test_a_step_and_its_derivative_solve_contacts_once() -> None:
    """As a planner has them: the loop over the rounds of a solver, once."""
    pytest.importorskip("mujoco")
    from fraxenv import dynamics

    scene = dynamics.load_mjcf(
        """
        <mujoco><option timestep=".005"/><worldbody>
          <geom type="plane" size="1 1 .1"/>
          <body pos="0 0 .04"><freejoint/><geom type="sphere" size=".05" mass=".4"/></body>
        </worldbody></mujoco>
        """
    )
    q0 = jnp.asarray(scene.system.q_default, jnp.float32)

    def step(x: Any) -> Any:
        v = jnp.zeros(6, x.dtype) + x[0] - 1
        return dynamics.scene_step(scene, q0, v, jnp.zeros(6, x.dtype))[:2]

    def derivative(x: Any) -> Any:
        v = jnp.zeros(6, x.dtype) + x[0] - 1
        found = dynamics.contact_transition_derivatives(
            scene, q0, v, jnp.zeros(6, x.dtype), scene.timestep
        )
        return found.A, found.B

    assert loops_of(lambda x: (step(x), derivative(x))) == loops_of(derivative)
