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

import pytest
import yaml

from kept_histories import AT, keep
from policy_scene import Play, PolicyScene, eager, played
from recorded_decisions import decided
from records import bundle, wished
from trimtab_operator.cli import main
from trimtab_operator.cli.answers import Answer, Facts
from trimtab_operator.cli.asking import near
from trimtab_operator.cli.explaining_broker import BrokerStory
from trimtab_operator.cli.explaining_bundle import BundleStory
from trimtab_operator.cli.sentences import SENTENCES
from trimtab_operator.cluster.move_costs import NOT_MEASURED, Interruption, MoveCosts
from trimtab_operator.control.aftermath import followed, measured
from trimtab_operator.control.decisions import DecisionRecord, Held, SplitView
from trimtab_pipeline.decision_entries import Entry
from trimtab_pipeline.decisions import DecisionHistories
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.testing import NOW, cluster, with_bundles
from trimtab_testbed.control_plane import ControlPlane

TEXTS = Path(__file__).parent / "explained"
#  average 50 %: a is far above it, d a little, b and c are idle
HOT = cluster(bundles={"a": [3, 2, 2, 1, 1], "b": [1], "c": [1], "d": [1, 1]}, a=0.9, b=0.2, c=0.3, d=0.6)
LEVEL = cluster(bundles=2, a=0.52, b=0.5)
DRY_RUN = HeldBack("", Reason.DRY_RUN, "spec.mode is DryRun")
CLOSED = HeldBack("", Reason.OUTSIDE_WINDOW, "spec.windows: acts again from 2026-11-21T22:00:00Z")
FACTS = Facts(NOW + 300, "messaging", "main", cool_down=1800, last=(NOW, "Overloaded"))
LATER = replace(FACTS, last=(NOW + 240, "Balanced"), usage={"a": 53.4, "b": 49.0})


def of_broker(record: DecisionRecord | Sequence[DecisionRecord], name: str, facts: Facts = FACTS) -> BrokerStory:
    return BrokerStory(name, facts, [record] if isinstance(record, DecisionRecord) else record)


def of_bundle(record: DecisionRecord, name: str, owner: str, facts: Facts = FACTS) -> BundleStory:
    return BundleStory(name, owner, facts, [record])


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
            found = wished(name, "a", "b")
        case "cooling down":
            found = bundle(name, "a", reason="Overloaded", assigned_at=NOW - 600)
        case "quarantined":
            facts = replace(facts, quarantine={name: NOW + 3900})
        case "paused":
            facts = replace(facts, paused=True)
    return of_bundle(record, name, "a", replace(facts, bundle=found)).why_not()


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
    "a bundle over the cap of a cycle": partial(capped, "maxMovesPerCycle"),
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
    assert set(SENTENCES) == set(Reason), "whoever adds a Reason says in cli/sentences.py what it means"


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
    assert BrokerStory("a", FACTS, []).explain() is None
    assert BundleStory("x", "a", replace(FACTS, bundle=bundle("x", "a")), []).why_not() is None
    pinned = BundleStory("x", "a", replace(FACTS, bundle=bundle("x", "a", pinned=True)), []).why_not()
    assert pinned is not None
    assert pinned.headline == "x stays on a: a person pinned it to its owner."


def test_names_spelt_alike_are_offered() -> None:
    assert near("broker-11", ["broker-1", "broker-2", "zookeeper"]) == "did you mean broker-1, broker-2?"
    assert near("x", ["broker-1"]) == "there are: broker-1"
    assert near("x", []) == "there is none at all"


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
        "a gives 2 bundles away, 50.0 points of its CPU: the broker is to be empty, so its bundles leave it."
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
    assert waits.headline.endswith("but it is proposed, and nobody has approved it yet.")
    assert moved.headline.startswith("a gives 1 bundle away")


