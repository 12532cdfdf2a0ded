"""A broker whose container has just started is not trusted: its counters may hide that they began anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trimtab_operator.observe.snapshot import distrust_restarted
from trimtab_pipeline.api import PrometheusSettings
from trimtab_strategies.model import BrokerTraits, ClusterLoad, Doubt, Reason
from trimtab_strategies.testing import NOW, cluster

SOURCE = PrometheusSettings("http://prometheus", "ns", window=60.0)


def started(**ago: float) -> ClusterLoad:
    """Three brokers, of which some say how many seconds ago their containers started."""
    load = cluster(a=0.9, b=0.1, c=0.1, untrusted=["c"])
    return replace(load, traits={name: BrokerTraits(started=NOW - seconds) for name, seconds in ago.items()})


@pytest.mark.parametrize(
    ("seconds", "trusted"), [(-5, False), (0, False), (59, False), (60, True), (3600, True), (-3600, True)]
)
def test_a_broker_is_trusted_one_window_after_its_container_started(seconds: float, *, trusted: bool) -> None:
    found = distrust_restarted(started(b=seconds), SOURCE)

    assert found.brokers.trusted.tolist() == [True, trusted, False]
    said = Doubt(Reason.UNTRUSTED, f"a container of its pod started {max(0, seconds)} s ago, and a rate covers 60 s")
    assert found.quality.doubts == ({} if trusted else {"b": said})


def test_an_earlier_doubt_stays() -> None:
    load = started(b=5, c=5)
    first = Doubt(Reason.OUT_DATED_DATA, "its newest sample is old")
    load = replace(load, quality=replace(load.quality, doubts={"c": first}))

    assert distrust_restarted(load, SOURCE).quality.doubts["c"] == first


def test_brokers_whose_start_is_unknown_are_as_they_were() -> None:
    load = started()

    assert distrust_restarted(load, SOURCE) is load


def test_brokers_that_tell_their_usage_themselves_need_no_counters() -> None:
    load = started(b=5)

    assert distrust_restarted(load, replace(SOURCE, resources="pulsar")) is load
