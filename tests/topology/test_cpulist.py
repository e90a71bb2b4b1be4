import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topology.strategies import UNHURRIED
from topology import cpulist
from topology.errors import CpuListError, TopologyError

CPUS = st.sets(st.integers(0, 600), max_size=40)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0:5,7", (0, 1, 2, 3, 4, 5, 7)),
        ("0-5,7", (0, 1, 2, 3, 4, 5, 7)),
        (" 3 , 1:2 ", (1, 2, 3)),
        ("7,0-2,1", (0, 1, 2, 7)),
        ("4-4", (4,)),
        ("", ()),
        ("\n", ()),
    ],
)
def test_reads_both_forms_inclusive(text: str, cpus: tuple[int, ...]) -> None:
    assert cpulist.parse(text) == cpus


@pytest.mark.parametrize(
    "text", ["a", "1,", ",1", "1-", "-1", "3-1", "1:2:3", "1.5", "0x1", "+1", "1_0", "²", "99999999"]
)
def test_refuses_with_one_line_that_quotes_the_text(text: str) -> None:
    with pytest.raises(CpuListError) as caught:
        cpulist.parse(text)
    assert isinstance(caught.value, TopologyError)
    assert "\n" not in str(caught.value)
    assert repr(text) in str(caught.value)


@UNHURRIED
@given(CPUS)
def test_round_trip(cpus: set[int]) -> None:
    assert set(cpulist.parse(cpulist.format_kernel(cpus))) == cpus
    assert set(cpulist.parse(cpulist.format_user(cpus))) == cpus


def test_person_form_shortens_strides_only() -> None:
    assert cpulist.format_person(range(0, 80, 2)) == "0,2..78"
    assert cpulist.format_person([*range(0, 8, 2), *range(40, 48, 2)]) == "0,2..6,40,42..46"
    assert cpulist.format_person([0, 1, 2, 3, 64, 65]) == "0-3,64-65"
    assert cpulist.format_person([5]) == "5"
    assert cpulist.format_person([]) == ""


@UNHURRIED
@given(CPUS)
def test_person_form_names_every_cpu(cpus: set[int]) -> None:
    import re

    text = cpulist.format_person(cpus)
    named: set[int] = set()
    text = re.sub(r"(\d+),(\d+)\.\.(\d+)", lambda m: _expand(m, named), text)
    named.update(cpulist.parse(text.strip(",")) if text.strip(",") else ())
    assert named == cpus


def _expand(match, named: set[int]) -> str:
    first, second, last = map(int, match.groups())
    named.update(range(first, last + 1, second - first))
    return str(first)
