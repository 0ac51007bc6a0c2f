"""Make a bundled robot from a URDF: `dynamics/robots/NAME.urdf` and its companion `NAME.toml`.

    python scripts/rebuild_robot.py SOURCE.urdf NAME --source "..." --license "..."

Links, joints, inertias, limits and joint dynamics are copied digit by digit. Meshes give way to
primitives, collision bodies to spheres, and the pairs of spheres that can touch are found by
sampling. `--shapes-from` keeps shapes that were improved by hand and finds the pairs anew. The
same options give the same files. docs/robots.md shows it at work.
"""

from __future__ import annotations

import heapq
import itertools
import json
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import quoteattr

import jax
import numpy as np
import trimesh
import tyro
from lxml import etree
from numpy.typing import NDArray
from rich.progress import track
from tyro.conf import Positional

from fraxenv import dynamics
from fraxenv.dynamics import Robot, Shape
from fraxenv.dynamics.model.robot import WORLD
from fraxenv.errors import (
    ConfigError,
    FraxenvError,
    RobotLoadError,
    unknown_name,
)
from fraxenv.storage.files import write_atomic

Array = NDArray[np.float64]
Element = Any  # lxml's elements are not typed

ROBOTS: Final = Path(__file__).resolve().parents[1] / "dynamics" / "robots"

# What is copied of a link's <inertial> and of a joint.
_JOINT_PARTS: Final = ("parent", "child", "origin", "axis", "limit", "dynamics", "mimic")
_INERTIAL_PARTS: Final = ("origin", "mass", "inertia")
_SHELL: Final = ("shell", "0.93 0.94 0.95 1")  # where the source says no colour

_SURFACE_POINTS: Final = 3000  # per mesh
_FIT_POINTS: Final = 1000  # per fit
_CUTS: Final = 8  # places per axis where a shape may be cut in two
_OVERHANG: Final = 0.02  # m, how far an edge may stick out of its sphere
_CLOSE: Final = 1.1  # a fit of so many times the least volume is good enough
_MIN_SIZE: Final = 0.004  # m, of a primitive
_PENETRATION: Final = 0.01  # m, from where on two spheres count as colliding
_BATCH: Final = 500  # sampled configurations at a time
_FREE_RANGE: Final = np.pi  # rad or m, either side of the default, of a joint without limits


@dataclass(frozen=True)
class Options:
    """Rebuild a bundled robot from a source URDF.

    Attributes:
        urdf: the source; a xacro file has to be expanded first.
        name: of the robot, which names the files: lower case, digits and underscores.
        source: where the source comes from, for the header, e.g. "iiwa14.urdf of frax 0.1.0".
        license: of the source, for the header, e.g. "BSD-3-Clause". Neither is needed with
            `shapes_from`, which brings a header.
        output: folder to write into.
        force: replace files that exist.
        end_effectors: ALIAS LINK ...; the leaf links under their own names if omitted.
        default: JOINT VALUE ... of the default configuration, rad and m; the others are at zero
            where their limits allow it, else in the middle.
        frames: NAME LINK X Y Z ...; massless links to add, fixed to LINK, m.
        floating_base: whether the root link floats.
        base_height: of a floating root link in the default configuration, m.
        meshes: folder where meshes that are not where the source says are looked up by file name,
            whatever the ending.
        shapes_from: a file made before: take its header, colours, visual and collision shapes.
        bare: links whose bodies get no sphere, because others hide them.
        collision_spheres: number of spheres in all; a body that moves has at least one.
        collision_pairs: number of pairs, at most.
        clearance: least distance of a pair in the default configuration, m.
        keep_clear: LINK LINK ...; pairs of links that the mechanism keeps apart by itself.
        first_pairs: SPHERE SPHERE ...; pairs to begin with, of what is rare but matters.
        coverage: share of the colliding configurations at which to stop adding pairs.
        samples: number of random configurations.
        seed: of the random configurations.
    """

    urdf: Positional[Path]
    name: Positional[str]
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


@dataclass(frozen=True)
class Looks:
    """What stands in for the meshes.

    Attributes:
        header: the comment at the top of the file.
        materials: name -> rgba.
        shapes: link -> its <visual> and <collision> elements as lines of XML.
        bones: links that are drawn as bones, because the source shows nothing that can be read.
    """

    header: str
    materials: Mapping[str, str]
    shapes: Mapping[str, list[str]]
    bones: Sequence[str] = ()


