"""What a cycle leaves behind: whole or not at all, tidied beside the cycles, and trouble is told once."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kept_histories import AT, HOUR, LOAD, NoHousekeeping, dataset, held, inside, measured, resources
from trimtab_pipeline.api import KEEP_A_DAY, Retention
from trimtab_pipeline.columns import BUNDLE_STATE, TRAFFIC
from trimtab_pipeline.history.dataset import BROKERS, DEMAND, FACTS, FINDINGS, SKETCHES, TOPICS
from trimtab_pipeline.history.facts import FactLog
from trimtab_pipeline.history.files import read_state
from trimtab_pipeline.history.housekeeping import Stopping
from trimtab_pipeline.history.snapshot_tables import Bounds
from trimtab_pipeline.history.writer import HistoryTidier, HistoryWriter
from trimtab_strategies.model import ClusterLoad, DataQuality, Doubt, Reason

POLICY = "prod/one"
WORLD = resources(LOAD)
CYCLE = "20250615T150000.000000Z.parquet"
HOURS = "policy=prod.one/date=2025-06-15/hour=15"


class AtOnce(HistoryTidier):
    """Tidies before it returns."""

    def tidy(self, housekeeping: Callable[[float, Stopping], None], at: float) -> Future[None]:
        tidied = super().tidy(housekeeping, at)
        if not tidied.cancelled():
            tidied.exception()
        return tidied


@pytest.fixture
def at_once() -> Iterator[HistoryTidier]:
    made = AtOnce()
    yield made
    made.close()


def writer(root: Path, tidier: HistoryTidier, retention: Retention = KEEP_A_DAY) -> HistoryWriter:
    return HistoryWriter(root, POLICY, retention, tidier)


def keep(keeping: HistoryWriter, minute: float, load: ClusterLoad = LOAD) -> str:
    at = AT + 60 * minute
    return keeping.keep(*measured(load, at), replace(load, now=at), WORLD, inside=inside(load))


def seen(keeping: HistoryWriter, minute: float) -> list[float]:
    """Minutes of the state that the cycle at `minute` continues from."""
    state = keeping.state(AT + 60 * minute, HOUR)
    return sorted({(at - AT) / 60 for at in read_state(state.bundles, ["seen"])["seen"].to_pylist()})


def test_a_cycle_is_a_file_of_each_table_that_has_rows(tmp_path: Path) -> None:
    assert keep(writer(tmp_path, NoHousekeeping()), 0) == ""
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    tables = ("brokers", "demand", "facts", "quality", "sketches", "topics")
    assert found == [
        *(f"history/{table}/{HOURS}/{CYCLE}" for table in tables),
        *(f"state/prod/one/{table}/{CYCLE}" for table in ("brokers", "bundles")),
    ]


def test_demand_is_what_each_bundle_asked_for(tmp_path: Path) -> None:
    keep(writer(tmp_path, NoHousekeeping()), 0)
    rows = held(tmp_path, POLICY, DEMAND)
    assert rows["bundle"].to_pylist() == sorted(LOAD.bundles.names)
    row = [LOAD.bundles.names.index(name) for name in rows["bundle"].to_pylist()]
    assert rows["pod"].to_pylist() == [f"{LOAD.brokers.names[LOAD.bundles.owner[k]]}-pod" for k in row]
    rates = np.stack([rows[name].to_numpy() for name in TRAFFIC], axis=1)
    np.testing.assert_allclose(rates, LOAD.bundles.short[row], rtol=5e-4)
    assert rows["topics"].to_pylist() == LOAD.bundles.topics[row].tolist()


def test_bundles_that_were_not_measured_have_no_demand_and_unknown_rates_stay_unknown(tmp_path: Path) -> None:
    keeping = writer(tmp_path, NoHousekeeping())
    brokers, _ = measured(LOAD, AT)
    rows = [{"bundle": "t/n/1", "seen": AT - 60}, {"bundle": "t/n/2", "seen": AT, "rate_in": 1e-9}]
    keeping.keep(brokers, pa.Table.from_pylist(rows, BUNDLE_STATE), replace(LOAD, now=AT), WORLD)
    (found,) = held(tmp_path, POLICY, DEMAND).to_pylist()
    assert found["bundle"] == "t/n/2"
    assert found["rate_in"] == pytest.approx(1e-9, rel=5e-4)
    assert [found[name] for name in ("rate_out", "topics", "pod")] == [None] * 3


def test_brokers_say_when_they_were_measured_and_why_they_are_not_trusted(tmp_path: Path) -> None:
    keeping, at = writer(tmp_path, NoHousekeeping()), AT
    keeping.keep(*measured(LOAD, at), replace(LOAD, now=at), WORLD, bounds=Bounds(90.0, 60.0, float("nan")))
    one, other = held(tmp_path, POLICY, BROKERS).to_pylist()
    assert (one["kind"], one["broker"], one["pod"], one["trusted"], one["reason"]) == (
        "cycle",
        "a",
        "a-pod",
        True,
        None,
    )
    assert (other["reason"], other["doubt"]) == ("PartialData", "the query for its group of brokers got no answer")
    assert (one["traffic_time"], one["max_age"], one["short_tau"], one["long_tau"]) == (AT, 90.0, 60.0, None)


def test_refreshes_are_written_with_the_next_cycle(tmp_path: Path) -> None:
    keeping = writer(tmp_path, NoHousekeeping())
    keep(keeping, 0)
    for second in range(10, 60, 10):
        keeping.keep_refresh(replace(LOAD, now=AT + second), WORLD)
    assert len(held(tmp_path, POLICY, BROKERS)) == 2
    keep(keeping, 1)
    rows = held(tmp_path, POLICY, BROKERS)
    assert rows["kind"].to_pylist() == ["cycle"] * 2 + ["refresh"] * 10 + ["cycle"] * 2
    assert len(dataset(tmp_path, POLICY).files(BROKERS)) == 2


def test_refreshes_of_the_hour_before_are_in_a_file_of_that_hour(tmp_path: Path) -> None:
    keeping = writer(tmp_path, NoHousekeeping())
    for second in range(-30, 30, 10):
        keeping.keep_refresh(replace(LOAD, now=AT + second), WORLD)
    keep(keeping, 0.5)

    before, hour = (file.place for file in dataset(tmp_path, POLICY).files(BROKERS))
    assert (before.parent.name, before.name) == ("hour=14", "20250615T145950.000000Z-refresh.parquet")
    assert pq.read_table(before.path)["kind"].to_pylist() == ["refresh"] * 2 * 3
    assert pq.read_table(hour.path)["kind"].to_pylist() == ["refresh"] * 2 * 3 + ["cycle"] * 2


def test_refreshes_do_not_wait_for_a_cycle_for_ever(tmp_path: Path) -> None:
    keeping = writer(tmp_path, NoHousekeeping())
    for second in range(0, 300, 10):
        keeping.keep_refresh(replace(LOAD, now=AT + second), WORLD)
    assert len(held(tmp_path, POLICY, BROKERS)) == 2 * 26
    assert len(dataset(tmp_path, POLICY).files(BROKERS)) == 2


def facts(root: Path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = held(root, POLICY, FACTS).to_pylist()
    return rows


def test_facts_are_written_when_they_change_and_all_of_them_in_each_hour(tmp_path: Path) -> None:
    keeping = writer(tmp_path, NoHousekeeping())
    for minute in (0, 1, 59, 60, 61):
        keep(keeping, minute)
    every = len(LOAD.brokers) + len(LOAD.bundles) + 2  # and that these two kinds are complete
    assert [row["at"].minute for row in facts(tmp_path)] == [0] * 2 * every
    first = LOAD.bundles.names[0]
    value = next(row["value"] for row in facts(tmp_path) if row["name"] == first)
    assert json.loads(value) == {"owner": "a"}


def test_a_change_of_a_bundle_is_one_fact_and_so_is_its_end(tmp_path: Path) -> None:
    keeping = writer(tmp_path, NoHousekeeping())
    keep(keeping, 0)
    before = len(facts(tmp_path))
    pinned, moved = np.array([True, False, False, False]), np.array([-1, -1, 0, -1])
    world = replace(WORLD, pinned=pinned, in_flight=moved >= 0, moving_from=moved, moving_share=(moved >= 0) * 0.5)
    keeping.keep(*measured(LOAD, AT + 60), replace(LOAD, now=AT + 60), world)
    gone = replace(
        world,
        bundles=world.bundles[1:],
        **{
            name: getattr(world, name)[1:]
            for name in ("namespace", "owner", "last_unload", "pinned", "in_flight", "moving_from", "moving_share")
        },
    )
    keeping.keep(*measured(LOAD, AT + 120), replace(LOAD, now=AT + 120), gone)
    found = [(row["kind"], row["name"], json.loads(row["value"] or "null")) for row in facts(tmp_path)[before:]]
    names = WORLD.bundles
    owner = [LOAD.brokers.names[row] for row in LOAD.bundles.owner]
    assert found == [
        ("bundle", names[0], {"owner": owner[0], "pinned": True}),
        ("bundle", names[2], {"owner": owner[2], "inFlight": True, "movingFrom": "a", "movingShare": 0.5}),
        ("bundle", names[0], None),
    ]


def test_an_unowned_bundle_of_a_broker_that_is_gone_is_a_change() -> None:
    log = FactLog()
    log.changes(AT, WORLD)
    columns = ("declared_limit", "ready", "schedulable")
    alone = replace(
        WORLD,
        brokers=WORLD.brokers[:1],
        pods=WORLD.pods[:1],
        owner=np.where(WORLD.owner == 1, -1, WORLD.owner),
        **{name: getattr(WORLD, name)[:1] for name in columns},
    )
    new = {(one["kind"], one["name"]): one["value"] for one in log.changes(AT + 60, alone).to_pylist()}
    ours = [name for name, owner in zip(WORLD.bundles, WORLD.owner.tolist(), strict=True) if owner == 1]
    assert ours
    assert new == {("broker", WORLD.brokers[1]): None} | {("bundle", name): '{"owner":null}' for name in ours}


def test_topics_of_hot_bundles_are_kept_each_cycle_and_sketched_each_hour(tmp_path: Path) -> None:
    keeping = writer(tmp_path, NoHousekeeping())
    for minute in (0, 1, 60):
        keep(keeping, minute)
    assert held(tmp_path, POLICY, TOPICS)["place"].to_pylist() == [1, 2] * 3
    assert held(tmp_path, POLICY, SKETCHES)["place"].to_pylist() == [1, 2] * 2


def test_a_cycle_in_which_no_broker_is_trusted_removes_nothing(tmp_path: Path, at_once: HistoryTidier) -> None:
    keeping = writer(tmp_path, at_once, Retention(seconds=HOUR, merge_after=0))
    keep(keeping, 0)
    before = set(tmp_path.rglob("*.parquet"))
    nobody = replace(LOAD, brokers=replace(LOAD.brokers, trusted=np.zeros(2, bool)))
    keep(keeping, 60_000, nobody)
    assert before <= set(tmp_path.rglob("*.parquet"))
    keep(keeping, 60_000)
    assert not {path for path in before if "history" in path.parts} & set(tmp_path.rglob("*.parquet"))


def test_while_no_broker_is_trusted_for_another_reason_than_time_what_is_too_old_is_removed(
    tmp_path: Path, at_once: HistoryTidier
) -> None:
    keeping = writer(tmp_path, at_once, Retention(seconds=HOUR, merge_after=0))
    brokers = replace(LOAD.brokers, trusted=np.zeros(2, bool))
    doubts = dict.fromkeys(LOAD.brokers.names, Doubt(Reason.UNTRUSTED, "its limit of CPU is unknown"))
    skewed = replace(LOAD, brokers=brokers, quality=DataQuality(doubts=doubts, dropped={"ClockSkew": 1}))
    limitless = replace(LOAD, brokers=brokers, quality=DataQuality(doubts=doubts))
    for minute in range(0, 300, 60):
        keep(keeping, minute, skewed)
    assert dataset(tmp_path, POLICY).files(DEMAND)[0].begin == AT

    keep(keeping, 300, limitless)

    assert dataset(tmp_path, POLICY).files(DEMAND)[0].begin == AT + 3 * HOUR


def test_hours_are_merged_beside_the_cycles(tmp_path: Path, at_once: HistoryTidier) -> None:
    keeping = writer(tmp_path, at_once)
    for minute in range(0, 150, 10):
        keep(keeping, minute)
    for table, after in ((DEMAND, 9), (BROKERS, 9), (FINDINGS, 9), (FACTS, 2)):
        names = [file.place.name for file in dataset(tmp_path, POLICY).files(table)]
        assert names[0] == "20250615T15Z.parquet"
        assert len(names) == 1 + after


def test_a_full_disk_keeps_the_next_state_in_memory_and_is_told_once(
    tmp_path: Path, at_once: HistoryTidier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    keeping = writer(tmp_path, at_once)
    assert keep(keeping, 0) == ""
    for minute in (1, 2):
        (tmp_path / f"state/prod/one/brokers/_20250615T150{minute}00.000000Z.parquet.tmp").symlink_to("/dev/full")
        assert "No space left on device" in keep(keeping, minute)
    assert seen(keeping, 3) == [2]
    assert isinstance(keeping.state(AT + 180, HOUR).bundles, pa.Table)
    assert caplog.text.count("can't be written, averages continue in memory") == 1
    assert keep(keeping, 3) == ""
    assert isinstance(keeping.state(AT + 240, HOUR).bundles, str)
    assert caplog.text.count(f"the history below {tmp_path} is written again") == 1


@pytest.mark.parametrize("table", ["brokers", "facts", "topics", "quality", "demand"])
def test_a_full_disk_costs_history_and_never_averages(tmp_path: Path, table: str) -> None:
    keeping = writer(tmp_path, NoHousekeeping())
    folder = tmp_path / "history" / table / HOURS
    folder.mkdir(parents=True)
    keeping.state(AT, HOUR)
    keep(keeping, 0)
    for minute in (1, 2):
        (folder / f"_20250615T150{minute}00.000000Z.parquet.tmp").symlink_to("/dev/full")
    changed = replace(WORLD, pinned=np.ones(4, bool))
    for minute in (1, 2):
        at = AT + 60 * minute
        told = keeping.keep(*measured(LOAD, at), replace(LOAD, now=at), changed, inside=inside(LOAD))
        assert "No space left on device" in told
        assert seen(keeping, minute + 1) == [minute]
    keeping.keep(*measured(LOAD, AT + 180), replace(LOAD, now=AT + 180), changed)
    pinned = [row["name"] for row in facts(tmp_path) if '"pinned":true' in (row["value"] or "")]
    assert set(pinned) == set(WORLD.bundles), "what could not be written is written later"


def test_a_sketch_that_could_not_be_written_is_written_with_the_next_cycle(tmp_path: Path) -> None:
    keeping, folder = writer(tmp_path, NoHousekeeping()), tmp_path / "history" / SKETCHES.name / HOURS
    keep(keeping, 0)
    shutil.rmtree(folder)
    keeping = writer(tmp_path, NoHousekeeping())
    folder.mkdir()
    full = folder / "_20250615T150100.000000Z.parquet.tmp"
    keeping._cleaned = True
    full.symlink_to("/dev/full")
    assert "No space left on device" in keep(keeping, 1)
    assert keep(keeping, 2) == ""
    assert keep(keeping, 3) == ""
    assert [path.name for path in folder.glob("2*.parquet")] == ["20250615T150200.000000Z.parquet"]


def test_what_is_too_old_is_removed_though_nothing_can_be_written(tmp_path: Path, at_once: HistoryTidier) -> None:
    keeping = writer(tmp_path, at_once, Retention(seconds=HOUR))
    for minute in (0, 1):
        keep(keeping, minute)
    (tmp_path / "state/prod/one/bundles/_20250615T200000.000000Z.parquet.tmp").symlink_to("/dev/full")
    assert "No space left on device" in keep(keeping, 300)
    assert not list(tmp_path.glob("history/*/*/*/*/*.parquet"))


def test_a_folder_that_was_removed_is_created_again(tmp_path: Path, at_once: HistoryTidier) -> None:
    keeping = writer(tmp_path / "all", at_once)
    keep(keeping, 0)
    shutil.rmtree(tmp_path / "all")
    assert seen(keeping, 1) == []
    assert keep(keeping, 1) == ""
    assert seen(keeping, 2) == [1]


def test_a_folder_that_cant_be_made_costs_files_and_no_averages(tmp_path: Path, at_once: HistoryTidier) -> None:
    (tmp_path / "all").write_text("a file where the folder belongs")
    keeping = writer(tmp_path / "all", at_once)
    assert seen(keeping, 0) == []
    assert "Not a directory" in keep(keeping, 0)
    assert seen(keeping, 1) == [0]


def test_a_history_that_cant_be_tidied_is_reported_once_and_every_cycle_kept(
    tmp_path: Path, at_once: HistoryTidier, caplog: pytest.LogCaptureFixture
) -> None:
    keeping = writer(tmp_path, at_once, Retention(merge_after=0))
    keep(keeping, 0)
    (tmp_path / "history/demand" / HOURS / "20250615T15Z.parquet").mkdir()
    for minute in (70, 71):
        keep(keeping, minute)
    assert caplog.text.count("can't be tidied up and grows") == 1
    assert len(dataset(tmp_path, POLICY).files(DEMAND)) == 3


def test_closing_twice_is_fine_and_nothing_is_tidied_afterwards(tmp_path: Path) -> None:
    background = HistoryTidier()
    background.close()
    background.close()
    assert keep(writer(tmp_path, background), 0) == ""


def test_pandas_and_arrow_open_a_table_by_its_folder(tmp_path: Path) -> None:
    keeping = writer(tmp_path, NoHousekeeping())
    for minute in range(0, 90, 30):
        keep(keeping, minute)
    (tmp_path / "history/demand" / HOURS / "_half.parquet.tmp").write_bytes(b"half")
    frame = pd.read_parquet(tmp_path / "history/demand", columns=["at", "bundle", "rate_in", "policy", "hour"])
    assert frame["policy"].unique().tolist() == ["prod.one"]
    assert frame.groupby("hour", observed=True).size().to_dict() == {15: 8, 16: 4}
    assert pq.read_table(tmp_path / "history/demand", filters=[("hour", "=", 16)]).num_rows == 4
