"""The house as its imports draw it: no circle between files, and few rooms with few arrows.

Who may know whom is held by the contracts in pyproject.toml.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytest.importorskip("grimp")

ROOT = Path(__file__).parents[1]
FOLDERS = ("configs", "controllers", "dynamics", "envs")

ROOMS, ARROWS = 22, 83
"""At most: folders and modules right below `fraxenv`, and imports of one by another."""

DRAW = """
import grimp, json
graph = grimp.build_graph("fraxenv", cache_dir=None)
imports = graph.find_modules_directly_imported_by
print(json.dumps({module: sorted(imports(module)) for module in sorted(graph.modules)}))
"""

Imports = Mapping[str, list[str]]


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Imports:
    """Module -> the modules that it imports, in the layout that an installed copy has."""
    copy = tmp_path_factory.mktemp("copy")
    package = copy / "fraxenv"
    package.mkdir()
    for path in (ROOT / "fraxenv").iterdir():
        if path.name not in FOLDERS:
            (package / path.name).symlink_to(path)
    for folder in FOLDERS:
        (package / folder).symlink_to(ROOT / folder)
    drawn = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(copy)!r})\n{DRAW}"],
        cwd=copy,
        capture_output=True,
        text=True,
        check=True,
    )
    found: Imports = json.loads(drawn.stdout)
    return found


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def rooms_and_arrows(imports: Imports) -> tuple[set[str], set[tuple[str, str]]]:
    arrows = {(room(a), room(b)) for a, others in imports.items() for b in others}
    return {room(module) for module in imports}, {(a, b) for a, b in arrows if a != b}


def circle(imports: Imports) -> list[str]:
    """Modules of which each imports the one before it; none if there is no circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_file_imports_one_that_imports_it(imports: Imports) -> None:
    assert len(imports) > 150  # all layers are there
    assert circle(imports) == []


def test_few_rooms_with_few_arrows(imports: Imports) -> None:
    rooms, arrows = rooms_and_arrows(imports)
    assert {"controllers", "dynamics", "envs", "kernels", "cli"} <= rooms
    assert len(rooms) <= ROOMS, sorted(rooms)
    assert len(arrows) <= ARROWS, sorted(arrows)


def test_a_circle_would_be_seen(imports: Imports) -> None:
    module = "fraxenv.dynamics.crba"
    assert "fraxenv.errors" in {b for a in imports[module] for b in (a, *imports[a])}
    assert circle({**imports, "fraxenv.errors": [module]})
