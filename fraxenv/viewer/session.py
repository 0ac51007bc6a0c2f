"""A person's session with the viewer: who commands, and how the demonstration is going."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fraxenv.envs import EnvParams
from fraxenv.errors import FraxenvError

from .demonstrations import Demonstrations, episode_of, marked
from .panel import light
from .snapshots import Snapshot
from .teleoperation import Pilot

RECORDING_COLOR = "#e03131"


class Session:
    """What is known of the person, besides the timeline, which is the viewer's.

    Args:
        demonstrations: where those are saved that are recorded; None where nothing is.

    Attributes:
        pilot: collects what keys and gamepad command.
        client: viser's, of the page that told something last; None of none.
        recording: whether the episode is to be a demonstration.
        waits: whether time waits for a command, after an undo.
        marks: steps that have been marked.
        note: the last thing to say.
    """

    def __init__(self, demonstrations: Demonstrations | None) -> None:
        self.demonstrations = demonstrations
        self.pilot = Pilot()
        self.client: Any = None
        self.recording = self.waits = False
        self.marks: list[int] = []
        self.note = ""

    @property
    def heading(self) -> float:
        """The angle, rad, from the world's x axis along which the person looks; 0 of nobody."""
        if self.client is None:
            return 0.0
        camera = self.client.camera
        ahead = np.subtract(camera.look_at, camera.position)
        return float(np.arctan2(ahead[1], ahead[0]))

    def leave(self, client: Any) -> None:
        """Let go of the keys of a page that is no more."""
        if self.client is not None and client.client_id == self.client.client_id:
            self.pilot.release()
            self.client = None

    def save(self, past: Sequence[Snapshot], params: EnvParams) -> None:
        """Save what has been recorded up to now, and note what has become of it."""
        self.recording, self.waits = False, True
        if self.demonstrations is None:
            return
        try:
            path = self.demonstrations.save(past, params)
        except FraxenvError as error:
            self.note = str(error)
            return
        success = self.demonstrations.successes[-1]
        self.note = f"saved {path.name}, {'success' if success else 'no success'}"

    def report(self, past: Sequence[Snapshot], policy_hz: float, beside_policy: bool) -> str:
        """How the demonstration is going, as Markdown.

        Args:
            past: snapshots, the last one is now.
            policy_hz: steps per second.
            beside_policy: whether a policy acts where the person does not.
        """
        lines = []
        if self.recording:
            seconds = (len(episode_of(past)) - 1) / policy_hz
            lines.append(light(RECORDING_COLOR, f"**recording**, {seconds:.1f} s"))
        if beside_policy:
            lines.append("**you** act" if past[-1].intervention else "the policy acts")
        if self.marks:
            back = past[-1].step - marked(past, self.marks).step
            lines.append(f"undo goes back {back / policy_hz:.1f} s")
        if self.demonstrations is not None:
            done = self.demonstrations.successes
            plural = "" if len(done) == 1 else "s"
            lines.append(f"{len(done)} demonstration{plural}, {sum(done)} successful")
        return "  \n".join([*lines, self.note] if self.note else lines)
