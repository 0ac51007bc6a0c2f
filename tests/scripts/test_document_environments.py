"""The pages about environments are what the registry says, and have their pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import load_script

import fraxenv

ROOT = Path(__file__).parents[2]
# Making the scenes of the others takes longest.
QUICK = ("Reach-v0", "ReachPose-v0", "ReachObstacles-v0", "Track-v0", "PandaPick-v0")


@pytest.mark.slow
def test_the_pages_are_up_to_date() -> None:
    script = ROOT / "scripts" / "docs" / "document_environments.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pages_of_some_environments_are_up_to_date() -> None:
    script = load_script("docs/document_environments")
    ids = [id for id in fraxenv.list_envs() if id.endswith(QUICK)]
    assert len(ids) == 22
    for id in ids:
        page = ROOT / "docs" / "environments" / f"{id}.md"
        assert script._page(id) == page.read_text("utf-8")
        assert page.with_suffix(".png").exists()
