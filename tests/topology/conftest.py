"""What several topology tests need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data" / "machine_layouts.json"


def machine_names() -> list[str]:
    layouts: list[dict[str, Any]] = json.loads(DATA.read_text())
    return [str(layout["name"]) for layout in layouts]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "machine_name" in metafunc.fixturenames:
        metafunc.parametrize("machine_name", machine_names())


@pytest.fixture
def layouts_file() -> Path:
    return DATA
