"""From rings to the learner's device, beside the updates: `DrainStaging`.

Host shards are copied into pinned memory and from there, asynchronously, to the device on a stream of their own (the
ingest lane), while the compute lane still works on the updates of the decision before. Two sets of buffers take turns.
On the CPU there is nothing to move, and shards pass through as they are; so do shards that lie in device memory.

What is ordered
    The compute lane waits for the copies of a generation before it puts it into the replay, and so before anything can
    sample it. The ingest lane waits, before it overwrites a set of buffers, for what the compute lane was given to do
    with that set, and before it first writes a buffer, for the zeros that the compute lane fills it with; the host
    waits, before it overwrites pinned memory, for the copy out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from transport import SlotLayout, SlotView
from workers.assembler import Shard

#: Fields that the replay's bookkeeping reads on the host; they are small, and a device would have to be waited for.
ON_HOST = ("terminated", "truncated", "cut", "final_index")
DEPTH = 2


class Lanes(Protocol):
    """The two lanes of work, as staging needs them. A mark is a point in one of them."""

    def copy(self, target: Tensor, source: Tensor, after: Any | None) -> Any:
        """In the ingest lane: copies once the compute lane has passed ``after``; returns the mark of its end."""
        ...

    def compute_waits(self, mark: Any) -> None:
        """What the compute lane is given from now on starts after ``mark`` of the ingest lane."""
        ...

    def compute_mark(self) -> Any:
        """The end of all that the compute lane was given so far."""
        ...

    def host_waits(self, mark: Any) -> None:
        """Returns when ``mark`` has been passed."""
        ...


class CudaLanes:
    """A stream for ingest beside the current one; marks are events."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ingest = torch.cuda.Stream(device)

    def copy(self, target: Tensor, source: Tensor, after: Any | None) -> Any:
        with torch.cuda.stream(self._ingest):
            if after is not None:
                self._ingest.wait_event(after)
            target.copy_(source, non_blocking=True)
        return self._ingest.record_event()

    def compute_waits(self, mark: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(mark)

    def compute_mark(self) -> Any:
        return torch.cuda.current_stream(self._device).record_event()

    def host_waits(self, mark: Any) -> None:
        mark.synchronize()


@dataclass
class StagedShard:
    """A shard whose bulk is on the device; flags and header are on the host. Valid until the set is used again."""

    generation: int
    incarnation: int
    policy_version: int
    num_envs: int
    num_final: int
    obs: Tensor
    critic_obs: Tensor | None
    action: Tensor
    reward: Tensor
    terminated: np.ndarray
    truncated: np.ndarray
    cut: np.ndarray
    final_index: np.ndarray
    final_obs: Tensor
    final_critic_obs: Tensor | None


class StagingBuffer:
    """Pinned and device memory for one shard."""

    def __init__(self, layout: SlotLayout, device: torch.device) -> None:
        self._layout = layout
        self._pinned = torch.zeros(layout.nbytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._device = torch.zeros(layout.nbytes, dtype=torch.uint8, device=device)
        self._host = SlotView(layout, np.zeros(8, np.int64), self._pinned.numpy())
        self._copied: Any | None = None
        self._fields = {
            item.name: self._device[item.offset : item.offset + item.nbytes]
            .view(getattr(torch, item.dtype.name))
            .view(item.shape)
            for item in layout.fields
        }

    def take(self, slot: SlotView, lanes: Lanes, after: Any | None) -> StagedShard:
        """Copies a slot, which may be given back when this returns."""
        if self._copied is None:
            after = lanes.compute_mark()  # not before the buffer's own zeros
        else:
            lanes.host_waits(self._copied)
        for item in self._layout.fields:
            rows = slice(slot.num_final) if item.name.startswith("final_") else slice(None)
            getattr(self._host, item.name)[rows] = getattr(slot, item.name)[rows]
        nbytes = self._layout.nbytes if slot.num_final else self._layout.final_offset
        self._copied = lanes.copy(self._device[:nbytes], self._pinned[:nbytes], after)
        host = {name: getattr(self._host, name) for name in ON_HOST}
        bulk = {name: self._fields.get(name) for name in ("critic_obs", "final_critic_obs")}
        bulk |= {name: self._fields[name] for name in self._fields if name not in ON_HOST}
        parts: dict[str, Any] = {**bulk, **host}
        return StagedShard(
            slot.generation, slot.incarnation, slot.policy_version, slot.num_envs, slot.num_final, **parts
        )

    @property
    def copied(self) -> Any:
        """Mark of the newest copy's end."""
        return self._copied


@dataclass
class _Set:
    """Buffers of one generation, by position of the shard; and when the compute lane is done with them."""

    buffers: dict[int, StagingBuffer] = field(default_factory=dict)
    done: Any | None = None


class DrainStaging:
    """Moves a generation's host shards to the device.

    Args:
        device: the learner's.
        lanes: how work is ordered; None = streams of a CUDA device, or nothing at all on the CPU.
    """

    def __init__(self, device: torch.device | str, lanes: Lanes | None = None) -> None:
        self._device = torch.device(device)
        if lanes is None and self._device.type == "cuda":
            lanes = CudaLanes(self._device)
        self._lanes = lanes
        self._sets = [_Set() for _ in range(DEPTH)]
        self._turn = 0

    def stage(self, shards: Sequence[Shard]) -> Sequence[Any]:
        """One generation, ready for the compute lane; call `finished` when all of its uses have been given out."""
        if self._lanes is None:
            return shards
        current = self._sets[self._turn]
        staged: list[Any] = []
        for at, shard in enumerate(shards):
            if not isinstance(shard, SlotView):
                staged.append(shard)  # in device memory already
                continue
            if at not in current.buffers:
                current.buffers[at] = StagingBuffer(shard.layout, self._device)
            buffer = current.buffers[at]
            staged.append(buffer.take(shard, self._lanes, current.done))
            self._lanes.compute_waits(buffer.copied)
        return staged

    def finished(self) -> None:
        """Everything that reads the generation staged last is in the compute lane."""
        if self._lanes is not None:
            self._sets[self._turn].done = self._lanes.compute_mark()
            self._turn = (self._turn + 1) % DEPTH
