"""How many bundles are unloaded at the same time, in which order, and when an unload is overdue."""

from __future__ import annotations

import pytest

from faulty_api import until
from manifests import topic_namespace
from trimtab_operator.pulsar.bridge.unload_controller import LONGEST_PAUSE, Backoff
from unload_cluster import Carry, Unloading

pytestmark = pytest.mark.apiserver


def test_what_may_be_closed_where_it_is_comes_before_all_that_waits(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        closed, waiting = c.of("a")
        c.env.give(waiting, "b")
        desired = {"owner": "a", "assignment": {"owner": "a", "reason": "BrokerLost", "time": "2026-01-31T12:00:00Z"}}
        c.env.rest.patch(c.env.path("bundles", closed, "status"), {"status": {"state": "Releasing"}})
        c.env.rest.patch(c.env.path("bundles", closed), {"spec": desired})
        await c.env.seen()
        c.begin()
        for name in (closed, waiting):
            await c.settled(name)
        first = next(path for _, _, path in c.fake.requests if "/unload" in path)
        assert c.full[closed].rpartition("/")[2] in first

    carry(scenario, begin=False, unloads=1, extensible=True)


def test_no_more_bundles_are_unloaded_at_the_same_time_than_allowed(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        names = [name for name, owner in c.env.owners().items() if owner != "b"]
        for name in names:
            c.env.give(name, "b")
        c.begin()
        for name in names:
            await c.settled(name)
        await until("all are told", lambda: len(c.landings) == len(names) == 4)
        assert c.fake.peak == 2

    carry(scenario, begin=False, unloads=2, lazy=0.2)


@pytest.mark.parametrize(("extensible", "peak"), [(False, 1), (True, 2)])
def test_bundles_with_the_same_range_do_not_take_each_others_destination(
    carry: Carry,
    extensible: bool,  # noqa: FBT001
    peak: int,
) -> None:
    async def scenario(c: Unloading) -> None:
        first = c.of("a")[0]
        full = f"other/space/{c.full[first].rpartition('/')[2]}"
        c.env.names[full] = second = "other-space-first"
        c.env.rest.create(c.env.path("topicnamespaces"), topic_namespace("other-space", tenant="other", name="space"))
        c.env.add_bundle(full, "a")
        c.fake.owners[full], c.fake.spaces["other/space"] = c.ids["a"], next(iter(c.fake.spaces.values()))
        c.env.give(first, "b")
        c.env.give(second, "c")
        await c.env.seen()
        c.begin()
        owners = [(await c.settled(name))["owner"] for name in (first, second)]
        await until("both are told", lambda: len(c.landings) == 2)

        assert owners == ["b", "c"]
        assert [landing.unloads for landing in c.landings] == [1, 1]
        assert c.fake.peak == peak

    carry(scenario, begin=False, lazy=0.3, extensible=extensible)


def test_pauses_stay_bounded_whatever_happens() -> None:
    clock = [0.0]
    backoff = Backoff(lambda: clock[0])
    for _ in range(1100):
        backoff.failed("bundle", "broker")
        clock[0] += LONGEST_PAUSE
        assert backoff.is_over("bundle", "broker")
    backoff.failed("bundle", "broker")
    assert not backoff.is_over("bundle", "broker")


def test_what_waits_for_others_is_not_overdue_and_what_hangs_is(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        context, (first, second) = c.env.cluster, c.of("a")
        c.env.give(first, "b")
        await until("it is being unloaded", lambda: c.fake.peak == 1)
        c.env.give(second, "b")
        await until("the other one waits", lambda: second in context.pending_moves.open)

        late = context.pending_moves.overdue(context.clock() + 3600, timeout=60)

        assert [pending.bundle for pending in late] == [first]

    carry(scenario, unloads=1, lazy=3600)


def test_what_waited_is_overdue_in_time_once_no_one_carries_it(carry: Carry) -> None:
    async def scenario(c: Unloading) -> None:
        pending_moves, clock = c.env.cluster.pending_moves, c.env.cluster.clock
        first, second = c.of("a")
        c.env.give(first, "b")
        await until("it is being unloaded", lambda: c.fake.peak == 1)
        c.env.give(second, "b")
        await until("the other one waits", lambda: second in pending_moves.open)
        begun = pending_moves.open[first].begun or 0.0  # how long before the stop depends on how busy the machine is
        stopping = clock()

        await c.crash()

        assert pending_moves.overdue(begun + 60, timeout=60) == []
        assert [f.bundle for f in pending_moves.overdue(stopping + 60, timeout=60) if f.bundle == second] == []
        assert len(pending_moves.overdue(clock() + 61, timeout=60)) == 2

    carry(scenario, unloads=1, lazy=3600)
