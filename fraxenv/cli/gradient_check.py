"""`fraxenv gradient-check`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ConfigError, check_count
from ..storage.files import write_atomic
from .common import console, new_folder, wrote
from .subject import MPC, RANDOM, SCRIPTED, EnvArguments, open_subject


@dataclass(frozen=True)
class Options(EnvArguments):
    """Compare an environment's gradients with differences and with estimates without derivatives.

    Also how small displacements grow, which says how long a window a learner can afford.

    Attributes:
        policy: which acts: scripted, or the folder of a training run.
        steps: policy steps of the window.
        environments: states to begin from.
        seed: decides the episodes.
        output: folder of the results; a new one in `runs/` if omitted.
    """

    policy: Annotated[str, tyro.conf.arg(metavar="scripted|RUN", help_behavior_hint="")] = SCRIPTED
    steps: int = 32
    environments: int = 64
    seed: int = 0
    output: Path | None = None


def run(options: Options) -> int:
    """Compute, print, draw; returns the exit status."""
    import jax

    from ..cross_check.gradients import gradient_check
    from ..storage.provenance import provenance

    for name in ("steps", "environments"):
        check_count(f"--{name}", getattr(options, name))
    if options.policy in (RANDOM, MPC):
        raise ConfigError(
            f"--policy {options.policy} has no gradient, expected scripted, or the folder of a "
            "training run."
        )
    subject = open_subject(options, options.policy)
    act: Any = subject.policy
    with console().status(f"Differentiating {subject.title} ..."):
        check = gradient_check(
            subject.env,
            lambda obs: act(obs, jax.random.key(0)),
            subject.params,
            steps=options.steps,
            environments=options.environments,
            seed=options.seed,
        )
    console().print(check.table())
    output = options.output or new_folder(Path("runs"), f"gradients-{subject.env.name}")
    check.plot(output / "gradients.png")
    about: dict[str, Any] = {"environment": subject.recipe, **provenance()}
    numbers = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in asdict(check).items()}
    text = json.dumps({**about, **numbers, "window": check.window}, indent=2)
    write_atomic(output / "gradients.json", text.encode() + b"\n")
    wrote(output, "gradients.png", "gradients.json")
    return 0
