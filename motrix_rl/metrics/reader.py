"""Reading `metrics.jsonl`."""

from __future__ import annotations

import json
import os
from typing import Any


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All records of a metrics file, oldest first; [] where there is none yet.

    A line that a kill or a full disk cut short is left out.

    Raises:
        OSError: The file is there and cannot be read.
    """
    records: list[dict[str, Any]] = []
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    records.append(record)
    except FileNotFoundError:
        return []
    return records
