"""Actuators to build a scene with: motors, position and velocity servos, each at one joint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fraxenv.errors import ConfigError, unknown_name

from ..model.robot import Robot
from .parts import JointActuators

Range = tuple[float, float]
UNLIMITED: Range = (-np.inf, np.inf)


@dataclass(frozen=True)
class JointActuator:
    """One of `JointActuators`; `motor_actuator`, `position_actuator`, ... make one.

    With the length `l = gear q` and its rate `v`: `force = (g0 + g1 l + g2 v) ctrl + b0 + b1 l +
    b2 v`; the joint feels `gear force`.

    Attributes:
        joint: name of a joint with one coordinate.
        gain: g0, g1, g2.
        bias: b0, b1, b2.
        gear: ratio of the transmission.
        ctrl_range: controls are clamped to it.
        force_range: N m or N, forces are clamped to it.
        name: its name; the joint's if empty.
    """

    joint: str
    gain: tuple[float, float, float] = (1.0, 0.0, 0.0)
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0)
    gear: float = 1.0
    ctrl_range: Range = UNLIMITED
    force_range: Range = UNLIMITED
    name: str = ""

    def __post_init__(self) -> None:
        what = f"actuator {self.name or self.joint!r} of joint {self.joint!r}"
        numbers = (("gain", self.gain, 3), ("bias", self.bias, 3), ("gear", [self.gear], 1))
        for field, value, size in numbers:
            if np.shape(value) != (size,) or not np.isfinite(value).all():
                shown = value if size > 1 else self.gear
                raise ConfigError(
                    f"{what}: {field}={shown!r}, expected {size} finite "
                    f"{'numbers' if size > 1 else 'number'}."
                )
        for field, limits in (("ctrl_range", self.ctrl_range), ("force_range", self.force_range)):
            if np.shape(limits) != (2,) or not limits[0] < limits[1]:
                raise ConfigError(
                    f"{what}: {field}={limits!r}, expected (low, high) with low < high; leave it "
                    "out for none."
                )


def motor_actuator(
    joint: str,
    *,
    gear: float = 1.0,
    ctrl_range: Range = UNLIMITED,
    force_range: Range = UNLIMITED,
    name: str = "",
) -> JointActuator:
    """A motor: its control is its force, N m or N. MuJoCo's `<motor>`; fields of `JointActuator`.

    Raises:
        ConfigError: a number is not finite, or a range is empty.
    """
    return JointActuator(
        joint, gear=gear, ctrl_range=ctrl_range, force_range=force_range, name=name
    )


def position_actuator(
    joint: str,
    kp: float,
    kv: float = 0.0,
    *,
    gear: float = 1.0,
    ctrl_range: Range = UNLIMITED,
    force_range: Range = UNLIMITED,
    name: str = "",
) -> JointActuator:
    """A position servo, `kp (ctrl - l) - kv v`. MuJoCo's `<position>`; fields of `JointActuator`.

    Args:
        joint: name of a joint with one coordinate.
        kp: N m/rad or N/m.
        kv: N m s/rad or N s/m.
        gear: ratio of the transmission.
        ctrl_range: rad or m.
        force_range: N m or N.
        name: its name; the joint's if empty.

    Raises:
        ConfigError: a gain is negative, a number is not finite, or a range is empty.
    """
    _check_gains(joint, kp=kp, kv=kv)
    gain, bias = (kp, 0.0, 0.0), (0.0, -kp, -kv)
    return JointActuator(joint, gain, bias, gear, ctrl_range, force_range, name)


def velocity_actuator(
    joint: str,
    kv: float,
    *,
    gear: float = 1.0,
    ctrl_range: Range = UNLIMITED,
    force_range: Range = UNLIMITED,
    name: str = "",
) -> JointActuator:
    """A velocity servo, `kv (ctrl - v)`. MuJoCo's `<velocity>`; fields of `JointActuator`.

    Args:
        joint: name of a joint with one coordinate.
        kv: N m s/rad or N s/m.
        gear: ratio of the transmission.
        ctrl_range: rad/s or m/s.
        force_range: N m or N.
        name: its name; the joint's if empty.

    Raises:
        ConfigError: a gain is negative, a number is not finite, or a range is empty.
    """
    _check_gains(joint, kv=kv)
    gain, bias = (kv, 0.0, 0.0), (0.0, 0.0, -kv)
    return JointActuator(joint, gain, bias, gear, ctrl_range, force_range, name)


def _check_gains(joint: str, **gains: float) -> None:
    for name, value in gains.items():
        if not value >= 0:
            raise ConfigError(
                f"actuator of joint {joint!r}: {name}={value!r}, expected a number that is not "
                "negative: the servo would push away from its target."
            )


def joint_actuators(
    system: Robot, actuators: Sequence[JointActuator], scene: str
) -> JointActuators:
    """A scene's actuators.

    Args:
        system: the forest.
        actuators: one for each control.
        scene: the scene's name, for errors.

    Raises:
        UnknownNameError: there is no such joint.
        ConfigError: a joint has not one coordinate, or two actuators have one name.
    """
    names = [a.name or a.joint for a in actuators]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"scene {scene!r}: {names.count(name)} actuators have the name {name!r}, expected "
                "names that are unique. Give name=... to one; it is the joint's if omitted."
            )
    what = f"scene {scene!r}: actuator"
    dofs = [
        scalar_dof(system, a.joint, f"{what} {n!r}")[0]
        for a, n in zip(actuators, names, strict=True)
    ]
    return JointActuators(
        names=tuple(names),
        dofs=tuple(dofs),
        gain=np.array([a.gain for a in actuators], float).reshape(-1, 3),
        bias=np.array([a.bias for a in actuators], float).reshape(-1, 3),
        gear=np.array([a.gear for a in actuators], float),
        ctrl_range=np.array([a.ctrl_range for a in actuators], float).reshape(-1, 2),
        force_range=np.array([a.force_range for a in actuators], float).reshape(-1, 2),
        joint_range=np.full((system.nv, 2), UNLIMITED),
    )


def scalar_dof(system: Robot, name: str, what: str) -> tuple[int, int]:
    """Indices into `v` and `q` of the one coordinate of a joint.

    Args:
        system: the forest.
        name: the joint's name.
        what: whose joint it is, for errors.

    Raises:
        UnknownNameError: there is no such joint.
        ConfigError: it has several coordinates, or follows another joint exactly.
    """
    topology = system.topology
    names = [j.name for j in topology.joints]
    if name not in names:
        raise unknown_name("joint", name, names, f"of {what}")
    body = names.index(name)
    joint = topology.joints[body]
    if joint.mimic is not None:
        raise ConfigError(
            f"{what}: joint {name!r} follows joint {names[joint.mimic.joint]!r} exactly and has no "
            "coordinate of its own. Name that one."
        )
    if joint.kind not in ("revolute", "continuous", "prismatic"):
        raise ConfigError(
            f"{what}: joint {name!r} is {joint.kind}, expected one with a single coordinate: "
            "revolute, continuous or prismatic."
        )
    return int(topology.v_index[body]), int(topology.q_index[body])
