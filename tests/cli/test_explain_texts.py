"""The whole texts of `trimtab explain` and `trimtab why-not`, as people read them.

The texts in `explained/` are what a person sees; each was read once and found right. They are made from real decisions
on drawn clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from explained_decisions import FACTS, LATER, LEVEL_PAIR, largest, of_broker, of_bundle, written_by
from plan_clusters import HOT_OF_FOUR
from recorded_decisions import decided
from records import bundle, moving_bundle
from strategy_testing.clusters import NOW, cluster
from trim_decisions import TrimDecisions, skewed
from trimtab_operator.cli.why.answers import Answer, Facts
from trimtab_operator.cli.why.bundle import BundleExplanation
from trimtab_operator.cli.why.manual_move import manual_move
from trimtab_operator.decision_log.outcome import followed, measured
from trimtab_operator.decision_log.record import DecisionRecord
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason

TEXTS = Path(__file__).parent / "explained"
DRY_RUN = HeldBack("", Reason.DRY_RUN, "spec.mode is DryRun")
CLOSED = HeldBack("", Reason.OUTSIDE_WINDOW, "spec.windows: acts again from 2026-11-21T22:00:00Z")


def all_moved_lately() -> ClusterLoad:
    """`HOT_OF_FOUR`, after each of its bundles has moved within the last ten minutes. One is pinned, too."""
    moved = NOW - 60.0 * np.arange(len(HOT_OF_FOUR.bundles))
    pinned = np.arange(len(HOT_OF_FOUR.bundles)) == 1
    return replace(HOT_OF_FOUR, bundles=replace(HOT_OF_FOUR.bundles, last_unload=moved, pinned=pinned))


def moved_back() -> Answer | None:
    """The first move of `HOT_OF_FOUR`, landed, and its brokers measured five points away from what was expected."""
    record = decided(HOT_OF_FOUR, limits={"maxMovesPerCycle": 1})
    move = record.moves[0]
    landed = followed(record, {move.name: bundle(move.name, move.destination)}, NOW + 20)
    after = decided(cluster(bundles=2, a=0.65, b=0.51, c=0.3, d=0.6), at=NOW + 120)
    return of_bundle(measured(landed, after), move.name, move.destination).explain()


def held(hold: str) -> Answer | None:
    """A bundle of a level cluster that something holds."""
    record = decided(LEVEL_PAIR)
    name = record.stays[0].name
    facts, found = LATER, bundle(name, "a")
    match hold:
        case "pinned":
            found = bundle(name, "a", pinned=True)
        case "in flight":
            found = moving_bundle(name, "a", "b")
        case "cooling down":
            found = bundle(name, "a", reason="Overloaded", assigned_at=NOW - 600)
        case "paused":
            facts = replace(facts, paused=True)
        case "overlapping":
            found = bundle(name, "", assigned_owner="", reason="Overlap", assigned_at=NOW + 10)
            facts = replace(facts, no_place=(Reason.OVERLAP, "public-a-0x40000000-0xc0000000"))
    return of_bundle(record, name, found.status_owner, replace(facts, bundle=found)).why_not()


def moved_by_a_person(case: str) -> Answer | None:
    """A bundle that balancing moved from a to b, and a person back to a, or to a broker that there is not."""
    record = decided(HOT_OF_FOUR, limits={"maxMovesPerCycle": 1})
    move = record.moves[0]
    record = followed(record, {move.name: bundle(move.name, move.destination)}, NOW + 20)
    back = bundle(move.name, "a", assigned_owner="", since=NOW + 200)
    now = {
        "back": back,
        "pinned": replace(back, pinned=True),
        "long ago": replace(back, since=NOW - 7200),
        "nowhere": moving_bundle(move.name, move.destination, "zz", assigned_owner=""),
    }[case]
    raw = written_by("kubectl-patch", NOW + 190)
    hand = manual_move(raw, now, ["a", "b", "c", "d"], [record])
    facts = replace(FACTS, bundle=now, manual_move=hand)
    return BundleExplanation(move.name, now.status_owner, facts, [record]).explain()


def no_data() -> DecisionRecord:
    usage = HOT_OF_FOUR.brokers.usage.copy()
    usage[1, 3] = math.nan
    return decided(replace(HOT_OF_FOUR, brokers=replace(HOT_OF_FOUR.brokers, usage=usage)))


def capped(limit: str, *, moved: int = 0) -> Answer | None:
    record = decided(HOT_OF_FOUR, limits={limit: 1}, moved=moved)
    reason = Reason.HOUR_CAP if moved else Reason.CYCLE_CAP
    return of_bundle(record, largest(record, "a", reason), "a").why_not()


def by_trim(situation: str) -> Answer | None:
    """The busiest of five brokers with Trim."""
    policy = {
        "level": TrimDecisions(skewed(43)),
        "too short": TrimDecisions(skewed()),
        "not worth": TrimDecisions(skewed(51.5), {"worth": 4000, "hot": 5}),
        "idle": TrimDecisions(skewed(25, low=10)),
        "relieved": TrimDecisions(skewed()),
        "given away": TrimDecisions(skewed()),
    }[situation]
    if situation in {"relieved", "given away"}:
        record = policy.until_it_moves()
    else:
        record = policy.minutes(1 if situation == "too short" else 9)
    facts = Facts(record.at + 30, "messaging", "main", last=(record.at, record.outcome))
    if situation == "given away":
        return of_bundle(record, record.moves[0].name, "broker-4", facts).explain()
    return of_broker(record, "broker-4", facts).explain()


SITUATIONS: dict[str, Callable[[], Answer | None]] = {
    "a broker that gives": lambda: of_broker(decided(HOT_OF_FOUR), "a").explain(),
    "a broker that gets": lambda: of_broker(decided(HOT_OF_FOUR), "b").explain(),
    "a broker whose bundles can't move": lambda: of_broker(decided(all_moved_lately()), "a").explain(),
    "a broker that gets none of them": lambda: of_broker(decided(all_moved_lately()), "b").why_not(),
    "a broker that would give": lambda: of_broker(decided(HOT_OF_FOUR, shown=DRY_RUN, mode="DryRun"), "a").explain(),
    "a broker outside the windows": lambda: of_broker(decided(HOT_OF_FOUR, shown=CLOSED), "a").explain(),
    "a level broker": lambda: of_broker(decided(LEVEL_PAIR), "a", LATER).explain(),
    "a broker that gets none": lambda: of_broker(decided(LEVEL_PAIR), "b", LATER).why_not(),
    "a broker that was passed over": lambda: of_broker(decided(HOT_OF_FOUR), "d").why_not(),
    "a broker without data": lambda: of_broker(no_data(), "b").why_not(),
    "a broker that is cordoned": lambda: of_broker(
        decided(cluster(bundles=2, a=0.9, b=0.2, c=0.3, unschedulable=["b"])), "b"
    ).why_not(),
    "a cluster that lost its brokers": lambda: of_broker(
        decided(cluster(bundles=2, a=0.9, b=0.2, c=0.3, lost=["b", "c"])), "a"
    ).explain(),
    "a bundle that moved": moved_back,
    "a bundle that went elsewhere": lambda: of_bundle(
        decided(HOT_OF_FOUR), decided(HOT_OF_FOUR).moves[0].name, decided(HOT_OF_FOUR).moves[0].destination
    ).why_not("d"),
    "a bundle passed over": lambda: of_bundle(
        decided(HOT_OF_FOUR), largest(decided(HOT_OF_FOUR), "a", Reason.NOT_CHOSEN), "a"
    ).why_not("c"),
    "a bundle on a level broker": lambda: held(""),
    **{f"a bundle {hold}": partial(held, hold) for hold in ("pinned", "in flight", "cooling down", "overlapping")},
    "a bundle under a pause": partial(held, "paused"),
    "a bundle that a person moved": partial(moved_by_a_person, "back"),
    "a bundle that a person pinned elsewhere": partial(moved_by_a_person, "pinned"),
    "a bundle that a person moved long ago": partial(moved_by_a_person, "long ago"),
    "a bundle asked to move nowhere": partial(moved_by_a_person, "nowhere"),
    "a bundle over the cap of a cycle": partial(capped, "maxMovesPerCycle"),
    "a level broker with Trim": partial(by_trim, "level"),
    "a broker whose difference is young": partial(by_trim, "too short"),
    "a broker that is not worth a move": partial(by_trim, "not worth"),
    "an idle cluster": partial(by_trim, "idle"),
    "a broker that Trim relieves": partial(by_trim, "relieved"),
    "a bundle that Trim gives away": partial(by_trim, "given away"),
    "a bundle over the cap of an hour": partial(capped, "maxMovesPerHour", moved=1),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_answer_is_the_text_that_was_read_and_found_right(situation: str) -> None:
    answer = SITUATIONS[situation]()

    assert answer is not None
    assert f"{answer.text()}\n" == (TEXTS / f"{situation.replace(' ', '-')}.txt").read_text()


def test_there_is_a_text_for_each_situation_and_no_other() -> None:
    assert {path.stem for path in TEXTS.iterdir()} == {situation.replace(" ", "-") for situation in SITUATIONS}
