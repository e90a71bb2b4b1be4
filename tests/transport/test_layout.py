"""Slot layouts, as arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transport import SlotLayout, SlotView, TransportError
from transport.layout import ALIGNMENT


@given(
    num_envs=st.integers(1, 40),
    obs_dim=st.integers(1, 70),
    action_dim=st.integers(1, 30),
    critic_obs_dim=st.none() | st.integers(1, 70),
)
def test_fields_are_aligned_and_do_not_overlap(num_envs, obs_dim, action_dim, critic_obs_dim) -> None:
    layout = SlotLayout.for_shard(num_envs, obs_dim, action_dim, critic_obs_dim)
    end = 0
    for field in layout.fields:
        assert field.offset % ALIGNMENT == 0
        assert end <= field.offset < end + ALIGNMENT
        assert field.shape[0] == num_envs
        end = field.offset + field.nbytes
    assert layout.nbytes % ALIGNMENT == 0
    assert end <= layout.nbytes < end + ALIGNMENT
    finals = [field.name for field in layout.fields if field.offset >= layout.final_offset]
    assert all(name.startswith("final_") for name in finals)
    assert len(finals) == (2 if critic_obs_dim is None else 3)


def test_sizes_by_hand() -> None:
    # E=2: obs 2*3*4=24, action 2*1*4=8, reward 8, three flags of 2, final_index 8, final_obs 24: a line each.
    layout = SlotLayout.for_shard(2, 3, 1)
    assert [(field.name, field.offset) for field in layout.fields] == [
        ("obs", 0),
        ("action", 64),
        ("reward", 128),
        ("terminated", 192),
        ("truncated", 256),
        ("cut", 320),
        ("final_index", 384),
        ("final_obs", 448),
    ]
    assert layout.nbytes == 512


def test_sizes_must_be_positive() -> None:
    for sizes in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1, 0)]:
        with pytest.raises(ValueError, match="must be positive"):
            SlotLayout.for_shard(*sizes)


@pytest.mark.covers("R9")
@pytest.mark.parametrize("critic_obs_dim", [None, 4])
def test_poison_is_found_in_every_field(critic_obs_dim) -> None:
    layout = SlotLayout.for_shard(3, 2, 2, critic_obs_dim)
    slot = SlotView(layout, np.zeros(8, np.int64), np.zeros(layout.nbytes, np.uint8))
    assert (slot.critic_obs is None) == (slot.final_critic_obs is None) == (critic_obs_dim is None)
    for field in layout.fields:
        slot.poison()
        slot.num_final = 3
        for other in layout.fields:
            if other is not field:
                getattr(slot, other.name).fill(0)
        getattr(slot, field.name)[:-1] = 0
        with pytest.raises(TransportError, match=f"never written: {field.name}$"):
            slot.check_written()
        slot.num_final = 2  # the last row of the final area need not be written
        if field.name.startswith("final_"):
            slot.check_written()
    slot.obs.fill(np.nan)  # an environment's own NaN is no poison
    slot.final_obs.fill(np.inf)
    for name in ("final_index", "final_critic_obs"):
        if getattr(slot, name) is not None:
            getattr(slot, name).fill(0)
    slot.check_written()
