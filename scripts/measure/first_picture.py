"""How long `fraxenv view` takes until a browser shows the robot, from the command.

    python scripts/measure/first_picture.py
    python scripts/measure/first_picture.py PandaPick-v0 --times 5

The browser is open already, a page of 1440 x 830 pixels. Without a graphics card it draws by
SwiftShader, on the same cores. Needs chromium or chrome, and the extras `viewer` and `test`.
"""

from __future__ import annotations

import base64
import io
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro
from PIL import Image
from playwright.sync_api import sync_playwright

FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
]
SIZE = {"width": 1440, "height": 830}
SECONDS = 20.0
"""For which the page is watched."""

SHADES = 20
"""Of the picture's middle from which on something is drawn: the ground has one or two."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    id: tyro.conf.Positional[str] = "PandaReach-v0"
    """One of `fraxenv list`."""
    times: int = 3


def main(options: Options) -> None:
    """Measure, and print."""
    names = "chromium", "chromium-browser", "google-chrome"
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        sys.exit("Needs chromium or chrome; neither was found on the PATH.")
    with sync_playwright() as p:
        for _ in range(options.times):
            window = p.chromium.launch(executable_path=browser, args=FLAGS)
            page = window.new_page(viewport=SIZE)
            page.goto("about:blank")
            served, drawn = once(page, options.id)
            print(f"{options.id}: served after {served:.1f} s, drawn after {drawn:.1f} s")
            window.close()


def once(page: Any, id: str) -> tuple[float, float]:
    """Seconds from the command until the page is served, and until the robot is on it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "fraxenv", "view", id, "--port", str(port)]
    began = time.perf_counter()
    others, quiet = os.environ | {"BROWSER": "true"}, subprocess.DEVNULL
    viewer = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=others)
    try:
        while not _listens(port):
            time.sleep(0.02)
        served = time.perf_counter() - began
        return served, _drawn(page, f"http://127.0.0.1:{port}", began)
    finally:
        viewer.terminate()
        viewer.wait()


def _drawn(page: Any, url: str, began: float) -> float:
    frames: list[tuple[float, str]] = []
    session = page.context.new_cdp_session(page)

    def seen(event: dict[str, Any]) -> None:
        frames.append((time.perf_counter() - began, event["data"]))
        session.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    session.on("Page.screencastFrame", seen)
    session.send("Page.startScreencast", {"format": "jpeg", "quality": 50})
    page.goto(url, wait_until="commit")
    while time.perf_counter() - began < SECONDS:
        page.wait_for_timeout(100)
        while frames:
            seconds, data = frames.pop(0)
            if _shades(base64.b64decode(data)) >= SHADES:
                session.send("Page.stopScreencast")
                page.wait_for_timeout(100)
                return seconds
    return float("nan")


def _shades(picture: bytes) -> int:
    """Coarse colours in what the robot's shoulder covers."""
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))
    height, width = pixels.shape[:2]
    middle = pixels[height // 2 : height * 2 // 3, width * 17 // 40 : width // 2]
    return len(np.unique((middle // 16).reshape(-1, 3), axis=0))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(tyro.cli(Options))
