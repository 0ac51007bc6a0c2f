"""Write what the registry knows into docs/environments.md, so that it cannot go stale.

python scripts/document_environments.py            # writes
python scripts/document_environments.py --check    # exits with 1 where it would change anything
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

import fraxenv
from fraxenv.checkpoint import write_atomic
from fraxenv.envs import action_names
from fraxenv.registry import env_spec

PAGE = Path(__file__).parents[1] / "docs" / "environments.md"
START, END = "<!-- from here on written by scripts/document_environments.py -->", "<!-- end -->"


@dataclass(frozen=True)
class Options:
    """Options of the page."""

    check: bool = False
    """Write nothing; exit with 1 if the page is not what it should be."""


def written(text: str) -> str:
    """The page with its generated part as it should be."""
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    parts = [START, _ids(), _spaces(), END]
    return head + "\n\n".join(parts) + tail


def _ids() -> str:
    rows = ["| id | what | action | observation |", "|---|---|---:|---:|"]
    details = []
    for id in fraxenv.list_envs():
        env, params = fraxenv.make(id)
        size = env.observation_space(params).shape[0]
        what = env_spec(id).description.partition(": ")[2]
        rows.append(f"| `{id}` | {what} | {env.num_actions} | {size} |")
        layout = ", ".join(f"`{name}` {n}" for name, n in env.observation_layout.items())
        details.append(f"- `{id}`: {layout}.")
    return "\n".join(
        [
            f"## The {len(fraxenv.list_envs())} registered environments",
            "",
            *rows,
            "",
            "What each observes, in order, with the number of values:",
            "",
            *details,
        ]
    )


def _spaces() -> str:
    rows = ["## Sizes of the action spaces", "", "| `action=` | Panda | UR10 | G1, two hands |"]
    rows.append("|---|---:|---:|---:|")
    for name in action_names():
        sizes = [
            str(fraxenv.make(id, action=name)[0].num_actions)
            for id in ("PandaReach-v0", "UR10Reach-v0", "G1Reach-v0")
        ]
        rows.append(f"| `{name}` | {' | '.join(sizes)} |")
    return "\n".join(rows)


def main() -> int:
    """Run the command line; returns the exit status."""
    options = tyro.cli(Options)
    before = PAGE.read_text("utf-8")
    after = written(before)
    if options.check:
        if before != after:
            print(f"{PAGE} is out of date: run python scripts/document_environments.py")
        return int(before != after)
    write_atomic(PAGE, after.encode())
    print(f"Written to {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
