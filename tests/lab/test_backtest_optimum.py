"""`trimtab backtest --optimum`: the best plan in hindsight, on histories whose best plan is known or can be tried."""

from __future__ import annotations

import argparse
import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest

from backtest_parts import policy
from recorded_history import POLICY, RecordedHistory
from trim_world import POINT, START, World
from trimtab_lab.backtest.history import ReplayWindow, opened
from trimtab_lab.backtest.optimum import KnownLoad, NoOptimumError
from trimtab_lab.backtest.optimum_result import OptimumResult
from trimtab_lab.backtest.replay import HistoryReplay, play, recorded_cycles
from trimtab_lab.backtest.trace import Figures, Trace, cost
from trimtab_operator.cli.main import main
from trimtab_pipeline.history.recording import Recording
from trimtab_strategies.counterfactual.ownership import VirtualOwners
from trimtab_strategies.model import CPU, Move, Reason

SOURCE = {"source": {"prometheus": {"url": "http://prometheus.messaging.svc:9090"}}}
LONG = 20.0
"""Seconds for a search: more than any of these takes."""


def window(root: Path, **given: Any) -> ReplayWindow:
    """The whole history below `root`, or a part of it."""
    return opened(
        argparse.Namespace(**{"history": str(root), "recorded": None, "begin": None, "end": None, "days": 1.0, **given})
    )


def known(root: Path) -> KnownLoad:
    return KnownLoad.of(window(root))


def write(root: Path, world: World, minutes: int, *, loads: dict[int, Sequence[float]] | None = None) -> None:
    """Write `minutes` cycles of `world`; loads: minute -> points of each bundle from then on."""
    history = RecordedHistory(root)
    for minute in range(minutes):
        if loads and minute in loads:
            world.load = np.array(loads[minute], dtype=np.float64) * POINT
        history.cycle(world.cluster())
        world.now += 60


def replayed(load: KnownLoad, owners: Sequence[Sequence[int]]) -> Figures:
    """The figures with these owners (row of the broker) in each cycle, as a replay counts them."""
    at, trace = VirtualOwners(), Trace()
    for number, cycle in enumerate(load.cycles):
        row = at.rows(cycle.load)
        virtual = replace(cycle.load, brokers=cycle.brokers_with(row), bundles=replace(cycle.load.bundles, owner=row))
        names, brokers = cycle.load.bundles.names, cycle.load.brokers.names
        later = owners[number + 1] if number + 1 < len(owners) else row.tolist()
        moves = [
            Move(name, brokers[row[k]], brokers[later[k]], Reason.OVERLOADED)
            for k, name in enumerate(names)
            if row[k] != later[k]
        ]
        trace.add(cycle, virtual, [(move.bundle, move.source, move.destination) for move in moves], measured=1.0)
        at.take(moves, virtual)
    return trace.figures()


def tried(load: KnownLoad, brokers: int, weight: float) -> float:
    """The least cost of all plans, by trying each of them."""
    first = load.cycles[0].load.bundles.owner.tolist()
    each = list(product(range(brokers), repeat=len(first)))
    plans: Iterator[tuple[Any, ...]] = product(each, repeat=len(load.cycles) - 1)
    return min(cost(replayed(load, [first, *plan]), weight) for plan in plans)


def points(found: OptimumResult) -> float:
    """The cost of the plan that was found."""
    assert found.figures is not None
    return found.cost(found.figures)


def test_a_broker_measured_above_its_limit_stays_so_while_its_bundles_stay(tmp_path: Path) -> None:
    write(tmp_path, World.of([10], [20], [5]), 2)
    cycle = known(tmp_path).cycles[0]
    brokers = cycle.load.brokers
    usage = brokers.usage.copy()
    usage[0, CPU] = 1.02 * brokers.limit[0, CPU]
    above = replace(cycle, load=replace(cycle.load, brokers=replace(brokers, usage=usage)))
    owner = cycle.load.bundles.owner.copy()
    owner[1] = 2

    found = above.brokers_with(owner)

    assert found.usage[0, CPU] == usage[0, CPU]
    assert found.usage[1, CPU] < usage[1, CPU]


@pytest.mark.parametrize("weight", [0.01, 0.3, 5.0])
def test_no_plan_at_all_costs_less(tmp_path: Path, weight: float) -> None:
    """Every plan of a small history is tried: 2 brokers, 3 bundles, 4 cycles, in which the load wanders."""
    write(tmp_path, World.of([10, 20], [5]), 4, loads={0: [10, 20, 5], 1: [30, 20, 5], 3: [5, 5, 40]})
    load = known(tmp_path)

    found = load.best(weight, LONG)

    assert found.proven
    assert points(found) == pytest.approx(tried(load, 2, weight), abs=1e-3)
    assert found.bound == pytest.approx(points(found), rel=2e-3, abs=1e-3)


