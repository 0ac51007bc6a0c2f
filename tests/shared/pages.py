"""A viewer's page in a browser, and waiting for it."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
WIDTH, HEIGHT = 1040, 580


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    """Until something holds that another thread brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.02)


@contextmanager
def browsed(viewer: Any) -> Iterator[tuple[Any, list[int]]]:
    """The page in a browser, and where its canvas is: x, y, width and height, pixels."""
    playwright = pytest.importorskip("playwright.sync_api")
    if not BROWSER:
        pytest.skip("no chromium or chrome on this machine")
    flags = [
        "--no-sandbox",
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
        "--ignore-gpu-blocklist",
    ]
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=BROWSER, args=flags)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(180_000)
        page.goto(viewer.url)
        page.wait_for_selector("canvas")
        # That pictures are drawn without a graphics card is told in front of them.
        page.add_style_tag(content=".mantine-Notifications-root { display: none }")
        page.get_by_text("Safety filter").wait_for()
        yield (
            page,
            page.evaluate(
                "(() => { const r = document.querySelector('canvas').getBoundingClientRect();"
                "return [r.x, r.y, r.width, r.height].map(Math.round) })()"
            ),
        )
        browser.close()
