"""HTTP basics for the clients of brokers and of token issuers: proxies, and the size of answers.

Proxies come from the environment (``HTTPS_PROXY``, ``NO_PROXY``, ...), by the rules of the library `requests`, with
which Trimtab queries Prometheus. aiohttp could find them itself, but would then also send credentials from
``~/.netrc``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
from urllib3.exceptions import LocationParseError
from yarl import URL

from trimtab_operator.pulsar.client.errors import PulsarRefusedError
from trimtab_pipeline.prometheus.connections import proxy_of
from trimtab_pipeline.prometheus.response_limits import TooLargeError

LARGEST_ERROR = 2**16
"""Maximum bytes that are read of an error or a redirect."""

_CHUNK, _REDIRECT = 2**16, 300


@dataclass(frozen=True, slots=True)
class ProxyRoute:
    """The proxy for a URL, None for a direct connection, and its credentials. Never log the headers.

    tunnel: headers of a CONNECT request. headers: headers of each request that the proxy reads.
    """

    proxy: URL | None = None
    tunnel: Mapping[str, str] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def route_to(url: str) -> ProxyRoute:
    """The proxy route to `url`. Raises `PulsarRefusedError` if the proxy's URL is invalid or not HTTP."""
    try:
        if not (found := proxy_of(url)):
            return ProxyRoute()
        named = URL(found)
        proxy = named.with_user(None)
    except (ValueError, LocationParseError):  # the error text may contain a password
        raise PulsarRefusedError("a proxy of the environment is not a URL: correct HTTP_PROXY or HTTPS_PROXY") from None
    if proxy.scheme not in {"http", "https"}:
        raise PulsarRefusedError(f"proxy {proxy} of the environment must be http or https: correct it, or set NO_PROXY")
    if named.user is None:
        return ProxyRoute(proxy)
    who = base64.b64encode(f"{named.user}:{named.password or ''}".encode()).decode()
    shown = {"Proxy-Authorization": f"Basic {who}"}
    return ProxyRoute(proxy, shown) if url.startswith("https:") else ProxyRoute(proxy, headers=shown)


async def text_of(answer: aiohttp.ClientResponse, largest: int) -> str:
    """Read the body of an answer, or the beginning of an error. Raises `TooLargeError` above `largest` bytes."""
    whole = answer.status < _REDIRECT
    bound, body = largest if whole else LARGEST_ERROR, bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > bound:
            answer.close()
            if whole:
                raise TooLargeError(largest)
            break
    return body[:bound].decode("utf-8", "replace")
