"""The source URDF: its XML, and the shapes of its links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import trimesh
from lxml import etree
from numpy.typing import NDArray

from fraxenv.errors import RobotLoadError

from ..geometry.shapes import Shape
from .options import Options

Array = NDArray[np.float64]
Element = Any  # lxml's elements are not typed

SHELL: Final = ("shell", "0.93 0.94 0.95 1")  # where the source has no colour
SURFACE_POINTS: Final = 3000  # per mesh


def read(path: Path, comments: bool = False) -> Element:
    """Parse a URDF without entities or network access; `load_urdf` checks its content."""
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


def add_frames(root: Element, frames: Sequence[tuple[str, str, float, float, float]]) -> None:
    """Add massless links with fixed joints, given as name, parent link, x, y, z in its frame, m."""
    for name, parent, *xyz in frames:
        etree.SubElement(root, "link", name=name)
        joint = etree.SubElement(root, "joint", name=f"{name}_joint", type="fixed")
        etree.SubElement(joint, "parent", link=parent)
        etree.SubElement(joint, "child", link=name)
        etree.SubElement(joint, "origin", xyz=numbers(xyz))


def numbers(values: Sequence[float] | Array) -> str:
    """Numbers as text of an attribute, rounded to 0.1 mm or 0.1 mrad."""
    return " ".join(f"{round(float(x), 4) + 0.0:g}" for x in values)


def _origin(element: Element) -> Array:
    """Pose (4, 4) of an element's <origin>; the identity without one."""
    origin = element.find("origin")
    xyz, rpy = (
        np.array((("" if origin is None else origin.get(k)) or "0 0 0").split(), float)
        for k in ("xyz", "rpy")
    )
    pose: Array = trimesh.transformations.euler_matrix(rpy[0], rpy[1], rpy[2], "sxyz")
    pose[:3, 3] = xyz
    return pose


def colours(root: Element) -> dict[str, str]:
    """Defined materials: name -> rgba."""
    return {
        m.get("name"): m.find("color").get("rgba")
        for m in root.iter("material")
        if m.get("name") and m.find("color") is not None
    }


def parts_of(link: Element, options: Options) -> list[tuple[str, Shape | Array]]:
    """Visible parts of a link, in its frame: material, and primitive or surface points (m, 3), m.

    From its visual elements, or from its collision elements where meshes cannot be read.
    """
    for tag in ("visual", "collision"):
        parts = []
        for element in link.iterfind(tag):
            material = element.find("material")
            colour = SHELL[0] if material is None else material.get("name") or SHELL[0]
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
    """Path of a mesh: beside the source, below one of its parent folders, or in `meshes`."""
    relative = re.sub(r"^(package|file|model)://", "", name).lstrip("/")
    for folder in options.urdf.resolve().parents:
        for part in (relative, relative.partition("/")[2]):
            if part and (folder / part).is_file():
                return folder / part
    if options.meshes is not None:
        return next(iter(sorted(options.meshes.rglob(f"{Path(relative).stem}.*"))), None)
    return None


def _mesh_points(path: Path) -> Array | None:
    """Points (m, 3), m, spread over the surface of a mesh; None if it cannot be read."""
    try:
        mesh = trimesh.load(path, force="mesh")
        points, _ = trimesh.sample.sample_surface(mesh, SURFACE_POINTS, seed=0)
    except Exception:  # readers of meshes raise what they like
        return None
    return np.asarray(points, float)
