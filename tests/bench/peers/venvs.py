"""A virtual environment for each peer: made once, kept, and never ours."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from motrix_rl.errors import MotrixError
from tests.bench.peers.catalogue import HERE
from tests.bench.peers.children import Child

#: Seconds that pip may take: gigabytes over a slow line.
INSTALL_S = 3600.0


def python_of(peer: str, venvs: Path) -> Path:
    """Makes the peer's environment unless it is there; returns its interpreter.

    Args:
        peer: whose; `requirements/<peer>.txt` names every package with its version.
        venvs: directory of all environments.

    Raises:
        MotrixError: it could not be made; what was begun is gone again.
    """
    wanted = (HERE / "requirements" / f"{peer}.txt").read_text()
    place = venvs / peer
    python = place / "bin" / "python"
    complete = place / "requirements.txt"  # written last
    if complete.exists() and complete.read_text() == wanted and python.exists():
        return python
    shutil.rmtree(place, ignore_errors=True)
    print(f"{peer}: making its virtual environment in {place} (some minutes)", flush=True)
    venvs.mkdir(parents=True, exist_ok=True)
    log = venvs / f"{peer}.log"
    log.unlink(missing_ok=True)
    try:
        _run([sys.executable, "-m", "venv", str(place)], log, f"{peer}: no virtual environment could be made")
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        file = HERE / "requirements" / f"{peer}.txt"
        _run([*pip, "--retries", "2", "-r", str(file)], log, f"{peer}: pip install failed")
        complete.write_text(wanted)
    finally:
        if not complete.exists():
            shutil.rmtree(place, ignore_errors=True)
    return python


def _run(command: list[str], log: Path, failed: str) -> None:
    with Child(command, log) as child:
        code = child.wait(INSTALL_S)
    if code != 0:
        reason = reason_in(log.read_text(errors="replace")) if code is not None else "it took over an hour"
        raise MotrixError(f"{failed}: {reason}; everything it said is in {log}")


def reason_in(text: str) -> str:
    """Why pip gave up, in one line."""
    if re.search(r"NewConnectionError|NameResolutionError|ConnectTimeoutError|name resolution", text):
        return "no network: the package index cannot be reached"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[0 if errors else -1].removeprefix("ERROR: ")
