"""Reachability: bounds of a hand's reach, and checks of boxes of goals against them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fraxenv.controllers.hands import EndEffectors, Hands
from fraxenv.dynamics import WORLD, Robot
from fraxenv.errors import ConfigError, is_concrete


def reach(robot: Robot, frame: str) -> tuple[NDArray[np.floating[Any]], float]:
    """A point (3,), m, world, and the distance from it beyond which the frame never gets, m.

    The point is the first joint of the chain; the distance is the length of the chain, stretched:
    a bound, and a tight one for most arms. It is infinite for robots that travel.

    Raises:
        UnknownNameError: there is no such frame.
    """
    topology, hand = robot.topology, robot.frame(frame)
    length, body, anchor = 0.0, hand.body, np.asarray(hand.position)
    limits = np.asarray(robot.position_limits, float)
    step = np.linalg.norm(hand.position)
    while body != WORLD:
        joint, start = topology.joints[body], int(topology.v_index[body])
        length += float(step)
        if joint.kind in ("planar", "floating"):
            return np.zeros(3), np.inf
        if joint.kind == "prismatic":
            master = joint.mimic.joint if joint.mimic else body
            travel = np.abs(limits[int(topology.v_index[master]) if joint.mimic else start]).max()
            length += float(travel * (abs(joint.mimic.multiplier) if joint.mimic else 1.0))
        anchor = np.asarray(topology.position[body])
        step = np.linalg.norm(anchor)
        body = int(topology.parent[body])
    return anchor, length


def check_within_reach(
    robot: Robot, end_effector: EndEffectors, what: str, low: ArrayLike, high: ArrayLike
) -> None:
    """Check a box of positions, one for all hands or one for each; traced numbers are not checked.

    Args:
        robot: the model.
        end_effector: the hands.
        what: name of the box: of its corners' options without `_low` and `_high`.
        low: (3,) or (k, 3), m, a corner, world.
        high: the other corner, likewise.

    Raises:
        ConfigError: the box is not finite, or inside out, or a corner is out of reach.
        UnknownNameError: the robot lacks an end effector.
    """
    names = Hands.of(end_effector).names
    for name in names:
        robot.frame(name)
    if not is_concrete(low, high):
        return
    corners = check_box(names, what, low, high)
    for i, name in enumerate(names):
        anchor, length = reach(robot, name)
        for corner in itertools.product(*zip(corners[0][i], corners[1][i], strict=True)):
            distance = float(np.linalg.norm(np.asarray(corner) - anchor))
            if distance > length:
                at = ", ".join(f"{x:.3g}" for x in corner)
                raise ConfigError(
                    f"the corner ({at}) m of {what}_low..{what}_high is out of reach of {name!r} "
                    f"of robot {robot.name!r}: {distance:.3g} m from its first joint, which "
                    f"reaches {length:.3g} m at most. Choose a smaller box, or one that is nearer."
                )


def check_box(
    names: Sequence[str], what: str, low: ArrayLike, high: ArrayLike
) -> list[NDArray[np.floating[Any]]]:
    """The corners (k, 3) of a box for each of k hands, checked; they must not be traced.

    Args:
        names: the hands.
        what: as of `check_within_reach`.
        low: (3,) or (k, 3), m, a corner, world.
        high: the other corner, likewise.

    Raises:
        ConfigError: the box is not finite, or inside out.
    """
    try:
        corners = [np.broadcast_to(np.asarray(x, float), (len(names), 3)) for x in (low, high)]
    except ValueError as error:
        raise ConfigError(
            f"{what}_low={low!r} and {what}_high={high!r}, expected corners (3,) of a box, m, or "
            f"one row for each of {', '.join(names)}."
        ) from error
    if not (np.isfinite(corners).all() and (corners[0] <= corners[1]).all()):
        raise ConfigError(
            f"{what}_low={corners[0].tolist()} and {what}_high={corners[1].tolist()}, expected "
            f"finite corners of a box with {what}_low <= {what}_high in every coordinate, m."
        )
    return corners
