"""The 3D scene in the browser, kept equal to a list of shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..rendering import Camera, Shape

_FURTHER: Final = 1.3  # than the camera of pictures, which need not leave room for panels
_SIDES: Final = 24  # of what is round, as a mesh
_Appearance = tuple[str, tuple[float, ...], tuple[float, float, float, float]]


class Stage:
    """The shapes that a viser server shows.

    Args:
        server: of `page.serve`.
        camera: where clients look from at first.
        on_click: told the position (3,), m, of an obstacle or goal that is clicked.
    """

    def __init__(
        self, server: Any, camera: Camera, on_click: Callable[[NDArray[Any]], None]
    ) -> None:
        self._server, self._on_click = server, on_click
        self._nodes: list[tuple[_Appearance, Any]] = []
        _look(server.initial_camera, camera)
        for client in server.get_clients().values():  # which were there before
            _look(client.camera, camera)

    def show(self, shapes: Sequence[Shape], clickable: range) -> None:
        """Show these shapes and no others.

        Args:
            shapes: in the world.
            clickable: indices of those that can be clicked.
        """
        while len(self._nodes) > len(shapes):
            self._nodes.pop()[1].remove()
        turns = quaternions(np.array([shape.rotation for shape in shapes]).reshape(-1, 3, 3))
        for i, (shape, wxyz) in enumerate(zip(shapes, turns, strict=True)):
            appearance = shape.kind, shape.size, shape.rgba
            if i < len(self._nodes) and self._nodes[i][0] == appearance:
                node = self._nodes[i][1]
            else:
                node = self._added(f"/shapes/{i}", shape)
                if i in clickable:
                    node.on_click(lambda event: self._on_click(event.target.position))
                self._nodes[i : i + 1] = [(appearance, node)]
            node.position, node.wxyz = shape.position, wxyz

    def _added(self, name: str, shape: Shape) -> Any:
        """A new node, in the place of one of the same name."""
        scene, alpha = self._server.scene, shape.rgba[3]
        look: dict[str, Any] = {
            "color": tuple(round(255 * c) for c in shape.rgba[:3]),
            "opacity": None if alpha == 1.0 else alpha,
            "cast_shadow": alpha > 0.5,
        }
        if shape.kind == "sphere":
            return scene.add_icosphere(name, shape.size[0], subdivisions=4, **look)
        if shape.kind == "box":
            return scene.add_box(name, dimensions=shape.size, **look)
        if shape.kind == "cylinder":
            return scene.add_cylinder(name, *shape.size, **look)
        return scene.add_mesh_simple(name, *_capsule(*shape.size), **look)


def _capsule(radius: float, length: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Vertices (n, 3), m, and faces (k, 3), outward, of a capsule along z; `length` of its core.

    Rings from pole to pole, of which the two at the equators are the ends of the core. What else
    makes such meshes takes half a second to be imported, in which the first picture waits.
    """
    half = np.linspace(0.0, np.pi / 2, _SIDES // 4 + 1)
    polar = np.concatenate([half, np.pi - half[::-1]])[:, None]
    around = np.linspace(0.0, 2 * np.pi, _SIDES, endpoint=False)
    ends = np.repeat([[length / 2], [-length / 2]], len(half), axis=0)
    x, y = radius * np.sin(polar) * np.cos(around), radius * np.sin(polar) * np.sin(around)
    z = np.broadcast_to(radius * np.cos(polar) + ends, x.shape)
    ring, side = np.divmod(np.arange((len(polar) - 1) * _SIDES), _SIDES)
    here, there = ring * _SIDES + side, ring * _SIDES + (side + 1) % _SIDES
    below, beside = here + _SIDES, there + _SIDES
    faces = np.concatenate([np.stack([here, below, beside], 1), np.stack([here, beside, there], 1)])
    return np.stack([x, y, z], axis=-1).reshape(-1, 3), faces


def _look(through: Any, camera: Camera) -> None:
    """Have a client's camera, or that of clients to come, look as that of pictures does."""
    away = np.subtract(camera.eye, camera.target)
    through.position = tuple(camera.target + _FURTHER * away)
    through.look_at = camera.target
    through.fov = np.radians(camera.fov)


def quaternions(rotations: NDArray[Any]) -> NDArray[Any]:
    """The unit quaternions wxyz (n, 4) of rotations (n, 3, 3)."""
    from viser.transforms import SO3

    wxyz: NDArray[Any] = SO3.from_matrix(np.asarray(rotations, float)).wxyz
    return wxyz


def rotation_of(wxyz: NDArray[Any]) -> NDArray[Any]:
    """The rotation (3, 3) of a quaternion."""
    from viser.transforms import SO3

    return np.asarray(SO3(np.asarray(wxyz, float)).as_matrix())
