"""Recordings of rollouts: for learning from them, and to be replayed bit for bit."""

from .minari import to_minari
from .record import Episode, Policy, Recording, load_recording, record
from .replay import Difference, ReplayReport, replay

__all__ = [
    "Difference",
    "Episode",
    "Policy",
    "Recording",
    "ReplayReport",
    "load_recording",
    "record",
    "replay",
    "to_minari",
]
