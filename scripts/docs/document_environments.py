"""Write what the registry knows into docs/, so that it cannot go stale.

docs/environments.md gets its tables, and every registered environment a page with a picture in
docs/environments/, and with a film where its task has an expert.

    python scripts/docs/document_environments.py            # writes; draws what lacks
    python scripts/docs/document_environments.py --redraw   # draws all of them
    python scripts/docs/document_environments.py --check    # exits with 1 if it would change any
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from PIL import Image
from rich.progress import track

import fraxenv
from fraxenv.envs import Pull, Trot, action_names, mpc_policy
from fraxenv.envs.tasks.experts import EXPERTS
from fraxenv.making.registry import env_spec
from fraxenv.media import rollouts
from fraxenv.recording.scripted import expert_policy
from fraxenv.rendering import render_env
from fraxenv.storage.files import write_atomic

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "environments.md"
START = "<!-- from here on written by scripts/docs/document_environments.py -->"
END = "<!-- end -->"
SEED = 7  # of the pictures: goals well in sight

PLANNED = (Trot, Pull)
"""Tasks whose films are of plans."""


@dataclass(frozen=True)
class Options:
    """Options of the pages."""

    check: bool = False
    """Write nothing; exit with 1 if a page is not what it should be, or lacks a picture or film."""
    redraw: bool = False
    """Draw pictures and films that there are, too."""


def pages() -> Iterator[tuple[Path, str]]:
    """Every page, as it should be."""
    yield PAGE, _with_tables(PAGE.read_text("utf-8"))
    for id in fraxenv.list_envs():
        yield DOCS / "environments" / f"{id}.md", _page(id)


made = functools.cache(fraxenv.make)


def _with_tables(text: str) -> str:
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    parts = [START, _ids(), _spaces(), END]
    return head + "\n\n".join(parts) + tail


def _ids() -> str:
    rows = ["| id | what | action | observation |", "|---|---|---:|---:|"]
    for id in fraxenv.list_envs():
        env, params = made(id)
        size = env.observation_space(params).shape[0]
        what = env_spec(id).description.partition(": ")[2]
        rows.append(f"| [`{id}`](environments/{id}.md) | {what} | {env.num_actions} | {size} |")
    return "\n".join([f"## The {len(fraxenv.list_envs())} registered environments", "", *rows])


def _page(id: str) -> str:
    """The page of a registered environment."""
    env, params = made(id)
    steps = int(np.asarray(params.max_steps_in_episode))
    safety = "The safety filter is on." if params.safety is not None else "No safety filter."
    parts = [
        f"# {id}",
        f"{env_spec(id).description}.",
        f"![{id}]({id}.png)" + (f" ![its expert]({id}.gif)" if _has_film(id) else ""),
        f'```python\nimport fraxenv\n\nenv, params = fraxenv.make("{id}")\n```',
        f"Actions at {env.policy_hz} Hz, controller at {env.control_hz} Hz, physics at "
        f"{env.physics_hz} Hz; an episode has {steps} steps, {steps / env.policy_hz:g} s. {safety}",
        _table(
            "## Action",
            "| | name | -1 means | 1 means | unit |\n|---:|---|---:|---:|---|",
            [
                f"{i} | `{a.name}` | {a.low:g} | {a.high:g} | {a.unit}"
                for i, a in enumerate(params.action.axes(env.robot))
            ],
        ),
        _table(
            "## Observation",
            "| numbers | name | unit |\n|---:|---|---|",
            [
                f"{n} | `{name}` | {params.task.observation_units.get(name, '')}"
                for name, n in env.observation_layout.items()
            ],
        ),
        _table(
            "## Reward",
            "| term | weight |\n|---|---:|",
            [
                f"`{name}` | {float(np.asarray(weight)):g}"
                for name, weight in params.task.reward_weights.items()
            ],
        ),
        "[All environments](../environments.md) has the options that change any of this.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(title: str, header: str, rows: list[str]) -> str:
    return "\n".join([title, "", header, *(f"| {row} |" for row in rows)])


def picture(id: str) -> bytes:
    """A PNG of an environment at the beginning of an episode."""
    env, params = made(id)
    _, state = env.reset(jax.random.key(SEED), params)
    buffer = io.BytesIO()
    # The renderer that draws the same bytes on every machine.
    drawn = render_env(env, state, params, 600, 450, renderer="raycast")
    Image.fromarray(drawn).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def film(id: str, path: Path) -> None:
    """Write a film of an episode of a task's expert, or of plans."""
    env, params = made(id)
    plans = isinstance(params.task, Trot)
    act: Any = mpc_policy(env, params) if plans else expert_policy(env, params)
    shown = rollouts.roll_out(env, params, act, jax.random.key(SEED), episodes=1)
    rollouts.film(path, env, params, *shown, size=240, frames_per_second=10)


def _has_film(id: str) -> bool:
    return type(made(id)[1].task) in (*EXPERTS, *PLANNED)


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
    folder, ids = DOCS / "environments", fraxenv.list_envs()
    drawn = [folder / f"{id}.png" for id in ids]
    drawn += [folder / f"{id}.gif" for id in ids if _has_film(id)]
    stale = [p for p, text in pages() if not p.exists() or p.read_text("utf-8") != text]
    undrawn = [p for p in drawn if options.redraw or not p.exists()]
    if options.check:
        for path in stale + undrawn:
            print(f"{path} is out of date: run python scripts/docs/document_environments.py")
        return int(bool(stale + undrawn))
    for path, text in pages():
        write_atomic(path, text.encode())
    for path in track(undrawn, "drawing", transient=True):
        if path.suffix == ".gif":
            film(path.stem, path)
        else:
            write_atomic(path, picture(path.stem))
    print(f"Written to {PAGE} and {PAGE.with_suffix('')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
