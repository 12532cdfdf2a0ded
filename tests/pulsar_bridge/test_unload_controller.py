"""Desired owners on Pulsar: bundles are unloaded, owners read back, failures repeated and reported."""

from __future__ import annotations

import asyncio

import pytest

from faulty_api import until
from trimtab_operator.kube.naming import parse_pulsar_bundle
from trimtab_operator.pulsar.bridge import ownership
from unload_cluster import Carry, Unloading

pytestmark = pytest.mark.apiserver

MANAGERS = pytest.mark.parametrize("extensible", [False, True], ids=["modular", "extensible"])


@MANAGERS
def test_a_desired_owner_is_carried_out_read_back_and_confirmed(carry: Carry, extensible: bool) -> None:  # noqa: FBT001
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.env.give(name, "b")
        status = await c.settled(name)
        assert (status["owner"], status["state"]) == ("b", "Owned")
        assert c.fake.owners[c.full[name]] == c.ids["b"]
        await until("it is told", lambda: c.landings)
        (landing,) = c.landings
        assert (landing.bundle, landing.full_name) == (name, c.full[name])
        assert (landing.source, landing.destination, landing.unloads) == ("a", "b", 1)
        assert landing.asked <= landing.released <= landing.owned
        assert c.result("Landed") == 1
        assert c.fake.count("/lookup/") == 0, "clients have found it by themselves"

    carry(scenario, extensible=extensible)


@MANAGERS
@pytest.mark.parametrize("served", [True, False], ids=["served", "unserved"])
def test_what_no_client_asks_for_lands_all_the_same(carry: Carry, extensible: bool, served: bool) -> None:  # noqa: FBT001
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        if not served:
            del c.fake.owners[c.full[name]]
        c.env.give(name, "b")
        status = await c.settled(name)
        assert status["owner"] == "b"
        assert c.fake.owners[c.full[name]] == c.ids["b"]
        assert c.fake.count("/lookup/") == (0 if extensible and served else 1)

    carry(scenario, extensible=extensible, clients=False)


def test_a_move_is_reported_from_the_broker_that_had_the_bundle(carry: Carry, caplog: pytest.LogCaptureFixture) -> None:
    """The object may still name another owner, even the destination."""

    async def scenario(c: Unloading) -> None:
        name = c.of("b")[0]
        c.fake.owners[c.full[name]] = c.ids["a"]
        c.env.rest.patch(c.env.path("bundles", name), {"spec": {"pinned": True}})  # a new generation, to be confirmed
        await until("it is told", lambda: c.landings)
        assert [(landing.source, landing.destination) for landing in c.landings] == [("a", "b")]
        assert f"bundle {name}: from a to b, " in caplog.text

    caplog.set_level("INFO")
    carry(scenario)