@dataclass(frozen=True)
class Pairs:
    """Self-collision pairs and what is known about them.

    Attributes:
        names: of the spheres.
        clearance: of the closest pair in the default configuration, m; infinite without pairs.
        colliding: share of the random configurations in which any spheres of bodies that are not
            neighbours interpenetrate.
        coverage: share of those that the pairs find, measured on configurations that they were not
            chosen from; NaN if none collides.
    """

    names: list[tuple[str, str]]
    clearance: float
    colliding: float
    coverage: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        rebuild(tyro.cli(Options, args=sys.argv[1:] if argv is None else list(argv)))
    except FraxenvError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def rebuild(options: Options) -> None:
    """Make the two files and say what is in them.

    Raises:
        ConfigError: an option that cannot be; the files exist and `force` is not given.
        RobotLoadError: the source, or a file to take shapes from, is not a URDF that loads.
        UnknownNameError: an option names a link or joint that does not exist.
    """
    urdf_path, toml_path = _targets(options)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / urdf_path.name
        root = _read(options.urdf)
        _add_frames(root, options.frames)
        root.set("name", options.name)
        draft.write_bytes(etree.tostring(root))
        source = dynamics.load_urdf(draft)
        if options.shapes_from is None:
            looks = _fitted_looks(root, source, options)
        else:
            looks = _looks_of(options.shapes_from)
        draft.write_text(_urdf_text(root, looks), "utf-8")

        welded = dynamics.load_urdf(draft, q_default=_default(draft, options, floating=False))
        pairs = _find_pairs(welded, options)
        text = _toml_text(draft, options, pairs)
        robot = dynamics.load_urdf(draft, **tomllib.loads(text))
        urdf = draft.read_bytes()
    write_atomic(urdf_path, urdf)
    write_atomic(toml_path, text.encode())

    print(f"Wrote {urdf_path} and {toml_path}.")
    if looks.bones:
        print(
            f"No mesh or shape could be read for {', '.join(looks.bones)}: drawn as bones between "
            "joints. Say where the meshes are with --meshes FOLDER."
        )
    mass = sum(float(m.get("value")) for m in root.iterfind("link/inertial/mass"))
    print(
        f"{options.name}: {robot.nv} degrees of freedom, {mass:.4g} kg, "
        f"{len(robot.topology.collision_shapes)} spheres, {len(pairs.names)} pairs."
    )
    if pairs.names:
        print(
            f"At q_default the closest pair is {pairs.clearance:.3f} m apart; the pairs find "
            f"{pairs.coverage:.1%} of the colliding configurations, which are "
            f"{pairs.colliding:.1%} of all."
        )


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


# --- the source -----------------------------------------------------------------------------------


def _read(path: Path, comments: bool = False) -> Element:
    """Parse a URDF without entities or network access; `load_urdf` checks what is in it."""
    try:
        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, remove_comments=not comments
        )
        return etree.fromstring(path.read_bytes(), parser)
    except (OSError, etree.XMLSyntaxError) as error:
        raise RobotLoadError(
            f"{path}: cannot be read as XML: {error}. Expected a URDF; expand a xacro file first "
            "(`xacro in.xacro > out.urdf`)."
        ) from error


def _add_frames(root: Element, frames: Sequence[tuple[str, str, float, float, float]]) -> None:
    for name, parent, *xyz in frames:
        etree.SubElement(root, "link", name=name)
        joint = etree.SubElement(root, "joint", name=f"{name}_joint", type="fixed")
        etree.SubElement(joint, "parent", link=parent)
        etree.SubElement(joint, "child", link=name)
        etree.SubElement(joint, "origin", xyz=_numbers(xyz))


def _origin(element: Element) -> Array:
    """Pose (4, 4) of what has an <origin>, or may have."""
    origin = element.find("origin")
    xyz, rpy = (
        np.array((("" if origin is None else origin.get(k)) or "0 0 0").split(), float)
        for k in ("xyz", "rpy")
    )
    pose = trimesh.transformations.euler_matrix(*rpy, axes="sxyz")
    pose[:3, 3] = xyz
    return pose


def _colours(root: Element) -> dict[str, str]:
    """Materials that are defined anywhere: name -> rgba."""
    return {
        m.get("name"): m.find("color").get("rgba")
        for m in root.iter("material")
        if m.get("name") and m.find("color") is not None
    }


