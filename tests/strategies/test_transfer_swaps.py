"""Swaps of TransferShedder: what comes back for a bundle that is too large."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import cluster, with_bundles
from transfer_decisions import APART, moves, shed, shedder, why
from trimtab_strategies.filters import BrokerSelection, Manager
from trimtab_strategies.model import THROUGHPUT_OUT, ClusterLoad, Reason
from trimtab_strategies.params import Compatibility
from trimtab_strategies.shedding.transfer.reports import SnapshotReports
from trimtab_strategies.shedding.transfer.shedder import TransferShedder, TransferShedderParams


def test_bundle_that_is_too_large_goes_when_the_other_end_can_give_back() -> None:
    # a wants to lose 0.25 of its 0.3 + 0.3 + 0.3; with 0.06 back they end on 0.66 and 0.64
    picture = cluster(bundles={"a": [1, 1, 1], "b": [6, 34]}, a=0.9, b=0.4)

    assert moves(shed(picture, target_deviation_percent=10)) == [(0, [0], 1, [3])]


def test_swap_is_not_made_without_transfer_and_the_placement_chooses() -> None:
    picture = cluster(bundles={"a": [1, 1, 1], "b": [6, 34]}, a=0.9, b=0.4)

    assert why(shed(picture, target_deviation_percent=10, transfer=False)) is Reason.NO_BUNDLES
    assert moves(shed(cluster(**APART), transfer=False)) == [(0, [0], -1, []), (0, [1], -1, [])]


# Two brokers, two swaps: the second one is judged with or without what came back in the first.
#   a: 10 11 13 of 34, usage 0.77      b: 1 3 9 of 13, usage 0.37
SWAPS: dict[str, Any] = {"bundles": {"a": [10, 11, 13], "b": [1, 3, 9]}, "a": 0.77, "b": 0.37}


def with_throughput(picture: ClusterLoad, amounts: list[float]) -> ClusterLoad:
    """Each bundle with this outbound throughput, MB/s."""
    return with_bundles(picture, short={row: [0, 0, 0, amount * 1e6] for row, amount in enumerate(amounts)})


def with_traffic(picture: ClusterLoad, amounts: list[float]) -> ClusterLoad:
    """Each broker with this outbound throughput, MB/s."""
    traffic = np.zeros_like(picture.brokers.traffic)
    traffic[:, THROUGHPUT_OUT] = np.array(amounts) * 1e6
    return replace(picture, brokers=replace(picture.brokers, traffic=traffic))


def swaps() -> ClusterLoad:
    return with_traffic(with_throughput(cluster(**SWAPS), [10, 11, 13, 1, 3, 9]), [34, 13])


def test_debug_mode_changes_the_decision() -> None:
    assert moves(shed(swaps(), target_deviation_percent=10)) == [(0, [0], 1, [3]), (0, [1], 1, [4, 5])]
    assert moves(shed(swaps(), target_deviation_percent=10, debug_mode=True)) == [(0, [0], 1, [3])]


def test_corrected_counts_what_came_back() -> None:
    corrected = shed(swaps(), target_deviation_percent=10, compatibility=Compatibility.CORRECTED)

    assert moves(corrected)[0] == (0, [0], 1, [3])
    assert moves(corrected) != moves(shed(swaps(), target_deviation_percent=10))


class InOrder(SnapshotReports):
    """Reports in the order of the rows: that of Pulsar's reports need not be that of throughput."""

    def of(self, broker: int) -> np.ndarray:
        """All bundles of the broker."""
        return self._cluster.bundles.owned_by(broker)


def in_order(picture: ClusterLoad, sheddable: np.ndarray, _: TransferShedderParams) -> InOrder:
    return InOrder(picture, sheddable, BrokerSelection(Manager.EXTENSIBLE).on(picture), count=10)


@pytest.mark.parametrize(
    ("params", "returned"),
    [({"debug_mode": True}, [[4, 5]]), ({"compatibility": Compatibility.CORRECTED}, [[4, 5], [3]])],
    ids=str,
)
def test_corrected_offers_again_what_an_earlier_swap_left_aside(params: dict[str, Any], returned: list[Any]) -> None:
    """The first swap passes over 71, which would make the giver busier than it was; the second has room for it."""
    picture = with_throughput(cluster(bundles={"a": [1, 1, 1], "b": [1, 1, 1]}, a=0.9, b=0.1), [70, 70, 70, 71, 20, 22])
    picture = with_traffic(picture, [100, 40])
    strategy = TransferShedder(TransferShedderParams(hit_count=1, target_deviation_percent=0, **params), in_order)

    shedding = strategy.shed(picture, np.ones(6, dtype=bool), {})

    assert [back for _, _, _, back in moves(shedding)] == returned


def test_bundles_that_may_not_move_neither_leave_nor_come_back() -> None:
    picture = swaps()
    shedding = shedder(target_deviation_percent=10).shed(picture, np.array([1, 1, 1, 0, 1, 1], dtype=bool), {})

    assert all(3 not in back for _, _, _, back in moves(shedding))
