"""`Statistics`: brokers' own statistics, as a check of what Prometheus shows; and says where policies may read them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)

COMPARE_EVERY = 15.0
"""Seconds between two rounds: one broker in turn, and those in which something was odd."""

AGAIN = 3
"""Odd ones that are looked at again in each round, at most."""

LET_KNOW_EVERY = 5.0
"""Seconds between two looks at whether a policy wants to ask brokers."""


class Statistics:
    """See the module. One for each client that is opened."""

    def __init__(self, context: ClusterState, admin: Admin) -> None:
        self._context, self._admin = context, admin
        self._turn = deque[str]()
        self._told = dict[str, str]()

    async def run(self) -> None:
        """Forever."""
        try:
            await asyncio.gather(self._let_know(), self._compare())
        finally:
            self._context.link.withhold()

    async def _let_know(self) -> None:
        """Keep saying where brokers are asked, and by whom, as long as a policy wants to ask them."""
        link = self._context.link
        while True:
            try:
                if any(settings.asks_brokers for settings in self._context.policies.settings.values()):
                    link.credentials, link.urls = await self._admin.credentials(), await self._urls(link.ids or {})
                else:
                    link.withhold()
            except PulsarError as error:
                log.warning("brokers can't be asked for their statistics: %s", error)
            await asyncio.sleep(LET_KNOW_EVERY)

    async def _urls(self, ids: Mapping[str, str]) -> dict[str, str]:
        """Where each broker is asked; without those whose address is not allowed, or not to be found."""
        found = dict[str, str]()
        for name, broker in ids.items():
            try:
                found[name] = await self._admin.origin(broker)
            except PulsarError as error:
                self._tell(name, str(error))
            else:
                self._told.pop(name, None)
        return found

    def _tell(self, broker: str, why: str) -> None:
        """Say in the log why a broker can't be asked, when that is news."""
        if self._told.get(broker) != why:
            self._told[broker] = why
            log.warning("broker %s can't be asked for its statistics: %s", broker, why)

    async def _compare(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_EVERY)
            await self.round()

    async def round(self) -> None:
        """Compare the next broker, and some of those that were odd."""
        link, metrics = self._context.link, self._context.metrics
        ids = link.ids or {}
        link.cross_check.forget(ids)
        if not link.cross_check.fresh(self._context.clock()):
            return
        for name in self._chosen(ids):
            try:
                told = await self._admin.topic_loads(ids[name])
            except PulsarError as error:
                log.info("what Prometheus shows of %s can't be checked: %s", name, error)
                continue
            found = link.cross_check.compare(
                name, sum(topic.rate_in + topic.rate_out for topic in told), self._context.clock()
            )
            if found is not None and found.differs:
                log.log(logging.WARNING if found.wrong else logging.INFO, "broker %s: %s", name, found)
        metrics.cross_check.set(link.cross_check.worst)

    def _chosen(self, ids: Mapping[str, str]) -> list[str]:
        """One in turn of those that Prometheus shows, before it some that were odd."""
        check = self._context.link.cross_check
        odd = [name for name, compared in check.compared.items() if compared.odd and name in ids][:AGAIN]
        if not any(name in ids for name in self._turn):
            self._turn = deque(sorted(name for name in check.shown if name in ids))
        while self._turn:
            if (name := self._turn.popleft()) in ids:
                return list(dict.fromkeys([*odd, name]))
        return odd
