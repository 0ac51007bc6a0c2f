"""The commands that the README and docs/ print: they exist, and take the options printed."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from fraxenv.cli import COMMANDS
from fraxenv.cli.common import parse
from fraxenv.errors import CheckpointError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


def commands(program: str) -> list[tuple[str, list[str]]]:
    """Every command line of a program, with its page."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if program in words[:2]:
                    found.append((page.name, words[words.index(program) + 1 :]))
    return found


@pytest.mark.parametrize(("page", "words"), commands("fraxenv"))
def test_fraxenv_understands(page: str, words: list[str]) -> None:
    name, *argv = words
    module = importlib.import_module(f"fraxenv.cli.{COMMANDS[name]}")
    if hasattr(module, "parse"):
        with contextlib.suppress(CheckpointError):  # there is no run to resume
            module.parse(argv)
    else:
        parse(module.Options, name, argv)


@pytest.mark.parametrize(("page", "words"), [*commands("python"), *commands("bash")])
def test_scripts_exist_and_have_the_options(page: str, words: list[str]) -> None:
    if words[0] == "-m" and words[1].startswith("fraxenv."):
        spec = importlib.util.find_spec(f"{words[1]}.__main__")
        assert spec is not None
        assert spec.origin is not None
        script = Path(spec.origin)
        parts = sorted(script.parent.glob("*.py"))
    elif words[0].startswith("-"):
        pytest.skip("not a script")
    else:
        script = ROOT / words[0]
        parts = [script, *script.with_suffix("").glob("*.py"), ROOT / "scripts" / "venv.sh"]
    assert script.exists()
    text = "".join(part.read_text("utf-8") for part in parts)
    for option in re.findall(r"--([a-z][\w-]*)", " ".join(words)):
        known = option in text or option.replace("-", "_") in text
        assert known or option == "help", f"{script.name} has no --{option}"


def test_commands_are_found() -> None:
    assert len(commands("fraxenv")) >= 10
    assert len(commands("python")) + len(commands("bash")) >= 20
