"""The command line: one module per command, loaded when it is asked for.

A command's module has `Options`, a dataclass that is all of its command line, and `run(options)`,
which returns the exit status. `train` has `parse(argv)` as well: its defaults depend on what is
asked for.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Annotated, Any, Union

from ..errors import FraxenvError, import_extra, unknown_name
from .common import FAILED, INTERRUPTED, USAGE, parse

COMMANDS = {
    "list": "listing",
    "info": "info",
    "train": "train",
    "eval": "evaluate",
    "rollout": "rollout",
    "record": "record",
    "view": "view",
    "bench": "bench",
    "cross-check": "cross_check",
    "gradient-check": "gradient_check",
    "explain": "explain",
    "export": "export",
}
"""Command -> its module."""

_WITHOUT_JAX = ("list", "view")
"""Commands that begin without JAX: `list` needs none, `view` keeps its programs itself."""

DESCRIPTION = (
    "Robot environments in JAX whose actions say where the hand goes: train policies, evaluate "
    "and watch them, and measure. `fraxenv COMMAND --help` says more."
)


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit status: 0; 1 for an error, which is one line on stderr; 2 for a command line that
        cannot be understood; 130 after Ctrl-C.
    """
    if argv is None:
        argv = sys.argv[1:]
        _collect_seldom()
    try:
        status = _run(argv)
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # tyro's, after help or a message
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (FraxenvError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return FAILED


def _collect_seldom() -> None:
    """Let Python look for garbage less often, and not at the end.

    Tracing makes objects by the million, few of them garbage: the looking took two of the 24
    seconds of a short training.
    """
    gc.set_threshold(200_000, 20, 100)
    atexit.register(gc.freeze)


def _run(argv: list[str]) -> int:
    tyro = import_extra("tyro", "cli", "The command line")
    if argv[:1] == ["--version"]:
        print(version("fraxenv"))
        return 0
    if not argv or argv[0] in ("-h", "--help"):
        tyro.cli(_all(tyro), prog="fraxenv", description=DESCRIPTION, args=["--help"])
    if argv[0] not in COMMANDS:
        print(f"fraxenv: {unknown_name('command', argv[0], COMMANDS)}", file=sys.stderr)
        return USAGE
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # for tasks of one's own, --set task=module:Class
    module = _module(argv[0])
    if hasattr(module, "parse"):
        options = module.parse(argv[1:])
    else:
        options = parse(module.Options, argv[0], argv[1:])
    if argv[0] not in _WITHOUT_JAX:
        from ..kernels import keep_programs

        keep_programs()
    status: int = module.run(options)
    return status


def _all(tyro: Any) -> Any:
    """What tyro makes the list of commands of, the first sentence of each command's description."""
    commands = {name: _module(name).Options for name in COMMANDS}
    return Union[  # noqa: UP007  (of as many as there are commands)
        tuple(
            Annotated[
                Any,
                tyro.conf.subcommand(
                    name, constructor=kind, description=kind.__doc__.partition("\n\n")[0]
                ),
            ]
            for name, kind in commands.items()
        )
    ]


def _module(command: str) -> ModuleType:
    return import_module(f".{COMMANDS[command]}", __package__)
