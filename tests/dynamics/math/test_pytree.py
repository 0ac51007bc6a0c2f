"""Dataclasses that are pytrees."""

from __future__ import annotations

from typing import Any

import jax
import pytest

from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.envs import JointRate, JointTorque


@pytree_dataclass
class Sphere:
    radius: float
    name: str = static(default="a")


@pytree_dataclass
class Cube:
    radius: float
    name: str = static(default="a")

    def __post_init__(self) -> None:
        if self.radius is None:
            raise ValueError


def test_classes_with_the_same_fields_are_different_structures() -> None:
    """Otherwise JAX may run the program of one for the other."""
    for a, b in ((Sphere(1.0), Cube(1.0)), (JointRate(), JointTorque())):
        assert jax.tree.structure(a) != jax.tree.structure(b)
        assert jax.tree.structure(a) == jax.tree.structure(jax.tree.map(lambda x: 2 * x, a))


def test_a_program_is_run_for_its_own_class_only() -> None:
    """Of 300 classes some have a hash whose seven bits that caches look at are the same."""

    def kind(index: int) -> Any:
        cls = type("Kind", (), {"__annotations__": {"x": "float"}, "index": index})
        return pytree_dataclass(cls)(1.0)

    index = jax.jit(lambda x: x.index)
    for i in range(300):
        assert index(kind(i)) == i


@pytest.mark.parametrize("cls", [Sphere, Cube])
def test_leaves_are_named_and_static_fields_are_not(cls: Any) -> None:
    x = cls(2.0, "b")
    (path, leaf), *others = jax.tree_util.tree_leaves_with_path(x)
    assert (jax.tree_util.keystr(path), leaf, others) == (".radius", 2.0, [])
    assert jax.tree.map(lambda r: r + 1, x) == cls(3.0, "b")
    assert jax.tree.structure(x) != jax.tree.structure(cls(2.0))
    assert jax.tree.map(lambda _: None, x).radius is None  # nothing is checked there
