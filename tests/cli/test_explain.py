"""`trimtab explain` and `trimtab why-not`: answers as people read them, and the verbs against the real API server.

The texts in `explained/` are what a person sees; each was read once and found right. They are made from real decisions
on drawn clusters.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kept_histories import AT, keep
from policy_environment import PolicyEnvironment, RunPolicy, eager, run_scenario
from recorded_decisions import decided
from records import bundle, moving_bundle
from trim_decisions import TrimDecisions, skewed
from trimtab_operator.cli import main
from trimtab_operator.cli.cluster import near
from trimtab_operator.cli.why.answers import Answer, Facts
from trimtab_operator.cli.why.broker import BrokerExplanation
from trimtab_operator.cli.why.bundle import BundleExplanation
from trimtab_operator.cli.why.manual_move import manual_move
from trimtab_operator.cli.why.wording import SENTENCES
from trimtab_operator.decision_log.outcome import followed, measured
from trimtab_operator.decision_log.record import DecisionRecord, Held, ManualMove, SplitView
from trimtab_operator.decision_log.store import DECISIONS
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.move_costs import NOT_MEASURED, Interruption, MoveCosts
from trimtab_operator.kube.records import BundleRecord
from trimtab_pipeline.api import DecisionEntry
from trimtab_pipeline.history.decisions import DecisionHistories
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.testing import NOW, cluster, with_bundles
from trimtab_testbed.servers.kube import ControlPlane

TEXTS = Path(__file__).parent / "explained"
#  average 50 %: a is far above it, d a little, b and c are idle
HOT = cluster(bundles={"a": [3, 2, 2, 1, 1], "b": [1], "c": [1], "d": [1, 1]}, a=0.9, b=0.2, c=0.3, d=0.6)
LEVEL = cluster(bundles=2, a=0.52, b=0.5)
DRY_RUN = HeldBack("", Reason.DRY_RUN, "spec.mode is DryRun")
CLOSED = HeldBack("", Reason.OUTSIDE_WINDOW, "spec.windows: acts again from 2026-11-21T22:00:00Z")
FACTS = Facts(NOW + 300, "messaging", "main", cool_down=1800, last=(NOW, "Overloaded"))
LATER = replace(FACTS, last=(NOW + 240, "Balanced"), usage={"a": 53.4, "b": 49.0})


def of_broker(record: DecisionRecord | Sequence[DecisionRecord], name: str, facts: Facts = FACTS) -> BrokerExplanation:
    return BrokerExplanation(name, facts, [record] if isinstance(record, DecisionRecord) else record)


def of_bundle(record: DecisionRecord, name: str, owner: str, facts: Facts = FACTS) -> BundleExplanation:
    return BundleExplanation(name, owner, facts, [record])


def moved_back() -> Answer | None:
    """The first move of `HOT`, landed, and its brokers measured five points away from what was expected."""
    record = decided(HOT, limits={"maxMovesPerCycle": 1})
    move = record.moves[0]
    landed = followed(record, {move.name: bundle(move.name, move.destination)}, NOW + 20)
    after = decided(cluster(bundles=2, a=0.65, b=0.51, c=0.3, d=0.6), at=NOW + 120)
    return of_bundle(measured(landed, after), move.name, move.destination).explain()


def held(hold: str) -> Answer | None:
    """A bundle of a level cluster that something holds."""
    record = decided(LEVEL)
    name = record.stays[0].name
    facts, found = LATER, bundle(name, "a")
    match hold:
        case "pinned":
            found = bundle(name, "a", pinned=True)
        case "in flight":
            found = moving_bundle(name, "a", "b")
        case "cooling down":
            found = bundle(name, "a", reason="Overloaded", assigned_at=NOW - 600)
        case "quarantined":
            facts = replace(facts, quarantine={name: NOW + 3900})
        case "paused":
            facts = replace(facts, paused=True)
    return of_bundle(record, name, "a", replace(facts, bundle=found)).why_not()


def moved_by_a_person(case: str) -> Answer | None:
    """A bundle that balancing moved from a to b, and a person back to a, or to a broker that there is not."""
    record = decided(HOT, limits={"maxMovesPerCycle": 1})
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


def written_by(manager: str, at: float, *, made: float = NOW - 9000) -> dict[str, Any]:
    """What a Bundle object says of who wrote its owner."""
    entry = {"manager": manager, "time": timestamp(at), "fieldsV1": {"f:spec": {"f:owner": {}}}}
    return {"metadata": {"creationTimestamp": timestamp(made), "managedFields": [entry]}}


def no_data() -> DecisionRecord:
    usage = HOT.brokers.usage.copy()
    usage[1, 3] = math.nan
    return decided(replace(HOT, brokers=replace(HOT.brokers, usage=usage)))


def largest(record: DecisionRecord, broker: str, reason: Reason) -> str:
    return next(stay.name for stay in record.stays if stay.broker == broker and stay.reason is reason)


def capped(limit: str, *, moved: int = 0) -> Answer | None:
    record = decided(HOT, limits={limit: 1}, moved=moved)
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
    "a broker that gives": lambda: of_broker(decided(HOT), "a").explain(),
    "a broker that gets": lambda: of_broker(decided(HOT), "b").explain(),
    "a broker that would give": lambda: of_broker(decided(HOT, shown=DRY_RUN, mode="DryRun"), "a").explain(),
    "a broker outside the windows": lambda: of_broker(decided(HOT, shown=CLOSED), "a").explain(),
    "a level broker": lambda: of_broker(decided(LEVEL), "a", LATER).explain(),
    "a broker that gets none": lambda: of_broker(decided(LEVEL), "b", LATER).why_not(),
    "a broker that was passed over": lambda: of_broker(decided(HOT), "d").why_not(),
    "a broker without data": lambda: of_broker(no_data(), "b").why_not(),
    "a broker that is cordoned": lambda: of_broker(
        decided(cluster(bundles=2, a=0.9, b=0.2, c=0.3, unschedulable=["b"])), "b"
    ).why_not(),
    "a cluster that lost its brokers": lambda: of_broker(
        decided(cluster(bundles=2, a=0.9, b=0.2, c=0.3, lost=["b", "c"])), "a"
    ).explain(),
    "a bundle that moved": moved_back,
    "a bundle that went elsewhere": lambda: of_bundle(
        decided(HOT), decided(HOT).moves[0].name, decided(HOT).moves[0].destination
    ).why_not("d"),
    "a bundle passed over": lambda: of_bundle(decided(HOT), largest(decided(HOT), "a", Reason.NOT_CHOSEN), "a").why_not(
        "c"
    ),
    "a bundle on a level broker": lambda: held(""),
    **{f"a bundle {hold}": partial(held, hold) for hold in ("pinned", "in flight", "cooling down", "quarantined")},
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


def test_every_reason_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Reason), "a new Reason needs its meaning in cli/why/wording.py"


@pytest.mark.parametrize("reason", Reason)
def test_a_sentence_is_a_clause_and_its_steps_can_be_filled_in(reason: Reason) -> None:
    found = SENTENCES[reason]
    names = dict.fromkeys(("bundle", "broker", "to", "policy", "namespace"), "x")

    assert found.why
    assert not found.why.endswith(".")
    assert all("{b" not in step and "{{" not in step for step in found.steps(**names))
    for step in found.steps(**names):
        if "-p '" in step:
            json.loads(step.split("-p '")[1].rstrip("'"))


@pytest.mark.parametrize("load", [HOT, LEVEL], ids=["hot", "level"])
def test_no_object_of_a_drawn_cluster_is_without_an_answer(load: ClusterLoad) -> None:
    record = decided(load)
    brokers = [of_broker(record, name) for name in load.brokers.names]
    bundles = [of_bundle(record, found.name, found.broker) for found in record.stays]
    bundles += [of_bundle(record, move.name, move.destination) for move in record.moves]

    for one in (*brokers, *bundles):
        for answer in (one.explain(), one.why_not(), one.why_not("b")):
            assert answer is not None
            assert answer.headline.endswith(".")
            assert answer.headline.count("\n") == 0


def test_without_a_decision_a_pin_is_an_answer_and_nothing_else_is() -> None:
    assert BrokerExplanation("a", FACTS, []).explain() is None
    assert BundleExplanation("x", "a", replace(FACTS, bundle=bundle("x", "a")), []).why_not() is None
    pinned = BundleExplanation("x", "a", replace(FACTS, bundle=bundle("x", "a", pinned=True)), []).why_not()
    assert pinned is not None
    assert pinned.headline == "x stays on a: a person pinned it to its owner."


def test_names_spelt_alike_are_offered() -> None:
    assert near("broker-11", ["broker-1", "broker-2", "zookeeper"]) == "did you mean broker-1, broker-2?"
    assert near("x", ["broker-1"]) == "there are: broker-1"
    assert near("x", []) == "there are none"


def test_a_bundle_that_was_never_measured_says_which_metric_is_missing() -> None:
    load = with_bundles(HOT, short={0: [1.0, math.nan, 1.0, 1.0]})
    record = decided(load)
    name = largest(record, "a", Reason.NO_LOAD_DATA)
    answer = of_bundle(record, name, "a").why_not()

    assert answer is not None
    assert answer.headline == f"{name} stays on a: a metric of it was never measured (no rateOut)."


def test_bundles_of_a_drained_broker_leave_for_that_and_not_for_their_load() -> None:
    record = decided(HOT)
    drained = [move.model_copy(update={"reason": Reason.DRAINED}) for move in record.moves]
    answer = of_broker(record.model_copy(update={"moves": tuple(drained)}), "a").explain()

    assert answer is not None
    assert answer.headline == (
        "a gives 2 bundles away, 50.0 points of its CPU: the broker is being drained, so its bundles leave it."
    )


def test_a_bundle_that_could_not_leave_a_drained_broker_says_what_was_in_the_way() -> None:
    record = decided(LEVEL)
    stays = [stay.model_copy(update={"reason": Reason.DRAINED}) for stay in record.stays if stay.broker == "a"]
    held = Held(subject="a", reason=Reason.NO_CANDIDATE, detail="2 bundles can't leave yet", count=2)
    drained = record.model_copy(update={"stays": tuple(stays), "held_back": (*record.held_back, held)})
    answer = of_bundle(drained, stays[0].name, "a").why_not()

    assert answer is not None
    assert (answer.reason, "(2 bundles can't leave yet)" in answer.headline) == (Reason.NO_CANDIDATE, True)


def test_what_a_person_approved_later_did_move() -> None:
    record = decided(HOT, shown=HeldBack("", Reason.NOT_APPROVED), mode="Approve", limits={"maxMovesPerCycle": 1})
    move = record.moves[0]
    waits, done = (
        of_broker(record, "a").explain(),
        followed(record, {move.name: bundle(move.name, move.destination)}, NOW + 99),
    )
    moved = of_broker(done, "a").explain()

    assert waits is not None
    assert moved is not None
    assert waits.headline.endswith("but it is proposed, and not approved yet.")
    assert moved.headline.startswith("a gives 1 bundle away")


@pytest.mark.parametrize(
    ("outcome", "headline"),
    [
        (None, "x is split into 2: it carries more messages a second than a bundle may."),
        (
            Reason.DRY_RUN,
            "x would be split into 2, as it carries more messages a second than a bundle may; but the policy only",
        ),
    ],
    ids=["asked for", "only shown"],
)
def test_a_bundle_that_is_divided_is_told_so(outcome: Reason | None, headline: str) -> None:
    split = SplitView(bundle="t/n/x", name="x", source="a", children=2, reason=Reason.MSG_RATE, outcome=outcome)
    record = decided(LEVEL).model_copy(update={"splits": (split,)})
    answer = of_bundle(record, "x", "a").explain()

    assert answer is not None
    assert answer.headline.startswith(headline)


@pytest.mark.parametrize(
    ("changes", "raw", "by_a_person"),
    [
        ({"assigned_owner": "b"}, written_by("kubectl-patch", NOW), True),
        ({"assigned_owner": ""}, written_by("trimtab", NOW), True),
        ({"assigned_owner": "a", "assigned_at": NOW - 60}, written_by("kubectl-patch", NOW), True),
        ({"assigned_owner": "a", "assigned_at": NOW}, written_by("kubectl-patch", NOW - 60), False),
        ({"assigned_owner": "a", "assigned_at": NOW, "reason": "Admin"}, written_by("kubectl-patch", NOW - 60), True),
        ({"assigned_owner": "a", "assigned_at": NOW - 60}, written_by("trimtab", NOW), False),
        ({"assigned_owner": ""}, written_by("kubectl-create", NOW, made=NOW), False),
        ({"assigned_owner": ""}, {"metadata": {}}, False),
    ],
    ids=["over the operator's", "trimtab move", "back", "before", "noted", "the operator", "made so", "nothing said"],
)
def test_who_wrote_the_owner_tells_a_person_s_move_from_the_operator_s(
    changes: dict[str, Any],
    raw: dict[str, Any],
    by_a_person: bool,  # noqa: FBT001 - a column
) -> None:
    assert (manual_move(raw, bundle("x", "a", **changes), ["a", "b"], []) is not None) is by_a_person


def test_a_manual_move_without_a_decision_is_an_answer() -> None:
    now = bundle("x", "a", assigned_owner="", since=NOW)
    facts = replace(FACTS, bundle=now, manual_move=manual_move(written_by("trimtab", NOW), now, ["a"], []))
    answer = BundleExplanation("x", "a", facts, []).explain()

    assert answer is not None
    assert answer.headline.startswith(
        "x was moved by a person (trimtab move) to a at 1970-01-12 13:46:40 UTC; it is on"
    )


def test_why_not_says_that_a_person_moved_it_and_asked_for_a_broker_that_there_is_not() -> None:
    record = decided(LEVEL)
    cooling = bundle("x", "a", assigned_owner="", since=NOW)
    missing = moving_bundle("x", "a", "zz", assigned_owner="")

    def told(now: BundleRecord) -> str:
        hand = manual_move(written_by("kubectl-edit", NOW), now, ["a", "b"], [record])
        answer = of_bundle(record, "x", "a", replace(LATER, bundle=now, manual_move=hand)).why_not()
        assert answer is not None
        return answer.headline

    assert "moved by a person (kubectl-edit) 5m ago" in told(cooling)
    assert "(from a to zz, asked for by a person (kubectl-edit); there is no broker zz)" in told(missing)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (
            {"reason": "Adopted", "assigned_at": NOW + 200, "since": NOW + 190},
            "it is on d now: its owner changed outside the operator, which adopted the new owner; before that it moved",
        ),
        (
            {"reason": "TimedOut", "assigned_at": NOW + 200, "since": NOW + 100},
            "it is on d now: a request for another broker was withdrawn at 1970-01-12 13:50:00 UTC, as the destination",
        ),
    ],
    ids=["adopted", "withdrawn"],
)
def test_a_move_that_is_no_longer_where_the_bundle_is_is_told_as_the_past(now: dict[str, Any], said: str) -> None:
    record = decided(HOT, limits={"maxMovesPerCycle": 1})
    move = record.moves[0]
    landed = followed(record, {move.name: bundle(move.name, move.destination)}, NOW + 20)
    answer = of_bundle(landed, move.name, "d", replace(FACTS, bundle=bundle(move.name, "d", **now))).explain()

    assert answer is not None
    assert said in answer.headline


def test_a_recorded_manual_move_is_explained_while_the_bundle_is_still_there() -> None:
    record = decided(HOT, limits={"maxMovesPerCycle": 1})
    move = record.moves[0]
    landed = followed(record, {move.name: bundle(move.name, move.destination)}, NOW + 20)
    manual = ManualMove(name=move.name, source=move.destination, destination="a", at=NOW + 60)
    later = decided(LEVEL, at=NOW + 120).model_copy(update={"manual_moves": (manual,)})
    withdrawn = bundle(move.name, "a", reason="TimedOut", assigned_at=NOW + 200, since=NOW + 60)
    facts = replace(FACTS, bundle=withdrawn)
    answer = BundleExplanation(move.name, "a", facts, [landed, later]).explain()

    assert answer is not None
    assert answer.headline.startswith(f"{move.name} was moved by a person, or Git, from {move.destination} to a at ")


def test_a_history_that_can_t_be_used_is_not_blamed_on_prometheus() -> None:
    trouble = Held(reason=Reason.SOURCE_UNAVAILABLE, detail="the history can't be used: read-only")
    record = decided(LEVEL).model_copy(update={"refusal": trouble})
    answer = of_bundle(record, "x", "a").why_not()

    assert answer is not None
    assert "Prometheus" not in answer.headline
    assert "the history can't be used: read-only" in answer.headline
    assert any("--history" in step for step in answer.otherwise)


def test_a_cluster_that_is_too_small_for_the_minimum_says_which_and_what_would_act() -> None:
    shedder = {"type": "ThresholdShedder", "thresholdShedder": {"history": 0, "minThroughput": 100000}}
    record = decided(HOT, shedder=shedder)
    said = "thresholdShedder.minThroughput is 100000 MiB/s; this broker has "
    answers = (
        of_broker(record, "a").explain(),
        of_broker(record, "b").why_not(),
        of_bundle(record, "public-a-0x00000000-0x33333333", "a").why_not(),
    )

    for answer in answers:
        assert answer is not None
        assert said in answer.headline
        assert "or less would act" in answer.headline
        assert answer.otherwise[0].startswith("use Trim, which needs no least traffic: kubectl edit bpol main")


# -- from a history --


def remembered(folder: Path) -> DecisionRecord:
    """A history of three decisions, ten minutes apart: nothing to do, a move, nothing; the last is returned."""
    loads = (LEVEL, HOT, LEVEL)
    records = [decided(load, at=AT + 600 * k) for k, load in enumerate(loads)]
    histories = DecisionHistories(folder)
    for k, (load, record) in enumerate(zip(loads, records, strict=True)):
        keep(folder, "messaging/main", [10 * k], load)
        entry = DecisionEntry(record.at, str(record.outcome), len(record.moves), record.to_json())
        histories.keep_decisions("messaging/main", record.at, [entry])
    return records[-1]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_history_answers_without_a_cluster_for_any_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remembered(tmp_path)
    words = ("explain", "broker", "a", "--history", str(tmp_path))

    assert told(capsys, *words)[1].startswith("a keeps its bundles: no broker is far enough from the others")
    assert told(capsys, *words, "--at", "5m")[1].startswith("a gives 2 bundles away")
    assert told(capsys, *words, "--at", "2025-06-15T15:10:01Z")[1].startswith("a gives 2 bundles away")


def test_a_history_knows_bundles_that_were_not_noted_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remembered(tmp_path)

    code, out, _ = told(capsys, "why-not", "public/b/0x80000000_0xffffffff", "--history", str(tmp_path))

    assert (code, out.splitlines()[0].split(": ")[0]) == (0, "public-b-0x80000000-0xffffffff stays on b")


@pytest.mark.parametrize(
    ("words", "told_so"),
    [
        (("explain", "broker", "aa"), "aa is in no decision of messaging/main"),
        (("why-not", "public-a-0x00000000-0x80000001"), "did you mean public-a-0x00000000-0x80000000"),
        (("explain", "broker", "a", "--at", "2h"), "has no decision up to 2025-06-15 13:20:00 UTC"),
        (("explain", "broker", "a", "--policy", "other"), "there are: messaging/main"),
    ],
    ids=["broker", "bundle", "time", "policy"],
)
def test_what_a_history_does_not_know_is_told(
    words: tuple[str, ...], told_so: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remembered(tmp_path)

    code, _, err = told(capsys, *words, "--history", str(tmp_path))

    assert (code, told_so in err) == (2, True), err


def test_a_moment_is_of_a_history_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "why-not", "a", "-n", "x", "--at", "2h")[0] == 2


def test_a_history_tells_what_people_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "public-a-0x00000000-0x80000000"
    manual = ManualMove(name=name, source="b", destination="a", at=AT + 60)
    record = decided(LEVEL, at=AT + 120).model_copy(update={"manual_moves": (manual,)})
    keep(tmp_path, "messaging/main", [2], LEVEL)
    entry = DecisionEntry(record.at, str(record.outcome), 0, record.to_json())
    DecisionHistories(tmp_path).keep_decisions("messaging/main", record.at, [entry])

    code, out, _ = told(capsys, "explain", "bundle", name, "--history", str(tmp_path))

    assert (code, out.split(" at ")[0]) == (0, f"{name} was moved by a person, or Git, from b to a")


# -- against the real API server --

Said = tuple[int, str, str]
Verb = Callable[..., Awaitable[Said]]


@pytest.fixture
def run_policy(trimtab_crds: ControlPlane, kube_namespace: str) -> RunPolicy:
    return partial(run_scenario, trimtab_crds, kube_namespace)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs a verb against the environment; exit code, output and errors."""

    async def run(env: PolicyEnvironment, *words: str) -> Said:
        capsys.readouterr()
        whole = [*words, "-n", env.namespace, "--kubeconfig", env.kubeconfig]
        code = await asyncio.to_thread(main, whole)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.mark.apiserver
