"""Functions of which other threads compute what they can."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fraxenv.kernels.native import cores


@pytest.fixture(params=[1, 2, 5])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ThreadPoolExecutor:
    with ThreadPoolExecutor(request.param) as found:
        monkeypatch.setattr(cores, "_threads", lambda: found)
        yield found


def test_results_are_in_their_order(pool: ThreadPoolExecutor) -> None:
    def late(k: int) -> int:
        time.sleep(0.01 * (7 - k))
        return k

    assert cores.at_once([lambda k=k: late(k) for k in range(7)]) == list(range(7))
    assert cores.at_once([lambda: 3]) == [3]


def test_threads_that_ask_do_not_wait_for_one_another(pool: ThreadPoolExecutor) -> None:
    """All of the pool's threads ask at the same time, so that none is left for what they ask."""
    asking = pool._max_workers
    together = threading.Barrier(asking)

    def ask() -> list[int]:
        together.wait(30)
        return cores.at_once([lambda k=k: k for k in range(4)])

    futures = [pool.submit(ask) for _ in range(asking)]
    assert [f.result(30) for f in futures] == [[0, 1, 2, 3]] * asking


@pytest.mark.parametrize("bad", [0, 1, 3])
def test_errors_are_told(bad: int, pool: ThreadPoolExecutor) -> None:
    def fn(k: int) -> int:
        if k == bad:
            raise OSError("LLVM is ill")
        return k

    with pytest.raises(OSError, match="LLVM is ill"):
        cores.at_once([lambda k=k: fn(k) for k in range(4)])
