"""Robots that ship with the package: `dynamics/robots/NAME.urdf` with its companion `NAME.toml`.

Hands are `NAME_hand.urdf`. A `NAME.toml` without a URDF is an assembly of other robots' files: an
arm with a hand on it, or a robot with feet.
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fraxenv.errors import RobotLoadError, unknown_name

from ..geometry.shapes import Shape
from .attach import attach
from .kept import kept
from .robot import Frame, Robot
from .urdf import load_urdf

_HAND = "_hand"
"""Ends the names of hands."""


def list_robots() -> list[str]:
    """Names of the bundled robots, without those that are put together of other ones' files."""
    return [name for name in _names(".urdf") if not name.endswith(_HAND)]


def list_assemblies() -> list[str]:
    """Names of those put together: arms with fingers that move ("panda_gripper"), and "g1_feet"."""
    described = set(_names(".urdf"))
    return [name for name in _names(".toml") if name not in described]


def _names(ending: str) -> list[str]:
    files = resources.files("fraxenv.dynamics").joinpath("robots").iterdir()
    return sorted(f.name.removesuffix(ending) for f in files if f.name.endswith(ending))


def load_robot(name: str, *, floating_base: bool | None = None) -> Robot:
    """Load a bundled robot.

    Every call returns the same robot, whose arrays are read-only; `Robot.replace` makes another.

    Args:
        name: one of `list_robots()` or `list_assemblies()`.
        floating_base: whether the base floats or is welded to the world's origin; as in the robot's
            TOML file if omitted (of the bundled robots, those with legs float).

    Raises:
        UnknownNameError: there is no such robot; names the closest ones.
    """
    # One robot per x64 mode: JAX (0.10) caches conversions of NumPy arrays, whatever the mode.
    return _load(name, floating_base, jnp.result_type(float) == np.float64)


def bundled_urdf(name: str) -> Path:
    """Path of a bundled robot's URDF.

    Raises:
        UnknownNameError: there is no such robot; names the closest ones.
    """
    if name not in _names(".urdf"):
        raise unknown_name("robot", name, [*list_robots(), *list_assemblies()])
    return _file(f"{name}.urdf")


def _file(name: str) -> Path:
    # A path on disk: wheels are never installed as zipped packages.
    return Path(str(resources.files("fraxenv.dynamics").joinpath("robots", name)))


@cache
def _load(name: str, floating_base: bool | None, x64: bool) -> Robot:
    def read() -> Robot:
        if name in list_assemblies():
            return _assembled(name, floating_base)
        return load_with_companion(bundled_urdf(name), floating_base=floating_base)

    robot = kept(read, name, floating_base, x64)
    _make_read_only(robot)
    return robot


def _assembled(name: str, floating_base: bool | None) -> Robot:
    """An arm with a hand, or a robot with feet."""
    parts = tomllib.loads(_file(f"{name}.toml").read_text("utf-8"))
    return (_with_feet if "feet" in parts else _with_hand)(name, parts, floating_base)


def _with_feet(name: str, parts: dict[str, Any], floating_base: bool | None) -> Robot:
    """A robot with balls under its soles, and end effectors in the middle of these.

    The balls are collision shapes, `FOOT_1` and so on; what else the file says is in place of what
    the robot's own companion does.
    """
    path, feet = bundled_urdf(parts.pop("robot")), parts.pop("feet")
    robot = _loaded(path, _companion(path.with_suffix(".toml")) | parts, floating_base)
    topology = robot.topology
    frames, shapes, ends = [*topology.frames], [*topology.collision_shapes], {}
    for foot, sole in feet.items():
        link, radius, balls = robot.frame(sole["link"]), sole["radius"], np.array(sole["balls"])
        under = np.append(balls[:, :2].mean(axis=0), balls[:, 2].min() - radius)
        ends[foot] = len(frames)
        frames.append(Frame(f"{foot}_sole", link.body, _placed(link, under), link.rotation))
        shapes += [
            Shape("sphere", (radius,), _placed(link, at), name=f"{foot}_{i}", body=link.body)
            for i, at in enumerate(balls, 1)
        ]
    return robot.replace(
        topology=dataclasses.replace(
            topology,
            name=name,
            frames=tuple(frames),
            collision_shapes=tuple(shapes),
            end_effectors={**topology.end_effectors, **ends},
        )
    )


