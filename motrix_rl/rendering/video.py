# pyright: reportMissingImports=false
# (imageio-ffmpeg is an extra)
"""A video file from pictures, by the ffmpeg that imageio-ffmpeg brings."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from motrix_rl.errors import MotrixError, UsageError

if TYPE_CHECKING:
    from motrix_rl.rendering.frames import Picture

#: Players show at most so many frames a second; a faster environment is shown with every n-th frame.
MAX_FPS = 60.0
SUFFIXES = (".mp4", ".mkv", ".mov")


def check_target(path: Path) -> None:
    """Refuses a file that cannot become a video.

    Raises:
        UsageError: its name's ending is no container for H.264, or there is no such directory.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--video={path}: the name must end in {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"--video={path}: there is no directory {path.parent}")


def frame_rate(control_dt: float) -> tuple[float, int]:
    """Frames a second that show real time, and every how many control steps a frame is taken."""
    every = max(1, round(1.0 / (MAX_FPS * control_dt)))
    return 1.0 / (control_dt * every), every


class VideoFile:
    """H.264 in a file that appears when it is complete.

    Args:
        path: where it goes; an older file is replaced.
        fps: frames a second.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self.path, self._fps = path, fps
        self._temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
        self._sink: Generator[None, Any, None] | None = None
        self.frames = 0

    def add(self, picture: Picture) -> None:
        """Appends a picture; all have the size of the first.

        Raises:
            MotrixError: ffmpeg failed.
        """
        # yuv420p halves the colours' resolution, so sizes must be even.
        height, width = (size // 2 * 2 for size in picture.shape[:2])
        if self._sink is None:
            self._sink = self._open(width, height)
        try:
            self._sink.send(picture[:height, :width].tobytes())
        except (OSError, StopIteration) as error:
            raise MotrixError(f"cannot write {self.path}: {error}") from error
        self.frames += 1

    def _open(self, width: int, height: int) -> Generator[None, Any, None]:
        import imageio_ffmpeg

        fps: Any = self._fps  # its annotation says int; ffmpeg takes fractions
        sink = imageio_ffmpeg.write_frames(
            str(self._temporary), (width, height), fps=fps, codec="libx264", quality=7, macro_block_size=2,
            ffmpeg_log_level="error",
        )  # fmt: skip
        sink.send(None)
        return sink

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sink is not None:
            self._sink.close()
        if kind is None and self._temporary.is_file() and self._temporary.stat().st_size:
            os.replace(self._temporary, self.path)
            return
        self._temporary.unlink(missing_ok=True)
        if kind is None:
            raise MotrixError(f"{self.path} was not written: ffmpeg left nothing")
