"""Plays one scenario on real brokers and in the lab, and writes the traces of docs/calibration.md.

The lab builds the scenario (`calibration.yaml`) and so decides what each bundle's clients send in each minute. Real
producers then send exactly that to three real brokers. The operator balances them, with a policy that sets no
parameter. The lab plays the same minutes with the same strategy. Both traces are written to docs/data/calibration.json.

    python benchmarks/calibration.py          # 16 minutes: both
    python benchmarks/calibration.py --lab    # the lab again; the recorded real run stays

docs/tools/generate.py makes the page from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from calibration_lab import POLICY_SHEDDER, SCENARIO, SEED, Array, grown, lab_trace, manifest, sent
from side_by_side_entrants import BROKERS, Topic
from side_by_side_figures import Change, Row, cores, counted, rates, steps
from side_by_side_run import Watch, operator_beside, place
from trimtab_lab.simulation import build, load

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from real_pulsar import distribution
from real_pulsar.clients import ClientTraffic, Flow, topics_of
from real_pulsar.cluster import PulsarCluster
from real_pulsar.settings import LoadManagerKind

DATA = Path(__file__).parents[1] / "docs" / "data" / "calibration.json"

MINUTE = 60.0
"""Seconds of a round."""

WARM_UP = 60.0
"""Seconds of load before the policy is applied, so that the JVM has compiled what it needs."""

SCRAPE = 5.0
"""Seconds between two scrapes."""

AROUND = 2.0
"""The gap of a move is looked for in this many seconds before and after the new owner was first seen."""

NAMESPACE = "trimtab/calibration"

HISTORY = Path("trimtab", "history")
"""Path of the operator's history in the folder that `play` works in."""

Trace = dict[str, Any]
"""What `play` measured: the part `real` of docs/data/calibration.json."""


@dataclass
class Follower(ABC):
    """Context manager. Looks each second, on a thread of its own."""

    _done: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        assert self._thread is not None, "entered before"
        self._thread.join()

    def _follow(self) -> None:
        while not self._done.wait(1.0):
            self._look()

    @abstractmethod
    def _look(self) -> None:
        """Note what there is to see now."""


@dataclass
class Statements(Follower):
    """Records each change of a condition of the policy, by seconds since `begun` (epoch seconds)."""

    stage: Any
    begun: float
    said: list[dict[str, Any]] = field(default_factory=list)
    _last: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def _look(self) -> None:
        for condition in self.stage.status().get("conditions", []):
            words = (condition["status"], condition["reason"], condition["message"])
            if self._last.get(condition["type"]) != words:
                self._last[condition["type"]] = words
                at = round(time.time() - self.begun, 1)
                self.said.append({"at": at, "type": condition["type"], **dict(zip(_WORDS, words, strict=True))})


_WORDS = ("status", "reason", "message")


def play(limit: float, work: Path, strategy: Mapping[str, Any] = MappingProxyType({}), *, boxed: bool) -> Trace:
    """Play the scenario on real brokers, each with `limit` cores. boxed: whether the kernel enforces the limit.

    work: an empty folder; the operator's history stays in it (`HISTORY`). strategy: what the policy's spec has besides
    the mode and the two addresses.
    """
    scenario = load(str(SCENARIO))
    world = build(scenario, np.random.default_rng(SEED))
    wanted = sent(world)
    with ExitStack() as stack:
        brokers = PulsarCluster(
            distribution.find(), work / "pulsar", LoadManagerKind.MODULAR, cores=limit if boxed else None
        )
        cluster = stack.enter_context(brokers)
        stage = stack.enter_context(operator_beside(cluster, work / "trimtab", limit, scrape_interval=SCRAPE))
        cluster.rest().create_namespace(NAMESPACE, wanted.shape[1])
        bundles = cluster.rest().bundles(NAMESPACE)
        topics = [Topic(topics_of(bundle, 1)[0], row) for row, bundle in enumerate(bundles)]
        place(cluster.rest(), bundles, topics, [cluster.ids[0]] * len(bundles))
        flows = [Flow(topic.name, float(wanted[0, topic.bundle])) for topic in topics]
        traffic = stack.enter_context(ClientTraffic(cluster.service_url, flows))
        watch = stack.enter_context(Watch(cluster, bundles, topics, traffic))
        counts = stack.enter_context(MessagesLeft(traffic))
        time.sleep(WARM_UP)
        begun = watch.rows[-1].at
        statements = stack.enter_context(Statements(stage, begun))
        apply_policy(stage, strategy)
        _send(traffic, topics, wanted, begun)
        figures = _figures(watch, topics, begun, len(wanted), limit)
        moves = [_move(change, topics, traffic, wanted, begun) for change in watch.changes if change.at >= begun]
        drained = traffic.drain()
        return {
            "cores": limit,
            "boxed": cluster.boxed and boxed,
            **figures,
            "backlog": counts.steps(begun, len(wanted)),
            "moves": moves,
            "counted": counted([change for change in watch.changes if change.at >= begun]),
            "conditions": statements.said,
            "sent": drained.sent,
            "acked": drained.acked,
            "received": drained.received,
            "errors": drained.errors,
            "load": round(float(np.mean(watch.load)), 1),
            "machine_cores": os.cpu_count(),
            "finished": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        }


