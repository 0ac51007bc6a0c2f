"""Fingerprints: equal for what is alike, in any process; different for what is not."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fraxenv.controllers import SafetyFilter
from fraxenv.dynamics.model.fingerprint import fingerprint


def scaled(x: float, by: float = 2.0) -> float:
    return x * by


def made(by: float) -> Any:
    def inner(x: float) -> float:
        return inner(x - 1) if x > 10 else x * by

    return inner


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (made(1.0), made(2.0)),
        (lambda x: x[0], lambda x: x[1]),
        (lambda x: x + 1.0, lambda x: x + 1.5),
        (lambda x: x in {1, 2}, lambda x: x in {1, 3}),
        (functools.partial(scaled, by=1.0), functools.partial(scaled, by=1.5)),
        (np.zeros(3, np.float32), np.zeros(3)),
        (np.array([0.1]), np.array([0.1 + 1e-17 + 2e-17])),
    ],
)
def test_what_differs(one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_functions_made_alike_are_alike() -> None:
    assert fingerprint(made(1.0)) == fingerprint(made(1.0))
    assert fingerprint({"f": scaled}) == fingerprint({"f": scaled})


@dataclasses.dataclass(frozen=True)
class Holder:
    value: Any

    def method(self) -> None: ...


def test_by_name_functions_are_what_they_are_called() -> None:
    one, other = made(1.0), made(2.0)
    assert fingerprint(one, functions="name") == fingerprint(other, functions="name")
    assert fingerprint(one, functions="name") != fingerprint(scaled, functions="name")
    assert fingerprint(Holder(1).method, functions="name") == fingerprint(
        Holder(1).method, functions="name"
    )
    assert fingerprint(Holder(1).method, functions="name") != fingerprint(
        Holder(2).method, functions="name"
    )


def test_those_in_files_stay_as_they_are() -> None:
    value = {
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "parts": [
            functools.partial(max, 1, key=abs),
            Holder((np.float64(0.1), None)),
            frozenset("ab"),
        ],
        "nobody": [object(), int],
    }
    expected = "695646994bfbe8a01cbf945fb04d2b5ad3592cb94c16a20226d055dfedc047ce"
    assert fingerprint(value, functions="name").hex() == expected


def test_of_a_filter_with_functions_in_it_in_another_process() -> None:
    code = (
        "from fraxenv.controllers import SafetyFilter;"
        "from fraxenv.dynamics.model.fingerprint import fingerprint;"
        "print(fingerprint(SafetyFilter()).hex())"
    )
    assert sys.flags.hash_randomization  # so that strings have other hashes there
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "1", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{fingerprint(SafetyFilter()).hex()}\n"
