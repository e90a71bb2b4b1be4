"""What the text behind a `=` means."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motrix_rl.config.values import dump_yaml, parse_value, parse_yaml, read_yaml
from motrix_rl.errors import UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),  # YAML 1.1 reads text
        ("5E6", 5e6),
        (".5", 0.5),
        ("-1.5e+2", -150.0),
        ("1_000_000", 1_000_000),
        ("-3", -3),
        ("true", True),
        ("False", False),
        ("on", "on"),  # YAML 1.1 reads true
        ("no", "no"),
        ("1:30", "1:30"),  # YAML 1.1 reads 90
        ("2024-01-02", "2024-01-02"),  # YAML 1.1 reads a date
        ("007", "007"),  # YAML 1.1 reads octal
        ("null", None),
        ("~", None),
        ("[1, 2.5, a]", [1, 2.5, "a"]),
        ("{a: 1, b: {c: on}}", {"a": 1, "b": {"c": "on"}}),
        ("'null'", "null"),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    parsed = parse_yaml(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("007", str, "007"),
        ("true", str, "true"),
        ("null", str | None, None),
        ("None", str | None, None),
        ("null", str, "null"),
        ("on", Literal["auto", "on", "off"], "on"),
        ("a: b", str, "a: b"),
        ("gymnasium:Pendulum-v1/gymnasium.fastsac", str, "gymnasium:Pendulum-v1/gymnasium.fastsac"),
        ("'with space '", str, "with space "),
        ("[cuda:0, cuda:1]", str | list[str] | None, ["cuda:0", "cuda:1"]),
        ("cuda:0,cuda:1", str | list[str] | None, "cuda:0,cuda:1"),
        ("32", int, 32),
        (" 32 ", int, 32),
        ("x=y", str, "x=y"),
    ],
)
def test_the_kind_of_an_option_decides_what_text_is(text: str, annotation: Any, value: Any) -> None:
    assert parse_value("key", text, annotation) == value


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_text_options_take_any_text_as_it_is(text: str) -> None:
    if text[0] in "\"'[{":
        text = "x" + text
    assert parse_value("run_dir", text, str) == text


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="num_envs= has no value"):
        parse_value("num_envs", text, int)


@pytest.mark.parametrize("text", ["[1", "{a: 1", "'open", "@x", "a: b: c"])
def test_broken_yaml_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_value("num_envs", text, int)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("num_envs=")


def test_files_that_are_no_mapping_are_refused(tmp_path) -> None:
    path = tmp_path / "x.yaml"
    with pytest.raises(UsageError, match="cannot read"):
        read_yaml(path)
    path.write_text("- 1\n")
    with pytest.raises(UsageError, match="must hold"):
        read_yaml(path)
    path.write_text("a: 1\nb: [\n")
    with pytest.raises(UsageError, match="line"):
        read_yaml(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot read"):
        read_yaml(path)
    path.write_text("")
    assert read_yaml(path) == {}


@pytest.mark.parametrize(
    "text", ["none", "None", "null", "1e-3", "1:30", "on", "true", "007", "", " x", "a: b", "~"]
)
def test_text_is_written_so_that_it_is_read_as_text(text: str) -> None:
    assert parse_yaml(dump_yaml({"key": text})) == {"key": text}
