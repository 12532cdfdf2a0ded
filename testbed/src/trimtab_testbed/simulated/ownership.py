"""The broker's side of the `Declarative` actuator: it watches its bundles, releases, takes and confirms them.

Two watches by field selector show what the broker should own (``spec.owner``) and what it owns (``status.owner``). A
broker stops serving before it releases a bundle. Its claim to a bundle carries the resourceVersion that it has read,
and it serves only after the API server has accepted the claim. So no bundle ever has two owners.

Before a broker releases a bundle it reads the Broker object of the desired owner. While there is none, the broker keeps
serving and checks again every second. So a typo in a name does not make a bundle unavailable.

A child of a bundle that is being split has the annotation ``trimtab.dev/parent``. A broker takes and confirms it like
any other bundle, but does not serve it while the parent's Bundle exists: the owner of the parent serves the topics of
both. A broker stops serving the parent before it releases a child. Otherwise two brokers would serve the same topics.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from http import HTTPStatus
from typing import Any, Protocol
from weakref import WeakValueDictionary

import aiohttp
from kubernetes.aio import client

from trimtab_operator.resources.bundle import PARENT
from trimtab_operator.resources.common import GROUP, VERSION

WISHED, HELD = "spec.owner", "status.owner"

_PLURAL, _BROKERS = "bundles", "brokers"
_LOOK_AGAIN = 1.0  # seconds between two checks for Brokers that did not exist
_RETRY = 0.3  # seconds until the next attempt after the API server was unavailable
_ABREAST = 8  # bundles that a broker handles at the same time: a hundred brokers share one API server
_WATCH = 240  # seconds after which a watch is opened again
_TROUBLE = (aiohttp.ClientError, client.ApiException, OSError, TimeoutError)
_log = logging.getLogger(__name__)


class Step(Enum):
    """What a broker does about a Bundle object."""

    RELEASE = "release"
    TAKE = "take"
    CONFIRM = "confirm"
    SERVE = "serve"
    LEAVE = "leave"


def step(bundle: Mapping[str, Any], me: str) -> Step:
    """What the broker `me` does about a Bundle object.

    It acts only on a pending desired owner: a generation that no broker has confirmed yet. An owner that changed
    without a new desired owner stays until the spec changes. If the desired owner is empty, the owner keeps the bundle.
    """
    desired, status = bundle["spec"].get("owner", ""), bundle.get("status", {})
    held = status.get("owner", "")
    owner_pending = bool(desired) and status.get("observedGeneration", 0) < bundle["metadata"]["generation"]
    if held == me:
        if not owner_pending:
            return Step.SERVE
        return Step.CONFIRM if desired == me else Step.RELEASE
    return Step.TAKE if owner_pending and desired == me and not held else Step.LEAVE


def _parent(bundle: Mapping[str, Any]) -> str:
    """Name of the parent, if the bundle is a child that is being split off; else empty."""
    return str((bundle["metadata"].get("annotations") or {}).get(PARENT, ""))


def _kept(bundle: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a Bundle object that a broker keeps. managedFields, most of the object, is dropped."""
    meta = {key: value for key, value in bundle["metadata"].items() if key not in {"managedFields", "ownerReferences"}}
    return {"metadata": meta, "spec": bundle["spec"], "status": bundle.get("status", {})}


class Serving(Protocol):
    """Serves bundles, called by an `Ownership`. Bundles are named by their Bundle objects."""

    def serve(self, bundle: str) -> None:
        """Serve a bundle from now on."""

    def release(self, bundle: str) -> None:
        """Stop serving a bundle."""


