"""`fraxenv list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from ..errors import unknown_name
from ..making.registry import env_spec, list_envs
from ..storage.config import ENVIRONMENTS, TRAINING, describe_preset, list_presets


@dataclass(frozen=True)
class Options:
    """List the environments, and the presets with --presets.

    Attributes:
        pattern: only those whose names contain this, in upper or lower case.
        presets: list the presets of environments and training instead, with what they reach.
    """

    pattern: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="[PATTERN]", help_behavior_hint="")
    ] = ""
    presets: bool = False


def run(options: Options) -> int:
    """Print one line for each; returns the exit status."""
    if options.presets:
        shown = {
            name: describe_preset(kind, name)
            for kind in (ENVIRONMENTS, TRAINING)
            for name in list_presets(kind)
        }
    else:
        shown = {id: env_spec(id).description for id in list_envs()}
    found = {k: v for k, v in shown.items() if options.pattern.lower() in k.lower()}
    if not found:
        raise unknown_name("environment", options.pattern, shown)
    width = max(map(len, found))
    for name, description in found.items():
        print(f"{name:{width}}  {description}".rstrip())
    return 0
