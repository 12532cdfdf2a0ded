"""The history as backtests replay it: each cycle as the strategies were given it, also after merging and losses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recorded_history import POLICY, RecordedHistory
from trim_world import START, World, spread
from trimtab_pipeline.api import ForeignFileError, Retention
from trimtab_pipeline.history.dataset import BROKERS, DEMAND, FACTS, HistoryDataset
from trimtab_pipeline.history.decisions import DecisionHistories
from trimtab_pipeline.history.facts import COMPLETE
from trimtab_pipeline.history.files import HistoryTable
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.reader import HistoryReader, NoHistoryError
from trimtab_pipeline.history.recording import Recording
from trimtab_strategies.model import ClusterLoad, Isolation

HOUR = 3600.0


def world() -> World:
    """Two brokers with three bundles each."""
    return World.of(spread(60, 3, 1), spread(20, 3, 2))


def written(root: Path, minutes: int = 5) -> list[ClusterLoad]:
    """A history of so many minutes, in which the load of each bundle changes; the snapshots that were written."""
    history, lived, random = RecordedHistory(root), world(), np.random.default_rng(3)
    found = []
    for _ in range(minutes):
        found.append(lived.cluster(random.normal(1, 0.2, 6)))
        history.cycle(found[-1])
        lived.now += 60
    return found


def cycles(root: Path, begin: float = 0, end: float = 1e12) -> list[ClusterLoad]:
    """All cycles of the recording."""
    return list(Recording(str(root), POLICY).cycles(begin, end))


def assert_same(found: ClusterLoad, expected: ClusterLoad) -> None:
    """Owners and rates are the same, the rates as far as the history keeps them."""
    assert found.now == expected.now
    assert found.brokers.names == expected.brokers.names
    np.testing.assert_allclose(found.brokers.usage, expected.brokers.usage)
    assert found.bundles.names == tuple(sorted(expected.bundles.names))
    rows = [expected.bundles.index[name] for name in found.bundles.names]
    assert found.bundles.owner.tolist() == expected.bundles.owner[rows].tolist()
    np.testing.assert_allclose(found.bundles.newest, expected.bundles.newest[rows], rtol=6e-4)


def test_each_cycle_is_what_was_measured(tmp_path: Path) -> None:
    expected = written(tmp_path)

    found = cycles(tmp_path)

    assert len(found) == 5
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)


def test_averages_are_those_that_the_reader_of_single_cycles_computes(tmp_path: Path) -> None:
    written(tmp_path, 20)
    reader = HistoryReader(str(tmp_path), POLICY)

    for found in cycles(tmp_path)[::6]:
        expected = reader.load(found.now)
        assert found.bundles.names == expected.bundles.names
        np.testing.assert_allclose(found.bundles.short, expected.bundles.short, rtol=1e-9)
        np.testing.assert_allclose(found.bundles.long, expected.bundles.long, rtol=1e-9)


@pytest.mark.slow
def test_merged_hours_give_the_same_cycles(tmp_path: Path) -> None:
    written(tmp_path, 150)
    before = cycles(tmp_path)
    Housekeeping(HistoryDataset(str(tmp_path)).of(POLICY), Retention()).tidy(START + 10 * HOUR, lambda: False)
    assert any(file.merged for file in HistoryDataset(str(tmp_path)).of(POLICY).files(DEMAND))

    after = cycles(tmp_path)

    assert len(after) == len(before) == 150
    for one, other in zip(after, before, strict=True):
        assert_same(one, other)
        np.testing.assert_array_equal(one.bundles.short, other.bundles.short)


def test_a_part_of_the_time_is_read_alone(tmp_path: Path) -> None:
    written(tmp_path, 10)

    assert [one.now - START for one in cycles(tmp_path, START + 120, START + 300)] == [120, 180, 240, 300]


def test_facts_hold_until_they_change(tmp_path: Path) -> None:
    written(tmp_path, 4)
    name, history = world().bundles[0], RecordedHistory(tmp_path)
    isolated: dict[str, Any] = {
        "isolation": {"primary": ["broker-0"], "secondary": ["broker-1"], "min_available": 2},
        "anti_affinity_group": "pair",
        "unload": False,
    }
    traits = {"version": "4.0.8", "failure_domain": "a", "load_manager": "", "persistent": True}
    history.know(
        START + 60,
        {
            ("bundle", name): {"owner": "broker-0", "pinned": True, "lastUnload": 7.0},
            ("namespace", "public/default"): isolated,
            ("traits", "broker-0"): {**traits, "non_persistent": True, "weight": None, "started": None},
            ("publishGap", "public/default"): {"seconds": 0.5},
            ("leaving", "broker-1"): {"causes": ["drained"]},
        },
    )
    history.know(START + 180, {("bundle", name): {"owner": "broker-0"}, ("namespace", "public/default"): None})

    first, second, third, last = cycles(tmp_path)

    row = first.bundles.index[name]
    assert [bool(one.bundles.pinned[row]) for one in (first, second, third, last)] == [False, True, True, False]
    assert second.bundles.last_unload[row] == 7
    policy = third.policies["public/default"]
    assert policy.isolation == Isolation(("broker-0",), ("broker-1",), 2)
    assert (policy.anti_affinity_group, policy.unload) == ("pair", False)
    assert last.policies == {}
    assert third.traits["broker-0"].version == "4.0.8"
    assert np.isnan([third.traits["broker-0"].weight, third.traits["broker-0"].started]).all()
    assert third.publish_gaps == {"public/default": 0.5}


def test_a_complete_record_ends_what_it_does_not_name(tmp_path: Path) -> None:
    """An operator that starts again can't say what went while it did not run."""
    written(tmp_path, 4)
    history, (pinned, gone) = RecordedHistory(tmp_path), (world().bundles[0], "public/gone/0x00000000_0xffffffff")
    owned = {"owner": "broker-0"}
    history.know(
        START + 60,
        {
            ("bundle", pinned): {**owned, "pinned": True},
            ("bundle", gone): owned,
            ("namespace", "public/default"): {"unload": False},
            ("traits", "broker-0"): {"version": "4.0.8"},
        },
    )
    history.know(START + 120, {("bundle", pinned): owned, (COMPLETE, "bundle"): {}, (COMPLETE, "namespace"): {}})

    _, before, after, _ = cycles(tmp_path)

    assert [bool(one.bundles.pinned[one.bundles.index[pinned]]) for one in (before, after)] == [True, False]
    assert [gone in one.bundles.names for one in (before, after)] == [True, False]
    assert after.bundles.names == tuple(sorted(world().bundles))
    assert [set(one.policies) for one in (before, after)] == [{"public/default"}, set()]
    assert after.traits["broker-0"].version == "4.0.8"  # of another kind


