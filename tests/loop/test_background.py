"""What runs beside the policies: it outlives defects, and one object's trouble is not another's."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future

import pytest

from faulty_api import until
from manifests import broker, bundle
from plan_clusters import LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, clusters_of, refit
from static_sources import StaticSources
from trimtab_operator import aio, app
from trimtab_operator.aio import at_most
from trimtab_operator.kube.client import FencedError, RefusedError
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.leader_election import Candidacy, Elector
from trimtab_operator.state.cluster import ClusterState
from trimtab_pipeline.api import SourceUnavailableError


@pytest.mark.apiserver
def test_the_bundles_that_each_broker_serves_are_known_without_a_search(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first, *_ = env.names.values()
        env.rest.patch(env.path("bundles", first, "status"), {"status": {"owner": "b"}})
        env.rest.create(env.path("bundles"), bundle("unserved", "0x00000000", "0x10000000"))
        await env.seen()
        expected: dict[str, set[str]] = {}
        for name, owner in env.owners().items():
            if owner:
                expected.setdefault(owner, set()).add(name)
        assert env.cluster.served == expected

        for name in env.bundles():
            env.rest.delete(env.path("bundles", name))
        await env.seen()
        assert env.cluster.served == {}

    run_policy(LEVEL, scenario)


@pytest.mark.apiserver
def test_a_broker_whose_status_is_refused_does_not_hide_that_others_are_lost(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name in ("a", "b"):  # they stand for pods that do not exist
            env.rest.patch(env.path("brokers", name, "status"), {"status": {"ready": True}})
        await env.seen()
        patch = env.cluster.api.patch

        async def refusing(ref, namespace, name, body, **how):  # noqa: ANN001, ANN003, ANN202  the client's own
            if name == "a":
                raise RefusedError("403 a webhook says no", status=403)
            return await patch(ref, namespace, name, body, **how)

        env.cluster.api.patch = refusing  # type: ignore[method-assign]
        await app.discover_once(env.cluster)
        await env.seen()

        assert {name: broker.ready for name, broker in env.cluster.stores.brokers.items.items()} == {
            "a": True,
            "b": False,
        }

    run_policy(LEVEL, scenario)


@pytest.mark.apiserver
def test_a_declared_broker_is_current_once_it_was_read_and_again_after_each_edit(run_policy: RunPolicy) -> None:
    """As Helm's --wait, Flux and kstatus judge: its status speaks of the object's generation."""

    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.create(env.path("brokers"), broker("declared", address="10.0.0.7:8080"))
        for edit in ({}, {"schedulable": False}):
            env.rest.patch(env.path("brokers", "declared"), {"spec": edit})
            await env.seen()
            await app.discover_once(env.cluster)
            found = env.rest.get(env.path("brokers", "declared"))
            assert found["status"]["observedGeneration"] == found["metadata"]["generation"]

    run_policy(LEVEL, scenario)


@pytest.mark.apiserver
def test_discovery_outlives_the_moment_in_which_nothing_may_be_written_any_more(
    run_policy: RunPolicy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "DISCOVER_EVERY", 0.01)

    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.patch(env.path("brokers", "a", "status"), {"status": {"ready": True}})
        await env.seen()
        env.cluster.api.patch = fenced  # type: ignore[method-assign]
        discovering = asyncio.create_task(app.discover_brokers(env.cluster))
        await asyncio.sleep(0.2)

        assert not discovering.done()
        discovering.cancel()
        await asyncio.wait({discovering})

    async def fenced(*_: object, **__: object) -> dict[str, object]:
        raise FencedError("PATCH was not sent: this process does not lead")

    run_policy(LEVEL, scenario)
    assert "discovery: PATCH was not sent" in caplog.text


def test_a_background_task_that_ends_by_a_defect_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aio, "RESTART_AFTER", 0.01)
    runs = []

    async def defective() -> None:
        runs.append(1)
        raise KeyError("metadata")

    async def scenario() -> None:
        task = aio.kept_running("the store", defective)
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert len(runs) > 2
    assert "the store ended, starting it again" in caplog.text


@pytest.mark.apiserver
def test_an_engine_that_fails_to_warm_up_holds_no_cycle_back_for_good(run_policy: RunPolicy) -> None:
    class Cold:
        def warm_up(self) -> Future[None]:
            outcome: Future[None] = Future()
            outcome.set_exception(MemoryError("no heap"))
            return outcome

    async def scenario(env: PolicyEnvironment) -> None:
        context: ClusterState = env.cluster
        context.engine.clear()
        refit(context, sources=Cold())

        warming = asyncio.create_task(app.warm_up(clusters_of(context), context.sources))
        await asyncio.wait_for(context.engine.wait(), 10)
        warming.cancel()

        assert context.process.cold == "MemoryError: no heap"

    run_policy(LEVEL, scenario)


def test_so_many_are_under_way_at_once_and_answers_keep_their_order() -> None:
    under_way, most = 0, 0

    async def double(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (number % 3))
        under_way -= 1
        return 2 * number

    assert asyncio.run(at_most(4, double, range(50))) == [2 * n for n in range(50)]
    assert most == 4
    assert asyncio.run(at_most(4, double, [])) == []


def test_the_first_failure_ends_the_rest() -> None:
    begun = []

    async def fail(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        asyncio.run(at_most(2, fail, range(50)))
    assert begun == [0, 1]


class ColdSources(StaticSources):
    """Sources whose engine does not start until `works`."""

    works = False

    def warm_up(self) -> Future[None]:
        """Fails until it works."""
        if self.works:
            return super().warm_up()
        failed: Future[None] = Future()
        failed.set_exception(SourceUnavailableError("the history can't be used: read-only"))
        return failed


@pytest.mark.apiserver
def test_a_replica_is_ready_while_its_engine_starts(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.cluster.engine.clear()
        env.cluster.process.cold = ""
        elector = Elector(env.cluster.api, env.namespace, Candidacy(identity="me"), Fence())

        ready, why = app.readiness(clusters_of(env.cluster), elector)
        assert (ready, why.endswith("; Spark is starting, and cycles wait for it")) == (True, True)

        env.cluster.engine.set()
        env.cluster.process.cold = None
        assert "Spark" not in app.readiness(clusters_of(env.cluster), elector)[1]

    run_policy(LEVEL, scenario)


@pytest.mark.apiserver
def test_a_standby_whose_engine_never_warmed_up_is_not_ready_until_it_has(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "WARM_AGAIN", 0.01)

    async def scenario(env: PolicyEnvironment) -> None:
        sources = ColdSources(env.source)
        refit(env.cluster, sources=sources)
        elector = Elector(env.cluster.api, env.namespace, Candidacy(identity="me"), Fence())
        warming = asyncio.create_task(app.warm_up(clusters_of(env.cluster), env.cluster.sources))
        await until("the engine failed", lambda: bool(env.cluster.process.cold))

        ready, why = app.readiness(clusters_of(env.cluster), elector)
        assert (ready, "the history can't be used: read-only" in why) == (False, True)
        assert env.cluster.engine.is_set(), "the cycles go on, and tell what is wrong"

        sources.works = True
        await warming
        assert app.readiness(clusters_of(env.cluster), elector)[0]

    run_policy(LEVEL, scenario)
