"""FastSAC: distributional soft actor-critic for many parallel environments.

Only the configuration is exported here, so that importing the package costs no torch; the learner's side is
in `agent`, the acting side in `policy`.
"""

from motrix_rl.algorithms.fastsac.config import FastSACConfig

__all__ = ["FastSACConfig"]
