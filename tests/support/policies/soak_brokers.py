"""Brokers of a soak: what each really serves. They follow desired owners through their own watch, as real ones do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from trimtab_operator.aio import at_most, ended
from trimtab_operator.kube.client import BUNDLES, Api, ApiError, NotFoundError

WRITERS = 32
"""The most concurrent confirmations."""


class SoakBrokers:
    """Serves bundles in the name of all brokers of a namespace.

    serving: broker of each Bundle object by its name, empty where none serves it. down: brokers that have crashed.
    deaf: brokers that neither take nor release anything.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self.serving: dict[str, str] = {}
        self.down: set[str] = set()
        self.deaf: set[str] = set()
        self.confirmed = 0
        self._open: dict[str, dict[str, Any]] = {}
        self._told: dict[str, tuple[str, str]] = {}  # owner in spec and status, as last seen
        self._listed = asyncio.Event()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let brokers follow desired owners while the block runs."""
        tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._act())]
        try:
            await self._listed.wait()
            yield
        finally:
            await ended(*tasks)

    def crash(self, broker: str) -> None:
        """Let a broker crash: it serves nothing any more."""
        self.down.add(broker)
        self.serving |= {name: "" for name, by in self.serving.items() if by == broker}

    def hear(self) -> None:
        """Let all brokers run and follow again. A broker that comes back serves what it still owns."""
        for name, by in self.serving.items():
            asked, told = self._told.get(name, ("", ""))
            if not by and asked == told and asked in self.down:
                self.serving[name] = asked
        self.down.clear()
        self.deaf.clear()
        self._changed.set()

    async def quiet(self) -> None:
        """Wait until brokers have done all that they can do."""
        async with asyncio.timeout(60):
            while True:
                await asyncio.sleep(0.1)
                if not any(map(self._can, self._open.values())):
                    return

    async def _watch(self) -> None:
        while True:
            with suppress(ApiError):  # the watch broke or is too old: list again
                version = await self._list()
                self._listed.set()
                while True:
                    async with aclosing(self._api.watch(BUNDLES, self._namespace, version)) as events:
                        async for event in events:
                            version = event.resource_version
                            if event.type != "BOOKMARK":
                                self._see(event.object, gone=event.type == "DELETED")
            await asyncio.sleep(0.2)

    async def _list(self) -> str:
        version = ""
        async for page in self._api.list(BUNDLES, self._namespace):
            version = version or page.resource_version
            for bundle in page.items:
                self._see(bundle)
        return version

    def _see(self, bundle: dict[str, Any], *, gone: bool = False) -> None:
        name = bundle["metadata"]["name"]
        if gone:
            self.serving.pop(name, None)
            self._open.pop(name, None)
            return
        told = (bundle.get("status") or {}).get("owner", "")
        self._told[name] = bundle["spec"].get("owner", ""), told
        self.serving.setdefault(name, told)
        if self._wanted(bundle):
            self._open[name] = bundle
            self._changed.set()
        else:
            self._open.pop(name, None)

    @staticmethod
    def _wanted(bundle: dict[str, Any]) -> bool:
        seen = (bundle.get("status") or {}).get("observedGeneration", 0)
        return bool(bundle["spec"].get("owner")) and bundle["metadata"]["generation"] > seen

    def _can(self, bundle: dict[str, Any]) -> bool:
        """Whether both the desired owner and the current owner run and follow."""
        away = self.down | self.deaf
        return bundle["spec"]["owner"] not in away and self.serving[bundle["metadata"]["name"]] not in self.deaf

    async def _act(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await at_most(WRITERS, self._take, [bundle for bundle in self._open.values() if self._can(bundle)])

    async def _take(self, bundle: dict[str, Any]) -> None:
        name, owner, generation = bundle["metadata"]["name"], bundle["spec"]["owner"], bundle["metadata"]["generation"]
        status = {"owner": owner, "state": "Owned", "observedGeneration": generation}
        try:
            await self._api.patch(BUNDLES, self._namespace, name, {"status": status}, subresource="status")
        except NotFoundError:
            self._open.pop(name, None)
        else:
            self.serving[name], self._told[name] = owner, (owner, owner)
            self.confirmed += 1
            if self._open.get(name) is bundle:
                del self._open[name]
