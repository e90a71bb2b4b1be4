"""CUDA_VISIBLE_DEVICES to PCI address and NUMA node."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topology.strategies import UNHURRIED
from tests.topology.trees import Tree
from topology import MachineSpec
from topology.gpus import normalise_pci, select_visible
from topology.nvml import MigSlice, PhysicalGpu, read_nvml

NODES = {0: "0-3", 1: "4-7"}
GPUS = [
    PhysicalGpu(0, "A100", "GPU-aaaa1111", "00000000:07:00.0", 40 << 30),
    PhysicalGpu(1, "A100", "GPU-aaaa2222", "00000000:0F:00.0", 40 << 30),
    PhysicalGpu(2, "A100", "GPU-bbbb3333", "00000000:47:00.0", 40 << 30),
    PhysicalGpu(3, "A100", "GPU-cccc4444", "00010000:4E:00.0", 40 << 30),
]
PCI = {"0000:07:00.0": 1, "0000:0f:00.0": 1, "0000:47:00.0": 0, "10000:4e:00.0": 0}
ADDRESSES = list(PCI)


def detect(tmp_path: Path, visible: str | None, **changes: object) -> MachineSpec:
    pci = changes.pop("pci", PCI)
    gpus = changes.pop("gpus", GPUS)
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    root = Tree(nodes=NODES, pci=pci).write(tmp_path)  # type: ignore[arg-type]
    return MachineSpec.detect(root, environ={**environ, **changes}, physical_gpus=gpus)  # type: ignore[arg-type]


@pytest.mark.covers("T4")
@pytest.mark.parametrize(
    ("visible", "physical"),
    [
        (None, [0, 1, 2, 3]),
        ("0,1,2,3", [0, 1, 2, 3]),
        ("3,0", [3, 0]),
        (" 2 , 1 ", [2, 1]),
        ("GPU-bbbb3333,GPU-aaaa1111", [2, 0]),
        ("GPU-bbb,GPU-aaaa1", [2, 0]),
        ("gpu-CCCC4444", [3]),
        ("GPU-aaaa", []),  # ambiguous beginning
        ("1,GPU-zzzz,0", [1]),  # CUDA stops at what it does not know
        ("2,9,0", [2]),
        ("1,-1,0", [1]),
        ("1,1", []),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_devices(tmp_path: Path, visible: str | None, physical: list[int]) -> None:
    machine = detect(tmp_path, visible)
    assert [gpu.physical_index for gpu in machine.gpus] == physical
    assert [gpu.index for gpu in machine.gpus] == list(range(len(physical)))
    for gpu, number in zip(machine.gpus, physical, strict=True):
        assert gpu.pci == ADDRESSES[number]
        assert gpu.numa_node == PCI[ADDRESSES[number]]
        assert gpu.uuid == GPUS[number].uuid


@pytest.mark.covers("T4")
@UNHURRIED
@given(st.permutations(range(4)), st.integers(1, 4), st.booleans())
def test_any_order_maps_to_the_right_gpu(order: list[int], count: int, by_uuid: bool) -> None:
    chosen = order[:count]
    value = ",".join(str(GPUS[i].uuid) if by_uuid else str(i) for i in chosen)
    visible, _ = select_visible(GPUS, {"CUDA_VISIBLE_DEVICES": value})
    assert [gpu.index for gpu, _ in visible] == chosen


def test_notes_say_what_is_hidden_and_what_is_where(tmp_path: Path) -> None:
    assert "hides all GPUs" in detect(tmp_path, "").notes[0]
    assert "'9' names no GPU" in detect(tmp_path, "2,9,0").notes[0]
    assert "names a GPU twice" in detect(tmp_path, "1,1").notes[0]
    assert "cuda:0 is GPU 3 (10000:4e:00.0)" in detect(tmp_path, "3,0").notes[0]


SLICED = [
    PhysicalGpu(
        0,
        "A100",
        "GPU-aaaa1111",
        "0000:07:00.0",
        80 << 30,
        (MigSlice("MIG-11", 20 << 30), MigSlice("MIG-12")),
    ),
    PhysicalGpu(1, "A100", "GPU-aaaa2222", "0000:47:00.0", 80 << 30, (MigSlice("MIG-21"),)),
]


@pytest.mark.covers("T4")
@pytest.mark.parametrize(
    ("visible", "uuid"), [(None, "MIG-11"), ("MIG-21", "MIG-21"), ("1", "MIG-21"), ("GPU-aaaa1111", "MIG-11")]
)
def test_mig_slices(tmp_path: Path, visible: str | None, uuid: str) -> None:
    machine = detect(tmp_path, visible, gpus=SLICED)
    assert [gpu.uuid for gpu in machine.gpus] == [uuid]
    assert machine.gpus[0].mig
    assert machine.gpus[0].numa_node == (0 if uuid == "MIG-21" else 1)


def test_one_mig_slice_a_process(tmp_path: Path) -> None:
    machine = detect(tmp_path, "MIG-12,MIG-21", gpus=SLICED)
    assert [gpu.uuid for gpu in machine.gpus] == ["MIG-12"]
    assert any("one MIG slice only" in note for note in machine.notes)


def test_unknown_node_and_narrowed_node(tmp_path: Path) -> None:
    pci = {"0000:07:00.0": -1, "0000:0f:00.0": (-1, "4-7"), "0000:47:00.0": (-1, "0-7")}
    machine = detect(tmp_path, None, pci=pci)
    assert [gpu.numa_nodes for gpu in machine.gpus] == [(), (1,), (), ()]


def test_unlike_gpus_are_numbered_by_speed(tmp_path: Path) -> None:
    mixed = [PhysicalGpu(0, "T4", "GPU-1", "0000:07:00.0"), PhysicalGpu(1, "A100", "GPU-2", "0000:47:00.0")]
    unsure = detect(tmp_path, None, gpus=mixed)
    assert [gpu.numa_nodes for gpu in unsure.gpus] == [(0, 1), (0, 1)]
    assert any("CUDA_DEVICE_ORDER=PCI_BUS_ID" in note for note in unsure.notes)
    sure = detect(tmp_path, None, gpus=mixed, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert [gpu.numa_node for gpu in sure.gpus] == [1, 0]
    assert [gpu.numa_node for gpu in detect(tmp_path, "GPU-2,GPU-1", gpus=mixed).gpus] == [0, 1]


def test_driver_files_stand_in_for_nvml(tmp_path: Path) -> None:
    info = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ: \t 102\nGPU UUID: \t GPU-7\nBus Location: \t x"
    files = {"proc/driver/nvidia/gpus/0000:47:00.0/information": info}
    machine = MachineSpec.detect(Tree(nodes=NODES, pci=PCI, files=files).write(tmp_path), environ={})
    assert [(g.name, g.uuid, g.numa_node) for g in machine.gpus] == [("NVIDIA A100-SXM4-40GB", "GPU-7", 0)]


def test_pci_addresses() -> None:
    assert normalise_pci("00000000:0F:00.0") == "0000:0f:00.0"
    assert normalise_pci("10000:01:00.0") == "10000:01:00.0"
    assert normalise_pci(None) is None
    assert normalise_pci("N/A") is None


def test_nvml_is_asked_without_harm() -> None:
    answer = read_nvml()
    assert answer is None or all(isinstance(gpu, PhysicalGpu) for gpu in answer)


class FakeNvml:
    """An NVML with one GPU in MIG mode whose memory query is not supported."""

    class NVMLError(Exception):
        pass

    def __init__(self, driver: bool) -> None:
        self.driver = driver
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"gpu{index}"

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"NVIDIA GB10"

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return f"UUID-{handle}"

    def nvmlDeviceGetPciInfo(self, handle: str):
        return type("Pci", (), {"busId": b"0000000F:01:00.0"})()

    def nvmlDeviceGetMemoryInfo(self, handle: str):
        raise self.NVMLError

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if index:
            raise self.NVMLError
        return "mig0"


@pytest.mark.parametrize("driver", [True, False])
def test_nvml_answers(monkeypatch: pytest.MonkeyPatch, driver: bool) -> None:
    import sys

    fake = FakeNvml(driver)
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    found = read_nvml()
    assert fake.open == 0
    if not driver:
        assert found is None
        return
    assert found == [
        PhysicalGpu(0, "NVIDIA GB10", "UUID-gpu0", "0000000F:01:00.0", None, (MigSlice("UUID-mig0", None),))
    ]
