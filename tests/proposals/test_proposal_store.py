"""A proposal as a value: its id, what is stored of it and how large that is, and the progress of carrying it out."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from records import bundle, moving_bundle
from strategy_testing.clusters import NOW, cluster, with_bundles
from trimtab_operator.kube.config_map_store import UnreadableContentError, packed
from trimtab_operator.kube.naming import bundle_name, parse_pulsar_bundle
from trimtab_operator.proposals.model import Proposal, cost
from trimtab_operator.proposals.progress import Execution, Mark, in_words
from trimtab_operator.proposals.store import Standing
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_strategies.model import HeldBack, Move, Plan, Reason, Split

NAMES = ("t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000", "t/n/0x80000000_0xffffffff")


def plan(*moves: Move, splits: tuple[Split, ...] = ()) -> Plan:
    before, after = np.full((2, 5), 50.0), np.full((2, 5), 40.0)
    before[0], after[0, 1] = 90.0, math.nan
    return Plan(moves, (), ("a", "b"), before, after, splits)


def proposal(*moves: Move, splits: tuple[Split, ...] = (), now: float = NOW, generation: int = 1) -> Proposal:
    names = {name: bundle_name(*parse_pulsar_bundle(name)) for name in NAMES}
    made = plan(*moves, splits=splits)
    return Proposal.of(made, None, names=names, generation=generation, made_at=now, expires_after=900)


MOVES = tuple(Move(name, "a", "b", Reason.OVERLOADED, 1.5) for name in NAMES)
SPLIT = Split(NAMES[2], "a", (0xC0000000,), Reason.MSG_RATE, ("a", "b"))


def test_an_id_stands_for_the_moves_the_time_and_the_policys_text() -> None:
    first = proposal(*MOVES)
    others = [
        proposal(*MOVES, now=NOW + 1),
        proposal(*MOVES, generation=2),
        proposal(*MOVES[:2]),
        proposal(*MOVES[:2], splits=(SPLIT,)),
        proposal(replace(MOVES[0], destination="c"), *MOVES[1:]),
    ]

    assert proposal(*MOVES).id == first.id
    assert len({first.id, *(other.id for other in others)}) == 1 + len(others)


def test_what_is_stored_is_read_back_unchanged() -> None:
    whole = proposal(*MOVES[:2], splits=(SPLIT,))

    assert Proposal.from_json(whole.to_json()) == whole


def test_a_load_that_is_not_known_stays_unknown_when_stored() -> None:
    odd = proposal(replace(MOVES[0], load=math.nan))

    assert math.isnan(Proposal.from_json(odd.to_json()).moves[0].load)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "moves": [["a"]]}'])
def test_what_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(UnreadableContentError):
        Proposal.from_json(text)


def test_splits_are_shown_beside_the_moves() -> None:
    shown = proposal(*MOVES[:2], splits=(SPLIT,)).shown(ProposalState.PROPOSAL_READY)

    assert (shown["total"], shown["totalSplits"]) == (2, 1)
    [split] = shown["splits"]
    assert (split["bundle"], split["boundaries"]) == ("t-n-0x80000000-0xffffffff", ["0xc0000000"])
    assert split["reason"] == "MsgRate"


def test_the_status_shows_fifty_moves_and_says_how_many_there_are() -> None:
    shown = proposal(*(MOVES[:1] * 60)).shown()

    assert (len(shown["moves"]), shown["total"]) == (50, 60)


def test_the_range_of_a_resource_leaves_out_what_is_not_known() -> None:
    memory = next(r for r in proposal(*MOVES).shown()["ranges"] if r["resource"] == "memory")

    assert memory["before"] == {"lowest": 50.0, "highest": 90.0}
    assert memory["after"] == {"lowest": 40.0, "highest": 40.0}


def test_only_bundles_whose_topics_and_sessions_are_known_are_added_up() -> None:
    load = with_bundles(cluster(a=0.5, bundles=3), sessions={0: 10.0, 1: math.nan, 2: 5.0}, topics={2: math.nan})
    price = cost(load.bundles.names, load)

    assert (price.connections, price.topics, price.unknown) == (10, 1, 2)


def test_ten_thousand_moves_fit_into_a_config_map_several_times() -> None:
    draw = random.Random(7)
    brokers = [f"pulsar-broker-{i}.pulsar-broker.messaging.svc.cluster.local" for i in range(100)]
    step = 2**32 // 64
    moves = []
    for i in range(10_000):
        low = draw.randrange(63) * step
        name = f"tenant-{i % 40}/a-namespace-of-some-team-{i}/0x{low:08x}_0x{low + step:08x}"
        source, destination = draw.sample(brokers, 2)
        moves.append(Move(name, source, destination, Reason.OVERLOADED, draw.random() * 10))
    made = Plan(tuple(moves), (), tuple(brokers), np.full((100, 5), 51.234), np.full((100, 5), 49.876))
    names = {move.bundle: bundle_name(*parse_pulsar_bundle(move.bundle)) for move in moves}
    whole = Proposal.of(made, None, names=names, generation=1, made_at=NOW)
    done = Execution(whole, NOW)
    for row in range(10_000):
        done.fail(
            row, HeldBack("", Reason.CONFLICT, "it is on pulsar-broker-17 now, and not on pulsar-broker-3 any more")
        )

    stored = len(packed(whole.to_json())) + len(packed(done.to_json()))

    assert stored < 1_048_576 * 0.75, f"{stored} bytes"
    assert Proposal.from_json(whole.to_json()) == whole


# -- progress --


def execution(**changes: object) -> Execution:
    return Execution(proposal(*MOVES), NOW, **changes)  # type: ignore[arg-type]


def test_what_waits_comes_in_the_order_of_the_plan() -> None:
    begun = execution()
    begun.wrote(0)

    assert begun.waiting(5) == [1, 2]
    assert begun.waiting(1) == [1]


def test_a_written_move_lands_when_its_destination_confirms_it() -> None:
    name, begun = proposal(*MOVES).names[0], execution()
    begun.wrote(0, "7")

    assert not begun.follow({name: bundle(name, "a", resource_version="7")}), "not in the store yet"
    assert not begun.follow({name: moving_bundle(name, "a", "b", resource_version="8")})
    assert begun.follow({name: bundle(name, "b", resource_version="9")})
    assert begun.counts[Mark.LANDED] == 1


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, Reason.CONFLICT),
        (bundle(owner="a", reason="TimedOut", resource_version="9"), Reason.TIMED_OUT),
        (bundle(owner="a", reason="BrokerLost", resource_version="9"), Reason.BROKER_LOST),
        (moving_bundle(destination="c", resource_version="9"), Reason.SUPERSEDED),
    ],
    ids=["deleted", "withdrawn", "broker lost", "another desired owner"],
)
def test_a_written_move_that_ends_elsewhere_has_failed(found: object, reason: Reason) -> None:
    begun = execution()
    begun.wrote(0, "7")

    assert begun.follow({} if found is None else {begun.name(0): found})  # type: ignore[dict-item]
    assert begun.failures[0].reason is reason


def test_a_stopped_execution_ends_with_its_open_moves() -> None:
    begun = execution()
    begun.wrote(0)
    begun.stopped = True

    assert (begun.waiting(5), begun.ended) == ([], False)
    begun.follow({begun.name(0): bundle(begun.name(0), "b")})
    assert begun.ended


def test_progress_is_read_back_unchanged_and_only_for_its_own_proposal() -> None:
    begun = execution()
    begun.wrote(0)
    begun.fail(1, HeldBack(begun.name(1), Reason.PINNED, "a person pinned it"))
    text = begun.to_json()

    again = Execution.from_json(text, begun.proposal)

    assert (again.to_json(), again.in_flight, again.counts) == (text, 1, begun.counts)
    with pytest.raises(UnreadableContentError, match="has 3 rows, its proposal 2"):
        Execution.from_json(text, proposal(*MOVES[:2]))
    with pytest.raises(UnreadableContentError):
        Execution.from_json(text.replace(">", "?"), begun.proposal)


def test_progress_that_an_older_version_stored_is_read_with_the_words_of_today() -> None:
    begun = execution()
    begun.fail(0, HeldBack(begun.name(0), Reason.PULSAR_BALANCER_ACTIVE, "shedding is on"))
    text = begun.to_json().replace("PulsarBalancerActive", "TwoHands")

    assert "TwoHands" in text
    assert Execution.from_json(text, begun.proposal).failures == begun.failures


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1s"), (59.6, "1m00s"), (200, "3m20s"), (3900, "1h05m")])
def test_a_duration_is_reported_as_people_write_it(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_what_is_kept_is_the_proposal_that_waits_or_the_one_carried_out() -> None:
    done = execution()

    assert Standing().kept is None
    assert Standing(ProposalState.READY, execution=done).kept is done.proposal
