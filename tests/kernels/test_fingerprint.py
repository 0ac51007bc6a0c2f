"""Fingerprints: the same for what is the same, another for everything that a kernel depends on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fraxenv.kernels import fuse, fusible
from fraxenv.kernels.derivatives import cotangent, tangent
from fraxenv.kernels.fingerprint import fingerprint
from fraxenv.kernels.traced import Traced, trace

Function = Callable[..., Any]
X = np.linspace(-2, 2, 5, dtype=np.float32)
TABLE = np.arange(5, dtype=np.float32)


def of(fn: Function, *args: Any, batched: tuple[bool, ...] = (True,)) -> str | None:
    traced, _ = trace(fn, args or (X,), {})
    return fingerprint(traced, batched, "cpu")


def _while(limit: float) -> Function:
    return lambda x: lax.while_loop(lambda y: jnp.sum(y) < limit, lambda y: y + 1, x)


def _scan(length: int) -> Function:
    return lambda x: lax.scan(lambda y, _: (y * x, y[0]), x, length=length)


def _cond(first: float) -> Function:
    return lambda x: lax.cond(x[0] > 0, lambda: x * first, lambda: x - 1)


def _called(factor: float) -> Function:
    return jax.jit(lambda x: x * factor)


def _own_derivative(factor: float) -> Function:
    fn = jax.custom_jvp(lambda x: x * factor)
    fn.defjvp(lambda p, t: (p[0], t[0]))
    return fn


ALL: dict[str, Function] = {
    "sum": lambda x: jnp.sum(x),
    "sin": lambda x: jnp.sin(x),
    "cos": lambda x: jnp.cos(x),
    "a - b": lambda x: x[:2] - x[2:4],
    "b - a": lambda x: x[2:4] - x[:2],
    "first": lambda x: x[0],
    "second": lambda x: x[1],
    "literal 2": lambda x: x * 2.0,
    "literal 3": lambda x: x * 3.0,
    "literal -0": lambda x: x + jnp.float32(-0.0),
    "literal 0": lambda x: x + jnp.float32(0.0),
    "literal nan": lambda x: x + jnp.nan,
    "table": lambda x: x * TABLE,
    "table + 1": lambda x: x * (TABLE + 1),
    "table of integers": lambda x: x * TABLE.astype(np.int32),
    "table as argument": lambda x: jnp.asarray(TABLE) * x,
    "row": lambda x: x[None],
    "column": lambda x: x[:, None],
    "up": lambda x: lax.cumsum(x),
    "down": lambda x: lax.cumsum(x, reverse=True),
    "to int32": lambda x: x.astype(np.int32),
    "to int16": lambda x: x.astype(np.int16),
    "same bits": lambda x: lax.bitcast_convert_type(x, np.int32),
    "twice": lambda x: (x, x),
    "while < 1": _while(1),
    "while < 2": _while(2),
    "scan 3": _scan(3),
    "scan 4": _scan(4),
    "cond 2": _cond(2),
    "cond 3": _cond(3),
    "call 2": _called(2),
    "call 3": _called(3),
    "rule 2": _own_derivative(2),
    "rule 3": _own_derivative(3),
    "clipped": lambda x: x.at[jnp.int32(x[0])].get(mode="clip"),
    "filled": lambda x: x.at[jnp.int32(x[0])].get(mode="fill", fill_value=0),
    "product": lambda x: jnp.outer(x, x),
    "scalar product": lambda x: jnp.dot(x, x),
    # Conversions that are batched say over which devices: over none.
    "jacobian": lambda x: jax.jacfwd(lambda y: (y > 0) * y)(x),
    "another jacobian": lambda x: jax.jacfwd(lambda y: (y > 1) * y)(x),
    "key": lambda x: jax.random.uniform(jax.random.key(0)) * x,
    "another key": lambda x: jax.random.uniform(jax.random.key(1)) * x,
    "another kind of key": lambda x: jax.random.uniform(jax.random.key(0, impl="rbg")) * x,
}


def test_whatever_differs_is_told_apart() -> None:
    found: dict[str | None, str] = {}
    for name, fn in ALL.items():
        digest = of(fn)
        assert digest is not None, name
        assert of(lambda x, fn=fn: fn(x)) == digest, f"{name}: traced twice"
        same = {"table": "table as argument"}
        assert found.setdefault(digest, name) in (name, same.get(name)), name
    assert len(found) == len(ALL)


def test_what_else_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = ALL["sin"]
    traced, _ = trace(fn, (X,), {})
    digests = [of(fn), of(fn, batched=(False,)), fingerprint(traced, (True,), "gpu"), of(fn, X[:4])]
    digests.append(of(fn, X.astype(np.int32)))
    with jax.enable_x64(True):
        digests.append(of(fn))
        digests.append(of(fn, X.astype(np.float64)))
    for version in ("jax.__version__", "jaxlib.version.__version__", "numpy.__version__"):
        with monkeypatch.context() as patch:
            patch.setattr(version, "0.0")
            digests.append(of(fn))
    with monkeypatch.context() as patch:
        patch.setattr("fraxenv.kernels.fingerprint._sources", lambda: "another text")
        digests.append(of(fn))
    assert None not in digests
    assert len(set(digests)) == len(digests)


def test_kernels_within_kernels() -> None:
    def around(function: Any, batched: bool = True) -> Any:
        inner = fusible(function, "native")
        return of(jax.vmap(inner) if batched else lambda x: inner(x))

    digests = [around(jnp.sin), around(jnp.cos), around(jnp.sin, batched=False), of(jnp.sin)]
    assert None not in digests
    assert len(set(digests)) == len(digests)
    assert around(lambda x: jnp.sin(x)) == digests[0]


def test_what_cannot_be_told_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(lambda x: jax.pure_callback(np.sin, x, x)) is None
    monkeypatch.setattr("fraxenv.kernels.fingerprint._sources", lambda: None)
    assert of(ALL["sin"]) is None


# --- derivatives ----------------------------------------------------------------------------------


def _ruled(factor: float, symbolic: bool = False, policy: Any = None) -> Function:
    """Its derivative alone differs: the rule's factor."""
    fn = jax.custom_jvp(lambda x: x * 2.0)
    fn.defjvp(lambda p, t: (fn(*p), factor * t[0]), symbolic_zeros=symbolic)
    return jax.checkpoint(lambda x: fn(x), policy=policy)


