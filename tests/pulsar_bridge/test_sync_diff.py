"""Bundle objects come to say what Pulsar said, whatever there was before, and nothing is lost on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

import records
from sync_model import BROKERS, INNER, LAST, SPACE, BundleObjects, boundaries, existing, full, ranges, seen
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.pulsar.bridge.sync.diff import ObservedOwners, bundle_changes, owner_changes

NAMES = {"t-n": SPACE}
HALVES = (0, 0x80000000, LAST)
QUARTERS = (0, 0x40000000, 0x80000000, LAST)
space = records.topic_namespace(uid="u")


@st.composite
def owners_of(draw: st.DrawFn, edges: tuple[int, ...]) -> dict[str, str]:
    """Owners of bundles; some are unowned."""
    found = {f"{SPACE}/{lower}_{upper}": draw(st.sampled_from(("", *BROKERS))) for lower, upper in ranges(edges)}
    return {bundle: owner for bundle, owner in found.items() if owner}


@st.composite
def objects_of(draw: st.DrawFn, edges: tuple[int, ...]) -> BundleObjects:
    """Some of the bundles of an earlier state, each said to be anybody's, and some that a person has made."""
    kept = [found for found in ranges(edges) if draw(st.booleans())]
    bundles = [existing(*found, draw(st.sampled_from(("", *BROKERS)))) for found in kept]
    if draw(st.booleans()):
        bundles.append(existing("0x01000000", "0x02000000", "a", controller=""))
    return BundleObjects(space, {b.name: b for b in bundles})


def statuses(objects: BundleObjects, owned: ObservedOwners, *stuck: str) -> dict[str, dict[str, Any]]:
    found = owner_changes(objects.bundles.values(), NAMES, owned, stuck, now=0)
    return {record.name: status for record, status in found}


def reflect(objects: BundleObjects, edges: tuple[int, ...], owned: ObservedOwners, *, sure: bool = True) -> None:
    objects.apply(bundle_changes(edges, space, objects.bundles.values(), owned.by_bundle, 0, sure=sure))
    objects.patch(list(owner_changes(objects.bundles.values(), NAMES, owned, (), now=0)))


def found(objects: BundleObjects) -> dict[str, str]:
    """What the objects say that were not made by a person."""
    return {full(b): b.status_owner for b in objects.bundles.values() if b.made}


@given(st.data())
def test_whatever_there_was_the_objects_come_to_say_what_pulsar_said(data: st.DataObject) -> None:
    objects, edges = data.draw(objects_of(data.draw(boundaries()))), data.draw(boundaries())
    owners = data.draw(owners_of(edges))
    people_s = {name for name, b in objects.bundles.items() if not b.made}

    reflect(objects, edges, seen(edges, owners)[1])

    assert found(objects) == {f"{SPACE}/{a}_{b}": owners.get(f"{SPACE}/{a}_{b}", "") for a, b in ranges(edges)}
    assert people_s <= objects.bundles.keys(), "nothing that a person made is deleted"


@given(st.data())
def test_a_second_look_at_the_same_changes_nothing(data: st.DataObject) -> None:
    objects, edges = data.draw(objects_of(data.draw(boundaries()))), data.draw(boundaries())
    owned = seen(edges, data.draw(owners_of(edges)))[1]
    reflect(objects, edges, owned)

    again = bundle_changes(edges, space, objects.bundles.values(), owned.by_bundle, 0)

    assert (again.create, again.delete, again.doubtful) == ([], [], False)
    assert statuses(objects, owned) == {}


@given(st.data())
def test_a_broker_that_did_not_answer_changes_nothing_of_what_it_serves(data: st.DataObject) -> None:
    edges = data.draw(boundaries())
    owners = data.draw(owners_of(edges))
    objects = BundleObjects(space)
    reflect(objects, edges, seen(edges, owners)[1])
    silent = data.draw(st.sampled_from(BROKERS))
    heard = {bundle: owner for bundle, owner in owners.items() if owner != silent}

    assert statuses(objects, seen(edges, heard, complete=False)[1]) == {}


@given(st.data())
def test_every_hash_belongs_to_a_bundle_at_every_moment_of_a_split(data: st.DataObject) -> None:
    before, cuts = data.draw(boundaries()), data.draw(st.sets(st.sampled_from(INNER), max_size=4))
    after = tuple(sorted({*before, *cuts}))
    objects = BundleObjects(space, {b.name: b for b in (existing(*r, "a") for r in ranges(before))})

    changes = bundle_changes(after, space, objects.bundles.values(), {}, 0)
    objects.apply(changes)

    assert not changes.doubtful, "dividing only adds edges"
    assert sorted((b.lower, b.upper) for b in objects.bundles.values()) == ranges(after)
    kept = {b.name for b in objects.bundles.values()} & {f"t-n-{lower}-{upper}" for lower, upper in ranges(before)}
    assert not kept & {b.name for b in changes.delete}


def test_boundaries_that_lack_a_known_edge_are_read_again_before_they_count() -> None:
    bundles = [existing(*r, "a") for r in ranges(QUARTERS)]

    first = bundle_changes(HALVES, space, bundles, {}, 0)
    second = bundle_changes(HALVES, space, bundles, {}, 0, sure=True)

    assert (first.doubtful, first.create, first.delete) == (True, [], [])
    assert [b.lower for b in second.delete] == ["0x00000000", "0x40000000"]


