"""Films from frames."""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, import_extra
from ..storage.files import write_atomic

_NEEDS = {
    ".gif": ("PIL.Image", "cli", "The film"),
    ".mp4": ("imageio_ffmpeg", "video", "An MP4"),
}
"""How a film's name ends -> what has to be installed: the package, its extra, for what."""


_SAMPLES = 8
"""Frames, at most, that the colours of a GIF are chosen by."""


def check_video(path: str | Path) -> None:
    """Check that a film of this name can be written, before the work that goes into it.

    Raises:
        ConfigError: the path ends otherwise than films do.
        MissingExtraError: the extra `cli` is not installed; for MP4 `video`.
    """
    suffix = Path(path).suffix
    if suffix not in _NEEDS:
        raise ConfigError(f"{path}: a film's name ends in {' or '.join(_NEEDS)}.")
    import_extra(*_NEEDS[suffix])


def save_video(
    path: str | Path, frames: Sequence[NDArray[np.uint8]], frames_per_second: float
) -> None:
    """Write frames (height, width, 3) to a GIF or an MP4, as the path ends; atomic.

    Raises:
        ConfigError: there are no frames, or as `check_video`.
        MissingExtraError: as `check_video`.
    """
    path = Path(path)
    check_video(path)
    if not len(frames):
        raise ConfigError(f"{path}: a film of no frames, expected one at least.")
    write = _gif if path.suffix == ".gif" else _mp4
    write_atomic(path, write(frames, frames_per_second))


def _gif(frames: Sequence[NDArray[np.uint8]], frames_per_second: float) -> bytes:
    image = import_extra(*_NEEDS[".gif"])
    # Of few colours the most different ones: a small target keeps its own. The same for all frames,
    # which is fifty times as fast as a choice for each, and nothing flickers.
    every = -(-len(frames) // _SAMPLES)
    sheet = image.fromarray(np.concatenate(frames[::every]))
    colours = sheet.quantize(256, method=image.Quantize.MAXCOVERAGE, dither=image.Dither.NONE)
    pictures = [
        image.fromarray(f).quantize(palette=colours, dither=image.Dither.NONE) for f in frames
    ]
    buffer = io.BytesIO()
    pictures[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=1000 / frames_per_second,
        loop=0,
    )
    return buffer.getvalue()


def _mp4(frames: Sequence[NDArray[np.uint8]], frames_per_second: float) -> bytes:
    ffmpeg = import_extra(*_NEEDS[".mp4"])
    height, width = frames[0].shape[:2]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # JAX warns of every fork; that of a program which is then replaced does no harm.
        warnings.filterwarnings(
            "ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning
        )
        file = Path(folder) / "film.mp4"
        writer = ffmpeg.write_frames(
            str(file), (width, height), fps=frames_per_second, macro_block_size=2, quality=8
        )
        writer.send(None)
        for frame in frames:
            writer.send(np.ascontiguousarray(frame))
        writer.close()
        return file.read_bytes()
