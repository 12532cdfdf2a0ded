"""The HTTP layer: `prometheus-api-client` on our own session, whose answers are Arrow columns.

The session

- sends parameters in the body of a POST, because a shard's list of pods is long;
- always sets a timeout;
- retries only a few times, after short pauses;
- keeps the ``warnings`` of partial answers;
- raises a `PrometheusError` that names the URL for every failure;
- requests uncompressed bodies, because compression takes a Prometheus server longer than a cluster's network takes to
  transfer them;
- reads a body up to a maximum size, and within the timeout. That of a body which is compressed nevertheless is smaller.

Thanos and Mimir have the same API. Thanos reports stores that did not answer as ``warnings``, or fails the query when
``partial_response`` is false. Mimir answers below a prefix (``/prometheus``), which belongs in the URL, and needs a
tenant in the header ``X-Scope-OrgID``. Redirects are not followed: they lead to log-in pages, and credentials must
reach only the configured server.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import requests
from prometheus_api_client import PrometheusConnect

from trimtab_pipeline.api import NO_CREDENTIALS, Credentials, CredentialsError
from trimtab_pipeline.prometheus.connections import CORRECT_URL, LONG, StrictSession, body_of, cause_of, no_url
from trimtab_pipeline.prometheus.response_limits import TooLargeError, json_of
from trimtab_pipeline.prometheus.samples import MalformedBodyError, Samples, VectorParser, head

_OK, _MOVED, _REFUSED = 200, range(300, 400), (401, 403)
_WRONG = (400, 422)  # a query that does not parse, or can't be evaluated
_TOO_LARGE = (413, 414, 431)  # a body, a URL or headers that are too long
_OF_SIZE = re.compile(
    r"too long query|raw query size|expression-size|load too many samples|too many (series|samples|chunks|timeseries)"
    r"|(series|samples|chunks|bytes|fetched \w+) limit\b|err-mimir-max-[a-z-]*per-query"
    r"|-search\.max(QueryLen|UniqueTimeseries|SamplesPer|MemoryPerQuery)"
    r"|(URI|URL|header|cookie|entity|body|content|payload) too (long|large)",
    re.IGNORECASE,
)
"""Refusals of a query's size, or of the amount of data that it would read: VictoriaMetrics, Prometheus, Thanos, Mimir,
and proxies that answer 400."""
_RETRIED = (429, 502, 503, 504)
_PAUSES = (0.0, 0.2)  # seconds before each further try
_COMPLAINT = 2**16  # maximum number of bytes that are read of an error's body
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

AT_ONCE = 3
"""Queries of a shard that run at the same time. More would only wait for each other inside the server."""

LARGEST = 256 * 2**20
"""Maximum bytes of one answer. If two tasks read 1,000,000 topics, each answer has 100 MB."""
LARGEST_OF_BROKERS = 16 * 2**20
"""Maximum bytes of an answer about brokers only. 300 brokers take about 100 kB."""


class PrometheusError(RuntimeError):
    """A query that Prometheus did not answer; the message names the URL and the cause."""


class PrometheusUnreachableError(PrometheusError):
    """A query without an answer: it was refused, timed out or was interrupted."""


class PrometheusStatusError(PrometheusError):
    """An answer with an HTTP status other than 200. refused: whether the query itself is wrong."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.refused = status in _WRONG


class QueryTooLargeError(PrometheusStatusError):
    """A query that the server, or a proxy before it, refuses for its size or for what it would read."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.refused = True


class PrometheusFormatError(PrometheusError):
    """An answer that is not an instant vector."""


class ArrowResponse(requests.Response):
    """A response whose ``json()`` holds `Samples` instead of Prometheus' list of series. body: the whole body."""

    body: bytes
    parser: VectorParser

    def json(self, **_: Any) -> dict[str, dict[str, Samples]]:
        """The answer as `prometheus-api-client` unwraps it. Raises `MalformedBodyError`."""
        return {"data": {"result": self.parser.parse(self.body)}}


