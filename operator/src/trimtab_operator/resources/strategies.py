"""The strategies a policy may name, as the registry lists them. A row added there is a type in the CRD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trimtab_operator.resources.unions import Union, union
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.registry import PLACEMENTS, SELECTIONS, SHEDDERS, SPLITTERS, Row


def _rows(table: Mapping[str, Row[Any]]) -> Mapping[str, tuple[type[StrategyParams], str]]:
    return {name: (row.params, row.summary) for name, row in table.items()}


if TYPE_CHECKING:

    class ShedderSpec(Union):
        """Which bundles leave which brokers."""

    class PlacementSpec(Union):
        """Which broker gets a bundle."""

    class SelectionSpec(Union):
        """Which brokers a bundle may go to at all."""

    class SplitterSpec(Union):
        """Which bundles are divided, and where."""

else:
    ShedderSpec = union("ShedderSpec", "Which bundles leave which brokers.", _rows(SHEDDERS))
    PlacementSpec = union("PlacementSpec", "Which broker gets a bundle.", _rows(PLACEMENTS))
    SelectionSpec = union("SelectionSpec", "Which brokers a bundle may go to at all.", _rows(SELECTIONS))
    SplitterSpec = union("SplitterSpec", "Which bundles are divided, and where.", _rows(SPLITTERS))
