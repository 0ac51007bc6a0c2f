"""Teleoperation: what a person means by keys and sticks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

FULL: Final = np.array([0.05, 0.05, 0.05, 0.5, 0.5, 0.5])
"""m and rad, of one step with a stick pushed all the way, at full speed."""

DEADZONE: Final = 0.15
"""Of a stick's way, within which it counts as released."""

SLOWLY: Final = 0.25
"""Of the speed, while a key for it is held."""

GRIPPER, RECORD, MARK, UNDO, RESET = "gripper", "record", "mark", "undo", "reset"
"""What happens once when a key is pressed."""

AHEAD, LEFT, UP = (0, 1.0), (1, 1.0), (2, 1.0)
BACK, RIGHT, DOWN = (0, -1.0), (1, -1.0), (2, -1.0)

MOTIONS: Final[Mapping[str, tuple[int, float]]] = {
    "KeyW": AHEAD, "ArrowUp": AHEAD, "KeyS": BACK, "ArrowDown": BACK,
    "KeyA": LEFT, "ArrowLeft": LEFT, "KeyD": RIGHT, "ArrowRight": RIGHT,
    "KeyR": UP, "KeyF": DOWN,
    "KeyZ": (3, 1.0), "KeyX": (3, -1.0), "Pad15": (3, 1.0), "Pad14": (3, -1.0),
    "KeyT": (4, 1.0), "KeyG": (4, -1.0), "Pad12": (4, 1.0), "Pad13": (4, -1.0),
    "KeyC": (5, 1.0), "KeyV": (5, -1.0),
}  # fmt: skip
"""Key or button -> the number that it moves while it is held, of displacement ahead, to the left
and up, and turns about these axes, and which way. Keys have the names of `KeyboardEvent.code`,
buttons those of the standard gamepad after `Pad`."""

STICKS: Final = ((1, -1.0), (0, -1.0), (5, -1.0), (2, -1.0))
"""Likewise for the axes of the standard gamepad: left stick, right stick, to the right and back."""

PRESSES: Final[Mapping[str, str]] = {
    "Space": GRIPPER, "Pad0": GRIPPER, "Enter": RECORD, "Pad9": RECORD, "KeyM": MARK, "Pad2": MARK,
    "KeyU": UNDO, "Backspace": UNDO, "Pad1": UNDO, "KeyQ": RESET, "Pad8": RESET,
}  # fmt: skip
"""Key or button -> what happens when it is pressed."""

SLOW: Final = frozenset({"ShiftLeft", "ShiftRight", "Pad4"})
"""While one of them is held, all motions are slow."""

HOLD: Final = frozenset({"KeyI", "Pad5"})
"""While one of them is held, the person commands, even without a motion."""

CODES: Final = frozenset({*MOTIONS, *PRESSES, *SLOW, *HOLD})
"""All keys and buttons that mean something."""

LEGEND: Final = (
    (("W", "A", "S", "D"), "left stick", "ahead, left, back, right"),
    (("↑", "←", "↓", "→"), "", "the same"),
    (("R", "F"), "right stick", "up, down"),
    (("C", "V"), "right stick", "turn left, right"),
    (("T", "G"), "cross", "tip over forwards, back"),
    (("Z", "X"), "cross", "tip over to the right, left"),
    (("Space",), "A", "close or open the gripper"),
    (("Shift",), "LB", "slowly, while held"),
    (("I",), "RB", "take over, while held"),
    (("Enter",), "Start", "record; stop and save"),
    (("M", "U"), "X, B", "mark; undo to the mark"),
    (("Q",), "Back", "begin a new episode"),
)
"""Keys, gamepad, and what they do, for people."""


@dataclass(frozen=True)
class Command:
    """What a person tells the robot for one step.

    Attributes:
        move: (3,), m, displacement of the hand, world axes.
        turn: (3,), rad, of the hand, world axes.
        toggles: whether the gripper closes, or opens if it is closed.
        holds: whether the person commands even though nothing moves.
        hand: which one.
    """

    move: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    turn: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    toggles: bool = False
    holds: bool = False
    hand: int = 0

    @property
    def given(self) -> bool:
        """Whether there is a command at all."""
        return self.toggles or self.holds or bool(np.any(self.move) or np.any(self.turn))


