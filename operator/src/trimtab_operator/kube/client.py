"""`Api`: a thin client for any kind of object, with typed errors and bounded retries.

Objects are plain dicts, as in JSON. The client retries 429 (after Retry-After), 5xx and lost connections, with
jittered backoff until `patience` is used up. It also retries a list after 404, because a new CRD gets its endpoint only
after a moment. A write may have succeeded although its answer was lost. Its retry then raises `ConflictError`: for a
patch because its resourceVersion is old, for a create because the name is taken. Read the object again in both cases.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import aiohttp

from trimtab_operator.kube.connection import Connection
from trimtab_operator.kube.errors import (
    ApiError,
    ApiUnavailableError,
    ConflictError,
    ConnectionSettingsError,
    FencedError,
    GoneError,
    NotFoundError,
    RefusedError,
)
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.kubeconfig import Impersonation
from trimtab_operator.kube.wire import (
    BROKERS,
    BUNDLE_SPLITS,
    BUNDLES,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    LOST,
    PODS,
    POLICIES,
    SECRETS,
    TOPIC_NAMESPACES,
    USER_REVIEWS,
    Page,
    ResourceRef,
    WatchEvent,
    parse_event,
    parse_page,
    read_error,
    request_url,
    stream_lines,
    whole_body,
)

_CHANCE = random.SystemRandom()


def backoff(first: float = 0.1, longest: float = 5.0) -> Iterator[float]:
    """Seconds to wait before each further attempt. They grow, and are jittered so that clients don't retry together."""
    ceiling = first
    while True:
        yield _CHANCE.uniform(ceiling / 2, ceiling)
        ceiling = min(longest, 2 * ceiling)


@dataclass(slots=True)
class Patience:
    """How long one request is retried. seconds: after this time no further attempt begins."""

    seconds: float
    _until: float = field(init=False)
    _waits: Iterator[float] = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds
        self._waits = backoff(longest=2.0)

    async def wait(self, at_least: float = 0.0) -> bool:
        """Wait before the next attempt; False if too little time is left. at_least: seconds, from Retry-After."""
        pause = max(next(self._waits), at_least)
        if time.monotonic() + pause > self._until:
            return False
        await asyncio.sleep(pause)
        return True


__all__ = [
    "BROKERS",
    "BUNDLES",
    "BUNDLE_SPLITS",
    "CONFIG_MAPS",
    "EVENTS",
    "LEASES",
    "PODS",
    "POLICIES",
    "SECRETS",
    "TOPIC_NAMESPACES",
    "Api",
    "ApiError",
    "ApiUnavailableError",
    "ConflictError",
    "ConnectionSettingsError",
    "FencedError",
    "GoneError",
    "NotFoundError",
    "Page",
    "RefusedError",
    "ResourceRef",
    "WatchEvent",
]


T = TypeVar("T")


Observer = Callable[[str, str, float], None]
"""Called after each request: verb (get, list, watch, create, patch, apply, delete), status or error name, seconds."""


MERGE_PATCH = "application/merge-patch+json"

APPLY_PATCH = "application/apply-patch+yaml"
"""The body is JSON, which is valid YAML."""

_NOT_READY_YET = 404

_UNAUTHORIZED = 401

_FAILED = 400

_NEVER = frozenset[int]()

_WITHIN = aiohttp.ClientTimeout(total=30, sock_connect=10)

AT_ONCE = 32
"""Maximum number of concurrent requests of one client, without watches. More would raise the latency of a
kube-apiserver, not its throughput, and thousands of connections would keep a leader from renewing its Lease."""


