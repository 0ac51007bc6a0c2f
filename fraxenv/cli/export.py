"""`fraxenv export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..making.make import make
from .common import wrote
from .subject import EnvArguments, check_run, recipe


@dataclass(frozen=True)
class Options(EnvArguments):
    """Write an environment's controller as a library that a C program calls.

    Functions to begin, to take an action, to take a control step with the safety filter, of the
    dynamics, and of a trained policy; with a header and a program that tests them.

    Attributes:
        policy: the folder of a training run, whose policy becomes a function too; its environment
            is taken if no ID is given.
        name: of the library, as C has names.
        kind: of the library; an object file needs no compiler here.
        target: the processor; "native" is this one.
        output: folder of the files.
    """

    policy: Annotated[str, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = ""
    name: str = "arm"
    kind: Literal["shared", "static", "object"] = "shared"
    target: Literal["native", "x86-64-v3", "x86-64-v4", "aarch64"] = "native"
    output: Path = Path(".")


def run(options: Options) -> int:
    """Write the library; returns the exit status."""
    from ..envs import arm_library
    from ..kernels import export

    act = None
    if options.policy:
        from ..training import load_policy

        check_run(options.policy)
        act, _, _, config = load_policy(options.policy)
        made = recipe(options, {"id": config.env, **config.overrides})
    else:
        made = recipe(options)
    env, params = make(**made)
    library = export(
        **arm_library(env, params, act),
        name=options.name,
        kind=options.kind,
        target=options.target,
        output=options.output,
    )
    print(f"{env.name}: {', '.join(f'{f}()' for f in library.functions)}, for {library.target}")
    files = library.library, library.header, library.test
    wrote(options.output, *(path.name for path in files))
    return 0
