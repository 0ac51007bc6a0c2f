"""fraxenv: batched robot environments in pure JAX whose actions say where the hand goes."""

from .kernels import fuse
from .registration import register_envs
from .registry import list_envs, make

__version__ = "0.1.0"

__all__ = ["__version__", "fuse", "list_envs", "make"]

register_envs()
