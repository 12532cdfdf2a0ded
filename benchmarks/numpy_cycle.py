"""A lower bound for the pipeline's cycle: only fetch, parse and average, with numpy, in a process of its own.

It fetches with the pipeline's client in two threads, parses with the pipeline's tokenizer and keeps its state in arrays
whose rows never change. Only a program that never restarts could keep its state so. So this is a lower bound, not an
alternative.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from canned_prometheus import SHARDS, START, Fleet, Size
from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_pipeline.transform.topics import bundle_sums

Floats = npt.NDArray[np.float64]


class NumpyCycle:
    """The state of one policy: the averages of all measured bundles."""

    def __init__(self, size: Size, url: str) -> None:
        fleet = Fleet.of(size)
        self._settings, pods = fleet.settings(url), sorted(fleet.pods)
        shards = [ShardRequest.of(self._settings, pods[k::SHARDS]) for k in range(SHARDS)]
        self._request = ReadRequest.of(self._settings, START, shards)
        self._ranges = HashRanges.of(fleet.bundles) if size.topics else None
        self._threads = ThreadPoolExecutor(SHARDS)
        self._averages: list[Floats] = []
        self._cycles = 0
        self._last = START

    def run(self, at: float) -> tuple[float, float]:
        """Run a cycle at `at`; returns wall-clock and processor seconds."""
        begin, used = time.perf_counter(), time.process_time()
        now = np.concatenate(list(self._threads.map(lambda shard: self._fetch(shard, at), range(SHARDS))))
        taus = (self._settings.short_tau, self._settings.long_tau)
        self._cycles += 1
        steps = [max(1 - np.exp((self._last - at) / tau), 1 / self._cycles) for tau in taus]
        before = self._averages or [now, now]
        self._averages = [old + step * (now - old) for old, step in zip(before, steps, strict=True)]
        self._last = at
        return time.perf_counter() - begin, time.process_time() - used

    def _fetch(self, shard: int, at: float) -> Floats:
        request = replace(self._request, at=at)
        brokers = list(read_shard("brokers", request, shard, Secrets()))
        *rows, report = read_shard("bundles", request, shard, Secrets())
        assert all(json.loads(one["report"][0].as_py())["ok"] for one in (brokers[-1], report))
        sums = bundle_sums(pa.Table.from_batches(rows), self._ranges)
        return np.stack([sums[name].to_numpy(zero_copy_only=False) for name in TRAFFIC], axis=1)


_cycle: NumpyCycle


def _prepare(size: Size, url: str) -> None:
    global _cycle  # noqa: PLW0603  (one per process, made when it starts)
    _cycle = NumpyCycle(size, url)


def _run(at: float) -> tuple[float, float]:
    return _cycle.run(at)


class Reference:
    """A process that runs cycles in numpy on request."""

    def __init__(self, size: Size, url: str) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads is not safe
        self._pool = ProcessPoolExecutor(1, spawn, _prepare, (size, url))

    def run(self, at: float) -> tuple[float, float]:
        """Run a cycle at `at` in that process; returns wall-clock and processor seconds."""
        return self._pool.submit(_run, at).result()

    def close(self) -> None:
        """Stop the process."""
        self._pool.shutdown()
