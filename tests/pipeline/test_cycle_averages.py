"""Averages of bundles in whole cycles: over time, over samples, over restarts and moves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fake_prometheus import FakePrometheus, add_broker, add_bundle
from pipeline_clusters import AT, FIRST, Observing, on_both, snapshot
from trimtab_strategies.model import RATE_IN
from trimtab_strategies.usage import LONG_WINDOW, SHORT_WINDOW, UNSEEN, with_sample


def test_averages_follow_time_not_the_number_of_cycles(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, short_tau=100.0, long_tau=1000.0)
    snapshot(source)
    add_bundle(fake, FIRST, "a", 110.0)
    once = snapshot(source, AT + 50).bundles
    assert once.short[0, RATE_IN] == once.long[0, RATE_IN] == 60.0, "the first two count alike"
    later = snapshot(source, AT + 150).bundles
    assert later.short[0, RATE_IN] == pytest.approx(110 - 50 * math.exp(-1))
    assert later.long[0, RATE_IN] == pytest.approx((10 + 110 + 110) / 3)


def test_averages_of_samples_are_those_of_pulsar(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, averages="samples")
    short, long, counts = UNSEEN, UNSEEN, (1, 1)
    for cycle in range(12):
        add_bundle(fake, FIRST, "a", rate := 10.0 + 7 * cycle**2)
        measured = np.array([rate, 2 * rate, 1000 * rate, 2000 * rate])
        short, few = with_sample(short, counts[0], measured, SHORT_WINDOW)
        long, many = with_sample(long, counts[1], measured, LONG_WINDOW)
        counts = few, many
        seen = snapshot(source, AT + cycle).bundles
        np.testing.assert_allclose(seen.short[0], short, rtol=1e-12)
        np.testing.assert_allclose(seen.long[0], long, rtol=1e-12)
    assert counts == (10, 13)
    fake.drop(bundle=FIRST)
    np.testing.assert_allclose(snapshot(source, AT + 13).bundles.long[0], long, rtol=1e-12)


def test_the_same_cycle_again_gives_the_same_averages(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url)
    snapshot(source)
    add_bundle(fake, FIRST, "a", 110.0)
    assert (
        snapshot(source, AT + 60.0004).bundles.short.tolist() == snapshot(source, AT + 60.0004).bundles.short.tolist()
    )


def test_a_restart_goes_on_from_the_newest_file(fake: FakePrometheus, observing: Observing) -> None:
    snapshot(observing(fake.url))
    add_bundle(fake, FIRST, "a", 110.0)
    restarted = snapshot(observing(fake.url), AT + 60).bundles
    assert restarted.long[0, RATE_IN] == 60.0


def test_a_state_that_is_too_old_is_not_continued(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, long_tau=100.0)
    snapshot(source)
    add_bundle(fake, FIRST, "a", 110.0)
    assert snapshot(source, AT + 301).bundles.long[0, RATE_IN] == 110.0


def test_a_sample_that_is_shown_again_feeds_no_average(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, short_tau=100.0)
    add_broker(fake, "a", time=AT)
    snapshot(source)
    add_bundle(fake, FIRST, "a", 110.0)
    assert snapshot(source, AT + 60).bundles.short[0, RATE_IN] == 10.0
    add_broker(fake, "a", time=AT + 100)
    assert snapshot(source, AT + 120).bundles.short[0, RATE_IN] == pytest.approx(110 - 100 * math.exp(-1))


@on_both
def test_a_bundle_that_moves_keeps_its_average_and_counts_once(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url)
    snapshot(source)
    add_bundle(fake, FIRST, "b", 10.0)
    both = snapshot(source, AT + 60)
    assert both.quality.dropped == {"Duplicate": 1}
    assert both.bundles.short[0, RATE_IN] == pytest.approx(10.0)
    fake.drop(bundle=FIRST)
    nowhere = snapshot(source, AT + 120)
    assert nowhere.bundles.short[0, RATE_IN] == pytest.approx(10.0)
    assert nowhere.quality.missing_bundles == 1
    add_bundle(fake, FIRST, "b", 10.0)
    moved = snapshot(source, AT + 180)
    assert moved.bundles.short[0, RATE_IN] == pytest.approx(10.0)
    assert not moved.quality.dropped