class Api:
    """A client of the Kubernetes API, created by `connect`. All methods raise `ApiError`.

    Requests beyond `AT_ONCE` wait for their turn, from all callers together.
    """

    writing: ClassVar[Mapping[str, str]] = {"fieldValidation": "Strict"}
    """Query parameters of each create and patch."""

    def __init__(
        self,
        connection: Connection,
        *,
        patience: float = 15.0,
        observe: Observer | None = None,
        within: float | None = None,
    ) -> None:
        self._connection = connection
        self._patience = patience
        self._within = _WITHIN if within is None else aiohttp.ClientTimeout(total=_finite(within), sock_connect=10)
        self._observe = observe or (lambda _verb, _code, _seconds: None)
        self._turns = asyncio.Semaphore(AT_ONCE)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        kubeconfig: str | None = None,
        context: str | None = None,
        *,
        patience: float = 15.0,
        observe: Observer | None = None,
        fence: Fence | None = None,
        within: float | None = None,
        acting_as: Impersonation | None = None,
    ) -> AsyncIterator[Self]:
        """Connect with `kubeconfig`, or else as the pod's service account, or else with the default kubeconfig.

        patience: seconds after which a request is not retried again. fence: each write must pass it; None: all writes
        are sent. within: seconds that one attempt may take, infinite for no limit; None: half a minute. A watch has its
        own limits. acting_as: the identity to use instead of our own. Raises `ConnectionSettingsError`.
        """
        connection = await Connection.open(kubeconfig, context, fence, acting_as)
        try:
            yield cls(connection, patience=patience, observe=observe, within=within)
        finally:
            await connection.close()

    @property
    def host(self) -> str:
        """Base URL of the API server."""
        return self._connection.host

    @property
    def impersonation(self) -> Sequence[tuple[str, str]]:
        """Headers that another client with our `credentials` must send, so that it acts as the same user."""
        return self._connection.impersonation

    async def credentials(self) -> dict[str, Any]:
        """The server and our credentials for another client, under the field names of `kopf.ConnectionInfo`.

        Both are read again on each call, because tokens rotate. Call it again when the server answers 401.
        """
        return await self._connection.credentials()

    async def read(self, path: str) -> dict[str, Any]:
        """The JSON object that the server returns at `path`, such as ``/version``."""
        return await self._json("get", "GET", path)

    async def get(self, ref: ResourceRef, namespace: str, name: str) -> dict[str, Any]:
        """One object."""
        return await self._json("get", "GET", ref.path(namespace, name))

    async def list(
        self,
        ref: ResourceRef,
        namespace: str,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 1000,
    ) -> AsyncIterator[Page]:
        """All objects, in pages of at most `limit`. `GoneError`: the list changed too much meanwhile; list again."""
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, "limit": str(limit)}
        token = ""
        while True:
            url = request_url(ref.path(namespace), **query, **{"continue": token})
            page = await self._read("list", "GET", url, parse_page, also_retry=frozenset({_NOT_READY_YET}))
            yield page
            if not (token := page.token):
                return

    async def create(self, ref: ResourceRef, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object. The server refuses unknown fields. `ConflictError`: the name is taken."""
        url = request_url(ref.path(namespace), **self.writing)
        return await self._json("create", "POST", url, body=body)

    async def user_name(self) -> str | None:
        """Name of the user who sends these requests; None if the server does not say. Raises `ApiError`."""
        body = {"apiVersion": USER_REVIEWS.api_version, "kind": USER_REVIEWS.kind}
        try:
            review = await self._json("create", "POST", request_url(USER_REVIEWS.path()), body=body)
        except RefusedError:
            return None
        name: str | None = review["status"]["userInfo"].get("username")
        return name

    async def patch(
        self, ref: ResourceRef, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """Merge-patch an object (RFC 7386: null removes a field).

        `ConflictError`: `body` has a metadata.resourceVersion, and the object is no longer at that version.
        """
        url = request_url(ref.path(namespace, name, subresource), **self.writing)
        return await self._json("patch", "PATCH", url, body=body, content_type=MERGE_PATCH)

    async def apply(
        self, ref: ResourceRef, namespace: str, body: Mapping[str, Any], *, manager: str, force: bool = False
    ) -> dict[str, Any]:
        """Apply an object server-side: create it, or set the fields in `body` and own them as `manager`.

        force: also take over fields that other managers own. `ConflictError`: such a manager has set another value.
        """
        query = {"fieldManager": manager, "fieldValidation": "Strict", **({"force": "true"} if force else {})}
        url = request_url(ref.path(namespace, body["metadata"]["name"]), **query)
        return await self._json("apply", "PATCH", url, body=body, content_type=APPLY_PATCH)

    async def delete(
        self, ref: ResourceRef, namespace: str, name: str, *, uid: str = "", resource_version: str = ""
    ) -> dict[str, Any]:
        """Delete an object. The server deletes its dependents in the background.

        uid, resource_version: if given, the object must have them. `ConflictError`: the object has other ones.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in wanted.items() if value}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        body = {"body": options} if preconditions else {}
        return await self._json("delete", "DELETE", ref.path(namespace, name), **body)

    async def watch(
        self,
        ref: ResourceRef,
        namespace: str,
        resource_version: str,
        *,
        label_selector: str = "",
        seconds: float = 60.0,
        silence: float = 90.0,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after `resource_version`, for `seconds`. opened: called once the server has accepted the watch.

        Bookmarks come about once a minute if etcd reports progress, otherwise rarely. `GoneError`: `resource_version`
        is too old; list again. `ApiUnavailableError`: the stream broke, or was silent for `silence` seconds; it can be
        resumed from the last event. Close the generator (`contextlib.aclosing`) to end the watch early.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, round(seconds)))}
        url = request_url(ref.path(namespace), resourceVersion=resource_version, labelSelector=label_selector, **query)
        within = aiohttp.ClientTimeout(total=None, connect=10, sock_connect=10, sock_read=silence)
        response = await self._open("watch", "GET", url, within=within)
        try:
            if opened is not None:
                opened()
            async for line in stream_lines(response):
                yield parse_event(line)
        except (*LOST, json.JSONDecodeError) as error:
            raise ApiUnavailableError(f"watching {ref.plural}: {error or type(error).__name__}") from error
        finally:
            response.close()

    async def _json(self, verb: str, method: str, url: str, **request: Any) -> dict[str, Any]:
        """Send a request with retries, and parse its answer, a JSON object."""
        return await self._read(verb, method, url, json.loads, **request)

    async def _read(self, verb: str, method: str, url: str, parse: Callable[[bytes], T], **request: Any) -> T:
        """Send a request with retries, and parse its answer. An answer that breaks off is a failed attempt."""
        patience, tried = Patience(self._patience), 0
        while True:
            response = await self._open(verb, method, url, patience=patience, **request)
            try:
                body = parse(await whole_body(response))
            except (*LOST, json.JSONDecodeError) as error:
                tried += 1
                if not await patience.wait():
                    asked = f"{verb} {_path(url)}"
                    raise ApiUnavailableError(f"{asked}: the answer broke off {tried} times: {error}") from error
            else:
                return body
            finally:
                response.close()

    async def _open(
        self,
        verb: str,
        method: str,
        url: str,
        *,
        also_retry: frozenset[int] = _NEVER,
        patience: Patience | None = None,
        within: aiohttp.ClientTimeout | None = None,
        **request: Any,
    ) -> aiohttp.ClientResponse:
        """The first successful response."""
        patience = patience or Patience(self._patience)
        renewed = False
        while True:
            began = time.monotonic()
            try:
                return await self._attempt(verb, method, url, within=within or self._within, **request)
            except ApiError as error:
                if error.status == _UNAUTHORIZED and not renewed:
                    renewed = True
                    await self._renew(error, began)
                    continue
                transient = isinstance(error, ApiUnavailableError) or error.status in also_retry
                if not transient or not await patience.wait(error.retry_after):
                    raise

    async def _renew(self, refused: ApiError, began: float) -> None:
        """Read the credentials again after a refusal. Raises `RefusedError` if they can't be read."""
        try:
            await self._connection.renew(began)
        except ConnectionSettingsError as error:
            raise RefusedError(f"{refused}; {error}", status=refused.status, reason=refused.reason) from error

    async def _attempt(self, verb: str, method: str, url: str, **request: Any) -> aiohttp.ClientResponse:
        async with nullcontext() if verb == "watch" else self._turns:
            return await self._send(verb, method, url, **request)

    async def _send(self, verb: str, method: str, url: str, **request: Any) -> aiohttp.ClientResponse:
        began, asked = time.monotonic(), f"{verb} {_path(url)}"
        try:
            response = await self._connection.send(method, url, **request)
        except LOST as error:
            self._observe(verb, type(error).__name__, time.monotonic() - began)
            raise ApiUnavailableError(f"{asked} of {self.host}: {self._connection.explained(error)}") from error
        self._observe(verb, str(response.status), time.monotonic() - began)
        if response.status >= _FAILED:
            lapse = self._connection.lapse() if response.status == _UNAUTHORIZED else ""
            raise await read_error(f"{asked}: {lapse}" if lapse else asked, response)
        return response


def _path(url: str) -> str:
    """`url` for a message, without its parameters."""
    return url.partition("?")[0]


def _finite(seconds: float) -> float | None:
    """`seconds` for aiohttp, where None means no limit."""
    return seconds if math.isfinite(seconds) else None
