"""Unloads that end before the broker has let the bundle go: what came back is freed, and the rest stays."""

from __future__ import annotations

import pytest

from faulty_api import until
from trimtab_operator.pulsar.bridge.unload_attempt import best_detour
from unload_cluster import Carry, Unloading

pytestmark = pytest.mark.apiserver


def test_a_bundle_with_closed_topics_goes_to_a_broker_that_stays() -> None:
    served = {"a": 1, "b": 0, "c": 5, "d": 3}
    assert best_detour("abcd", "b", "", served) == "a"
    assert best_detour("abcd", "b", "a", served) == "d"
    assert best_detour("abcd", "b", "acd", served) == "a"
    assert best_detour("b", "b", "b", served) == "b"


async def _unanswered(c: Unloading, failure: tuple[int, str]) -> str:
    """A bundle of a that was to go to b, which died meanwhile; its unload ended in `failure`."""
    name = c.of("a")[0]
    c.fake.failures.append(failure)
    c.env.give(name, "b")
    await until("it is unloaded", lambda: c.fake.count("/unload") == 1)
    c.env.cluster.link.ids = {broker: c.ids[broker] for broker in "ac"}
    c.fake.inactive.add(c.ids["b"])
    await c.env.seen()
    return name


TIMED_OUT = (500, "Message: java.util.concurrent.TimeoutException")


def _told(c: Unloading, name: str) -> None:
    assert c.fake.owners[c.full[name]] == c.ids["c"]
    assert c.fake.count("/unload") == 2
    assert c.result("Returned") == 1
    assert (
        "UnloadReturned",
        f"{name}: a became its owner again before the release had ended; moved to c",
    ) in c.env.events()


def test_what_came_back_to_who_was_letting_it_go_is_given_to_another(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = await _unanswered(c, TIMED_OUT)
        await until("another has it", lambda: c.env.bundles()[name]["status"]["owner"] == "c")
        await until("it is reported that the destination is inactive", lambda: c.result("Inactive") == 1)
        _told(c, name)
        c.env.give(name, "c")  # what reconciliation does in the end
        assert (await c.settled(name))["state"] == "Owned"
        assert c.fake.count("/unload") == 2

    carry(scenario, extensible=True)


def test_an_operator_that_begins_frees_what_came_back_before_its_time(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = await _unanswered(c, TIMED_OUT)
        await c.crash()
        why = {"policy": "main", "epoch": 1, "reason": "BrokerLost", "time": "2026-01-31T12:00:00Z"}
        desired = {"owner": "a", "assignment": {"owner": "a", **why}}
        c.env.rest.patch(c.env.path("bundles", name), {"spec": desired})
        await c.env.seen()
        c.begin()
        status = await c.settled(name)
        assert (status["owner"], status["state"]) == ("c", "Owned")
        _told(c, name)

    carry(scenario, extensible=True)


def test_a_person_who_wants_it_where_it_came_back_to_gets_it_there_in_the_end(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = await _unanswered(c, TIMED_OUT)
        c.env.give(name, "a")
        assert (await c.settled(name))["owner"] == "a"
        assert c.fake.owners[c.full[name]] == c.ids["a"]
        assert c.fake.count("/unload") == 4, "to b, to c, and back, which is asked of a and sent on to c"

    carry(scenario, extensible=True)


def test_what_came_back_is_freed_although_pulsar_refused_to_unload_it_again(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.fake.failures.append(TIMED_OUT)
        c.fake.dying.add(c.ids["b"])
        c.env.give(name, "b")  # the list of brokers still has b when it is tried again
        await until("another has it", lambda: c.env.bundles()[name]["status"]["owner"] == "c")
        assert c.result("Returned") == 1
        assert c.fake.owners[c.full[name]] == c.ids["c"]

    carry(scenario, extensible=True)


def test_what_another_broker_took_is_not_unloaded_once_more(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        name = c.of("a")[0]
        c.fake.failures.append(TIMED_OUT)
        c.env.give(name, "b")
        await until("it is unloaded", lambda: c.fake.count("/unload") == 1)
        c.fake.owners[c.full[name]] = c.ids["c"]  # as the leader says
        c.env.cluster.link.ids = {broker: c.ids[broker] for broker in "ac"}
        c.fake.inactive.add(c.ids["b"])
        await until("it is reported that the destination is inactive", lambda: c.result("Inactive") == 1)
        for owner, why in (("a", "BrokerLost"), ("c", "Adopted")):  # what reconciliation does
            assignment = {"owner": owner, "reason": why, "time": "2026-01-31T12:00:00Z"}
            c.env.rest.patch(c.env.path("bundles", name), {"spec": {"owner": owner, "assignment": assignment}})
            assert (await c.settled(name))["owner"] == "c"
        assert c.fake.count("/unload") == 1
        assert c.result("Returned") == 0

    carry(scenario, extensible=True)


@pytest.mark.parametrize(
    ("extensible", "failure"), [(False, TIMED_OUT), (True, (403, "not allowed"))], ids=["modular", "refused"]
)
def test_what_never_began_to_leave_stays(carry: Carry, extensible: bool, failure: tuple[int, str]) -> None:  # noqa: FBT001
    async def scenario(c: Unloading) -> None:
        name = await _unanswered(c, failure)
        c.env.give(name, "a")
        assert (await c.settled(name))["owner"] == "a"
        assert c.fake.count("/unload") == 1

    carry(scenario, extensible=extensible)
