"""`scripts/examples/identify_payload.py`, run as users run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support import colours

SCRIPT = Path(__file__).parents[2] / "scripts" / "examples" / "identify_payload.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mass", "shift"),
    [
        pytest.param("0.5", ("0.01", "-0.02", "0.03"), id="light"),
        pytest.param("4", ("0.3", "0", "0"), id="heavy and far out", marks=pytest.mark.slow),
    ],
)
def test_a_payload_is_recovered_and_drawn(
    mass: str, shift: tuple[str, str, str], tmp_path: Path
) -> None:
    """Of the second one undamped steps lead ever further away."""
    picture = tmp_path / "payload.png"
    options = ["--mass", mass, "--shift", *shift, "--seconds", "0.5", "--output", picture]
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = {
        name: np.array([float(x) for x in re.findall(r"-?[\d.]+", numbers)])
        for name, numbers in re.findall(r"^(unloaded|recovered|true) (.*)$", done.stdout, re.M)
    }
    added = [float(mass), *(1e3 * float(x) for x in shift)]
    np.testing.assert_allclose(rows["true"] - rows["unloaded"], added, atol=2e-3)
    assert rows["recovered"] == pytest.approx(rows["true"], rel=1e-3)
    with Image.open(picture) as image:
        assert image.size == (1200, 384)
    assert colours(picture) > 50
