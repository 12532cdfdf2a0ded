"""The HTTP layer: `prometheus-api-client` on a session of ours, whose answers are Arrow columns.

What the session adds to the client: parameters travel in the body of the POST (a shard's list of pods is long), a
timeout is always set, retries are few and short, ``warnings`` of partial answers are kept, and every failure is a
`PrometheusError` that names the URL. Bodies are asked for uncompressed: compressing them costs a Prometheus server more
time than a cluster's network needs to carry them.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import requests
from prometheus_api_client import PrometheusConnect
from urllib3.util.retry import Retry

from trimtab_pipeline.samples import MalformedBodyError, Samples, head, parse_vector

_OK = 200
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
            raise PrometheusStatusError(f"{_text(url)} answered {response.status_code}: {head(response.content, 300)}")
        response.__class__ = ArrowResponse
        return response


class Prometheus:
    """Instant queries against one server. A context manager; not thread safe.

    url:     base URL, with or without a slash at its end.
    timeout: seconds to connect, and seconds between two pieces of the answer.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url.rstrip("/")
        # A server that is slow is not asked again: that would only make it slower, and the next cycle asks anyway.
        retry = Retry(
            total=2,
            read=0,
            backoff_factor=0.1,
            status_forcelist=_RETRIED,
            allowed_methods=None,
            raise_on_status=False,
            respect_retry_after_header=False,
        )
        self._client = PrometheusConnect(self.url, retry=retry, session=ArrowSession(), timeout=timeout, method="POST")
        self._timeout = timeout

    def query(self, promql: str, at: float) -> Samples:
        """The vector `promql` evaluates to at `at` (epoch seconds). Raises `PrometheusError`."""
        params = {"time": f"{at:.3f}", "timeout": f"{self._timeout * 1000:.0f}ms"}
        try:
            samples: Samples = self._client.custom_query(promql, params=params)
        except requests.RequestException as error:
            raise PrometheusUnreachableError(
                f"{self.url} did not answer within {self._timeout:g} s: {error}"
            ) from error
        except MalformedBodyError as error:
            raise PrometheusFormatError(f"{self.url}: {error}") from error
        return samples

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def _text(url: str | bytes) -> str:
    return url.decode() if isinstance(url, bytes) else url
