"""An interactive viewer in the browser: of an environment, of a policy in it, or of a recording.

>>> env, params = fraxenv.make("PandaReachObstacles-v0")
>>> open_viewer(env, params).run()

It needs the extra `viewer`. See docs/viewer.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .viewer import Viewer, open_viewer, watch

__all__ = ["Viewer", "open_viewer", "watch"]

__getattr__, __dir__ = lazy_names(
    __name__, {"Viewer": "viewer", "open_viewer": "viewer", "watch": "viewer"}
)
