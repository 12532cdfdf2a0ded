"""What stands in the way of an approved move, question by question, without an API server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from manifests import policy
from records import broker, bundle, moving_bundle, topic_namespace
from static_sources import StaticSource
from strategy_testing.clusters import cluster
from trimtab_operator.actuators import DryRunActuator
from trimtab_operator.proposals.executor import Executor, ValidationContext, obstacle
from trimtab_operator.proposals.model import Cost, Proposal
from trimtab_operator.proposals.progress import Execution
from trimtab_operator.state.pulsar_link import PulsarLink
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_strategies.model import Isolation, Move, NamespacePolicy, Reason

MOVE = Move("t/n/0x00000000_0xffffffff", "x", "y", Reason.OVERLOADED)
SETTINGS = Settings.of({**policy(), "metadata": {"name": "main", "namespace": "messaging"}})


class Records:
    """As much of a context as the questions look at: what the stores hold."""

    def __init__(self, found: Any, space: Any) -> None:
        self.stores, self.link = self, PulsarLink()
        self.bundles = self
        self.items = {} if found is None else {"b": found}
        self.topic_namespaces = type("Spaces", (), {"items": {"t-n": space} if space else {}})


def env(found: Any = bundle(), space: Any = None, moved: int = 0, **brokers: Any) -> ValidationContext:  # noqa: B008  immutable
    """Bundle `b` as `found`, on brokers x, y and z that are ready unless said otherwise."""
    records: Any = Records(found, space or topic_namespace())
    there = {name: broker(name) for name in "xyz"} | brokers
    return ValidationContext(records, SETTINGS, {name: one for name, one in there.items() if one}, moved)


def test_a_bundle_that_must_stay_may_be_split_where_it_is() -> None:
    stay = replace(MOVE, destination=MOVE.source)

    assert obstacle(stay, "b", env(space=topic_namespace(policy=NamespacePolicy(unload=False)))) is None


def test_many_moves_that_are_refused_at_once_leave_others_their_turn() -> None:
    moves = tuple(replace(MOVE, bundle=f"t/n/{row}") for row in range(1000))
    names = tuple("b" for _ in moves)
    offered = Proposal("p", 1, 0.0, 1.0, moves, (), names, ("x", "y"), (), (), Cost(0, 0))
    context: Any = env().cluster
    context.now, context.brokers_of = lambda: 0.0, lambda _: {name: broker(name, ready=False) for name in "xyz"}
    context.pods, context.known_nodes = SimpleNamespace(items={}), dict
    run = PolicyRun(SETTINGS, DryRunActuator(), StaticSource(cluster()), PolicyState())

    async def turns_of_others() -> int:
        executor = Executor(context, Execution(offered, 0.0))
        advancing, turns = asyncio.create_task(executor.advance(run, {})), 0
        while not advancing.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(executor.execution.failures) == len(moves)
        return turns

    assert asyncio.run(turns_of_others()) >= len(moves) / SETTINGS.max_moves_in_flight


IN_THE_WAY: dict[str, tuple[ValidationContext, Reason, str]] = {
    "the bundle is gone": (env(None), Reason.CONFLICT, "deleted"),
    "it is elsewhere": (env(bundle(owner="z")), Reason.CONFLICT, "it is on z now, and not on x any more"),
    "no owner": (env(bundle(owner="", serving="")), Reason.CONFLICT, "it is on no broker now"),
    "it is on its way elsewhere": (env(moving_bundle(destination="z")), Reason.IN_FLIGHT, "on its way to z"),
    "it is pinned": (env(bundle(pinned=True)), Reason.PINNED, "pinned it to x"),
    "it is divided": (env(bundle(state="Splitting")), Reason.SPLITTING, "being split"),
    "its namespace stays": (
        env(space=topic_namespace(policy=NamespacePolicy(unload=False))),
        Reason.EXCLUDED,
        "TopicNamespace t-n has balanced: false",
    ),
    "its namespace is for others": (
        env(space=topic_namespace(policy=NamespacePolicy(Isolation(("x",), ("z",))))),
        Reason.ISOLATION,
        "names other brokers",
    ),
    "the source is another policy's": (
        env(x=None),
        Reason.UNKNOWN_BROKER,
        "broker x is gone, or no longer selected by the policy",
    ),
    "the destination is gone": (env(y=None), Reason.UNKNOWN_BROKER, "broker y is gone"),
    "the destination is down": (env(y=broker("y", ready=False)), Reason.NOT_READY, "broker y is not ready"),
    "the destination is closed": (env(y=broker("y", schedulable=False)), Reason.UNSCHEDULABLE, "spec.schedulable"),
    "the destination's node is cordoned": (replace(env(), closed={"y"}), Reason.UNSCHEDULABLE, "its node is cordoned"),
    "the destination is not believed": (replace(env(), trusted={"y": False}), Reason.UNTRUSTED, "are not trusted"),
    "the hour is spent": (env(moved=200), Reason.HOUR_CAP, "limits.maxMovesPerHour is 200"),
    "too many brokers are down": (
        env(x=broker("x", ready=False), z=broker("z", ready=False)),
        Reason.MASS_FAILURE,
        "2 of 3 brokers are not ready",
    ),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_a_move_is_refused_with_what_stands_in_its_way(case: str) -> None:
    seen, reason, detail = IN_THE_WAY[case]

    why = obstacle(MOVE, "b", seen)

    assert why is not None
    assert (why.subject, why.reason, detail in why.detail) == ("b", reason, True), why


@pytest.mark.parametrize(
    "seen",
    [
        env(),
        env(moved=199),
        env(z=broker("z", ready=False)),
        replace(env(), trusted={"x": False, "y": True}),
        env(space=topic_namespace(policy=NamespacePolicy(Isolation(("z",), ("y",))))),
    ],
    ids=["as planned", "one left this hour", "another is down", "its source is not believed", "y is secondary"],
)
def test_a_move_that_nothing_stands_in_the_way_of_is_made(seen: ValidationContext) -> None:
    assert obstacle(MOVE, "b", seen) is None


def test_a_bundle_without_owner_may_be_given_to_the_one_that_was_shown() -> None:
    assert obstacle(replace(MOVE, source=""), "b", env(bundle(owner="", serving=""))) is None
