"""The part of the page that tells of keys and gamepad: a table of them, and its script."""

from __future__ import annotations

import html
import json
from importlib import resources
from typing import Final

from .teleoperation import CODES, LEGEND

FIELD: Final = "keys held"
"""Label of the text field, hidden, that the page writes into."""

TABLE: Final = "fraxenv-keys"
"""Of the element with the table; keys are taken while it is on the page."""

_CODES: Final = {
    "↑": "ArrowUp", "↓": "ArrowDown", "←": "ArrowLeft", "→": "ArrowRight",
    "Shift": "ShiftLeft ShiftRight", "Space": "Space", "Enter": "Enter",
}  # fmt: skip

_STYLE: Final = """
#fraxenv-keys { font-size: 0.75em; margin: 0 0.75em 0.5em; }
#fraxenv-keys table { border-collapse: collapse; width: 100%; }
#fraxenv-keys td { padding: 1px 6px 1px 0; white-space: nowrap; }
#fraxenv-keys td:nth-child(2) { color: #868e96; }
#fraxenv-keys kbd { border: 1px solid #ced4da; border-bottom-width: 2px; border-radius: 4px;
  padding: 0 5px; margin-right: 2px; background: #f8f9fa; color: #343a40; }
#fraxenv-keys kbd.held { background: #2f9e5b; border-color: #2f9e5b; color: white; }
"""


def controls_page() -> str:
    """HTML of the table; its script starts when a page first shows it."""
    script = resources.files(__package__).joinpath("controls.js").read_text("utf-8")
    given = f"const CODES = {json.dumps(sorted(CODES))}, FIELD = {json.dumps(FIELD)}, "
    given += f"TABLE = {json.dumps(TABLE)};"
    # HTML that is set later runs no scripts; a picture that there is not does.
    start = f"{given} (window.fraxenvControls ??= {script}).hide();"
    rows = "".join(_row(*row) for row in LEGEND)
    return (
        f'<div id="{TABLE}"><style>{_STYLE}</style><table>{rows}</table>'
        f'<img alt="" hidden src="data:," onerror="{html.escape(start)}"></div>'
    )


def _row(keys: tuple[str, ...], pad: str, does: str) -> str:
    shown = "".join(
        f'<kbd data-code="{_CODES.get(key, f"Key{key}")}">{html.escape(key)}</kbd>' for key in keys
    )
    return f"<tr><td>{shown}</td><td>{html.escape(pad)}</td><td>{html.escape(does)}</td></tr>"
