"""The page's server, and what it shows of every environment: there before JAX is imported."""

from __future__ import annotations

from typing import Any, Final

from ..errors import check_count, import_extra

_GROUND: Final = (236, 239, 243)
_CELLS: Final = (214, 219, 226)
_SKY: Final = (255, 255, 255)
_SECTIONS: Final = (190, 197, 206)


def serve(host: str, port: int) -> Any:
    """Serve a page with nothing but the ground: a `viser.ViserServer`.

    A browser takes seconds to load it, in which the environment may be made.

    Args:
        host: address to serve on.
        port: to serve on; a later one that is free if it is not.

    Raises:
        MissingExtraError: the extra `viewer` is not installed.
        ConfigError: no such port.
    """
    viser = import_extra("viser", "viewer", "The viewer")
    check_count("port", port, most=65535)
    server = viser.ViserServer(host=host, port=port, verbose=False)
    scene = server.scene
    scene.set_up_direction("+z")
    # Light from a map of surroundings takes a browser without a graphics card three seconds.
    scene.configure_environment_map(None)
    scene.add_light_hemisphere("/sky", sky_color=_SKY, ground_color=_SECTIONS, intensity=2.0)
    scene.add_grid(
        "/ground",
        infinite_grid=True,
        cell_size=0.1,
        section_size=0.5,
        cell_color=_CELLS,
        section_color=_SECTIONS,
        plane_color=_GROUND,
        plane_opacity=1.0,
        fade_distance=12.0,
        shadow_opacity=0.3,
    )
    return server


def url_of(server: Any) -> str:
    """Where a browser on this machine finds the page."""
    host = server.get_host()
    where = "localhost" if host in ("0.0.0.0", "::") else host
    return f"http://{where}:{server.get_port()}"