def _parts(link: Element, options: Options) -> list[tuple[str, Shape | Array]]:
    """What a link looks like in its frame: a material, and a primitive or points of a surface.

    From its visual elements, or from the collision elements where meshes cannot be read.
    """
    for tag in ("visual", "collision"):
        parts = []
        for element in link.iterfind(tag):
            material = element.find("material")
            colour = _SHELL[0] if material is None else material.get("name") or _SHELL[0]
            parts.append((colour, _shape(element, options)))
        found = [(colour, shape) for colour, shape in parts if shape is not None]
        if found and len(found) == len(parts):
            return found
    return []


def _shape(element: Element, options: Options) -> Shape | Array | None:
    geometry = element.find("geometry")[0]
    pose = _origin(element)
    place = pose[:3, 3], pose[:3, :3]
    match geometry.tag:
        case "sphere":
            return Shape("sphere", (float(geometry.get("radius")),), *place)
        case "cylinder":
            size = float(geometry.get("radius")), float(geometry.get("length"))
            return Shape("cylinder", size, *place)
        case "box":
            return Shape("box", tuple(map(float, geometry.get("size").split())), *place)
        case _:
            path = _mesh_path(geometry.get("filename"), options)
            scale = np.array((geometry.get("scale") or "1 1 1").split(), float)
            points = None if path is None else _mesh_points(path)
            return None if points is None else points * scale @ place[1].T + place[0]


def _mesh_path(name: str, options: Options) -> Path | None:
    """Where a mesh is: beside the source, below a folder that holds it, or in `meshes`."""
    relative = re.sub(r"^(package|file|model)://", "", name).lstrip("/")
    for folder in options.urdf.resolve().parents:
        for part in (relative, relative.partition("/")[2]):
            if part and (folder / part).is_file():
                return folder / part
    if options.meshes is not None:
        return next(iter(sorted(options.meshes.rglob(f"{Path(relative).stem}.*"))), None)
    return None


def _mesh_points(path: Path) -> Array | None:
    """Points (m, 3) spread over the surface of a mesh, or None if it cannot be read."""
    try:
        mesh = trimesh.load(path, force="mesh")
        points, _ = trimesh.sample.sample_surface(mesh, _SURFACE_POINTS, seed=0)
    except Exception:  # readers of meshes raise what they like
        return None
    return np.asarray(points, float)


def _bones(robot: Robot, body: int) -> list[Shape]:
    """Cylinders from a body's frame to the joints that it carries, or to its centre of mass."""
    topology = robot.topology
    ends = list(topology.position[topology.parent == body])
    if not ends and body != WORLD:
        ends = [np.asarray(robot.com)[body]]
    bones = []
    for end in ends:
        length = float(np.linalg.norm(end))
        if length > _MIN_SIZE:
            radius = float(np.clip(0.15 * length, 0.01, 0.06))
            frame = trimesh.geometry.align_vectors([0, 0, 1], end)[:3, :3]
            bones.append(Shape("cylinder", (radius, length), end / 2, frame))
    return bones or [Shape("sphere", (0.02,), np.zeros(3), np.eye(3))]


# --- fitting --------------------------------------------------------------------------------------


def _surface(shape: Shape | Array) -> Array:
    """Points (m, 3) of a shape's surface."""
    if not isinstance(shape, Shape):
        return shape
    match shape.kind:
        case "sphere":
            mesh = trimesh.creation.icosphere(radius=shape.size[0], subdivisions=2)
        case "cylinder":
            mesh = trimesh.creation.cylinder(radius=shape.size[0], height=shape.size[1])
        case _:
            mesh = trimesh.creation.box(extents=shape.size)
    points, _ = trimesh.sample.sample_surface(mesh, _SURFACE_POINTS, seed=0)
    return points @ shape.rotation.T + shape.position


def _principal_axes(points: Array) -> Array:
    """Right-handed, orthonormal columns (3, 3): the directions that the points spread along."""
    _, _, rows = np.linalg.svd(points - points.mean(0), full_matrices=False)
    axes = rows.T
    return axes * np.array([1.0, 1.0, np.sign(np.linalg.det(axes))])


def _ball(points: Array) -> Shape:
    """The smallest sphere around points, but for edges that stick out by up to `_OVERHANG`."""
    centre = (points.min(0) + points.max(0)) / 2
    for k in range(1, 60):  # Badoiu and Clarkson: step by step towards the farthest point
        centre += (points[np.argmax(((points - centre) ** 2).sum(1))] - centre) / (k + 1)
    distance = np.linalg.norm(points - centre, axis=1)
    radius = max(np.quantile(distance, 0.9), distance.max() - _OVERHANG, _MIN_SIZE)
    return Shape("sphere", (float(radius),), centre, np.eye(3))