class ArrowSession(StrictSession):
    """A session for `PrometheusConnect` that sends forms with credentials, and returns `ArrowResponse`.

    largest: maximum bytes of an answer. parameters: for the URL, also with POST: proxies that check a tenant read only
    the URL.
    """

    def __init__(
        self,
        credentials: Credentials = NO_CREDENTIALS,
        largest: int = LARGEST,
        parameters: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(credentials)
        self.params = dict(parameters)
        self._credentials, self._largest, self._parser = credentials, largest, VectorParser()
        self.clock_ahead: float | None = None
        self.headers["Accept-Encoding"] = "identity"

    def request(self, method: str | bytes, url: str | bytes, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """As `requests.Session.request`. Raises `PrometheusStatusError` if the status is not 200, `TooLargeError`."""
        if method == "POST":
            kwargs["data"] = kwargs.pop("params")
        with self._answer(method, url, **kwargs) as response:
            self.clock_ahead = _ahead(response.headers.get("Date", ""), time.time())
            if response.status_code != _OK:
                text = _response_text(response, self._credentials) + _advice(response.status_code, self._credentials)
                message = f"{_text(url)} answered {response.status_code}: {text}"
                if response.status_code in _TOO_LARGE or _OF_SIZE.search(text) is not None:
                    raise QueryTooLargeError(message)
                raise PrometheusStatusError(message, status=response.status_code)
            answer = cast("ArrowResponse", response)
            answer.__class__, answer.parser = ArrowResponse, self._parser
            # read in one piece: joining many pieces would double the time
            answer.body = body_of(response, self._largest, piece=self._largest + 1)
            return response

    def _answer(self, method: str | bytes, url: str | bytes, *, timeout: float, **kwargs: Any) -> requests.Response:
        """The first answer whose status is not that of a busy server, else the last one, within `timeout` seconds."""
        end = time.monotonic() + timeout
        for pause in _PAUSES:
            response = super().request(method, url, timeout=end - time.monotonic(), **kwargs)
            if response.status_code not in _RETRIED or time.monotonic() + pause >= end:
                return response
            response.close()
            time.sleep(pause)
        return super().request(method, url, timeout=end - time.monotonic(), **kwargs)


class PrometheusClient:
    """Instant queries against one server. A context manager; threads may share it.

    url:     base URL, with or without a slash at its end.
    timeout: seconds to connect, and seconds for the whole answer. largest: maximum bytes of an answer.
    credentials, method, partial_response, parameters: as in `PrometheusSettings`.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        credentials: Credentials = NO_CREDENTIALS,
        *,
        method: str = "POST",
        partial_response: bool | None = None,
        parameters: Sequence[tuple[str, str]] = (),
        largest: int = LARGEST,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._credentials = credentials = credentials.hiding(value for _, value in parameters)
        self._method = method
        self._dialect = {} if partial_response is None else {"partial_response": str(partial_response).lower()}
        self._session = ArrowSession(credentials, largest, parameters)
        self._connected: PrometheusConnect | None = None
        self._connecting = threading.Lock()

    def _client(self) -> PrometheusConnect:
        """The client. Raises `ValueError` for an invalid URL, `CredentialsError`."""
        with self._connecting:
            if self._connected is None:
                # A slow server gets no second request: that would only make it slower, and the next cycle asks anyway.
                client = PrometheusConnect(self.url, session=self._session, timeout=self._timeout, method=self._method)
                self._session.connect_to(self.url, self._credentials)  # replaces the client's own adapter
                self._connected = client
            return self._connected

    @property
    def clock_ahead(self) -> float | None:
        """Seconds that the server's clock was ahead of ours at its last answer, to the second; None if unknown.

        The server's clock gives scraped samples their times.
        """
        return self._session.clock_ahead

    def query(self, promql: str, at: float, within: float | None = None) -> Samples:
        """The vector that is the value of `promql` at the time `at` (epoch seconds). Raises `PrometheusError`.

        within: seconds for the whole answer, if less than the timeout.
        """
        timeout = self._timeout if within is None else min(within, self._timeout)
        params = {"time": f"{at:.3f}", "timeout": f"{timeout * 1000:.0f}ms", **self._dialect}
        try:
            samples: Samples = self._client().custom_query(promql, params=params, timeout=timeout)
        except CredentialsError as error:
            raise PrometheusUnreachableError(f"{self.url} can't be asked: {error}") from error
        except requests.RequestException as error:
            cause = cause_of(error, self._timeout, self._credentials)
            raise PrometheusUnreachableError(f"{self.url} {cause}") from error
        except TooLargeError as error:
            raise PrometheusFormatError(f"{self.url}: {error}") from None
        except MalformedBodyError as error:
            raise PrometheusFormatError(f"{self.url}: {_hidden(error, self._credentials)}") from None
        except ValueError as error:
            raise PrometheusUnreachableError(f"{self.url} {no_url(error)}") from error
        return replace(samples, warnings=tuple(map(self._credentials.hide, samples.warnings)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


def _ahead(date: str, now: float) -> float | None:
    """Seconds that a ``Date`` header, which has whole seconds, is ahead of `now` (epoch s)."""
    try:
        sent = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):  # the parser raises all of them
        return None
    return sent - now if sent > now else min(0.0, sent + 1.0 - now)


def _text(url: str | bytes) -> str:
    return url.decode() if isinstance(url, bytes) else url


def _response_text(response: requests.Response, credentials: Credentials) -> str:
    """The error in an answer: Prometheus' ``error``, the target of a redirect, or else the beginning of the body."""
    if response.status_code in _MOVED:
        target = re.split(r"[?#]", response.headers.get("Location", "nowhere"))[0]  # the rest may hold a token
        return f"it leads to {credentials.hide(target)[:LONG]}; {CORRECT_URL}"
    body = next(response.iter_content(_COMPLAINT), b"")
    try:
        return credentials.hide(str(json_of(body)["error"]))[:LONG]
    except (ValueError, KeyError, TypeError):
        return head(credentials.hide(body.decode("utf-8", "replace")).encode(), LONG)


def _hidden(error: MalformedBodyError, credentials: Credentials) -> MalformedBodyError:
    """The error without the credentials that the body repeats."""
    body = credentials.hide(error.body.decode("utf-8", "replace")).encode()
    return MalformedBodyError(credentials.hide(error.what)[:LONG], body)


def _advice(status: int, credentials: Credentials) -> str:
    """The fix for a refused request."""
    if status not in _REFUSED:
        return ""
    if lapse := credentials.lapse(time.time()):
        return f"; {lapse}: put a new one into the source's credentials"
    return f"; correct the source's credentials (it was asked with {credentials!r})"


def side_by_side(jobs: Mapping[K, Callable[[], T]], at_once: int = AT_ONCE) -> dict[K, T]:
    """The results of `jobs`, run `at_once` at a time. Raises the first error; jobs that still wait are then skipped.

    The threads are daemons, so the program's exit does not wait for a server that does not answer.
    """
    waiting, done = deque(jobs.items()), SimpleQueue[tuple[K, T | None, BaseException | None]]()

    def work() -> None:
        while True:
            try:
                key, job = waiting.popleft()
            except IndexError:
                return
            try:
                done.put((key, job(), None))
            except BaseException as error:  # noqa: BLE001  (the caller raises it)
                waiting.clear()
                done.put((key, None, error))

    for number in range(min(at_once, len(jobs))):
        threading.Thread(target=work, name=f"query-{number}", daemon=True).start()
    found: dict[K, T] = {}
    for _ in jobs:
        key, value, error = done.get()
        if error is not None:
            raise error
        found[key] = value  # type: ignore[assignment]
    return {key: found[key] for key in jobs}
