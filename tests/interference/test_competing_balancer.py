"""Bundles that come back are left alone. A balancer that reverts the policy's moves makes it advise only."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from policy_environment import PolicyEnvironment, RunPolicy, eager
from records import bundle, moving_bundle
from trimtab_operator.interference.controller import flapping, quarantined
from trimtab_operator.kube.client import ApiUnavailableError
from trimtab_operator.resources.bundle import RELEASE
from trimtab_operator.state.competing_balancer import FIRST_RETREAT, LONGEST_RETREAT, Competition, writer_of_owner
from trimtab_operator.state.ownership_changes import ChangeKind, OwnershipChange, OwnershipChanges
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.testing import cluster

HOUR = 3600.0


def change(left: str, taken: str, at: float, kind: ChangeKind = ChangeKind.MOVED) -> OwnershipChange:
    return OwnershipChange("b", left, taken, at, kind)


def seen(*records: Any, lost: str = "") -> OwnershipChanges:
    """What is known after a bundle was seen as each of `records`, a second apart."""
    ownership_changes = OwnershipChanges(lambda broker: broker != lost)
    for at, (old, new) in enumerate(pairwise(records)):
        ownership_changes.update(old, new, float(at))
    return ownership_changes


def kinds(ownership_changes: OwnershipChanges) -> list[ChangeKind]:
    return [change.kind for change in ownership_changes.take(lambda _: True, 10.0)]


OURS = {"assigned_owner": "y", "assigned_at": 0.0, "reason": "Overloaded"}
FLYING = moving_bundle(**OURS, resource_version="8")
LANDED = bundle(owner="y", **OURS, generation=4, observed_generation=4, resource_version="9")


def test_a_desired_owner_that_is_carried_out_is_a_move() -> None:
    released = bundle(owner="y", serving="", **OURS, generation=4, resource_version="9")

    assert kinds(seen(bundle(), FLYING, released, LANDED)) == [ChangeKind.MOVED]


def test_an_owner_that_changes_by_itself_is_external() -> None:
    assert kinds(seen(bundle(), bundle(serving="z", resource_version="8"))) == [ChangeKind.EXTERNAL]


def test_a_move_of_ours_that_goes_back_by_itself_is_reverted() -> None:
    back = bundle(owner="y", serving="x", **OURS, generation=4, observed_generation=4, resource_version="10")

    assert kinds(seen(bundle(), FLYING, LANDED, back)) == [ChangeKind.MOVED, ChangeKind.REVERTED]


def test_another_client_that_writes_over_a_fresh_desired_owner_of_ours_is_distinguished_from_our_own_withdrawal() -> (
    None
):
    theirs = bundle(owner="x", **OURS, generation=5, observed_generation=4, resource_version="9")
    withdrawn = bundle(owner="x", assigned_owner="x", assigned_at=1.0, reason="TimedOut", generation=5)

    assert kinds(seen(FLYING, theirs)) == [ChangeKind.OVERRULED]
    assert kinds(seen(FLYING, withdrawn)) == []


def overruled(ownership_changes: OwnershipChanges, *names: str, at: float) -> list[ChangeKind]:
    """The kinds of change when a person overwrites new desired owners of these bundles, ten seconds apart."""
    for number, name in enumerate(names):
        ours = moving_bundle(name, **{**OURS, "assigned_at": at})
        ownership_changes.update(
            ours, moving_bundle(name, destination="z", **{**OURS, "assigned_at": at}), at + 10 * number
        )
    return [change.kind for change in ownership_changes.take(lambda _: True, at)]


def test_one_batch_of_desired_owners_is_no_contest_and_the_same_bundle_again_is() -> None:
    ownership_changes = OwnershipChanges(lambda _: True)

    assert overruled(ownership_changes, "b1", "b2", "b3", "b4", "b5", "b6", at=0) == [ChangeKind.OVERRULED] * 6
    assert overruled(ownership_changes, "b3", "b1", at=60) == [ChangeKind.OVERWRITTEN] * 2
    assert overruled(ownership_changes, "b1", at=20 * HOUR) == [ChangeKind.OVERWRITTEN]
    assert overruled(ownership_changes, "b1", at=45 * HOUR) == [ChangeKind.OVERRULED], "once a day is not a competition"


def test_each_further_batch_within_the_hour_counts_once() -> None:
    """Who writes over other bundles each time is found, too: a tool that holds owners, not a person in one go."""
    ownership_changes = OwnershipChanges(lambda _: True)
    told = [overruled(ownership_changes, f"b{at}", f"c{at}", f"d{at}", at=at) for at in (0, 60, 600, 660, 1200)]

    assert [found.count(ChangeKind.OVERWRITTEN) for found in told] == [0, 0, 1, 0, 1]
    assert overruled(ownership_changes, "e", "f", at=5000) == [ChangeKind.OVERRULED] * 2


def test_a_bundle_that_a_lost_broker_leaves_behind_neither_flaps_nor_fights() -> None:
    assert kinds(seen(bundle(), bundle(serving="z", resource_version="8"), lost="x")) == []


@pytest.mark.parametrize("reason", ["BrokerLost", "TimedOut", "Unowned", "Restored", "Drained", "RollingOut"])
def test_what_upkeep_or_a_drain_moves_does_not_count_as_a_change_of_owner(reason: str) -> None:
    housed = bundle(owner="z", assigned_owner="z", reason=reason, generation=4, resource_version="9")
    ownership_changes = seen(bundle(), housed)

    assert (kinds(ownership_changes), ownership_changes.history("b")) == ([], ())


def test_a_child_that_a_policy_placed_and_that_goes_back_is_reverted() -> None:
    ours = {**OURS, "reason": "MsgRate"}
    landed = bundle(owner="y", **ours, generation=4, observed_generation=4, resource_version="9")
    back = bundle(owner="y", serving="x", **ours, generation=4, observed_generation=4, resource_version="10")

    assert kinds(seen(bundle(), moving_bundle(**ours, resource_version="8"), landed, back)) == [
        ChangeKind.MOVED,
        ChangeKind.REVERTED,
    ]


def test_a_person_may_move_a_bundle_back_and_forth() -> None:
    there = bundle(owner="y", assigned_owner="x", generation=4, resource_version="8")
    back = bundle(owner="x", assigned_owner="", generation=5, resource_version="9")
    ownership_changes = seen(bundle(), there, back)

    assert kinds(ownership_changes) == [ChangeKind.DESIRED, ChangeKind.DESIRED]
    assert flapping(ownership_changes.history("b"), 1800) == ""
    assert (
        flapping([change("x", "y", 0), change("y", "x", 60, ChangeKind.DESIRED)], 1800) != ""
    )  # that was the policy's move


def test_changes_of_yesterday_are_forgotten() -> None:
    ownership_changes = seen(bundle(), bundle(serving="z", resource_version="8"))
    ownership_changes.take(lambda _: True, 100.0)
    assert ownership_changes.history("b")

    ownership_changes.take(lambda _: True, 25 * HOUR)
    assert not ownership_changes.history("b")


def test_a_bundle_flaps_when_it_comes_back_within_the_cool_down_or_changes_three_times() -> None:
    assert flapping([change("x", "y", 0), change("y", "x", 60)], 1800) == "came back to x 60 s after it had left"
    assert flapping([change("x", "y", 0), change("y", "x", 1801)], 1800) == ""
    three = [change("x", "y", 0), change("y", "z", 60), change("z", "w", 90)]
    assert flapping(three, 1800) == "changed its owner 3 times in 90 s"
    assert flapping(three, 80) == ""
    assert flapping([], 1800) == ""


def test_a_quarantine_ends_by_time_by_release_and_with_the_bundle() -> None:
    before = {"old": 50.0, "kept": 500.0, "released": 500.0}

    assert quarantined(before, {"new": "came back"}, 700.0, 100.0, ["released"]) == {"kept": 500.0, "new": 700.0}


def test_neither_quarantine_nor_retreat_outlasts_its_limit_when_the_clock_is_set_back() -> None:
    assert quarantined({"b": 5000.0}, {}, 700.0, 100.0, []) == {"b": 700.0}
    assert not Competition((), 1e9, 1).retreating(1e9 - LONGEST_RETREAT - 1)
    assert Competition((), 1e9, 1).retreating(1e9 - LONGEST_RETREAT)


def test_each_retreat_is_twice_as_long_as_the_last_until_there_was_a_day_of_peace() -> None:
    competition, now, lengths = Competition(), 1e6, []
    for _ in range(7):
        competition = competition.after([change("x", "y", now, ChangeKind.REVERTED)] * 5, 5, now)
        lengths.append(competition.until - now)
        now = competition.until + 1
    assert lengths == [min(LONGEST_RETREAT, FIRST_RETREAT * 2**i) for i in range(7)]

    now += 25 * HOUR
    assert competition.after([change("x", "y", now, ChangeKind.OVERWRITTEN)] * 5, 5, now).until - now == FIRST_RETREAT


def test_four_reverted_moves_an_hour_or_external_ones_are_no_fight() -> None:
    reverted = [change("x", "y", 0, ChangeKind.REVERTED)] * 4

    assert not Competition().after(reverted, 5, 0).retreating(1)
    assert not Competition().after(reverted, 5, 0).after(reverted, 5, 2 * HOUR).retreating(2 * HOUR)
    assert not Competition().after([change("x", "y", 0, ChangeKind.EXTERNAL)] * 50, 5, 0).retreating(1)


def test_what_was_moved_before_a_retreat_and_is_reverted_during_it_makes_no_second_one() -> None:
    reverted = [change("x", "y", 0, ChangeKind.REVERTED)] * 5
    competition = Competition().after(reverted, 5, 0).after(reverted, 5, 600).after([], 5, FIRST_RETREAT + 1)

    assert not competition.retreating(FIRST_RETREAT + 2)
    assert competition.retreats == 1


@given(st.dictionaries(st.text(max_size=5), st.floats(0, 1e10)), st.lists(st.floats(0, 1e10), max_size=5))
def test_quarantine_and_fight_survive_a_restart(quarantine: dict[str, float], undone: list[float]) -> None:
    before = PolicyState(quarantine=quarantine, competition=Competition(tuple(undone), 5.0, 2))

    assert PolicyState.from_json(before.to_json()) == before


def test_the_writer_of_the_owner_is_read_from_the_managed_fields() -> None:
    fields = [
        {"manager": "trimtab", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:owner": {}}}},
        {"manager": "argocd", "time": "2026-01-01T00:00:05Z", "fieldsV1": {"f:spec": {"f:owner": {}}}},
        {"manager": "kubectl", "time": "2026-01-01T00:00:09Z", "fieldsV1": {"f:spec": {"f:pinned": {}}}},
    ]

    assert writer_of_owner({"metadata": {"managedFields": fields}}) == "argocd"
    assert writer_of_owner({"metadata": {}}) == ""


HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)


def serve(env: PolicyEnvironment, name: str, owner: str) -> None:
    """What another balancer does: the owner changes without a desired owner."""
    env.rest.patch(env.path("bundles", name, "status"), {"status": {"owner": owner, "state": "Owned"}})


async def brought_back(env: PolicyEnvironment) -> str:
    """A bundle that the policy moved off broker a, and that another client has just moved back."""
    await env.reconcile()
    moved = min(name for name, desired in env.desired_owners().items() if desired != env.owners()[name])
    await env.land()
    await env.reconcile(after=1)
    serve(env, moved, "a")
    return moved


@pytest.mark.apiserver
def test_a_bundle_that_another_client_brings_back_is_left_alone_until_it_is_released(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        moved = await brought_back(env)
        await env.reconcile(after=5)

        assert env.condition("Flapping") == ("True", "Quarantined")
        assert env.status()["quarantined"]["bundles"][0]["bundle"] == moved
        assert any(reason == "Quarantined" and moved in note for reason, note in env.events())

        await env.land()
        env.restart()
        await env.reconcile(after=2000)  # past the cool-down
        assert env.desired_owners()[moved] == "a"
        assert env.status()["lastCycle"]["heldBack"]["Quarantined"] == 1

        env.rest.patch(env.path("bundles", moved), {"metadata": {"annotations": {"trimtab.dev/release": "true"}}})
        await env.reconcile(after=1)
        assert env.condition("Flapping") == ("False", "Settled")
        assert "trimtab.dev/release" not in env.bundles()[moved]["metadata"].get("annotations", {})

    run_policy(HOT, scenario)


async def overwrite(env: PolicyEnvironment, count: int = 1) -> list[str]:
    """A competing balancer writes broker a over new desired owners of the policy, and again after the next moves."""
    names: list[str] = []
    for again in (False, True):
        wanted = [name for name, desired in env.desired_owners().items() if desired != env.owners()[name]]
        assert set(names) <= set(wanted)
        names = names or sorted(wanted)[:count]
        for name in names:
            env.give(name, "a")
        await env.reconcile(after=1)
        if not again:
            assert env.condition("CompetingBalancer") in {("", ""), ("False", "Alone")}, (
                "one batch of desired owners is not a competition"
            )
            await settled(env)
            await env.cycle()
    return names


async def settled(env: PolicyEnvironment) -> None:
    """What people asked for has landed, and is noted as theirs."""
    await env.land()
    await env.reconcile(after=1)
    await env.land()


@pytest.mark.apiserver
def test_a_person_who_moves_bundles_is_not_a_competing_balancer_and_one_batch_makes_no_retreat(
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        wanted = [name for name, desired in env.desired_owners().items() if desired != env.owners()[name]]
        assert len(wanted) >= 2
        for name in wanted:
            env.give(name, "a")
        await env.reconcile(after=1)

        assert env.condition("CompetingBalancer") == ("", "")
        assert env.condition("Acting") == ("True", "Acting")

    run_policy(HOT, scenario, **eager(maxUndoneMoves=1))


@pytest.mark.apiserver
def test_what_people_write_while_the_policy_is_paused_is_no_contest(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        name = min(name for name, desired in env.desired_owners().items() if desired != env.owners()[name])
        env.give(name, "a")
        await settled(env)
        await env.cycle()
        assert env.desired_owners()[name] != "a"
        env.edit(paused=True)
        await env.reconcile(after=1)
        env.give(name, "a")
        await env.reconcile(after=1)

        assert env.condition("CompetingBalancer") == ("", "")
        assert env.condition("Acting") == ("False", "Paused")

    run_policy(HOT, scenario, **eager(maxUndoneMoves=1, coolDown="1s"))


@pytest.mark.apiserver
def test_any_client_that_writes_over_its_desired_owners_makes_the_policy_advise_and_is_named(
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert len(await overwrite(env, 2)) == 2

        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")
        note = next(note for reason, note in env.events() if reason == "CompetingBalancer")
        assert "wrote a over spec.owner of" in note
        await env.land()
        desired_owners = env.desired_owners()
        await env.cycle()
        assert env.status()["lastCycle"]["heldBack"]["CompetingBalancer"] > 0
        assert env.desired_owners() == desired_owners

        await env.reconcile(after=1800)
        assert env.condition("CompetingBalancer") == ("False", "Alone")
        assert env.desired_owners() != desired_owners

    run_policy(HOT, scenario, **eager(maxUndoneMoves=2, coolDown="1s"))


@pytest.mark.apiserver
def test_a_person_ends_a_retreat_and_the_next_one_is_as_short_as_the_first(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        policy, undo = env.path("balancingpolicies", "main"), {"metadata": {"annotations": {RELEASE: "true"}}}

        await env.reconcile()
        names = await overwrite(env)
        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")
        await env.land()
        desired_owners = env.desired_owners()
        env.rest.patch(policy, undo)
        await env.reconcile(after=1)
        assert env.condition("CompetingBalancer") == ("False", "Alone")
        assert RELEASE not in env.policy()["metadata"].get("annotations", {})
        assert "Released" in {reason for reason, _ in env.events()}
        assert env.memory()["fight"] == [[], 0.0, 0]

        await env.land()
        await env.cycle()
        assert env.desired_owners() != desired_owners
        env.give(*names, "a")
        await env.reconcile(after=1)
        assert env.memory()["fight"] == [[], env.clock + FIRST_RETREAT, 1]

    run_policy(HOT, scenario, **eager(maxUndoneMoves=1, coolDown="1s"))


@pytest.mark.apiserver
def test_only_the_word_true_ends_a_retreat(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        await overwrite(env)
        note = next(c["message"] for c in env.status()["conditions"] if c["type"] == "CompetingBalancer")
        assert f'{RELEASE}="true"' in note

        annotations = {RELEASE: "false"}
        env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"annotations": annotations}})
        await env.reconcile(after=1)

        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")
        assert env.policy()["metadata"]["annotations"][RELEASE] == "false"

    run_policy(HOT, scenario, **eager(maxUndoneMoves=1, coolDown="1s"))


@pytest.mark.apiserver
def test_a_retreat_that_a_lower_limit_brings_about_is_reported_without_an_example(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        await overwrite(env)
        assert env.condition("CompetingBalancer") == ("", "")

        env.edit(limits={"maxUndoneMoves": 1})
        await env.reconcile(after=1)
        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")
        assert any(reason == "CompetingBalancer" for reason, _ in env.events())

    run_policy(HOT, scenario, **eager(maxUndoneMoves=2, coolDown="1s"))


@pytest.mark.apiserver
def test_a_condition_of_an_earlier_operator_ends_when_nothing_is_remembered_of_it(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await brought_back(env)
        await env.reconcile(after=5)
        assert env.condition("Flapping") == ("True", "Quarantined")

        env.restart()
        await env.reconcile(after=7 * HOUR)  # no operator ran while the quarantine ended
        assert env.condition("Flapping") == ("False", "Settled")
        assert env.status()["quarantined"] == {"total": 0, "bundles": []}

        env.edit(interval="50s")
        await env.reconcile(after=1)
        conditions = {c["type"]: c["observedGeneration"] for c in env.status()["conditions"]}
        assert conditions["Flapping"] == conditions["CompetingBalancer"] == env.policy()["metadata"]["generation"]

    run_policy(HOT, scenario)


@pytest.mark.apiserver
def test_what_flapped_is_left_alone_even_if_it_could_not_be_reported(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        moved = await brought_back(env)
        await env.seen()
        with monkeypatch.context() as patch:
            patch.setattr(StatusPublisher, "status", refused)
            with pytest.raises(ApiUnavailableError):
                await env.reconcile(after=5)
        await env.reconcile(after=1)

        assert moved in env.memory()["quarantine"]
        assert env.condition("Flapping") == ("True", "Quarantined")

    async def refused(*_: object) -> None:
        raise ApiUnavailableError("no answer")

    run_policy(HOT, scenario)
