"""What the clients of brokers and of issuers have in common: which way they ask, and how much of an answer they read.

Proxies are those of the environment (``HTTPS_PROXY``, ``NO_PROXY``, ...), by the rules that `requests` has for
Prometheus. aiohttp could look for them itself, but would then send what ``~/.netrc`` holds as well.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
from urllib3.exceptions import LocationParseError
from yarl import URL

from trimtab_operator.pulsar.client.errors import PulsarRefusedError
from trimtab_pipeline.bodies import TooLargeError
from trimtab_pipeline.connections import proxy_of

COMPLAINT = 2**16
"""Bytes that are read of an answer that is an error, or leads elsewhere."""

_PIECE, _ELSEWHERE = 2**16, 300


@dataclass(frozen=True, slots=True)
class Way:
    """How a URL is asked: by which proxy (None: directly), and what the proxy itself is shown, which is not for logs.

    tunnel: headers of the request for a tunnel. headers: of each request that the proxy reads.
    """

    proxy: URL | None = None
    tunnel: Mapping[str, str] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def way_to(url: str) -> Way:
    """How `url` is asked. Raises `PulsarRefusedError` for a proxy that can't be read, or speaks no HTTP."""
    try:
        if not (found := proxy_of(url)):
            return Way()
        named = URL(found)
        proxy = named.with_user(None)
    except (ValueError, LocationParseError):  # its text may hold a password
        raise PulsarRefusedError("a proxy of the environment is no URL: correct HTTP_PROXY or HTTPS_PROXY") from None
    if proxy.scheme not in {"http", "https"}:
        raise PulsarRefusedError(f"proxy {proxy} of the environment must be http or https: correct it, or set NO_PROXY")
    if named.user is None:
        return Way(proxy)
    who = base64.b64encode(f"{named.user}:{named.password or ''}".encode()).decode()
    shown = {"Proxy-Authorization": f"Basic {who}"}
    return Way(proxy, shown) if url.startswith("https:") else Way(proxy, headers=shown)


async def text_of(answer: aiohttp.ClientResponse, largest: int) -> str:
    """The body of an answer; of an error no more than its beginning. Raises `TooLargeError` past `largest` bytes."""
    whole = answer.status < _ELSEWHERE
    bound, body = largest if whole else COMPLAINT, bytearray()
    async for piece in answer.content.iter_chunked(_PIECE):
        body += piece
        if len(body) > bound:
            answer.close()
            if whole:
                raise TooLargeError(largest)
            break
    return body[:bound].decode("utf-8", "replace")
