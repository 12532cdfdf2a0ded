"""Topics' load as brokers tell it over Pulsar's admin REST, for clusters whose Prometheus is told of no topics.

A broker keeps the answer of ``/admin/v2/broker-stats/topics`` ready: it is written anew every
``statsUpdateFrequencyInSecs``, which is also the time its rates are taken over, and asking costs the broker nothing but
sending it. Several brokers are asked at a time. One that does not answer costs its own bundles their load, and nothing
else: who could not be read is told beside the topics.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import requests

from trimtab_pipeline.api import CredentialsError, StatisticsSettings
from trimtab_pipeline.bodies import TooLargeError, joined, json_of
from trimtab_pipeline.connections import LONG, StrictSession, cause_of
from trimtab_pipeline.queries import TOPICS, TRAFFIC

PATH = "/admin/v2/broker-stats/topics"
"""Below a broker's URL: what it serves. Only that broker knows, so it redirects nobody."""
READERS = 4
"""Brokers asked at a time, by each task."""
WITHIN = 40.0
"""Seconds that a task gives all its brokers together; who was not asked by then is not asked any more."""
LARGEST = 512 * 2**20
"""Bytes of one broker's answer."""
_PIECE = 2**20
_OK = 200
_RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")


class StatisticsError(RuntimeError):
    """A broker whose statistics can't be read; the message names its URL and the cause."""


@dataclass(frozen=True, slots=True)
class Told:
    """What brokers said.

    topics: columns of `TOPICS`, the partition empty as names carry it. pods: whose answer that is.
    failed: of each pod that is not among those why.
    """

    topics: Mapping[str, pa.Array]
    pods: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


def ask_brokers(urls: Mapping[str, str], settings: StatisticsSettings) -> Told:
    """What the brokers (pod -> base URL, empty unknown) say of their topics."""
    end = time.monotonic() + WITHIN
    with ThreadPoolExecutor(READERS, thread_name_prefix="statistics") as readers:
        asked = {pod: readers.submit(_rows_of, url, settings, end) for pod, url in urls.items()}
    found, failed = dict[str, _Rows](), dict[str, str]()
    for pod, answer in asked.items():
        try:
            found[pod] = answer.result()
        except StatisticsError as error:
            failed[pod] = str(error)
    return Told(_table(found), tuple(found), failed)


@dataclass(slots=True)
class _Rows:
    """Names of t topics, and their load: (t, 6), columns `TOPICS`."""

    names: list[str] = field(default_factory=list)
    load: list[tuple[float, ...]] = field(default_factory=list)


def _rows_of(url: str, settings: StatisticsSettings, end: float) -> _Rows:
    """What one broker says. end: when nobody is asked any more. Raises `StatisticsError`."""
    if not url:
        raise StatisticsError("Pulsar does not list it as active, or its address is not allowed (--allow-url)")
    if time.monotonic() > end:
        raise StatisticsError(f"there was no time left: others took {WITHIN:g} s")
    try:
        return rows_in(json_of(_body(url, settings)))
    except requests.RequestException as error:
        cause = cause_of(error, settings.timeout, settings.credentials, "spec.pulsar.timeout")
        raise StatisticsError(f"{url} {cause}") from None
    except CredentialsError as error:
        raise StatisticsError(f"{url} can't be asked: {error}") from None
    except TooLargeError as error:
        raise StatisticsError(f"{url}{PATH}: {error}") from None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        told = settings.credentials.hide(f"{type(error).__name__}: {error}")[:LONG]
        raise StatisticsError(f"{url}{PATH} is not what Pulsar answers ({told})") from None


def _body(url: str, settings: StatisticsSettings) -> bytes:
    """One answer, whole within `settings.timeout`. Raises `StatisticsError`, and what `requests` raises."""
    with StrictSession(settings.credentials) as session:
        session.connect_to(url, settings.credentials)
        with session.get(url + PATH, timeout=settings.timeout) as response:
            if response.status_code != _OK:
                raise StatisticsError(f"{url}{PATH} answered {response.status_code}")
            return joined(response.iter_content(_PIECE), LARGEST)


def rows_in(answer: Mapping[str, Any]) -> _Rows:
    """The topics in a broker's answer: ``{namespace: {bundle: {domain: {topic: statistics}}}}``.

    The bundle it names is not read: the name's hash says in which of the bundles that *we* know a topic is.
    """
    rows = _Rows()
    for bundles in answer.values():
        for domains in bundles.values():
            for topics in domains.values():
                for name, told in topics.items():
                    rows.names.append(name)
                    rows.load.append((*(float(told[rate]) for rate in _RATES), *_clients(told)))
    return rows


def _clients(told: Mapping[str, Any]) -> tuple[float, float]:
    """Producers and consumers of a topic."""
    consumers = sum(len(subscription.get("consumers", ())) for subscription in told["subscriptions"].values())
    return float(told["producerCount"]), float(consumers)


def _table(found: Mapping[str, _Rows]) -> dict[str, pa.Array]:
    """The topics of all brokers. A rate that is none counts as 0, as it does where Prometheus tells of it."""
    names = [name for rows in found.values() for name in rows.names]
    pods = [pod for pod, rows in found.items() for _ in rows.names]
    load = np.array([row for rows in found.values() for row in rows.load], np.float64).reshape(-1, len(TOPICS.columns))
    load = np.where(np.isfinite(load) & (load >= 0), load, 0.0)
    keys = {"topic": names, "partition": [""] * len(names), "pod": pods}
    columns = {column: pa.array(load[:, k]) for k, column in enumerate((*TRAFFIC, "producers", "consumers"))}
    return {key: pa.array(values, pa.string()) for key, values in keys.items()} | columns
