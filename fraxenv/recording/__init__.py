"""Recordings of rollouts: for learning from them, and to be replayed bit for bit."""

from .lerobot import to_lerobot
from .maniskill import to_maniskill
from .minari import to_minari
from .record import Episode, Policy, Recording, load_recording, record, record_actions
from .replay import Difference, ReplayReport, replay
from .robomimic import to_robomimic

__all__ = [
    "Difference",
    "Episode",
    "Policy",
    "Recording",
    "ReplayReport",
    "load_recording",
    "record",
    "record_actions",
    "replay",
    "to_lerobot",
    "to_maniskill",
    "to_minari",
    "to_robomimic",
]
