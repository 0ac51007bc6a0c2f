"""The files as text: the URDF with its shapes, and the companion in TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import numpy as np
import trimesh
from lxml import etree

from fraxenv.errors import unknown_name

from .. import load_urdf
from ..geometry.shapes import Shape
from .options import Options
from .pairs import Pairs
from .source import Array, Element, colours, numbers, read

# Children of a joint, and of a link's <inertial>, that are copied.
_JOINT_PARTS: Final = ("parent", "child", "origin", "axis", "limit", "dynamics", "mimic")
_INERTIAL_PARTS: Final = ("origin", "mass", "inertia")


@dataclass(frozen=True)
class Looks:
    """Header, materials and shapes of a rebuilt URDF.

    Attributes:
        header: the comment at the top of the file.
        materials: name -> rgba.
        shapes: link -> its <visual> and <collision> elements as lines of XML.
        bones: links that are drawn as bones, because the source has no readable shape for them.
    """

    header: str
    materials: Mapping[str, str]
    shapes: Mapping[str, list[str]]
    bones: Sequence[str] = ()


def header_text(options: Options, visuals: int, spheres: int, bones: Sequence[str]) -> str:
    """The comment at the top of the URDF, with the numbers of shapes."""
    fitted = "the source's shapes"
    if bones:
        fitted += f", and to bones between joints for {', '.join(bones)}"
    text = f"""
  {options.name}, made by fraxenv.dynamics.rebuild; primitives, no meshes. SI units, radians.

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


def _tag(element: Element) -> str:
    """Text of an element, without its children and foreign attributes."""
    kept = ((k, v) for k, v in element.attrib.items() if not k.startswith("{"))
    return f"<{element.tag}{''.join(f' {k}={quoteattr(v)}' for k, v in kept)}/>"


def shape_lines(tag: str, shape: Shape, *, name: str = "", colour: str = "") -> list[str]:
    """Lines of a <visual> or <collision> element, in the frame of its link."""
    matrix = np.eye(4)
    matrix[:3, :3] = shape.rotation
    rpy = numbers(trimesh.transformations.euler_from_matrix(matrix, "sxyz"))
    turned = f' rpy="{rpy}"' if shape.kind != "sphere" and rpy != "0 0 0" else ""
    match shape.kind:
        case "sphere":
            geometry = f'<sphere radius="{numbers(shape.size)}"/>'
        case "cylinder":
            radius, length = (numbers([x]) for x in shape.size)
            geometry = f'<cylinder radius="{radius}" length="{length}"/>'
        case _:
            geometry = f'<box size="{numbers(shape.size)}"/>'
    return [
        f"<{tag} name={quoteattr(name)}>" if name else f"<{tag}>",
        f'  <origin xyz="{numbers(shape.position)}"{turned}/>',
        f"  <geometry>{geometry}</geometry>",
        *([f"  <material name={quoteattr(colour)}/>"] if colour else []),
        f"</{tag}>",
    ]


def looks_of(path: Path) -> Looks:
    """Header, materials and shapes, comments included, of a file that `rebuild` wrote."""
    root = read(path, comments=True)
    before = root.getprevious()
    shapes: dict[str, list[str]] = {}
    for link in root.iterfind("link"):
        lines = shapes[link.get("name")] = []
        for element in link:
            if element.tag is etree.Comment or element.tag in ("visual", "collision"):
                text = etree.tostring(element, with_tail=False, encoding="unicode")
                lines += [line.removeprefix("    ") for line in text.splitlines()]
    return Looks("" if before is None else before.text, colours(root), shapes)


def urdf_text(root: Element, looks: Looks) -> str:
    """Text of the URDF: links and joints of the source, digit by digit, with `looks`."""
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


def default_configuration(path: Path, options: Options, *, floating: bool) -> Array:
    """The default configuration (nq,): from the options, else zero, or the middle of the limits."""
    robot = load_urdf(path, floating_base=floating)
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


def toml_text(path: Path, options: Options, pairs: Pairs) -> str:
    """Text of the companion of the URDF at `path`."""
    robot = load_urdf(path, floating_base=options.floating_base)
    topology = robot.topology
    q = default_configuration(path, options, floating=options.floating_base)
    lines = [
        f"# Companion of {options.name}.urdf: what URDF has no place for. SI units, radians.",
        "# Made by fraxenv.dynamics.rebuild.",
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
    parents = {j.find("parent").get("link") for j in read(path).iterfind("joint")}
    leaves = {name: name for name in topology.frame_names if name not in parents}
    lines.append("[end_effectors]")
    for alias, link in (options.end_effectors or leaves).items():
        lines.append(f"{json.dumps(alias)} = {json.dumps(link)}")
    return "\n".join([*lines, ""])
