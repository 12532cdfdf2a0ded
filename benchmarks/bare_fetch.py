"""The least that any program must do in a cycle: fetch the answers of Prometheus and convert their numbers to floats.

This module shares no code with the pipeline. `http.client` fetches one body after the other, and numpy converts the
numbers. The result does not say what a number belongs to, so no program that decides anything can be as fast.
"""

from __future__ import annotations

import http.client
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from urllib.parse import urlsplit

import numpy as np

_END = b'"]'
"""The end of a sample: ``[1750000000.000,"1.5"]``."""


def fetched(url: str, names: Sequence[str]) -> tuple[float, float, int]:
    """Wall-clock and processor seconds that all bodies take, and how many numbers they contain.

    names: the names of bodies that `canned_prometheus.replaying` serves.
    """
    begin, used, count = time.perf_counter(), time.process_time(), 0
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    for name in names:
        connection.request("GET", f"/{name}")
        count += len(_numbers(connection.getresponse().read()))
    connection.close()
    return time.perf_counter() - begin, time.process_time() - used, count


def _numbers(body: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The value of each sample of a response."""
    found = [part[part.rfind(b'"') + 1 :] for part in body.split(_END)[:-1]]
    return np.array(found, dtype="S").astype(np.float64)


class BareFetch:
    """A process that fetches all bodies on request."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads is not safe
        self._pool, self._url, self._names = ProcessPoolExecutor(1, spawn), url, tuple(names)

    def run(self) -> tuple[float, float]:
        """Fetch all bodies; returns wall-clock and processor seconds."""
        clock, used, count = self._pool.submit(fetched, self._url, self._names).result()
        assert count
        return clock, used

    def close(self) -> None:
        """Stop the process."""
        self._pool.shutdown()
