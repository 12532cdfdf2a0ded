"""`trimtab explain` and `trimtab why-not` from a history, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from explained_decisions import LEVEL_PAIR
from kept_histories import AT, keep
from plan_clusters import HOT_OF_FOUR
from recorded_decisions import decided
from trimtab_operator.cli import main
from trimtab_operator.decision_log.record import DecisionRecord, ManualMove
from trimtab_pipeline.api import DecisionEntry
from trimtab_pipeline.history.decisions import DecisionHistories


def remembered(folder: Path) -> DecisionRecord:
    """A history of three decisions, ten minutes apart: nothing to do, a move, nothing; the last is returned."""
    loads = (LEVEL_PAIR, HOT_OF_FOUR, LEVEL_PAIR)
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


def test_why_not_takes_the_kind_before_the_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remembered(tmp_path)
    where = ("--history", str(tmp_path))

    for kind, name in (("broker", "a"), ("bundle", "public/b/0x80000000_0xffffffff")):
        plain = told(capsys, "why-not", name, *where)
        assert plain[0] == 0
        assert told(capsys, "why-not", kind, name, *where) == told(capsys, "why-not", *where, kind, name) == plain
    assert told(capsys, "why-not", "broker", "public/b/0x80000000_0xffffffff", *where)[0] == 2
    for words in (("broker",), ("broker", *where, "a")):
        code, _, err = told(capsys, "why-not", *words)
        assert (code, err.startswith("usage: trimtab why-not ")) == (2, True), err
        assert "the name of the broker must follow directly: trimtab why-not broker NAME" in err
    code, _, err = told(capsys, "why-not", "public/b/0x80000000_0xffffffff", "a", *where)
    assert code == 2
    assert "name the broker of a move with --to: trimtab why-not public/b/0x80000000_0xffffffff --to BROKER" in err


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
    record = decided(LEVEL_PAIR, at=AT + 120).model_copy(update={"manual_moves": (manual,)})
    keep(tmp_path, "messaging/main", [2], LEVEL_PAIR)
    entry = DecisionEntry(record.at, str(record.outcome), 0, record.to_json())
    DecisionHistories(tmp_path).keep_decisions("messaging/main", record.at, [entry])

    code, out, _ = told(capsys, "explain", "bundle", name, "--history", str(tmp_path))

    assert (code, out.split(" at ")[0]) == (0, f"{name} was moved by a person, or Git, from b to a")
