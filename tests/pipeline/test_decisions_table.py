"""The table of decisions beside the history of load: what is read back, as it was known when, and how long it stays."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from trimtab_pipeline.api import DecisionEntry, KeepsDecisions, Retention
from trimtab_pipeline.history.decisions import FOLDER, DecisionHistories, decision_history, decisions
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
    return tmp_path / POLICY


def test_the_last_decisions_up_to_a_moment_are_read_back_oldest_first(kept: Path) -> None:
    found = decisions(kept, AT + 610, count=3)

    assert [one.of for one in found] == [AT + 480, AT + 540, AT + 600]
    assert found[-1] == entry(AT + 600)


def test_a_decision_is_read_as_it_was_known_last(kept: Path) -> None:
    found = decisions(kept, AT + 125, count=2)

    assert [(one.of, one.record) for one in found] == [
        (AT + 60, f"decided at {AT + 60:.0f}"),
        (AT + 120, "as it turned out"),
    ]


def test_what_was_learnt_of_old_decisions_takes_no_new_ones_place(kept: Path) -> None:
    assert [one.of for one in decisions(kept, AT + 300, count=1)] == [AT + 300]


def test_without_a_table_there_are_none(tmp_path: Path) -> None:
    assert decisions(tmp_path / POLICY) == ()


def test_hours_are_merged_and_what_is_too_old_goes_as_in_the_other_tables(kept: Path) -> None:
    table = decision_history(kept)
    Housekeeping([table], Retention(seconds=86_400, merge_after=0)).tidy(AT + 7200)
    assert len(list((kept / FOLDER).glob("*.parquet"))) < 20
    assert len(decisions(kept, count=100)) == 20

    Housekeeping([table], Retention(seconds=60, merge_after=0)).tidy(AT + 86_400)
    assert len(decisions(kept, count=100)) <= 1, "the newest file is never removed"


def test_the_files_say_their_version_and_any_tool_reads_them(kept: Path) -> None:
    [*_, newest] = sorted((kept / FOLDER).glob("*.parquet"))

    assert pq.read_schema(newest).metadata[b"trimtab.schema"] == b"decisions/1"
    assert pq.read_table(newest)["outcome"].to_pylist() == ["Balanced"]


def test_histories_are_asked_for_by_what_they_can_do(tmp_path: Path) -> None:
    assert isinstance(DecisionHistories(tmp_path), KeepsDecisions)
