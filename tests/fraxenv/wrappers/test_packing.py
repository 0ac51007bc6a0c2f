"""Results of a program as one array: the numbers, dtypes and shapes that they have one by one."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.wrappers.gymnasium.packing import packed

SINGLE = {
    "bool": (jnp.bool_, True), "int": (jnp.int32, -5), "small": (jnp.int8, -7),
    "unsigned": (jnp.uint32, 2**32 - 1), "float": (jnp.float32, 0.1), "half": (jnp.float16, 0.1),
    "nan": (jnp.float32, np.nan), "infinite": (jnp.float32, -np.inf), "zero": (jnp.float32, -0.0),
}  # fmt: skip
DOUBLE = {"double": (jnp.float64, 1 / 3), "long": (jnp.int64, -(2**40)), "byte": (jnp.uint8, 255)}


def results(kinds: dict[str, Any]) -> dict[str, Any]:
    scalars = {name: jnp.asarray(x, dtype) for name, (dtype, x) in kinds.items()}
    arrays = {name: jnp.stack([x, x * 0, x]).reshape(1, 3) for name, x in scalars.items()}
    return {"scalars": scalars, "arrays": arrays, "none": jnp.zeros((0, 2))}


def assert_as_one_by_one(kinds: dict[str, Any]) -> None:
    found, rest = packed(lambda x: (results(kinds), x + 1))(jnp.asarray(2))
    assert rest == 3
    expected = results(kinds)
    for name, x in expected["scalars"].items():
        number = found["scalars"][name]
        assert type(number) is type(x.item())
        np.testing.assert_array_equal(number, x.item())
        assert np.signbit(number) == np.signbit(x.item())
    for name, x in {**expected["arrays"], "none": expected["none"]}.items():
        array = found["none"] if name == "none" else found["arrays"][name]
        assert (array.dtype, array.shape) == (x.dtype, x.shape)
        assert array.flags.writeable
        np.testing.assert_array_equal(array, x)


def test_numbers_of_all_kinds() -> None:
    assert_as_one_by_one(SINGLE)


def test_numbers_of_all_kinds_in_double_precision(x64: None) -> None:
    assert_as_one_by_one(SINGLE | DOUBLE)


def test_shapes_may_change() -> None:
    program = packed(lambda x: ({"x": x * 2, "n": x.sum()}, ()))
    for size in (3, 5, 3):
        found, _ = program(jnp.arange(float(size)))
        np.testing.assert_array_equal(found["x"], 2.0 * np.arange(size))
        assert found["n"] == size * (size - 1) / 2


@pytest.mark.parametrize("first", ["float32", "float64"])
def test_precisions_do_not_mix(first: str, x64: None) -> None:
    program = packed(lambda x: ({"x": x}, ()))
    other = {"float32": "float64", "float64": "float32"}[first]
    for dtype in (first, other, first):
        x = jnp.asarray([0.1, 0.2], dtype)
        np.testing.assert_array_equal(program(x)[0]["x"], x)
        assert program(x)[0]["x"].dtype == dtype
