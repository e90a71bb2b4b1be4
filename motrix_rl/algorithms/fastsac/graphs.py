"""An update in pieces that a GPU can record once and replay: one launch instead of some hundred.

A recorded piece does the same to the same memory every time. So pieces take nothing and return nothing: they read
and write tensors that stay where they are, decide nothing by what is in them, and issue no collective, which is why
an update is four of them.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch

Piece = Callable[[], None]

#: Runs of a piece before it is recorded: libraries set themselves up at the first, and allocate at others.
WARM_UP = 3


class Pieces(NamedTuple):
    """One update: after each of the gradients they are averaged over the ranks, which is no part of a piece."""

    critic_gradients: Piece
    critic_step: Piece
    actor_gradients: Piece
    actor_step: Piece


class Recorder(Protocol):
    """What can record a piece."""

    def warm_up(self, piece: Piece) -> None:
        """Runs it, as it will be when it is recorded."""

    def record(self, piece: Piece) -> Piece:
        """Runs it once, and returns what does the same again, without Python."""
        ...


class Replayed:
    """A piece that is recorded after some runs, and replayed from then on."""

    def __init__(self, piece: Piece, recorder: Recorder) -> None:
        self._piece, self._recorder = piece, recorder
        self._runs = 0
        self._replay: Piece | None = None

    def __call__(self) -> None:
        if self._replay is not None:
            self._replay()
        elif self._runs < WARM_UP:
            self._runs += 1
            self._recorder.warm_up(self._piece)
        else:
            self._replay = self._recorder.record(self._piece)


class CudaRecorder:
    """CUDA graphs, each with memory of its own, so that they may run in any order.

    Args:
        device: Whose kernels are recorded.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # Not the default one, which cannot be recorded; the same for all, as autograd remembers streams.
        self._stream = torch.cuda.Stream(device)

    def warm_up(self, piece: Piece) -> None:
        """Runs it on the stream it is recorded on, between what came before and what follows."""
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            piece()
        current.wait_stream(self._stream)

    def record(self, piece: Piece) -> Piece:
        """Records it, and replays it once, since what is recorded is not done."""
        graph = torch.cuda.CUDAGraph()
        # By thread: others of this process may allocate, or ask for events, meanwhile.
        capture = torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local")
        with torch.cuda.device(self.device), _no_garbage_collection(), capture:
            piece()
        graph.replay()
        return graph.replay


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """What is collected may free device memory, or a graph, which no recording survives."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
