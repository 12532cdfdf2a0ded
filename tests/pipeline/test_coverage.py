"""Whatever happens to scrapes, pods and counters: a broker is within 10 points of the truth, or it is not believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from raw_samples import Kept, believed
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BROKER_SAMPLES
from trimtab_pipeline.transform.rates import broker_signals
from trimtab_pipeline.transform.relations import Cycle
from trimtab_strategies.model import CPU, MEMORY, NETWORK_IN, NETWORK_OUT, Doubt, Reason

T = 1_750_000_000.0
CORES, GIB, NIC = 4.0, 2.0**30, 1e8
KUBERNETES = PrometheusSettings("http://x", "ns", nic_speed=NIC)
PULSAR = PrometheusSettings("http://x", "ns", "pulsar")
POD = "b"
COUNTERS = {
    "container_cpu_usage_seconds_total": CORES,
    "container_network_receive_bytes_total": NIC,
    "container_network_transmit_bytes_total": NIC,
}
GAUGES = ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out")


@dataclass(frozen=True)
class Life:
    """One run of a broker's process, seconds from `T`, and the times at which it was sampled."""

    begin: float
    sampled: Sequence[float]
    series: str = "first"


def broker(
    *lives: Life, load: float = 0.95, memory: Sequence[float] | None = None, shares: Sequence[float] = (1.0,)
) -> Kept:
    """What a server keeps of a broker that runs at `load` (ratio of everything) whenever it runs.

    memory: seconds from `T` at which its memory was sampled, if not with the rest. shares: of its network interfaces.
    """
    kept = Kept()
    names = list(dict.fromkeys(life.series for life in lives))
    for name in names:
        ours = [(life, t) for life in lives if life.series == name for t in life.sampled]
        for metric, limit in COUNTERS.items():
            points = np.array([(T + t, load * limit * (t - life.begin)) for life, t in ours])
            if limit == NIC:
                for number, share in enumerate(shares):
                    kept.add(metric, (points * (1.0, share)).tolist(), pod=POD, interface=f"eth{number}")
            else:
                kept.add(metric, points.tolist(), pod=POD)
    sampled = [t for life in lives for t in life.sampled]
    used = sampled if memory is None else memory
    kept.add("container_memory_working_set_bytes", [(T + t, 8 * load * GIB) for t in used], pod=POD)
    shown = [(T + t, 1.0) for t in np.arange(-1000, 1000, 15)]
    for resource, limit in {"cpu": CORES, "memory": 8 * GIB}.items():
        points = [(t, limit) for t, _ in shown]
        kept.add("kube_pod_container_resource_limits", points, pod=POD, resource=resource)
    for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
        kept.add(f"pulsar_broker_{name}", shown, pod=POD)
    return kept


def seen(
    kept: Kept, after: float, settings: PrometheusSettings = KUBERNETES, started: Sequence[float] = ()
) -> tuple[dict[int, float], Doubt | None]:
    """Usage (ratio) by resource, and why the broker is not believed, `after` seconds from `T`.

    started: when its container started (seconds from `T`), if that is known.
    """
    load = believed(kept, settings, [POD], T + after, [T + begin for begin in started])
    usage = load.brokers.usage[0] / np.where(load.brokers.limit[0] > 0, load.brokers.limit[0], np.nan)
    return dict(enumerate(usage.tolist())), load.quality.doubts.get(POD)


def check(kept: Kept, after: float, truth: float, started: Sequence[float] = ()) -> bool:
    """Whether the broker is believed, and then it must be right."""
    usage, doubt = seen(kept, after, started=started)
    if doubt is None:
        for resource in (CPU, MEMORY, NETWORK_IN, NETWORK_OUT):
            assert abs(usage[resource] - truth) <= 0.10, (resource, usage, after)
    return doubt is None


def every(seconds: float, begin: float, end: float) -> list[float]:
    return np.arange(begin, end, seconds).tolist()


@pytest.mark.slow
def test_a_broker_that_is_sampled_all_the_time_is_trusted_at_any_moment() -> None:
    kept = broker(Life(-900, every(15, -300, 300)))
    assert all(check(kept, after, 0.95) for after in range(0, 250, 4))


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [5, 10, 15, 20, 30])
def test_a_healthy_fleet_is_trusted_at_any_interval_up_to_half_the_window(seconds: float) -> None:
    chance = np.random.default_rng(int(seconds))
    for _ in range(5):
        times = np.array(every(seconds, -600, 300))
        kept = broker(Life(-900, (times + chance.uniform(-0.03, 0.03, len(times)) * seconds).tolist()))
        assert all(check(kept, after, 0.95) for after in chance.uniform(0, 250, 20))


