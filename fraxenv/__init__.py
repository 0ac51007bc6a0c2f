"""fraxenv: batched robot environments in pure JAX whose actions say where the hand goes."""

from typing import TYPE_CHECKING

from .lazy import lazy_names
from .making.registration import register_when_imported

if TYPE_CHECKING:
    from . import controllers as controllers
    from . import dynamics as dynamics
    from . import envs as envs
    from . import errors as errors
    from . import kernels as kernels
    from . import recording as recording
    from . import storage as storage
    from .controllers import planning as plan
    from .cross_check.gradients import gradient_check
    from .kernels import export, fuse, keep_programs
    from .making.make import make
    from .making.registry import list_envs
    from .recording.convert import convert
    from .recording.lerobot import to_lerobot
    from .recording.maniskill import to_maniskill
    from .recording.minari import to_minari
    from .recording.record import Recording, load_recording, record
    from .recording.replay import replay
    from .recording.robomimic import to_robomimic
    from .recording.starts import recorded_starts
    from .storage.state import load_state, save_state

__version__ = "0.1.0"

__all__ = [
    "Recording",
    "__version__",
    "convert",
    "export",
    "fuse",
    "gradient_check",
    "keep_programs",
    "list_envs",
    "load_recording",
    "load_state",
    "make",
    "plan",
    "record",
    "recorded_starts",
    "replay",
    "save_state",
    "to_lerobot",
    "to_maniskill",
    "to_minari",
    "to_robomimic",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Recording": "recording",
        "convert": "recording",
        "export": "kernels",
        "fuse": "kernels",
        "gradient_check": "cross_check.gradients",
        "keep_programs": "kernels",
        "list_envs": "making.registry",
        "load_recording": "recording",
        "load_state": "storage.state",
        "make": "making.make",
        "plan": "controllers.planning.",
        "record": "recording",
        "recorded_starts": "recording",
        "replay": "recording",
        "save_state": "storage.state",
        "to_lerobot": "recording",
        "to_maniskill": "recording",
        "to_minari": "recording",
        "to_robomimic": "recording",
        "controllers": "controllers.",
        "dynamics": "dynamics.",
        "envs": "envs.",
        "errors": "errors.",
        "kernels": "kernels.",
        "recording": "recording.",
        "storage": "storage.",
    },
)

register_when_imported()
