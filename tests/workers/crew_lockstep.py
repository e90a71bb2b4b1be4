"""Ranks as processes that meet over Gloo and do one job after the other, all the same one at a time."""

from __future__ import annotations

import multiprocessing
import pickle
import re
import socket
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

import torch

from transport import ControlBlock, Descriptor, StopSignal
from workers.collectives import RankGroup
from workers.wiring import GroupAddress

JOB_LIMIT_S = 60.0


class TracedGroup(RankGroup):
    """Keeps the order of collectives too, with the number of elements where that is what matters."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.trace: list[str] = []
        self.stops: list[StopSignal] = []
        super().__init__(*args, **kwargs)

    def all_reduce_mean_(self, flat: torch.Tensor) -> None:
        super().all_reduce_mean_(flat)
        self.trace[-1] += f" {flat.numel()}"

    def _call(self, kind: str, collective: Callable[[], object]) -> None:
        self.trace.append(kind)
        super()._call(kind, collective)


class RankCrew:
    """W processes, one a rank. ``run`` has each do ``job(group, *arguments)`` and returns what they return."""

    def __init__(self, world_size: int) -> None:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        host, port = listener.getsockname()
        context = multiprocessing.get_context("spawn")
        control = ControlBlock.create([f"learner-{rank}" for rank in range(world_size)])
        #: Stop signals for jobs, which pick one by its number: they can only be passed on at a start.
        self._stops = [StopSignal() for _ in range(12)]
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(world_size):
            mine, theirs = context.Pipe()
            held = Descriptor(listener.detach(), "meeting point") if rank == 0 else None
            process = context.Process(
                target=serve,
                kwargs={
                    "address": GroupAddress(host, port, held),
                    "rank": rank,
                    "world_size": world_size,
                    "control": control,
                    "jobs": theirs,
                    "stops": self._stops,
                },
                daemon=True,
            )
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def run(self, job: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Every rank does the job at once; results in rank order."""
        for pipe in self._pipes:
            pipe.send((job, arguments))
        results: list[Any] = []
        deadline = time.monotonic() + JOB_LIMIT_S
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(max(0.0, deadline - time.monotonic())):
                raise AssertionError(f"rank {rank} has not ended {job.__name__} in {JOB_LIMIT_S:g} s")
            ended, value = pickle.loads(pipe.recv())
            if not ended:
                raise AssertionError(f"rank {rank}: {value}")
            results.append(value)
        return results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)
            process.kill()
            process.join()
        for stop in self._stops:
            stop.close()


def serve(
    address: GroupAddress,
    rank: int,
    world_size: int,
    control: ControlBlock,
    jobs: Connection,
    stops: list[StopSignal],
) -> None:
    """Body of one rank's process."""
    torch.set_num_threads(1)
    group = TracedGroup(
        address,
        rank=rank,
        world_size=world_size,
        device=torch.device("cpu"),
        board=control.board(f"learner-{rank}"),
        exclusive=False,
    )
    group.stops = stops
    while True:
        try:
            job, arguments = jobs.recv()
        except EOFError:
            return
        group.trace.clear()
        group.calls.clear()
        try:
            answer = (True, job(group, *arguments))
        except Exception:
            jobs.send(pickle.dumps((False, traceback.format_exc())))
            raise
        jobs.send(pickle.dumps(answer))


def spelt(trace: list[str], sizes: dict[str, int]) -> str:
    """A trace as letters: D decision, S statistics, C critic's and A actor's gradients, others in brackets."""
    letters = {
        "decision": "D",
        "statistics": "S",
        f"gradients {sizes['critic']}": "C",
        f"gradients {sizes['actor']}": "A",
    }
    return "".join(letters.get(kind, f"<{kind}>") for kind in trace)


def follows_the_design(spelling: str, frequency: int) -> bool:
    """Whether a run is made of decisions, each with the collectives that belong to it and no other."""
    train = r"DS[CA]*(<metrics>)?"
    save = r"D<hash><checkpoint><checkpoint>"
    if re.fullmatch(rf"({train}|{save})*D<metrics>", spelling) is None:
        return False
    gradients = re.sub(r"[^CA]", "", spelling)
    return re.fullmatch(rf"(C{{{frequency}}}A)*C{{0,{frequency}}}", gradients) is not None
