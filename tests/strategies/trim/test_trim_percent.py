"""Trim on a source that gives usage in percent (`resources: Pulsar`): CPU decides, as if no network was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trim_world import Play, World, skewed
from trimtab_strategies.counterfactual.recorded_cycle import CycleReader, RecordedCycle
from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, ClusterLoad
from trimtab_strategies.shedding.trim.place import TrimPlacement, TrimPlacementParams
from trimtab_strategies.usage import network_limits

NIC = 1.25e9
NETWORK = [NETWORK_IN, NETWORK_OUT]


def in_percent(cluster: ClusterLoad) -> ClusterLoad:
    """The same snapshot as the preset `Pulsar` gives it: usage in percent, each limit is 100."""
    brokers = cluster.brokers
    usage = np.zeros_like(brokers.usage)
    usage[:, CPU] = 100 * brokers.usage[:, CPU] / brokers.limit[:, CPU]
    usage[:, NETWORK] = 100 * brokers.usage[:, NETWORK] / NIC
    return replace(cluster, brokers=replace(brokers, usage=usage, limit=np.full_like(usage, 100.0)))


def moved(world: World, *, percent: bool) -> list[list[int]]:
    """Owners after each of twelve minutes."""
    play, owners = Play(world), []
    for _ in range(12):
        cluster = play.world.cluster()
        play.decided(play.ring.add(in_percent(cluster) if percent else cluster))
        owners.append(world.owner.tolist())
    return owners


def test_it_moves_what_it_moves_by_cores() -> None:
    by_cores = moved(skewed(), percent=False)

    assert by_cores[0] != by_cores[-1]
    assert moved(skewed(), percent=True) == by_cores


def test_the_least_used_broker_by_cpu_is_chosen() -> None:
    world = World.of([30.0, 1.0], [60.0], [10.0])
    cluster = in_percent(world.cluster())
    placement = TrimPlacement(TrimPlacementParams())

    assert placement.best(cluster, 1, np.array([1, 2]), {}).brokers.tolist() == [2]


def test_a_move_that_did_not_happen_changes_cpu_and_leaves_the_network_as_measured() -> None:
    play, reader = Play(skewed()), CycleReader()
    cycle: RecordedCycle | None = None
    for _ in range(5):
        cycle = reader.read(play.ring.add(in_percent(play.world.cluster())))
        play.world.now += 60
    assert cycle is not None
    owner = cycle.load.bundles.owner.copy()
    row = int(np.argmax(cycle.work))
    source, destination = int(owner[row]), int((owner[row] + 1) % len(play.world.cores))
    owner[row] = destination

    then, now = cycle.load.brokers.usage, cycle.brokers_with(owner).usage

    assert now[source, CPU] < then[source, CPU]
    assert now[destination, CPU] > then[destination, CPU]
    assert now[:, NETWORK].tolist() == then[:, NETWORK].tolist()


@pytest.mark.parametrize(("memory", "limit", "expected"), [(2e9, NIC, NIC), (2e9, 0.0, np.inf), (100.0, 100.0, np.inf)])
def test_a_network_has_a_limit_in_bytes_or_none(memory: float, limit: float, expected: float) -> None:
    brokers = World.of([1.0]).cluster().brokers
    limits = brokers.limit.copy()
    limits[:, 1], limits[:, NETWORK] = memory, limit

    assert network_limits(limits).tolist() == [[expected, expected]]
