"""Options of rebuilding a robot."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROBOTS: Final = Path(__file__).resolve().parents[1] / "robots"


@dataclass(frozen=True)
class Options:
    """Rebuild a bundled robot from a source URDF.

    Attributes:
        urdf: the source URDF; a xacro file has to be expanded first.
        name: name of the robot and its files: lower case, digits and underscores.
        source: origin of the source, for the header, e.g. "iiwa14.urdf of frax 0.1.0".
        license: licence of the source, for the header, e.g. "BSD-3-Clause". Neither is needed with
            `shapes_from`, which brings a header.
        output: folder to write into.
        force: replace files that exist.
        end_effectors: ALIAS LINK ...; the leaf links under their own names if omitted.
        default: JOINT VALUE ... of the default configuration, rad and m; the others are at zero
            where their limits allow it, else in the middle.
        frames: NAME LINK X Y Z ...; massless links to add, fixed to LINK, m.
        floating_base: whether the root link floats.
        base_height: height of a floating root link in the default configuration, m.
        meshes: folder to search, by file name with any ending, for meshes that are missing where
            the source has them.
        shapes_from: a rebuilt file whose header, colours, visual and collision shapes to keep.
        bare: links whose bodies get no sphere, because others hide them.
        collision_spheres: total number of spheres; a moving body has at least one.
        collision_pairs: largest number of pairs.
        clearance: least distance of a pair in the default configuration, m.
        keep_clear: LINK LINK ...; pairs of links that the mechanism keeps apart by itself.
        first_pairs: SPHERE SPHERE ...; pairs to begin with, for rare collisions that matter.
        coverage: fraction of the colliding configurations at which to stop adding pairs.
        samples: number of random configurations.
        seed: seed of the random configurations.
    """

    urdf: Path
    name: str
    source: str = ""
    license: str = ""
    output: Path = ROBOTS
    force: bool = False
    end_effectors: dict[str, str] = field(default_factory=dict)
    default: dict[str, float] = field(default_factory=dict)
    frames: tuple[tuple[str, str, float, float, float], ...] = ()
    floating_base: bool = False
    base_height: float = 0.0
    meshes: Path | None = None
    shapes_from: Path | None = None
    bare: tuple[str, ...] = ()
    collision_spheres: int = 24
    collision_pairs: int = 20
    clearance: float = 0.01
    keep_clear: tuple[tuple[str, str], ...] = ()
    first_pairs: tuple[tuple[str, str], ...] = ()
    coverage: float = 0.98
    samples: int = 20_000
    seed: int = 0
