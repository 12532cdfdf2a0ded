"""Real producers and consumers with a steady rate per topic, which measure what a move costs them.

One thread sends for all topics. Acknowledgements and receipts are counted with their times, so that the longest gap
around any moment can be computed afterwards.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
import zlib
from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Self

import pulsar

from trimtab_testbed.servers.processes import Startable

SUBSCRIPTION = "trimtab"
_LAST = 0xFFFFFFFF
_PENDING = 50_000  # messages that a producer may have pending: a hanging broker must not block the sending thread
_BEHIND = 1.0  # seconds after which missed messages are dropped instead of sent late


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages to one topic: `rate` msg/s of `size` bytes each. consumed: whether a consumer reads them."""

    topic: str
    rate: float
    size: int = 512
    consumed: bool = True


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """Numbers of messages. errors: sends that failed permanently. received: 0 if nothing is consumed."""

    sent: int
    acked: int
    errors: int
    received: int


def topics_of(bundle: str, number: int, *, persistent: bool = True) -> list[str]:
    """`number` topic names that Pulsar puts into `bundle` (``tenant/name/0x.._0x..``), by the hash of the name."""
    namespace, low, high = _range(bundle)
    names = (f"{'persistent' if persistent else 'non-persistent'}://{namespace}/t-{n}" for n in count())
    fitting = (name for name in names if low <= zlib.crc32(name.encode()) < high)
    return [next(fitting) for _ in range(number)]


@dataclass(slots=True)
class _Line:
    """One topic: its clients, and the times (epoch seconds) at which messages were sent, acknowledged and received."""

    flow: Flow
    rate: float
    producer: Any = None
    consumer: Any = None
    sent: int = 0
    acked: array[float] = field(default_factory=lambda: array("d"))
    sent_at: array[float] = field(default_factory=lambda: array("d"))  # of acknowledged messages, in the same order
    received: array[float] = field(default_factory=lambda: array("d"))
    errors: list[str] = field(default_factory=list)

    def send(self, now: float, data: bytes) -> None:
        self.sent += 1
        try:
            self.producer.send_async(data, lambda result, _: self._answered(now, result))
        except pulsar.PulsarException as error:  # its queue is full, or it is closed
            self.errors.append(str(error))

    def _answered(self, sent_at: float, result: Any) -> None:
        if result == pulsar.Result.Ok:
            self.sent_at.append(sent_at)
            self.acked.append(time.time())
        else:
            self.errors.append(str(result))

    def take(self, consumer: Any, message: Any) -> None:
        self.received.append(time.time())
        with suppress(pulsar.PulsarException):  # its bundle is moving, so the message is delivered again
            consumer.acknowledge(message)


