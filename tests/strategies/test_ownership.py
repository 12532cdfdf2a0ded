"""A bundle's states, records and flows: as in Pulsar, and safe to take up again wherever they were interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bundle_state import ACTIVE, ALLOWED, IN_FLIGHT, State, Storage
from ownership_model import (
    Duty,
    InvalidRecordError,
    Lookup,
    OvertakenError,
    Record,
    Step,
    Table,
    Work,
    assign,
    duty,
    lookup,
    override,
    refusal,
    split,
    state_of,
    transfer,
    unload,
)

JAVA = json.loads((Path(__file__).parents[1] / "conformance" / "java-states.json").read_text())
"""What Pulsar's own classes answered: both tables, and the conflict rule on drawn pairs of records."""

BUNDLE = "t/n/0x00000000_0x80000000"
LEFT, MIDDLE, RIGHT = "0x00000000_0x20000000", "0x20000000_0x40000000", "0x40000000_0x80000000"
CHILDREN = [f"t/n/{part}" for part in (LEFT, MIDDLE, RIGHT)]

OWNED = Record(State.OWNED, destination="a", version=5)
FREE = Record(State.FREE, source="a", version=9)


def _record(fields: Mapping[str, Any] | None) -> Record | None:
    if fields is None:
        return None
    destination, source = fields["dst"] or "", fields["src"] or ""
    return Record(State(fields["state"]), destination, source, force=fields["force"], version=fields["v"])


@pytest.mark.parametrize("storage", Storage)
def test_the_same_states_may_follow_as_in_pulsar(storage: Storage) -> None:
    assert {str(state): {str(to) for to in after} for state, after in ALLOWED[storage].items()} == {
        state: set(after) for state, after in JAVA["tables"][storage].items()
    }


def test_the_same_states_are_in_flight_and_active_as_in_pulsar() -> None:
    assert set(JAVA["in_flight"]) == IN_FLIGHT
    assert set(JAVA["active"]) == ACTIVE


def test_the_conflict_rule_decides_as_java_does() -> None:
    assert len(JAVA["conflicts"]) > 500
    for case in JAVA["conflicts"]:
        why = refusal(_record(case["from"]), _record(case["to"]), Storage(case["storage"]))
        assert (why is not None) == case["keeps_old"], (case, why)


def test_a_refusal_says_what_is_wrong() -> None:
    stale = Record(State.RELEASING, "b", "a", version=5)
    wrong = Record(State.RELEASING, "b", "c", version=6)
    free = Record(State.FREE, "", "a", version=6)

    assert refusal(OWNED, stale, Storage.SYSTEM_TOPIC) == "version 5 is not after 5"
    assert refusal(OWNED, wrong, Storage.SYSTEM_TOPIC) == "Owned to Releasing: the source is c, the owner a"
    assert refusal(OWNED, free, Storage.SYSTEM_TOPIC) == "Free may not follow Owned"


def test_a_version_gap_on_the_system_topic_can_be_checked_like_any_other_record() -> None:
    jumped = Record(State.FREE, "b", "a", version=9)

    assert refusal(OWNED, jumped, Storage.SYSTEM_TOPIC) is None
    assert refusal(OWNED, jumped, Storage.SYSTEM_TOPIC, gaps_checked=True) == "Free may not follow Owned"
    assert refusal(OWNED, Record(State.RELEASING, "b", "a", version=9), Storage.SYSTEM_TOPIC, gaps_checked=True) is None


@pytest.mark.parametrize("brokers", [("", ""), (" ", "")])
def test_a_record_without_a_broker_is_refused(brokers: tuple[str, str]) -> None:
    with pytest.raises(InvalidRecordError, match="state Owned names no broker: give a destination or a source"):
        Record(State.OWNED, *brokers)


