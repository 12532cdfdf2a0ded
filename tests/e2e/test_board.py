"""The metrics of the board's Pulsar panels exist after all other tests of a cluster: this one comes last."""

from __future__ import annotations

import time

from asked_board import NEEDS_PULSAR, Asked, board_queries
from real_pulsar.clients import Flow, topics_of
from real_pulsar_cluster import RealPulsarCluster
from small_cluster import until
from trimtab_testbed.simulated.cluster import object_name

QUERIES = [(title, target) for title, target in board_queries() if title in NEEDS_PULSAR]


def _empty(stage: RealPulsarCluster) -> set[str]:
    """Titles of panels that show nothing of what happened on this cluster."""
    asked = Asked(stage.prometheus.url, stage.begun, time.time())
    return {title for title, target in QUERIES if not asked.shown(target)}


def test_the_panels_of_a_real_pulsar_show_what_happened(stage: RealPulsarCluster) -> None:
    assert {title for title, _ in QUERIES} == set(NEEDS_PULSAR)
    bundle = stage.admin.bundles(stage.new_namespace(2, "board"))[0]
    stage.put(bundle, stage.names[0])

    with stage.traffic([Flow(topics_of(bundle, 1)[0], 30)]):
        stage.apply_policy(mode="DryRun")
        until("it is known", lambda: stage.owners().get(object_name(bundle)) == stage.names[0], within=90)
        stage.patch_bundle(object_name(bundle), owner=stage.names[1])
        try:
            until("all panels show something", lambda: not _empty(stage), within=120, every=1.0)
        except AssertionError as error:
            raise AssertionError(f"{error}; empty are {_empty(stage)}") from None
