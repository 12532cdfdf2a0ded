"""Range queries of the dashboard to a real Prometheus, as panels make them."""

from __future__ import annotations

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BOARD = Path(__file__).parents[3] / "charts" / "trimtab" / "files" / "board.json"

NEEDS_PULSAR = {
    "Does Pulsar answer?": "a link",
    "What a move costs clients": "publishers on real brokers",
    "Prometheus against the brokers' own figures": "brokers that tell their own figures",
    "How unloads ended": "unloads",
    "When moves land": "unloads",
    "Requests to Pulsar": "an admin REST",
    "Duration of requests": "an admin REST",
    "Time of one sync round": "an admin REST",
    "Writes of the sync": "an admin REST",
}
"""Panels that stay empty in the demo because it has no Pulsar, and what each needs. Their metrics must exist anyway."""

NEEDS_TIME = {
    "Spent budgets of policies": "a policy with a budget",
    "Spent budgets of topic namespaces": "a topic namespace with a budget",
    "Right predictions": "three minutes after a move of Trim",
    "Median error of the last predictions": "three minutes after a move of Trim",
}
"""Panels that stay empty in the demo for other reasons, and what each needs."""


def panels(given: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All panels with queries, including those in collapsed rows."""
    for panel in given:
        if panel["type"] == "row":
            yield from panels(panel["panels"])
        else:
            yield panel


def board_queries() -> list[tuple[str, dict[str, Any]]]:
    """Each query of the shipped dashboard, with the title of its panel."""
    board = json.loads(BOARD.read_text())
    return [(panel["title"], target) for panel in panels(board["panels"]) for target in panel["targets"]]


class Asked:
    """A Prometheus that is queried for a span of time, as panels do."""

    def __init__(self, url: str, begin: float, end: float) -> None:
        self.url, self.begin, self.end = url, begin, end

    def shown(self, target: dict[str, Any]) -> list[dict[str, Any]]:
        """The series that a panel shows. A heat map shows nothing where all counts are 0."""
        heat = target.get("format") == "heatmap"
        return self.series(f"({target['expr']}) > 0" if heat else target["expr"])

    def series(self, query: str) -> list[dict[str, Any]]:
        """The series of a query that have a number anywhere in the span. Raises the query's error."""
        return [one for one in self.stored(query) if any(math.isfinite(float(value)) for _, value in one["values"])]

    def stored(self, query: str) -> list[dict[str, Any]]:
        """The series of a query, including those that are NaN throughout."""
        words = {"$__rate_interval": "20s", "$namespace": ".*", "$policy": ".*"}
        for word, value in words.items():
            query = query.replace(word, value)
        form = {"query": query, "start": self.begin, "end": self.end, "step": 1}
        url = f"{self.url}/api/v1/query_range?{urllib.parse.urlencode(form)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found