def test_a_move_that_lands_after_the_wait_for_it_is_reported_too(carry: Carry, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.env.give(name, "b")
        assert (await c.settled(name))["owner"] == "b"
        assert [(landing.source, landing.destination, landing.unloads) for landing in c.landings] == [("a", "b", 1)]
        assert c.result("Landed") == 1

    monkeypatch.setattr(ownership, "PATIENCE", 0.0)
    carry(scenario)


def test_what_goes_elsewhere_is_unloaded_again(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.fake.thieves[c.full[name]] = [c.ids["c"], c.ids["a"]]
        c.env.give(name, "b")
        assert (await c.settled(name))["owner"] == "b"
        await until("it is told", lambda: c.landings)
        assert [landing.unloads for landing in c.landings] == [3]
        assert c.landings[0].source == "a"

    carry(scenario)


def test_what_goes_elsewhere_three_times_is_reported_as_it_is(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.fake.thieves[c.full[name]] = [c.ids["c"], c.ids["a"], c.ids["c"], c.ids["c"]]
        c.env.give(name, "b")
        status = await c.settled(name)
        assert (status["owner"], status["state"]) == ("c", "Owned")
        assert len(c.fake.thieves[c.full[name]]) == 1, "no fourth unload"
        assert c.landings == []
        await until("it is said", c.env.events)
        assert c.env.events() == [("Elsewhere", f"{name}: unloaded to b 3 times, and c has it")]
        assert c.result("Elsewhere") == 1

    carry(scenario)


def test_a_bundle_that_is_there_already_is_not_unloaded(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.fake.owners[c.full[name]] = c.ids["b"]
        c.env.give(name, "b")
        assert (await c.settled(name))["owner"] == "b"
        assert c.fake.count("/unload") == 0
        assert c.landings == []

    carry(scenario)


def test_nothing_is_unloaded_to_a_broker_that_is_not_active_and_that_is_said_once(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        ids = c.env.cluster.link.ids
        assert ids is not None
        c.env.cluster.link.ids = {broker: ids[broker] for broker in "ac"}
        c.env.give(name, "b")
        await until("it is said", c.env.events)
        await asyncio.sleep(2.5)
        assert c.fake.count("/unload") == 0
        assert c.env.events() == [("InactiveDestination", f"b is not among the active brokers: {name} is not unloaded")]
        assert c.fake.owners[c.full[name]] == c.ids["a"]

    carry(scenario)


def test_a_destination_that_dies_between_desired_owner_and_unload_gets_nothing(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.fake.inactive.add(c.ids["b"])
        c.env.give(name, "b")
        await until("it is said", c.env.events)
        assert c.env.events()[0][0] == "InactiveDestination"
        assert c.fake.owners[c.full[name]] == c.ids["a"]
        c.env.give(name, "a")  # what reconciliation does in the end
        assert (await c.settled(name))["state"] == "Owned"

    carry(scenario)


@pytest.mark.parametrize("reason", ["TimedOut", "BrokerLost", "Adopted", "Found"])
def test_a_withdrawn_desired_owner_moves_nothing_back_that_has_landed_after_all(carry: Carry, reason: str) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.fake.owners[c.full[name]] = c.ids["c"]
        now = "2026-01-31T12:00:00Z"
        for owner, why in (("c", "Overloaded"), ("a", reason)):
            assignment = {"owner": owner, "policy": "main", "epoch": 1, "reason": why, "time": now}
            c.env.rest.patch(c.env.path("bundles", name), {"spec": {"owner": owner, "assignment": assignment}})
        c.begin()
        assert (await c.settled(name))["owner"] == "c"
        assert c.fake.count("/unload") == 0

    carry(scenario, begin=False)


async def with_a_policy(c: Unloading) -> None:
    """Have the policy's loop know the cluster, with the number of unloads of the scenario."""
    spec = c.env.cluster.link.spec
    assert spec is not None
    c.env.edit(pulsar={"adminUrl": c.fake.url, "maxUnloads": spec.max_unloads})
    await c.env.loop.reconcile()
    c.env.cluster.link.ids, c.env.cluster.link.problem = dict(c.ids), ""


def found_at(c: Unloading, name: str, owner: str) -> None:
    """The operator has found the bundle there."""
    assignment = {"owner": owner, "policy": "main", "epoch": 1, "reason": "Found", "time": "2026-01-31T12:00:00Z"}
    c.env.rest.patch(c.env.path("bundles", name), {"spec": {"owner": owner, "assignment": assignment}})


@MANAGERS
def test_a_person_who_wants_the_former_owner_back_during_a_move_gets_it(carry: Carry, extensible: bool) -> None:  # noqa: FBT001
    async def scenario(c: Unloading) -> None:
        await with_a_policy(c)
        name = c.of("a")[0]
        found_at(c, name, "a")
        await c.settled(name)

        c.env.give(name, "b")
        await c.env.seen()
        await c.env.loop.reconcile()
        await until("it is being unloaded", lambda: c.fake.count("/unload"))
        c.env.give(name, "a")
        await c.env.seen()
        await c.env.loop.reconcile()

        assert (await c.settled(name))["owner"] == "a"
        assert c.fake.owners[c.full[name]] == c.ids["a"]
        await c.env.loop.reconcile()
        spec = c.env.bundles()[name]["spec"]
        assert (spec["owner"], spec["assignment"]["reason"]) == ("a", "Admin")

    carry(scenario, extensible=extensible, lazy=0.5, noted=60.0)


def test_a_persons_desired_owner_is_noted_before_it_is_unloaded_and_goes_first(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        await with_a_policy(c)
        name, older = c.of("a")
        found_at(c, name, "a")
        await c.env.seen()
        assignment = {
            "owner": "b",
            "policy": "main",
            "epoch": 1,
            "reason": "Overloaded",
            "time": "2026-01-31T12:00:00Z",
        }
        c.env.give(name, "b")
        await c.env.seen()
        c.begin()
        await asyncio.sleep(0.5)
        assert c.fake.count("/unload") == 0, "it is not noted yet"
        await c.crash()

        await c.env.loop.reconcile()
        c.env.rest.patch(c.env.path("bundles", older), {"spec": {"owner": "b", "assignment": assignment}})
        await c.env.seen()
        c.begin()
        for moved in (older, name):
            assert (await c.settled(moved))["owner"] == "b"
        first = next(path for _, _, path in c.fake.requests if "/unload" in path)
        assert c.full[name].rpartition("/")[2] in first

    carry(scenario, begin=False, unloads=1, noted=60.0)


def test_a_bundle_that_was_split_is_read_again_and_not_hammered(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        tenant, space, lower, upper = parse_pulsar_bundle(c.full[name])
        full_name = f"{tenant}/{space}"
        middle = (int(lower, 16) + int(upper, 16)) // 2
        c.fake.spaces[full_name] = tuple(sorted({*c.fake.spaces[full_name], middle}))
        c.env.give(name, "b")
        await until("the namespace is marked to be read again", lambda: full_name in c.env.cluster.link.suspects)
        await asyncio.sleep(1.0)
        assert c.result("Stale") == 1
        assert c.fake.owners[c.full[name]] == c.ids["a"]

    carry(scenario)


def test_a_competing_balancers_unload_at_the_same_moment_is_outlived(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.fake.failures.append((500, "Message: bundle is already being unloaded"))
        c.env.give(name, "b")
        assert (await c.settled(name))["owner"] == "b"
        await until("it is told", lambda: c.landings)
        assert [landing.unloads for landing in c.landings] == [2]

    carry(scenario)


def test_a_crash_between_unload_and_confirmation_leaves_nothing_undone(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.env.give(name, "b")
        await until("it is being unloaded", lambda: c.fake.peak == 1)
        await c.crash()
        await until("Pulsar has moved it", lambda: c.fake.owners.get(c.full[name]) == c.ids["b"])
        assert c.env.bundles()[name]["status"]["state"] == "Releasing"
        c.begin()
        assert (await c.settled(name))["owner"] == "b"
        assert c.fake.peak == 1
        assert c.fake.count("/unload") == 1, "it was there already"

    carry(scenario, lazy=0.5)


def test_a_bundle_that_is_being_split_is_left_alone(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        lock = {"status": {"state": "Splitting", "split": "some-split"}}
        c.env.rest.patch(c.env.path("bundles", name, "status"), lock)
        await c.env.seen()
        c.env.give(name, "b")
        await asyncio.sleep(1.0)
        assert c.fake.count("/unload") == 0

    carry(scenario)


def test_a_broker_that_does_not_answer_keeps_its_bundles_and_no_one_elses(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        stays, goes = c.of("c")[0], c.of("a")[0]
        c.fake.deaf.add(c.ids["c"])
        c.env.give(stays, "b")
        c.env.give(goes, "b")
        assert (await c.settled(goes))["owner"] == "b"
        assert c.fake.owners[c.full[stays]] == c.ids["c"]
        assert c.env.owners()[stays] == "c"

    carry(scenario)
