"""`trimtab history`: what it shows, its exit codes, and windows out and in again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from kept_histories import AT, keep
from trimtab_operator.cli import main
from trimtab_operator.cli.common import length, size
from trimtab_pipeline.history.export import readable, unpack
from trimtab_pipeline.history.reader import HistoryReader

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two policies: one without gaps, one with two of them."""
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr("time.time", lambda: AT + 15 * 60)
    keep(tmp_path / "kept", "prod/even", range(10))
    keep(tmp_path / "kept", "prod/holey", [0, 1, 2, 5, 6, 7, 12])
    return tmp_path / "kept"


def test_a_table_shows_each_policys_span_size_and_gaps(kept: Path, capsys: Captured) -> None:
    assert main(["history", "--dir", str(kept)]) == 0
    shown = capsys.readouterr().out
    rows = {words[0]: words for line in shown.splitlines() if (words := line.split())}
    even, holey = rows["prod/even"], rows["prod/holey"]
    assert even[1:8] == ["2025-06-15", "15:00", "2025-06-15", "15:09", "6m", "10", "1m"]
    assert even[-1] == "0"
    assert holey[-1] == "2"
    assert "prod/holey: gap of 5m, 2025-06-15 15:07:00 to 2025-06-15 15:12:00" in shown
    assert re.search(r"^prod/even: a day is [\d.]+ MiB: brokers [\d.]+ MiB, .*demand [\d.]+ MiB", shown, re.MULTILINE)


def test_a_gap_is_colored_on_request(kept: Path, capsys: Captured) -> None:
    assert main(["history", "--dir", str(kept), "--color", "always"]) == 0
    assert "\x1b[33mprod/holey: gap of 5m" in capsys.readouterr().out


def test_yaml_holds_what_json_holds(kept: Path, capsys: Captured) -> None:
    assert main(["history", "--dir", str(kept), "--json"]) == main(["history", "--dir", str(kept), "-o", "yaml"]) == 0
    told = capsys.readouterr().out
    json_end = told.index("\n]\n") + 3
    assert yaml.safe_load(told[json_end:]) == json.loads(told[:json_end])