def test_a_move_belongs_to_its_destination_until_the_measurement_shows_it(tmp_path: Path) -> None:
    written(tmp_path, 4)
    name, history = world().bundles[0], RecordedHistory(tmp_path)
    moving = {"owner": "broker-1", "movingFrom": "broker-0", "lastUnload": START + 30}
    history.know(START + 60, {("bundle", name): {**moving, "inFlight": True, "movingShare": 1.0}})
    history.know(START + 120, {("bundle", name): {**moving, "movingShare": 0.25}})
    history.know(START + 180, {("bundle", name): {"owner": "broker-0"}})

    found = [one.bundles for one in cycles(tmp_path)]

    row = found[0].index[name]
    assert [int(one.owner[row]) for one in found] == [0, 1, 1, 0]
    assert [int(one.moving_from[row]) for one in found] == [-1, 0, 0, -1]
    assert [float(one.moving_share[row]) for one in found] == [0, 1, 0.25, 0]
    assert [bool(one.in_flight[row]) for one in found] == [False, True, False, False]


def test_memory_is_that_of_the_cycle_before(tmp_path: Path) -> None:
    written(tmp_path, 2)
    histories = DecisionHistories(str(tmp_path))
    for minute, hits in enumerate((1, 2)):
        histories.keep_policy(POLICY, START + 60 * minute, {}, {"hits": hits})
    recording = Recording(str(tmp_path), POLICY)

    assert recording.memory(START) is None
    assert recording.memory(START + 60) == (START, '{"hits":1}')
    assert recording.memory(START + 61) == (START + 60, '{"hits":2}')


