"""U1, for every option there is: one slip of a finger is understood."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motrix_rl.config import load_config
from motrix_rl.config.describe import option_table
from motrix_rl.config.suggest import nearest_key
from motrix_rl.envs.options import EnvOptions
from motrix_rl.errors import UsageError, nearest
from motrix_rl.tasks.registry import task_names

TABLE = option_table(EnvOptions)
KEYS = sorted(TABLE.options)


@st.composite
def slips(draw: st.DrawFn, names: list[str]) -> tuple[str, str]:
    """A name, and the same with one letter lost, doubled, replaced, or two letters swapped."""
    name = draw(st.sampled_from(names))
    places = [i for i, letter in enumerate(name) if letter.isalpha()]
    i = draw(st.sampled_from(places))
    kind = draw(st.sampled_from(["lose", "double", "replace", "swap"]))
    if kind == "lose":
        return name, name[:i] + name[i + 1 :]
    if kind == "double":
        return name, name[:i] + name[i] + name[i:]
    if kind == "replace":
        return name, name[:i] + draw(st.sampled_from(string.ascii_lowercase)) + name[i + 1 :]
    if i + 1 == len(name):
        i -= 1
    return name, name[:i] + name[i + 1] + name[i] + name[i + 2 :]


def _distance(first: str, second: str) -> int:
    """Plain Levenshtein distance; the oracle for 'as near as it gets'."""
    row = list(range(len(second) + 1))
    for i, left in enumerate(first, 1):
        row, before = [i], row
        for j, right in enumerate(second, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (left != right)))
    return row[-1]


@pytest.mark.covers("U1")
@given(slips(KEYS))
def test_one_slip_in_a_key_is_understood(slip: tuple[str, str]) -> None:
    key, written = slip
    found = nearest_key(written, TABLE)
    assert found in TABLE.options or found in TABLE.groups
    # `v_mix` may be either of v_min and v_max: as near is as good.
    assert found == key or _distance(found, written) <= _distance(key, written)


@pytest.mark.covers("U1")
@given(slips([key.rsplit(".", 1)[-1] for key in KEYS if len(key.rsplit(".", 1)[-1]) >= 4]))
def test_one_slip_in_a_last_name_alone_is_understood(slip: tuple[str, str]) -> None:
    name, written = slip
    found = nearest_key(written, TABLE)
    assert found is not None
    last = found.rsplit(".", 1)[-1]
    assert last == name or _distance(last, written) <= _distance(name, written) or found.startswith(last)


@pytest.mark.covers("U1")
@given(slips(task_names()))
def test_one_slip_in_a_task_is_understood(slip: tuple[str, str]) -> None:
    task, written = slip
    if written in task_names():
        return
    with pytest.raises(UsageError, match=f"'{task}'"):
        load_config([f"task={written}/mujoco.fastsac"])


@pytest.mark.covers("U1")
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30), max_size=3))
def test_no_words_whatever_end_in_anything_but_one_line(words: list[str]) -> None:
    try:
        load_config(words)
    except UsageError as error:
        message = str(error)
    else:
        return
    assert len(message.splitlines()) == 1


def test_nearest_knows_parts_case_and_order() -> None:
    names = ["cartpole-swingup", "halfcheetah", "hopper"]
    assert nearest("cartpole", names) == "cartpole-swingup"
    assert nearest("Cheetah", names) == "halfcheetah"
    assert nearest("swingup_cartpole", names) == "cartpole-swingup"
    assert nearest("HOPPER", names) == "hopper"
    assert nearest("hoper", names) == "hopper"
    assert nearest("xyzzy", names) is None
    assert nearest("", names) is None
    assert nearest("hopper", []) is None
