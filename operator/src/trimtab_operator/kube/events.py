"""`EventPoster`: posts Kubernetes Events, and counts repetitions instead of posting them, unlike Kopf."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.client import EVENTS, Api, ApiError, NotFoundError
from trimtab_operator.kube.conditions import micro_timestamp

log = logging.getLogger(__name__)

LONGEST_NOTE = 1024
"""Bytes that the API server takes as an Event's note."""

CONTROLLER = "trimtab.dev/operator"

AGGREGATE = 600.0
"""Seconds within which a repeated (object, reason, message) only raises the count of its first Event."""

_MOST_SERIES = 1000
Key = tuple[str, str, str]


@dataclass(slots=True)
class _Series:
    namespace: str
    name: str
    count: int
    last: float


class EventPoster:
    """Posts Events in the name of `CONTROLLER`. It never raises: an Event that can't be posted is logged.

    now: epoch seconds.
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
        self._lock = asyncio.Lock()

    async def post(
        self,
        involved: Mapping[str, Any],
        type: str,  # noqa: A002  the field's name in every Event
        reason: str,
        message: str,
        action: str = "Reconcile",
    ) -> None:
        """Post one Event about `involved`: an object as the API returns it, or a reference (apiVersion, kind, name).

        type: Normal or Warning. reason: one CamelCase word. action: the activity that the Event is about. A message
        beyond 1024 bytes is cut.
        """
        regarding = _reference(involved)
        note = _cut(message)
        key = (regarding.get("uid") or f"{regarding['kind']}/{regarding['name']}", reason, note)
        async with self._lock:
            try:
                await self._post(key, regarding, type, action)
            except ApiError as error:
                log.warning("Event %s about %s %s: %s", reason, regarding["kind"], regarding["name"], error)

    async def _post(self, key: Key, regarding: dict[str, Any], type_: str, action: str) -> None:
        now = self._now()
        self._forget_before(now - AGGREGATE)
        if (series := self._series.get(key)) is not None and await self._repeat(series, now):
            return
        body = self._event(key, regarding, type_, action, now)
        await self._api.create(EVENTS, body["metadata"]["namespace"], body)
        self._series[key] = _Series(body["metadata"]["namespace"], body["metadata"]["name"], 1, now)

    async def _repeat(self, series: _Series, now: float) -> bool:
        """Count one more; False when the Event is gone (the server keeps them for an hour)."""
        count = {"count": series.count + 1, "lastObservedTime": micro_timestamp(now)}
        try:
            await self._api.patch(EVENTS, series.namespace, series.name, {"series": count})
        except NotFoundError:
            return False
        series.count += 1
        series.last = now
        return True

    def _event(self, key: Key, regarding: dict[str, Any], type_: str, action: str, now: float) -> dict[str, Any]:
        _, reason, note = key
        namespace = regarding.get("namespace") or "default"
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"namespace": namespace, "name": f"{regarding['name'][:230]}.{secrets.token_hex(8)}"},
            "eventTime": micro_timestamp(now),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "type": type_,
            "reason": reason,
            "action": action,
            "regarding": regarding,
            "note": note,
        }

    def _forget_before(self, oldest: float) -> None:
        kept = [(key, series) for key, series in self._series.items() if series.last >= oldest]
        self._series = dict(kept[-_MOST_SERIES:])


def _cut(message: str) -> str:
    data = message.encode()
    return message if len(data) <= LONGEST_NOTE else data[: LONGEST_NOTE - 3].decode(errors="ignore") + "..."


def _reference(involved: Mapping[str, Any]) -> dict[str, Any]:
    source = {**involved, **involved.get("metadata", {})}
    keys = ("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion")
    return {key: source[key] for key in keys if source.get(key)}
