"""What goes wrong around a cycle costs that cycle: nothing is lost, and nothing is moved on bad data.

A real Prometheus scrapes four brokers, of which one is hot. With good data a policy relieves it, so that "moves
nothing" says something.
"""

from __future__ import annotations

import itertools
import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from faulty_proxy import Fault
from faulty_source import BUNDLES, CORES, HOT, MAX_AGE, RATE, WORLD, FaultySource, faulty_source, moves
from pipeline_clusters import on_both
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_strategies.model import CPU, RATE_IN, ClusterLoad

pytestmark = pytest.mark.prometheus

_numbers = itertools.count(1)
DAY = 86_400.0


@pytest.fixture(scope="module")
def shared(prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultySource]:
    with faulty_source(prometheus_binary, tmp_path_factory.mktemp("prometheus")) as made:
        yield made


@pytest.fixture
def scene(shared: FaultySource, sources: PolicySources) -> Iterator[FaultySource]:
    """The scene with a new policy, which has seen every broker healthy."""
    shared.enter(sources, f"faults/{next(_numbers)}")
    shared.healthy()
    yield shared
    shared.proxy.fault = Fault.NONE
    shared.scrape(*CORES)


def relieves_the_hot_broker(load: ClusterLoad) -> bool:
    """Whether something is moved, and only from the broker that really is hot."""
    planned = moves(load)
    return bool(planned) and {move.source for move in planned} == {HOT}


def test_with_good_data_the_hot_broker_is_relieved(scene: FaultySource) -> None:
    load = scene.until(lambda seen: seen.brokers.usage[:, CPU] == pytest.approx(list(CORES.values()), rel=0.2))
    assert relieves_the_hot_broker(load)


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.SLOW, Fault.DOWN, Fault.TRUNCATED])
def test_without_an_answer_there_is_no_snapshot_and_the_history_stays_as_it_was(
    scene: FaultySource, fault: Fault
) -> None:
    scene.look()
    before = scene.files()
    scene.proxy.fault = fault
    begin = time.monotonic()
    with pytest.raises(SourceUnavailableError, match=scene.proxy.url):
        scene.look()
    assert time.monotonic() - begin < 15
    assert scene.files() == before
    scene.proxy.fault = Fault.NONE
    after = scene.healthy()
    assert after.bundles.short[:, RATE_IN] == pytest.approx([RATE] * len(BUNDLES))
    assert relieves_the_hot_broker(after)


@on_both
def test_half_of_an_answer_with_a_warning_moves_nothing(scene: FaultySource) -> None:
    scene.proxy.fault = Fault.PARTIAL
    load = scene.look()
    assert load.quality.partial
    assert moves(load) == ()


def test_when_half_of_the_targets_are_gone_their_brokers_lose_trust_and_nothing_moves(scene: FaultySource) -> None:
    # The bundles' last samples count, however slow a cycle is.
    scene.enter(scene.sources, f"faults/{next(_numbers)}", max_age=60.0)
    scene.healthy()
    gone = list(CORES)[2:]
    scene.scrape(*list(CORES)[:2])
    load = scene.until(lambda seen: not seen.brokers.trusted[2:].any())
    assert load.brokers.trusted.tolist() == [True, True, False, False]
    assert moves(load) == ()
    assert [load.bundles.short[k, RATE_IN] for k, owner in enumerate(BUNDLES.values()) if owner in gone] == [
        pytest.approx(RATE)
    ] * 8
    scene.scrape(*CORES)
    assert relieves_the_hot_broker(scene.healthy())


@on_both
def test_a_prometheus_that_dies_in_the_middle_of_a_cycle_costs_that_cycle_only(scene: FaultySource) -> None:
    before = scene.files()
    scene.server.pause()
    cut_short = scene.source.observe(WORLD, time.time())
    time.sleep(0.5)
    scene.server.server.send(signal.SIGKILL)
    with pytest.raises(SourceUnavailableError, match=scene.proxy.url):
        cut_short.result(timeout=30)
    assert scene.files() == before
    scene.server.restart()
    assert relieves_the_hot_broker(scene.healthy())
    scene.until(lambda load: load.brokers.usage[:, CPU] == pytest.approx(list(CORES.values()), rel=0.2))


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_while_our_clock_is_wrong_no_broker_is_trusted_and_once_it_is_right_averages_go_on(
    scene: FaultySource, jump: float
) -> None:
    scene.look()
    kept = set(scene.files())
    for second in range(2):
        wrong = scene.look(time.time() + jump + second)
        assert not wrong.brokers.trusted.any()
        assert moves(wrong) == ()
    assert kept <= set(scene.files())
    right = scene.healthy()
    assert right.bundles.long[:, RATE_IN] == pytest.approx([RATE] * len(BUNDLES))
    assert right.brokers.age.max() <= MAX_AGE
    assert relieves_the_hot_broker(right)


def test_averages_of_a_right_clock_do_not_start_from_what_a_wrong_one_wrote(scene: FaultySource) -> None:
    scene.enter(scene.sources, f"faults/{next(_numbers)}", short_tau=100.0)
    exporter = scene.exporters[HOT]
    first = next(iter(BUNDLES))
    at = scene.healthy().now
    scene.look(at + 2 * DAY)
    before = {name: size for name, size in scene.files().items() if name.startswith("history/")}
    assert before
    exporter.bundles[first] = 2 * RATE
    try:
        later = scene.until(lambda seen: bool(seen.bundles.short[0, RATE_IN] > RATE))
    finally:
        exporter.bundles[first] = RATE
    assert before.items() <= scene.files().items()
    passed = later.now - at
    assert later.bundles.short[0, RATE_IN] <= RATE + RATE * max(1 - math.exp(-passed / 100.0), 1 / 2) + 1e-6


def test_a_broker_that_restarts_starts_its_counters_again_and_looks_neither_idle_nor_busy(scene: FaultySource) -> None:
    hot = scene.exporters[HOT]
    hot.restart()
    begin, seen = time.monotonic(), []
    while time.monotonic() - begin < 5:
        load = scene.look()
        assert np.nanmin(load.brokers.usage) >= 0
        assert not moves(load) or relieves_the_hot_broker(load)
        seen += [load.brokers.usage[0, CPU]] if load.brokers.trusted[0] else []
        time.sleep(0.2)
    assert seen, "the broker was never trusted"
    assert min(seen) > 0.5 * CORES[HOT]
    assert max(seen) < 1.5 * CORES[HOT]
    assert relieves_the_hot_broker(scene.healthy())
