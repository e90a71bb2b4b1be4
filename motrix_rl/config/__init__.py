"""Configuration: schema, recipes, command line. Imports no torch, mujoco or gymnasium."""

from motrix_rl.config.load import dump_config, load_config, load_saved
from motrix_rl.config.schema import DEFAULT_TASK, AsyncOptions, RootConfig

__all__ = ["DEFAULT_TASK", "AsyncOptions", "RootConfig", "dump_config", "load_config", "load_saved"]
