"""Reads the load inside of bundles from a history: topics of hot bundles in each cycle, and their hourly sketches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.history.dataset import SKETCHES, TOPICS
from trimtab_pipeline.history.files import HOUR
from trimtab_pipeline.history.reader import HistoryReader
from trimtab_pipeline.transform.arrays import block, floats
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, Topics


class RecordedTopics:
    """The load inside of bundles from `begin` to `end` (epoch s). Call `added` in the order of the cycles."""

    def __init__(self, reader: HistoryReader, begin: float, end: float) -> None:
        self._topics = by_cycle(reader.rows(TOPICS.name, begin, end))
        self._sketches = by_cycle(reader.rows(SKETCHES.name, begin - HOUR, end))
        self._topic, self._sketch = next(self._topics, None), next(self._sketches, None)
        self.sketches: dict[str, FloatArray] = {}

    def added(self, load: ClusterLoad) -> ClusterLoad:
        """`load` with the topics that were recorded in its cycle. Also sets `sketches` to the newest up to that cycle.

        sketches: bundle -> (k, 4) first hash, number of hashes, topics, bytes/s in plus out. Raises
        `ForeignFileError`.
        """
        while self._sketch is not None and self._sketch[0] <= load.now:
            self.sketches = {**self.sketches, **_by_bundle(self._sketch[1])}
            self._sketch = next(self._sketches, None)
        while self._topic is not None and self._topic[0] < load.now:
            self._topic = next(self._topics, None)
        if self._topic is None or self._topic[0] != load.now:
            return load
        return replace(load, topics=_topics(self._topic[1], load.bundles.index))


def by_cycle(parts: Iterator[pa.Table]) -> Iterator[tuple[float, pa.Table]]:
    """The rows of each cycle of `parts`, which are sorted by time."""
    for part in parts:
        at = part["at"].cast(pa.int64()).to_numpy()
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        for begin, end in pairwise([*starts, len(at)]):
            yield float(at[begin]) / 1000, part.slice(begin, end - begin)


def _topics(rows: pa.Table, index: Mapping[str, int]) -> Topics:
    bundle = np.array([index.get(name, -1) for name in rows["bundle"].to_pylist()], dtype=np.int64)
    known = np.flatnonzero(bundle >= 0)
    names = rows["topic"].to_pylist()
    place = rows["place"].to_numpy().astype(np.int64)
    traffic = np.nan_to_num(block(rows, TRAFFIC))
    return Topics(tuple(names[row] for row in known.tolist()), bundle[known], place[known], traffic[known])


def _by_bundle(rows: pa.Table) -> dict[str, FloatArray]:
    """See `RecordedTopics.added`."""
    bytes_per_second = np.nan_to_num(floats(rows, "throughput_in")) + np.nan_to_num(floats(rows, "throughput_out"))
    parts = np.stack([floats(rows, "place"), floats(rows, "width"), floats(rows, "topics"), bytes_per_second], axis=1)
    found: dict[str, list[int]] = {}
    for row, name in enumerate(rows["bundle"].to_pylist()):
        found.setdefault(name, []).append(row)
    return {name: parts[own] for name, own in found.items()}