def test_each_second_scrape_may_fail() -> None:
    kept = broker(Life(-900, every(30, -600, 300)))
    assert all(check(kept, after, 0.95) for after in range(0, 250, 7))


@pytest.mark.slow
def test_kubelets_that_sample_at_uneven_times_are_trusted() -> None:
    chance = np.random.default_rng(3)
    looks = -600 + np.cumsum(chance.uniform(10, 20, 60))
    kept = broker(Life(-900, looks.tolist()))
    assert sum(check(kept, after, 0.95) for after in chance.uniform(0, 200, 100)) >= 98


@pytest.mark.parametrize("after", [0, 5, 10, 20, 30, 45, 60, 110])
def test_a_broker_that_is_no_longer_scraped_is_never_trusted_to_be_idle(after: float) -> None:
    kept = broker(Life(-900, every(15, -300, 1)))
    assert check(kept, after, 0.95) == (after <= 22)
    if after > 22:
        _, doubt = seen(kept, after)
        assert doubt is not None
        told = f"newest sample of cpu {after:.0f} s old, and they came every 15 s: older than 22.5 s; is it scraped?"
        assert (doubt.reason, doubt.text) == (Reason.OUT_DATED_DATA, told)


@pytest.mark.slow
@pytest.mark.parametrize("series", ["first", "second"])
def test_a_restarted_broker_is_trusted_once_its_samples_cover_the_window(series: str) -> None:
    kept = broker(Life(-900, every(15, -300, 0)), Life(0, every(15, 7, 200), series))
    trusted = [after for after in range(120) if check(kept, after, 0.95)]
    assert trusted[-1] == 119
    fresh = [after for after in trusted if after >= 7]
    assert fresh[0] >= (7 + 45 if series == "second" else 7)
    _, doubt = seen(kept, 40)
    if series == "second":
        assert doubt is not None
        told = (
            "its samples of cpu cover 30 s of 60 s, a rate needs 45 s; wait, or widen the source's window if that lasts"
        )
        assert (doubt.reason, doubt.text) == (Reason.UNTRUSTED, told)


@pytest.mark.slow
def test_two_samples_do_not_show_that_the_broker_restarted_between_them() -> None:
    kept = broker(Life(2, [30.4]), Life(61, every(30, 90, 500)), load=1.0)
    trusted = [after for after in range(92, 200) if check(kept, after, 1.0)]
    assert 90 + 45 < trusted[0] <= 90 + 60


def test_counters_alone_hide_two_restarts() -> None:
    """The rule about the start of the container is not superfluous."""
    kept = broker(Life(0, [1.0]), Life(25, [30.4]), Life(51, every(30, 60.1, 500)), load=1.0)
    usage, doubt = seen(kept, 82)
    assert doubt is None
    assert usage[CPU] < 0.2
    said = Doubt(Reason.UNTRUSTED, "a container of its pod started 31 s ago, and a rate covers 60 s")
    assert seen(kept, 82, started=[51])[1] == said


@pytest.mark.slow
def test_a_broker_that_is_scraped_again_after_a_gap_is_measured_again() -> None:
    kept = broker(Life(-900, [*every(15, -300, 0), *every(15, 75, 300)]), load=0.48)
    trusted = [after for after in range(200) if check(kept, after, 0.48)]
    assert not set(range(10, 75 + 45)) & set(trusted)
    assert set(range(75 + 46, 200)) <= set(trusted)


def test_one_missed_scrape_costs_no_more_than_the_time_until_the_next() -> None:
    kept = broker(Life(-900, [t for t in every(15, -300, 300) if t != 0]))
    lost = [after for after in range(-15, 200) if not check(kept, after, 0.95)]
    assert lost == list(range(8, 15))


@pytest.mark.parametrize("after", [10, 30, 60, 180])
def test_memory_has_an_age_of_its_own(after: float) -> None:
    kept = broker(Life(-900, every(15, -300, 300)), memory=every(15, -300, 1))
    assert check(kept, after, 0.95) == (after <= 22)
    if after > 22:
        _, doubt = seen(kept, after)
        assert doubt is not None
        old = "older than 120 s (source.prometheus.maxAge)" if after > 120 else "and they came every 15 s"
        assert doubt.reason is Reason.OUT_DATED_DATA
        assert old in doubt.text


LIVES = st.lists(st.tuples(st.floats(1, 150), st.floats(0, 20), st.booleans()), min_size=1, max_size=4)


def hidden_restarts(lives: Sequence[Life]) -> int:
    """The number of restarts between two samples of a series of which the later one is not the lower one."""
    pairs = [(one, other) for one, other in pairwise(lives) if one.series == other.series]
    return sum(other.sampled[0] - other.begin >= one.sampled[-1] - one.begin for one, other in pairs)


