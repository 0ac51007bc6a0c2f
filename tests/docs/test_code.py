"""Every block of Python in the README and in docs/ runs, page by page, as a reader would type it.

A page's blocks run in order, in one namespace, in a folder with nothing but scripts/. What a page
asks of the tests stands in a comment right before the block that it is about:

    <!-- needs: brax -->                          skip the page where this cannot be imported
    <!-- in tests: 1024 -> 16; 1_000_000 -> 2_000 -->     smaller numbers, which have to be there
    <!-- run in tests -->                         before a block of bash: run it
    <!-- not run: opens a window -->              leave the block out, and why
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import with_slow

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
}
FENCE = re.compile(r"^(?:<!-- ([^\n]*) -->\n+)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "bash", "yaml", "xml", "c", ""}  # the last: what a command prints


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    mark: str
    language: str
    code: str
    line: int

    @property
    def runs(self) -> bool:
        if self.mark.startswith("not run: "):
            return False
        return self.language == "python" or self.mark == "run in tests"


def blocks(text: str) -> list[Block]:
    return [
        Block(m[1] or "", m[2], m[3], text.count("\n", 0, m.start(3))) for m in FENCE.finditer(text)
    ]


def smaller(code: str, mark: str) -> str:
    """The code with the replacements that its mark asks for."""
    if mark.startswith("in tests: "):
        for change in mark.removeprefix("in tests: ").split("; "):
            old, new = change.split(" -> ")
            assert old in code, f"{old!r} is not in the block"
            code = code.replace(old, new)
    return code


def run(page: str) -> dict[str, Any]:
    """What is defined once the page has run in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(PAGES[page]):
        if not block.runs:
            continue
        code = smaller(block.code, block.mark)
        if block.language == "bash":
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(["bash", "-euc", code], env=os.environ | {"PATH": path}, check=True)
        else:
            exec(compile("\n" * block.line + code, ROOT / page, "exec"), names)
    return names


RUNNING = [page for page, text in PAGES.items() if any(block.runs for block in blocks(text))]
SLOW = (
    "docs/contact.md",
    "docs/controllers.md",
    "docs/debugging.md",
    "docs/dynamics.md",
    "docs/explain.md",  # as tests/fraxenv/cli and tests/kernels
    "docs/extend/barrier.md",
    "docs/extend/environment.md",
    "docs/extend/real_arm.md",
    "docs/extend/robot.md",
    "docs/extend/task.md",  # whose task tests/fraxenv/test_measures.py uses
    "docs/gradients.md",
    "docs/numerics.md",
    "docs/planning.md",
    "docs/recording.md",  # which tests/fraxenv/recording runs
    "docs/robots.md",
    "docs/safety.md",
    "docs/stories/identify_robot.md",
    "docs/stories/payload.md",
    "docs/stories/tune_gains.md",
    "docs/training/rejax.md",
    "docs/viewer.md",  # as tests/fraxenv/viewer
    # Whose one line scripts/docs/document_environments.py runs for all of them.
    *(
        page
        for page in RUNNING
        if page.startswith("docs/environments/")
        and page not in ("docs/environments/PandaReach-v0.md", "docs/environments/UR10Wipe-v0.md")
    ),
)


@pytest.mark.filterwarnings("default::fraxenv.kernels.KernelWarning")
@pytest.mark.parametrize("page", with_slow(RUNNING, *SLOW))
def test_blocks_run(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for needs in re.findall(r"^<!-- needs: (\S+) -->$", PAGES[page], re.MULTILINE):
        pytest.importorskip(needs)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.setenv("FRAXENV_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "kernels"))
    names = run(page)
    if page in EXPECTED:
        EXPECTED[page](names, capsys.readouterr().out)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_and_marks_are_understood(page: str) -> None:
    """So that no block is left out because of how it is written."""
    found = blocks(PAGES[page])
    assert {block.language for block in found} <= LANGUAGES
    assert PAGES[page].count("```") == 2 * len(found)
    marks = re.findall(r"^<!-- (?:in tests:|run in|not run:)", PAGES[page], re.MULTILINE)
    assert len(marks) == sum(b.mark.startswith(("in tests:", "run in", "not run:")) for b in found)


def _readme(names: dict[str, Any], printed: str) -> None:
    assert "dx -0.02 0.02 m" in printed


def _controllers(names: dict[str, Any], printed: str) -> None:
    assert names["q"].shape == (7,)
    assert bool(names["telemetry"]["target_finite"])


def _kernels(names: dict[str, Any], printed: str) -> None:
    assert names["qdd"].shape == (4096, 7)
    assert printed.startswith("acceleration: executor 'native'")
    assert "outside the kernel   nothing" in printed


def _safety(names: dict[str, Any], printed: str) -> None:
    assert names["report"]["feasible"]
    situation = names["robot"], names["terms"], names["tau"], 0.001, names["world"]
    assert names["safety"](*situation)[1]["min_barrier"] > 0.1  # the hand above the table


EXPECTED: dict[str, Callable[[dict[str, Any], str], None]] = {
    "README.md": _readme,
    "docs/controllers.md": _controllers,
    "docs/kernels.md": _kernels,
    "docs/safety.md": _safety,
}
"""Page -> what has to be true once it has run, beyond that nothing was raised."""
