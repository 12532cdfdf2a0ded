"""The load model and its metrics page."""

from __future__ import annotations

import pytest

from trimtab_operator.state.settings import Settings
from trimtab_testbed.simulated.load import BrokerShape, BundleLoad, SimulatedBrokerLoad
from trimtab_testbed.simulated.metrics_page import Sample, page, render
from trimtab_testbed.simulated.scenarios import SCENARIOS, UnknownScenarioError, scenario


def bundle(name: str = "t/n/0x00000000_0xffffffff", cores: float = 1.0) -> BundleLoad:
    return BundleLoad(name, 10, 20, 1000, 2000, 4, 8, 8, cores, period=1e12, phase=0)  # hardly varies


def broker(*bundles: BundleLoad, cores: float = 4, strength: float = 1) -> SimulatedBrokerLoad:
    shape = BrokerShape("pulsar-broker-0", cores, 8 * 2**30, strength, idle=0)
    load = SimulatedBrokerLoad(shape, {b.name: b for b in bundles}, began=0)
    for b in bundles:
        load.serve(b.name, at=0)
    return load


def test_counters_grow_with_the_time_that_passes() -> None:
    load = broker(bundle(cores=1.5))
    load.advance(10)
    assert load.cpu_seconds == pytest.approx(15, rel=0.001)
    assert load.received_bytes == pytest.approx(10_500, rel=0.001)
    assert load.sent_bytes == pytest.approx(21_000, rel=0.001)


def test_time_that_goes_back_changes_no_counter() -> None:
    load = broker(bundle())
    load.advance(10)
    before = load.cpu_seconds
    load.advance(9)
    assert load.cpu_seconds == before


def test_a_released_bundle_costs_nothing_from_then_on() -> None:
    one = bundle(cores=1)
    load = broker(one)
    load.release(one.name, at=10)
    load.advance(20)
    assert load.cpu_seconds == pytest.approx(10, rel=0.001)
    assert (load.received_bytes, load.sent_bytes) == pytest.approx((10_500, 21_000), rel=0.001), "no counter falls"
    assert load.serving == frozenset()


def test_a_stronger_broker_needs_fewer_cores_for_the_same_bundle() -> None:
    assert broker(bundle(cores=1), strength=2).cpu(0) == pytest.approx(0.5)


def test_a_broker_put_on_a_stronger_machine_keeps_its_counters_and_bundles() -> None:
    load = broker(bundle(cores=2))

    load.rehouse(BrokerShape("pulsar-broker-0", 4, 8 * 2**30, strength=2, idle=0), at=10)
    load.advance(20)

    assert load.cpu_seconds == pytest.approx(20 + 10, rel=0.001)
    assert len(load.serving) == 1


def test_no_broker_uses_more_than_its_limit() -> None:
    load = broker(bundle(cores=99))
    assert load.cpu(0) == 4


def test_cpu_is_there_twice_as_a_kubelet_shows_it() -> None:
    text = page(broker(bundle()), "messaging", at=10)
    rows = [line for line in text.splitlines() if line.startswith("container_cpu_usage_seconds_total")]
    assert [row.split(" ")[0] for row in rows] == [
        'container_cpu_usage_seconds_total{namespace="messaging",pod="pulsar-broker-0",container="broker"}',
        'container_cpu_usage_seconds_total{namespace="messaging",pod="pulsar-broker-0",container=""}',
    ]


def test_lines_of_one_metric_stand_together_under_its_type() -> None:
    samples = [Sample("b", {}, 1.0), Sample("a_total", {"x": 'say "hi"\n'}, 2.0), Sample("b", {"y": "1"}, 3.0)]
    assert render(samples).splitlines() == [
        "# TYPE a_total counter",
        r'a_total{x="say \"hi\"\n"} 2.0',
        "# TYPE b gauge",
        "b{} 1.0",
        'b{y="1"} 3.0',
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_begins_as_busy_as_it_says(name: str) -> None:
    world = scenario(name)
    loads, owners = world.stage()
    for start in world.brokers:
        served = sum(load.cores for load in loads if owners[load.name] == start.shape.name)
        percent = 100 * (served + start.shape.idle) / (start.shape.cores * start.shape.strength)
        assert percent == pytest.approx(start.cpu, abs=2)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_policy_of_a_scenario_can_be_run(name: str) -> None:
    source = {"prometheus": {"url": "http://prometheus:9090"}}
    spec = {**SCENARIOS[name].policy, "source": source, "brokers": {"podLabels": {"app": "pulsar"}}}

    assert Settings.of({"metadata": {"name": name, "namespace": "demo"}, "spec": spec}).pair


def test_the_demo_has_96_bundles_none_above_6_points_and_a_range_above_40() -> None:
    world = scenario("skewed-96")
    loads, _ = world.stage()
    cores = {start.shape.cores for start in world.brokers}
    assert len(loads) == 96
    assert max(load.cores for load in loads) / min(cores) <= 0.06
    assert max(start.cpu for start in world.brokers) - min(start.cpu for start in world.brokers) > 40


def test_a_scenario_is_the_same_each_time() -> None:
    assert scenario("skewed-96").stage() == scenario("skewed-96").stage()


def test_an_unknown_scenario_names_the_known_ones() -> None:
    with pytest.raises(UnknownScenarioError, match="'nope': use one of skewed-96"):
        scenario("nope")