def _volume(shape: Shape) -> float:
    """m^3."""
    match shape.kind:
        case "sphere":
            return float(4 / 3 * np.pi * shape.size[0] ** 3)
        case "cylinder":
            return float(np.pi * shape.size[0] ** 2 * shape.size[1])
        case _:
            return float(np.prod(shape.size))


def _primitive(points: Array) -> Shape:
    """The box, cylinder or sphere of least volume that fits points, preferably along the axes."""
    candidates = [(1.0, _ball(points))]
    for preference, frame in ((1.0, np.eye(3)), (1.15, _principal_axes(points))):
        local = points @ frame
        low, high = local.min(0), local.max(0)
        centre, extent = (low + high) / 2, np.maximum(high - low, _MIN_SIZE)
        size = tuple(float(x) for x in extent)
        candidates.append((preference, Shape("box", size, frame @ centre, frame)))
        for k in range(3):
            across = np.delete(local - centre, k, axis=1)
            radius = max(float(np.quantile(np.hypot(*across.T), 0.95)), _MIN_SIZE / 2)
            turned = np.roll(frame, 2 - k, axis=1)
            place = frame @ centre, turned
            candidates.append((preference, Shape("cylinder", (radius, size[k]), *place)))
    return min(candidates, key=lambda c: c[0] * _volume(c[1]))[1]


def _best_cut(
    points: Array,
    fit: Callable[[Array], Shape],
    cost: Callable[[Sequence[float]], float] = sum,
    most: int = 2,
) -> tuple[float, list[Array]] | None:
    """Cut across an axis into two to `most` parts that are fitted one by one.

    Returns:
        What the best cut saves of the cost of volumes per part that it adds, m^3, and the parts;
        None if there are too few points.
    """
    whole = _volume(fit(points))
    best = None
    for axis in np.concatenate([np.eye(3), _principal_axes(points).T]):
        along = points @ axis
        slab = np.digitize(along, np.linspace(along.min(), along.max(), _CUTS + 2)[1:-1])

        @cache
        def volume(start: int, end: int, slab: Array = slab) -> float:
            part = points[(slab >= start) & (slab < end)]
            return _volume(fit(part)) if len(part) > 0.05 * len(points) + 8 else np.inf

        for count in range(2, most + 1):
            for cuts in itertools.combinations(range(1, _CUTS + 1), count - 1):
                bounds = list(itertools.pairwise((0, *cuts, _CUTS + 1)))
                saved = (whole - cost([volume(i, j) for i, j in bounds])) / (count - 1)
                if np.isfinite(saved) and (best is None or saved > best[0]):
                    best = saved, [points[(slab >= i) & (slab < j)] for i, j in bounds]
    return best


def _both_as_the_larger(volumes: Sequence[float]) -> float:
    """A cost that favours even cuts, and does not cut flat things, of which it would save none."""
    return 2 * max(volumes)


