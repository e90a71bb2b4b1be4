"""Finds and loads MJCF files, and keeps MuJoCo from writing into the user's directory."""

# pyright: reportAttributeAccessIssue=false
# (mujoco's compiled modules come without stubs)
from __future__ import annotations

from pathlib import Path

import gymnasium
import mujoco

from motrix_rl.errors import UsageError, did_you_mean

OWN_ASSETS = Path(__file__).parent / "assets"


def gymnasium_assets() -> Path:
    """Returns the folder of MJCF files within the installed gymnasium package."""
    # Found by path: importing gymnasium.envs.mujoco would need its rendering dependencies.
    return Path(str(gymnasium.__file__)).parent / "envs" / "mujoco" / "assets"


def find_model(xml_file: str) -> Path:
    """Returns the path of an MJCF file, named as Gymnasium's constructors name it.

    Args:
        xml_file: a path if it begins with `/`, `.` or `~`, otherwise a name within gymnasium's assets.

    Raises:
        UsageError: there is no such file.
    """
    if xml_file.startswith(("/", ".", "~")):
        path = Path(xml_file).expanduser()
        if not path.is_file():
            raise UsageError(f"xml_file: no file {xml_file}")
        return path
    path = gymnasium_assets() / xml_file
    if not path.is_file():
        hint = did_you_mean(xml_file, sorted(p.name for p in gymnasium_assets().glob("*.xml")))
        raise UsageError(f"xml_file: gymnasium has no {xml_file}{hint} (write ./{xml_file} for your own)")
    return path


def load_model(path: Path) -> mujoco.MjModel:
    """Compiles an MJCF file.

    Raises:
        UsageError: MuJoCo cannot compile it; the message holds MuJoCo's reason.
    """
    silence_log_file()
    config = mujoco.MjLogConfig.get()
    console = config.logto_console
    if path.parent == gymnasium_assets():
        # Its files use attributes that MuJoCo calls deprecated at every load; nobody here can change that.
        config.logto_console = False
        config.set()
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path} is not a valid model: {reason}") from error
    finally:
        config.logto_console = console
        config.set()


def silence_log_file() -> None:
    """Stops MuJoCo from appending its warnings to MUJOCO_LOG.TXT in the working directory.

    They still go to standard error, which is a worker's log. A log file that somebody chose is left alone.
    """
    config = mujoco.MjLogConfig.get()
    if config.logto_file and config.logfile == "MUJOCO_LOG.TXT":
        config.logto_file = False
        config.set()
