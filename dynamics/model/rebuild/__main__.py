"""`python -m fraxenv.dynamics.model.rebuild`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import tyro

from ...errors import FraxenvError
from . import Options, rebuild


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        rebuild(tyro.cli(Options, args=sys.argv[1:] if argv is None else list(argv)))
    except FraxenvError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
