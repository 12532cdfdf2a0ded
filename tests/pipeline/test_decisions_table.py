"""What the operator adds to a history: decisions as they were known when, facts, and the policy in force."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kept_histories import FOREVER, dataset, held
from trimtab_pipeline.api import DecisionEntry, Fact, KeepsDecisions, KeepsFacts, Retention
from trimtab_pipeline.history.dataset import DECISIONS, FACTS, POLICIES
from trimtab_pipeline.history.decisions import DecisionHistories, decisions
from trimtab_pipeline.history.facts import COMPLETE
from trimtab_pipeline.history.housekeeping import Housekeeping

POLICY = "messaging/main"
AT = 1_750_000_000.0


def entry(of: float, record: str = "", moves: int = 0) -> DecisionEntry:
    return DecisionEntry(of, "Overloaded" if moves else "Balanced", moves, record or f"decided at {of:.0f}")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Twenty cycles, a minute apart; the third one's result was learnt in the sixth."""
    histories = DecisionHistories(tmp_path)
    for minute in range(20):
        at = AT + 60 * minute
        learnt = [entry(AT + 120, "as it turned out", 2)] if minute == 5 else []
        histories.keep_decisions(POLICY, at, [entry(at), *learnt])
    return tmp_path


def found(root: Path, at: float = float("inf"), count: int = 10) -> tuple[DecisionEntry, ...]:
    return decisions(dataset(root, POLICY), at, count)


@pytest.mark.parametrize("merged", [False, True])
def test_the_last_decisions_up_to_a_moment_are_read_back_oldest_first(kept: Path, *, merged: bool) -> None:
    if merged:
        Housekeeping(dataset(kept, POLICY), FOREVER).tidy(AT + 86_400)
    last = found(kept, AT + 610, count=3)

    assert [one.of for one in last] == [AT + 480, AT + 540, AT + 600]
    assert last[-1] == entry(AT + 600)


def test_a_decision_is_read_as_it_was_known_last(kept: Path) -> None:
    assert [(one.of, one.record) for one in found(kept, AT + 125, count=2)] == [
        (AT + 60, f"decided at {AT + 60:.0f}"),
        (AT + 120, "as it turned out"),
    ]


def test_what_was_learnt_of_old_decisions_takes_no_new_ones_place(kept: Path) -> None:
    assert [one.of for one in found(kept, AT + 300, count=1)] == [AT + 300]


def test_without_a_table_there_are_none(tmp_path: Path) -> None:
    assert found(tmp_path) == ()


def test_hours_are_merged_and_what_is_too_old_goes_as_in_the_other_tables(kept: Path) -> None:
    history = dataset(kept, POLICY)
    Housekeeping(history, Retention(seconds=86_400, merge_after=0)).tidy(AT + 7200)
    assert len(history.files(DECISIONS)) == 1
    assert len(found(kept, count=100)) == 20

    Housekeeping(history, Retention(seconds=60, merge_after=0)).tidy(AT + 86_400)
    assert found(kept, count=100) == ()


def test_the_files_say_their_version_and_any_tool_reads_them(kept: Path) -> None:
    newest = dataset(kept, POLICY).files(DECISIONS)[-1].place.path

    assert pq.read_schema(newest).metadata[b"trimtab.schema"] == b"decisions/1"
    assert pq.read_table(newest)["outcome"].to_pylist() == ["Balanced"]
    assert pq.read_table(kept / "history" / "decisions").num_rows == 21


def test_histories_are_asked_for_by_what_they_can_do(tmp_path: Path) -> None:
    assert isinstance(DecisionHistories(tmp_path), KeepsDecisions)
    assert isinstance(DecisionHistories(tmp_path), KeepsFacts)


