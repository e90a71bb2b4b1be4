"""Videos without a display, and what is said where they cannot be made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from motrix_rl.cli.main import main
from motrix_rl.envs.base import StepBuffers
from motrix_rl.errors import MotrixError, UsageError
from motrix_rl.rendering.gl import choose_gl, try_way
from motrix_rl.rendering.playing import play_episodes
from motrix_rl.rendering.video import VideoFile, check_target, frame_rate
from motrix_rl.runs import RunDirectory
from motrix_rl.tasks.registry import make_env
from tests.export.policies import make_run

ROOT = Path(__file__).resolve().parents[2]
PENDULUM = "task=gymnasium:InvertedPendulum-v5/gymnasium.fastsac"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path, "env.max_episode_steps=30")


def frames_of(path: Path) -> np.ndarray:
    """All frames [n, height, width, 3]."""
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = next(reader)["size"]
    return np.stack([np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader])


def play(run: RunDirectory, *words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: how to draw is settled once in a process."""
    code = "import sys; from motrix_rl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, "play", str(run.path), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        stdin=subprocess.DEVNULL,
    )


def test_a_video_shows_the_model_move(run: RunDirectory, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    if all(try_way(way) is not None for way in ("egl", "osmesa")):
        pytest.skip("neither EGL nor OSMesa works here")
    target = tmp_path / "play.mp4"
    done = play(run, "--video", str(target), "--episodes", "2", "--width", "161", "--height", "120")
    assert done.returncode == 0, done.stderr
    assert "episode 2: return" in done.stdout
    assert "30 steps, truncated" in done.stdout
    frames = frames_of(target)
    # 100 control steps a second, every second one shown: 60 steps are 30 frames.
    assert frames.shape == (30, 120, 160, 3)
    assert frames[0].std() > 10  # a picture, not one colour
    assert np.abs(frames[0].astype(int) - frames[14]).max() > 50  # and it changes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["play.mp4", "runs"]


def test_gymnasium_draws_itself(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    if all(try_way(way) is not None for way in ("egl", "osmesa")):
        pytest.skip("neither EGL nor OSMesa works here")
    run = make_run(tmp_path, PENDULUM, "env.max_episode_steps=3")
    done = play(run, "--video", str(tmp_path / "p.mp4"))
    assert done.returncode == 0, done.stderr
    frames = frames_of(tmp_path / "p.mp4")
    assert len(frames) == 3
    assert frames[0].std() > 10


@pytest.mark.covers("U1")
def test_without_a_display_a_video_is_offered(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["play", str(run.path)]) == 2
    line = capsys.readouterr().err
    assert "no display" in line
    assert f"{run.path} --video" in line
    assert main(["play", str(run.path), "--video", "play.gif"]) == 2
    assert "must end in .mp4" in capsys.readouterr().err
    monkeypatch.setattr("motrix_rl.extras.importlib.util.find_spec", lambda name: None)
    assert main(["play", str(run.path), "--video", "play.mp4"]) == 2
    assert "pip install imageio-ffmpeg" in capsys.readouterr().err


def test_the_first_way_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "x")
    monkeypatch.delenv("MUJOCO_GL")
    asked: list[str] = []

    def only_osmesa(way: str) -> str | None:
        asked.append(way)
        return None if way == "osmesa" else "no device"

    assert choose_gl(only_osmesa) == "osmesa"
    assert asked == ["egl", "osmesa"]
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(UsageError, match="MUJOCO_GL is set"):
        choose_gl(only_osmesa)


def test_what_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(UsageError, match=r"egl: gone; osmesa: gone; .*apt-get install libegl1 libgl1"):
        choose_gl(lambda way: "gone")
    assert try_way("no-such-way") is not None


def test_frame_rates_show_real_time() -> None:
    assert frame_rate(0.05) == (20.0, 1)
    assert frame_rate(0.01) == (50.0, 2)
    fps, every = frame_rate(0.002)
    assert fps * 0.002 * every == pytest.approx(1.0)
    assert 30 <= fps <= 66


def test_a_video_that_fails_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    picture = np.zeros((32, 32, 3), np.uint8)
    with pytest.raises(ZeroDivisionError), VideoFile(tmp_path / "a.mp4", 10.0) as video:  # noqa: PT012
        video.add(picture)
        raise ZeroDivisionError
    with pytest.raises(MotrixError, match="left nothing"), VideoFile(tmp_path / "b.mp4", 10.0):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="no directory"):
        check_target(tmp_path / "no" / "c.mp4")


def test_whole_episodes_are_played_and_watched() -> None:
    env = make_env("cartpole-swingup", "mujoco", 1, seed=0, options={"max_episode_steps": 10})
    seen: list[int] = []

    def act(obs: np.ndarray, out: np.ndarray) -> None:
        out[:] = 0.5

    played = play_episodes(env, act, 2, 3, lambda steps: seen.append(steps) is None)
    assert [(episode.length, episode.ending) for episode in played] == [(10, "truncated")] * 2
    assert seen == list(range(20))
    # The same steps by hand give the same sum.
    buffers = StepBuffers.allocate(env.env_spec, 1)
    env.reset_into(3, buffers.obs)
    total = 0.0
    for _ in range(10):
        env.step_into(np.full((1, 1), 0.5, np.float32), buffers)
        total += float(buffers.reward[0])
    assert played[0].undiscounted == pytest.approx(total, abs=1e-6)
    assert play_episodes(env, act, 2, 3, lambda steps: steps < 4) == []
    env.close()


def test_cameras_are_chosen_by_name() -> None:
    import mujoco

    from motrix_rl.rendering.frames import choose_camera

    with_cameras = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><camera name='far'/><camera name='near'/></worldbody></mujoco>"
    )
    assert choose_camera(with_cameras, "near").fixedcamid == 1
    assert choose_camera(with_cameras, None).fixedcamid == 0
    with pytest.raises(UsageError, match="did you mean 'near'"):
        choose_camera(with_cameras, "neer")
    bare = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><geom size='1'/></body></worldbody></mujoco>"
    )
    assert choose_camera(bare, None).trackbodyid == 1
