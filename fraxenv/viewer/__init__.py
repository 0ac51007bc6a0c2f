"""An interactive viewer in the browser: of an environment, of a policy in it, or of a recording.

>>> env, params = fraxenv.make("PandaReachObstacles-v0")
>>> open_viewer(env, params).run()

It needs the extra `viewer`. See docs/viewer.md.
"""

from __future__ import annotations

from .viewer import Viewer, open_viewer, watch

__all__ = ["Viewer", "open_viewer", "watch"]