def test_json_holds_times_lengths_and_sizes(kept: Path, capsys: Captured) -> None:
    assert main(["history", "--dir", str(kept), "holey", "-o", "json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert data["policy"] == "prod/holey"
    assert (data["from"], data["to"]) == ("2025-06-15T15:00:00.000Z", "2025-06-15T15:12:00.000Z")
    assert (data["age"], data["cycles"], data["interval"], data["files"]) == (180.0, 7, 60.0, 4 * 7 + 2)
    assert data["bytesPerDay"] == pytest.approx(data["bytes"] / 7 * 1440, abs=0.001)
    assert sum(table["bytes"] for table in data["tables"].values()) == data["bytes"]
    assert sum(table["bytesPerDay"] for table in data["tables"].values()) == pytest.approx(
        data["bytesPerDay"], abs=0.01
    )
    assert [gap["seconds"] for gap in data["gaps"]] == [180.0, 300.0]
    assert data["damaged"] == []


def test_check_finds_gaps_and_damaged_files_and_nothing_else(kept: Path) -> None:
    assert main(["history", "--dir", str(kept), "even", "--check"]) == 0
    assert main(["history", "--dir", str(kept), "--check"]) == 1
    next((kept / "history/demand/policy=prod.even").rglob("*.parquet")).write_bytes(b"damaged")
    assert main(["history", "--dir", str(kept), "even", "--check"]) == 1


def test_hours_that_are_over_are_merged_when_asked(kept: Path, capsys: Captured) -> None:
    keep(kept, "prod/even", [130])
    words = ["history", "--dir", str(kept), "even", "-o", "json"]
    assert main(words) == 0
    (before,) = json.loads(capsys.readouterr().out)
    assert main([*words, "--compact"]) == 0
    shown = capsys.readouterr()
    (after,) = json.loads(shown.out)
    assert after["files"] == before["files"], "15 minutes after the hour began nothing is over"
    assert shown.err == "prod/even: 0 hours of a table merged into one file\n"


def test_compacting_changes_no_cycle(kept: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: AT + 3600)
    assert main(["history", "--dir", str(kept), "even", "--compact", "-o", "json"]) == 0
    shown = capsys.readouterr()
    (data,) = json.loads(shown.out)
    assert (data["cycles"], data["files"]) == (10, 6)
    assert shown.err == "prod/even: 6 hours of a table merged into one file\n"


def test_a_window_goes_out(kept: Path, tmp_path: Path, capsys: Captured) -> None:
    report = tmp_path / "report.tar"
    words = ["history", "export", "--dir", str(kept), "--from", "5m", "--to", "2025-06-15T15:07:00", str(report)]
    assert main([*words, "even"]) == 0
    assert capsys.readouterr().out == (
        f"wrote {report}: 2025-06-15 15:04:00 to 2025-06-15 15:07:00 UTC\n  prod/even: 4 cycles\n"
    )
    with readable(str(report)) as folder:
        assert HistoryReader(folder, "even").times() == [AT + 60 * minute for minute in (4, 5, 6, 7)]


@pytest.mark.slow
def test_hashed_names_are_the_same_in_every_export_from_a_folder(kept: Path, tmp_path: Path, capsys: Captured) -> None:
    for name in ("one.tar", "two.tar"):
        assert main(["history", "export", "--dir", str(kept), "--hash-names", str(tmp_path / name)]) == 0
        unpack(tmp_path / name, tmp_path / name[:3])
    shown = capsys.readouterr().out
    assert "policy-" in shown
    assert "prod" not in shown
    one, two = (sorted(str(p.relative_to(tmp_path / n)) for p in (tmp_path / n).rglob("*")) for n in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nobody"], "policy 'nobody' has no history"),
        (["export", "--from", "1m", "--to", "5m", "x.tar"], "is later than --to 2025-06-15T15:07:00.000Z"),
        (["export", "--key", "k", "x.tar"], "--key needs --hash-names"),
        (["export", "nowhere/at/all.tar"], "No such file or directory"),
        (["--dir", "ftp://somewhere"], "ftp:// can't be opened"),
        (["export", "--dir", "mock://x", "--hash-names", "x.tar"], "no history below mock://x"),
    ],
)
def test_a_mistake_is_told_in_one_line(kept: Path, words: list[str], told: str, capsys: Captured) -> None:
    mode = words[:1] if words[0] == "export" else []
    assert main(["history", *mode, "--dir", str(kept), *words[len(mode) :]]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("trimtab: ")
    assert shown.err.count("\n") == 1
    assert told in shown.err


def test_a_time_that_is_none_is_told_with_how_to_write_one(kept: Path, capsys: Captured) -> None:
    assert main(["history", "export", "--dir", str(kept), "--from", "yesterday", "x.tar"]) == 2
    assert (
        "'yesterday' is not a time; write a time such as 2026-11-21T15:00:00Z, or time before"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("span", "text"), [(0.2, "0s"), (59.6, "1m"), (125, "2m 5s"), (3600, "1h"), (90_061, "1d 1h"), (float("nan"), "-")]
)
def test_a_length_is_written_in_its_two_largest_units(span: float, text: str) -> None:
    assert length(span) == text


@pytest.mark.parametrize(("count", "text"), [(512, "512 B"), (1536, "1.5 KiB"), (9e9, "8.4 GiB"), (2**41, "2.0 TiB")])
def test_a_size_is_written_with_its_unit(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--keep", "tomorrow"], "duration 'tomorrow' must look like 90s, 5m or 1h30m"),
        (["--keep", "0s"], "history seconds 0.0 must be more than 0"),
        (["--keep-size", "8GB"], "size '8GB' must look like 500Mi or 8Gi"),
        (["--keep-size", "0Gi"], "history bytes 0 must be more than 0"),
    ],
)
def test_how_much_to_keep_is_checked_before_anything_starts(options: list[str], told: str, capsys: Captured) -> None:
    assert main(["run", "-n", "messaging", *options]) == 2
    assert capsys.readouterr().err == f"trimtab: {told}\n"
