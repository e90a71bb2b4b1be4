"""Bodies of the processes of the GPU tests."""

from __future__ import annotations

from transport import DeviceWeightMailbox, StopSignal


def read_weights(*, mailbox: DeviceWeightMailbox, message: bytes, stop: StopSignal) -> None:
    """Reads until stop; every value of a version is that version's number, and versions never fall."""
    mailbox.accept(message)
    reader = mailbox.reader()
    seen = -1
    while not stop.is_set():
        version = reader.poll()
        if version is None:
            continue
        assert version > seen
        seen = version
        low, high = float(reader.payload.min()), float(reader.payload.max())
        assert low == high == float(version), f"version {version} holds {low} to {high}"
