"""Arrays as one: the numbers, dtypes and shapes that they have one by one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fraxenv.wrappers.gymnasium.packing import layout_of, pack, unpack, unpack_here

SINGLE = {
    "bool": (jnp.bool_, True), "int": (jnp.int32, -5), "small": (jnp.int8, -7),
    "unsigned": (jnp.uint32, 2**32 - 1), "float": (jnp.float32, 0.1), "half": (jnp.float16, 0.1),
    "nan": (jnp.float32, np.nan), "infinite": (jnp.float32, -np.inf), "zero": (jnp.float32, -0.0),
}  # fmt: skip
DOUBLE = {"double": (jnp.float64, 1 / 3), "long": (jnp.int64, -(2**40)), "byte": (jnp.uint8, 255)}


def check(kinds: dict[str, Any]) -> None:
    scalars = {name: jnp.asarray(x, dtype) for name, (dtype, x) in kinds.items()}
    arrays = {name: jnp.stack([x, x * 0, x]).reshape(1, 3) for name, x in scalars.items()}
    tree = {"scalars": scalars, "arrays": arrays | {"none": jnp.zeros((0, 2))}}
    layout = layout_of(jax.eval_shape(lambda: tree))
    assert layout == layout_of(tree)
    words = jax.jit(lambda: pack(tree, layout))()
    assert words.dtype == jnp.int32

    again = jax.jit(lambda w: unpack(w, layout))(words)
    here = unpack_here(np.asarray(words), layout)
    assert jax.tree.structure(again) == jax.tree.structure(here) == jax.tree.structure(tree)
    for name, x in scalars.items():
        number = here["scalars"][name]
        assert type(number) is type(x.item()), name
        for found in (number, again["scalars"][name]):
            np.testing.assert_array_equal(found, x.item())
            assert np.signbit(found) == np.signbit(x.item())
    for name, x in tree["arrays"].items():
        for found in (here["arrays"][name], again["arrays"][name]):
            assert (found.dtype, found.shape) == (x.dtype, x.shape), name
            np.testing.assert_array_equal(found, x)
        assert here["arrays"][name].flags.writeable


def test_numbers_of_all_kinds() -> None:
    check(SINGLE)


def test_numbers_of_all_kinds_in_double_precision(x64: None) -> None:
    check(SINGLE | DOUBLE)


def test_numpys_arrays_and_pythons_numbers_are_packed_alike() -> None:
    layout = layout_of({"a": jnp.zeros(2), "n": jnp.asarray(3)})
    words = [pack({"a": a, "n": 3}, layout) for a in (jnp.ones(2), np.ones(2), np.ones(2, int))]
    np.testing.assert_array_equal(words[1], words[0])
    np.testing.assert_array_equal(words[2], words[0])