def test_a_bundle_that_was_not_measured_keeps_its_owner_and_its_averages(tmp_path: Path) -> None:
    history, lived = RecordedHistory(tmp_path), world()
    history.know(START, {("bundle", name): {"owner": "broker-1"} for name in lived.bundles})
    history.cycle(lived.cluster())
    lived.now += 60
    partly = lived.cluster()
    newest = partly.bundles.newest.copy()
    newest[0] = np.nan
    history.cycle(replace(partly, bundles=replace(partly.bundles, newest=newest)))

    first, second = cycles(tmp_path)

    assert first.bundles.owner[0] == 0  # as measured
    assert second.bundles.owner[0] == 1  # as the facts say
    assert np.isnan(second.bundles.newest[0]).all()
    np.testing.assert_array_equal(second.bundles.short[0], first.bundles.short[0])


def test_a_bundle_that_is_gone_is_gone(tmp_path: Path) -> None:
    written(tmp_path, 2)
    history, name = RecordedHistory(tmp_path), world().bundles[5]
    lived = World.of(spread(60, 3, 1), spread(20, 2, 2), bundles=world().bundles[:5], now=START + 120)
    history.know(START + 120, {("bundle", name): None})
    history.cycle(lived.cluster())

    assert [name in one.bundles.names for one in cycles(tmp_path)] == [True, True, False]


def test_the_snapshot_of_a_cycle_has_the_bundles_that_existed_then(tmp_path: Path) -> None:
    """A split and a deleted namespace leave none behind; a bundle that is only not measured stays."""
    before = written(tmp_path, 3)[-1].bundles.names
    history, gone, silent = RecordedHistory(tmp_path), world().bundles[5], world().bundles[0]
    measured = tuple(name for name in world().bundles if name not in (gone, silent))
    lived = World.of(spread(60, 2, 1), spread(20, 2, 2), bundles=measured, now=START + 180)
    history.know(START + 180, {("bundle", gone): None, ("bundle", silent): {"owner": "broker-0"}})
    history.cycle(lived.cluster())
    past = HistoryReader(str(tmp_path), POLICY)

    assert {*past.load(START + 179).bundles.names} == {*before}
    assert {*past.load().bundles.names} == {*before} - {gone}


def lost(root: Path, table: HistoryTable, minute: int, content: bytes | None) -> str:
    """Damage the file of a cycle, or remove it (None). Returns its path."""
    place = Path(HistoryDataset(str(root)).of(POLICY).cycle_file(table, START + minute * 60).path)
    if content is None:
        place.unlink()
    else:
        place.write_bytes(content)
    return str(place)


@pytest.mark.parametrize("table", [BROKERS, DEMAND, FACTS], ids=lambda table: table.name)
def test_a_snapshot_tells_of_damaged_files_that_it_leaves_out(table: HistoryTable, tmp_path: Path) -> None:
    expected = written(tmp_path)
    RecordedHistory(tmp_path).know(START, {("bundle", world().bundles[0]): {}})
    file = lost(tmp_path, table, 0, b"no parquet")
    load = HistoryReader(str(tmp_path), POLICY).load()

    assert_same(load, expected[-1])
    (note,) = load.quality.notes
    assert note.startswith(f"left out, as it is damaged: {file}: it can't be read")


def test_a_newer_cycle_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    expected = written(tmp_path)
    file = lost(tmp_path, DEMAND, 4, b"no parquet")
    load = HistoryReader(str(tmp_path), POLICY).load()

    assert_same(load, expected[-2])
    assert file in load.quality.notes[0]


