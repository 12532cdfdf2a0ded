"""`BrokerStatisticsController`: compares brokers' own statistics with Prometheus, and publishes where to read them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)

COMPARE_INTERVAL = 15.0
"""Seconds between two rounds. A round compares the next broker, and some that differed before."""

DIFFERING_PER_ROUND = 3
"""Maximum number of brokers that differed before and are compared again in each round."""

PUBLISH_INTERVAL = 5.0
"""Seconds between two checks of whether a policy reads brokers' statistics."""


class BrokerStatisticsController:
    """Compares and publishes the statistics of brokers. Each open Pulsar client has one controller."""

    def __init__(self, cluster: ClusterState, admin: Admin) -> None:
        self._cluster, self._admin = cluster, admin
        self._turn = deque[str]()
        self._problems = dict[str, str]()

    async def run(self) -> None:
        """Publish addresses and compare until cancelled."""
        try:
            await asyncio.gather(self._publish(), self._compare())
        finally:
            self._cluster.link.withhold()

    async def _publish(self) -> None:
        """Keep the brokers' URLs and credentials current as long as a policy reads statistics."""
        link = self._cluster.link
        while True:
            try:
                if any(settings.asks_brokers for settings in self._cluster.policies.settings.values()):
                    link.credentials, link.urls = await self._admin.credentials(), await self._urls(link.ids or {})
                else:
                    link.withhold()
            except PulsarError as error:
                log.warning("brokers' statistics can't be read: %s", error)
            await asyncio.sleep(PUBLISH_INTERVAL)

    async def _urls(self, ids: Mapping[str, str]) -> dict[str, str]:
        """Base URL of each broker's admin REST. Omits brokers whose address is unknown or not allowed."""
        found = dict[str, str]()
        for name, broker in ids.items():
            try:
                found[name] = await self._admin.origin(broker)
            except PulsarError as error:
                self._log_problem(name, str(error))
            else:
                self._problems.pop(name, None)
        return found

    def _log_problem(self, broker: str, why: str) -> None:
        """Log why a broker's statistics can't be read, once."""
        if self._problems.get(broker) != why:
            self._problems[broker] = why
            log.warning("broker %s: its statistics can't be read: %s", broker, why)

    async def _compare(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_INTERVAL)
            await self.round()

    async def round(self) -> None:
        """Compare the next broker, and some that differed before."""
        link, metrics = self._cluster.link, self._cluster.metrics
        ids = link.ids or {}
        link.cross_check.forget(ids)
        if not link.cross_check.fresh(self._cluster.clock()):
            return
        for name in self._chosen(ids):
            try:
                rate = await self._admin.message_rate(ids[name])
            except PulsarError as error:
                log.info("broker %s: can't be compared with Prometheus: %s", name, error)
                continue
            found = link.cross_check.compare(name, rate, self._cluster.clock())
            if found is not None and found.differs:
                log.log(logging.WARNING if found.wrong else logging.INFO, "broker %s: %s", name, found)
        metrics.cross_check.set(link.cross_check.worst)

    def _chosen(self, ids: Mapping[str, str]) -> list[str]:
        """Some brokers that differed before, then the next one that Prometheus shows."""
        check = self._cluster.link.cross_check
        odd = [name for name, compared in check.compared.items() if compared.odd and name in ids][:DIFFERING_PER_ROUND]
        if not any(name in ids for name in self._turn):
            self._turn = deque(sorted(name for name in check.shown if name in ids))
        while self._turn:
            if (name := self._turn.popleft()) in ids:
                return list(dict.fromkeys([*odd, name]))
        return odd
