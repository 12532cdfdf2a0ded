"""Backtests with the splits that a policy would make: parts get what their topics had, and guesses are told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recorded_history import POLICY, RecordedHistory
from trim_world import START, World
from trimtab_lab.backtest.replay import recorded_cycles
from trimtab_lab.backtest.replayed_splits import ReplayedSplits
from trimtab_operator.cli.main import main
from trimtab_pipeline.columns import INSIDE, TRAFFIC
from trimtab_pipeline.history.recording import Recording
from trimtab_strategies.counterfactual.recorded_cycle import RecordedCycle
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, Reason, Split

SOURCE = {"source": {"prometheus": {"url": "http://prometheus.messaging.svc:9090"}}}
SPLITTER = {
    "split": {"type": "BundleSplitterTask", "bundleSplitterTask": {"maxThroughput": "400Mi", "maxRate": 1000000}},
    "limits": {"coolDown": "1m"},
}
STILL = {"shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}}}


def hot() -> World:
    """The first bundle of one broker has 60 % of it: more than any broker has room for."""
    return World.of([60, 5], [10], [10], clients=np.array([60.0, 20, 20, 20]))


def cluster(world: World) -> ClusterLoad:
    """The snapshot, in which every bundle has 20 topics."""
    load = world.cluster()
    return replace(load, bundles=replace(load.bundles, topics=np.full(len(load.bundles), 20.0)))


def topics(world: World, points: Sequence[float]) -> pa.Table:
    """Topics of the first bundle, at equal distances in its range, with so many points each."""
    _, lower, upper = parse_bundle(world.bundles[0])
    each = (upper - lower) // len(points)
    share = np.array(points) / sum(points)
    traffic = world.traffic(world.load)[:1] * share[:, np.newaxis]
    columns: dict[str, Any] = {name: traffic[:, k] for k, name in enumerate(TRAFFIC)}
    columns |= {"topic": [f"persistent://public/default/t-{k}" for k in range(len(points))]}
    columns |= {"bundle": [world.bundles[0]] * len(points), "pod": ["broker-0"] * len(points)}
    columns["place"] = [float(lower + each * k + each // 2) for k in range(len(points))]
    return pa.table({name: columns[name] for name in pa.schema(list(INSIDE)).names})


def record(root: Path, minutes: int, inside: str, points: Sequence[float] = (9, 9, 9, 9, 1, 1, 1, 1)) -> World:
    """A history in which nobody split anything. inside: what is known of the hot bundle: topics, sketch or nothing."""
    history, world = RecordedHistory(root), hot()
    for minute in range(minutes):
        if inside == "topics":
            history.inside(world.now, topics(world, points))
        elif inside == "sketch" and minute == 0:
            history.inside(world.now, topics(world, points), sketch=True)
        history.cycle(cluster(world))
        world.now += 60
    return world


def cycles(root: Path) -> list[RecordedCycle]:
    recording = Recording(str(root), POLICY)
    return list(recorded_cycles(recording.cycles(0, 1e12), recording.topics(0, 1e12)))


def halves(bundle: str, source: str = "broker-0") -> Split:
    _, lower, upper = parse_bundle(bundle)
    return Split(bundle, source, ((lower + upper) // 2,), Reason.BANDWIDTH)


def work_of(cycle: RecordedCycle, names: Sequence[str]) -> list[float]:
    return [float(cycle.work[cycle.load.bundles.index[name]]) for name in names]


@pytest.mark.parametrize(
    ("inside", "first", "guessed"), [("topics", 0.9, False), ("sketch", 0.9, False), ("nothing", 0.5, True)]
)
def test_parts_get_what_is_known_of_the_inside(tmp_path: Path, inside: str, first: float, guessed: bool) -> None:  # noqa: FBT001
    world = record(tmp_path, 3, inside)
    before, after, _ = cycles(tmp_path)
    replayed_splits = ReplayedSplits()

    names = replayed_splits.made(halves(world.bundles[0]), replayed_splits.seen(before))
    seen = replayed_splits.seen(after)

    whole = float(after.work[after.load.bundles.index[world.bundles[0]]])
    assert work_of(seen, names) == pytest.approx([first * whole, (1 - first) * whole], rel=0.01)
    assert world.bundles[0] not in seen.load.bundles.names
    assert seen.work.sum() == pytest.approx(after.work.sum())
    assert np.allclose(seen.wanted.sum(axis=0), after.wanted.sum(axis=0))
    assert seen.load.bundles.sessions.sum() == pytest.approx(after.load.bundles.sessions.sum())
    share = whole / float(after.work.sum())
    assert replayed_splits.modelled(seen) == pytest.approx((share, share if guessed else 0.0))


@pytest.mark.parametrize("inside", ["topics", "sketch"])
def test_a_part_can_be_divided_again(tmp_path: Path, inside: str) -> None:
    world = record(tmp_path, 3, inside)
    before, then, after = cycles(tmp_path)
    replayed_splits = ReplayedSplits()
    lower, upper = replayed_splits.made(halves(world.bundles[0]), replayed_splits.seen(before))

    again = replayed_splits.made(halves(upper), replayed_splits.seen(then))
    seen = replayed_splits.seen(after)

    whole = float(after.work[after.load.bundles.index[world.bundles[0]]])
    assert work_of(seen, [lower, *again]) == pytest.approx([0.9 * whole, 0.05 * whole, 0.05 * whole], rel=0.01)
    assert upper not in seen.load.bundles.names


def test_topics_belong_to_the_part_that_holds_them(tmp_path: Path) -> None:
    world = record(tmp_path, 2, "topics")
    before, after = cycles(tmp_path)
    replayed_splits = ReplayedSplits()
    names = replayed_splits.made(halves(world.bundles[0]), replayed_splits.seen(before))

    load = replayed_splits.seen(after).load

    held = [load.bundles.names[row] for row in load.topics.bundle]
    assert held == [names[0]] * 4 + [names[1]] * 4


def test_a_recorded_split_takes_the_place_of_the_replayed_one(tmp_path: Path) -> None:
    world = record(tmp_path, 2, "nothing")
    before, after = cycles(tmp_path)
    replayed_splits = ReplayedSplits()
    replayed_splits.made(halves(world.bundles[0]), replayed_splits.seen(before))
    bundles = after.load.bundles
    gone = replace(
        after,
        load=replace(
            after.load, bundles=replace(bundles, names=("public/default/0x00000000_0x00000001", *bundles.names[1:]))
        ),
    )

    seen = replayed_splits.seen(gone)

    assert seen.load.bundles.names == gone.load.bundles.names
    assert np.array_equal(seen.work, gone.work)
    assert replayed_splits.modelled(seen) == (0.0, 0.0)


def backtest(capsys: pytest.CaptureFixture[str], root: Path, spec: dict[str, Any], *words: str) -> tuple[Any, str]:
    """JSON, and the table."""
    file = root / "new.yaml"
    kind = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy", "metadata": {"name": "new"}}
    file.write_text(json.dumps({**kind, "spec": {**SOURCE, **spec}}))
    texts = []
    for shape in ("json", "markdown"):
        assert main(["backtest", "--history", str(root), "--policy", str(file), "-o", shape, *words]) == 0
        texts.append(capsys.readouterr().out)
    return json.loads(texts[0]), texts[1]


@pytest.mark.slow
def test_a_split_lets_the_load_of_a_hot_bundle_be_shared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record(tmp_path, 40, "topics", points=[1] * 16)

    off, _ = backtest(capsys, tmp_path, SPLITTER)
    on, told = backtest(capsys, tmp_path, SPLITTER, "--splits", "on")

    without, with_splits = off["policies"][0], on["policies"][0]
    assert without["splits"] == 0
    assert with_splits["splits"] >= 1
    assert with_splits["area"] < 0.7 * without["area"]
    assert with_splits["cut"] >= 50
    assert with_splits["guessed"] == 0
    assert on["policies"][-1]["splits"] == 0
    assert f"new: {with_splits['splits']} split" in told
    assert ", 0% in parts whose shares are not known and taken as even." in told


def test_what_is_guessed_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record(tmp_path, 20, "nothing")

    found, told = backtest(capsys, tmp_path, {**SPLITTER, **STILL}, "--splits", "on")

    first = found["policies"][0]
    assert first["splits"] == 1
    assert first["guessed"] == first["divided"] > 0.5
    assert (
        f"new: 1 split; {first['divided']:.0%} of the work was in their parts, {first['guessed']:.0%} in parts" in told
    )


def test_splits_are_counted_by_a_requirement(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record(tmp_path, 10, "nothing")
    file = tmp_path / "new.yaml"
    backtest(capsys, tmp_path, {**SPLITTER, **STILL}, "--splits", "on")

    words = ["backtest", "--history", str(tmp_path), "--policy", str(file), "--splits", "on", "--require", "splits<=0"]
    assert main(words) == 1
    assert "splits is 1, allowed is <= 0" in capsys.readouterr().err


@pytest.mark.slow
def test_without_the_option_no_split_is_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A bundle whose split is planned does not move. A split that is never made would keep it where it is for ever."""
    record(tmp_path, 30, "nothing")
    threshold = {"shedder": {"type": "ThresholdShedder"}, "placement": {"type": "LeastLongTermMessageRate"}}
    greedy = {"type": "BundleSplitterTask", "bundleSplitterTask": {"maxThroughput": "1Mi", "maxBundles": 1000000}}

    found, told = backtest(capsys, tmp_path, {**threshold, "split": greedy})
    plain, _ = backtest(capsys, tmp_path, threshold)

    said = "Splits are left out: new would make some. --splits on replays them."
    assert said in found["lacks"]
    assert said in told
    assert found["policies"] == plain["policies"]
    assert plain["policies"][0]["moves"] > 0


@pytest.mark.slow
def test_a_policy_without_a_splitter_is_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record(tmp_path, 10, "topics")

    assert backtest(capsys, tmp_path, {}, "--splits", "on") == backtest(capsys, tmp_path, {})


def test_the_time_of_the_first_cycle_is_that_of_the_record(tmp_path: Path) -> None:
    record(tmp_path, 2, "sketch")

    first, second = cycles(tmp_path)

    assert first.load.now == START
    assert first.sketches.keys() == second.sketches.keys()
    assert len(first.load.topics) == 0
