"""Replays of unusual recordings: order that matters, unknown algorithms, broken lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from conformance.main import main
from conformance.recording import InvalidRecordingError
from conformance.replay import replay

RECORDING = min(Path(__file__).with_name("pulsar").glob("*.gz"))
MIB = 1048576


def shedding(expect: list[str], order_sensitive: str = "no", alternatives: list[list[str]] | None = None) -> str:
    """A scenario in which broker a, at 100 %, sheds t/n/m and t/n/o: equally busy, and in this order in Java's map."""
    broker = {"cpu": [100, 100], "msg_throughput_in": 200.0 * MIB, "bundles": ["t/n/m", "t/n/o", "t/n/n"]}
    scenario: dict[str, Any] = {
        "id": "drawn",
        "algorithm": "modular.ThresholdShedder",
        "conf": {},
        "brokers": {"a": broker, "b": {"cpu": [0, 100], "bundles": []}},
        "bundles": {
            "t/n/m": {"msg_throughput_in": 60.0 * MIB},
            "t/n/o": {"msg_throughput_in": 60.0 * MIB},
            "t/n/n": {"msg_throughput_in": 1.0},
        },
        "rounds": [{}],
        "expect": {"rounds": [{"unloads": {"a": expect}, "state": {"ema": {"a": 1.0, "b": 0.0}}}]},
        "order_sensitive": order_sensitive,
        "alternatives": [[{"unloads": {"a": other}}] for other in alternatives or []],
    }
    return json.dumps(scenario)


@pytest.mark.parametrize(
    ("scenario", "matched", "undecided"),
    [
        pytest.param(shedding(["t/n/m", "t/n/o"]), 1, 0, id="equal"),
        pytest.param(shedding(["t/n/o", "t/n/m"]), 0, 0, id="order matters where Java's is certain"),
        pytest.param(shedding(["t/n/o", "t/n/m"], "within"), 1, 0, id="order inside a list is left aside"),
        pytest.param(shedding(["t/n/n", "t/n/m"], "within"), 0, 0, id="but not what is in it"),
        pytest.param(shedding(["t/n/n"], "yes", [["t/n/m", "t/n/o"]]), 1, 0, id="one of the alternatives"),
        pytest.param(shedding(["t/n/n"], "yes", [["t/n/o"]]), 0, 1, id="none of them: undecided"),
    ],
)
def test_order_counts_as_far_as_java_s_was_certain(scenario: str, matched: int, undecided: int) -> None:
    report = replay([scenario])

    (tally,) = report.tallies.values()
    assert (tally.matched, tally.undecided) == (matched, undecided)
    assert report.ok == (matched + undecided == 1)


@pytest.mark.parametrize(("other", "matched", "undecided"), [("t/n/0x00000000_0x80000000", 1, 0), ("t/n/else", 0, 1)])
def test_an_answer_without_rounds_may_be_an_alternative_too(other: str, matched: int, undecided: int) -> None:
    stats = {"t/n/0x00000000_0x80000000": {"topics": 5000}}
    scenario = {
        "id": "drawn",
        "algorithm": "modular.BundleSplitterTask",
        "conf": {},
        "brokers": {"a": {"stats": stats}},
        "bundles": {},
        "namespace_bundle_count": {"t/n": 2},
        "expect": {"splits": {"t/n/0x80000000_0xffffffff": "a"}},
        "order_sensitive": "yes",
        "alternatives": [[{"splits": {other: "a"}}]],
    }

    (tally,) = replay([json.dumps(scenario)]).tallies.values()

    assert (tally.matched, tally.undecided) == (matched, undecided)


def test_a_mismatch_says_where_and_what() -> None:
    report = replay([shedding(["t/n/n"])])

    assert report.lines() == [
        "modular.ThresholdShedder: matched 0 of 1 (undecided 0)",
        "drawn at rounds[0].unloads.a: Java ['t/n/n'], here ['t/n/m', 't/n/o']",
    ]


def test_averages_are_compared_with_a_tolerance_only() -> None:
    close, far = (
        shedding(["t/n/m", "t/n/o"]).replace('"ema": {"a": 1.0', f'"ema": {{"a": {value}')
        for value in (1 + 1e-12, 1 + 1e-6)
    )

    assert [replay([line]).ok for line in (close, far)] == [True, False]


def test_an_algorithm_we_lack_is_a_finding_and_no_match() -> None:
    hermes = {"algorithm": "hermes.unheard_of", "scenario": "weighted-0", "input": {}, "expected": {"missing": 0}}
    pulsar = {"algorithm": "modular.DeviationShedder", "expect": {"rounds": []}}

    report = replay([json.dumps(hermes), shedding(["t/n/m", "t/n/o"]), json.dumps(pulsar)])

    assert report.exit_code == 1
    assert report.lines() == [
        "hermes.unheard_of: not implemented (1 scenarios)",
        "modular.ThresholdShedder: matched 1 of 1 (undecided 0)",
        "modular.DeviationShedder: not implemented (1 scenarios)",
    ]


def test_an_empty_recording_proves_nothing() -> None:
    report = replay(["", "\n"])

    assert (report.exit_code, report.lines()) == (1, ["no scenario was found"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "line 1 is not a scenario"),
        ('{"algorithm": "x"}', "line 1 has neither 'expect' (Pulsar) nor 'input' and 'expected' (Hermes)"),
        ('{"algorithm": "base.resource_usage", "id": "r#1", "conf": {}, "expect": {}}', "r#1 lacks the field 'usage'"),
        ('{"algorithm": "x", "expect": {}, "order_sensitive": "maybe"}', "order_sensitive 'maybe'"),
        (shedding([]).replace('"bundles": []', '"bundles": ["t/n/m"]'), "bundle 't/n/m' is listed by b"),
    ],
)
def test_a_line_that_is_no_scenario_is_refused(line: str, told: str) -> None:
    with pytest.raises(InvalidRecordingError) as error:
        replay([line])

    assert told in str(error.value)


@pytest.mark.parametrize("packed", [True, False])
def test_a_recording_is_replayed_packed_or_not(
    packed: bool,  # noqa: FBT001
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = gzip.decompress(RECORDING.read_bytes()).splitlines(keepends=True)[:5]
    file = tmp_path / "recording"
    file.write_bytes(gzip.compress(b"".join(lines)) if packed else b"".join(lines))
    assert main([str(file)]) == 0
    assert "matched 5 of 5 (undecided 0)" in capsys.readouterr().out


def test_a_recording_that_differs_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "naming.hash_to_bundle"
    [packed] = [p for p in RECORDING.parent.glob("*.gz") if name in gzip.decompress(p.read_bytes())[:500].decode()]
    text = gzip.decompress(packed.read_bytes()).decode().splitlines()[0]
    file = tmp_path / "recording"
    file.write_text(text.replace("_0x", "_0X"))
    assert main([str(file)]) == 1
    assert f"{name}: matched 0 of 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "can't read"),
        (b"\x1f\x8bbroken", "can't read"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"{}\n", ":1 is not a scenario"),
        (b"no json\n", ":1 "),
    ],
)
def test_a_recording_that_is_none_is_told_in_one_line(
    content: bytes | None, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recording"
    if content is not None:
        file.write_bytes(content)
    assert main([str(file)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("conformance: ")
    assert shown.count("\n") == 1
    assert complaint in shown
    assert str(file) in shown
