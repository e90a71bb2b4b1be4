"""What the spawned workers of the binding tests do."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from pathlib import Path


def thread_masks() -> list[str]:
    """Allowed CPUs of every thread of this process, as the kernel tells them."""
    masks: list[str] = []
    for status in Path("/proc/self/task").glob("*/status"):
        lines = status.read_text().splitlines()
        masks.append(next(line.split("\t")[1] for line in lines if line.startswith("Cpus_allowed_list")))
    return masks


def report(answer: Connection) -> None:
    """Starts torch's and numpy's pools, then tells what this process was given."""
    before_imports = thread_masks()
    import numpy as np
    import torch

    a = torch.randn(400, 400)
    (a @ a).sum().item()
    b = np.random.default_rng(0).standard_normal((400, 400))
    (b @ b).sum()
    answer.send(
        {
            "first": before_imports,
            "masks": thread_masks(),
            "torch": torch.get_num_threads(),
            "environment": {
                k: os.environ.get(k) for k in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "EXTRA")
            },
            "policy": Path("/proc/self/numa_maps").read_text().split("\n", 1)[0]
            if Path("/proc/self/numa_maps").exists()
            else "",
        }
    )
    answer.close()
