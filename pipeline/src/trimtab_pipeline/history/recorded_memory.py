"""What the strategies of a policy remembered, as the operator wrote it into the history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class RecordedMemory(NamedTuple):
    """The memory after the cycle at `at` (epoch s): JSON, as the operator stored it."""

    at: float
    text: str


def newest_memory(policies: Iterable[pa.Table], before: float) -> RecordedMemory | None:
    """The newest memory of a cycle before `before` (epoch s) in rows of `POLICIES`; None without one."""
    found = None
    for table in policies:
        for row in table.filter(pc.equal(table["kind"], "memory")).to_pylist():
            if (at := row["at"].timestamp()) < before:
                found = RecordedMemory(at, row["value"])
    return found
