"""Brokers are compared in turn, odd ones again; and policies are told where to ask only while one wants to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from trimtab_operator.pulsar.bridge import cross_check as checking
from trimtab_operator.pulsar.bridge.cross_check import BrokerStatisticsController
from trimtab_operator.pulsar.client.errors import PulsarUnavailableError
from trimtab_operator.state.pulsar_link import PulsarLink
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.api import NO_CREDENTIALS, Credentials

IDS = {name: f"{name}:8080" for name in ("a", "b", "c", "d")}
WHO = Credentials(bearer_token="t")


class Brokers:
    """What brokers tell: by id the msg/s of their only topic, as many in as out. asked: ids."""

    def __init__(self, **rates: float) -> None:
        self.rates = {IDS[name]: rate for name, rate in rates.items()}
        self.asked: list[str] = []

    async def message_rate(self, broker: str) -> float:
        self.asked.append(broker[0])
        if broker not in self.rates:
            raise PulsarUnavailableError(f"{broker} does not answer")
        return 2 * self.rates[broker]

    async def origin(self, broker: str) -> str:
        if broker not in self.rates:
            raise PulsarUnavailableError(f"{broker} is not allowed")
        return f"http://{broker}"

    async def credentials(self) -> Credentials:
        return WHO


def context(**shown: float) -> Any:
    """A context of which Prometheus shows these brokers, msg/s in and out."""
    link = PulsarLink(ids=IDS)
    link.cross_check.shown, link.cross_check.at = shown, 0.0
    policies = SimpleNamespace(settings={})
    return SimpleNamespace(
        link=link, metrics=Metrics(), policies=policies, clock=lambda: 60.0 * link.cross_check.sample
    )


def test_each_broker_is_compared_in_turn_and_an_odd_one_in_each_round() -> None:
    found, brokers = context(a=200.0, b=200.0, c=200.0, d=200.0), Brokers(a=100.0, b=1000.0, c=100.0)
    statistics: Any = BrokerStatisticsController(found, brokers)  # type: ignore[arg-type]
    check = found.link.cross_check

    async def rounds() -> None:
        for sample in range(1, 7):
            check.sample, check.at = sample, 60.0 * sample
            await statistics.round()
        check.at = 0.0  # what Prometheus showed is old by now
        await statistics.round()

    asyncio.run(rounds())
    assert "".join(brokers.asked) == "ab" + "bc" + "bd" + "ba" + "b"
    assert found.link.cross_check.compared["b"].wrong
    assert not found.link.cross_check.compared["c"].odd
    assert b"trimtab_pulsar_crosscheck_ratio 9.18" in found.metrics.text()


def test_where_and_by_whom_brokers_are_asked_is_known_only_while_a_policy_wants_to(monkeypatch: Any) -> None:
    monkeypatch.setattr(checking, "PUBLISH_INTERVAL", 0.01)
    found = context()
    statistics: Any = BrokerStatisticsController(found, Brokers(a=1.0, b=1.0))  # type: ignore[arg-type]

    async def scenario() -> None:
        running = asyncio.create_task(statistics.run())
        for asks in (False, True, False, True):
            found.policies.settings["main"] = SimpleNamespace(asks_brokers=asks)
            await asyncio.sleep(0.05)
            assert dict(found.link.urls) == ({"a": "http://a:8080", "b": "http://b:8080"} if asks else {})
            assert found.link.credentials == (WHO if asks else NO_CREDENTIALS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert found.link.credentials == NO_CREDENTIALS

    asyncio.run(scenario())
