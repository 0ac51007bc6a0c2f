"""One program, three executors: a JAX transformation for batches of small-array functions.

`fuse(fn)` means `jax.vmap(fn)`, and computes it as one fused kernel over the batch. It depends on
nothing but JAX and NumPy, and on llvmlite where that is installed.
"""

from .direct import direct
from .errors import BuildError, KernelError, KernelWarning
from .explain import Explanation, explain
from .fuse import BACKENDS, check_backend, fuse, fusible, resolve
from .library import Library, export
from .native.cpu import get_threads, set_threads
from .programs import keep_programs

__all__ = [
    "BACKENDS",
    "BuildError",
    "Explanation",
    "KernelError",
    "KernelWarning",
    "Library",
    "check_backend",
    "direct",
    "explain",
    "export",
    "fuse",
    "fusible",
    "get_threads",
    "keep_programs",
    "resolve",
    "set_threads",
]
