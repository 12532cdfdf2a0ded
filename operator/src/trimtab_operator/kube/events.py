"""`EventPoster`: posts Kubernetes Events. Unlike in Kopf, a repetition only raises the count of the first Event."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.client import EVENTS, Api, ApiError, NotFoundError
from trimtab_operator.kube.conditions import micro_timestamp

log = logging.getLogger(__name__)

LONGEST_NOTE = 1024
"""Maximum size of an Event's note in the API server, in bytes."""

CONTROLLER = "trimtab.dev/operator"

AGGREGATE = 600.0
"""Seconds within which a repeated (object, reason, message) only raises the count of its first Event."""

FLUSH_WITHIN = 2.0
"""Seconds for posting the queued Events when the process exits."""

MOST_QUEUED = 500
"""Maximum number of Events that wait for the API server. Further ones are only logged."""

_MOST_SERIES = 1000
Key = tuple[str, str, str]


@dataclass(slots=True)
class _Series:
    namespace: str
    name: str
    count: int
    last: float


@dataclass(frozen=True, slots=True)
class _Event:
    key: Key
    regarding: dict[str, Any]
    type: str
    action: str
    at: float


class EventPoster:
    """Posts Events in the name of `CONTROLLER`, in order. It never raises: an Event that can't be posted is logged.

    A task posts them, so a slow API server delays no caller. now: epoch seconds.
    """

    def __init__(
        self,
        api: Api,
        *,
        instance: str = "trimtab",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._instance = instance[:128]
        self._now = now
        self._series: dict[Key, _Series] = {}
        self._queued: deque[_Event] = deque()
        self._posting: asyncio.Task[None] | None = None

    async def post(
        self,
        involved: Mapping[str, Any],
        type: str,  # noqa: A002  the field's name in every Event
        reason: str,
        message: str,
        action: str = "Reconcile",
    ) -> None:
        """Queue one Event about `involved`: an object as the API returns it, or a reference (apiVersion, kind, name).

        type: Normal or Warning. reason: one CamelCase word. action: the activity that the Event is about. A message
        beyond 1024 bytes is cut.
        """
        regarding = _reference(involved)
        note = _cut(message)
        key = (regarding.get("uid") or f"{regarding['kind']}/{regarding['name']}", reason, note)
        event = _Event(key, regarding, type, action, self._now())
        if len(self._queued) >= MOST_QUEUED:
            _log_unposted(event, f"{MOST_QUEUED} others wait for the API server")
            return
        self._queued.append(event)
        if self._posting is None or self._posting.done():
            self._posting = asyncio.create_task(self._post_queued(), name="events")

    async def flush(self) -> None:
        """Wait until the queued Events are posted, for at most `FLUSH_WITHIN`."""
        if self._posting is not None:
            await asyncio.wait({self._posting}, timeout=FLUSH_WITHIN)

    async def _post_queued(self) -> None:
        while self._queued:
            event = self._queued.popleft()
            try:
                await self._post(event)
            except ApiError as error:
                _log_unposted(event, error)

    async def _post(self, event: _Event) -> None:
        self._forget_before(event.at - AGGREGATE)
        if (series := self._series.get(event.key)) is not None and await self._repeat(series, event.at):
            return
        body = self._manifest(event)
        await self._api.create(EVENTS, body["metadata"]["namespace"], body)
        self._series[event.key] = _Series(body["metadata"]["namespace"], body["metadata"]["name"], 1, event.at)

    async def _repeat(self, series: _Series, now: float) -> bool:
        """Count one more repetition; False if the Event no longer exists (the server keeps Events for an hour)."""
        count = {"count": series.count + 1, "lastObservedTime": micro_timestamp(now)}
        try:
            await self._api.patch(EVENTS, series.namespace, series.name, {"series": count})
        except NotFoundError:
            return False
        series.count += 1
        series.last = now
        return True

    def _manifest(self, event: _Event) -> dict[str, Any]:
        (_, reason, note), regarding = event.key, event.regarding
        namespace = regarding.get("namespace") or "default"
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"namespace": namespace, "name": f"{regarding['name'][:230]}.{secrets.token_hex(8)}"},
            "eventTime": micro_timestamp(event.at),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "type": event.type,
            "reason": reason,
            "action": event.action,
            "regarding": regarding,
            "note": note,
        }

    def _forget_before(self, oldest: float) -> None:
        kept = [(key, series) for key, series in self._series.items() if series.last >= oldest]
        self._series = dict(kept[-_MOST_SERIES:])


def _log_unposted(event: _Event, why: object) -> None:
    involved = event.regarding
    log.warning("Event %s about %s %s: %s", event.key[1], involved["kind"], involved["name"], why)


def _cut(message: str) -> str:
    data = message.encode()
    return message if len(data) <= LONGEST_NOTE else data[: LONGEST_NOTE - 3].decode(errors="ignore") + "..."


def _reference(involved: Mapping[str, Any]) -> dict[str, Any]:
    source = {**involved, **involved.get("metadata", {})}
    keys = ("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion")
    return {key: source[key] for key in keys if source.get(key)}
