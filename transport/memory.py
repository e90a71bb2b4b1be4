"""Nameless memory shared between processes.

A block is a memfd: it has no name in ``/dev/shm``, needs none of its space, and is gone with the last process
that holds it, however that process ends.
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from transport.descriptors import Descriptor
from transport.errors import TransportError

_MADV_POPULATE_WRITE = 23  # Linux 5.14; `mmap` has no name for it yet.


class SharedBlock:
    """A zeroed block of shared memory.

    Made by the parent, passed to workers as an argument of their start, mapped lazily by whoever touches it
    (the parent, which only passes a block on, never maps it). Who writes and who reads which bytes is the
    business of the channel built on it.
    """

    def __init__(self, descriptor: Descriptor, nbytes: int, label: str) -> None:
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None
        self.nbytes = nbytes
        self.label = label

    @classmethod
    def create(cls, nbytes: int, label: str) -> SharedBlock:
        """Make a block of ``nbytes`` zero bytes (no memory is taken before it is touched).

        Args:
            nbytes: size in bytes, positive.
            label: what it is for, as it appears in errors and in ``/proc/<pid>/maps``.

        Raises:
            TransportError: the system refuses it.
        """
        if nbytes <= 0:
            raise ValueError(f"a shared block needs a positive size, got {nbytes} bytes for {label}")
        descriptor = Descriptor.open(lambda: os.memfd_create(label, os.MFD_CLOEXEC), f"memory of {label}")
        try:
            os.ftruncate(descriptor.fileno(), nbytes)
        except OSError as error:
            descriptor.close()
            raise TransportError(f"cannot size {label} to {nbytes} bytes: {error.strerror}") from error
        return cls(descriptor, nbytes, label)

    def _mapping(self) -> mmap.mmap:
        if self._map is None:
            try:
                self._map = mmap.mmap(self._descriptor.fileno(), self.nbytes)
            except OSError as error:
                raise TransportError(f"cannot map {label_size(self)}: {error.strerror}") from error
        return self._map

    def ndarray(self, dtype: DTypeLike, shape: int | tuple[int, ...], offset: int = 0) -> NDArray[Any]:
        """A writable array lying on the block's own bytes (no copy).

        Raises:
            ValueError: the array does not fit.
        """
        array_dtype = np.dtype(dtype)
        end = offset + int(np.prod(shape, dtype=np.int64)) * array_dtype.itemsize
        if offset < 0 or end > self.nbytes:
            raise ValueError(f"{array_dtype}{shape} at byte {offset} does not fit into {label_size(self)}")
        return np.ndarray(shape, dtype=array_dtype, buffer=self._mapping(), offset=offset)

    def prefault(self) -> None:
        """Take the block's pages now, from the calling thread's NUMA node; contents stay as they are.

        Called at boot by the process that is bound where the pages shall lie. The kernel populates the pages
        on request, because touching them one by one turns a shortage into a SIGBUS.

        Raises:
            TransportError: memory is short.
        """
        mapping = self._mapping()
        try:
            mapping.madvise(_MADV_POPULATE_WRITE)
            return
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: a kernel before 5.14
                raise _shortage(self, error) from error
        try:
            os.posix_fallocate(self._descriptor.fileno(), 0, self.nbytes)
        except OSError as error:
            raise _shortage(self, error) from error

    def close(self) -> None:
        """Give up this process's hold; arrays that are alive keep their pages mapped until collected."""
        self._descriptor.close()
        # Not `mmap.close`: a numpy array refers to its mapping but does not lock it, and would read unmapped
        # memory. The mapping goes with the last array.
        self._map = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_descriptor": self._descriptor, "_map": None, "nbytes": self.nbytes, "label": self.label}


def label_size(block: SharedBlock) -> str:
    """``block`` named for an error message."""
    return f"{block.label} ({block.nbytes} bytes)"


def _shortage(block: SharedBlock, error: OSError) -> TransportError:
    return TransportError(
        f"not enough memory for {label_size(block)}: {error.strerror}; "
        "lower num_envs or ring_capacity, or raise the memory limit"
    )
