"""The history as a dataset: ``<root>/history/<table>/policy=<namespace>.<name>/date=YYYY-MM-DD/hour=HH/*.parquet``.

Spark, DuckDB and pandas can open the folder of each table. The state of each policy is in
``<root>/state/<namespace>/<name>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property

import pyarrow as pa

from trimtab_pipeline.columns import TRAFFIC, USAGE
from trimtab_pipeline.history.files import HistoryFile, HistoryTable, cycle_name, hour_name, listed
from trimtab_pipeline.history.location import Location, Place
from trimtab_pipeline.history.snapshot_tables import BROKER_SNAPSHOT, QUALITY

_POLICY = re.compile(r"[A-Za-z0-9][-\w]*/[A-Za-z0-9][-\w.]*", re.ASCII)
_RATES = tuple(pa.field(name, pa.float32()) for name in TRAFFIC)
_SPLIT = dict.fromkeys(TRAFFIC, "BYTE_STREAM_SPLIT")

DEMAND = HistoryTable(
    "demand",
    pa.schema(
        [
            ("bundle", pa.string()),
            ("pod", pa.string()),
            *_RATES,
            ("topics", pa.int32()),
            ("sessions", pa.int32()),
        ]
    ),
    by_cycle=True,
    plain={"bundle": "DELTA_BYTE_ARRAY", **_SPLIT},
)
"""The load of each measured bundle in a cycle, sorted by name: the pod that reported it, its rates (msg/s, bytes/s;
rounded to 0.05 %), number of topics, and of producers and consumers. Null: unknown."""
BROKERS = HistoryTable(
    "brokers",
    pa.schema([("kind", pa.string()), *BROKER_SNAPSHOT]),
    plain=dict.fromkeys((*USAGE, *TRAFFIC), "BYTE_STREAM_SPLIT"),
)
"""Each broker as the strategies got it. ``kind``: ``cycle``, or ``refresh`` for a refresh between two cycles. Usage and
traffic of a refresh are rounded to 0.05 %."""
FACTS = HistoryTable("facts", pa.schema([("kind", pa.string()), ("name", pa.string()), ("value", pa.string())]))
"""Facts from Kubernetes objects: each when it changes, and all in the first cycle of an hour. ``value``: JSON; null if
what the fact is about no longer exists."""
TOPICS = HistoryTable(
    "topics",
    pa.schema([("topic", pa.string()), ("bundle", pa.string()), ("pod", pa.string()), ("place", pa.int64()), *_RATES]),
    plain=_SPLIT,
)
"""Topics of the hottest bundles. ``place``: hash of the topic's name, which determines the bundle."""
SKETCHES = HistoryTable(
    "sketches",
    pa.schema([("bundle", pa.string()), ("place", pa.int64()), ("width", pa.int64()), ("topics", pa.int32()), *_RATES]),
    plain=_SPLIT,
)
"""Load inside of bundles, once an hour: the 16 heaviest topics of each (``width`` 1), and the sum of the others in each
sixteenth of its range (from ``place`` on, ``width`` hashes)."""
DECISIONS = HistoryTable(
    "decisions",
    pa.schema(
        [("of", pa.timestamp("ms", "UTC")), ("outcome", pa.string()), ("moves", pa.int32()), ("record", pa.string())]
    ),
)
"""Decisions, and updates of earlier decisions. ``record`` is text that only its writer understands."""
POLICIES = HistoryTable("policies", pa.schema([("kind", pa.string()), ("hash", pa.string()), ("value", pa.string())]))
"""The policy in force (``kind`` ``spec``) and the memory of its strategies (``memory``) as JSON: each when it changes,
and both in the first cycle of an hour. ``hash``: SHA-256 of the value."""
FINDINGS = HistoryTable("quality", QUALITY)
"""Problems of the data."""

TABLES = {table.name: table for table in (FINDINGS, BROKERS, FACTS, TOPICS, SKETCHES, DECISIONS, POLICIES, DEMAND)}
"""Every table by its name. A cycle writes `DEMAND` last, so a cycle that has it is complete."""
BASE = frozenset({FACTS.name, POLICIES.name})
"""Tables whose first file of an hour has everything, and later files only changes.

If the history is too large, retention removes an hour's files of these tables after its other files."""


class HistoryDataset:
    """The history of all policies below `root`, a path or a URI. Raises `ValueError` for a URI that can't be opened."""

    def __init__(self, root: Place) -> None:
        self.root = Location.of(root)

    def __str__(self) -> str:
        return str(self.root)

    def policies(self) -> list[str]:
        """Names (``namespace/name``) of the policies with cycles."""
        folders = (self.root / "history" / DEMAND.name).folders()
        keys = [folder.name.removeprefix("policy=") for folder in folders if folder.name.startswith("policy=")]
        return sorted("/".join(key.split(".", 1)) for key in keys if "." in key)

    def state(self, policy: str) -> Location:
        """Folder of the state of `policy`. Raises `ValueError` as `of` does."""
        return self.root / "state" / self._checked(policy)

    def of(self, policy: str) -> PolicyDataset:
        """The history of `policy` (``namespace/name``). Raises `ValueError` for a name that leads out of `root`."""
        return PolicyDataset(self.root / "history", self._checked(policy))

    def _checked(self, policy: str) -> str:
        if _POLICY.fullmatch(policy) is None:
            raise ValueError(f"policy {policy!r} would keep its history outside {self.root}")
        return policy


class PolicyDataset:
    """The history of one policy: its files in all tables."""

    def __init__(self, root: Location, policy: str) -> None:
        self.policy, self.root = policy, root
        self._key = f"policy={policy.replace('/', '.', 1)}"

    @cached_property
    def exists(self) -> bool:
        """Whether the policy has a table of cycles."""
        return self.folder(DEMAND).exists()

    def folder(self, table: HistoryTable) -> Location:
        """Folder of the policy in a table."""
        return self.root / table.name / self._key

    def hour(self, table: HistoryTable, at: float) -> Location:
        """Folder of the hour of `at` (epoch s) in a table."""
        moment = datetime.fromtimestamp(at, UTC)
        return self.folder(table) / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"

    def cycle_file(self, table: HistoryTable, at: float, writer: str = "") -> Location:
        """File of the cycle at `at` in a table. writer: who writes it, if the table has several writers."""
        return self.hour(table, at) / cycle_name(at, writer)

    def hour_file(self, table: HistoryTable, at: float) -> Location:
        """File that the files of the hour of `at` are merged into."""
        return self.hour(table, at) / hour_name(at)

    def files(self, table: HistoryTable) -> list[HistoryFile]:
        """The files of a table, oldest first."""
        return listed(self.folder(table), recursive=True)

    def all_files(self) -> Iterator[tuple[HistoryTable, HistoryFile]]:
        """The files of every table."""
        for table in TABLES.values():
            for file in self.files(table):
                yield table, file

    def set_aside(self) -> list[Location]:
        """Files that were found unreadable."""
        return [
            place
            for table in TABLES.values()
            for place in self.folder(table).files(recursive=True)
            if place.name.endswith(".bad")
        ]
