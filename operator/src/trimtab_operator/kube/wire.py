"""The wire format of the Kubernetes API: paths of kinds, pages, watch events, `Status` objects, Retry-After."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp

from trimtab_operator.kube.errors import ApiError, ApiUnavailableError, error_for, status_object
from trimtab_operator.resources.common import GROUP, VERSION

LOST = (aiohttp.ClientError, TimeoutError, ConnectionError, asyncio.IncompleteReadError)
"""Errors of a connection that fails or breaks off."""


LARGEST = 512 * 2**20
"""Maximum size of an answer, in bytes. 1,000 of our objects take about two MB; etcd stores at most 1.5 MiB of each."""
LARGEST_EVENT = 16 * 2**20
"""Maximum size of one event of a watch, in bytes. An event holds one object."""
LARGEST_ERROR = 2**16
"""Maximum size of the body of an error, in bytes."""

_DECODER = json.JSONDecoder()
_CUSTOM_RESOURCES = re.compile(r'\{"apiVersion":"[^"\\]*","items":\[')
_METADATA = '"metadata":'


@dataclass(frozen=True, slots=True)
class ResourceRef:
    """One kind as the API server addresses it. `group` is empty for the core kinds."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """An object's `apiVersion`: ``group/version``, or only the version for a core kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of a collection, an object or a subresource. An empty `namespace` means the whole cluster."""
        root = ["apis", self.group, self.version] if self.group else ["api", self.version]
        scope = ["namespaces", namespace] if namespace else []
        parts = [*root, *scope, self.plural, *filter(None, (name, subresource))]
        return "/" + "/".join(quote(part, safe="") for part in parts)


BUNDLES = ResourceRef(GROUP, VERSION, "bundles", "Bundle")
BROKERS = ResourceRef(GROUP, VERSION, "brokers", "Broker")
TOPIC_NAMESPACES = ResourceRef(GROUP, VERSION, "topicnamespaces", "TopicNamespace")
BUNDLE_SPLITS = ResourceRef(GROUP, VERSION, "bundlesplits", "BundleSplit")
POLICIES = ResourceRef(GROUP, VERSION, "balancingpolicies", "BalancingPolicy")
PODS = ResourceRef("", "v1", "pods", "Pod")
NODES = ResourceRef("", "v1", "nodes", "Node")
CONFIG_MAPS = ResourceRef("", "v1", "configmaps", "ConfigMap")
SECRETS = ResourceRef("", "v1", "secrets", "Secret")
LEASES = ResourceRef("coordination.k8s.io", "v1", "leases", "Lease")
USER_REVIEWS = ResourceRef("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview")
EVENTS = ResourceRef("events.k8s.io", "v1", "events", "Event")


class Page(NamedTuple):
    """One page of a list.

    items: can be read only once. resource_version: the version of the whole list. token: leads to the next
    page; empty on the last one.
    """

    items: Iterable[dict[str, Any]]
    resource_version: str
    token: str = ""


def parse_page(text: bytes) -> Page:
    """A page of a list. Raises `json.JSONDecodeError`.

    Custom resources are parsed one by one while `items` is read. Parsing 2,000 together would block the event loop for
    too long, and take more memory than all of the operator's records.
    """
    page = text.decode()
    lazily = _CUSTOM_RESOURCES.match(page), page.rfind(_METADATA)
    if lazily[0] is not None and lazily[1] >= 0:
        meta, end = _DECODER.raw_decode(page, lazily[1] + len(_METADATA))
        if page[end:].strip() == "}":  # the list's own metadata, after the objects
            return _page(_items(page, lazily[0].end()), meta)
    body = json.loads(page)
    return _page(body["items"], body["metadata"])


async def whole_body(response: aiohttp.ClientResponse) -> bytes:
    """The body of a successful answer. Raises `ApiUnavailableError` above `LARGEST` bytes, without reading more."""
    return await _body(response, LARGEST)


async def _body(response: aiohttp.ClientResponse, most: int) -> bytes:
    found = bytearray()
    async for chunk in response.content.iter_any():
        found += chunk
        if len(found) > most:
            raise ApiUnavailableError(f"an answer is larger than {most >> 10} KiB")
    return bytes(found)


def _page(items: Iterable[dict[str, Any]], meta: dict[str, str]) -> Page:
    return Page(items, meta["resourceVersion"], meta.get("continue", ""))


def _items(page: str, at: int) -> Iterator[dict[str, Any]]:
    """The objects of the array whose first element, or end, is at `at`. Raises `ApiUnavailableError`."""
    try:
        while page[at] != "]":
            item, at = _DECODER.raw_decode(page, at + (page[at] == ","))
            yield item
    except (json.JSONDecodeError, IndexError) as error:
        raise ApiUnavailableError(f"a page of a list is not JSON: {error}") from error


class WatchEvent(NamedTuple):
    """One event of a watch. type: ADDED, MODIFIED, DELETED or BOOKMARK, whose object has only a resourceVersion."""

    type: str
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        """The resourceVersion from which a watch resumes after this event."""
        return str(self.object["metadata"]["resourceVersion"])


def request_url(path: str, **query: str) -> str:
    """`path` with those parameters of `query` that are not empty."""
    given = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


async def read_error(asked: str, response: aiohttp.ClientResponse) -> ApiError:
    """The error of a failed response, with the message of its `Status` object if it has one. asked: verb and URL."""
    try:
        text = (await _body(response, LARGEST_ERROR)).decode(errors="replace")
    except (*LOST, ApiUnavailableError) as error:
        text = f"(the answer broke off: {error})"
    finally:
        response.close()
    details = status_object(text)
    message = details.get("message") or text.strip()[:500] or response.reason
    result = error_for(asked, response.status, {**details, "message": message})
    result.retry_after = _retry_after(response)
    return result


def _retry_after(response: aiohttp.ClientResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


async def stream_lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of a stream, however its chunks are cut. Raises `ApiUnavailableError` above `LARGEST_EVENT` bytes."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > LARGEST_EVENT:
            raise ApiUnavailableError(f"an event of a watch is larger than {LARGEST_EVENT >> 20} MiB")


def parse_event(line: bytes) -> WatchEvent:
    """One event of a watch. Raises the error that an ERROR event reports."""
    parsed = json.loads(line)
    event = WatchEvent(parsed["type"], parsed["object"])
    if event.type == "ERROR":
        raise error_for("watch", int(event.object.get("code") or 500), event.object)
    return event
