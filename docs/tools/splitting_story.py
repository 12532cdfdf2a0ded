"""One crowded bundle, and how each splitter divides it, cycle by cycle: the drawing of the splitters."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from algorithms_plot import INK, MOVED, PALE, SMALL, TITLE, TOLD, svg, text

from trimtab_strategies import registry
from trimtab_strategies.hash_ring import bundle_names
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, IntArray, Topics

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

from strategy_testing.clusters import cluster

NAMESPACE = "public/drawn"
FULL = 0xFFFFFFFF
CYCLES = 12
MIB = 2.0**20

RING = [0, FULL // 4, FULL // 2, 3 * (FULL // 4), FULL]
"""The namespace's bundles at the beginning: four quarters."""

PLACES = [0.02 + 0.002 * k for k in range(20)] + [0.3, 0.4, 0.55, 0.7, 0.8, 0.9]
RATES = [9.0] * 20 + [6.0] * 6
"""Topics by their place on the ring (ratio), and MiB/s of each: twenty crowd a small part of the first bundle."""

_LEFT, _WIDTH, _ROW = 70.0, 400.0, 14.0


@dataclass(frozen=True, slots=True)
class Story:
    """What a splitter does in all cycles. rings: the edges of all bundles at first, and after each cycle."""

    name: str
    rings: tuple[tuple[int, ...], ...]

    @property
    def cuts(self) -> int:
        """How many edges are new at the end."""
        return len(self.rings[-1]) - len(self.rings[0])


def stories() -> list[Story]:
    """A story of each splitter that uses limits of single bundles, with its default parameters.

    Trim's splitter is left out, because it needs to know how much the brokers can carry.
    """
    return [Story(name, tuple(_told(row))) for name, row in registry.SPLITTERS.items() if name != "Trim"]


def largest(ring: Sequence[int]) -> float:
    """MiB/s of the busiest bundle."""
    return float(_sums(np.array(ring)).max())


def draw() -> str:
    """The text of the SVG file."""
    body, y = [*_topics()], 96.0
    for story in stories():
        body += [*_story(story, y)]
        y += _ROW * (CYCLES + 1) + 62
    return svg(_LEFT + _WIDTH + 10, y, "How three splitters divide the same crowded bundle", body)


def _told(row: registry.Row[Any]) -> Iterator[tuple[int, ...]]:
    splitter, memory = row.build(row.params()), dict[str, Any]()
    ring = list(RING)
    yield tuple(ring)
    for cycle in range(CYCLES):
        load = _measured(np.array(ring), 1_000_000.0 + 60 * cycle)
        splitting = splitter.split(load, np.ones(len(ring) - 1, dtype=bool), memory)
        memory = dict(splitting.memory)
        ring = sorted({*ring, *(int(edge) for split in splitting.proposed for edge in split.boundaries)})
        yield tuple(ring)


def _places() -> IntArray:
    return (np.array(PLACES) * FULL).astype(np.int64)


def _bundle_of(edges: IntArray) -> IntArray:
    return np.clip(np.searchsorted(edges, _places(), side="right") - 1, 0, len(edges) - 2)


def _sums(edges: IntArray) -> FloatArray:
    sums: FloatArray = np.bincount(_bundle_of(edges), weights=np.array(RATES), minlength=len(edges) - 1)
    return sums


def _measured(edges: IntArray, now: float) -> ClusterLoad:
    """The namespace with these bundles, all on the first of two brokers that have room."""
    count, inside = len(edges) - 1, _bundle_of(edges)
    drawn = cluster(bundles={"a": [1.0] * count, "b": []}, a=1.0, b=1.0)
    traffic, number = _traffic(_sums(edges)), np.bincount(inside, minlength=count).astype(np.float64)
    bundles = replace(
        drawn.bundles,
        names=bundle_names(NAMESPACE, edges),
        namespace=np.zeros(count, dtype=np.int64),
        short=traffic,
        long=traffic,
        topics=number,
        sessions=number * 2,
    )
    names = tuple(f"persistent://{NAMESPACE}/{k}" for k in range(len(RATES)))
    topics = Topics(names=names, bundle=inside, place=_places(), traffic=_traffic(np.array(RATES)))
    return replace(drawn, bundles=bundles, namespaces=(NAMESPACE,), now=now, topics=topics)


def _traffic(rate: FloatArray) -> FloatArray:
    """`TRAFFIC` of bundles or topics that receive and send `rate` MiB/s together, in messages of 1 KiB."""
    half = rate * MIB / 2
    traffic: FloatArray = np.stack([half / 1024, half / 1024, half, half], axis=1)
    return traffic


def _topics() -> Iterator[str]:
    yield text(8, 20, "Topics on the hash ring, and how much each carries", size=TITLE)
    for place, rate in zip(PLACES, RATES, strict=True):
        x, height = _x(place * FULL), rate * 5
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="80" y2="{80 - height:.1f}" stroke="{MOVED}" stroke-width="1.5"/>'
    yield f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="80" y2="80" stroke="{INK}"/>'


def _story(story: Story, top: float) -> Iterator[str]:
    told = (
        f"{story.cuts} new boundaries, "
        f"busiest bundle {largest(story.rings[0]):.0f} -> {largest(story.rings[-1]):.0f} MiB/s"
    )
    yield text(_LEFT, top + 16, story.name, size=TITLE)
    yield text(_LEFT, top + 37, told, color=TOLD)
    for cycle, ring in enumerate(story.rings):
        y = top + 46 + _ROW * cycle
        if cycle % 3 == 0:
            yield text(_LEFT - 8, y + 10, f"cycle {cycle}" if cycle else "before", anchor="end", size=SMALL)
        before = story.rings[max(cycle - 1, 0)]
        yield f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_ROW - 4}" fill="{PALE}"/>'
        for edge in ring:
            color, width = (INK, 1.0) if edge in before else (MOVED, 2.0)
            look = f'stroke="{color}" stroke-width="{width}"'
            yield f'<line x1="{_x(edge):.2f}" x2="{_x(edge):.2f}" y1="{y}" y2="{y + _ROW - 4}" {look}/>'


def _x(place: float) -> float:
    return _LEFT + _WIDTH * place / FULL
