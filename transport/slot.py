"""A slot as producers fill it and consumers read it, and the poison that finds what was never written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from transport.errors import TransportError
from transport.layout import (
    HEADER_GENERATION,
    HEADER_INCARNATION,
    HEADER_NUM_FINAL,
    HEADER_POLICY_VERSION,
    SlotLayout,
)

if TYPE_CHECKING:
    import torch

FloatArray = NDArray[np.float32]
FlagArray = NDArray[np.uint8]
IndexArray = NDArray[np.int32]

POISON_BYTE = 0xCB
_POISON_FLOAT_BITS = np.uint32(0x7FCBCBCB)  # a quiet NaN whose payload no computation produces
_POISON_INDEX = np.int32(-0x34343435)  # 0xCBCBCBCB
_POISON_COUNT = -1


class Slot:
    """What every view of a slot has: the header, in host memory wherever the payload lies."""

    __slots__ = ("_header", "layout")

    def __init__(self, layout: SlotLayout, header: NDArray[np.int64]) -> None:
        self.layout = layout
        self._header = header

    @property
    def num_envs(self) -> int:
        """E, the number of environments of the shard."""
        return self.layout.num_envs

    @property
    def generation(self) -> int:
        """The vector step this is, absolute."""
        return int(self._header[HEADER_GENERATION])

    @generation.setter
    def generation(self, value: int) -> None:
        self._header[HEADER_GENERATION] = value

    @property
    def incarnation(self) -> int:
        """Which life of the collector wrote it."""
        return int(self._header[HEADER_INCARNATION])

    @incarnation.setter
    def incarnation(self, value: int) -> None:
        self._header[HEADER_INCARNATION] = value

    @property
    def policy_version(self) -> int:
        """The policy's version that acted, in gradient updates; -1 for random actions."""
        return int(self._header[HEADER_POLICY_VERSION])

    @policy_version.setter
    def policy_version(self, value: int) -> None:
        self._header[HEADER_POLICY_VERSION] = value

    @property
    def num_final(self) -> int:
        """Rows of the final arrays that are filled."""
        return int(self._header[HEADER_NUM_FINAL])

    @num_final.setter
    def num_final(self, value: int) -> None:
        self._header[HEADER_NUM_FINAL] = value


class SlotView(Slot):
    """A slot in host memory: numpy arrays lying on its own bytes (see `SlotLayout` for shapes).

    Valid for a producer from ``reserve`` to ``commit``, for a consumer from ``take`` to ``release``.
    """

    __slots__ = (
        "_arrays",
        "_tensors",
        "action",
        "critic_obs",
        "cut",
        "final_critic_obs",
        "final_index",
        "final_obs",
        "obs",
        "reward",
        "terminated",
        "truncated",
    )

    obs: FloatArray
    critic_obs: FloatArray | None
    action: FloatArray
    reward: FloatArray
    terminated: FlagArray
    truncated: FlagArray
    cut: FlagArray
    final_index: IndexArray
    final_obs: FloatArray
    final_critic_obs: FloatArray | None

    def __init__(self, layout: SlotLayout, header: NDArray[np.int64], payload: NDArray[np.uint8]) -> None:
        """Lay the arrays over ``payload`` [layout.nbytes] and ``header`` [8]."""
        super().__init__(layout, header)
        self._arrays: dict[str, NDArray[Any]] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        self.critic_obs = None
        self.final_critic_obs = None
        for field in layout.fields:
            raw = payload[field.offset : field.offset + field.nbytes]
            array = raw.view(field.dtype).reshape(field.shape)
            self._arrays[field.name] = array
            setattr(self, field.name, array)

    def tensor(self, name: str) -> torch.Tensor:
        """Field ``name`` as a CPU tensor on the same bytes (imports torch)."""
        tensor = self._tensors.get(name)
        if tensor is None:
            import torch

            self.layout.field(name)
            tensor = self._tensors[name] = torch.from_numpy(self._arrays[name])  # pyright: ignore[reportUnknownMemberType]
        return tensor

    def poison(self) -> None:
        """Fill every field with a value nothing writes, so that `check_written` finds an unwritten one."""
        for array in self._arrays.values():
            if array.dtype == np.float32:
                array.view(np.uint32).fill(_POISON_FLOAT_BITS)
            else:
                array.view(np.uint8).fill(POISON_BYTE)
        self.num_final = _POISON_COUNT

    def check_written(self) -> None:
        """Check that a poisoned slot was written in full (of the final area: its first ``num_final`` rows).

        Raises:
            TransportError: names the fields that were not.
        """
        if not 0 <= self.num_final <= self.num_envs:
            self._unwritten(["num_final"])
        fields = [name for name, array in self._arrays.items() if self._is_poisoned(name, array)]
        if fields:
            self._unwritten(fields)

    def _is_poisoned(self, name: str, array: NDArray[Any]) -> bool:
        written = array[: self.num_final] if name.startswith("final_") else array
        if array.dtype == np.float32:
            return bool((written.view(np.uint32) == _POISON_FLOAT_BITS).any())
        if array.dtype == np.int32:
            return bool((written == _POISON_INDEX).any())
        return bool((written == POISON_BYTE).any())

    def _unwritten(self, fields: list[str]) -> NoReturn:
        raise TransportError(
            f"slot of generation {self.generation}, incarnation {self.incarnation}: "
            f"never written: {', '.join(fields)}"
        )


class DeviceSlot(Slot):
    """A slot whose payload is in device memory: the fields are device tensors under the same names."""

    __slots__ = ("_fields",)

    if TYPE_CHECKING:
        obs: torch.Tensor
        critic_obs: torch.Tensor | None
        action: torch.Tensor
        reward: torch.Tensor
        terminated: torch.Tensor
        truncated: torch.Tensor
        cut: torch.Tensor
        final_index: torch.Tensor
        final_obs: torch.Tensor
        final_critic_obs: torch.Tensor | None

    def __init__(
        self, layout: SlotLayout, header: NDArray[np.int64], fields: dict[str, torch.Tensor]
    ) -> None:
        super().__init__(layout, header)
        self._fields = fields

    def tensor(self, name: str) -> torch.Tensor:
        """Field ``name`` as a device tensor on the slot's own memory."""
        self.layout.field(name)
        return self._fields[name]

    def __getattr__(self, name: str) -> torch.Tensor | None:
        if name in ("critic_obs", "final_critic_obs"):
            return self._fields.get(name)
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(name) from None
