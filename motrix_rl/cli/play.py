"""`motrix-rl play`: a trained policy in a window, or in a video file made without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motrix_rl.checkpoint.policy import choose_checkpoint, load_policy
from motrix_rl.cli.arguments import Arguments, positive_int, seed
from motrix_rl.config import RootConfig, load_saved
from motrix_rl.errors import UsageError
from motrix_rl.extras import require
from motrix_rl.rendering.gl import choose_gl, has_display
from motrix_rl.rendering.video import VideoFile, check_target, frame_rate
from motrix_rl.runs import resolve_run
from motrix_rl.tasks.registry import TaskRef, parse_task

if TYPE_CHECKING:
    from motrix_rl.envs.base import BatchEnv
    from motrix_rl.rendering.playing import PlayedEpisode

Act = Callable[[Any, Any], None]


def main(words: list[str], program: str) -> int:
    """Plays, and says how it went; returns 0.

    Raises:
        UsageError: there is no such run, nothing to draw with, or no display and no `--video`.
    """
    arguments = _arguments(program)
    given = arguments.parse_args(words)
    run = resolve_run(given.run, given.runs_root)
    checkpoint = choose_checkpoint(run, newest=given.latest)
    config = load_saved(run.run_dir.config_path)
    task = parse_task(config.task)
    target = None if given.video is None else Path(given.video).expanduser()
    if target is not None:
        check_target(target)
        require(["imageio_ffmpeg"], "video", "a video file")
        choose_gl()  # before anything imports mujoco
    elif not has_display():
        raise UsageError(
            f"there is no display ($DISPLAY is not set); make a video: {program} {given.run} --video play.mp4"
        )
    policy, saved = load_policy(checkpoint)
    act = _acting(policy)
    env = _make_env(config, task, given.seed, "human" if target is None else "rgb_array")
    try:
        if target is None:
            played = _in_window(env, act, given.episodes, given.seed)
        else:
            frames = (given.width, given.height, given.camera)
            played = _to_file(env, act, given.episodes, given.seed, task, target, frames)
    finally:
        env.close()
    print(f"policy of generation {saved.get('generation', checkpoint.step)}, {checkpoint.path}")
    for number, episode in enumerate(played, start=1):
        print(
            f"episode {number}: return {episode.undiscounted:.1f} in {episode.length} steps, {episode.ending}"
        )
    return 0


def _arguments(program: str) -> Arguments:
    arguments = Arguments(
        program, "Shows a trained policy, without exploration noise: in a window, or in a video file."
    )
    arguments.add_argument("run", metavar="RUN", help="a run directory, a checkpoint, or 'latest'")
    arguments.add_argument("--video", metavar="FILE", help="write a video (.mp4) instead; needs no display")
    arguments.add_argument(
        "--episodes", type=positive_int, default=1, metavar="N", help="episodes (default: 1)"
    )
    arguments.add_argument("--seed", type=seed, default=1, help="seed of the environment (default: 1)")
    arguments.add_argument("--camera", metavar="NAME", help="camera of the model (default: its first)")
    arguments.add_argument(
        "--width", type=positive_int, default=640, metavar="PIXELS", help="of the video (default: 640)"
    )
    arguments.add_argument(
        "--height", type=positive_int, default=480, metavar="PIXELS", help="of the video (default: 480)"
    )
    arguments.add_argument(
        "--latest", action="store_true", help="the newest checkpoint instead of the best policy"
    )
    arguments.add_argument(
        "--runs-root", default="runs", metavar="DIR", help="where runs are (default: runs)"
    )
    return arguments


def _acting(policy: Any) -> Act:
    def act(obs: Any, out: Any) -> None:
        policy.act(obs, out, deterministic=True, generator=None)

    return act


def _make_env(config: RootConfig, task: TaskRef, seed: int, render_mode: str) -> BatchEnv:
    from motrix_rl.tasks.registry import make_env

    options = dict(config.env)
    if task.backend == "gymnasium":
        options["kwargs"] = {**options.get("kwargs", {}), "render_mode": render_mode}
    return make_env(task.task, task.backend, 1, seed=seed, options=options)


def _to_file(
    env: BatchEnv,
    act: Act,
    episodes: int,
    seed: int,
    task: TaskRef,
    target: Path,
    size: tuple[int, int, str | None],
) -> list[PlayedEpisode]:
    from motrix_rl.rendering.frames import DEFAULT_DT, make_frames
    from motrix_rl.rendering.playing import play_episodes

    fps, every = frame_rate(env.env_spec.control_dt or DEFAULT_DT)
    frames = make_frames(env, str(task), *size)
    try:
        with VideoFile(target, fps) as video:

            def look(steps: int) -> bool:
                if steps % every == 0:
                    video.add(frames.picture())
                return True

            played = play_episodes(env, act, episodes, seed, look)
    finally:
        frames.close()
    print(f"{target}: {video.frames} frames, {video.frames / fps:.1f} s")
    return played


def _in_window(env: BatchEnv, act: Act, episodes: int, seed: int) -> list[PlayedEpisode]:
    from motrix_rl.envs.gymnasium_backend import GymnasiumBatchEnv
    from motrix_rl.envs.mujoco.base import MujocoBatchEnv
    from motrix_rl.rendering.playing import play_episodes

    if isinstance(env, MujocoBatchEnv):
        from motrix_rl.rendering.viewer import ViewerWindow

        with ViewerWindow(env) as window:
            return play_episodes(env, act, episodes, seed, window.show)
    if isinstance(env, GymnasiumBatchEnv):  # render_mode human shows every step by itself
        return play_episodes(env, act, episodes, seed, lambda _steps: True)
    raise UsageError("this task has no window of its own; make a video with --video play.mp4")
