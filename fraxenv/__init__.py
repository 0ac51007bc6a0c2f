"""fraxenv: batched robot environments in pure JAX whose actions say where the hand goes."""

from .kernels import fuse
from .making import make
from .recording import Recording, load_recording, record, replay, to_minari
from .registration import register_envs
from .registry import list_envs
from .storage.state import load_state, save_state

__version__ = "0.1.0"

__all__ = [
    "Recording",
    "__version__",
    "fuse",
    "list_envs",
    "load_recording",
    "load_state",
    "make",
    "record",
    "replay",
    "save_state",
    "to_minari",
]

register_envs()