def _ruled_backwards(factor: float) -> Function:
    fn = jax.custom_vjp(lambda x: x * 2.0)
    fn.defvjp(lambda x: (x * 2.0, None), lambda _, w: (factor * w,))
    return fn


DERIVATIVES: dict[str, Callable[[Traced], Traced]] = {
    "itself": lambda f: f,
    "tangent": lambda f: tangent(f, (True,)),
    "cotangent": lambda f: cotangent(f, (True,), (True,)),
    "tangent of the cotangent": lambda f: tangent(cotangent(f, (True,), (True,)), (True, False)),
}

RULED = {
    "cos": lambda x: jnp.cos(x),
    "2": _ruled(2.0),
    "3": _ruled(3.0),
    "3, symbolic": _ruled(3.0, symbolic=True),
    "4, symbolic": _ruled(4.0, symbolic=True),
    "backwards 3": _ruled_backwards(3.0),
    "backwards 4": _ruled_backwards(4.0),
    "in a loop 3": lambda x: lax.scan(lambda y, _: (_ruled(3.0)(y), None), x, length=4)[0],
    "in a loop 4": lambda x: lax.scan(lambda y, _: (_ruled(4.0)(y), None), x, length=4)[0],
    "in a kernel 3": fusible(_ruled(3.0), "native"),
    "in a kernel 4": fusible(_ruled(4.0), "native"),
}


def _derived(kind: str, fn: Function) -> tuple[str | None, Traced]:
    derivative = DERIVATIVES[kind](trace(lambda x: fn(x), (X,), {})[0])
    return fingerprint(derivative, (True,) * len(derivative.operands), "cpu"), derivative


