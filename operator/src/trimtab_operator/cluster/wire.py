"""How the API server's answers look on the wire: pages, watch events, `Status` objects, Retry-After."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp

from trimtab_operator.cluster.errors import ApiError, error_for

LOST = (aiohttp.ClientError, TimeoutError, ConnectionError, asyncio.IncompleteReadError)
"""What a connection that fails, or breaks off, raises."""


class Page(NamedTuple):
    """Some of a list's objects, and the resourceVersion of the list as a whole."""

    items: list[dict[str, Any]]
    resource_version: str


class WatchEvent(NamedTuple):
    """type: ADDED, MODIFIED, DELETED or BOOKMARK (whose object holds nothing but its resourceVersion)."""

    type: str
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        """Where to go on from after this event."""
        return str(self.object["metadata"]["resourceVersion"])


def request_url(path: str, **query: str) -> str:
    """`path` with those parts of `query` that are not empty."""
    given = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


async def read_error(asked: str, response: aiohttp.ClientResponse) -> ApiError:
    """What went wrong, in the server's own words where it has some (a `Status` object). asked: verb and URL."""
    try:
        text = await response.text(errors="replace")
    except LOST as error:
        text = f"(the answer broke off: {error})"
    finally:
        response.close()
    status = _status(text)
    message = status.get("message") or text.strip()[:500] or response.reason or ""
    result = error_for(response.status, status.get("reason") or "", f"{asked}: {response.status} {message}")
    result.retry_after = _retry_after(response)
    return result


def _status(text: str) -> dict[str, Any]:
    try:
        status = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return status if isinstance(status, dict) else {}


def _retry_after(response: aiohttp.ClientResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


async def stream_lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of a stream, however its chunks are cut."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def parse_event(line: bytes) -> WatchEvent:
    """One event of a watch. Raises the error that an ERROR event stands for."""
    parsed = json.loads(line)
    event = WatchEvent(parsed["type"], parsed["object"])
    if event.type == "ERROR":
        status = event.object
        code = int(status.get("code") or 500)
        raise error_for(code, status.get("reason") or "", f"watch: {code} {status.get('message', '')}")
    return event
