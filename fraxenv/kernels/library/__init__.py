"""Functions as libraries for C: machine code, a header, and a program that tests it."""

from .export import KINDS, Library, export

__all__ = ["KINDS", "Library", "export"]
