"""Which way of drawing without a display works on this machine.

MuJoCo reads `MUJOCO_GL` once, when it is imported, and a library that is missing or has no device shows only
when a context is made. So each way is tried in a process of its own, before this one imports mujoco.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from motrix_rl.errors import UsageError

#: In the order of preference: a GPU or Mesa, then software alone.
WAYS = ("egl", "osmesa")
_PROBE_S = 60.0
_PROBE = """
import mujoco
context = mujoco.GLContext(16, 16)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
context.free()
"""
_ADVICE = (
    "install one of the two (Debian, Ubuntu): apt-get install libegl1 libgl1, or: apt-get install libosmesa6"
)


def choose_gl(probe: Callable[[str], str | None] | None = None) -> str:
    """Finds a way that works and puts it into this process's environment.

    Args:
        probe: returns None where a way works, else why not; by default it is tried in a process.

    Returns:
        The value of `MUJOCO_GL`: the user's own, if set, else the first of `WAYS` that works.

    Raises:
        UsageError: none works; the line names the Debian packages to install.
    """
    probe = probe or try_way
    own = os.environ.get("MUJOCO_GL")
    reasons: list[str] = []
    for way in [own] if own else WAYS:
        reason = probe(way)
        if reason is None:
            os.environ["MUJOCO_GL"] = way
            return way
        reasons.append(f"{way}: {reason}")
    asked = " (MUJOCO_GL is set; without it another way is tried)" if own else ""
    raise UsageError(f"cannot draw without a display{asked}: {'; '.join(reasons)}; {_ADVICE}")


def try_way(way: str) -> str | None:
    """Makes a drawing context in a process of its own.

    Returns:
        None where that works, else the last line of what it said.
    """
    # PyOpenGL takes its own variable over MUJOCO_GL.
    environment = {k: v for k, v in os.environ.items() if k != "PYOPENGL_PLATFORM"} | {"MUJOCO_GL": way}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_S:.0f} s"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit code {done.returncode}"


def has_display() -> bool:
    """Whether windows can be opened."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
