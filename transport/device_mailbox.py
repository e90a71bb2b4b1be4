"""A weight mailbox whose payloads lie in CUDA memory, shared over CUDA IPC by torch's own means.

Versions and checksums stay in shared host memory. Writer and readers finish their own stream before they look at or
store a version, so that the order of `transport.mailbox` holds across devices' queues too.
"""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transport.errors import TransportError
from transport.layout import align
from transport.mailbox import NO_VERSION, NUM_BUFFERS, WeightMailbox, WeightReader, WeightWriter
from transport.memory import SharedBlock
from transport.wakeup import EventFd

_HEADER_WORDS = 8
_VERSION, _SUM, _WEIGHTED = 0, 1, 2


class DeviceWeightMailbox(WeightMailbox):
    """Payloads in the memory of ``device``; its writer's process owns them and opens first.

    ``device="cpu"`` serves one process that holds both ends, so that this class runs without a GPU.
    """

    def __init__(self, block: SharedBlock, nbytes: int, doorbells: dict[int, EventFd], device: str) -> None:
        super().__init__(block, nbytes, doorbells)
        self.device = device
        # Any: torch is imported by the workers that use a device, never by the parent that passes this on.
        self._words: Any = None

    @classmethod
    def create_on(cls, device: str, nbytes: int, num_doorbells: int = 0) -> DeviceWeightMailbox:
        """Make an empty mailbox on ``device``; the arguments and errors are those of `WeightMailbox.create`."""
        if nbytes <= 0 or nbytes % 4:
            raise ValueError(f"a mailbox payload is a positive number of float32 values, got {nbytes} bytes")
        block = SharedBlock.create(NUM_BUFFERS * _HEADER_WORDS * 8, "weight mailbox headers")
        doorbells = {i: EventFd(label="weight doorbell") for i in range(num_doorbells)}
        mailbox = cls(block, nbytes, doorbells, device)
        mailbox.headers()[:, _VERSION] = NO_VERSION
        return mailbox

    def for_reader(self, doorbell: int | None = None) -> DeviceWeightMailbox:
        kept = {} if doorbell is None else {doorbell: self._doorbells[doorbell]}
        return DeviceWeightMailbox(self._block, self.nbytes, kept, self.device)

    def writer(self) -> DeviceWeightWriter:
        torch: Any = import_module("torch")
        if self._words is None:
            shape = (NUM_BUFFERS, align(self.nbytes) // 8)
            self._words = torch.zeros(shape, dtype=torch.int64, device=self.device)
        return DeviceWeightWriter(self, list(self._doorbells.values()))

    def reader(self, doorbell: int | None = None) -> DeviceWeightReader:
        return DeviceWeightReader(self, None if doorbell is None else self._doorbells[doorbell])

    def words(self) -> Any:
        """[NUM_BUFFERS, words] int64 on the device: the payloads, padded with zeros."""
        if self._words is None:
            raise TransportError("weights in device memory must be delivered before a reader opens them")
        return self._words

    def payloads(self) -> NDArray[np.int64]:
        """Nothing on the host."""
        return np.zeros((NUM_BUFFERS, 0), dtype=np.int64)

    def message(self) -> bytes:
        """In the writer's process, for one incarnation of one reader: how to open the payloads."""
        words = self.words()
        if not self.device.startswith("cuda"):
            return b""
        reductions: Any = import_module("torch.multiprocessing.reductions")
        return pickle.dumps(reductions.reduce_tensor(words))

    def accept(self, message: bytes) -> None:
        """In a reader's process: open the payloads."""
        if message:
            rebuild, arguments = pickle.loads(message)
            self._words = rebuild(*arguments)

    def close(self) -> None:
        self._words = None
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_words": None}


class DeviceWeightWriter(WeightWriter):
    """The writing end; publishing waits for the device, as reading back a policy does."""

    def __init__(self, mailbox: DeviceWeightMailbox, doorbells: list[EventFd]) -> None:
        super().__init__(mailbox, doorbells)
        self._words = mailbox.words()

    def _fill(self, index: int, version: int, payload: NDArray[np.float32]) -> None:
        torch: Any = import_module("torch")
        words = self._words[index]
        words.view(torch.float32)[: self._size].copy_(torch.from_numpy(payload))
        # Reading the sums back waits for the copy before them: only then may the version be stored.
        self._headers[index, _SUM], self._headers[index, _WEIGHTED] = device_checksum(words, version)


class DeviceWeightReader(WeightReader):
    """A reading end; the payload in hand is a device tensor of this process's own."""

    def __init__(self, mailbox: DeviceWeightMailbox, doorbell: EventFd | None) -> None:
        super().__init__(mailbox, doorbell)
        torch: Any = import_module("torch")
        self._words = mailbox.words()
        self._mine: Any = torch.zeros_like(self._words[0])
        self._other: Any = torch.zeros_like(self._words[0])

    @property
    def payload(self) -> Any:
        """[nbytes / 4] float32 tensor on the device, of `version`."""
        torch: Any = import_module("torch")
        return self._mine.view(torch.float32)[: self._size]

    def _copy(self, index: int, version: int) -> bool:
        self._other.copy_(self._words[index])
        found = device_checksum(self._other, version)  # waits for the copy
        expected = (int(self._headers[index, _SUM]), int(self._headers[index, _WEIGHTED]))
        if int(self._headers[index, _VERSION]) != version or found != expected:
            return False
        self._mine, self._other = self._other, self._mine
        return True


def device_checksum(words: Any, version: int) -> tuple[int, int]:
    """Wrapping sum of int64 ``words`` and the sum weighted by position, with the version in both; waits."""
    torch: Any = import_module("torch")
    position = torch.arange(1, words.numel() + 1, dtype=torch.int64, device=words.device)
    total, weighted = torch.stack([words.sum(), (words * position).sum()]).tolist()
    salt = version ^ 0x5DEECE66D
    return total ^ salt, weighted ^ salt
