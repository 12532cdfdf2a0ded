"""Backtests of histories that lack something: the same figures where nothing is lost, and clear words where it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from recorded_history import RecordedHistory
from trim_world import START, World, spread
from trimtab_operator.cli.main import main

SOURCE = {"source": {"prometheus": {"url": "http://prometheus.messaging.svc:9090"}}}
TRIM: dict[str, Any] = {}
ISOLATED = {"isolation": {"primary": ["broker-0"], "secondary": [], "min_available": 1}, "unload": True}


def uneven() -> World:
    """One broker at 70 %, two at 25 %."""
    return World.of(spread(70, 20, 1), spread(25, 20, 2), spread(25, 20, 3))


def facts(world: World) -> dict[tuple[str, str], Any]:
    """Ten pinned bundles of the busy broker, publish gaps, and a fixed weight."""
    owned = {
        ("bundle", name): {"owner": world.brokers[row]} for name, row in zip(world.bundles, world.owner, strict=True)
    }
    pins = {("bundle", name): {"owner": "broker-0", "pinned": True} for name in world.bundles[:10]}
    others = {("publishGap", "public/default"): {"seconds": 2.5}, ("traits", "broker-1"): {"weight": 1.5}}
    return {**owned, **pins, **others}


def record(root: Path, minutes: int = 30, *, known: bool = True, spaces: Any = None) -> Path:
    """A history in which nobody acted."""
    history, random, world = RecordedHistory(root), np.random.default_rng(5), uneven()
    history.policy(START, SOURCE)
    if known:
        history.know(START, {**facts(world), **(spaces or {})})
    for _ in range(minutes):
        history.cycle(world.cluster(random.normal(1, 0.05, len(world.load))))
        world.now += 60
    return root


def backtest(capsys: pytest.CaptureFixture[str], folder: Path, *words: str, **spec: Any) -> tuple[int, Any, str]:
    """Exit code, JSON if there is any, and standard error."""
    file = folder.parent / "new.yaml"
    kind = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy", "metadata": {"name": "new"}}
    file.write_text(json.dumps({**kind, "spec": {**SOURCE, **TRIM, **spec}}))
    code = main(["backtest", "--history", str(folder), "--policy", str(file), "-o", "json", *words])
    output = capsys.readouterr()
    return code, json.loads(output.out) if output.out else None, output.err


def files(folder: Path, table: str) -> list[Path]:
    """The files of a table, a cycle each, oldest first."""
    found = sorted((folder / "history" / table).rglob("*.parquet"), key=lambda file: file.name)
    assert found
    return found


def anonymised(folder: Path, file: Path) -> Path:
    """The history as somebody else gets it."""
    assert main(["history", "export", "--dir", str(folder), "--from", "100h", "--hash-names", str(file)]) == 0
    return file


@pytest.mark.slow
def test_an_anonymised_export_gives_the_same_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Pins, publish gaps and fixed weights are in it, too."""
    folder = record(tmp_path / "here")
    there = anonymised(folder, tmp_path / "there.tar")
    capsys.readouterr()

    code, whole, _ = backtest(capsys, folder)
    _, found, _ = backtest(capsys, there)

    assert code == 0
    for one, other in zip(whole["policies"], found["policies"], strict=True):
        for name in ("namespaces",):
            assert list(one.pop(name).values()) == list(other.pop(name).values())
        assert other == pytest.approx(one)
    assert whole["policies"][0]["moves"] > 0
    assert whole["policies"][0]["silent"] == pytest.approx(2.5 * whole["policies"][0]["moves"])
    assert "main" not in found["recording"]
    assert found["unchecked"].startswith("the history does not say which policy ran")
    assert found["lacks"] == []


