"""Files that are either the old one or the new one, whatever happens in between."""

from __future__ import annotations

import os
from pathlib import Path


def fsync_dir(path: Path) -> None:
    """Makes the names in a directory durable; filesystems that refuse to are taken as they are.

    Raises:
        OSError: The directory cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network filesystems know no fsync of a directory (EINVAL); a real I/O error must surface.
        if error.errno != 22:
            raise
    finally:
        os.close(fd)


def write_durably(path: Path, data: bytes) -> None:
    """Writes a new file and waits until the disk has it.

    Raises:
        OSError: Nothing is cleaned up; the caller knows what the file is part of.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Replaces `path` by a file with `data`: a reader sees the old or the new content, never a part.

    A file has one writer, so the temporary name is fixed: what a kill leaves, the next write replaces.

    Raises:
        OSError: The old file is untouched and no temporary file stays.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write_durably(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def is_at(fd: int, path: str | os.PathLike[str]) -> bool:
    """Whether an open file is still what its path names: not so once it was deleted, moved or replaced."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def replace_symlink(path: Path, target: str) -> None:
    """Points the symbolic link `path` at `target` in one step.

    Raises:
        OSError: The old link is untouched and no temporary link stays.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.symlink(target, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
