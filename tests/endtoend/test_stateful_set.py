"""``kubectl rollout restart`` of the brokers' StatefulSet, by the real controller."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ring_check import check_ring
from small_cluster import until
from stateful_set_cluster import STARTS_WITHIN, StatefulSetCluster, level
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = [pytest.mark.controllers, pytest.mark.prometheus, pytest.mark.long]

BROKERS, BUNDLES = 8, 32
COARSE = {"type": "ThresholdShedder", "thresholdShedder": {"threshold": 25, "historyPercent": 0, "minThroughput": 0}}
"""A policy that ignores an imbalance of two bundles of 10 points each, so that mostly the rolling restart moves
bundles.
"""


def test_a_rollout_moves_each_bundle_about_once_and_cuts_none_off(
    full_control_plane: ControlPlane, prometheus_binary: Path, tmp_path: Path
) -> None:
    with StatefulSetCluster(
        full_control_plane, prometheus_binary, tmp_path, level(BROKERS, BUNDLES // BROKERS)
    ) as stage:
        witness, kubelet = stage.witness, stage.kubelet
        stage.apply_policy(mode="Auto", shedder=COARSE)
        stage.wait_condition("Ready", "True")
        stage.wait_cycles(2)
        assert not witness.moves.total(), "new pods move nothing"

        kubelet.starts_within = STARTS_WITHIN
        stage.roll_out(within=120)
        until("it is told to be over", lambda: stage.condition("Balanced")[1] not in {"", "RollingOut"})
        stage.wait_cycles(2)
        until("every bundle has its desired owner", stage.settled)

        assert witness.moves.total() <= (1.1 + 1 / BROKERS) * BUNDLES  # bundles of the first pod move once more
        assert not witness.twice
        assert not kubelet.cut_off, "emptied while it still serves"
        assert len(check_ring(itertools.chain(*stage.world.serving().values()))) == BUNDLES + 1
        assert kubelet.peak <= 85