class Ownership:
    """Watches the Bundle objects of `namespace` for the broker `me` and keeps `serving` up to date until cancelled.

    deaf: desired owners are seen but not carried out, as if the broker hung. Set it through `hear`.
    """

    def __init__(self, api: client.CustomObjectsApi, namespace: str, me: str, serving: Serving) -> None:
        self._api, self._namespace, self._me, self._serving = api, namespace, me, serving
        self._seen: dict[str, dict[str, Any]] = {WISHED: {}, HELD: {}}
        self._cut = set[str]()  # names of the children among the seen bundles
        self._serves = set[str]()  # includes bundles that were deleted while no watch was open
        self._abreast = asyncio.Semaphore(_ABREAST)
        self._held = set[str]()  # not released, as the Broker of the desired owner does not exist
        self._settling = WeakValueDictionary[str, asyncio.Lock]()
        self.deaf = False

    async def run(self) -> None:
        """Follow both watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for field in (WISHED, HELD):
                group.create_task(self._follow(field))
            group.create_task(self._keep_looking())

    async def hear(self, *, deaf: bool) -> None:
        """Set `deaf`. When it becomes false, handle the missed changes."""
        self.deaf = deaf
        if not deaf:
            await self._settle(*self._seen[WISHED], *self._seen[HELD], *self._serves)

    async def look_again(self) -> None:
        """Release bundles that were kept because a Broker did not exist, if it exists now."""
        await self._settle(*self._held)

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self.look_again()
            except _TROUBLE as error:
                _log.debug("%s: %s", self._me, type(error).__name__)
            await asyncio.sleep(_LOOK_AGAIN)

    async def _follow(self, field: str) -> None:
        while True:
            try:
                await self._watch(field, await self._list(field))
            except _TROUBLE as error:
                _log.debug("%s: %s is watched again after %s", self._me, field, type(error).__name__)
                await asyncio.sleep(_RETRY)

    async def _list(self, field: str) -> str:
        listed: Any = await self._api.list_namespaced_custom_object(
            GROUP, VERSION, self._namespace, _PLURAL, field_selector=f"{field}={self._me}", _request_timeout=30.0
        )
        before = self._seen[field]
        self._seen[field] = {bundle["metadata"]["name"]: _kept(bundle) for bundle in listed["items"]}
        self._cut |= {name for name, bundle in self._seen[field].items() if _parent(bundle)}
        await self._settle(*before, *self._seen[field], *self._serves)
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, field: str, version: str) -> None:
        response = await self._api.list_namespaced_custom_object_without_preload_content(
            GROUP,
            VERSION,
            self._namespace,
            _PLURAL,
            field_selector=f"{field}={self._me}",
            resource_version=version,
            watch=True,
            timeout_seconds=_WATCH,
            _request_timeout=_WATCH + 10.0,
        )
        rest = b""
        try:
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                events = [json.loads(line) for line in lines if line]
                if any(event["type"] == "ERROR" for event in events):  # 410 Gone: list again
                    return
                await self._attend([self._see(field, event["type"], event["object"]) for event in events])
        finally:
            response.close()

    def _see(self, field: str, kind: str, bundle: Any) -> str:
        """Store a Bundle object; returns its name."""
        name = str(bundle["metadata"]["name"])
        if kind == "DELETED":  # also when it no longer matches the selector
            self._seen[field].pop(name, None)
            if self._latest(name) is None:
                self._cut.discard(name)
        else:
            self._seen[field][name] = _kept(bundle)
            if _parent(bundle):
                self._cut.add(name)
        return name

    async def _attend(self, names: Iterable[str]) -> None:
        """Handle changes of several bundles concurrently, so that fifty bundles do not wait for one another."""
        # the children take over before the parent is released
        these = [self._settle(*self._children(name), name) for name in dict.fromkeys(names)]
        for failure in await asyncio.gather(*these, return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure

    async def _settle(self, *names: str) -> None:
        """Handle the newest state of these bundles. Changes of one bundle are never handled concurrently."""
        for name in dict.fromkeys(() if self.deaf else names):
            alone = self._settling.setdefault(name, asyncio.Lock())
            async with alone, self._abreast:
                await self._settle_one(name)

    async def _settle_one(self, name: str) -> None:
        bundle = self._latest(name)
        found = Step.LEAVE if bundle is None else step(bundle, self._me)
        if found is Step.RELEASE and not await self._may_release(bundle):
            self._held.add(name)
            found = Step.SERVE
        else:
            self._held.discard(name)
        match found:
            case Step.RELEASE:
                self._release(name)
                await self._write(bundle, owner="", state="Free")
            case Step.TAKE:
                if await self._write(bundle, owner=self._me, state="Owned", confirm=True):
                    await self._serve(bundle)
            case Step.CONFIRM:
                await self._serve(bundle)
                await self._write(bundle, confirm=True)
            case Step.SERVE:
                await self._serve(bundle)
            case Step.LEAVE:
                self._release(name)

    def _release(self, name: str) -> None:
        self._serves.discard(name)
        self._serving.release(name)

    async def _serve(self, bundle: Any) -> None:
        """Serve a bundle, unless it is a child whose parent still exists."""
        name = bundle["metadata"]["name"]
        if await self._unborn(bundle):
            self._release(name)
        else:
            self._serves.add(name)
            self._serving.serve(name)

    async def _unborn(self, bundle: Any) -> bool:
        """Whether a bundle is a child whose parent still exists: the parent's owner then serves its topics."""
        parent = _parent(bundle)
        return bool(parent) and (any(parent in view for view in self._seen.values()) or await self._exists(parent))

    async def _may_release(self, bundle: Any) -> bool:
        """Whether the desired owner exists, and this broker no longer serves the topics as part of the parent."""
        if _parent(bundle) in self._serves or await self._unborn(bundle):
            return False
        return await self._exists(bundle["spec"]["owner"], _BROKERS)

    async def _exists(self, name: str, plural: str = _PLURAL) -> bool:
        try:
            await self._api.get_namespaced_custom_object(
                GROUP, VERSION, self._namespace, plural, name, _request_timeout=30.0
            )
        except client.ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def _children(self, name: str) -> list[str]:
        """Those of the seen bundles that are children of `name`."""
        return [child for child in self._cut if _parent(self._latest(child) or {"metadata": {}}) == name]

    def _latest(self, name: str) -> Any:
        """The newest version of a bundle that the two watches have seen; None if neither shows it."""
        seen = [view[name] for view in self._seen.values() if name in view]
        return max(seen, key=lambda bundle: int(bundle["metadata"]["resourceVersion"]), default=None)

    async def _write(self, bundle: Any, *, owner: str | None = None, state: str = "", confirm: bool = False) -> bool:
        """Merge into the status; returns False on a conflict, as the watch will show the other change."""
        meta, status = bundle["metadata"], dict[str, Any]()
        if owner is not None:
            status = {"owner": owner, "state": state, "since": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        if confirm:
            status["observedGeneration"] = meta["generation"]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        try:
            await self._api.patch_namespaced_custom_object_status(
                GROUP, VERSION, self._namespace, _PLURAL, meta["name"], body, _request_timeout=30.0
            )
        except client.ApiException as error:
            if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                raise
            return False
        return True
