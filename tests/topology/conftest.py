"""What several topology tests need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

DATA = Path(__file__).parent / "data" / "machine_layouts.json"

# Two busy cores: what counts is the result, not how long one example took.
settings.register_profile("topology", deadline=None, max_examples=150, print_blob=True)
settings.load_profile("topology")


def machine_names() -> list[str]:
    layouts: list[dict[str, Any]] = json.loads(DATA.read_text())
    return [str(layout["name"]) for layout in layouts]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "machine_name" in metafunc.fixturenames:
        metafunc.parametrize("machine_name", machine_names())


@pytest.fixture
def layouts_file() -> Path:
    return DATA
