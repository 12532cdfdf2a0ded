"""Recent samples: a ring per policy, from the history after a restart, and a new one for another source."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kept_histories import AT, LOAD, keep
from plan_clusters import HOT_NONE_EMPTY
from policy_environment import PolicyEnvironment, RunPolicy, eager, refit
from static_sources import StaticSource, StaticSources
from trimtab_operator.app import new_cluster
from trimtab_operator.loop.preview import preview
from trimtab_operator.observe import recent_samples
from trimtab_operator.observe.recent_samples import PAST_MINUTES, with_recent
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.pulsar_link import Compared
from trimtab_operator.state.settings import Settings
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.api import LoadSources, SourceUnavailableError
from trimtab_pipeline.factory import direct_sources
from trimtab_pipeline.history.recalled_samples import recalled_samples
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import RecentSamples
from trimtab_strategies.shedding.trim.samples import CycleSamples

API: Any = object()
SAMPLED = replace(LOAD, bundles=replace(LOAD.bundles, newest=LOAD.bundles.short))
URL = "http://prometheus:9090"


class BrokenHistory(StaticSources):
    """Sources whose history fails with `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(StaticSource(LOAD))
        self.error = error
        self.asked = 0

    def recall_samples(self, policy: str, begin: float, end: float) -> Iterator[CycleSamples]:  # noqa: ARG002
        """Fail while the samples are read."""
        self.asked += 1
        yield from ()
        raise self.error


class KeptHistory(StaticSources):
    """Sources that always measure `load`, with the history below `root`."""

    def __init__(self, root: Path, load: ClusterLoad) -> None:
        super().__init__(StaticSource(load))
        self.root = root

    def recall_samples(self, policy: str, begin: float, end: float) -> Iterator[CycleSamples]:
        """The samples in the history."""
        return recalled_samples(self.root, policy, begin, end)


def settings(name: str = "one", **source: Any) -> Settings:
    """A policy that reads this Prometheus."""
    spec = {**eager(), "source": {"prometheus": {"url": URL, **source}}}
    return Settings.of({"metadata": {"name": name, "namespace": "prod"}, "spec": spec})


def process(sources: LoadSources) -> ClusterState:
    """The state of an operator that has just started."""
    return new_cluster(API, "prod", sources, Metrics())


def seen(state: ClusterState, minute: float, policy: Settings, load: ClusterLoad = SAMPLED) -> RecentSamples:
    """The recent samples of a snapshot of `load` at `minute`."""
    recent = asyncio.run(with_recent(state, policy, replace(load, now=AT + 60 * minute))).recent
    assert recent is not None
    return recent


def test_each_policy_has_a_ring_of_its_own() -> None:
    state = process(StaticSources(StaticSource(LOAD)))
    assert [len(seen(state, minute, settings())) for minute in range(3)] == [1, 2, 3]
    assert len(seen(state, 3, settings("two"))) == 1
    assert len(seen(state, 3, settings())) == 4
    state.leave("one")
    assert len(seen(state, 4, settings())) == 1


def test_a_restart_goes_on_from_the_history(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(tmp_path, "prod/one", range(5), SAMPLED)
    state = process(direct_sources(tmp_path))
    with caplog.at_level(logging.INFO):
        recent = [seen(state, minute, settings()) for minute in (5, 6)][-1]
    assert recent.time.tolist() == [AT + 60 * minute for minute in range(7)]
    for minute in recent.bundles:
        np.testing.assert_allclose(minute, recent.bundles[-1], rtol=5e-4)
    assert recent.cpu.tolist() == [[0.8, 0.2]] * 7
    assert caplog.messages == ["policy prod/one: recent samples: 5 minutes from the history"]


def test_bundles_and_brokers_that_are_gone_are_dropped_and_new_ones_have_no_past(tmp_path: Path) -> None:
    keep(tmp_path, "prod/one", range(2), SAMPLED)
    names = ("public/a/0x00000000_0x10000000", *SAMPLED.bundles.names[1:])
    brokers = replace(SAMPLED.brokers, names=("c", "b"))
    now = replace(SAMPLED, bundles=replace(SAMPLED.bundles, names=names), brokers=brokers)
    recent = seen(process(direct_sources(tmp_path)), 2, settings(), now)
    assert np.isnan(np.stack(recent.bundles)[:, :, 0]).tolist() == [[True, False, False, False]] * 2 + [[False] * 4]
    assert np.isnan(recent.cpu).tolist() == [[True, False]] * 2 + [[False, False]]


def test_a_history_that_is_too_old_is_no_evidence(tmp_path: Path) -> None:
    keep(tmp_path, "prod/one", range(5), SAMPLED)
    assert len(seen(process(direct_sources(tmp_path)), 60, settings())) == 1


@pytest.mark.parametrize("error", [OSError("the disk is gone"), ValueError("no such bucket"), KeyError("bundle")])
def test_a_history_that_cant_be_read_is_told_once_and_costs_no_cycle(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    sources = BrokenHistory(error)
    state = process(sources)
    assert [len(seen(state, minute, settings())) for minute in range(3)] == [1, 2, 3]
    assert sources.asked == len(caplog.messages) == 1
    assert caplog.messages[0].startswith("policy prod/one: the history can't be read, so the recent samples begin now")


@pytest.mark.parametrize(
    "source",
    [{"url": "http://thanos:9090"}, {"resources": "Pulsar"}, {"queries": {"cpu": "sum by (pod) (my_cpu)"}}],
    ids=["url", "resources", "queries"],
)
def test_samples_of_another_source_are_not_compared(source: dict[str, Any]) -> None:
    state = process(StaticSources(StaticSource(LOAD)))
    assert [len(seen(state, minute, settings())) for minute in range(2)] == [1, 2]
    assert [len(seen(state, minute, settings(**source))) for minute in (2, 3)] == [1, 2]
    assert len(seen(state, 4, settings(**source, window="90s"))) == 3


def test_a_clock_that_was_set_back_begins_again() -> None:
    """Until the clock had passed its newest sample, the ring would show old minutes as the present ones."""
    state = process(StaticSources(StaticSource(LOAD)))
    assert [len(seen(state, minute, settings())) for minute in (60, 61, 62)] == [1, 2, 3]
    assert len(seen(state, 61.5, settings())) == 3
    assert [len(seen(state, minute, settings())) for minute in (2, 3)] == [1, 2]


class Past:
    """Answers about past minutes: `load`, except for `absent` ones, or `error` from the minute `broken` on.

    held: minutes without an answer until they are released. asked: minutes, in the order of the questions.
    """

    def __init__(self, absent: Sequence[int] = (), held: Sequence[int] = (), broken: int = -99) -> None:
        self.absent, self.broken = absent, broken
        self.held: dict[int, Future[CycleSamples | None]] = {minute: Future() for minute in held}
        self.error: Exception = SourceUnavailableError("the server is gone")
        self.asked: list[int] = []

    def __call__(self, at: float) -> Future[CycleSamples | None]:
        minute = round((at - AT) / 60)
        self.asked.append(minute)
        if minute in self.held:
            return self.held[minute]
        answer: Future[CycleSamples | None] = Future()
        if minute <= self.broken:
            answer.set_exception(self.error)
        else:
            answer.set_result(None if minute in self.absent else self.samples(minute))
        return answer

    def samples(self, minute: int) -> CycleSamples:
        """What was sampled in that minute: each bundle has 100 times as much."""
        return CycleSamples.of(AT + 60 * minute, SAMPLED.brokers, SAMPLED.bundles.names, 100 * SAMPLED.bundles.newest)


async def looked(state: ClusterState, minute: float, past: Past, policy: Settings | None = None) -> RecentSamples:
    """As `seen`, by a source that can measure the past."""
    recent = (await with_recent(state, policy or settings(), replace(SAMPLED, now=AT + 60 * minute), past)).recent
    assert recent is not None
    return recent


def minutes(recent: RecentSamples) -> list[float]:
    """The minutes of the rows."""
    return ((recent.time - AT) / 60).round(3).tolist()


def test_the_first_cycle_has_the_minutes_before_it() -> None:
    state, past = process(StaticSources(StaticSource(LOAD))), Past()

    async def scenario() -> None:
        first, second = [await looked(state, minute, past) for minute in (0, 1)]
        assert minutes(first) == [*range(-PAST_MINUTES, 1)]
        assert minutes(second) == [*range(1 - PAST_MINUTES, 2)]
        ratio = first.bundles / SAMPLED.bundles.newest[:, :1][np.newaxis]
        np.testing.assert_allclose(ratio[:-1], 100 * ratio[-1:].repeat(PAST_MINUTES, axis=0))
        assert first.cpu.tolist() == [[0.8, 0.2]] * (PAST_MINUTES + 1)

    asyncio.run(scenario())
    assert past.asked == [*range(-1, -PAST_MINUTES - 1, -1)]


def test_only_what_the_history_lacks_is_measured(tmp_path: Path) -> None:
    keep(tmp_path, "prod/one", range(5), SAMPLED)
    past = Past()
    recent = asyncio.run(looked(process(direct_sources(tmp_path)), 8, past))
    assert (past.asked, minutes(recent)) == ([7, 6, 5], [*range(9)])
    asyncio.run(looked(process(direct_sources(tmp_path)), 5.5, unwanted := Past()))
    assert unwanted.asked == []


def test_a_minute_without_data_is_no_row() -> None:
    past = Past(absent=[-2, -5])
    recent = asyncio.run(looked(process(StaticSources(StaticSource(LOAD))), 0, past))
    assert minutes(recent) == [minute for minute in range(-PAST_MINUTES, 1) if minute not in {-2, -5}]
    nothing = Past(absent=range(-PAST_MINUTES, 0))
    assert minutes(asyncio.run(looked(process(StaticSources(StaticSource(LOAD))), 0, nothing))) == [0]


@pytest.mark.parametrize("error", [SourceUnavailableError("the server is gone"), RuntimeError("a defect")])
def test_a_past_that_cant_be_measured_is_told_once_and_costs_no_cycle(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    state, past = process(StaticSources(StaticSource(LOAD))), Past(broken=-3)
    past.error = error

    async def scenario() -> list[list[float]]:
        return [minutes(await looked(state, minute, past)) for minute in range(3)]

    assert asyncio.run(scenario()) == [[-2, -1, 0], [-2, -1, 0, 1], [-2, -1, 0, 1, 2]]
    assert past.asked == [-1, -2, -3]
    [message] = caplog.messages
    assert message.startswith("policy prod/one: recent samples: the past can't be measured, so they begin now")


def test_a_slow_past_does_not_hold_up_the_first_cycle_and_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_samples, "WAIT", 0.05)
    state, past = process(StaticSources(StaticSource(LOAD))), Past(held=[-3])

    async def scenario() -> None:
        assert minutes(await looked(state, 0, past)) == [-2, -1, 0]
        assert minutes(await looked(state, 1, past)) == [-2, -1, 0, 1]
        past.held[-3].set_result(past.samples(-3))
        await asyncio.sleep(0.05)
        assert minutes(await looked(state, 2, past)) == [*range(2 - PAST_MINUTES, 3)]

    asyncio.run(scenario())


def test_a_past_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recent_samples, "BUDGET", 0.05)
    state, past = process(StaticSources(StaticSource(LOAD))), Past(held=[-3])

    async def scenario() -> None:
        assert minutes(await looked(state, 0, past)) == [-2, -1, 0]
        assert past.held[-3].cancelled()

    asyncio.run(scenario())
    assert caplog.messages == ["policy prod/one: recent samples: 2 past minutes were measured in 0.05 s"]


def test_a_policy_that_leaves_measures_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_samples, "WAIT", 0.05)
    state, past = process(StaticSources(StaticSource(LOAD))), Past(held=[-1])

    async def scenario() -> None:
        assert minutes(await looked(state, 0, past)) == [0]
        state.leave("one")
        await asyncio.sleep(0.05)
        assert past.held[-1].cancelled()

    asyncio.run(scenario())
    assert past.asked == [-1]


def test_the_past_of_another_source_is_measured_again() -> None:
    state, past = process(StaticSources(StaticSource(LOAD))), Past()

    async def scenario() -> None:
        await looked(state, 0, past)
        recent = await looked(state, 1, past, settings(url="http://thanos:9090"))
        assert minutes(recent) == [*range(1 - PAST_MINUTES, 2)]

    asyncio.run(scenario())


@pytest.mark.apiserver
def test_a_preview_looks_back_as_far_as_its_history_does(run_policy: RunPolicy, tmp_path: Path) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        keep(tmp_path, f"{env.namespace}/main", range(3), HOT_NONE_EMPTY)
        env.clock = AT + 180
        refit(env.cluster, sources=KeptHistory(tmp_path, HOT_NONE_EMPTY))

        recent = (await preview(env.cluster, "main")).snapshot.load.recent

        assert recent is not None
        assert recent.time.tolist() == [AT, AT + 60, AT + 120, AT + 180]

    run_policy(HOT_NONE_EMPTY, scenario, mode="DryRun")


@pytest.mark.apiserver
def test_cycles_and_previews_decide_with_the_recent_samples(run_policy: RunPolicy) -> None:
    """A broker that Pulsar's own figures contradict has no sample of that minute."""
    load = replace(HOT_NONE_EMPTY, bundles=replace(HOT_NONE_EMPTY.bundles, newest=HOT_NONE_EMPTY.bundles.short))

    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        await env.cycle()
        env.cluster.link.spec = PulsarSpec(admin_url="http://pulsar:8080")
        env.cluster.link.cross_check.compared["a"] = Compared(shown=9000.0, reported=0.0, at=200.0, odd=4)
        env.clock += 60.0

        snapshot = (await preview(env.cluster, "main")).snapshot

        recent = snapshot.load.recent
        assert recent is not None
        assert recent.time.tolist() == [env.clock - 120, env.clock - 60, env.clock]
        assert np.isnan(recent.cpu).tolist() == [[False] * 3, [False] * 3, [True, False, False]]
        assert np.isfinite(recent.bundles).all()

    run_policy(load, scenario, mode="DryRun")


@pytest.mark.apiserver
def test_a_cycle_keeps_no_samples_of_the_one_before_alive(run_policy: RunPolicy) -> None:
    """At 60,000 bundles they take megabytes: nothing may hold a snapshot until garbage is collected."""

    async def scenario(env: PolicyEnvironment) -> None:
        gc.disable()
        try:
            recent = (await preview(env.cluster, "main")).snapshot.load.recent
            assert recent is not None
            before = weakref.ref(recent)
            del recent
            assert before() is not None
            await env.cycle()
            assert before() is None
        finally:
            gc.enable()

    run_policy(HOT_NONE_EMPTY, scenario, mode="DryRun")