def test_a_plan_whose_gain_is_known_is_found(tmp_path: Path) -> None:
    """A move of the bundle of 20 makes 50:10 even at once; of the 60 clients it cuts 20. It costs one cycle at 40."""
    write(tmp_path, World.of([20, 30], [10]), 10)

    found = known(tmp_path).best(0.1, LONG)

    assert found.figures is not None
    assert found.figures.moves == 1
    assert found.figures.area == pytest.approx(40 / 10, abs=0.5)
    assert points(found) == pytest.approx(found.figures.area + 0.1 * 100 / 3, abs=0.01)


def test_a_move_that_is_not_worth_its_clients_is_not_made(tmp_path: Path) -> None:
    write(tmp_path, World.of([20, 30], [10]), 10)

    found = known(tmp_path).best(10.0, LONG)

    assert found.figures is not None
    assert found.figures.moves == 0
    assert points(found) == pytest.approx(40, abs=0.5)


def test_pinned_bundles_stay(tmp_path: Path) -> None:
    """Of 50:10 only the bundle of 10 could move, which makes it worse."""
    world = World.of([20, 30], [10])
    pins = {("bundle", name): {"owner": world.brokers[0], "pinned": True} for name in world.bundles[:2]}
    RecordedHistory(tmp_path).know(START, pins)
    write(tmp_path, world, 6)

    found = known(tmp_path).best(0.01, LONG)

    assert found.figures is not None
    assert found.figures.moves == 0
    assert found.figures.area == pytest.approx(40, abs=0.5)


def test_isolation_holds(tmp_path: Path) -> None:
    """Only broker-0 and broker-1 may have the bundles, so the third one stays empty."""
    world = World.of([20, 20, 20], [1], [0.1])
    isolation = {"primary": ["broker-0", "broker-1"], "secondary": [], "min_available": 1}
    RecordedHistory(tmp_path).know(START, {("namespace", "public/default"): {"isolation": isolation}})
    write(tmp_path, world, 5)

    found = known(tmp_path).best(0.001, LONG)

    assert found.figures is not None
    assert found.figures.area >= 20


def test_bundles_of_a_lost_broker_get_owners_at_once_and_for_nothing(tmp_path: Path) -> None:
    history, world = RecordedHistory(tmp_path), World.of([20], [20], [20])
    for minute in range(6):
        load = world.cluster()
        ready = np.array([True, True, minute < 2])
        history.cycle(replace(load, brokers=replace(load.brokers, ready=ready)))
        world.now += 60

    found = known(tmp_path).best(0.01, LONG)

    assert found.figures is not None
    assert found.figures.moves == 0
    assert found.proven