class ClientTraffic(Startable):
    """Clients of `service_url` that send and read `flows`; a context manager.

    token: for clusters that require one. log: file for the Pulsar client's log, for example about repeated lookups.
    """

    def __init__(
        self, service_url: str, flows: Iterable[Flow], *, token: str = "", log: Path = Path(os.devnull)
    ) -> None:
        self._url, self._token, self._log = service_url, token, log
        self._lines = {flow.topic: _Line(flow, flow.rate) for flow in flows}
        self._quiet = threading.Event()
        self._sender = threading.Thread(target=self._send, name="traffic", daemon=True)
        self._client: Any = None

    def start(self) -> Self:
        """Connect all consumers and producers, then begin to send."""
        authentication = pulsar.AuthenticationToken(self._token) if self._token else None
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._log))
        self._client = pulsar.Client(self._url, authentication, operation_timeout_seconds=90, logger=logger)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._connect, self._lines.values()))
        self._sender.start()
        return self

    def stop(self) -> None:
        """Stop sending and disconnect; idempotent."""
        self.fall_quiet()
        if self._client is not None:
            self._client.close()
            self._client = None

    def fall_quiet(self) -> None:
        """Stop sending, and stay connected."""
        self._quiet.set()
        if self._sender.is_alive():
            self._sender.join()

    def drain(self, within: float = 30.0) -> MessageCounts:
        """Stop sending, wait until all acknowledged messages are read, and return the counts.

        within: seconds that the wait may take.
        """
        self.fall_quiet()
        deadline = time.monotonic() + within
        while not all(_drained(line) for line in self._lines.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.counts()

    def set_rate(self, topic: str, rate: float) -> None:
        """Send `rate` msg/s to one of the topics from now on."""
        self._lines[topic].rate = rate

    # -- results --

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics."""
        return tuple(self._lines)

    def inside(self, bundle: str) -> list[str]:
        """The topics of these clients that are in `bundle` (Pulsar's spelling)."""
        namespace, low, high = _range(bundle)
        mine = (topic for topic in self._lines if topic.partition("://")[2].rpartition("/")[0] == namespace)
        return [topic for topic in mine if low <= zlib.crc32(topic.encode()) < high]

    def counts(self, topics: Sequence[str] | None = None) -> MessageCounts:
        """Counts of these topics, or of all."""
        lines = [self._lines[topic] for topic in topics or self._lines]
        return MessageCounts(
            sent=sum(line.sent for line in lines),
            acked=sum(len(line.acked) for line in lines),
            errors=sum(len(line.errors) for line in lines),
            received=sum(len(line.received) for line in lines),
        )

    def errors(self) -> list[str]:
        """Topic and error of each send that failed permanently."""
        return [f"{topic}: {error}" for topic, line in self._lines.items() for error in line.errors]

    def rate(self, topic: str, seconds: float = 5.0) -> float:
        """Acknowledged msg/s over the last `seconds`."""
        since = time.time() - seconds
        return sum(at >= since for at in reversed(self._lines[topic].acked)) / seconds

    def publish_gap(self, topics: Sequence[str], begin: float, end: float) -> float | None:
        """The longest gap (ms) between two consecutive acknowledgements of one of `topics`.

        Only gaps that overlap ``[begin, end]`` (epoch seconds) count. None if there is no such gap. The gap includes
        the normal ``1 / rate`` between two messages, so it is more exact for busy topics.
        """
        return _longest(_gap(self._lines[topic].acked, begin, end) for topic in topics)

    def receive_gap(self, topics: Sequence[str], begin: float, end: float) -> float | None:
        """Like `publish_gap`, but between messages that consumers received."""
        return _longest(_gap(self._lines[topic].received, begin, end) for topic in topics)

    def latency(self, topics: Sequence[str], begin: float, end: float) -> float | None:
        """The longest time (ms) from sending to acknowledgement, of messages sent in ``[begin, end]``."""
        waits = [
            acked - sent
            for topic in topics
            for sent, acked in zip(self._lines[topic].sent_at, self._lines[topic].acked, strict=False)
            if begin <= sent <= end
        ]
        return 1000 * max(waits) if waits else None

    # -- inside --

    def _connect(self, line: _Line) -> None:
        topic = line.flow.topic
        if line.flow.consumed:
            line.consumer = self._client.subscribe(topic, SUBSCRIPTION, message_listener=line.take)
        line.producer = self._client.create_producer(topic, max_pending_messages=_PENDING)

    def _send(self) -> None:
        """Send each message at its time, from this one thread for all topics."""
        now = time.monotonic()
        lines = list(self._lines.values())
        data = [b"x" * line.flow.size for line in lines]
        due = [(now + n / (1 + len(lines)) / max(line.rate, 1.0), n) for n, line in enumerate(lines)]
        heapq.heapify(due)
        while due and not self._quiet.wait(max(0.0, due[0][0] - time.monotonic())):
            at, n = due[0]
            line = lines[n]
            if line.rate > 0:
                line.send(time.time(), data[n])
            step = 1 / line.rate if line.rate > 0 else _BEHIND / 2
            following = at + step if time.monotonic() - at < _BEHIND else time.monotonic() + step
            heapq.heapreplace(due, (following, n))


def _range(bundle: str) -> tuple[str, int, int]:
    """Namespace, first hash, and last hash + 1 of a bundle."""
    namespace, _, bounds = bundle.rpartition("/")
    low, high = (int(edge, 16) for edge in bounds.split("_"))
    return namespace, low, high + (high == _LAST)  # the last bundle includes its upper edge, the others do not


def _drained(line: _Line) -> bool:
    answered = len(line.acked) + len(line.errors) >= line.sent
    return answered and (not line.flow.consumed or len(line.received) >= len(line.acked))


def _gap(times: Sequence[float], begin: float, end: float) -> float | None:
    gaps = [after - before for before, after in pairwise(sorted(times)) if after >= begin and before <= end]
    return 1000 * max(gaps) if gaps else None


def _longest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
