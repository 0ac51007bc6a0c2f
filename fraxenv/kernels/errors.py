"""Errors of the kernel compiler."""

from __future__ import annotations

from ..errors import KernelError

__all__ = [
    "BetterOutsideError",
    "BuildError",
    "KernelError",
    "KernelWarning",
    "TooLongError",
    "UnsupportedError",
]


class UnsupportedError(Exception):
    """An equation has no rule: it is computed outside the kernel, batched. Never reaches users."""


class BetterOutsideError(UnsupportedError):
    """An equation that JAX computes faster than a kernel does. Never reaches users."""


class TooLongError(Exception):
    """What was attempted makes too many values: a loop stays one instead. Never reaches users."""


class BuildError(RuntimeError):
    """An executor cannot build or run a kernel here; `auto` falls back to another."""


class KernelWarning(UserWarning):
    """Something works, but slower than it might; says why and what would help."""
