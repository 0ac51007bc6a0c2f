"""The controls of teleoperation: the table of keys, speed, and what becomes of demonstrations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from .controls_page import FIELD, controls_page


class HandCommands(Protocol):
    """The commands that the controls give, as a `Viewer` takes them."""

    def tell(self, text: str, client: Any = None) -> None:
        """Take what a page tells of keys and gamepad."""

    def set_hand_speed(self, speed: float) -> None:
        """Of motions by keys and sticks, as a part of the fastest."""

    def choose_hand(self, index: int) -> None:
        """Move another hand by keys and sticks."""

    def record(self) -> None:
        """Begin a demonstration, or save the one that has begun."""

    def mark(self) -> None:
        """Remember this moment, for `undo`."""

    def undo(self) -> None:
        """Go back to the last mark, or to the beginning of the episode."""


class HandPanel:
    """The controls of teleoperation, in a folder that is shown where keys move something.

    Args:
        commands: what the controls act upon.
        gui: the viser server's.
        hands: names of the hands.
        shown: whether the folder is shown at first.
    """

    def __init__(
        self, commands: HandCommands, gui: Any, hands: tuple[str, ...], shown: bool
    ) -> None:
        self._folder = gui.add_folder("By hand", visible=shown)
        with self._folder:
            self._told = gui.add_markdown("")
            self._record = gui.add_button("Record", color="red", icon="player-record")
            self._record.on_click(lambda _: commands.record())
            steps = gui.add_button_group("Steps", ("Mark", "Undo"))
            steps.on_click(
                lambda event: (commands.mark if event.target.value == "Mark" else commands.undo)()
            )
            speed = gui.add_slider("Hand speed", 0.05, 1.0, 0.05, 0.5, hint="of the fastest")
            speed.on_update(lambda event: commands.set_hand_speed(event.target.value))
            if len(hands) > 1:
                hand = gui.add_dropdown("Hand", hands, hint="that keys and sticks move")
                hand.on_update(lambda event: commands.choose_hand(hands.index(event.target.value)))
            gui.add_html(controls_page())
            field = gui.add_text(FIELD, "")
        field.on_update(_in_order(commands.tell))

    def show(self, visible: bool, recording: bool, told: str) -> None:
        """Show the folder or not, what the button does, and how demonstrations are going.

        Args:
            visible: whether keys move something.
            recording: whether a demonstration has begun.
            told: Markdown.
        """
        self._folder.visible = visible
        self._record.label = "Stop and save" if recording else "Record"
        self._told.content = told


def _in_order(tell: Callable[[str, Any], None]) -> Callable[[Any], Awaitable[None]]:
    """Of what several messages tell, as asynchronous functions are called."""

    async def told(event: Any) -> None:
        if event.client is not None:
            tell(event.target.value, event.client)

    return told