def apply_policy(stage: Any, strategy: Mapping[str, Any]) -> None:
    """Create a policy with `strategy`. An empty `strategy` makes the smallest policy that acts on a Pulsar cluster."""
    from small_cluster import API  # noqa: PLC0415  (of the tests; `operator_beside` adds its folder to sys.path)

    policy = manifest("policy", strategy, stage.admin.url, stage.prometheus.url)
    stage.rest.create(f"{API}/balancingpolicies", policy)


@dataclass
class MessagesLeft(Follower):
    """Counts messages not yet acknowledged and messages not yet received."""

    traffic: ClientTraffic
    rows: list[tuple[float, int, int]] = field(default_factory=list)

    def steps(self, begun: float, minutes: int) -> dict[str, list[int]]:
        """For each 10 s, the highest number of messages that waited for an acknowledgement, and for a consumer."""
        at = np.array([row[0] for row in self.rows]) - begun
        found: dict[str, list[int]] = {"unacknowledged": [], "unread": []}
        for start in np.arange(0, MINUTE * minutes, 10.0):
            inside = [row for row, time_ in zip(self.rows, at, strict=True) if start <= time_ < start + 10]
            for column, name in ((1, "unacknowledged"), (2, "unread")):
                found[name].append(max((row[column] for row in inside), default=0))
        return found

    def _look(self) -> None:
        now = self.traffic.counts()
        self.rows.append((time.time(), now.sent - now.acked - now.errors, max(0, now.acked - now.received)))


def _send(traffic: ClientTraffic, topics: Sequence[Topic], wanted: Array, begun: float) -> None:
    """Send in each minute what the lab's clients send in the same minute."""
    for minute in range(len(wanted)):
        for topic in topics:
            traffic.set_rate(topic.name, float(wanted[minute, topic.bundle]))
        time.sleep(max(0.0, begun + MINUTE * (minute + 1) - time.time()))
    time.sleep(2 * AROUND)


def _figures(watch: Watch, topics: Sequence[Topic], begun: float, minutes: int, limit: float) -> dict[str, Any]:
    rows: list[Row] = list(watch.rows)
    end = begun + MINUTE * minutes
    times = np.array([row.at for row in rows[1:]])
    cpu = steps(times, cores(rows), begun, end) / limit * 100
    messages = steps(times, rates(rows, topics), begun, end)
    return {"cpu": _rounded(cpu), "rates": _rounded(messages), "bundles": [_held(rows, begun, end)]}


def _held(rows: Sequence[Row], begun: float, end: float) -> list[int]:
    """Number of bundles of each broker at `end`."""
    last = max((row for row in rows if begun <= row.at <= end), key=lambda row: row.at)
    return [last.owners.count(broker) for broker in range(BROKERS)]


def _move(
    change: Change, topics: Sequence[Topic], traffic: ClientTraffic, wanted: Array, begun: float
) -> Mapping[str, Any]:
    """One move: its time (seconds from the beginning), bundle, brokers, messages/s and gaps (ms)."""
    (topic,) = (topic.name for topic in topics if topic.bundle == change.bundle)
    minute = min(int((change.at - begun) / MINUTE), len(wanted) - 1)
    around = change.at - AROUND, change.at + AROUND
    return {
        "at": round(change.at - begun, 1),
        "bundle": change.bundle,
        "source": change.source,
        "target": change.target,
        "rate": round(float(wanted[minute, change.bundle]), 1),
        "publish": traffic.publish_gap([topic], *around),
        "receive": traffic.receive_gap([topic], *around),
    }


def _rounded(values: Array) -> list[list[float | None]]:
    return [[None if np.isnan(value) else round(float(value), 1) for value in row] for row in values]


def main() -> None:
    """Play the scenario on real brokers and in the lab, and save both traces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", action="store_true", help="play only the lab")
    parser.add_argument("--cores", type=float, default=0.3, help="CPU cores of a broker (default: %(default)s)")
    parser.add_argument("--unboxed", action="store_true", help="let brokers use more: --cores is only the 100 %% mark")
    parser.add_argument("--json", type=Path, default=DATA, help="file of the traces (default: %(default)s)")
    given = parser.parse_args()
    before = json.loads(given.json.read_text()) if given.json.exists() else {}
    with tempfile.TemporaryDirectory(prefix="trimtab-calibration-") as folder:
        real = before["real"] if given.lab else play(given.cores, Path(folder), boxed=not given.unboxed)
    scenario = load(str(SCENARIO))
    found = grown(build(scenario, np.random.default_rng(SEED)))
    traces = {"shedder": POLICY_SHEDDER, "grown": found, "real": real, "lab": lab_trace(scenario)}
    given.json.write_text(written(traces))


def written(traces: Mapping[str, Any]) -> str:
    """JSON with a line for each list of figures, so that diffs stay small."""
    lines = [f'"{what}": {json.dumps(traces[what])}' for what in ("shedder", "grown")]
    for side in ("real", "lab"):
        inside = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in traces[side].items())
        lines.append(f'"{side}": {{\n{inside}\n }}')
    return "{" + ",\n ".join(lines) + "}\n"


if __name__ == "__main__":
    main()
