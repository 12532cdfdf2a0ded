"""Between two decisions the brokers are looked at, and what can't wait brings the next decision forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from manifests import policy
from policy_scene import Play, PolicyScene
from trimtab_operator.state.settings import InvalidPolicyError, Settings
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.testing import StaticSource
from trimtab_strategies.testing import cluster

apiserver = pytest.mark.apiserver


def settings(**spec: Any) -> Settings:
    made = policy("main", **spec)
    made["metadata"]["namespace"] = "messaging"
    return Settings.of(made)


def overload(percent: float) -> Mapping[str, Any]:
    return {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": percent}}


@pytest.mark.parametrize(
    ("spec", "seconds"), [({}, 10), ({"brokerInterval": "7s"}, 7), ({"interval": "3s"}, 3)], ids=["", "said", "short"]
)
def test_brokers_are_read_every_ten_seconds_unless_the_policy_says_else(spec: dict[str, Any], seconds: float) -> None:
    assert settings(**spec).broker_interval == seconds


def test_brokers_cannot_be_looked_at_less_often_than_decided_about() -> None:
    with pytest.raises(InvalidPolicyError, match="brokerInterval must not exceed interval"):
        settings(interval="30s", brokerInterval="31s")


def test_the_overload_line_is_the_shedders_own_else_85_percent() -> None:
    assert settings(shedder=overload(70)).overload_line == 0.7
    assert settings().overload_line == 0.85


def moved(scene: PolicyScene) -> int:
    return int(scene.status()["lastCycle"].get("moved", 0))


def last_decision(scene: PolicyScene) -> str:
    return str(scene.status()["lastCycle"]["time"])


@apiserver
def test_a_broker_s_load_is_kept_fresh_between_decisions(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.cycle()
        decided = last_decision(scene)
        scene.source = StaticSource(cluster(a=0.6, b=0.5, c=0.5))
        await scene.reconcile(after=5)
        assert scene.rest.get(scene.path("brokers", "a"))["status"]["load"]["cpu"] == 50
        await scene.reconcile(after=5)
        assert scene.rest.get(scene.path("brokers", "a"))["status"]["load"]["cpu"] == 60
        assert last_decision(scene) == decided

    play(cluster(a=0.5, b=0.5, c=0.5), story, mode="DryRun")


@apiserver
def test_a_broker_that_crosses_the_line_brings_the_decision_forward_once(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.cycle()
        decided = last_decision(scene)
        scene.source = StaticSource(cluster(a=0.9, b=0.5, c=0.5))
        await scene.reconcile(after=10)
        await scene.reconcile()
        early = last_decision(scene)
        assert early > decided
        for _ in range(3):
            await scene.reconcile(after=10)
        await scene.reconcile(after=5)
        assert last_decision(scene) == early

    play(cluster(a=0.5, b=0.5, c=0.5), story, mode="DryRun")


@apiserver
def test_decisions_brought_forward_count_no_interval_unless_they_act(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.cycle()
        for _ in range(3):
            scene.source = StaticSource(scene.load)
            await scene.reconcile(after=10)
            scene.source = StaticSource(hot)
            before = last_decision(scene)
            await scene.reconcile(after=10)
            await scene.reconcile()
            assert last_decision(scene) > before, "it was not brought forward"
            assert moved(scene) == 0
        await scene.cycle()
        assert moved(scene) == 0
        await scene.cycle()
        assert moved(scene) > 0

    hot = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1]}, a=0.95, b=0.2, c=0.2)
    calm = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1]}, a=0.2, b=0.2, c=0.2)
    play(calm, story, mode="Auto", shedder={"type": "AvgShedder", "avgShedder": {"hitCountHigh": 2}})


@apiserver
def test_a_broker_that_dies_brings_the_decision_forward_even_without_metrics(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.cycle()
        scene.rest.patch(scene.path("brokers", "c", "status"), {"status": {"ready": False}})
        broken = StaticSource(scene.load)
        broken.error = SourceUnavailableError("http://prometheus:9090 refused the connection")
        scene.source = broken
        await scene.reconcile(after=10)
        await scene.reconcile()
        assert scene.condition("DataTrusted") == ("False", "SourceUnavailable")

    play(cluster(a=0.5, b=0.5, c=0.5), story, mode="DryRun")


def broker_columns(scene: PolicyScene, name: str) -> tuple[int, float]:
    """Bundles and CPU % of a broker, as `kubectl get brokers` shows them."""
    status = scene.rest.get(scene.path("brokers", name))["status"]
    return status["bundles"], status["load"]["cpu"]


@apiserver
def test_columns_are_kept_fresh_while_the_policy_is_paused_and_decide_nothing(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.cycle()
        scene.edit(paused=True)
        await scene.cycle()
        decided = last_decision(scene)
        scene.source = StaticSource(cluster(a=0.9, b=0.5, c=0.5))
        await scene.reconcile(after=10)
        await scene.reconcile()

        assert broker_columns(scene, "a")[1] == 90
        assert last_decision(scene) == decided, "who is paused decides nothing early, either"

    play(cluster(a=0.5, b=0.5, c=0.5), story)


def moves_in_columns(scene: PolicyScene) -> tuple[int, int]:
    """Proposed and In Flight of the policy, as `kubectl get bpol` shows them."""
    status = scene.status()
    return status["proposal"]["total"], status["inFlight"]


HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)


@apiserver
def test_columns_follow_moves_as_they_land_and_not_a_cycle_later(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        decided, moving = last_decision(scene), moved(scene)
        assert moving >= 2
        assert moves_in_columns(scene) == (moving, moving)
        assert broker_columns(scene, "a")[0] == 8

        first = next(name for name, desired in scene.desired_owners().items() if desired != scene.owners()[name])
        confirm(scene, first)
        await scene.reconcile(after=2)
        assert moves_in_columns(scene) == (moving - 1, moving - 1)
        assert first not in {move["bundle"] for move in scene.status()["proposal"]["moves"]}

        await scene.land()
        await scene.reconcile(after=2)
        assert moves_in_columns(scene) == (0, 0)
        assert scene.status()["proposal"]["moves"] == []
        assert broker_columns(scene, "a")[0] == 8 - moving
        assert last_decision(scene) == decided

    play(HOT, story)


def confirm(scene: PolicyScene, bundle: str) -> None:
    """The broker that is to have the bundle serves it."""
    found = scene.bundles()[bundle]
    status = {"owner": found["spec"]["owner"], "observedGeneration": found["metadata"]["generation"]}
    scene.rest.patch(scene.path("bundles", bundle, "status"), {"status": status})


@apiserver
def test_what_is_only_shown_stays_proposed_whatever_lands(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        proposed = scene.status()["proposal"]["total"]
        scene.give(min(scene.desired_owners()), "c")
        await scene.reconcile(after=2)
        assert moves_in_columns(scene) == (proposed, 1)

        await scene.land()
        await scene.reconcile(after=2)
        assert moves_in_columns(scene) == (proposed, 0)

    play(HOT, story, mode="DryRun")


@apiserver
def test_bundles_of_brokers_are_counted_even_if_nothing_can_be_measured(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        broken = StaticSource(scene.load)
        broken.error = SourceUnavailableError("http://prometheus:9090 refused the connection")
        scene.source = broken
        scene.edit(paused=True)
        await scene.reconcile(after=1)
        await scene.land()
        await scene.reconcile(after=10)

        assert broker_columns(scene, "a")[0] == len(scene.context.served["a"]) < 8

    play(HOT, story)
