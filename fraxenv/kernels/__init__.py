"""One program, three executors: a JAX transformation for batches of small-array functions.

`fuse(fn)` means `jax.vmap(fn)`, and computes it as one fused kernel over the batch. It depends on
nothing but JAX and NumPy, and on llvmlite where that is installed.
"""

from .direct import Entry, assembled, direct, entry
from .errors import BuildError, KernelError, KernelWarning
from .explain import Explanation, explain
from .fuse import BACKENDS, check_backend, fuse, fusible, resolve
from .library import Library, export
from .native.cpu import get_threads, set_threads
from .programs import keep_programs

__all__ = [
    "BACKENDS",
    "BuildError",
    "Entry",
    "Explanation",
    "KernelError",
    "KernelWarning",
    "Library",
    "assembled",
    "check_backend",
    "direct",
    "entry",
    "explain",
    "export",
    "fuse",
    "fusible",
    "get_threads",
    "keep_programs",
    "resolve",
    "set_threads",
]
