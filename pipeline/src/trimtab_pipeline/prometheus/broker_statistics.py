"""Topics' load from the brokers' admin REST, for clusters whose Prometheus has no metrics of topics.

A broker caches the answer of ``/admin/v2/broker-stats/topics``, so a request costs it only the transfer. It updates the
answer every ``statsUpdateFrequencyInSecs``, which is also the window of its rates. A cycle reads brokers with hot
bundles twice: for the load of all bundles, and then for the topics of the hot ones. Several brokers are read in
parallel. If one does not answer, only its own bundles have no load; the result names the brokers that failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import requests

from trimtab_pipeline.api import CredentialsError, StatisticsSettings
from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.prometheus.connections import LONG, StrictSession, body_of, cause_of
from trimtab_pipeline.prometheus.queries import TOPICS
from trimtab_pipeline.prometheus.response_limits import TooLargeError, json_of

PATH = "/admin/v2/broker-stats/topics"
"""Path of the statistics below a broker's URL. Only that broker has them, so it never redirects."""
READERS = 4
"""Brokers that each task reads in parallel."""
WITHIN = 40.0
"""Seconds that a task has for all its brokers; after that it starts no further request."""
LARGEST = 512 * 2**20
"""Maximum size of one broker's answer in bytes."""
_PIECE = 2**20
_OK, _UNAUTHORIZED = 200, 401
_RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")


class StatisticsError(RuntimeError):
    """A broker whose statistics can't be read. The message names its URL and the cause."""


@dataclass(frozen=True, slots=True)
class StatisticsAnswer:
    """The answers of brokers.

    topics: columns of `TOPICS`; ``partition`` is empty, because the names contain it. pods: the brokers that answered.
    failed: cause for each other pod.
    """

    topics: Mapping[str, pa.Array]
    pods: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


def ask_brokers(
    urls: Mapping[str, str],
    settings: StatisticsSettings,
    namespaces: Container[str] | None = None,
    within: float = WITHIN,
    unwanted: Callable[[], bool] = lambda: False,
) -> StatisticsAnswer:
    """The topics of the brokers (pod -> base URL, empty if unknown).

    namespaces: those whose topics are wanted; None: all. within: seconds after which no further request starts.
    unwanted: whether the result is no longer needed. Then no further request starts, either.
    """
    end, parsing = time.monotonic() + within, Lock()

    def rows_of(url: str) -> _Rows:
        if unwanted():
            raise StatisticsError("the result is no longer needed")
        if url and time.monotonic() > end:
            raise StatisticsError(f"there was no time left: other brokers took {max(within, 0.0):g} s")
        return _rows_of(url, settings, namespaces, parsing)

    with ThreadPoolExecutor(READERS, thread_name_prefix="statistics") as readers:
        asked = {pod: readers.submit(rows_of, url) for pod, url in urls.items()}
    found, failed = dict[str, _Rows](), dict[str, str]()
    for pod, answer in asked.items():
        try:
            found[pod] = answer.result()
        except StatisticsError as error:
            failed[pod] = str(error)
    return StatisticsAnswer(_table(found), tuple(found), failed)


@dataclass(slots=True)
class _Rows:
    """Names of t topics, and their load: (t, 6), columns `TOPICS`."""

    names: list[str] = field(default_factory=list)
    load: list[tuple[float, ...]] = field(default_factory=list)


def _rows_of(url: str, settings: StatisticsSettings, namespaces: Container[str] | None, parsing: Lock) -> _Rows:
    """The answer of one broker. Raises `StatisticsError`.

    parsing: held while the answer is parsed, because its values take several times the memory of its text.
    """
    if not url:
        raise StatisticsError("Pulsar does not list it as active, or its address is not allowed (--allow-url)")
    try:
        body = _body(url, settings)
        with parsing:
            return rows_in(json_of(body), namespaces)
    except requests.RequestException as error:
        cause = cause_of(error, settings.timeout, settings.credentials, "spec.pulsar.timeout")
        raise StatisticsError(f"{url} {cause}") from None
    except CredentialsError as error:
        raise StatisticsError(f"{url} can't be asked: {error}") from None
    except TooLargeError as error:
        raise StatisticsError(f"{url}{PATH}: {error}") from None
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        text = settings.credentials.hide(f"{type(error).__name__}: {error}")[:LONG]
        raise StatisticsError(f"{url}{PATH} is not what Pulsar answers ({text})") from None


def _body(url: str, settings: StatisticsSettings) -> bytes:
    """One answer, complete within `settings.timeout`. Raises `StatisticsError`, and errors of `requests`."""
    with StrictSession(settings.credentials) as session:
        session.connect_to(url, settings.credentials)
        with session.get(url + PATH, timeout=settings.timeout) as response:
            if response.status_code != _OK:
                lapse = settings.credentials.lapse(time.time()) if response.status_code == _UNAUTHORIZED else ""
                raise StatisticsError("; ".join(filter(None, (f"{url}{PATH} answered {response.status_code}", lapse))))
            return body_of(response, LARGEST, piece=_PIECE)


def rows_in(answer: Mapping[str, Any], namespaces: Container[str] | None = None) -> _Rows:
    """The topics of `namespaces` (None: all) in a broker's answer.

    The answer is ``{namespace: {bundle: {domain: {topic: statistics}}}}``. Its bundles are ignored: the hash of a
    topic's name gives the topic's bundle among those that Trimtab knows.
    """
    rows = _Rows()
    for namespace, bundles in answer.items():
        if namespaces is not None and namespace not in namespaces:
            continue
        for domains in bundles.values():
            for topics in domains.values():
                for name, stats in topics.items():
                    rows.names.append(name)
                    rows.load.append((*(float(stats[rate]) for rate in _RATES), *_clients(stats)))
    return rows


def _clients(stats: Mapping[str, Any]) -> tuple[float, float]:
    """Producers and consumers of a topic."""
    consumers = sum(len(subscription.get("consumers", ())) for subscription in stats["subscriptions"].values())
    return float(stats["producerCount"]), float(consumers)


def _table(found: Mapping[str, _Rows]) -> dict[str, pa.Array]:
    """The topics of all brokers. An invalid rate counts as 0, as with topics in Prometheus."""
    names = [name for rows in found.values() for name in rows.names]
    pods = [pod for pod, rows in found.items() for _ in rows.names]
    load = np.array([row for rows in found.values() for row in rows.load], np.float64).reshape(-1, len(TOPICS.columns))
    load = np.where(np.isfinite(load) & (load >= 0), load, 0.0)
    keys = {"topic": names, "partition": [""] * len(names), "pod": pods}
    columns = {column: pa.array(load[:, k]) for k, column in enumerate((*TRAFFIC, "producers", "consumers"))}
    return {key: pa.array(values, pa.string()) for key, values in keys.items()} | columns