def _fit_primitives(points: Array, most: int = 5) -> list[Shape]:
    """As few primitives as come close to the least volume, `most` at most."""
    pieces = [points[:: max(1, len(points) // _FIT_POINTS)]]
    fits = [[_primitive(pieces[0])]]
    while len(pieces) < most:
        parts = min(3, most - len(pieces) + 1)
        cuts = [(_best_cut(p, _primitive, most=parts), i) for i, p in enumerate(pieces)]
        best = max(((cut, i) for cut, i in cuts if cut), key=lambda c: c[0][0], default=None)
        if best is None:
            break
        (_, sides), i = best
        pieces[i : i + 1] = sides
        fits.append([_primitive(piece) for piece in pieces])
    volumes = [sum(map(_volume, fit)) for fit in fits]
    return next(f for f, v in zip(fits, volumes, strict=True) if v <= _CLOSE * min(volumes))


def _fit_spheres(surfaces: Mapping[int, Array], count: int) -> dict[int, list[Shape]]:
    """Spheres that cover surfaces: one each, then the most wasteful is cut in two until `count`."""
    spheres: dict[int, list[Shape]] = {body: [] for body in surfaces}
    order = itertools.count()  # breaks ties, so that arrays are never compared
    heap: list[tuple[float, int, int, Array, list[Array] | None]] = []

    def push(body: int, points: Array) -> None:
        saved, sides = _best_cut(points, _ball, _both_as_the_larger) or (0.0, None)
        heapq.heappush(heap, (-saved, next(order), body, points, sides))

    for body, points in surfaces.items():
        push(body, points[:: max(1, len(points) // _FIT_POINTS)])
    while len(heap) < count and heap[0][0] < 0:
        _, _, body, _, sides = heapq.heappop(heap)
        assert sides is not None
        for side in sides:
            push(body, side)
    for _, _, body, points, _ in sorted(heap, key=lambda entry: entry[1]):
        spheres[body].append(_ball(points))
    return spheres


def _fitted_looks(root: Element, robot: Robot, options: Options) -> Looks:
    """Primitives and spheres fitted to what the source shows, or to bones."""
    links = {link.get("name"): link for link in root.iterfind("link")}
    for name in options.bare:
        if name not in links:
            raise unknown_name("link", name, links)
    body_of = {frame.name: frame.body for frame in robot.topology.frames}
    visuals: dict[str, list[tuple[str, Shape]]] = {}
    surfaces: dict[int, list[Array]] = {}
    carrier: dict[int, str] = {}  # the link of a body that its spheres are written to
    poses = {}
    for frame in robot.topology.frames:
        pose = poses[frame.name] = np.eye(4)
        pose[:3, :3], pose[:3, 3] = frame.rotation, frame.position
        for colour, shape in _parts(links[frame.name], options):
            drawn = [shape] if isinstance(shape, Shape) else _fit_primitives(shape)
            visuals.setdefault(frame.name, []).extend((colour, s) for s in drawn)
            points = _surface(shape) @ frame.rotation.T + frame.position
            surfaces.setdefault(frame.body, []).append(points)
            carrier.setdefault(frame.body, frame.name)
    bones: list[str] = []
    for frame in robot.topology.frames:
        if frame.body not in surfaces and np.array_equal(poses[frame.name], np.eye(4)):
            drawn = _bones(robot, frame.body)
            visuals[frame.name] = [(_SHELL[0], bone) for bone in drawn]
            surfaces[frame.body] = [_surface(bone) for bone in drawn]
            carrier[frame.body] = frame.name
            bones.append(frame.name)
    bare = {body_of[name] for name in options.bare}
    spheres = _fit_spheres(
        {b: np.concatenate(s) for b, s in surfaces.items() if b not in bare},
        options.collision_spheres,
    )

    shapes: dict[str, list[str]] = {name: [] for name in links}
    for name, drawn in visuals.items():
        for colour, shape in drawn:
            shapes[name] += _shape_lines("visual", shape, colour=colour)
    for body, balls in spheres.items():
        link = carrier[body]
        inverse = np.linalg.inv(poses[link])
        for k, ball in enumerate(balls, 1):
            position = inverse[:3, :3] @ ball.position + inverse[:3, 3]
            moved = Shape("sphere", ball.size, position, np.eye(3))
            shapes[link] += _shape_lines("collision", moved, name=f"{link}_{k}")
    count = sum(map(len, spheres.values()))
    drawn_count = sum(map(len, visuals.values()))
    return Looks(
        _header(options, drawn_count, count, bones),
        dict([_SHELL]) | _colours(root),
        shapes,
        bones,
    )


def _header(options: Options, visuals: int, spheres: int, bones: Sequence[str]) -> str:
    fitted = "the source's shapes"
    if bones:
        fitted += f", and to bones between joints for {', '.join(bones)}"
    text = f"""
  {options.name}, made by scripts/rebuild_robot.py; primitives only, no meshes. SI units, radians.

  Where the numbers come from
    source      {options.source}
    licence     of the source: {options.license}
    kinematics, limits, joint dynamics, inertia
                of the source, digit by digit.
    visual      {visuals} primitives fitted to {fitted}.
    collision   {spheres} spheres fitted to the same, named LINK_NUMBER for the pairs in
                {options.name}.toml.
"""
    return re.sub("--+", "-", text)


# --- writing --------------------------------------------------------------------------------------


def _numbers(values: Sequence[float] | Array) -> str:
    return " ".join(f"{round(float(x), 4) + 0.0:g}" for x in values)


def _tag(element: Element) -> str:
    """An element with its attributes as they are, but without children and foreign attributes."""
    kept = ((k, v) for k, v in element.attrib.items() if not k.startswith("{"))
    return f"<{element.tag}{''.join(f' {k}={quoteattr(v)}' for k, v in kept)}/>"


def _shape_lines(tag: str, shape: Shape, *, name: str = "", colour: str = "") -> list[str]:
    matrix = np.eye(4)
    matrix[:3, :3] = shape.rotation
    rpy = _numbers(trimesh.transformations.euler_from_matrix(matrix, "sxyz"))
    turned = f' rpy="{rpy}"' if shape.kind != "sphere" and rpy != "0 0 0" else ""
    match shape.kind:
        case "sphere":
            geometry = f'<sphere radius="{_numbers(shape.size)}"/>'
        case "cylinder":
            radius, length = (_numbers([x]) for x in shape.size)
            geometry = f'<cylinder radius="{radius}" length="{length}"/>'
        case _:
            geometry = f'<box size="{_numbers(shape.size)}"/>'
    return [
        f"<{tag} name={quoteattr(name)}>" if name else f"<{tag}>",
        f'  <origin xyz="{_numbers(shape.position)}"{turned}/>',
        f"  <geometry>{geometry}</geometry>",
        *([f"  <material name={quoteattr(colour)}/>"] if colour else []),
        f"</{tag}>",
    ]


def _looks_of(path: Path) -> Looks:
    """Header, materials and shapes of a file that this program wrote, with their comments."""
    root = _read(path, comments=True)
    before = root.getprevious()
    shapes: dict[str, list[str]] = {}
    for link in root.iterfind("link"):
        lines = shapes[link.get("name")] = []
        for element in link:
            if element.tag is etree.Comment or element.tag in ("visual", "collision"):
                text = etree.tostring(element, with_tail=False, encoding="unicode")
                lines += [line.removeprefix("    ") for line in text.splitlines()]
    return Looks("" if before is None else before.text, _colours(root), shapes)


def _urdf_text(root: Element, looks: Looks) -> str:
    lines = ['<?xml version="1.0" encoding="utf-8"?>']
    if looks.header:
        lines.append(f"<!--{looks.header}-->")
    lines.append(f"<robot name={quoteattr(root.get('name'))}>")
    for name, rgba in looks.materials.items():
        lines += [f"  <material name={quoteattr(name)}>", f'    <color rgba="{rgba}"/>']
        lines.append("  </material>")
    for element in root.iterchildren("link", "joint"):
        name = quoteattr(element.get("name"))
        if element.tag == "joint":
            parts = [_tag(part) for part in element if part.tag in _JOINT_PARTS]
            opening = f"joint name={name} type={quoteattr(element.get('type'))}"
        else:
            inertial = element.find("inertial")
            parts = []
            if inertial is not None:
                kept = [f"  {_tag(part)}" for part in inertial if part.tag in _INERTIAL_PARTS]
                parts = ["<inertial>", *kept, "</inertial>"]
            parts += looks.shapes.get(element.get("name"), [])
            opening = f"link name={name}"
        lines.append("")
        if parts:
            lines += [f"  <{opening}>", *(f"    {p}" for p in parts), f"  </{element.tag}>"]
        else:
            lines.append(f"  <{opening}/>")
    return "\n".join([*lines, "</robot>", ""])


def _default(path: Path, options: Options, *, floating: bool) -> Array:
    """The default configuration (nq,): as the options say, else zero or the middle."""
    robot = dynamics.load_urdf(path, floating_base=floating)
    topology = robot.topology
    q = np.array(robot.q_default)
    if floating:
        q[2] = options.base_height
    limits = np.asarray(robot.position_limits)
    for name in options.default:
        if name not in topology.dof_names:
            raise unknown_name("joint", name, topology.dof_names)
    for name, coordinate, (lower, upper) in zip(
        topology.dof_names, topology.dof_coordinate, limits, strict=True
    ):
        if coordinate < 0 or (floating and coordinate < 3):
            continue
        if not lower <= 0 <= upper and np.isfinite(upper - lower):
            q[coordinate] = (lower + upper) / 2
        q[coordinate] = options.default.get(name, q[coordinate])
    return q


def _toml_text(path: Path, options: Options, pairs: Pairs) -> str:
    robot = dynamics.load_urdf(path, floating_base=options.floating_base)
    topology = robot.topology
    q = _default(path, options, floating=options.floating_base)
    lines = [
        f"# Companion of {options.name}.urdf: what URDF has no place for. SI units, radians.",
        "# Made by scripts/rebuild_robot.py.",
        "",
    ]
    if options.floating_base:
        lines += ["# The root link is free; load with floating_base=False to weld it.", ""]
        lines.insert(-1, "floating_base = true")
    lines.append("q_default = [")
    for i, joint in enumerate(topology.joints):
        values = q[topology.q_index[i] : topology.q_index[i + 1]]
        if len(values):
            note = ": position, quaternion wxyz" if joint.kind == "floating" else ""
            lines.append(f"  {', '.join(repr(float(x)) for x in values)},  # {joint.name}{note}")
    lines += [
        "]",
        "",
        "# Rotor inertia felt at the joints, kg m^2: the source gives none.",
        "armature = 0.0",
        "",
    ]
    if pairs.names:
        lines += [
            f"# Pairs of <collision> spheres, a greedy cover: these {len(pairs.names)} find "
            f"{pairs.coverage:.1%} of the random configurations",
            "# (evenly in the limits; of several limbs each is at its default half of the time) in",
            "# which any spheres of bodies that can touch interpenetrate by more than 1 cm "
            f"({pairs.colliding:.1%} of all).",
            f"# At q_default the closest pair is {pairs.clearance:.3f} m apart.",
            "self_collision_pairs = [",
            *(f"  [{json.dumps(a)}, {json.dumps(b)}]," for a, b in pairs.names),
            "]",
            "",
        ]
    parents = {j.find("parent").get("link") for j in _read(path).iterfind("joint")}
    leaves = {name: name for name in topology.frame_names if name not in parents}
    lines.append("[end_effectors]")
    for alias, link in (options.end_effectors or leaves).items():
        lines.append(f"{json.dumps(alias)} = {json.dumps(link)}")
    return "\n".join([*lines, ""])


# --- self-collision pairs -------------------------------------------------------------------------


def _find_pairs(robot: Robot, options: Options) -> Pairs:
    """Pairs of spheres that find the random configurations in which the robot hits itself."""
    shapes = robot.topology.collision_shapes
    names = [shape.name for shape in shapes]
    for shape in shapes:
        if shape.kind != "sphere":
            raise RobotLoadError(
                f"{options.shapes_from}: the <collision> {shape.name!r} is a {shape.kind}, "
                "expected spheres only. Replace it by spheres."
            )
    pairs = _candidates(robot, options)
    if not len(pairs) or options.collision_pairs < 1:
        return Pairs([], np.inf, 0.0, np.nan)
    at_default = _gaps(robot, np.asarray(robot.q_default)[None], pairs)[0]
    pairs, at_default = (x[at_default >= options.clearance] for x in (pairs, at_default))
    q = _random_configurations(robot, options.samples, options.seed)
    steps = range(0, len(q), _BATCH)
    hits = np.concatenate(
        [
            _gaps(robot, q[i : i + _BATCH], pairs) < -_PENETRATION
            for i in track(steps, description=f"{options.name}: sampling configurations")
        ]
    )
    chosen_from, measured_on = hits[::2], hits[1::2]
    first = _numbers_of(options.first_pairs, names, pairs)
    chosen = _cover(chosen_from, _mirror(names, pairs), first, options)
    colliding = measured_on.any(axis=1)
    found = measured_on[:, chosen].any(axis=1)
    return Pairs(
        [(names[a], names[b]) for a, b in pairs[sorted(chosen)]],
        float(at_default[chosen].min(initial=np.inf)),
        float(colliding.mean()),
        float(found[colliding].mean()) if colliding.any() else np.nan,
    )


def _candidates(robot: Robot, options: Options) -> NDArray[np.intp]:
    """(k, 2) indices of spheres whose bodies are neither the same nor joined by one joint."""
    body_of = {frame.name: frame.body for frame in robot.topology.frames}
    for name in itertools.chain.from_iterable(options.keep_clear):
        if name not in body_of:
            raise unknown_name("link", name, body_of)
    apart = {frozenset((i, int(p))) for i, p in enumerate(robot.topology.parent)}
    apart |= {frozenset((body_of[a], body_of[b])) for a, b in options.keep_clear}
    bodies = [shape.body for shape in robot.topology.collision_shapes]
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(bodies)), 2)
        if bodies[i] != bodies[j] and frozenset((bodies[i], bodies[j])) not in apart
    ]
    return np.array(pairs, int).reshape(-1, 2)


def _random_configurations(robot: Robot, count: int, seed: int) -> Array:
    """(count, nq): joints evenly in their limits, quaternions as in the default.

    Of a robot with several limbs each one stays in its default half of the time. Otherwise the
    legs of a humanoid, which nearly always collide, would hide what its arms do.
    """
    topology = robot.topology
    q = np.tile(np.asarray(robot.q_default, float), (count, 1))
    scalar = topology.dof_coordinate >= 0
    coordinate = topology.dof_coordinate[scalar]
    lower, upper = np.asarray(robot.position_limits)[scalar].T
    middle = q[0, coordinate]
    lower = np.where(np.isfinite(lower), lower, middle - _FREE_RANGE)
    upper = np.where(np.isfinite(upper), upper, middle + _FREE_RANGE)
    rng = np.random.default_rng(seed)
    random = rng.uniform(lower, upper, (count, len(coordinate)))
    limb = np.repeat(_limbs(topology.parent), [j.nv for j in topology.joints])[scalar]
    moves = rng.random((count, limb.max() + 1)) < (0.5 if limb.max() else 1.0)
    q[:, coordinate] = np.where(moves[:, limb], random, middle)
    return q


def _limbs(parent: NDArray[np.intp]) -> NDArray[np.intp]:
    """(nb,): number of the limb of each body; a limb begins at the root and where a body forks."""
    children = Counter(map(int, parent))
    limb: list[int] = []
    for above in parent:
        begins = above == WORLD or children[int(above)] > 1
        limb.append(max(limb, default=-1) + 1 if begins else limb[above])
    return np.array(limb)


_poses = jax.jit(jax.vmap(dynamics.forward_kinematics, in_axes=(None, 0)))


def _gaps(robot: Robot, q: Array, pairs: NDArray[np.intp]) -> Array:
    """Distances (batch, k) between the surfaces of pairs of spheres, m; negative if they meet."""
    shapes = robot.topology.collision_shapes
    position, rotation = (np.asarray(x, float) for x in _poses(robot, q))
    # The body WORLD = -1 is the last one.
    position = np.concatenate([position, np.zeros((len(q), 1, 3))], axis=1)
    rotation = np.concatenate([rotation, np.broadcast_to(np.eye(3), (len(q), 1, 3, 3))], axis=1)
    body = [shape.body for shape in shapes]
    local = np.array([shape.position for shape in shapes])
    centre = position[:, body] + np.einsum("bsij,sj->bsi", rotation[:, body], local)
    radius = np.array([shape.size[0] for shape in shapes])
    first, second = pairs.T
    distance = np.linalg.norm(centre[:, first] - centre[:, second], axis=2)
    return distance - radius[first] - radius[second]


def _mirror(names: Sequence[str], pairs: NDArray[np.intp]) -> list[int]:
    """For each pair, the pair of the spheres on the other side, or itself if there are no sides."""
    index = {name: i for i, name in enumerate(names)}
    other = [index.get(_other_side(name), i) for i, name in enumerate(names)]
    number = {frozenset(map(int, pair)): k for k, pair in enumerate(pairs)}
    return [number.get(frozenset((other[a], other[b])), k) for k, (a, b) in enumerate(pairs)]


def _other_side(name: str) -> str:
    sides = {"left": "right", "right": "left"}
    return re.sub("left|right", lambda m: sides[m.group()], name)


def _numbers_of(
    wanted: Sequence[tuple[str, str]], names: Sequence[str], pairs: NDArray[np.intp]
) -> list[int]:
    number = {frozenset((names[a], names[b])): k for k, (a, b) in enumerate(pairs)}
    for pair in wanted:
        if frozenset(pair) not in number:
            raise ConfigError(
                f"first_pairs names {pair}, expected two spheres of bodies that are not "
                "neighbours, and far enough apart in the default configuration (clearance). "
                f"Spheres: {', '.join(names)}."
            )
    return [number[frozenset(pair)] for pair in wanted]


def _cover(
    hits: NDArray[np.bool_], mirror: Sequence[int], first: Sequence[int], options: Options
) -> list[int]:
    """Columns, one by one with their mirror images, that hit the most rows not hit before."""
    chosen = sorted({c for k in first for c in (k, mirror[k])})
    left = hits[hits.any(axis=1)]
    enough = (1 - options.coverage) * len(left)
    left = left[~left[:, chosen].any(axis=1)]
    while len(left) > enough and len(chosen) < options.collision_pairs:
        gain = left.sum(axis=0)
        gain += np.where(np.arange(len(gain)) == mirror, 0, gain[mirror])
        best = int(np.argmax(gain))
        chosen += sorted({best, mirror[best]})
        left = left[~left[:, chosen].any(axis=1)]
    return chosen


if __name__ == "__main__":
    sys.exit(main())
