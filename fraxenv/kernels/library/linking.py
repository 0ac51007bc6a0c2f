"""Object files to libraries, by the compiler and the archiver that are installed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import KernelError


def link_shared(object_file: Path, library: Path, target: str) -> None:
    """Make a shared library of an object file.

    Raises:
        KernelError: there is no compiler for the target, or it fails.
    """
    compiler = _tool("CC", _compilers(target), f"a C compiler for {target}")
    mac = os.uname().sysname == "Darwin" if target == "native" and hasattr(os, "uname") else False
    name = [f"-Wl,-install_name,@rpath/{library.name}"] if mac else [f"-Wl,-soname,{library.name}"]
    _run([*compiler, "-shared", *name, "-o", str(library), str(object_file), "-lm"])


def archive(object_file: Path, library: Path) -> None:
    """Make a static library of an object file.

    Raises:
        KernelError: there is no archiver, or it fails.
    """
    library.unlink(missing_ok=True)  # it would be added to
    _run([*_tool("AR", ("ar", "llvm-ar"), "an archiver"), "rcs", str(library), str(object_file)])


def _compilers(target: str) -> tuple[str, ...]:
    return ("aarch64-linux-gnu-gcc",) if target == "aarch64" else ("cc", "gcc", "clang")


def _tool(variable: str, names: Sequence[str], what: str) -> list[str]:
    """The command of a tool: what the environment says, or the first that is installed."""
    asked = os.environ.get(variable)
    if asked:
        return shlex.split(asked)
    found = next((name for name in names if shutil.which(name)), None)
    if found is None:
        raise KernelError(
            f"export: {what} was not found: none of {', '.join(names)} is on the PATH. Install "
            f"one, name another by {variable}=..., or pass kind='object' and link it yourself."
        )
    return [found]


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise KernelError(f"export: there is no {command[0]!r}, which was asked for.") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip()
        raise KernelError(f"export: {' '.join(command)} failed: {said}") from error
