"""Plays the story of `side_by_side.py` on a fresh cluster of real brokers, for one of its entrants."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import contest_story as story
from contest_entrants import Entrant
from contest_figures import gaps, half
from contest_story import Topic
from contest_trimtab import Balancer, trimtab
from contest_watch import Change, Watch
from trimtab_testbed.pulsar import distribution
from trimtab_testbed.pulsar.clients import Flow, Traffic, topics_of
from trimtab_testbed.pulsar.cluster import PulsarCluster
from trimtab_testbed.pulsar.rest import PulsarRest

CORES = 0.3
"""Limit of CPU cores of each broker's box: what counts as 100 %, for Pulsar and for Trimtab."""

WARM_UP = 120.0
"""Seconds before balancing begins: Pulsar looks at its CPU once a minute, and must have seen steady load for one."""

_AROUND = 2.0  # seconds around the moment when a new owner was seen, in which the gap of a move is looked for
_SHEDDING = "loadBalancerSheddingEnabled"


def play(entrant: Entrant, seconds: float) -> dict[str, Any]:
    """The figures of a run in which each half of the story takes so many `seconds`."""
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
            _place(cluster, bundles, topics)
            flows = [Flow(topic.name, rate, story.SIZE) for topic, rate in zip(topics, story.rates(), strict=True)]
            with Traffic(cluster.service_url, flows) as traffic, Watch(cluster, bundles, topics, traffic) as watch:
                time.sleep(WARM_UP / 2)  # averages that begin while the load still rises remember it for long
                balancer.prepare()
                time.sleep(WARM_UP / 2)
                balancer.begin()
                figures = _played(watch, topics, traffic, seconds)
                return {"boxed": cluster.boxed, "told": balancer.told(), **figures}


@contextmanager
def _balancer(entrant: Entrant, cluster: PulsarCluster, work: Path) -> Iterator[Balancer]:
    """What has to run beside the brokers."""
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
    """Whether each broker sheds."""
    return [cluster.rest(broker).runtime()[_SHEDDING] for broker in range(len(cluster.ids))]


def _topics(bundles: Sequence[str]) -> list[Topic]:
    rows = [story.bundle_of(topic) for topic in range(story.TOPICS)]
    names = {row: topics_of(bundles[row], rows.count(row)) for row in set(rows)}
    return [Topic(names[row].pop(0), row) for row in rows]


def _place(cluster: PulsarCluster, bundles: Sequence[str], topics: Sequence[Topic]) -> None:
    """Have every bundle served by its first owner."""
    rest, deadline = cluster.rest(), time.monotonic() + 120
    for row, bundle in enumerate(bundles):
        wanted = cluster.ids[story.first_owner(row)]
        while not _there(rest, bundle, topics[row].name, wanted):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{bundle} can't be brought to {wanted}: see the brokers' logs")


def _there(rest: PulsarRest, bundle: str, topic: str, wanted: str) -> bool:
    owner = rest.lookup(topic)
    if owner != wanted:
        rest.unload(bundle, wanted)
        return rest.lookup(topic) == wanted
    return True


def _played(watch: Watch, topics: Sequence[Topic], traffic: Traffic, seconds: float) -> dict[str, Any]:
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
    """Wait so long; the time (epoch seconds) of the newest row."""
    time.sleep(seconds)
    return watch.rows[-1].at


def _gaps(
    traffic: Traffic,
    topics: Sequence[Topic],
    changes: Sequence[Change],
    times: tuple[float, float, float],
    after: Mapping[str, float],
) -> dict[str, Any]:
    """Publish gaps of all topics of bundles that moved; and the longest of those that never did, for comparison."""
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
