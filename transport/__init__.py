"""Moves tensors between processes: ring, mailbox, handshake, control block. Knows bytes, knows no algorithm.

Importing it imports no torch; `SlotView.tensor` and slots in device memory do, in the worker that uses them.
"""

from transport.control import (
    PARENT,
    ControlBlock,
    Counter,
    Phase,
    StopReason,
    WorkerBoard,
    WorkerSnapshot,
)
from transport.descriptors import Descriptor
from transport.device import DeviceStorage
from transport.device_mailbox import DeviceWeightMailbox
from transport.errors import TransportError
from transport.handshake import StartupHandshake
from transport.layout import FieldSpec, SlotLayout
from transport.mailbox import WeightMailbox, WeightReader, WeightWriter
from transport.memory import SharedBlock
from transport.pipe import PipeReader, PipeWriter, message_pipe
from transport.process import process_exists, set_parent_death_signal, sweep_torch_shm
from transport.ring import Recovery, Ring, RingConsumer, RingProducer
from transport.slot import DeviceSlot, SlotView
from transport.storage import HostStorage, SlotMessage, SlotStorage
from transport.wakeup import Deadline, EventFd, Signal, StopSignal, wait_any

__all__ = [
    "PARENT",
    "ControlBlock",
    "Counter",
    "Deadline",
    "Descriptor",
    "DeviceSlot",
    "DeviceStorage",
    "DeviceWeightMailbox",
    "EventFd",
    "FieldSpec",
    "HostStorage",
    "Phase",
    "PipeReader",
    "PipeWriter",
    "Recovery",
    "Ring",
    "RingConsumer",
    "RingProducer",
    "SharedBlock",
    "Signal",
    "SlotLayout",
    "SlotMessage",
    "SlotStorage",
    "SlotView",
    "StartupHandshake",
    "StopReason",
    "StopSignal",
    "TransportError",
    "WeightMailbox",
    "WeightReader",
    "WeightWriter",
    "WorkerBoard",
    "WorkerSnapshot",
    "message_pipe",
    "process_exists",
    "set_parent_death_signal",
    "sweep_torch_shm",
    "wait_any",
]