@pytest.mark.slow
@given(
    interval=st.sampled_from([5.0, 10.0, 15.0, 20.0, 30.0]),
    load=st.floats(0.02, 1.0),
    lives=LIVES,
    missed=st.lists(st.tuples(st.floats(0, 400), st.floats(1, 120)), max_size=3),
    jitter=st.integers(0, 2**32 - 1),
    old=st.floats(0, 600),
    shares=st.sampled_from([(1.0,), (0.7, 0.3), (0.5, 0.25, 0.25)]),
    moments=st.lists(st.floats(20, 480), min_size=5, max_size=5),
)
def test_whatever_happens_a_broker_is_right_or_not_trusted(
    interval: float,
    load: float,
    lives: list[tuple[float, float, bool]],
    missed: list[tuple[float, float]],
    jitter: int,
    old: float,
    shares: tuple[float, ...],
    moments: list[float],
) -> None:
    """lives: how long each process runs, how long it is down after, whether the next one has series of its own.
    missed: when scraping stops, for how long; samples bear times of their own, and nothing marks a series' end.
    moments: when the broker is looked at.

    Counters can hide one restart. Two of them within the rate's samples are known from the pod's status alone.
    """
    scrapes = np.array(every(interval, 0, 500))
    scrapes = scrapes + np.random.default_rng(jitter).uniform(0, 0.05, len(scrapes)) * interval
    got = [t for t in scrapes if not any(begin <= t < begin + long for begin, long in missed)]
    runs, begin, end, name = [], -old, 0.0, 0
    for lasts, down, anew in lives:
        end += lasts
        runs.append(Life(begin, [t for t in got if begin <= t < end], str(name)))
        begin, name = end + down, name + anew
        end = begin
    runs.append(Life(begin, [t for t in got if t >= begin], str(name)))
    sampled = [run for run in runs if run.sampled]
    kept, countable = broker(*sampled, load=load, shares=shares), hidden_restarts(sampled) <= 1
    for after in moments:
        check(kept, after, load, [max(run.begin for run in runs if run.begin <= after)])
        if countable:
            check(kept, after, load)


def test_a_restart_shortly_before_a_counter_would_have_wrapped_is_no_wrap() -> None:
    kept = broker(Life(-34, [0.0]), Life(1, every(5, 5, 100)), load=1.0, shares=(0.7, 0.3))
    assert all(check(kept, after, 1.0) for after in range(51, 100))


@pytest.mark.parametrize("kind", ["counter", "gauge"])
def test_one_sample_says_nothing_of_intervals(kind: str) -> None:
    row = {"policy": "p", "pod": POD, "signal": "cpu", "kind": kind, "part": "", "series": "0", "time": T, "value": 5.0}
    (said,) = broker_signals(pa.Table.from_pylist([row], BROKER_SAMPLES), Cycle.of("p", KUBERNETES, T)).to_pylist()
    assert (said["interval"], said["samples"]) == (None, 1)


def pulsar(cpu: Sequence[tuple[float, float]]) -> Kept:
    """A broker that tells its usage itself, CPU as given (seconds from `T`, percent)."""
    kept = Kept()
    for name in GAUGES:
        kept.add(f"pulsar_lb_{name}_usage", [(T + t, value if name == "cpu" else 50.0) for t, value in cpu], pod=POD)
    for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
        kept.add(f"pulsar_broker_{name}", [(T + t, 1.0) for t, _ in cpu], pod=POD)
    return kept


def test_a_broker_of_pulsar_that_has_not_read_its_host_yet_is_not_idle() -> None:
    kept = pulsar([(t, 95.0 if t < 0 or t >= 120 else 0.0 if t < 60 else 3e-4) for t in every(15, -300, 300)])
    assert seen(kept, -1, PULSAR)[1] is None
    for after in range(1, 120, 7):
        _, doubt = seen(kept, after, PULSAR)
        assert doubt == Doubt(Reason.UNTRUSTED, "its cpu is unknown")
    usage, doubt = seen(kept, 121, PULSAR)
    assert (usage[CPU], doubt) == (0.95, None)


def test_a_broker_of_pulsar_whose_page_is_not_scraped_is_not_trusted() -> None:
    kept = pulsar([(t, 95.0) for t in every(15, -300, 1)])
    assert seen(kept, 20, PULSAR)[1] is None
    _, doubt = seen(kept, 30, PULSAR)
    assert doubt is not None
    assert doubt.text.startswith("newest sample of cpu 30 s old, and they came every 15 s")