def test_facts_are_written_when_they_change_and_all_of_them_once_an_hour(tmp_path: Path) -> None:
    histories = DecisionHistories(tmp_path)
    zone, isolation = Fact("zone", "broker-0", "a"), Fact("isolation", "public/default", {"primary": ["b.*"]})
    for minute, facts in enumerate(([zone, isolation], [zone], [Fact("zone", "broker-0", "b")])):
        histories.write_facts(POLICY, AT + 60 * minute, facts)
    histories.write_facts(POLICY, AT + 180, [Fact("isolation", "public/default", None)])
    histories.write_facts(POLICY, AT + 7200, [])
    rows = held(tmp_path, POLICY, FACTS).sort_by("at").to_pylist()
    assert [(row["at"].timestamp() - AT, row["kind"], row["value"]) for row in rows] == [
        (0, "zone", '"a"'),
        (0, "isolation", '{"primary":["b.*"]}'),
        (120, "zone", '"b"'),
        (180, "isolation", None),
        (7200, "zone", '"b"'),
    ]


def test_facts_that_could_not_be_written_come_with_the_next(tmp_path: Path) -> None:
    histories = DecisionHistories(tmp_path)
    (tmp_path / "history").write_text("in the way")
    with pytest.raises(OSError, match="Not a directory"):
        histories.write_facts(POLICY, AT, [Fact("zone", "broker-0", "a")])
    (tmp_path / "history").unlink()
    histories.write_facts(POLICY, AT + 60, [Fact("zone", "broker-1", "b")])
    assert sorted(held(tmp_path, POLICY, FACTS)["name"].to_pylist()) == ["broker-0", "broker-1"]


def test_the_policy_in_force_and_its_memory_are_written_when_they_change(tmp_path: Path) -> None:
    histories = DecisionHistories(tmp_path)
    for minute, (spec, memory) in enumerate(
        [({"mode": "Auto"}, {}), ({"mode": "Auto"}, {"hits": 1}), ({}, {"hits": 1})]
    ):
        histories.keep_policy(POLICY, AT + 60 * minute, spec, memory)
    histories.keep_policy(POLICY, AT + 7200, {}, {"hits": 1})
    rows = held(tmp_path, POLICY, POLICIES).sort_by("at").to_pylist()
    assert [(row["at"].timestamp() - AT, row["kind"], json.loads(row["value"])) for row in rows] == [
        (0, "spec", {"mode": "Auto"}),
        (0, "memory", {}),
        (60, "memory", {"hits": 1}),
        (120, "spec", {}),
        (7200, "spec", {}),
        (7200, "memory", {"hits": 1}),
    ]
    assert rows[0]["hash"] == hashlib.sha256(b'{"mode":"Auto"}').hexdigest()


def test_of_a_complete_kind_a_missing_name_is_gone(tmp_path: Path) -> None:
    histories = DecisionHistories(tmp_path)
    both = [Fact("zone", name, "a") for name in ("broker-0", "broker-1")]
    histories.write_facts(POLICY, AT, [*both, Fact("drain", "broker-0", {})], complete=["zone"])
    histories.write_facts(POLICY, AT + 60, both[:1], complete=["zone"])
    first, *last = (row for row in held(tmp_path, POLICY, FACTS).sort_by("at").to_pylist() if row["kind"] != "drain")
    assert (first["kind"], first["name"]) == (COMPLETE, "zone")
    assert [(row["name"], row["value"]) for row in last[2:]] == [("broker-1", None)]


@pytest.mark.parametrize("complete", [[], ["zone"]])
def test_what_goes_in_the_first_call_of_an_hour_is_not_forgotten(tmp_path: Path, complete: list[str]) -> None:
    histories, hour = DecisionHistories(tmp_path), (AT // 3600 + 1) * 3600
    histories.write_facts(POLICY, hour - 10, [Fact("zone", name, "a") for name in "ab"], complete)
    left = [Fact("zone", "a", "a")]
    histories.write_facts(POLICY, hour + 10, left if complete else [*left, Fact("zone", "b", None)], complete)
    rows = held(tmp_path, POLICY, FACTS).sort_by("at").to_pylist()
    assert [(row["name"], row["value"]) for row in rows if row["kind"] == "zone"][2:] == [("b", None), ("a", '"a"')]