def test_init_is_no_record() -> None:
    with pytest.raises(InvalidRecordError, match="remove it instead"):
        Record(State.INIT, "a")


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (None, Lookup()),
        (FREE, Lookup()),
        (OWNED, Lookup("a")),
        (Record(State.SPLITTING, "", "a"), Lookup("a")),
        (Record(State.ASSIGNING, "b", "a"), Lookup("b")),
        (Record(State.ASSIGNING, "me", "a"), Lookup("me", wait=True)),
        (Record(State.RELEASING, "b", "a"), Lookup("b")),
        (Record(State.RELEASING, "", "a"), Lookup()),
        (Record(State.DELETED, "", "a"), Lookup(gone=True)),
    ],
)
def test_a_lookup_finds_who_serves_or_will_serve(record: Record | None, found: Lookup) -> None:
    assert lookup(record, "me") == found


@pytest.mark.parametrize(
    ("record", "due"),
    [
        (None, None),
        (OWNED, None),
        (FREE, None),
        (Record(State.ASSIGNING, "b", "a"), Duty("b", Work.NOTHING, State.OWNED)),
        (Record(State.RELEASING, "b", "a"), Duty("a", Work.CLOSE, State.ASSIGNING)),
        (Record(State.RELEASING, "", "a"), Duty("a", Work.CLOSE_AND_DISCONNECT, State.FREE)),
        (Record(State.OWNED, "b", "a"), Duty("a", Work.DISCONNECT, None)),
        (Record(State.SPLITTING, "", "a"), Duty("a", Work.DIVIDE, State.DELETED)),
        (Record(State.DELETED, "", "a"), Duty("a", Work.NOTHING, State.INIT)),
        (Record(State.FREE, "", "a", force=True), Duty("a", Work.CLOSE_AND_DISCONNECT, State.INIT)),
    ],
)
def test_every_record_says_who_has_to_act(record: Record | None, due: Duty | None) -> None:
    assert duty(record) == due


def test_clients_are_disconnected_at_once_without_phases() -> None:
    assert duty(Record(State.RELEASING, "b", "a"), multi_phase=False) == Duty(
        "a", Work.CLOSE_AND_DISCONNECT, State.ASSIGNING
    )
    assert duty(Record(State.OWNED, "b", "a"), multi_phase=False) is None


Flow = Callable[[Table], Iterator[Step]]

FLOWS: dict[str, tuple[Table, Flow]] = {
    "first assignment": ({}, lambda table: assign(BUNDLE, table.get(BUNDLE), "b")),
    "assignment after unload": ({BUNDLE: FREE}, lambda table: assign(BUNDLE, table.get(BUNDLE), "b")),
    "transfer": ({BUNDLE: OWNED}, lambda table: transfer(BUNDLE, table.get(BUNDLE), "b")),
    "transfer at once": ({BUNDLE: OWNED}, lambda table: transfer(BUNDLE, table.get(BUNDLE), "b", multi_phase=False)),
    "transfer of nobody's": ({BUNDLE: FREE}, lambda table: transfer(BUNDLE, table.get(BUNDLE), "b")),
    "unload": ({BUNDLE: OWNED}, lambda table: unload(BUNDLE, table.get(BUNDLE))),
    "split": ({BUNDLE: OWNED}, lambda table: split(BUNDLE, table, {LEFT: "", MIDDLE: "", RIGHT: ""})),
    "split and spread": ({BUNDLE: OWNED}, lambda table: split(BUNDLE, table, {LEFT: "b", MIDDLE: "a", RIGHT: "c"})),
}


def _carried_out(table: Table, steps: Iterator[Step], count: int | None = None) -> list[Table]:
    """The tables after none, one, ... and `count` of the steps; each step must be one that both storages accept."""
    tables = [table]
    for step in steps:
        if count is not None and len(tables) > count:
            break
        now = dict(tables[-1])
        assert now.get(step.bundle) == step.old, f"{step} expects another record"
        if step.new is None:
            del now[step.bundle]
        else:
            now[step.bundle] = step.new
        tables.append(now)
    return tables


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_taken_up_after_any_prefix_ends_where_it_would_have_ended(name: str) -> None:
    start, flow = FLOWS[name]
    whole = _carried_out(start, flow(start))

    for count, left in enumerate(whole):
        again = _carried_out(left, flow(left))
        assert again[-1] == whole[-1], f"taken up after {count} steps"
        assert len(again) <= len(whole)


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_interrupted_again_and_again_still_ends(name: str) -> None:
    """One step at a time, each from a flow that knows only what is written down."""
    start, flow = FLOWS[name]
    table, end = start, _carried_out(start, flow(start))[-1]
    for _ in range(30):
        table = _carried_out(table, flow(table), count=1)[-1]

    assert table == end