def test_a_person_learns_why_bundles_moved_and_why_others_did_not(run_policy: RunPolicy, ask: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        [name] = [n for n, owner in env.desired_owners().items() if owner != env.owners()[n]]
        full = {short: whole for whole, short in env.names.items()}[name]

        code, out, _ = await ask(env, "explain", "broker", "a")
        assert code == 0
        first, _, why = out.splitlines()[0].partition(": ")
        assert first == "a gives 1 bundle away, 30.0 points of its CPU"
        assert why == "a was at 90.0 % CPU, 35.0 points above the 55.0 % from which ThresholdShedder relieves a broker."
        code, out, _ = await ask(env, "explain", "bundle", full)
        assert out.startswith(f"{name} is moving from a to {env.desired_owners()[name]}: a was at 90.0 % CPU")

        await env.land()
        _, out, _ = await ask(env, "why-not", name)
        assert out.startswith(f"{name} moved from a to "), "it has landed since, which no cycle has seen yet"

        still = next(n for n, owner in env.owners().items() if owner == "d")
        env.rest.patch(env.path("bundles", still), {"spec": {"pinned": True}})
        code, out, _ = await ask(env, "why-not", still, "--to", "b", "-o", "json")
        data = json.loads(out)
        assert (data["reason"], data["answer"]) == ("Pinned", f"{still} stays on d: a person pinned it to its owner.")
        assert data["decision"]["policy"] == "main"
        code, out, _ = await ask(env, "why-not", "d", "-o", "yaml")
        assert yaml.safe_load(out)["reason"] == "Overloaded"

    run_policy(HOT, scenario, **eager(maxMovesPerCycle=1))


@pytest.mark.apiserver
def test_a_person_s_move_is_told_as_theirs(run_policy: RunPolicy, ask: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        [name] = [n for n, owner in env.desired_owners().items() if owner != env.owners()[n]]
        await env.land()
        there = env.owners()[name]

        env.clock += 10
        await ask(env, "move", name, "a")
        _, asked_for, _ = await ask(env, "explain", "bundle", name)
        await env.land()
        await env.cycle()
        _, landed, _ = await ask(env, "explain", "bundle", name)
        env.rest.patch(env.path("bundles", name), {"spec": {"owner": "zz"}})
        _, nowhere, _ = await ask(env, "explain", "bundle", name)

        assert asked_for.startswith(f"{name} was requested to move by a person (trimtab move) from {there} to a at ")
        assert landed.startswith(f"{name} was moved by a person (trimtab move) from {there} to a at ")
        assert "; it is on a now" in landed.splitlines()[0]
        assert "; it is on a now, as there is no broker zz" in nowhere.splitlines()[0]
        records = DECISIONS.read(env.rest.get(f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-decisions-main"))
        assert [(m.source, m.destination) for r in records for m in r.manual_moves if m.name == name] == [(there, "a")]

    run_policy(HOT, scenario, **eager(maxMovesPerCycle=1))


@pytest.mark.apiserver
def test_names_that_are_wrong_and_questions_that_come_too_early_are_told_so(run_policy: RunPolicy, ask: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        code, _, err = await ask(env, "explain", "broker", "aa")
        assert code == 2
        assert "no Broker aa in namespace" in err
        code, _, err = await ask(env, "why-not", "public-a-0x00000000-0x80000001")
        assert (code, "did you mean public-a-0x00000000-0x80000000" in err) == (2, True)
        code, _, err = await ask(env, "explain", "bundle", "public/a")
        assert (code, "tenant/namespace/0x" in err) == (2, True)

        code, out, err = await ask(env, "explain", "broker", "a")
        assert (code, out) == (1, "")
        assert "nothing was decided about a yet: policy main decides every 60s, but has not yet" in err

    run_policy(LEVEL, scenario)


@pytest.mark.parametrize(
    ("costs", "line"),
    [
        (NOT_MEASURED, "cost of a move: not measured yet in its namespace"),
        (
            MoveCosts((Interruption(0.1, 0.2), Interruption(0.3, 0.4))),
            (
                "cost of a move in its namespace: publishers wait 0.20 s "
                "(median of 2 sampled moves, 0.30 s the longest of these); "
                "all clients reconnect within 0.30 s (median of 2 sampled moves, 0.40 s the longest of these)"
            ),
        ),
    ],
)
def test_a_bundle_is_told_with_what_a_move_of_it_costs(costs: MoveCosts, line: str) -> None:
    record = decided(LEVEL)
    answer = of_bundle(record, record.stays[0].name, "a", replace(LATER, costs=costs)).explain()
    assert answer is not None
    assert line in answer.compared
