"""Runs the scenario of `side_by_side.py` for one entrant, on a new cluster of real brokers.

`Watch` observes the brokers through the admin REST API, the kernel and the clients' own counters, in the same way for
each entrant. For entrants of Trimtab, the function `trimtab` also runs an API server, Prometheus, and the operator with
the rights of its Role.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, Self

import side_by_side_entrants as story
from side_by_side_entrants import Entrant, Topic
from side_by_side_figures import Change, Row, gaps, half
from trimtab_testbed.programs import find

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from real_pulsar import distribution
from real_pulsar.clients import ClientTraffic, Flow, topics_of
from real_pulsar.cluster import PulsarCluster
from real_pulsar.exporter import PodLimits
from real_pulsar.rest import PulsarRest, PulsarRestError

LOOK_EVERY = 1.0
"""Seconds between two readings of the owners. The brokers take turns, because a reading's 25 requests cost CPU."""

COUNT_EVERY = 1.0
"""Seconds between two readings of the counters."""

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Watch:
    """Context manager. rows, changes: the observations so far. load: the load averages of the machine."""

    cluster: PulsarCluster
    bundles: Sequence[str]
    topics: Sequence[Topic]
    traffic: ClientTraffic
    rows: list[Row] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    _rests: deque[PulsarRest] = field(default_factory=deque)
    _owners: dict[int, int] = field(default_factory=dict)
    _free: set[int] = field(default_factory=set)
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._rests.extend(self.cluster.rest(broker) for broker in range(len(self.cluster.ids)))
        self._look()
        jobs = ((self._look, LOOK_EVERY), (self._count, COUNT_EVERY))
        self._threads = [threading.Thread(target=self._follow, args=job, daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def owners(self) -> dict[int, int]:
        """Row of the broker that serves the bundle, or served it last, by row of the bundle."""
        return dict(self._owners)

    def _follow(self, look: Callable[[], None], every: float) -> None:
        due = time.monotonic()
        while not self._done.wait(max(0.0, due - time.monotonic())):
            look()
            due = max(due + every, time.monotonic())

    def _look(self) -> None:
        """Read the owners; without an answer, skip this reading."""
        self._rests.rotate()
        try:
            owners = self._rests[0].owners(*{bundle.rpartition("/")[0] for bundle in self.bundles})
        except (OSError, HTTPException, PulsarRestError):
            return
        rows, ids = {name: row for row, name in enumerate(self.bundles)}, self.cluster.ids
        self._note(time.time(), {rows[b]: ids.index(owner) for b, owner in owners.items() if b in rows})

    def _note(self, now: float, seen: dict[int, int]) -> None:
        for bundle, broker in seen.items():
            before = self._owners.get(bundle)
            if before is not None and (before != broker or bundle in self._free):
                self.changes.append(Change(now, bundle, before, broker))
            self._owners[bundle] = broker
        self._free = self._owners.keys() - seen.keys()

    def _count(self) -> None:
        acked = tuple(self.traffic.counts([topic.name]).acked for topic in self.topics)
        cpu = tuple(cpu_seconds(self.cluster.pid(broker)) for broker in range(len(self.cluster.ids)))
        owners = tuple(self._owners.get(bundle, -1) for bundle in range(len(self.bundles)))
        self.rows.append(Row(time.time(), acked, cpu, owners))
        self.load.append(os.getloadavg()[0])


def cpu_seconds(pid: int) -> float:
    """CPU seconds that a process has used. Raises `OSError` if it has exited."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


_IDLE: dict[str, Any] = {"shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}}}
"""A shedder that sheds nothing.

The policy has it until the scenario begins. So the memory of the entrant's strategy begins with the scenario, as
Pulsar's does.
"""

SUPPORT = Path(__file__).parents[1] / "tests" / "support"


class Balancer(NamedTuple):
    """A balancer: call `prepare` once every bundle has its first owner, and `begin` when the scenario begins.

    `told` reports at the end, as text, whether it was really balancing.
    """

    prepare: Callable[[], None]
    begin: Callable[[], None]
    told: Callable[[], str]


@contextmanager
def operator_beside(cluster: PulsarCluster, work: Path, cores: float, *, scrape_interval: float = 1.0) -> Iterator[Any]:
    """API server, Prometheus and the operator for `cluster`, as a `RealPulsarCluster` of the tests.

    cores: what counts as 100 % of a broker's CPU. scrape_interval: seconds between two scrapes by Prometheus.
    """
    sys.path += [str(folder) for folder in (SUPPORT, *SUPPORT.rglob("*/"))]
    from real_pulsar_cluster import RealPulsarCluster  # noqa: PLC0415  (shared with the tests, needed only here)

    work.mkdir(parents=True, exist_ok=True)
    programs, limits = (find.find_kube(), find.find_prometheus()), PodLimits(cores=cores)
    with RealPulsarCluster(*programs, work, cluster, limits=limits, scrape_interval=scrape_interval) as stage:
        stage.set_started()
        yield stage


@contextmanager
def trimtab(entrant: Entrant, cluster: PulsarCluster, work: Path, cores: float) -> Iterator[Balancer]:
    """The operator for `cluster`, whose brokers have `cores` CPU cores.

    The operator observes the cluster only from `prepare` on: a move that it saw earlier would start a cool-down.
    """
    with operator_beside(cluster, work, cores) as stage:

        def prepare() -> None:
            stage.apply_policy(
                interval=entrant.policy["interval"],
                placement=entrant.policy["placement"],
                prometheus={"window": "30s", "maxAge": "60s"},
                limits={"moveTimeout": "60s", "lostAfter": "30s", **entrant.policy["limits"]},
                **_IDLE,
            )

        def begin() -> None:
            idle = dict.fromkeys(key for key in _IDLE["shedder"] if key != "type")
            stage.edit_policy(mode="Auto", shedder={**idle, **entrant.policy["shedder"]})

        def told() -> str:
            if not stage.operator.running:
                raise RuntimeError(f"the operator has exited: {stage.operator.log[-1000:]}")
            return "; ".join(
                ": ".join(stage.condition(kind)) for kind in ("Acting", "Linked", "PulsarBalancerDisabled")
            )

        yield Balancer(prepare, begin, told)


CORES = 0.3
"""CPU limit of each broker, in cores. This counts as 100 %, for Pulsar and for Trimtab."""

WARM_UP = 120.0
"""Seconds before balancing begins: Pulsar reads its CPU once a minute, and must have seen a minute of steady load."""

_AROUND = 2.0  # the gap of a move is looked for in these seconds before and after its new owner was seen
_SHEDDING = "loadBalancerSheddingEnabled"


def play(entrant: Entrant, seconds: float) -> dict[str, Any]:
    """Run the scenario with halves of `seconds` each; returns its figures."""
    with tempfile.TemporaryDirectory(prefix="trimtab-contest-") as folder:
        work = Path(folder)
        brokers = PulsarCluster(
            distribution.find(), work / "pulsar", entrant.manager, settings=entrant.settings, cores=CORES
        )
        with brokers as cluster, _balancer(entrant, cluster, work) as balancer:
            rest = cluster.rest()
            rest.create_namespace(story.NAMESPACE, story.BUNDLES)
            bundles = rest.bundles(story.NAMESPACE)
            topics = _topics(bundles)
            owners = [cluster.ids[story.first_owner(row)] for row in range(len(bundles))]
            place(cluster.rest(), bundles, topics, owners)
            flows = [Flow(topic.name, rate, story.SIZE) for topic, rate in zip(topics, story.rates(), strict=True)]
            with (
                ClientTraffic(cluster.service_url, flows) as traffic,
                Watch(cluster, bundles, topics, traffic) as watch,
            ):
                time.sleep(WARM_UP / 2)  # averages that begin while the load still rises stay wrong for a long time
                balancer.prepare()
                time.sleep(WARM_UP / 2)
                balancer.begin()
                figures = _played(watch, topics, traffic, seconds)
                return {"boxed": cluster.boxed, "told": balancer.told(), **figures}


@contextmanager
def _balancer(entrant: Entrant, cluster: PulsarCluster, work: Path) -> Iterator[Balancer]:
    """The programs that must run in addition to the brokers."""
    if entrant.policy:
        with trimtab(entrant, cluster, work / "trimtab", CORES) as balancer:
            yield balancer
    else:
        yield Balancer(
            prepare=lambda: None,
            begin=lambda: cluster.rest().override(_SHEDDING, "true"),
            told=lambda: ", ".join(f"{_SHEDDING}={value}" for value in _running(cluster)),
        )


def _running(cluster: PulsarCluster) -> list[str]:
    """The value of the shedding switch on each broker."""
    return [cluster.rest(broker).runtime()[_SHEDDING] for broker in range(len(cluster.ids))]


def _topics(bundles: Sequence[str]) -> list[Topic]:
    rows = [story.bundle_of(topic) for topic in range(story.TOPICS)]
    names = {row: topics_of(bundles[row], rows.count(row)) for row in set(rows)}
    return [Topic(names[row].pop(0), row) for row in rows]


def place(rest: PulsarRest, bundles: Sequence[str], topics: Sequence[Topic], owners: Sequence[str]) -> None:
    """Move every bundle to its owner in `owners`. Raises `RuntimeError` after two minutes."""
    deadline = time.monotonic() + 120
    for row, (bundle, owner) in enumerate(zip(bundles, owners, strict=True)):
        while rest.lookup(topics[row].name) != owner:
            rest.unload(bundle, owner)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{bundle} can't be moved to {owner}: see the brokers' logs")


def _played(watch: Watch, topics: Sequence[Topic], traffic: ClientTraffic, seconds: float) -> dict[str, Any]:
    begun = _wait(watch, 0.0)
    shift = _wait(watch, seconds)
    after = story.shifted(topics, watch.owners())
    for name, rate in after.items():
        traffic.set_rate(name, rate)
    end = _wait(watch, seconds)
    rows, changes = list(watch.rows), list(watch.changes)
    first = half([row for row in rows if begun <= row.at <= shift], topics, changes, CORES)
    second = half([row for row in rows if shift <= row.at <= end], topics, changes, CORES)
    inside = [change for change in changes if begun <= change.at <= end - _AROUND]
    counts, load = traffic.counts(), watch.load
    return {
        "first": first,
        "shift": second,
        "gaps": _gaps(traffic, topics, inside, (begun, shift, end), after),
        "acked": counts.acked,
        "errors": counts.errors,
        "load": round(sum(load) / len(load), 1),
        "cores": os.cpu_count(),
        "finished": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def _wait(watch: Watch, seconds: float) -> float:
    """Wait for `seconds`; returns the time (epoch seconds) of the newest row."""
    time.sleep(seconds)
    return watch.rows[-1].at


def _gaps(
    traffic: ClientTraffic,
    topics: Sequence[Topic],
    changes: Sequence[Change],
    times: tuple[float, float, float],
    after: Mapping[str, float],
) -> dict[str, Any]:
    """Publish gaps of all topics of moved bundles. For comparison, also the longest gap of bundles that never moved."""
    begun, shift, end = times
    before = dict(zip((topic.name for topic in topics), story.rates(), strict=True))
    found, usual = [], []
    for change in changes:
        for topic in (topic for topic in topics if topic.bundle == change.bundle):
            gap = traffic.publish_gap([topic.name], change.at - _AROUND, change.at + _AROUND)
            rate = (before if change.at <= shift else after)[topic.name]
            if gap is not None:
                found.append(gap)
                usual.append(1000 / rate)
    moved = {change.bundle for change in changes}
    still = [topic.name for topic in topics if topic.bundle not in moved]
    quiet = traffic.publish_gap(still, begun, end) if still else None
    return {**gaps(found, usual), "others": None if quiet is None else round(quiet)}
