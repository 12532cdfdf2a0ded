"""What the tests of the board and of the alerts read: the files that ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import asked_board
from trimtab_testbed.programs import find

FILES = Path(__file__).parents[2] / "charts" / "trimtab" / "files"


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The program that checks rules, and plays them."""
    return find.find_prometheus(find.TOOL)


@pytest.fixture(scope="session")
def rules_file() -> Path:
    return FILES / "alerts.yaml"


@pytest.fixture(scope="session")
def rules(rules_file: Path) -> dict[str, dict[str, Any]]:
    """Each alert by its name."""
    groups = yaml.safe_load(rules_file.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


@pytest.fixture(scope="session")
def board() -> dict[str, Any]:
    return json.loads((FILES / "board.json").read_text())


@pytest.fixture(scope="session")
def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels that show something, those of closed rows as well."""
    return list(asked_board.panels(board["panels"]))
