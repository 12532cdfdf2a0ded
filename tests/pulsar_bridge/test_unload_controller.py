"""Desired owners on Pulsar: bundles are unloaded, owners read back, failures repeated and reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from faulty_api import until
from policy_environment import PolicyEnvironment, refit, run_scenario
from trimtab_operator.aio import ended
from trimtab_operator.kube.naming import parse_pulsar_bundle
from trimtab_operator.pulsar.bridge import ownership
from trimtab_operator.pulsar.bridge.unload_controller import UnloadController
from trimtab_operator.pulsar.bridge.unload_request import Landing
from trimtab_operator.pulsar.client.http import HttpAdmin, connected
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_strategies.testing import cluster
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.simulated.pulsar_admin import FakePulsar

pytestmark = pytest.mark.apiserver

LOAD = cluster(bundles=2, a=0.5, b=0.5, c=0.5)
MANAGERS = pytest.mark.parametrize("extensible", [False, True], ids=["modular", "extensible"])


class Unloading:
    """An unload controller between an environment with brokers a, b and c, and a fake cluster of three brokers."""

    def __init__(self, env: PolicyEnvironment, fake: FakePulsar, admin: HttpAdmin, unloads: int) -> None:
        self.env, self.fake, self.admin = env, fake, admin
        self.ids = dict(zip("abc", fake.ids, strict=True))
        self.landings: list[Landing] = []
        self._task: asyncio.Task[None] | None = None
        context = env.cluster
        refit(context, clock=time.monotonic, now=time.time)
        context.link.lead_to(PulsarSpec(admin_url=fake.url, max_unloads=unloads), "main")
        context.link.ids, context.link.problem = dict(self.ids), ""
        self.full = {name: full for full, name in env.names.items()}
        for full, owner in zip(LOAD.bundles.names, LOAD.bundles.owner.tolist(), strict=True):
            fake.owners[full] = fake.ids[owner]
        for full in LOAD.bundles.names:
            tenant, name, *edges = parse_pulsar_bundle(full)
            known = fake.spaces.get(f"{tenant}/{name}", ())
            fake.spaces[f"{tenant}/{name}"] = tuple(sorted({*known, *(int(edge, 16) for edge in edges)}))

    def begin(self) -> None:
        unload_controller = UnloadController(self.env.cluster, self.admin)
        unload_controller.subscribe(self.landings.append)
        self._task = asyncio.create_task(unload_controller.run())

    async def crash(self) -> None:
        if self._task is not None:
            await ended(self._task)

    def of(self, broker: str) -> list[str]:
        """Bundles that `broker` serves, as the objects say."""
        return sorted(name for name, owner in self.env.owners().items() if owner == broker)

    async def settled(self, name: str) -> dict[str, Any]:
        """Its status, once its move is no longer pending."""

        def closed() -> bool:
            found = self.env.bundles()[name]
            return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

        await until(f"the move of {name} is complete", closed)
        status: dict[str, Any] = self.env.bundles()[name]["status"]
        return status

    def result(self, word: str) -> float:
        registry = self.env.cluster.metrics.registry
        return registry.get_sample_value("trimtab_pulsar_unloads_total", {"result": word}) or 0


Scenario = Callable[[Unloading], Awaitable[None]]
Carry = Callable[..., None]


@pytest.fixture
def carry(trimtab_crds: ControlPlane, kube_namespace: str, monkeypatch: pytest.MonkeyPatch) -> Carry:
    """Runs a scenario with a controller that runs unless `begin` is False; further options are the fake cluster's."""
    monkeypatch.setattr(ownership, "LOOKUP_AFTER", 0.3)
    monkeypatch.setattr(ownership, "OTHERS_AFTER", 0.1)
    monkeypatch.setattr(ownership, "SOURCE_AFTER", 0.2)

    def run(scenario: Scenario, *, begin: bool = True, unloads: int = 4, **fake: Any) -> None:
        async def whole(env: PolicyEnvironment) -> None:
            async with FakePulsar(**fake) as pulsar, connected(pulsar.url) as admin:
                carrying = Unloading(env, pulsar, admin, unloads)
                if begin:
                    carrying.begin()
                try:
                    await scenario(carrying)
                finally:
                    await carrying.crash()

        run_scenario(trimtab_crds, kube_namespace, LOAD, whole)

    return run


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


async def _unanswered(c: Unloading, failure: tuple[int, str]) -> str:
    """A bundle of a that was to go to b, which died meanwhile; its unload ended in `failure`. Wished on a again."""
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
