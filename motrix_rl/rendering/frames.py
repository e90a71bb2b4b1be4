# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled modules come without stubs)
"""Pictures of world 0 of an environment. Import it after `choose_gl`."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
import mujoco
import numpy as np
from numpy.typing import NDArray

from motrix_rl.envs.base import BatchEnv
from motrix_rl.envs.gymnasium_backend import GymnasiumBatchEnv
from motrix_rl.envs.mujoco.base import MujocoBatchEnv
from motrix_rl.errors import UsageError, did_you_mean

Picture = NDArray[np.uint8]
"""[height, width, 3], RGB."""

#: Of environments that do not say how long a step is.
DEFAULT_DT = 1 / 30


class Frames(Protocol):
    """Draws one environment."""

    def picture(self) -> Picture:
        """The present state; the array is the caller's."""
        ...

    def close(self) -> None:
        """Gives the drawing context back."""
        ...


def make_frames(env: BatchEnv, task: str, width: int, height: int, camera: str | None) -> Frames:
    """Chooses how an environment is drawn.

    Args:
        env: world 0 is drawn.
        task: its name, for messages.
        width: pixels, where the environment leaves it to us.
        height: pixels, likewise.
        camera: name of a camera of the model; None chooses one that follows.

    Raises:
        UsageError: there is no such camera.
    """
    if isinstance(env, MujocoBatchEnv):
        return MujocoFrames(env, width, height, camera)
    if camera is not None:
        raise UsageError(f"--camera: {task} has no cameras to choose from")
    return OwnFrames(env, task)


class MujocoFrames:
    """MuJoCo's own renderer."""

    def __init__(self, env: MujocoBatchEnv, width: int, height: int, camera: str | None) -> None:
        self._env = env
        size = env.model.vis.global_
        size.offwidth, size.offheight = max(size.offwidth, width), max(size.offheight, height)
        self._camera = choose_camera(env.model, camera)
        self._renderer = mujoco.Renderer(env.model, height, width)
        self._data = mujoco.MjData(env.model)

    def picture(self) -> Picture:
        self._env.mj_data(0, self._data)
        self._renderer.update_scene(self._data, self._camera)
        return self._renderer.render().copy()

    def close(self) -> None:
        self._renderer.close()


def choose_camera(model: mujoco.MjModel, name: str | None) -> mujoco.MjvCamera:
    """The camera named, else the model's first one, else one that follows the first body.

    Raises:
        UsageError: the model has no camera of that name.
    """
    camera = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    names = [model.camera(i).name for i in range(model.ncam)]
    if name is not None and name not in names:
        raise UsageError(f"the model has no camera '{name}'{did_you_mean(name, names) or '; it has none'}")
    if names:
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = 0 if name is None else names.index(name)
    elif model.nbody > 1:
        camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
        camera.trackbodyid = 1
    return camera


class OwnFrames:
    """What the environment draws itself: Gymnasium's, or `BatchEnv.render` of a task of one's own."""

    def __init__(self, env: BatchEnv, task: str) -> None:
        self._env, self._task = env, task

    def picture(self) -> Picture:
        """The present state.

        Raises:
            UsageError: the environment draws nothing, or what it needs for that is missing.
        """
        picture: Any = None
        try:
            if isinstance(self._env, GymnasiumBatchEnv):
                picture = self._env.envs[0].render()
            else:
                picture = self._env.render()
        except NotImplementedError:
            picture = None
        except (gym.error.Error, ImportError) as error:
            raise UsageError(f"{self._task} cannot draw itself: {' '.join(str(error).split())}") from error
        if isinstance(picture, list | tuple) and picture:
            picture = picture[0]
        if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
            raise UsageError(
                f"{self._task} draws no pictures (no render_mode rgb_array, or no render method)"
            )
        return np.array(picture, np.uint8)

    def close(self) -> None:
        """Nothing of ours to give back."""
