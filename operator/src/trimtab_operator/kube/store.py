"""`Store`: keeps all objects of one kind in memory, and keeps them current with a list and a watch.

It needs little memory: each object becomes a record as soon as its page is read, and its JSON is dropped. 60,000
bundles take well below 100 MB. After a gap that the server can't bridge (410), the store lists everything again and
compares, so that it notices objects that were deleted meanwhile. Kopf's own watch does not notice them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from trimtab_operator.kube.client import Api, ApiError, GoneError, ResourceRef, WatchEvent, backoff

log = logging.getLogger(__name__)

T = TypeVar("T")
Subscriber = Callable[[T | None, T | None], None]

RESUMES = 5
"""After this many failed attempts in a row to resume a watch, everything is listed again."""

TURN = 0.01
"""Seconds of reading objects before the store yields to the event loop."""


@dataclass(slots=True)
class Counters:
    """Counts of what a store received and of its failures, since it was created."""

    lists: int = 0
    """Complete lists."""
    events: int = 0
    """Changes received."""
    bookmarks: int = 0
    """Bookmarks received."""
    gone: int = 0
    """410 answers: the resourceVersion was too old, or a list changed too much while it was read."""
    failures: int = 0
    """Lists and watches that failed otherwise."""
    unreadable: int = 0
    """Objects that could not be converted to records, and were left out."""


class Store(Generic[T]):
    """All objects of `ref` in `namespace` that match `label_selector`, each converted to a record by `convert`.

    unreadable: the objects that can't be converted, and why. They are not in `items`. Keys of both are object names, or
    ``namespace/name`` when `namespace` is empty (the whole cluster). The store runs in one event loop. Records are
    replaced and never changed, so a thread may read a copy of `items`.
    """

    def __init__(
        self,
        api: Api,
        ref: ResourceRef,
        convert: Callable[[dict[str, Any]], T],
        *,
        namespace: str,
        label_selector: str = "",
        watch_seconds: float = 60.0,
    ) -> None:
        self.ref = ref
        self.synced = asyncio.Event()
        self.counters = Counters()
        self._api = api
        self._convert = convert
        self._namespace = namespace
        self._label_selector = label_selector
        self._watch_seconds = watch_seconds
        self.unreadable: dict[str, tuple[Mapping[str, Any], Exception]] = {}
        self._items: dict[str, T] = {}
        self._view = MappingProxyType(self._items)
        self._subscribers: list[Subscriber[T]] = []
        self._current_at = float("-inf")
        self._version = ""

    @property
    def items(self) -> Mapping[str, T]:
        """The records, as a live, read-only view. It is incomplete until `synced` is set."""
        return self._view

    def age(self) -> float:
        """Seconds since the store was last known to be current; +inf before the first complete list.

        While nothing changes, the age grows to `watch_seconds`. The server may then send no bookmarks, so watches are
        short. When the server accepts the next watch from where the last one ended, nothing was missed.
        """
        return time.monotonic() - self._current_at

    def subscribe(self, fn: Subscriber[T]) -> None:
        """Call `fn(old, new)` on each change: `old` is None for a new object, `new` is None for a deleted one.

        It runs in the event loop, so it must be quick. Its exceptions are logged and not raised.
        """
        self._subscribers.append(fn)

    async def run(self) -> None:
        """List and watch until cancelled. Failures are logged, counted and retried without end."""
        waits = backoff(first=0.5, longest=30.0)
        while True:
            try:
                await self._list()
                waits = backoff(first=0.5, longest=30.0)
                await self._follow()
            except GoneError as error:
                self.counters.gone += 1
                log.info("%s: listing again: %s", self.ref.plural, error)
            except ApiError as error:
                self._failed("listing", error)
            # also after 410: a server that always answers 410 must not be listed in a tight loop
            await asyncio.sleep(next(waits))

    async def _list(self) -> None:
        """List all objects and compare: a record that is not listed was deleted."""
        seen: set[str] = set()
        version, run = "", 0.0
        async for page in self._api.list(self.ref, self._namespace, self._label_selector):
            version = version or page.resource_version
            for raw in page.items:
                if time.monotonic() > run:
                    await asyncio.sleep(0)
                    run = time.monotonic() + TURN
                seen.add(self._take(raw))
        for key in [key for key in (*self._items, *self.unreadable) if key not in seen]:
            self._drop(key)
        self._version = version
        self.counters.lists += 1
        self._is_current()
        self.synced.set()

    async def _follow(self) -> None:
        """Watch repeatedly, each time from where the last watch ended. Raises `GoneError` if it can't resume."""
        failures, waits = 0, backoff(first=0.2, longest=5.0)
        while failures < RESUMES:
            before = self.counters.events + self.counters.bookmarks
            try:
                await self._watch_once()
            except GoneError:
                raise
            except ApiError as error:
                self._failed("watching", error)
                failures += 1
            else:
                failures = 0
            if self.counters.events + self.counters.bookmarks > before:
                failures, waits = 0, backoff(first=0.2, longest=5.0)
            await asyncio.sleep(next(waits) if failures else 0)
        raise GoneError(f"the watch could not be resumed {RESUMES} times in a row")

    async def _watch_once(self) -> None:
        stream = self._api.watch(
            self.ref,
            self._namespace,
            self._version,
            label_selector=self._label_selector,
            seconds=self._watch_seconds,
            opened=self._is_current,
        )
        async with aclosing(stream):
            async for event in stream:
                self._apply(event)
                self._version = event.resource_version
                self._is_current()

    def _apply(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            self.counters.bookmarks += 1
            return
        self.counters.events += 1
        if event.type == "DELETED":
            self._drop(self._key(event.object))
        else:
            self._take(event.object)

    def _take(self, raw: dict[str, Any]) -> str:
        """Store the record of an object, and return its key."""
        key = self._key(raw)
        try:
            new = self._convert(raw)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.counters.unreadable += 1
            log.warning("%s %s is left out, as it can't be read: %r", self.ref.kind, key, error)
            self._drop(key)
            self.unreadable[key] = raw, error
            return key
        self.unreadable.pop(key, None)
        old = self._items.get(key)
        if old != new:
            self._items[key] = new
            self._notify(old, new)
        return key

    def _drop(self, key: str) -> None:
        self.unreadable.pop(key, None)
        if (old := self._items.pop(key, None)) is not None:
            self._notify(old, None)

    def _key(self, raw: Mapping[str, Any]) -> str:
        meta = raw["metadata"]
        name: str = meta["name"]
        return name if self._namespace or "namespace" not in meta else f"{meta['namespace']}/{name}"

    def _notify(self, old: T | None, new: T | None) -> None:
        for fn in self._subscribers:
            try:
                fn(old, new)
            except Exception:
                log.exception("a subscriber to %s failed", self.ref.plural)

    def _is_current(self) -> None:
        self._current_at = time.monotonic()

    def _failed(self, doing: str, error: ApiError) -> None:
        self.counters.failures += 1
        log.warning("%s %s: %s", doing, self.ref.plural, error)
