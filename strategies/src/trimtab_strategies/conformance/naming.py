"""Recorded rules of the hash ring (``naming.*``), run here."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trimtab_strategies.conformance.shared import Algorithm, Answer, Input
from trimtab_strategies.model.load import IntArray
from trimtab_strategies.topics import default_boundaries, find_bundle, range_text, topic_hash


def topic_to_bundle(given: Input) -> Answer:
    """``naming.topic_to_bundle``: hash and bundle of each topic, for default and for given boundaries."""
    rings = [default_boundaries(count) for count in given["num_bundles"]]
    rings += [_boundaries(given["boundaries"])] if given.get("boundaries") else []
    hashes = [topic_hash(topic) for topic in given["topics"]]
    columns = [_bundles(ring, hashes) for ring in rings]
    answers = zip(given["topics"], hashes, zip(*columns, strict=True), strict=True)
    return {"topics": [{"name": name, "hash": place, "bundles": list(bundles)} for name, place, bundles in answers]}


def hash_to_bundle(given: Input) -> Answer:
    """``naming.hash_to_bundle``: the bundle of each hash, with Pulsar's exception for the last one."""
    return {"bundles": _bundles(_boundaries(given["boundaries"]), given["hashes"])}


def _boundaries(texts: list[str]) -> IntArray:
    return np.array([int(text, 16) for text in texts], dtype=np.int64)


def _bundles(boundaries: IntArray, hashes: list[int]) -> list[str]:
    rows = find_bundle(boundaries, hashes, last_hash_included=False)
    edges = boundaries.tolist()
    ranges = [range_text(*edges[row : row + 2]) for row in range(len(edges) - 1)]
    ranges.append("exception IndexOutOfBoundsException")
    return [ranges[row] for row in rows]


ALGORITHMS: Mapping[str, Algorithm] = {
    "naming.hash_to_bundle": hash_to_bundle,
    "naming.topic_to_bundle": topic_to_bundle,
}