def test_a_full_machine_uses_no_more_than_it_has(tmp_path: Path) -> None:
    """120 points of work: with all of it on one broker that one is full, and the range is 100."""
    write(tmp_path, World.of([60, 60], [1]), 4)
    load = known(tmp_path)

    found = load.best(0.3, LONG)

    assert points(found) == pytest.approx(tried(load, 2, 0.3), abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("worth", [100, 900])
def test_no_policy_costs_less_than_the_bound(tmp_path: Path, worth: int) -> None:
    history, random = RecordedHistory(tmp_path), np.random.default_rng(5)
    world = World.of([30, 20, 10, 10], [10, 10], [15])
    first = world.load.copy()
    for minute in range(40):
        world.load = first * (1 + 0.5 * np.sin(minute / 8 + np.arange(len(first))))
        history.cycle(world.cluster(random.normal(1, 0.05, len(first))))
        world.now += 60
    load, trim = known(tmp_path), policy("trim", worth=worth)
    replays: list[HistoryReplay] = [trim]

    found = load.best(0.5, 10.0)
    play(recorded_cycles(Recording(str(tmp_path), POLICY).cycles(0, 1e12)), replays, START)

    assert trim.trace.figures().moves > 0
    assert found.bound <= found.cost(trim.trace.figures()) * (1 + 1e-6)
    assert found.above(trim.trace.figures()) >= 0


def test_a_search_that_ends_early_says_what_is_not_ruled_out(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    bundles = [random.uniform(1, 6, 12) for _ in range(3)]
    write(tmp_path, World.of(*bundles), 40)

    found = known(tmp_path).best(0.1, 0.5)

    assert not found.proven
    assert 0 <= found.bound <= (points(found) if found.figures else math.inf)
    [line, *_] = found.lines({})
    assert "a better one is not ruled out" in line or "none was found in 0.5 s" in line


def test_the_solver_leaves_standard_output_to_the_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, World.of([20, 30], [10]), 3)
    load = known(tmp_path)
    capfd.readouterr()

    load.best(0.1, LONG)

    assert capfd.readouterr() == ("", "")


HARD_PROGRAM = """
import signal
import numpy as np
from trimtab_lab.backtest.solver import MixedProgram

# A program that a shell starts in the background ignores ^C, and so do the programs that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
random, program = np.random.default_rng(1), MixedProgram()
columns = [program.column(cost=-float(random.integers(10, 100)), whole=True) for _ in range(150)]
for _ in range(40):
    program.row({column: float(random.integers(5, 60)) for column in columns}, most=1200.0)
print("solving", flush=True)
program.solve(100.0, {0: 0.0})
"""


@pytest.mark.slow
def test_an_interrupt_ends_the_search_and_nothing_aborts() -> None:
    with subprocess.Popen([sys.executable, "-c", HARD_PROGRAM], stdout=PIPE, stderr=PIPE, text=True) as solver:
        assert solver.stdout is not None
        solver.stdout.readline()
        for _ in range(30):  # Python drops a ^C that arrives while it collects garbage
            with suppress(subprocess.TimeoutExpired):
                solver.wait(2.0)
                break
            solver.send_signal(signal.SIGINT)
        _, errors = solver.communicate()

    assert solver.returncode == -signal.SIGINT, errors
    assert errors.endswith("KeyboardInterrupt\n")


def test_a_history_that_is_too_large_is_refused_with_the_bound_and_the_fix(tmp_path: Path) -> None:
    write(tmp_path, World.of([1] * 400, [1] * 400), 14)

    with pytest.raises(
        NoOptimumError, match=r"2 brokers x 800 bundles x 14 cycles are 22400, more than the 20000 .* 12"
    ):
        known(tmp_path)


def test_a_split_is_refused(tmp_path: Path) -> None:
    world, history = World.of([30, 10], [20]), RecordedHistory(tmp_path)
    history.cycle(world.cluster())
    names = ("public/default/0x00000000_0x20000000", "public/default/0x20000000_0x55555555", *world.bundles[1:])
    apart = World.of([15, 15, 10], [20], bundles=names, now=START + 60)
    made = {("bundle", name): {"owner": apart.brokers[0]} for name in names[:2]}
    history.know(START + 60, {("bundle", world.bundles[0]): None, **made})
    history.cycle(apart.cluster())

    with pytest.raises(NoOptimumError, match=r"was split before .* choose a time without a split"):
        known(tmp_path).best(1.0, LONG)


def test_a_new_bundle_begins_where_it_was(tmp_path: Path) -> None:
    history = RecordedHistory(tmp_path)
    before = World.of([30], [10])
    history.cycle(before.cluster())
    names = (
        "public/default/0x00000000_0x80000000",
        "public/default/0x80000000_0xffffffff",
        "public/other/0x00000000_0xffffffff",
    )
    after = World.of([30], [10, 20], bundles=names, now=START + 60)
    for _ in range(3):
        history.cycle(after.cluster())
        after.now += 60

    found = known(tmp_path).best(1.0, LONG)

    assert found.figures is not None
    assert found.figures.moves == 0
    assert found.figures.area == pytest.approx(20 / 4, abs=0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of two brokers, on which no policy acted."""
    root = tmp_path_factory.mktemp("history")
    RecordedHistory(root).policy(START, SOURCE)
    write(root, World.of([20, 30, 10], [10]), 10)
    kind = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "BalancingPolicy",
        "metadata": {"name": "trim"},
        "spec": SOURCE,
    }
    (root / "trim.yaml").write_text(json.dumps(kind))
    return root


def backtest(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a backtest with --optimum."""
    file = str(folder / "trim.yaml")
    code = main(["backtest", "--history", str(folder), "--policy", file, "--optimum", "--weight", "0.1", *words])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_json_has_the_plan_and_how_far_each_policy_is_above_it(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    code, out, _ = backtest(capsys, folder, "-o", "json")

    found = json.loads(out)
    optimum, live = found["optimum"], found["policies"][-1]
    assert code == 0
    assert optimum["proven"] is True
    assert optimum["weight"] == pytest.approx(0.1)
    assert optimum["figures"]["moves"] >= 1
    assert optimum["above"] < 0.1
    assert live["cost"] == pytest.approx(live["area"])
    assert live["above"] == pytest.approx(100 * (live["cost"] / optimum["bound"] - 1))
    assert all(one["above"] >= 0 for one in found["policies"])


@pytest.mark.slow
def test_the_table_the_verdict_markdown_and_the_page_have_it(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"

    _, out, _ = backtest(capsys, folder, "--html", str(page))
    _, comment, _ = backtest(capsys, folder, "-o", "markdown")

    assert [line for line in out.splitlines() if line.startswith(" best plan ")]
    said = " ".join(out.split())
    assert "Best plan in hindsight: " in said
    assert "points; none costs less." in said
    assert "Above the best plan: trim " in said
    assert "| measured % | cost | above % |" in comment
    assert "\n| best plan | " in comment
    assert "<td>best plan</td>" in page.read_text()
    assert "Best plan in hindsight: " in page.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--splits", "on"], "--optimum can't plan splits: leave out --splits on"),
        (["--window", "1"], "--optimum plans the whole time as one, but --window divides it: use only one of them"),
    ],
)
def test_options_that_it_does_not_go_with_are_refused(
    capsys: pytest.CaptureFixture[str], folder: Path, words: Sequence[str], said: str
) -> None:
    code, _, errors = backtest(capsys, folder, *words)

    assert code == 2
    assert said in errors


def test_without_it_nothing_is_searched(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    main(["backtest", "--history", str(folder), "-o", "json"])

    found = json.loads(capsys.readouterr().out)
    assert found["recording"] == POLICY
    assert found["optimum"] is None
    assert "cost" not in found["policies"][0]
