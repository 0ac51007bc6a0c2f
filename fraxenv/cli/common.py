"""What commands have in common: parsing, evaluating with a bar, and naming what was written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import import_extra
from ..interrupt import interruptible
from ..progress import progress

if TYPE_CHECKING:
    from ..envs import Environment, EnvParams
    from ..training import Evaluation

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit statuses, as shells have them."""

T = TypeVar("T")


def parse(options: type[T], command: str, argv: Sequence[str], default: T | None = None) -> T:
    """The options of a command line; exits with a message where it cannot be understood."""
    tyro = import_extra("tyro", "cli", "The command line")
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalRequiredArgs)
    more = {} if default is None else {"default": default}
    parsed: T = tyro.cli(options, prog=f"fraxenv {command}", args=argv, config=config, **more)
    return parsed


def console() -> Any:
    """The console; as wide as it takes where nobody's terminal is."""
    rich = import_extra("rich.console", "cli", "The command line")
    made = rich.Console()
    return made if made.is_terminal else rich.Console(width=140)


def new_folder(runs: Path, name: str) -> Path:
    """The default folder of a command's files, named by the time."""
    return runs / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def evaluate_with_bar(
    env: Environment,
    params: EnvParams,
    policy: Any,
    episodes: int,
    seed: int | None = None,
    name: str = "",
) -> tuple[Evaluation, bool]:
    """Evaluate a policy with a progress bar; the first Ctrl-C ends it after a part.

    Args:
        env: the environment.
        params: its parameters.
        policy: action (k,) of an observation (n,); a pytree.
        episodes: how many.
        seed: decides the episodes; the default is what training runs are judged by.
        name: of the policy, for the bar.

    Returns:
        The evaluation of the episodes that were run, and whether they are all.
    """
    from ..training.evaluation import FRESH_GOALS, evaluate_in_parts, join_evaluations

    seed = FRESH_GOALS if seed is None else seed
    parts: list[Evaluation] = []
    done = 0
    title = f"evaluating {name}".strip() + f" on {episodes} fresh goals"
    with interruptible("Stopping after this part") as stop, progress(title, episodes) as show:
        for part in evaluate_in_parts(env, params, policy, episodes, seed):
            parts.append(part)
            done += len(part.success)
            show(done)
            if stop():
                break
    return join_evaluations(parts), done >= episodes


def wrote(folder: Path, *files: str) -> None:
    """Name the files that were written."""
    print(f"Written to {folder}/: {', '.join(files)}")
