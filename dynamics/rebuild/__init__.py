"""Make a bundled robot from a URDF: `dynamics/robots/NAME.urdf` and its companion `NAME.toml`.

    python -m fraxenv.dynamics.rebuild SOURCE.urdf NAME --source "..." --license "..."

Links, joints, inertias, limits and joint dynamics are copied digit by digit. Primitives replace
meshes, spheres replace collision bodies, and sampling finds the pairs of spheres that can touch.
`--shapes-from` keeps shapes that were improved by hand and finds the pairs anew. The same options
give the same files. docs/robots.md has an example.
"""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from fraxenv.errors import ConfigError

from .. import Robot, load_urdf
from .fit import fitted_looks
from .options import Options
from .pairs import Pairs, find_pairs
from .source import add_frames, read
from .write import default_configuration, looks_of, toml_text, urdf_text

__all__ = ["Options", "Rebuilt", "rebuild"]


@dataclass(frozen=True)
class Rebuilt:
    """The two files that `rebuild` wrote, and their contents.

    Attributes:
        urdf: path of the URDF.
        toml: path of its companion.
        robot: the robot that the two files describe.
        mass: kg, of all links, including those fixed to the world.
        pairs: self-collision pairs.
        bones: links that are drawn as bones, because the source has no readable shape for them.
    """

    urdf: Path
    toml: Path
    robot: Robot
    mass: float
    pairs: Pairs
    bones: Sequence[str]


def rebuild(options: Options) -> Rebuilt:
    """Write a robot's URDF and its companion.

    Raises:
        ConfigError: an option is impossible, or the files exist and `force` is not given.
        RobotLoadError: the source, or the file `shapes_from`, is not a URDF that loads.
        UnknownNameError: an option names a link or joint that does not exist.
    """
    urdf_path, toml_path = _targets(options)
    options.output.mkdir(parents=True, exist_ok=True)
    # In the output folder, so that finished files are moved into place atomically.
    with tempfile.TemporaryDirectory(dir=options.output, prefix=".rebuild-") as folder:
        draft = Path(folder) / urdf_path.name
        root = read(options.urdf)
        add_frames(root, options.frames)
        root.set("name", options.name)
        draft.write_bytes(etree.tostring(root))
        source = load_urdf(draft)
        if options.shapes_from is None:
            looks = fitted_looks(root, source, options)
        else:
            looks = looks_of(options.shapes_from)
        draft.write_text(urdf_text(root, looks), "utf-8")

        welded = load_urdf(draft, q_default=default_configuration(draft, options, floating=False))
        pairs = find_pairs(welded, options)
        text = toml_text(draft, options, pairs)
        companion = draft.with_suffix(".toml")
        companion.write_text(text, "utf-8")
        robot = load_urdf(draft, **tomllib.loads(text))
        draft.replace(urdf_path)
        companion.replace(toml_path)
    mass = sum(float(m.get("value")) for m in root.iterfind("link/inertial/mass"))
    return Rebuilt(urdf_path, toml_path, robot, mass, pairs, looks.bones)


def _targets(options: Options) -> tuple[Path, Path]:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", options.name):
        raise ConfigError(
            f"name={options.name!r}, expected lower case letters, digits and underscores, "
            "beginning with a letter, such as 'iiwa14'."
        )
    if options.shapes_from is None and not (options.source and options.license):
        raise ConfigError(
            "the header has to say where the source comes from and under which licence. Pass "
            '--source "FILE of WHAT, VERSION" and --license NAME.'
        )
    if options.samples < 2:
        raise ConfigError(f"samples={options.samples}, expected at least 2.")
    targets = options.output / f"{options.name}.urdf", options.output / f"{options.name}.toml"
    existing = [str(path) for path in targets if path.exists()]
    if existing and not options.force:
        raise ConfigError(
            f"{' and '.join(existing)} exist already. Pass --force to replace them, or --output "
            "FOLDER to write elsewhere."
        )
    return targets
