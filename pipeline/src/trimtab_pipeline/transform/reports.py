"""What the shards of one policy reported about their part of a read; see `prometheus.shard_reader`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from trimtab_pipeline.api import SourceMisconfiguredError, SourceUnavailableError
from trimtab_strategies.model import counted

Report = Mapping[str, Any]
"""What a shard reported about one read."""
_TOPICS = "topics of hot bundles are not measured"


@dataclass(frozen=True, slots=True)
class ShardReports:
    """The reports of all shards. shards: the pods of each shard."""

    reports: tuple[Report, ...] = ()
    shards: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, shards: Sequence[Sequence[str]], reports: Iterable[Report]) -> Self:
        """These reports, if something was measured.

        Raises `SourceMisconfiguredError` when a query of a user can't be used, and `SourceUnavailableError` when no
        shard answered all of its reads.
        """
        found = cls(tuple(reports), tuple(tuple(pods) for pods in shards))
        if wrong := [report["error"] for report in found.reports if report.get("misconfigured")]:
            raise SourceMisconfiguredError(wrong[0])
        if found.reports and len(found.failed_shards) == len(found.shards):
            failed = next(report["error"] for report in found.reports if not report["ok"])
            raise SourceUnavailableError(f"nothing could be measured: {failed}")
        return found

    def with_topics(self, later: Iterable[Report]) -> Self:
        """These reports, and `later`, those of a read of the topics of hot bundles.

        Errors in `later` become notes, because topics are optional.
        """
        told = [
            {
                **report,
                "ok": True,
                "dropped": {},  # no load depends on them
                "notes": [*report["notes"], *([f"{_TOPICS}: {report['error']}"] if report["error"] else [])],
            }
            for report in later
        ]
        return replace(self, reports=(*self.reports, *told))

    @property
    def failed_shards(self) -> set[int]:
        """Numbers of the shards that did not answer all of their reads."""
        return {int(report["shard"]) for report in self.reports if not report["ok"]}

    @property
    def failed(self) -> tuple[tuple[str, str], ...]:
        """(brokers, cause) of every shard that did not answer."""
        failed = ((self.shards[report["shard"]], report["error"]) for report in self.reports if not report["ok"])
        return tuple(dict.fromkeys((_span(pods), error) for pods, error in failed))

    @property
    def dropped(self) -> Counter[str]:
        """Number of unused samples, by cause."""
        return sum((Counter(report["dropped"]) for report in self.reports), Counter[str]())

    @property
    def warnings(self) -> tuple[str, ...]:
        """The server's warnings about its answers."""
        return tuple(sorted({text for report in self.reports for text in report["warnings"]}))

    def notes(self, max_clock_skew: float) -> tuple[str, ...]:
        """The notes of all shards, and one if a server's clock differs from ours by more than `max_clock_skew` s."""
        notes = {text for report in self.reports for text in report.get("notes", ())}
        clocks = [report["clock"] for report in self.reports if report.get("clock") is not None]
        skew = max(clocks, key=abs, default=0.0)
        if abs(skew) > max_clock_skew:
            notes.add(
                f"the source's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours: set the clocks"
            )
        return tuple(sorted(notes))

    @property
    def bundles(self) -> int:
        """Number of bundles with metrics of their own."""
        return sum(int(report.get("bundles") or 0) for report in self.reports)

    @property
    def repeated(self) -> set[str]:
        """Pods whose own metrics have several series of the same signal."""
        return {pod for report in self.reports for pod in report.get("repeated", ())}

    @property
    def most(self) -> dict[str, int]:
        """For each table with a query that the server refused for its size: pods that one query may name."""
        told = [(str(report["table"]), int(report["most"])) for report in self.reports if report.get("most")]
        return {table: min(most for name, most in told if name == table) for table, _ in told}

    @property
    def node_limits(self) -> set[tuple[str, str]]:
        """(pod, resource) of the limits that are what the pod's node can allocate."""
        told = [(report.get("node_limits") or {}).items() for report in self.reports]
        return {(pod, resource) for items in told for resource, pods in items for pod in pods}

    @property
    def seconds(self) -> float:
        """Seconds that the slowest shard spent on HTTP and parsing."""
        spent = defaultdict[int, float](float)
        for report in self.reports:
            spent[report["shard"]] += report.get("seconds") or 0.0
        return max(spent.values(), default=0.0)


def _span(pods: tuple[str, ...]) -> str:
    many = len(pods) > 1
    return f"{counted(len(pods), 'broker')}, {pods[0]} to {pods[-1]}" if many else f"broker {pods[0]}"