def test_derivatives_are_told_apart_by_their_rules() -> None:
    found: dict[str | None, Any] = {}
    for name, fn in RULED.items():
        for kind in DERIVATIVES:
            if kind == "tangent" and name.startswith("backwards"):
                continue  # there is none
            digest, _ = _derived(kind, fn)
            assert digest is not None, (name, kind)
            assert _derived(kind, fn)[0] == digest, (name, kind)
            if kind != "itself":  # where rules do not matter
                assert found.setdefault(digest, (name, kind)) == (name, kind)


def test_derivatives_are_told_without_being_traced() -> None:
    for kind in ("tangent", "cotangent"):
        for name in ("cos", "3", "3, symbolic", "in a loop 3", "in a kernel 3"):
            assert "_closed" not in vars(_derived(kind, RULED[name])[1]), (name, kind)
        assert _derived(kind, RULED["2"])[0] != _derived("itself", RULED["2"])[0]
    traced = _derived("cotangent", RULED["backwards 3"])[1]
    assert "_closed" in vars(traced)  # its equations tell


def test_a_rule_that_asks_what_moves_is_told_by_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fn = RULED["3, symbolic"]
    before = _derived("cotangent", fn)[0]
    monkeypatch.setattr("fraxenv.kernels.fingerprint._text", lambda _: "another text")
    assert _derived("cotangent", fn)[0] not in (None, before)


def test_what_is_kept_for_a_gradient_is_part_of_it() -> None:
    everything = _ruled(3.0, policy=jax.checkpoint_policies.everything_saveable)
    assert _derived("cotangent", everything)[0] not in (None, _derived("cotangent", RULED["3"])[0])


def test_gradients_are_recalled(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("FRAXENV_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
    monkeypatch.delenv("FRAXENV_CACHE", raising=False)
    x = np.random.default_rng(0).normal(size=(37, 5)).astype(np.float32)

    def gradient(factor: float) -> Any:
        many = jax.vmap(fusible(_ruled(factor), "native"))
        return jax.grad(lambda x: jnp.sum(jnp.sin(many(x))))(x)

    made = {factor: gradient(factor) for factor in (3.0, 4.0)}
    assert not np.array_equal(made[3.0], made[4.0])

    def traced(_: Any) -> Any:
        raise AssertionError("the derivative was traced again")

    monkeypatch.setattr("fraxenv.kernels.derivatives.Derivative._closed", property(traced))
    for factor, result in made.items():
        np.testing.assert_array_equal(gradient(factor), result)


# --- operands -------------------------------------------------------------------------------------


def test_outer_values_are_operands() -> None:
    found: list[Traced] = []

    def outer(y: Any) -> Any:
        found.append(trace(lambda x: x * y, (X,), {})[0])
        return y

    jax.make_jaxpr(outer)(X)
    assert fingerprint(found[0], (True, True), "cpu") not in (None, of(lambda x: x * X))


PROGRAM = """
import tests.kernels.test_fingerprint as t
print([t.of(fn) for fn in t.ALL.values()])
"""


def test_other_processes_find_the_same() -> None:
    assert sys.flags.hash_randomization  # so that strings have other hashes there
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{[of(fn) for fn in ALL.values()]}\n"


def test_recalled_kernels_are_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("FRAXENV_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
    monkeypatch.delenv("FRAXENV_CACHE", raising=False)
    x = np.random.default_rng(0).normal(size=(37, 5)).astype(np.float32)
    whole = {name: ALL[name] for name in list(ALL)[:-1:2]}  # about one of each two that are alike
    made = {name: fuse(lambda x, fn=fn: fn(x), "native")(x) for name, fn in whole.items()}

    def evaluated(*_: Any) -> Any:
        raise AssertionError("the program was made again")

    monkeypatch.setattr(sys.modules["fraxenv.kernels.kernel"], "partially_evaluate", evaluated)
    for name, fn in whole.items():
        again = fuse(lambda x, fn=fn: fn(x), "native")(x)
        for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(made[name]), strict=True):
            np.testing.assert_array_equal(a, b, name)
