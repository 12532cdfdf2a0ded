"""Usage whose times come from a clock that is behind: it counts once it has come twice, and the clock is named."""

from __future__ import annotations

import numpy as np
import pytest

from pod_series import AT, PODS, world
from raw_samples import Kept, looked
from trimtab_pipeline.api import PrometheusSettings
from trimtab_strategies.model import ClusterLoad, Reason
from trimtab_strategies.model.cluster_load import CPU

SETTINGS = PrometheusSettings("http://x", "ns")


def scraped(at: float, seconds: float, until: float) -> Kept:
    """What is known at `at` of two brokers. The kubelet of the first one is `seconds` behind, and gives its samples its
    own time, until then.
    """
    kept = world()
    for line in kept.lines:
        if line.metric.startswith("container_") and line.labels["pod"] == PODS[0]:
            line.points = line.points[line.points[:, 0] <= min(at, until)] - [seconds, 0]
    return kept


def looks(*times: float, seconds: float, until: float = AT) -> list[ClusterLoad]:
    last, loads = None, []
    for at in times:
        load, last = looked(scraped(at, seconds, until), SETTINGS, PODS, at, last=last)
        loads.append(load)
    return loads


@pytest.mark.parametrize("seconds", [25.0, 60.0])
def test_usage_that_keeps_coming_late_is_believed_from_the_second_look_on_and_the_clock_is_named(
    seconds: float,
) -> None:
    first, second, third = looks(AT - 65, AT - 34, AT, seconds=seconds)
    assert first.brokers.trusted.tolist() == [False, True]
    for load in (second, third):
        assert load.brokers.trusted.all(), load.quality
        np.testing.assert_allclose(load.brokers.usage[:, CPU], 1.5)
        (note,) = load.quality.notes
        assert note.startswith("b-0: samples of usage keep coming, but ")
        assert "clock" in note


def test_late_usage_that_stops_is_not_believed() -> None:
    *_, before, after = looks(AT - 90, AT - 65, AT - 30, seconds=25, until=AT - 60)
    assert before.brokers.trusted.all()
    assert after.quality.doubts[PODS[0]].reason is Reason.OUT_DATED_DATA


def test_usage_that_stops_is_not_taken_for_late() -> None:
    *_, after = looks(AT - 95, AT - 65, AT - 30, seconds=0, until=AT - 60)
    assert after.quality.doubts[PODS[0]].reason is Reason.OUT_DATED_DATA
    assert not after.quality.notes
