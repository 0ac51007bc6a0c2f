"""Exceptions of the robot model, and the base class of all fraxenv exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class FraxenvError(Exception):
    """Base class of every exception that fraxenv raises on purpose.

    Messages say what was wrong, where, what was expected, and how to mend it.
    """


class RobotLoadError(FraxenvError, ValueError):
    """A robot description could not be turned into a `Robot`."""


class UnknownNameError(FraxenvError, KeyError):
    """A robot, frame, joint, environment or option of that name does not exist."""

    def __str__(self) -> str:
        # KeyError prints the repr of its argument, which turns a sentence into a quoted string.
        return str(self.args[0]) if self.args else ""


class ArrayError(FraxenvError, ValueError):
    """An array has the wrong shape, dtype or values."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """Build the error for an unknown name: the closest known ones first, then all of them."""
    known = list(known)
    close = get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
    return UnknownNameError(
        f"unknown {kind} {name!r}. {hint}Known: {', '.join(known) if known else 'none'}."
    )