def _placed(frame: Frame, position: np.ndarray) -> np.ndarray:
    """Position (3,), m, in the body's frame of one in a frame that is fixed to it."""
    placed: np.ndarray = frame.position + frame.rotation @ position
    return placed


def _with_hand(name: str, parts: dict[str, Any], floating_base: bool | None) -> Robot:
    """An arm, perhaps without links of its own, with a hand on one of its frames."""
    path, without = bundled_urdf(parts["arm"]), parts.get("without", ())
    arm = load_with_companion(path, floating_base=floating_base, without=without)
    hand = load_with_companion(bundled_urdf(parts["hand"]), floating_base=True)
    # What acts is the hand's, not the bare flange.
    own = set(hand.end_effectors)
    acting = {n: i for n, i in arm.topology.end_effectors.items() if n not in own}
    arm = arm.replace(topology=dataclasses.replace(arm.topology, end_effectors=acting))
    # Pairs of the arm with the hand that it has of its own hold for this one's shapes.
    kept = {s.name for s in arm.topology.collision_shapes}
    pairs = _companion(path.with_suffix(".toml")).get("self_collision_pairs", ())
    pairs = [pair for pair in pairs if not kept.issuperset(pair)]
    pairs += parts.get("self_collision_pairs", ())
    c, s = np.cos(parts["yaw"]), np.sin(parts["yaw"])
    yaw = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    return attach(arm, hand, parts["frame"], rotation=yaw, name=name, pairs=pairs)


def load_with_companion(
    path: Path, *, floating_base: bool | None = None, without: Sequence[str] = ()
) -> Robot:
    """Load a URDF with the `load_urdf` options of its companion, the TOML file of the same name.

    Without such a file, the options are the defaults.

    Args:
        path: path of the URDF.
        floating_base: whether the base floats or is welded to the world's origin; as in the TOML
            file if omitted, and welded if that has no such option.
        without: links that are left out; as of `load_urdf`, in place of the TOML file's.

    Raises:
        RobotLoadError: one of the files cannot be read, or is wrong.
        UnknownNameError: the TOML file has an option unknown to `load_urdf`.
    """
    options = _companion(path.with_suffix(".toml"))
    if without:
        options["without"] = without
    return _loaded(path, options, floating_base)


def _loaded(path: Path, options: dict[str, Any], floating_base: bool | None) -> Robot:
    """A URDF with a companion's options, which are for the base that they say."""
    own = options.pop("floating_base", False)
    floating = own if floating_base is None else floating_base
    if "q_default" in options and floating != own:
        q_default = options["q_default"]
        options["q_default"] = q_default[7:] if own else [0, 0, 0, 1, 0, 0, 0, *q_default]
    if floating != own:
        for key in ("armature", "effort_rate_limits"):
            value = options.get(key)
            if isinstance(value, list):
                options[key] = value[6:] if own else [0.0] * 6 + value
    return load_urdf(path, floating_base=floating, **options)


def _companion(path: Path) -> dict[str, Any]:
    """Options of `load_urdf` in a TOML file; empty if there is no such file."""
    if not path.exists():
        return {}
    try:
        options = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RobotLoadError(f"{path}: cannot be read as TOML: {error}.") from error
    known = list(inspect.signature(load_urdf).parameters)[1:]
    for key in options:
        if key not in known:
            raise unknown_name("option", key, known, f"of load_urdf in {path}")
    return options


def _make_read_only(value: Any) -> None:
    """Make the arrays of a dataclass read-only, recursively."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, tuple):
        for part in value:
            _make_read_only(part)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _make_read_only(getattr(value, field.name))