@pytest.mark.parametrize("name", FLOWS)
def test_as_long_as_there_is_a_parent_it_and_its_children_lead_to_one_broker(name: str) -> None:
    start, flow = FLOWS[name]
    for table in _carried_out(start, flow(start)):
        named = {lookup(record, "").broker for record in table.values()} - {""}
        assert BUNDLE not in table or len(named) <= 1, table


@pytest.mark.parametrize("name", FLOWS)
def test_a_broker_closes_before_another_starts_to_serve(name: str) -> None:
    start, flow = FLOWS[name]
    for step in flow(start):
        if state_of(step.old) is State.RELEASING:
            assert step.work in (Work.CLOSE, Work.CLOSE_AND_DISCONNECT)
            assert step.by == step.old.source if step.old else False


@pytest.mark.parametrize("name", FLOWS)
def test_every_record_in_flight_names_who_has_to_act(name: str) -> None:
    start, flow = FLOWS[name]
    for table in _carried_out(start, flow(start)):
        for record in table.values():
            due = duty(record)
            assert record.state not in IN_FLIGHT or (due is not None and due.broker), record


def test_a_transfer_goes_through_the_states_of_the_table() -> None:
    steps = list(transfer(BUNDLE, OWNED, "b", now=7.0))

    assert [str(step) for step in steps] == [
        f"{BUNDLE}: Owned -> Releasing by (who asks) (Nothing)",
        f"{BUNDLE}: Releasing -> Assigning by a (Close)",
        f"{BUNDLE}: Assigning -> Owned by b (Nothing)",
        f"{BUNDLE}: Owned -> Owned by a (Disconnect)",
    ]
    assert steps[2].new == Record(State.OWNED, "b", "a", time=7.0, version=8)


def test_a_split_owns_the_children_first_and_deletes_the_parent_later() -> None:
    steps = list(split(BUNDLE, {BUNDLE: OWNED}, {LEFT: "", MIDDLE: "", RIGHT: "c"}))

    assert [(step.bundle.removeprefix("t/n/"), state_of(step.new), step.by) for step in steps] == [
        (BUNDLE.removeprefix("t/n/"), State.SPLITTING, ""),
        (LEFT, State.OWNED, "a"),
        (MIDDLE, State.OWNED, "a"),
        (RIGHT, State.OWNED, "a"),
        (BUNDLE.removeprefix("t/n/"), State.DELETED, "a"),
        (BUNDLE.removeprefix("t/n/"), State.INIT, "a"),
        (RIGHT, State.RELEASING, ""),
        (RIGHT, State.ASSIGNING, "a"),
        (RIGHT, State.OWNED, "c"),
        (RIGHT, State.OWNED, "a"),
    ]


@pytest.mark.parametrize("sequence", JAVA["sequences"], ids=lambda sequence: sequence["action"])
def test_every_flow_follows_pulsar_s_path(sequence: Mapping[str, Any]) -> None:
    flows = {
        "first assignment": assign(BUNDLE, None, "b"),
        "transfer": transfer(BUNDLE, OWNED, "b"),
        "unload": unload(BUNDLE, OWNED),
        "assignment after unload": assign(BUNDLE, FREE, "b"),
        "split (parent)": split(BUNDLE, {BUNDLE: OWNED}, {LEFT: "", MIDDLE: "", RIGHT: ""}),
    }
    steps = [step for step in flows[sequence["action"]] if step.bundle == BUNDLE and step.old != step.new]

    assert [state_of(steps[0].old), *(state_of(step.new) for step in steps)] == sequence["path"]


def test_a_child_with_a_record_in_any_state_counts_as_made() -> None:
    table = {BUNDLE: OWNED, CHILDREN[0]: Record(State.FREE, source="x", version=3)}

    written = [step.bundle for step in split(BUNDLE, table, {LEFT: "", MIDDLE: "", RIGHT: ""})]

    assert CHILDREN[0] not in written
    assert CHILDREN[1] in written


