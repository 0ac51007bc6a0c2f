"""Recordings of rollouts: for learning from them, and to be replayed bit for bit."""

from .convert import convert
from .lerobot import to_lerobot
from .maniskill import to_maniskill
from .minari import to_minari
from .policies import MemoryPolicy, Policy
from .record import Episode, Recording, load_recording, record, record_actions
from .replay import Difference, ReplayReport, replay
from .robomimic import to_robomimic
from .starts import recorded_starts

__all__ = [
    "Difference",
    "Episode",
    "MemoryPolicy",
    "Policy",
    "Recording",
    "ReplayReport",
    "convert",
    "load_recording",
    "record",
    "record_actions",
    "recorded_starts",
    "replay",
    "to_lerobot",
    "to_maniskill",
    "to_minari",
    "to_robomimic",
]
