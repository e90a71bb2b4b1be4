"""The bytes of one ring slot: one vector step of one collector's shard.

A slot has a header of 64 bytes, always in host shared memory, and a payload, in host or in device memory.
There is no next observation: it is the next slot's ``obs``, or a stored final observation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 64
"""Bytes; a cache line, so that no two fields (and no two slots) share one."""

HEADER_NBYTES = 64
HEADER_GENERATION = 0
HEADER_INCARNATION = 1
HEADER_POLICY_VERSION = 2
HEADER_NUM_FINAL = 3


def align(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """``nbytes`` rounded up to a multiple of ``alignment``."""
    return -(-nbytes // alignment) * alignment


@dataclass(frozen=True)
class FieldSpec:
    """One array of a slot."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int
    """Bytes from the payload's start, a multiple of `ALIGNMENT`."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class SlotLayout:
    """Where each field of a slot's payload lies. E is the shard's number of environments.

    Fields, in order: ``obs`` [E, obs_dim] f32, ``critic_obs`` [E, critic_obs_dim] f32 (only where the critic
    sees more), ``action`` [E, action_dim] f32, ``reward`` [E] f32, ``terminated``, ``truncated``, ``cut`` [E]
    u8, ``final_index`` [E] i32, ``final_obs`` [E, obs_dim] f32, ``final_critic_obs`` [E, critic_obs_dim] f32.
    Row i of the final arrays belongs to environment ``final_index[i]``; ``num_final`` rows are filled.
    """

    num_envs: int
    obs_dim: int
    action_dim: int
    critic_obs_dim: int | None
    fields: tuple[FieldSpec, ...]
    nbytes: int
    """Bytes of one payload, and the distance between two."""

    @classmethod
    def for_shard(
        cls, num_envs: int, obs_dim: int, action_dim: int, critic_obs_dim: int | None = None
    ) -> SlotLayout:
        """Lay out a slot.

        Raises:
            ValueError: a size is not positive.
        """
        sizes = {"num_envs": num_envs, "obs_dim": obs_dim, "action_dim": action_dim}
        if critic_obs_dim is not None:
            sizes["critic_obs_dim"] = critic_obs_dim
        for name, size in sizes.items():
            if size <= 0:
                raise ValueError(f"{name} must be positive, got {size}")

        per_env: list[tuple[str, type[np.generic], tuple[int, ...]]] = [("obs", np.float32, (obs_dim,))]
        finals: list[tuple[str, type[np.generic], tuple[int, ...]]] = [
            ("final_index", np.int32, ()),
            ("final_obs", np.float32, (obs_dim,)),
        ]
        if critic_obs_dim is not None:
            per_env.append(("critic_obs", np.float32, (critic_obs_dim,)))
            finals.append(("final_critic_obs", np.float32, (critic_obs_dim,)))
        per_env += [("action", np.float32, (action_dim,)), ("reward", np.float32, ())]
        per_env += [(name, np.uint8, ()) for name in ("terminated", "truncated", "cut")]

        fields: list[FieldSpec] = []
        offset = 0
        for name, dtype, row_shape in per_env + finals:
            field = FieldSpec(name, np.dtype(dtype), (num_envs, *row_shape), offset)
            fields.append(field)
            offset = align(offset + field.nbytes)
        return cls(num_envs, obs_dim, action_dim, critic_obs_dim, tuple(fields), offset)

    def field(self, name: str) -> FieldSpec:
        """The field called ``name``.

        Raises:
            KeyError: this layout has none.
        """
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"a slot has no field {name!r}; it has {', '.join(f.name for f in self.fields)}")

    @property
    def final_offset(self) -> int:
        """Bytes before the final area, which is all a step without ended episodes fills."""
        return self.field("final_index").offset
