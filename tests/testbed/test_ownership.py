"""The broker's side of the Declarative actuator: what a broker does about a bundle it sees."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from kubernetes.aio import client

from trimtab_testbed.simulated.ownership import _ABREAST, HELD, Ownership, Step, step


def seen(desired: str, held: str, *, generation: int = 2, observed: int = 1) -> dict[str, Any]:
    return {
        "metadata": {"generation": generation},
        "spec": {"owner": desired},
        "status": {"owner": held, "observedGeneration": observed},
    }


@pytest.mark.parametrize(
    ("desired", "held", "expected"),
    [
        ("me", "", Step.TAKE),
        ("me", "me", Step.CONFIRM),
        ("other", "me", Step.RELEASE),
        ("", "me", Step.SERVE),  # an empty desired owner is none
        ("me", "other", Step.LEAVE),  # until the other one has released it
        ("other", "other", Step.LEAVE),
        ("other", "", Step.LEAVE),
        ("", "", Step.LEAVE),
    ],
)
def test_what_a_broker_does_about_an_open_desired_owner(desired: str, held: str, expected: Step) -> None:
    assert step(seen(desired, held), "me") is expected


@pytest.mark.parametrize(
    ("desired", "held", "expected"),
    [
        ("me", "me", Step.SERVE),
        ("other", "me", Step.SERVE),  # it came here by itself; the operator adopts that or moves it back
        ("me", "", Step.LEAVE),  # a client freed it, and will name the next owner
        ("me", "other", Step.LEAVE),
    ],
)
def test_what_a_broker_does_once_the_desired_owner_was_confirmed(desired: str, held: str, expected: Step) -> None:
    assert step(seen(desired, held, generation=2, observed=2), "me") is expected


def test_a_bundle_without_status_is_taken() -> None:
    assert step({"metadata": {"generation": 1}, "spec": {"owner": "me"}}, "me") is Step.TAKE


class Served:
    """Records the served bundles, by name."""

    def __init__(self) -> None:
        self.bundles = set[str]()

    def serve(self, bundle: str) -> None:
        self.bundles.add(bundle)

    def release(self, bundle: str) -> None:
        self.bundles.discard(bundle)


class SlowApi:
    """Accepts writes only once `together` of them have come. Writes of one bundle must not overlap."""

    def __init__(self, together: int) -> None:
        self._barrier = asyncio.Barrier(together)
        self.writing = set[str]()
        self.written: list[str] = []

    async def patch_namespaced_custom_object_status(self, *arguments: Any, _request_timeout: float) -> None:
        name = arguments[4]
        assert name not in self.writing
        self.writing.add(name)
        async with asyncio.timeout(5):
            await self._barrier.wait()
        self.writing.remove(name)
        self.written.append(name)

    async def get_namespaced_custom_object(self, *_arguments: Any, _request_timeout: float) -> dict[str, Any]:
        """Every broker exists."""
        return {}


def to_release(name: str, **annotations: str) -> dict[str, Any]:
    bundle = seen("other", "me")
    return {**bundle, "metadata": {"name": name, "generation": 2, "resourceVersion": "7", "annotations": annotations}}


def attended(together: int, names: list[str]) -> SlowApi:
    """Writes of a broker after simultaneous events about these bundles, all desired elsewhere."""

    async def scenario() -> SlowApi:
        api = SlowApi(together)
        broker = Ownership(cast("client.CustomObjectsApi", api), "ns", "me", Served())
        for name in names:
            broker._see(HELD, "MODIFIED", to_release(name))
        await broker._attend(names)
        return api

    return asyncio.run(scenario())


def test_bundles_that_leave_at_once_do_not_wait_for_one_another() -> None:
    names = [f"b{n}" for n in range(4 * _ABREAST)]

    assert sorted(attended(_ABREAST, names).written) == sorted(names)


def test_what_concerns_one_bundle_is_done_one_after_the_other() -> None:
    async def scenario() -> None:
        api = SlowApi(1)
        broker = Ownership(cast("client.CustomObjectsApi", api), "ns", "me", Served())
        broker._see(HELD, "MODIFIED", to_release("b"))
        await asyncio.gather(*(broker._settle("b") for _ in range(5)))
        assert api.written == ["b"] * 5

    asyncio.run(scenario())


def test_a_broker_keeps_no_list_of_who_manages_which_field() -> None:
    broker = Ownership(cast("client.CustomObjectsApi", SlowApi(1)), "ns", "me", Served())
    bundle = to_release("b")
    bundle["metadata"]["managedFields"] = [{"manager": "kubectl"}]

    broker._see(HELD, "ADDED", bundle)

    assert broker._latest("b")["metadata"] == to_release("b")["metadata"]


def owned(name: str) -> dict[str, Any]:
    bundle = seen("me", "me", observed=2)
    return {**bundle, "metadata": {"name": name, "generation": 2, "resourceVersion": "7"}}


def test_what_is_gone_while_a_broker_is_deaf_is_not_served_afterwards() -> None:
    async def scenario() -> None:
        served = Served()
        broker = Ownership(cast("client.CustomObjectsApi", SlowApi(1)), "ns", "me", served)
        for name in ("goes", "stays"):
            broker._see(HELD, "ADDED", owned(name))
            await broker._settle(name)
        await broker.hear(deaf=True)
        await broker._attend([broker._see(HELD, "DELETED", owned("goes"))])
        assert served.bundles == {"goes", "stays"}

        await broker.hear(deaf=False)

        assert served.bundles == {"stays"}

    asyncio.run(scenario())


class KnownBrokers:
    """Knows the Broker objects `known`, and records writes to the status of bundles."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.statuses: list[dict[str, Any]] = []

    async def get_namespaced_custom_object(self, *arguments: Any, _request_timeout: float) -> dict[str, Any]:
        plural, name = arguments[3:]
        if plural != "brokers" or name not in self.known:
            raise client.ApiException(status=404)
        return {"metadata": {"name": name}}

    async def patch_namespaced_custom_object_status(self, *arguments: Any, _request_timeout: float) -> None:
        self.statuses.append(arguments[5]["status"])


def test_a_bundle_desired_on_a_broker_that_does_not_exist_is_held_until_that_one_does() -> None:
    async def scenario() -> None:
        api, served = KnownBrokers(), Served()
        broker = Ownership(cast("client.CustomObjectsApi", api), "ns", "me", served)
        name = broker._see(HELD, "MODIFIED", to_release("b"))
        await broker._attend([name])
        assert (served.bundles, api.statuses) == ({"b"}, [])

        api.known.add("other")
        await broker.look_again()

        assert served.bundles == set()
        assert [status["owner"] for status in api.statuses] == [""]

    asyncio.run(scenario())


def test_a_bundle_that_is_moved_back_before_its_destination_exists_never_stopped() -> None:
    async def scenario() -> None:
        api, served = KnownBrokers(), Served()
        broker = Ownership(cast("client.CustomObjectsApi", api), "ns", "me", served)
        await broker._attend([broker._see(HELD, "MODIFIED", to_release("b"))])
        back = seen("me", "me", generation=3)
        back["metadata"] |= {"name": "b", "resourceVersion": "8"}
        await broker._attend([broker._see(HELD, "MODIFIED", back)])

        assert served.bundles == {"b"}
        assert api.statuses == [{"observedGeneration": 3}]
        api.known.add("other")
        await broker.look_again()
        assert served.bundles == {"b"}

    asyncio.run(scenario())