@dataclass(frozen=True)
class Controls:
    """Keyboard and gamepad, as a page last told of them.

    Attributes:
        page: which one.
        held: keys and buttons that are down.
        presses: how often each has been pressed since the page was loaded.
        axes: of the sticks, -1 ... 1.
    """

    page: str = ""
    held: frozenset[str] = frozenset()
    presses: Mapping[str, int] = field(default_factory=dict)
    axes: tuple[float, ...] = ()


def read_controls(text: str) -> Controls | None:
    """What a page tells; None for a text that no page of ours writes."""
    try:
        told = json.loads(text)
        axes = np.clip(np.array(told["axes"], float).reshape(-1), -1.0, 1.0)
        return Controls(
            page=str(told["page"]),
            held=frozenset(map(str, told["held"])) & CODES,
            presses={str(k): int(n) for k, n in told["presses"].items() if k in CODES},
            axes=tuple(np.where(np.isfinite(axes), axes, 0.0).tolist()),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def motion(held: frozenset[str], axes: tuple[float, ...] = ()) -> NDArray[np.float64]:
    """The motion (6,) that is meant, as parts of `FULL`: ahead, left, up, and turns about these.

    Opposite keys cancel, and nothing goes beyond 1.
    """
    six = np.zeros(6)
    for code in held & MOTIONS.keys():
        number, sign = MOTIONS[code]
        six[number] += sign
    for (number, sign), way in zip(STICKS, axes, strict=False):
        six[number] += sign * beyond_deadzone(way)
    return np.clip(six, -1.0, 1.0)


def beyond_deadzone(way: float) -> float:
    """A stick's way -1 ... 1 without its deadzone, at whose border it begins from zero."""
    return float(np.sign(way) * max(0.0, abs(way) - DEADZONE) / (1.0 - DEADZONE))


def seen_from(heading: float, six: NDArray[np.float64]) -> NDArray[np.float64]:
    """A motion (6,) ahead, left and up in world axes, of who looks along a heading, rad, from x."""
    c, s = np.cos(heading), np.sin(heading)
    turned = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    seen: NDArray[np.float64] = (six.reshape(2, 3) @ turned.T).ravel()
    return seen


class Pilot:
    """Collects what pages tell between two steps.

    The page that told something last commands.

    Attributes:
        speed: 0 ... 1, of all motions.
        hand: which one moves.
    """

    def __init__(self) -> None:
        self.speed = 0.5
        self.hand = 0
        self._now = Controls()
        self._counts: dict[str, Counter[str]] = {}
        self._fresh: Counter[str] = Counter()

    def tell(self, text: str) -> bool:
        """Take what a page tells; returns whether it is anything that a page would."""
        controls = read_controls(text)
        if controls is None:
            return False
        # Counted by the page, so that presses between two messages are not lost.
        presses = Counter(dict(controls.presses))
        self._fresh += presses - self._counts.get(controls.page, Counter())
        self._counts[controls.page] = presses
        self._now = controls
        return True

    def release(self) -> None:
        """Let go of everything, as where a page has gone away."""
        self._now = Controls(self._now.page)
        self._fresh.clear()

    def take(self, heading: float = 0.0) -> tuple[Command, list[str]]:
        """What has been told since the last step: the command, and what else happens.

        Args:
            heading: rad, from the world's x axis, along which the person looks.

        Returns:
            The command; those of `RECORD`, `MARK`, `UNDO` and `RESET` that were asked for, in the
            order of this list.
        """
        fresh, self._fresh = self._fresh, Counter()
        held = self._now.held | fresh.keys()  # a tap moves for one step
        once: Counter[str] = Counter()
        for code in fresh.keys() & PRESSES.keys():
            once[PRESSES[code]] += fresh[code]
        six = seen_from(heading, motion(held, self._now.axes))
        six = self.speed * (SLOWLY if held & SLOW else 1.0) * FULL * six
        command = Command(six[:3], six[3:], once[GRIPPER] % 2 == 1, bool(held & HOLD), self.hand)
        return command, [what for what in (RECORD, MARK, UNDO, RESET) if once[what]]
