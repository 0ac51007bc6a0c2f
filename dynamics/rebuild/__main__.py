"""The command line: `python -m fraxenv.dynamics.rebuild --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fraxenv.errors import FraxenvError, import_extra

from . import Options, Rebuilt, rebuild


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        tyro = import_extra("tyro", "cli", "The command line")
        options = tyro.cli(
            Options,
            prog=f"python -m {__package__}",
            args=sys.argv[1:] if argv is None else list(argv),
            config=(tyro.conf.PositionalRequiredArgs, tyro.conf.FlagCreatePairsOff),
        )
        report(rebuild(options))
    except (FraxenvError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def report(made: Rebuilt) -> None:
    """Print a summary of the files."""
    print(f"Wrote {made.urdf} and {made.toml}.")
    if made.bones:
        print(
            f"No mesh or shape could be read for {', '.join(made.bones)}: drawn as bones between "
            "joints. Say where the meshes are with --meshes FOLDER."
        )
    topology, pairs = made.robot.topology, made.pairs
    print(
        f"{made.robot.name}: {made.robot.nv} degrees of freedom, {made.mass:.4g} kg, "
        f"{len(topology.collision_shapes)} spheres, {len(pairs.names)} pairs."
    )
    if pairs.names:
        print(
            f"At q_default the closest pair is {pairs.clearance:.3f} m apart; the pairs find "
            f"{pairs.coverage:.1%} of the colliding configurations, which are "
            f"{pairs.colliding:.1%} of all."
        )


if __name__ == "__main__":
    sys.exit(main())
