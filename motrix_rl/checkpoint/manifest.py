"""The manifest: which files make a checkpoint, and how to tell that they are whole. No torch here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from motrix_rl.checkpoint.errors import CheckpointError
from motrix_rl.runs import atomic

KIND = "motrix_rl.checkpoint"
FORMAT = 1
_CHUNK = 1 << 20


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint: its size in bytes and the SHA-256 of its content, in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What one checkpoint consists of.

    Attributes:
        step: The generation it was taken at.
        sequence: Order of commits in a directory. Steps need not rise: a run may go on from an older
            checkpoint.
        files: Every file of the checkpoint but the manifest.
        metadata: The caller's own plain data.
    """

    step: int
    sequence: int
    files: Mapping[str, FileEntry]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Writes the manifest durably. A digest over its own content makes a later edit show.

        Raises:
            OSError: The disk refused.
            ValueError: The metadata is not plain data (JSON without NaN).
        """
        body: dict[str, Any] = {
            "kind": KIND,
            "format": FORMAT,
            "step": self.step,
            "sequence": self.sequence,
            "files": {
                name: {"size": entry.size, "sha256": entry.sha256} for name, entry in self.files.items()
            },
            "metadata": dict(self.metadata),
        }
        try:
            text = json.dumps({**body, "digest": _digest(body)}, indent=2, allow_nan=False)
        except TypeError as error:
            raise ValueError(f"checkpoint metadata must be plain data: {error}") from error
        atomic.write_durably(path, text.encode() + b"\n")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads and checks a manifest.

        Raises:
            CheckpointError: It is missing, no manifest of ours, of an unknown format, or edited.
        """
        try:
            body = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise CheckpointError(f"{path.parent} is no checkpoint: {path.name} is missing") from None
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        if not isinstance(body, dict) or body.get("kind") != KIND:
            raise CheckpointError(f"{path} is not a manifest of this project")
        if body.get("format") != FORMAT:
            raise CheckpointError(
                f"{path} has format {body.get('format')!r}, this version reads {FORMAT}; "
                "use the version that wrote it"
            )
        if body.pop("digest", None) != _digest(body):
            raise CheckpointError(f"{path} was changed after it was written (its digest does not match)")
        # The digest holds, so we wrote it and its fields have our types.
        return cls(
            step=body["step"],
            sequence=body["sequence"],
            files={name: FileEntry(entry["size"], entry["sha256"]) for name, entry in body["files"].items()},
            metadata=body["metadata"],
        )

    def check_files(self, directory: Path) -> None:
        """Reads every file of the checkpoint and compares it with the manifest.

        Raises:
            CheckpointError: One is missing, cut short or changed.
        """
        for name, entry in self.files.items():
            with open_checked(directory / name, entry):
                pass


def open_checked(path: Path, entry: FileEntry) -> BinaryIO:
    """Opens a file whose content is what the manifest says; what is read from it is what was checked.

    Raises:
        CheckpointError: Missing, unreadable, cut short or changed.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - handed to the caller
    except OSError as error:
        raise CheckpointError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        size = file.seek(0, 2)
        if size != entry.size:
            raise CheckpointError(
                f"{path} has {size} bytes, the manifest says {entry.size}: cut short or changed"
            )
        file.seek(0)
        if hash_file(file) != entry.sha256:
            raise CheckpointError(
                f"{path} is damaged or was changed (its SHA-256 does not match the manifest)"
            )
        file.seek(0)
    except OSError as error:
        file.close()
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except BaseException:
        file.close()
        raise
    return file


def hash_file(file: BinaryIO, on_progress: Callable[[], None] = lambda: None) -> str:
    """SHA-256 of the rest of an open file, in hexadecimal."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        on_progress()
    return digest.hexdigest()


def describe(path: Path, on_progress: Callable[[], None] = lambda: None) -> FileEntry:
    """Size and hash of a file as it is on the disk; `on_progress` is called now and then while it is read.

    Raises:
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        sha256 = hash_file(file, on_progress)
        return FileEntry(file.tell(), sha256)


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