def test_a_snapshot_without_its_brokers_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    lost(tmp_path, BROKERS, 4, None)
    past = HistoryReader(str(tmp_path), POLICY)

    with pytest.raises(NoHistoryError, match=r"the brokers' file of its cycle of .* is lost"):
        past.load()
    assert past.load(START + 180).now == START + 180
    lost(tmp_path, BROKERS, 3, b"no parquet")
    with pytest.raises(ForeignFileError, match=r"brokers.*can't be read"):
        past.load(START + 180)


@pytest.mark.parametrize("table", [BROKERS, DEMAND, FACTS], ids=lambda table: table.name)
def test_damage_of_any_table_is_found(table: HistoryTable, tmp_path: Path) -> None:
    written(tmp_path)
    RecordedHistory(tmp_path).know(START, {("bundle", world().bundles[0]): {}})
    whole = Path(HistoryDataset(str(tmp_path)).of(POLICY).cycle_file(table, START).path).read_bytes()
    file = lost(tmp_path, table, 0, whole[:40] + bytes(40) + whole[80:])  # the metadata at its end is whole
    past = HistoryReader(str(tmp_path), POLICY)
    assert past.summary().damaged == ()
    assert [place for place, _ in past.summary(whole=True).damaged] == [file]

    lost(tmp_path, table, 0, whole[:-20])
    assert [place for place, _ in HistoryReader(str(tmp_path), POLICY).summary().damaged] == [file]


def test_a_cycle_without_its_brokers_is_left_out(tmp_path: Path) -> None:
    written(tmp_path)
    place = HistoryDataset(str(tmp_path)).of(POLICY).cycle_file(BROKERS, START + 120)
    Path(place.path).unlink()

    assert [one.now - START for one in cycles(tmp_path)] == [0, 60, 180, 240]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    written(tmp_path)
    place = HistoryDataset(str(tmp_path)).of(POLICY).cycle_file(BROKERS, START + 120)
    Path(place.path).write_bytes(b"no parquet")

    with pytest.raises(ForeignFileError, match="can't be read"):
        cycles(tmp_path)


def test_the_policy_in_force_is_known_although_it_was_written_before(tmp_path: Path) -> None:
    history = RecordedHistory(tmp_path)
    written(tmp_path, 5)
    for at, spec in ((START, {"interval": "30s"}), (START + 60, {"interval": "30s"}), (START + 180, {"mode": "Auto"})):
        history.policy(at, spec)
    recording = Recording(str(tmp_path), POLICY)

    assert recording.specs(START + 120, START + 240) == ((START, {"interval": "30s"}), (START + 180, {"mode": "Auto"}))
    assert recording.specs(START + 200, START + 240) == ((START + 180, {"mode": "Auto"}),)


def test_a_policy_without_a_history_is_named(tmp_path: Path) -> None:
    written(tmp_path)

    with pytest.raises(NoHistoryError, match="messaging/main"):
        Recording(str(tmp_path), "other")


def test_pulsars_averages_count_samples(tmp_path: Path) -> None:
    """A history without time constants is that of a policy whose averages count samples."""
    expected = written(tmp_path, 12)
    dataset = HistoryDataset(str(tmp_path)).of(POLICY)
    for one in expected:
        place = dataset.cycle_file(BROKERS, one.now)
        rows = pa.parquet.read_table(place.path)
        for name in ("short_tau", "long_tau"):
            rows = rows.set_column(rows.column_names.index(name), name, pa.nulls(len(rows), pa.float64()))
        pa.parquet.write_table(rows.cast(BROKERS.schema), place.path)

    for found in cycles(tmp_path)[::5]:
        wanted = HistoryReader(str(tmp_path), POLICY).load(found.now)
        np.testing.assert_allclose(found.bundles.short, wanted.bundles.short, rtol=1e-9)