@pytest.mark.parametrize(
    ("outcome", "headline"),
    [
        (None, "x is divided into 2: it carries more messages a second than a bundle may."),
        (
            Reason.DRY_RUN,
            "x would be divided into 2, as it carries more messages a second than a bundle may; but the policy only",
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


# -- from a history --


def remembered(folder: Path) -> DecisionRecord:
    """A history of three decisions, ten minutes apart: nothing to do, a move, nothing; the last is returned."""
    loads = (LEVEL, HOT, LEVEL)
    records = [decided(load, at=AT + 600 * k) for k, load in enumerate(loads)]
    histories = DecisionHistories(folder)
    for k, (load, record) in enumerate(zip(loads, records, strict=True)):
        keep(folder, "messaging/main", [10 * k], load)
        entry = Entry(record.at, str(record.outcome), len(record.moves), record.to_json())
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


# -- against the real API server --

Said = tuple[int, str, str]
Verb = Callable[..., Awaitable[Said]]


@pytest.fixture
def play(trimtab_crds: ControlPlane, kube_namespace: str) -> Play:
    return partial(played, trimtab_crds, kube_namespace)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs a verb against the scene; exit code, output and errors."""

    async def run(scene: PolicyScene, *words: str) -> Said:
        capsys.readouterr()
        whole = [*words, "-n", scene.namespace, "--kubeconfig", scene.kubeconfig]
        code = await asyncio.to_thread(main, whole)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.mark.apiserver
def test_a_person_learns_why_bundles_moved_and_why_others_did_not(play: Play, ask: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.turn()
        [name] = [n for n, owner in scene.wishes().items() if owner != scene.owners()[n]]
        full = {short: whole for whole, short in scene.names.items()}[name]

        code, out, _ = await ask(scene, "explain", "broker", "a")
        assert code == 0
        first, _, why = out.splitlines()[0].partition(": ")
        assert first == "a gives 1 bundle away, 30.0 points of its CPU"
        assert why == "a was at 90.0 % CPU, 35.0 points above the 55.0 % from which ThresholdShedder relieves a broker."
        code, out, _ = await ask(scene, "explain", "bundle", full)
        assert out.startswith(f"{name} is on its way from a to {scene.wishes()[name]}: a was at 90.0 % CPU")

        await scene.land()
        _, out, _ = await ask(scene, "why-not", name)
        assert out.startswith(f"{name} moved from a to "), "it has landed since, which no cycle has seen yet"

        still = next(n for n, owner in scene.owners().items() if owner == "d")
        scene.rest.patch(scene.path("bundles", still), {"spec": {"pinned": True}})
        code, out, _ = await ask(scene, "why-not", still, "--to", "b", "-o", "json")
        data = json.loads(out)
        assert (data["reason"], data["answer"]) == ("Pinned", f"{still} stays on d: a person pinned it to its owner.")
        assert data["decision"]["policy"] == "main"
        code, out, _ = await ask(scene, "why-not", "d", "-o", "yaml")
        assert yaml.safe_load(out)["reason"] == "Overloaded"

    play(HOT, story, **eager(maxMovesPerCycle=1))


@pytest.mark.apiserver
def test_names_that_are_wrong_and_questions_that_come_too_early_are_told_so(play: Play, ask: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        code, _, err = await ask(scene, "explain", "broker", "aa")
        assert code == 2
        assert "no Broker aa in namespace" in err
        code, _, err = await ask(scene, "why-not", "public-a-0x00000000-0x80000001")
        assert (code, "did you mean public-a-0x00000000-0x80000000" in err) == (2, True)
        code, _, err = await ask(scene, "explain", "bundle", "public/a")
        assert (code, "tenant/namespace/0x" in err) == (2, True)

        code, out, err = await ask(scene, "explain", "broker", "a")
        assert (code, out) == (1, "")
        assert "nothing was decided about a yet: policy main decides every 60s, and has not yet" in err

    play(LEVEL, story)


@pytest.mark.parametrize(
    ("costs", "line"),
    [
        (NOT_MEASURED, "what a move costs: not measured yet in its namespace"),
        (
            MoveCosts((Interruption(0.1, 0.2), Interruption(0.3, 0.4))),
            (
                "what a move costs in its namespace: publishers wait 0.20 s (median of 2 moves, 0.30 s at worst); "
                "all clients are back after 0.30 s (median of 2 moves, 0.40 s at worst)"
            ),
        ),
    ],
)
def test_a_bundle_is_told_with_what_a_move_of_it_costs(costs: MoveCosts, line: str) -> None:
    record = decided(LEVEL)
    answer = of_bundle(record, record.stays[0].name, "a", replace(LATER, costs=costs)).explain()
    assert answer is not None
    assert line in answer.compared
