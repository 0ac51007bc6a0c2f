"""`fraxenv cross-check`."""

from __future__ import annotations

from ..cross_check.command import CommandLine as Options
from ..cross_check.command import cross_check


def run(options: Options) -> int:
    """Compare; returns the exit status: 1 where something is beyond tolerance."""
    return cross_check(options)


__all__ = ["Options", "run"]
