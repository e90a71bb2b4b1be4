# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled modules come without stubs)
"""MuJoCo's viewer window, fed with one world of an environment at the speed of real time."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

import mujoco
import mujoco.viewer

from motrix_rl.envs.mujoco.base import MujocoBatchEnv


class Pace:
    """Sleeps so that steps of `dt` seconds take as long as they say; falls behind rather than hurry."""

    def __init__(self, dt: float) -> None:
        self._dt = dt
        self._next = time.monotonic()

    def wait(self) -> None:
        """Until the next step is due."""
        self._next = max(self._next + self._dt, time.monotonic() - self._dt)
        time.sleep(max(0.0, self._next - time.monotonic()))


class ViewerWindow:
    """Opens the window on entry; `show` after every step."""

    def __init__(self, env: MujocoBatchEnv) -> None:
        self._env = env
        self._data = env.mj_data(0)
        self._pace = Pace(env.dt)
        self._handle: Any = None

    def __enter__(self) -> Self:
        self._handle = mujoco.viewer.launch_passive(self._env.model, self._data, show_left_ui=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.close()

    def show(self, _steps: int) -> bool:
        """Draws the present state; False when the window was closed."""
        with self._handle.lock():
            self._env.mj_data(0, self._data)
        self._handle.sync()
        self._pace.wait()
        return bool(self._handle.is_running())
