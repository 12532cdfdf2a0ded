"""What is inside a bundle: topics at places of the hash ring, so that part of it carries their part of the load.

A bundle of a scenario has a mean load and a number of topics. Where those lie and what each carries is drawn from the
bundle's name, so every process sees the same; the parts of a bundle add up to it, however it is divided.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from trimtab_strategies.topics import parse_bundle
from trimtab_testbed.load import BundleLoad


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its place on the ring, and its share (ratio 0-1) of the bundle's load."""

    place: int
    share: float


def topics(load: BundleLoad) -> tuple[Topic, ...]:
    """The topics of a bundle that a scenario begins with, ascending by place."""
    _, lower, upper = parse_bundle(load.name)
    chance = random.Random(load.name)  # noqa: S311 - a repeatable world, no secret
    places = sorted(chance.randrange(lower, upper) for _ in range(load.topics))
    weights = [chance.uniform(0.5, 1.5) for _ in places]
    return tuple(Topic(place, weight / sum(weights)) for place, weight in zip(places, weights, strict=True))


def part(whole: BundleLoad, name: str) -> BundleLoad:
    """The load of the bundle `name`, whose range lies within that of `whole`."""
    _, lower, upper = parse_bundle(name)
    inside = [topic for topic in topics(whole) if lower <= topic.place < upper]
    share = sum(topic.share for topic in inside)
    return replace(
        whole,
        name=name,
        rate_in=whole.rate_in * share,
        rate_out=whole.rate_out * share,
        throughput_in=whole.throughput_in * share,
        throughput_out=whole.throughput_out * share,
        topics=len(inside),
        producers=round(whole.producers * len(inside) / whole.topics),
        consumers=round(whole.consumers * len(inside) / whole.topics),
        cores=whole.cores * share,
    )


class Catalogue(Mapping[str, BundleLoad]):
    """The load of each bundle by Pulsar's name: of those a scenario begins with (iterated over), and of their parts."""

    def __init__(self, loads: Iterable[BundleLoad]) -> None:
        """Of a scenario's bundles."""
        self._first = {load.name: load for load in loads}
        self._known = dict(self._first)
        self._rings: dict[str, list[tuple[int, int, str]]] = {}
        for name in self._first:
            namespace, lower, upper = parse_bundle(name)
            self._rings.setdefault(namespace, []).append((lower, upper, name))
        for ring in self._rings.values():
            ring.sort()

    def __getitem__(self, name: str) -> BundleLoad:
        """Raises `KeyError` for what is neither one of the first bundles nor a part of one."""
        if name not in self._known:
            self._known[name] = part(self._first[self._whole(name)], name)
        return self._known[name]

    def scale(self, name: str, factor: float) -> None:
        """Multiply the traffic, and its cost, of one of the first bundles, and so of its parts, by `factor` above 0."""
        whole = self._first[name]
        self._first[name] = replace(
            whole,
            rate_in=whole.rate_in * factor,
            rate_out=whole.rate_out * factor,
            throughput_in=whole.throughput_in * factor,
            throughput_out=whole.throughput_out * factor,
            cores=whole.cores * factor,
        )
        self._known = dict(self._first)

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)

    def _whole(self, name: str) -> str:
        try:
            namespace, lower, upper = parse_bundle(name)
        except ValueError as error:
            raise KeyError(name) from error
        ring = self._rings.get(namespace, [])
        at = bisect_right(ring, (lower, 1 << 33, "")) - 1
        if at < 0 or not ring[at][0] <= lower < upper <= ring[at][1]:
            raise KeyError(name)
        return ring[at][2]
