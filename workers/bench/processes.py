"""The bench's own processes, as the bench holds them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from motrix_rl.errors import MotrixError
from topology import bound_spawn
from workers.bench.stands import serve

_GOODBYE_S = 5.0


class BenchProcess:
    """One process, bound as the topology binds the worker that it stands for.

    Args:
        name: for messages.
        target: what it runs; it sends `("ready", None)` first.
        kwargs: its arguments, `connection` apart.
        cpus: CPUs.
        numa_node: node of its memory.
        threads: native threads.
    """

    def __init__(
        self,
        name: str,
        target: Callable[..., None],
        kwargs: dict[str, Any],
        *,
        cpus: tuple[int, ...],
        numa_node: int | None,
        threads: int,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._connection, theirs = context.Pipe()
        self.process = context.Process(
            target=target, name=f"bench {name}", kwargs={**kwargs, "connection": theirs}, daemon=True
        )
        with bound_spawn(cpus, numa_node, threads):
            self.process.start()
        theirs.close()

    def wait_ready(self, timeout_s: float) -> None:
        """Until it has built what it measures.

        Raises:
            MotrixError: it failed, or takes longer.
        """
        self._receive(timeout_s)

    def begin(self, method: str, **kwargs: Any) -> None:
        """Starts a call; `result` has its answer."""
        self._connection.send((method, kwargs))

    def result(self, timeout_s: float) -> Any:
        """The answer to the call begun.

        Raises:
            MotrixError: it failed, or takes longer.
        """
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> Any:
        deadline = time.monotonic() + timeout_s
        while not self._connection.poll(0.2):
            if not self.process.is_alive() and not self._connection.poll(0):
                raise MotrixError(f"bench process {self.name} ended with code {self.process.exitcode}")
            if time.monotonic() > deadline:
                raise MotrixError(f"bench process {self.name} gave no answer within {timeout_s:.0f} s")
        try:
            kind, value = self._connection.recv()
        except EOFError:
            self.process.join(_GOODBYE_S)
            raise MotrixError(f"bench process {self.name} ended with code {self.process.exitcode}") from None
        if kind == "failed":
            raise MotrixError(f"bench process {self.name} failed:\n{value}")
        return value

    def close(self) -> None:
        """Ends it."""
        self._connection.close()
        self.process.join(_GOODBYE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()


class BenchProcesses:
    """All of them; none outlives the `with` block."""

    def __init__(self) -> None:
        self._all: list[BenchProcess] = []

    def start(
        self, name: str, target: Callable[..., None], kwargs: dict[str, Any], **where: Any
    ) -> BenchProcess:
        """Starts one; see `BenchProcess`."""
        process = BenchProcess(name, target, kwargs, **where)
        self._all.append(process)
        return process

    def stand(
        self, name: str, make: Callable[..., Any], setup: Any, arguments: dict[str, Any], **where: Any
    ) -> BenchProcess:
        """Starts one that answers calls."""
        kwargs = {"make": make, "setup": setup, "arguments": arguments}
        return self.start(name, serve, kwargs, **where)

    def wait_ready(self, timeout_s: float) -> None:
        """Until all are ready."""
        deadline = time.monotonic() + timeout_s
        for process in self._all:
            process.wait_ready(max(0.1, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._all:
            process.close()