@pytest.mark.parametrize(
    ("flow", "told"),
    [
        (assign(BUNDLE, OWNED, "b"), "can't be assigned to b: it is Owned, destination 'a'"),
        (transfer(BUNDLE, Record(State.RELEASING, "c", "a"), "b"), "can't be moved to b: it is Releasing"),
        (transfer(BUNDLE, Record(State.SPLITTING, "", "a"), "b"), "can't be moved to b: it is Splitting"),
        (unload(BUNDLE, Record(State.ASSIGNING, "b", "a")), "can't be unloaded: it is Assigning"),
        (split(BUNDLE, {BUNDLE: FREE}, {LEFT: "", MIDDLE: "", RIGHT: ""}), "can't be divided into .*: it is Free"),
        (split(BUNDLE, {}, {LEFT: "", MIDDLE: "", RIGHT: ""}), "has no record: it is Init"),
        (
            split(BUNDLE, {BUNDLE: Record(State.SPLITTING, "", "a", {RIGHT: ""})}, {LEFT: "", MIDDLE: "", RIGHT: ""}),
            "can't be divided into .*: it is Splitting",
        ),
    ],
)
def test_another_desired_owner_has_to_end_first(flow: Iterator[Step], told: str) -> None:
    with pytest.raises(OvertakenError, match=told):
        list(flow)


@pytest.mark.parametrize("ranges", [(), (LEFT,), (LEFT, RIGHT), (LEFT, MIDDLE), ("0x00000000_0x80000000",)])
def test_children_that_do_not_make_up_the_parent_are_refused(ranges: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"does not make up {BUNDLE}: give two or more ranges without gaps"):
        list(split(BUNDLE, {BUNDLE: OWNED}, dict.fromkeys(ranges, "")))


def test_a_step_that_the_conflict_rule_refuses_cannot_be_made() -> None:
    with pytest.raises(OvertakenError, match="Free may not follow Owned"):
        Step(BUNDLE, "a", Work.NOTHING, OWNED, Record(State.FREE, "", "a", version=6))


@pytest.mark.parametrize(
    ("record", "broker", "state", "brokers"),
    [
        (OWNED, "b", State.OWNED, ("b", "a")),
        (Record(State.ASSIGNING, "a", "c", version=2), "b", State.OWNED, ("b", "a")),
        (Record(State.RELEASING, "c", "a", version=2), "c", State.OWNED, ("c", "a")),
        (OWNED, "a", State.OWNED, ("a", "")),
        (OWNED, "", State.FREE, ("", "a")),
        (Record(State.SPLITTING, "", "a", {LEFT: ""}, version=2), "b", State.SPLITTING, ("", "b")),
    ],
)
def test_a_dead_broker_s_bundle_is_taken_by_force(
    record: Record, broker: str, state: State, brokers: tuple[str, str]
) -> None:
    forced = override(BUNDLE, record, "a", broker).new

    assert forced is not None
    assert (forced.state, (forced.destination, forced.source), forced.force) == (state, brokers, True)
    assert forced.version == record.version + 1


@pytest.mark.parametrize("state", [State.DELETED, State.FREE])
def test_what_no_broker_serves_is_not_taken_from_one(state: State) -> None:
    """Else a bundle that was divided would be served beside its children."""
    with pytest.raises(OvertakenError, match=f"can't be taken from a: it is {state}"):
        override(BUNDLE, Record(state, "", "a", version=3), "a", "b")


def test_a_split_whose_broker_died_is_finished_by_another() -> None:
    owners = {LEFT: "", MIDDLE: "", RIGHT: ""}
    begun = _carried_out({BUNDLE: OWNED}, split(BUNDLE, {BUNDLE: OWNED}, owners), count=2)[-1]
    forced = _carried_out(begun, iter([override(BUNDLE, begun[BUNDLE], "a", "b")]))[-1]

    end = _carried_out(forced, split(BUNDLE, forced, owners))[-1]

    assert {bundle: record.destination for bundle, record in end.items()} == dict(
        zip(CHILDREN, ("a", "b", "b"), strict=True)
    )