def test_a_new_bundle_is_made_with_its_owner_so_that_no_one_has_to_adopt_it() -> None:
    owned = {f"{SPACE}/0x00000000_0x80000000": "a"}

    served, unserved = bundle_changes(HALVES, space, [], owned, 0).create

    assert (served.manifest["spec"]["owner"], served.manifest["spec"]["assignment"]["reason"]) == ("a", "Found")
    assert served.status == {
        "owner": "a",
        "state": "Owned",
        "observedGeneration": 1,
        "since": "1970-01-01T00:00:00Z",
    }
    assert "owner" not in unserved.manifest["spec"]
    assert unserved.status["state"] == "Free"
    assert served.manifest["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_the_halves_of_a_pinned_bundle_are_pinned() -> None:
    whole = existing("0x00000000", "0xffffffff", "a", pinned=True)

    assert [b.manifest["spec"]["pinned"] for b in bundle_changes(HALVES, space, [whole], {}, 0).create] == [True, True]


def test_a_bundle_that_is_being_split_is_left_to_the_split_controller() -> None:
    whole = existing("0x00000000", "0xffffffff", "a", state="Splitting", split="s")
    child = existing("0x00000000", "0x80000000", "a", parent=whole.name)
    objects = BundleObjects(space, {b.name: b for b in (whole, child)})

    changes = bundle_changes(HALVES, space, objects.bundles.values(), {}, 0)

    assert (changes.create, changes.delete) == ([], [])
    assert statuses(objects, ObservedOwners(complete=True)) == {}


def one(**changes: Any) -> tuple[BundleObjects, str]:
    bundle = existing("0x00000000", "0xffffffff", "a", **changes)
    return BundleObjects(space, {bundle.name: bundle}), full(bundle)


def test_an_owner_that_changed_elsewhere_is_reported() -> None:
    objects, name = one()

    assert statuses(objects, ObservedOwners({name: "b"})) == {
        "t-n-0x00000000-0xffffffff": {
            "owner": "b",
            "state": "Owned",
            "observedGeneration": 3,
            "since": "1970-01-01T00:00:00Z",
        }
    }


def test_a_bundle_is_unowned_only_when_all_brokers_were_asked_twice() -> None:
    objects, name = one()

    assert statuses(objects, ObservedOwners(complete=False)) == {}
    assert statuses(objects, ObservedOwners(before={name}, complete=True)) == {}, "it may have moved while we looked"
    [status] = statuses(objects, ObservedOwners(complete=True)).values()
    assert (status["owner"], status["state"]) == ("", "Free")


def set_owner(owner: str, serving: str, reason: str = "Overloaded") -> BundleRecord:
    moving: dict[str, Any] = {"serving": serving, "generation": 4, "assigned_owner": owner, "reason": reason}
    return existing("0x00000000", "0xffffffff", owner, **moving)


def test_an_open_desired_owner_is_left_to_the_unload_controller_until_it_is_stuck() -> None:
    bundle = set_owner("b", serving="a")
    objects, owned = BundleObjects(space, {bundle.name: bundle}), ObservedOwners({full(bundle): "b"})

    assert statuses(objects, owned) == {}
    [status] = statuses(objects, owned, bundle.name).values()
    assert (status["owner"], status["observedGeneration"]) == ("b", 4), "it has landed, and no one confirmed it"


def test_the_truth_of_a_stuck_desired_owner_is_reported_without_ending_it() -> None:
    bundle = set_owner("b", serving="a")
    objects, owned = BundleObjects(space, {bundle.name: bundle}), ObservedOwners({full(bundle): "c"})

    [status] = statuses(objects, owned, bundle.name).values()

    assert status["owner"] == "c"
    assert "observedGeneration" not in status


@pytest.mark.parametrize("owner", ["b", "c"])
@pytest.mark.parametrize("reason", ["Adopted", "Found"])
def test_an_adoption_is_confirmed_wherever_the_bundle_is_now(reason: str, owner: str) -> None:
    bundle = set_owner("b", serving="b", reason=reason)

    [status] = statuses(BundleObjects(space, {bundle.name: bundle}), ObservedOwners({full(bundle): owner})).values()

    assert (status["owner"], status["observedGeneration"]) == (owner, 4), "no owner was desired"


@pytest.mark.parametrize("reason", ["BrokerLost", "TimedOut", "Adopted"])
def test_what_is_marked_as_leaving_is_left_to_the_unload_controller_until_it_is_stuck(reason: str) -> None:
    bundle = replace(set_owner("a", serving="a", reason=reason), state="Releasing")
    objects, owned = BundleObjects(space, {bundle.name: bundle}), ObservedOwners({full(bundle): "a"})

    assert statuses(objects, owned) == {}, "it may be closed there"
    [status] = statuses(objects, owned, bundle.name).values()
    assert (status["state"], status["observedGeneration"]) == ("Owned", 4)


def test_a_persons_desired_owner_for_a_bundle_that_was_adopted_before_is_no_adoption() -> None:
    bundle = replace(set_owner("b", serving="a", reason="Adopted"), assigned_owner="a")

    assert statuses(BundleObjects(space, {bundle.name: bundle}), ObservedOwners({full(bundle): "a"})) == {}


def test_a_bundle_whose_namespace_object_is_unknown_is_left_alone() -> None:
    bundle = existing("0x00000000", "0xffffffff", "a")

    assert list(owner_changes([bundle], {}, ObservedOwners(complete=True), (), now=0)) == []
