"""`scripts/identify_payload.py`, run as users run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPT = Path(__file__).parents[2] / "scripts" / "identify_payload.py"


def test_a_payload_is_recovered_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "payload.png"
    options = ["--mass", "0.5", "--shift", "0.01", "-0.02", "0.03", "--seconds", "0.5"]
    command = [sys.executable, SCRIPT, *options, "--iterations", "6", "--output", picture]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = {
        name: np.array([float(x) for x in re.findall(r"-?[\d.]+", numbers)])
        for name, numbers in re.findall(r"^(unloaded|recovered|true) (.*)$", done.stdout, re.M)
    }
    np.testing.assert_allclose(rows["true"] - rows["unloaded"], [0.5, 10, -20, 30], atol=2e-3)
    assert rows["recovered"] == pytest.approx(rows["true"], rel=1e-3)
    with Image.open(picture) as image:
        assert image.size == (1200, 384)
        assert len(set(image.convert("RGB").getdata())) > 50
