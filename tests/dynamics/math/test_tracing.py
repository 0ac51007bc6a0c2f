"""Functions that are traced once: the same equations, in fewer runs of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fraxenv import dynamics
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.dynamics.math.tracing import MOST, traced_once

X = jnp.arange(1.0, 4.0)


@pytest.fixture
def runs() -> list[Any]:
    return []


@pytest.fixture
def counted(runs: list[Any]) -> Callable[..., Any]:
    @traced_once
    def fn(x: Any, factor: Any = 2.0, *, power: Any = 1) -> Array:
        """Its docstring."""
        runs.append((x, factor, power))
        return jnp.sin(x) * factor + x**power

    return fn


def test_it_runs_once_for_each_shape_and_each_known_number(
    counted: Callable[..., Any], runs: list[Any]
) -> None:
    def program(x: Array) -> list[Array]:
        return [
            counted(x), counted(x + 1), counted(x, 2.0), counted(x, np.array([2.0, 3.0, 4.0])),
            counted(x, np.array([2.0, 3.0, 4.0])), counted(x, power=2), counted(x[:2]),
            counted(x, -0.0), counted(x, 0.0), counted(x, x), counted(x, True), counted(x, 1),
        ]  # fmt: skip

    found = jax.jit(program)(X)
    assert counted.__doc__ == "Its docstring."
    # The default is another call than the same number that is written out.
    assert len(runs) == 10
    expected = [
        np.sin(x) * f + x**p
        for x, f, p in [
            (X, 2, 1), (X + 1, 2, 1), (X, 2, 1), (X, np.array([2.0, 3, 4]), 1),
            (X, np.array([2.0, 3, 4]), 1), (X, 2, 2), (X[:2], 2, 1), (X, -0.0, 1), (X, 0.0, 1),
            (X, X, 1), (X, 1, 1), (X, 1, 1),
        ]
    ]  # fmt: skip
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
    jax.jit(lambda x: program(2 * x))(X)
    assert len(runs) == 10


def test_known_numbers_stay_known_and_are_those_of_the_call(
    counted: Callable[..., Any], runs: list[Any]
) -> None:
    factor = np.array([2.0, 3.0, 4.0])
    first = jax.jit(lambda x: counted(x, factor))(X)
    assert isinstance(runs[0][1], np.ndarray)
    factor[:] = 5.0
    np.testing.assert_allclose(jax.jit(lambda x: counted(x, factor))(X), np.sin(X) * 5 + X, 1e-6)
    factor[:] = [2.0, 3.0, 4.0]
    np.testing.assert_array_equal(jax.jit(lambda x: counted(x, factor))(X), first)
    assert len(runs) == 2


def test_where_nothing_is_traced_it_runs(counted: Callable[..., Any], runs: list[Any]) -> None:
    for k in range(3):
        assert counted(X).shape == (3,)
        assert len(runs) == k + 1
    assert runs[0][0] is X


def test_precisions_are_apart(counted: Callable[..., Any]) -> None:
    for x64 in (False, True, False):
        with jax.enable_x64(x64):
            x = jnp.asarray(np.arange(3.0))
            assert jax.jit(counted)(x).dtype == (np.float64 if x64 else np.float32)


def test_arrays_that_it_reads_are_those_of_the_precision() -> None:
    index = np.array([2, 0, 1])
    turned = traced_once(lambda x: x[index])
    for x64 in (True, False, True, False):
        with jax.enable_x64(x64):
            found = jax.jit(lambda x: turned(x))(jnp.asarray(np.arange(3.0)))
            np.testing.assert_array_equal(found, [2.0, 0.0, 1.0])


def test_the_equations_are_the_same() -> None:
    """Also of derivatives and batches."""
    robot = dynamics.load_robot("panda")
    q, v = jnp.asarray(robot.q_default, jnp.float32), jnp.ones(robot.nv, jnp.float32)
    plain: Any = dynamics.compute_terms
    while hasattr(plain, "__wrapped__"):
        plain = plain.__wrapped__

    def counts(program: Callable[..., Any]) -> dict[str, int]:
        found: dict[str, int] = {}
        for equation in jax.make_jaxpr(program)(q, v).eqns:
            name = equation.primitive.name
            found[name] = found.get(name, 0) + 1
        return found

    for transform in (
        lambda f: f,
        lambda f: lambda q, v: jax.jvp(lambda q: f(q, v), (q,), (v,)),
        lambda f: lambda q, v: jax.vmap(f, (0, None))(jnp.stack([q, q]), v),
    ):
        found, expected = (
            counts(transform(lambda q, v, f=f: f(robot, q, v)))
            for f in (dynamics.compute_terms, plain)
        )
        assert found == expected


def test_derivatives_are_those_of_the_function(counted: Callable[..., Any]) -> None:
    def derivatives(fn: Callable[..., Any], x: Array) -> Any:
        slope = jax.grad(lambda x: fn(x, x, power=3).sum())(x)
        return slope, jax.jacfwd(fn)(x), jax.hessian(lambda x: fn(x).sum())(x)

    def both(fn: Callable[..., Any]) -> Any:
        return jax.jit(lambda x: derivatives(fn, x))(X)

    for x, y in zip(both(counted), both(counted.__wrapped__), strict=True):  # type: ignore[attr-defined]
        np.testing.assert_allclose(x, y, rtol=1e-6)


def test_structures_and_what_cannot_be_compared() -> None:
    runs = []

    @pytree_dataclass
    class Spring:
        stiffness: Any
        kind: Any = static(default="linear")

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, x: Array) -> Array:
            return 2 * x

    @traced_once
    def force(spring: Spring, x: Array, law: Any = None) -> dict[str, Any]:
        runs.append(spring.kind)
        return {"force": spring.stiffness * x, "law": None if law is None else law[0](x)}

    def program(x: Array) -> list[Any]:
        unhashable = [Unhashable()]
        return [force(Spring(2.0), x), force(Spring(2.0, "other"), x), force(Spring(x), x),
                force(Spring(x), x, unhashable), force(Spring(x), x, unhashable)]  # fmt: skip

    found = jax.jit(program)(X)
    assert runs == ["linear", "other", "linear", "linear", "linear"]
    np.testing.assert_allclose(found[3]["law"], 2 * X)
    np.testing.assert_allclose(found[2]["force"], X * X)


def test_the_oldest_are_forgotten(counted: Callable[..., Any], runs: list[Any]) -> None:
    program = jax.jit(lambda x: sum(counted(x, float(k)) for k in range(MOST + 1)))
    program(X)
    assert len(runs) == MOST + 1
    jax.jit(lambda x: counted(x, float(MOST)))(X)
    assert len(runs) == MOST + 1
    jax.jit(lambda x: counted(x, 0.0))(X)
    assert len(runs) == MOST + 2


def test_errors_are_those_of_the_function() -> None:
    @traced_once
    def refuses(x: Array) -> Array:
        raise ValueError("expected another")

    for _ in range(2):
        with pytest.raises(ValueError, match="expected another"):
            jax.jit(refuses)(X)
