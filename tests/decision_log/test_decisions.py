"""The record of a decision: what it holds, what is stored of it and when, and what became of its moves."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plan_clusters import HOT_NONE_EMPTY, LEVEL
from policy_environment import WINDOW, PolicyEnvironment, RunPolicy, refit
from recorded_decisions import decided
from records import bundle, moving_bundle
from static_sources import StaticSource, StaticSources
from strategy_testing.clusters import NOW, cluster, with_bundles
from trimtab_operator.decision_log.outcome import followed, measured
from trimtab_operator.decision_log.record import DecisionRecord, Held, ManualMove
from trimtab_operator.decision_log.store import DECISIONS, FACTS, KEPT, decision_store, facts
from trimtab_operator.kube.config_map_store import UnreadableContentError, size
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.observe.departures import Departures
from trimtab_pipeline.api import LoadSource
from trimtab_pipeline.history.dataset import POLICIES, HistoryDataset
from trimtab_pipeline.history.decisions import DecisionHistories, decisions
from trimtab_pipeline.history.files import read_all
from trimtab_strategies.model import BrokerTraits, ClusterLoad, NamespacePolicy, Reason

# -- what it holds --


def test_a_decision_that_moves_holds_figures_line_moves_and_the_brokers_that_got_nothing() -> None:
    record = decided(HOT_NONE_EMPTY, limits={"maxMovesPerCycle": 1})
    hot = record.broker("a")

    assert hot is not None
    assert hot.usage == pytest.approx(80, abs=0.01)
    assert (hot.gives.reason, hot.takes, hot.resource, hot.bundles) == (Reason.OVERLOADED, None, "cpu", 8)
    assert hot.averages["ema"] == pytest.approx(0.8, abs=0.001)
    assert record.line is not None
    assert (record.line.value, record.line.field) == (50.0, "spec.shedder.thresholdShedder.threshold")
    assert record.line.text == "the average of 3 brokers, 40.0 %, plus 10 points"
    [move] = record.moves
    assert (move.source, move.load, move.written, move.outcome) == ("a", 10.0, True, None)
    assert [other.broker for other in move.rejected] == [name for name in "bc" if name != move.destination]
    assert {stay.reason for stay in record.stays if stay.broker == "a"} <= {Reason.CYCLE_CAP, Reason.NOT_CHOSEN}
    assert record.parameters["threshold"] == 10


def test_a_decision_not_to_move_is_recorded_as_well() -> None:
    record = decided(LEVEL)

    assert (record.outcome, record.moves) == (Reason.BALANCED, ())
    assert {view.gives.reason for view in record.brokers} == {Reason.BALANCED}
    assert "highest is a at 50.0 %" in record.brokers[0].gives.detail


def test_what_was_not_measured_is_named() -> None:
    usage = LEVEL.brokers.usage.copy()
    usage[1, 3] = math.nan
    record = decided(replace(LEVEL, brokers=replace(LEVEL.brokers, usage=usage)))
    b = record.broker("b")

    assert b is not None
    assert b.missing == ("networkIn",)
    assert b.takes is not None
    assert b.takes.reason is Reason.NO_LOAD_DATA


def test_a_spent_hour_says_when_it_is_over() -> None:
    record = decided(HOT_NONE_EMPTY, moved=200)

    assert record.caps.last_hour == 200
    assert record.caps.free_at == NOW - 60 + 3600
    assert Reason.HOUR_CAP in {stay.reason for stay in record.stays}


@pytest.mark.parametrize("load", [HOT_NONE_EMPTY, LEVEL], ids=["moves", "moves nothing"])
def test_a_record_is_read_back_unchanged(load: ClusterLoad) -> None:
    record = decided(load)

    assert DecisionRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("old", "reason"),
    [("Contested", Reason.COMPETING_BALANCER), ("TwoHands", Reason.PULSAR_BALANCER_ACTIVE)],
)
def test_a_record_of_an_older_version_is_read_with_the_words_of_today(old: str, reason: Reason) -> None:
    held = Held(reason=reason, detail="it only advises", count=2)
    record = decided(HOT_NONE_EMPTY).model_copy(update={"outcome": reason, "restraint": held, "held_back": (held,)})
    text = record.to_json().replace(f'"{reason}"', f'"{old}"')

    assert text.count(old) == 3
    assert DecisionRecord.from_json(text) == record


def test_manual_moves_of_an_older_version_are_read() -> None:
    move = ManualMove(name="x", source="a", destination="b", at=NOW)
    record = decided(LEVEL).model_copy(update={"manual_moves": (move,)})

    assert '"manualMoves"' in record.to_json()
    assert DecisionRecord.from_json(record.to_json().replace("manualMoves", "byHand")) == record


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}'])
def test_text_that_is_not_a_record_is_refused(text: str) -> None:
    with pytest.raises(UnreadableContentError):
        DecisionRecord.from_json(text)


def test_the_config_map_holds_ten_decisions_of_a_hundred_brokers() -> None:
    drawn = np.random.default_rng(3)
    usage = {f"pulsar-broker-{k}": float(drawn.uniform(0.3, 0.95)) for k in range(100)}
    record = decided(cluster(bundles=20, **usage))
    records = tuple(record.model_copy(update={"at": NOW + k}) for k in range(KEPT))

    kept, content = DECISIONS.fit(records, DECISIONS.encode(records, None))

    assert size(content) < DECISIONS.most_bytes
    assert kept == records
    assert DECISIONS.read({"metadata": {"name": "decisions"}, **content}) == records


def test_a_bundle_that_was_never_measured_refuses_no_cycle() -> None:
    record = decided(with_bundles(LEVEL, short={0: [math.nan] * 4}))

    assert (record.refusal, record.outcome) == (None, Reason.BALANCED)
    assert Reason.NO_LOAD_DATA in {stay.reason for stay in record.stays}


def test_what_refuses_a_cycle_is_recorded_as_its_refusal() -> None:
    record = decided(cluster(bundles=2, a=0.9, b=0.2, c=0.3, lost=["b", "c"]))

    assert record.refusal is not None
    assert (record.refusal.reason, record.outcome) == (Reason.MASS_FAILURE, Reason.MASS_FAILURE)


# -- what is news --


def test_the_same_verdicts_a_minute_later_are_no_news() -> None:
    assert decided(LEVEL, at=NOW + 60).says_the_same(decided(LEVEL))


@pytest.mark.parametrize(
    "later",
    [HOT_NONE_EMPTY, cluster(bundles=2, a=0.56, b=0.56), cluster(bundles=2, a=0.5, b=0.5, unschedulable=["b"])],
    ids=["it moves", "usage is another", "a broker takes nothing"],
)
def test_another_verdict_or_usage_is_news(later: ClusterLoad) -> None:
    assert not decided(later, at=NOW + 60).says_the_same(decided(LEVEL))


# -- what became of it --


def one_move() -> tuple[DecisionRecord, str, str]:
    record = decided(HOT_NONE_EMPTY, limits={"maxMovesPerCycle": 1})
    return record, record.moves[0].name, record.moves[0].destination


def at_rest(name: str, owner: str) -> BundleRecord:
    return bundle(name, owner)


def test_a_move_under_way_is_left_as_it_is() -> None:
    record, name, destination = one_move()

    assert followed(record, {name: moving_bundle(name, "a", destination)}, NOW) is record


def test_a_move_that_its_destination_confirmed_has_landed() -> None:
    record, name, destination = one_move()
    [move] = followed(record, {name: at_rest(name, destination)}, NOW + 9).moves

    assert (move.outcome, move.ended) == (Reason.LANDED, NOW + 9)


@pytest.mark.parametrize(
    ("reason", "outcome"), [("TimedOut", Reason.TIMED_OUT), ("", Reason.SUPERSEDED)], ids=["withdrawn", "taken over"]
)
def test_a_move_that_ended_elsewhere_says_where(reason: str, outcome: Reason) -> None:
    record, name, _ = one_move()
    [move] = followed(record, {name: bundle(name, "a", reason=reason)}, NOW).moves

    assert (move.outcome, move.detail) == (outcome, "its desired owner is a now")


def test_brokers_are_measured_a_window_after_the_last_landing_and_only_once() -> None:
    record, name, destination = one_move()
    landed = followed(record, {name: at_rest(name, destination)}, NOW + 30)
    later = decided(cluster(bundles=2, a=0.72, b=0.25, c=0.25), at=NOW + 60)

    assert measured(landed, later) is landed, "the rates still speak of the time before"
    done = measured(landed, later.model_copy(update={"at": NOW + 30 + landed.window}))
    found = {result.broker: result for result in done.results}
    assert set(found) == {"a", destination}
    assert found["a"].expected == pytest.approx(70, abs=0.1)
    assert found["a"].error == pytest.approx(2, abs=0.1)
    assert measured(done, later.model_copy(update={"at": NOW + 999})) is done


@pytest.mark.parametrize(
    ("written", "outcome", "disturbs"),
    [(True, None, True), (False, Reason.LANDED, True), (False, Reason.NOT_APPROVED, False)],
)
def test_only_a_later_move_that_was_made_disturbs_the_result(
    *, written: bool, outcome: Reason | None, disturbs: bool
) -> None:
    """In mode Approve, each cycle shows moves that may never be made."""
    record, name, destination = one_move()
    landed = followed(record, {name: at_rest(name, destination)}, NOW + 30)
    shown = record.moves[0].model_copy(update={"written": written, "outcome": outcome})
    between = record.model_copy(update={"at": NOW + 31, "moves": (shown,)})
    later = decided(cluster(bundles=2, a=0.72, b=0.25, c=0.25), at=NOW + 30 + landed.window)

    found = measured(landed, later, [between])

    assert {result.disturbed for result in found.results} == {disturbs}


# -- in a cluster --


def stored(env: PolicyEnvironment) -> tuple[DecisionRecord, ...]:
    return DECISIONS.read(env.rest.get(f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-decisions-main"))


@pytest.mark.apiserver
def test_the_api_server_holds_the_last_ten_decisions(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        store = decision_store(env.cluster.api, env.namespace, "main", env.loop.uid)
        earlier = tuple(decided(LEVEL, at=NOW - 60 * k) for k in range(KEPT, 0, -1))
        await store.save(earlier)

        await env.reconcile()

        assert [record.at for record in stored(env)[:-1]] == [record.at for record in earlier[1:]]
        assert stored(env)[-1].moves

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_the_api_server_holds_what_was_decided_what_became_of_it_and_what_was_measured(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        [record] = stored(env)
        assert {move.name for move in record.moves} == set(env.desired_owners()) - {
            name for name, owner in env.desired_owners().items() if owner == env.owners()[name]
        }
        assert all(move.written and move.outcome is None for move in record.moves)

        await env.land()
        env.source = StaticSource(cluster(bundles=2, a=0.5, b=0.35, c=0.35))
        await env.cycle()
        assert {move.outcome for move in stored(env)[0].moves} == {Reason.LANDED}

        env.restart()
        await env.reconcile(after=2 * WINDOW)
        first = stored(env)[0]
        assert first.measured_at is not None
        assert {result.broker for result in first.results} == {"a", "b", "c"}

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_an_idle_cycle_writes_nothing_but_one_status(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        await env.cycle()
        path = f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-decisions-main"
        version, before = env.rest.get(path)["metadata"]["resourceVersion"], env.requests.copy()

        await env.cycle()

        wrote = {verb: n for verb, n in (env.requests - before).items() if verb not in {"GET", "get", "list", "watch"}}
        assert sum(wrote.values()) == 1, wrote
        assert env.rest.get(path)["metadata"]["resourceVersion"] == version

    run_policy(LEVEL, scenario)


class KeepingSources(StaticSources):
    """Sources whose history takes decisions."""

    def __init__(self, source: LoadSource, root: Path) -> None:
        super().__init__(source)
        self.histories = DecisionHistories(root)
        self.keep_decisions = self.histories.keep_decisions
        self.write_facts, self.keep_policy = self.histories.write_facts, self.histories.keep_policy


@pytest.mark.apiserver
def test_the_history_has_every_decision_and_what_came_of_each(run_policy: RunPolicy, tmp_path: Path) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        refit(env.cluster, sources=KeepingSources(env, tmp_path))
        await env.reconcile()
        await env.land()
        env.source = StaticSource(cluster(bundles=2, a=0.5, b=0.35, c=0.35))
        for _ in range(4):
            await env.cycle()

        kept = HistoryDataset(tmp_path).of(f"{env.namespace}/main")
        found = [DecisionRecord.from_json(entry.record) for entry in decisions(kept)]
        assert len(found) == 5, "those that say what the one before said, too"
        assert len(stored(env)) < 5
        assert found[0].measured_at is not None
        assert {move.outcome for move in found[0].moves} == {Reason.LANDED}
        policies = [row for file in kept.files(POLICIES) for row in read_all(file, POLICIES).to_pylist()]
        assert [row["kind"] for row in policies[:2]] == ["spec", "memory"]
        assert json.loads(policies[0]["value"])["mode"] == "Auto"
        assert "shedder" in json.loads(policies[1]["value"])

    run_policy(HOT_NONE_EMPTY, scenario)


def test_facts_name_what_only_resources_know() -> None:
    load = replace(
        cluster(a=0.5, b=0.5),
        policies={"t/n": NamespacePolicy(unload=False)},
        traits={"a": BrokerTraits("4.0.8")},
        publish_gaps={"t/n": 1.25},
    )
    leaving = Departures(ending=frozenset({"b"}), drained=frozenset({"a", "b"}))

    found = {(fact.kind, fact.name): fact.value for fact in facts(load, {"a": 12.5}, leaving)}

    assert {kind for kind, _ in found} == set(FACTS)
    assert found["traits", "a"]["version"] == "4.0.8"
    assert found["namespace", "t/n"]["unload"] is False
    assert found["publishGap", "t/n"] == {"seconds": 1.25}
    assert found["targetWeight", "a"] == {"weight": 12.5}
    assert found["leaving", "a"] == {"causes": ["drained"]}
    assert found["leaving", "b"] == {"causes": ["drained", "ending"]}


@pytest.mark.apiserver
def test_a_disk_that_refuses_keeps_no_policy_from_deciding(run_policy: RunPolicy, tmp_path: Path) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        (tmp_path / "file").write_text("")
        refit(env.cluster, sources=KeepingSources(env, tmp_path / "file"))
        await env.reconcile()
        await env.cycle()

        assert env.condition("Ready") == ("True", "Cycled")
        assert len(stored(env)) == 1, "the API server has it all the same"

    run_policy(LEVEL, scenario)