@pytest.mark.slow
def test_an_anonymised_export_says_that_isolation_is_hidden(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = record(tmp_path / "here", spaces={("namespace", "public/default"): ISOLATED})
    there = anonymised(folder, tmp_path / "there.tar")
    capsys.readouterr()

    whole, found = backtest(capsys, folder)[1], backtest(capsys, there)[1]

    assert whole["policies"][0]["moves"] == 0
    assert whole["lacks"] == []
    assert found["policies"][0]["moves"] > 0
    assert found["lacks"] == [
        "The isolation of 1 namespace is hidden with the names: in the replay their bundles may go anywhere."
    ]


def test_a_history_without_its_beginning_says_that_pins_are_not_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = record(tmp_path)
    for table in ("demand", "brokers"):
        for file in files(folder, table)[:5]:
            file.unlink()
    files(folder, "facts")[0].unlink()

    code, found, _ = backtest(capsys, folder)

    assert code == 0
    assert found["from"] == "1970-01-12T13:51:40.000Z"
    assert found["lacks"] == [
        "The history does not say at its beginning which bundles were pinned: until it does, none is."
    ]
    assert found["policies"][0]["cycles"] == 25


@pytest.mark.slow
def test_each_version_of_the_recorded_policy_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    history, world = RecordedHistory(tmp_path), uneven()
    history.know(START, facts(world))
    for minute in range(30):
        if minute in (0, 12, 25):
            history.policy(world.now, {**SOURCE, "interval": f"{60 + minute}s", **({"mode": "Auto"} if minute else {})})
        history.cycle(world.cluster())
        world.now += 60

    _, found, _ = backtest(capsys, tmp_path)
    _, later, _ = backtest(capsys, tmp_path, "--from", "10m")

    assert found["specs"] == [
        {"since": "1970-01-12T13:46:40.000Z", "mode": "DryRun"},
        {"since": "1970-01-12T13:58:40.000Z", "mode": "Auto"},
        {"since": "1970-01-12T14:11:40.000Z", "mode": "Auto"},
    ]
    [said] = found["lacks"]
    assert said == (
        "The recorded policy was edited: 3 versions of it were in force, since 1970-01-12 13:46:40 (DryRun), "
        "1970-01-12 13:58:40 (Auto), 1970-01-12 14:11:40 (Auto). "
        "Its replay and the check use the last one all the time."
    )
    assert [one["since"] for one in later["specs"]] == ["1970-01-12T14:05:40.000Z", "1970-01-12T14:11:40.000Z"]


def test_moves_off_a_broker_that_restarts_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A rolling restart empties a broker, and minutes later it is gone."""
    history, world = RecordedHistory(tmp_path), uneven()
    history.know(START, facts(world))
    for minute in range(30):
        if minute == 20:
            world.owner[world.owner == 2] = 1
        load = world.cluster()
        ready = np.array([True, True, minute < 25])
        history.cycle(replace(load, brokers=replace(load.brokers, ready=ready)))
        world.now += 60

    _, found, _ = backtest(capsys, tmp_path)

    assert found["policies"][-1]["moves"] == 20
    [said] = found["lacks"]
    assert said == (
        "20 real moves left a broker in the 15m before it was gone. They count for live only: in a replay such bundles "
        "get new owners when the broker is gone, at no cost."
    )


@pytest.mark.slow
@pytest.mark.parametrize(("interval", "played"), [("20s", "1m"), ("60s", ""), ("90s", "1m"), ("5m", "")])
def test_an_interval_that_the_cycles_do_not_show_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, interval: str, played: str
) -> None:
    folder = record(tmp_path)

    _, found, _ = backtest(capsys, folder, interval=interval)

    wanted = {"90s": "1m 30s"}.get(interval, interval)
    told = [f"The history has a cycle every 1m, so new decides every {played} here, not every {wanted}."]
    assert found["lacks"] == (told if played else [])


@pytest.mark.slow
def test_gaps_are_told_with_the_longest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    history, world = RecordedHistory(tmp_path), uneven()
    history.know(START, facts(world))
    for minute in range(30):
        world.now += {10: 7260, 20: 660}.get(minute, 60)
        history.cycle(world.cluster())

    code, found, _ = backtest(capsys, tmp_path)

    assert code == 0
    [said] = found["lacks"]
    assert said.startswith("The history has 2 gaps, the longest of 2h 1m from 1970-01-12 13:56:40 on: what happened")
    assert found["policies"][0]["hours"] == pytest.approx(32 / 60)

    _, found, _ = backtest(capsys, tmp_path, "--from", "1970-01-12T15:00:00Z")  # within the longer one
    assert found["lacks"][0].startswith("The history has 2 gaps, the longest of 57m")


@pytest.mark.slow
def test_cycles_without_brokers_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = record(tmp_path)
    for file in files(folder, "brokers")[10:13]:
        file.unlink()

    code, found, _ = backtest(capsys, folder)

    assert code == 0
    assert found["lacks"] == ["Left out: 3 of 30 cycles, whose brokers the history does not have."]
    assert found["policies"][0]["cycles"] == 27


def test_a_time_without_any_brokers_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = record(tmp_path, 5)
    for file in files(folder, "brokers"):
        file.unlink()

    code, found, errors = backtest(capsys, folder)

    assert code == 2
    assert found is None
    assert "not one cycle can be replayed: the history does not have the brokers of that time" in errors


@pytest.mark.slow
def test_what_a_single_broker_cant_show_is_not_known(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    history, world = RecordedHistory(tmp_path), World.of([50, 5])
    history.policy(START, {**SOURCE, "mode": "Auto"})
    for _ in range(60):
        history.cycle(world.cluster())
        world.now += 60

    code = main(["backtest", "--history", str(tmp_path), "--window", "0.02"])
    told = " ".join(capsys.readouterr().out.split())

    assert code == 0
    assert "how far the brokers were apart is not known" in told
    assert "range of the brokers is not known" in told
    assert "nan" not in told


def test_a_recorded_policy_of_another_version_is_not_needed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Only the check needs it, where another policy is judged."""
    folder = record(tmp_path, 5)
    RecordedHistory(folder).policy(START + 60, {**SOURCE, "mode": "Auto", "limits": {"quarantine": "6h"}})

    code, found, _ = backtest(capsys, folder)
    alone = main(["backtest", "--history", str(folder)])

    assert code == 0
    assert [one["name"] for one in found["policies"]] == ["new", "live"]
    assert found["check"] is None
    field = "spec.limits.quarantine: this version has no such field (got '6h')"
    why = f"this version can't run the recorded policy: {field}"
    assert found["unchecked"] == why
    assert alone == 2
    assert f"{why}; name another one, or a corrected copy, with --policy" in capsys.readouterr().err


def of_another_version(file: Path) -> None:
    """Rewrite a file as a future program would mark it."""
    table = pq.read_table(file, partitioning=None)
    metadata = {key: value.replace(b"/", b"/9") for key, value in table.schema.metadata.items()}
    pq.write_table(table.replace_schema_metadata(metadata), file)


def cut(file: Path) -> None:
    """Half of the file."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "said"), [(of_another_version, "it is of version"), (cut, "it can't be read")], ids=["version", "cut"]
)
def test_demand_that_cant_be_read_is_left_out_and_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, harm: Any, said: str
) -> None:
    folder = record(tmp_path)
    for file in files(folder, "demand")[10:15]:
        harm(file)

    code, found, errors = backtest(capsys, folder)

    assert code == 0
    assert found["policies"][0]["cycles"] == 25
    assert said in errors
    assert errors.count("history/demand/") == 3
    assert "and 2 more" in errors


@pytest.mark.parametrize("table", ["brokers", "facts", "policies"])
@pytest.mark.parametrize("harm", [of_another_version, cut], ids=["version", "cut"])
def test_what_a_replay_needs_must_be_readable(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, table: str, harm: Any
) -> None:
    """Brokers and constraints are no matter of guessing: the file is named, and nothing is replayed."""
    folder = record(tmp_path)
    file = files(folder, table)[0]
    harm(file)

    code, found, errors = backtest(capsys, folder)

    assert code == 2
    assert found is None
    assert file.name in errors


def test_a_history_of_another_version_alone_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = record(tmp_path, 3)
    for file in files(folder, "demand"):
        of_another_version(file)

    code, _, errors = backtest(capsys, folder)

    assert code == 2
    assert "has no cycle that can be read" in errors
    assert "it is of version" in errors


def parts(world: World, names: Sequence[str]) -> World:
    """The world with the first bundle halved."""
    load = np.concatenate([[world.load[0] / 2] * 2, world.load[1:]])
    owner = np.concatenate([[world.owner[0]] * 2, world.owner[1:]])
    divided = World.of([1.0] * len(load), [], [], bundles=(*names, *world.bundles[1:]), now=world.now)
    divided.load, divided.owner, divided.long = load, owner, load
    return divided


@pytest.mark.parametrize("known", [True, False], ids=["facts", "no facts"])
def test_bundles_that_are_divided_and_joined_again_count_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *, known: bool
) -> None:
    """Also in a history that has lost the facts which say that a parent is gone."""
    history, whole = RecordedHistory(tmp_path), World.of([30, 10], [20], [20])
    space, _, extent = whole.bundles[0].rpartition("/")
    lower, upper = extent.split("_")
    middle = f"0x{(int(lower, 16) + int(upper, 16)) // 2:08x}"
    children = (f"{space}/{lower}_{middle}", f"{space}/{middle}_{upper}")
    for minute in range(18):
        if known and minute in (6, 12):
            made, gone = (children, whole.bundles[:1]) if minute == 6 else (whole.bundles[:1], children)
            there = {("bundle", name): {"owner": "broker-0"} for name in made}
            history.know(whole.now, {**dict.fromkeys(("bundle", name) for name in gone), **there})
        world = parts(whole, children) if 6 <= minute < 12 else whole
        history.cycle(world.cluster())
        whole.now += 60
    still = {"shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}}}

    file = tmp_path / "still.yaml"
    kind = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy", "metadata": {"name": "still"}}
    file.write_text(json.dumps({**kind, "spec": {**SOURCE, **still}}))
    code = main(["backtest", "--history", str(tmp_path), "--policy", str(file), "-o", "json"])

    found = json.loads(capsys.readouterr().out)["policies"]
    assert code == 0
    assert [one["moves"] for one in found] == [0, 0]
    assert found[0]["area"] == pytest.approx(found[1]["area"])
    assert found[0]["area"] == pytest.approx(20)
    assert found[0]["measured"] == pytest.approx(1)
