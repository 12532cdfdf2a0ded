"""The HTTP layer: `prometheus-api-client` on a session of ours, whose answers are Arrow columns.

What the session adds to the client: parameters travel in the body of the POST (a shard's list of pods is long), a
timeout is always set, retries are few and short, ``warnings`` of partial answers are kept, and every failure is a
`PrometheusError` that names the URL. Bodies are asked for uncompressed: compressing them costs a Prometheus server more
time than a cluster's network needs to carry them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import requests
import urllib3
from prometheus_api_client import PrometheusConnect
from urllib3.util.retry import Retry

from trimtab_pipeline.samples import MalformedBodyError, Samples, head, parse_vector

_OK = 200
_LONG = 300  # characters of somebody else's text in a message
_RETRIED = (429, 502, 503, 504)


class PrometheusError(RuntimeError):
    """A query that Prometheus did not answer; the message names the URL and the cause."""


class PrometheusUnreachableError(PrometheusError):
    """No answer: refused, timed out, broken off."""


class PrometheusStatusError(PrometheusError):
    """An answer with an HTTP status other than 200."""


class PrometheusFormatError(PrometheusError):
    """An answer that can't be read as an instant vector."""


class ArrowResponse(requests.Response):
    """A response whose ``json()`` holds `Samples` where Prometheus' holds a list of series."""

    def json(self, **_: Any) -> dict[str, dict[str, Samples]]:
        """The answer as `prometheus-api-client` unwraps it. Raises `MalformedBodyError`."""
        return {"data": {"result": parse_vector(self.content)}}


class ArrowSession(requests.Session):
    """A session for `PrometheusConnect` that sends forms and returns `ArrowResponse`."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["Accept-Encoding"] = "identity"

    def request(self, method: str | bytes, url: str | bytes, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """As `requests.Session.request`, raising `PrometheusStatusError` unless the status is 200."""
        if method == "POST":
            kwargs["data"] = kwargs.pop("params")
        response = super().request(method, url, **kwargs)
        if response.status_code != _OK:
            raise PrometheusStatusError(f"{_text(url)} answered {response.status_code}: {_told(response.content)}")
        response.__class__ = ArrowResponse
        return response


class Prometheus:
    """Instant queries against one server. A context manager; not thread safe.

    url:     base URL, with or without a slash at its end.
    timeout: seconds to connect, and seconds between two pieces of the answer.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._session = ArrowSession()

    @cached_property
    def _client(self) -> PrometheusConnect:
        """The client. Raises `ValueError` for a URL that is none."""
        # A server that is slow is not asked again: that would only make it slower, and the next cycle asks anyway.
        retry = Retry(
            total=2,
            connect=0,
            read=0,
            backoff_factor=0.1,
            status_forcelist=_RETRIED,
            allowed_methods=None,
            raise_on_status=False,
            respect_retry_after_header=False,
        )
        return PrometheusConnect(self.url, retry=retry, session=self._session, timeout=self._timeout, method="POST")

    def query(self, promql: str, at: float) -> Samples:
        """The vector `promql` evaluates to at `at` (epoch seconds). Raises `PrometheusError`."""
        params = {"time": f"{at:.3f}", "timeout": f"{self._timeout * 1000:.0f}ms"}
        try:
            samples: Samples = self._client.custom_query(promql, params=params)
        except requests.RequestException as error:
            raise PrometheusUnreachableError(f"{self.url} {_cause(error, self._timeout)}") from error
        except MalformedBodyError as error:
            raise PrometheusFormatError(f"{self.url}: {error}") from error
        except ValueError as error:
            raise PrometheusUnreachableError(f"{self.url} {_no_url(error)}") from error
        return samples

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


def _text(url: str | bytes) -> str:
    return url.decode() if isinstance(url, bytes) else url


def _told(body: bytes) -> str:
    """What a body says went wrong: the ``error`` of Prometheus' own answers, else its beginning."""
    try:
        return str(json.loads(body)["error"])[:_LONG]
    except (ValueError, KeyError, TypeError):
        return head(body, _LONG)


def _no_url(error: ValueError) -> str:
    return f"can't be asked: {error}; correct the source's url"


def _cause(error: requests.RequestException, timeout: float) -> str:
    """What happened, and what to do about it; `requests` wraps the cause in layers of others.

    In this order: urllib3 counts every connection that could not be made among the time-outs.
    """
    causes = list(_causes(error))
    if any(isinstance(cause, urllib3.exceptions.NameResolutionError) for cause in causes):
        return "has a host name that can't be resolved; correct the source's url"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "refused the connection; start the server, or correct the source's url"
    if any(isinstance(cause, (requests.Timeout, urllib3.exceptions.TimeoutError)) for cause in causes):
        return f"did not answer within {timeout:g} s; raise the source's timeout, or look at the server's load"
    if isinstance(error, ValueError):  # how `requests` tells of a URL that is none
        return _no_url(error)
    return f"can't be read: {str(causes[-1])[:_LONG]}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, and what it was made from, outermost first."""
    seen: list[BaseException] = [error]
    for cause in seen:
        yield cause
        inner = (cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args)
        seen += [other for other in inner if isinstance(other, BaseException) and other not in seen]
