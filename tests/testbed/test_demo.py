"""The demo: its snapshots, its verdict, its output; and its cluster without the operator."""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from manifests import broker
from trimtab_operator.cli import main
from trimtab_testbed.demo.cluster import DemoCluster
from trimtab_testbed.demo.run import Settling, looking_around, unlike
from trimtab_testbed.demo.snapshot import BrokerRow, ClusterObserver, DemoSnapshot, ObservedCycle, SeenMove
from trimtab_testbed.demo.summary import Result, as_json, as_lines
from trimtab_testbed.demo.view import LineView, render, state
from trimtab_testbed.simulated.scenarios import Solved, scenario

QUIET = ObservedCycle("2026-01-31T12:00:05Z", "Balanced", 0, 0.5, {"compute": 0.4, "decide": 0.1})
BUSY = ObservedCycle("2026-01-31T12:00:00Z", "Overloaded", 2, 0.7, {"compute": 0.6, "decide": 0.1})
MOVE = SeenMove("t-n-0x00000000-0x80000000", "a", "b", "Overloaded", at=3.0, landed=True)


def look(
    at: float = 0,
    cpu: tuple[float | None, ...] = (50, 50),
    *,
    moves: tuple[SeenMove, ...] = (),
    cycles: tuple[ObservedCycle, ...] = (QUIET,),
    unconfirmed: int = 0,
) -> DemoSnapshot:
    rows = tuple(BrokerRow(name, percent, 20, 5, 9, 4) for name, percent in zip("abcdef", cpu, strict=False))
    return DemoSnapshot(at, rows, moves, cycles, unconfirmed, "Balanced: all is well")


def test_a_level_cluster_at_rest_is_settled_after_a_while() -> None:
    settling = Settling(Solved(cpu_range=15, seconds=10))
    assert [settling.settled(look(at)) for at in (0, 5, 10)] == [False, False, True]


def test_a_disturbance_starts_the_wait_again() -> None:
    settling = Settling(Solved(cpu_range=15, seconds=10))
    assert not settling.settled(look(0))
    assert not settling.settled(look(9, cpu=(20, 60)))
    assert not settling.settled(look(11))
    assert settling.settled(look(21))


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        (look(cpu=(40, 55)), "the CPU range is 15.0 points, must be below 15"),
        (look(cpu=(40, None)), "not all brokers are measured"),
        (look(unconfirmed=2), "not confirmed by a broker yet: 2 bundles"),
        (look(cycles=()), "the operator has not finished a cycle yet"),
        (look(cycles=(QUIET, BUSY)), "the last cycle still moved something"),
    ],
)
def test_what_is_missing_is_said(seen: DemoSnapshot, missing: str) -> None:
    assert Settling(Solved()).missing(seen) == missing


def test_the_json_has_ranges_moves_and_cycles() -> None:
    end = look(30, cpu=(45, 51), moves=(MOVE,), cycles=(BUSY, QUIET))
    result = as_json(Result("x", settled=True, seconds=30, start=look(cpu=(20, 70)), end=end, missing=""))
    assert (result["settled"], result["cpu_range_start"], result["cpu_range_end"]) == (True, 50, 6)
    assert result["moves"] == [
        {"bundle": MOVE.bundle, "source": "a", "destination": "b", "reason": "Overloaded", "landed": True}
    ]
    assert result["cycles"][0]["seconds"] == {"compute": 0.6, "decide": 0.1, "total": 0.7}
    assert json.loads(json.dumps(result)) == result


def test_the_summary_says_what_kept_it_from_settling_and_who_moved_twice() -> None:
    end = look(30, cpu=(40, 70), moves=(MOVE, MOVE))
    lines = list(as_lines(Result("x", settled=False, seconds=30, start=look(), end=end, missing="too uneven")))
    assert lines[0] == "x: NOT settled after 30 s"
    assert "  not confirmed  none" in lines
    assert lines[-3] == "  moves, in order"
    assert "  because too uneven" in lines
    assert f"  moved twice    {MOVE.bundle}" in lines


def test_lines_tell_each_move_once_with_its_reason() -> None:
    out = io.StringIO()
    lines = LineView(Console(file=out))
    lines.update(look(3, moves=(MOVE,)))
    lines.update(look(4, moves=(MOVE,)))
    assert out.getvalue().splitlines() == [
        "   3 s  t-n-0x00000000-0x80000000: a -> b (Overloaded)",
        "   3 s  CPU 50-50 %; 1 move, 1 landed; last cycle 0.50 s: Balanced",
    ]


def test_a_cycle_without_phases_has_no_brackets() -> None:
    out = io.StringIO()
    bare = ObservedCycle("2026-01-31T12:00:05Z", "NoData", 0, 0.1, {})
    Console(file=out, width=80).print(render(look(cycles=(bare,)), "a demo", 80))
    assert "last cycle 0.10 s: NoData\n" in out.getvalue()


def test_cycles_before_the_operator_sees_the_brokers_are_not_counted() -> None:
    follower = ClusterObserver(cast("DemoCluster", None))
    for second, outcome in enumerate(["StoreNotSynced", "NoBrokers", "Balanced", "NoBrokers"]):
        follower._note_cycle({"time": f"2026-01-31T12:00:0{second}Z", "outcome": outcome, "seconds": 0.5})
    assert [cycle.outcome for cycle in follower.cycles] == ["Balanced", "NoBrokers"]
    assert state(look(cycles=())) == "CPU 50-50 %; 0 moves, 0 landed; waiting for the operator to see the brokers"


def test_the_table_shows_an_unmeasured_broker_as_unknown() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(render(look(cpu=(80, None), moves=(MOVE,)), "a demo", 80))
    first, second = [line for line in out.getvalue().splitlines() if line.startswith(("a  ", "b  "))]
    assert "██████████░░  80 %" in first
    assert "░░░░░░░░░░░░   ?" in second
    assert MOVE.bundle in out.getvalue()


@pytest.mark.parametrize("width", [41, 55, 60, 70, 79])
def test_a_narrow_terminal_costs_bars_and_never_a_number(width: int) -> None:
    rows = tuple(BrokerRow(f"pulsar-broker-{n}", 91.0, 72.0, 53.0, 34.0, 115) for n in range(2))
    out = io.StringIO()
    Console(file=out, width=width).print(render(DemoSnapshot(0, rows, (), (), 0, ""), "a demo", width))
    numbers = [line for line in out.getvalue().splitlines() if "91 %" in line]
    assert len(numbers) == 2
    for line in numbers:
        assert [word for word in line.split() if word.isdigit()] == ["91", "72", "53", "34", "115"]
        assert ("█" in line) == (width >= 62)


def test_rates_that_still_ramp_are_distinguished_from_the_load_that_was_set() -> None:
    wanted = {"a": 80.0, "b": 25.0}
    assert unlike(look(cpu=(78, 27)), wanted) == ""
    assert unlike(look(cpu=(69, 19)), wanted) == "a 69 % (not 80 %), b 19 % (not 25 %)"
    assert unlike(look(cpu=(80, None)), wanted) == "b unknown (not 25 %)"


def test_what_the_demo_says_to_type_puts_the_built_kubectl_on_the_path(tmp_path: Path) -> None:
    """It comes before another kubectl on PATH, which may be too old for the server."""
    kubectl = tmp_path / "kube built" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text('#!/bin/sh\necho "built: $KUBECONFIG"\n')
    kubectl.chmod(0o755)

    lines = looking_around(tmp_path / "demo.kubeconfig", kubectl)

    ran = subprocess.run(
        ["sh", "-ec", "\n".join(lines[:3])], env={**os.environ}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"built: {tmp_path / 'demo.kubeconfig'}\n"


def test_a_missing_program_ends_the_demo_before_it_names_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert main(["demo"]) == 2
    told = capsys.readouterr()
    assert f"no java in JAVA_HOME={tmp_path / 'nowhere'}" in told.err
    assert "logs and data" not in told.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--scenario", "nope"], "there is no scenario 'nope': use one of skewed-96"),
        (["--timeout", "-1"], "-1 must be above 0 seconds"),
        (["--timeout", "abc"], "'abc' is not a number of seconds"),
    ],
)
def test_bad_usage_ends_with_2_and_one_clear_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.apiserver
@pytest.mark.prometheus
def test_the_stage_shows_load_and_a_move_with_its_reason(tmp_path: Path) -> None:
    said: list[str] = []
    with DemoCluster(scenario("uneven-8"), tmp_path, said.append) as stage:
        for name in stage.world.brokers:  # as discovery would: no operator runs here
            stage.control_plane.rest.create(stage.path("brokers"), broker(name))
        stage.create_policy()
        follower = ClusterObserver(stage)
        while (seen := follower.snapshot()).cpu_range is None or seen.cpu_range < 40:
            assert seen.at < 40, f"the skewed load is not measured: {seen}"
            time.sleep(0.5)
        bundle = next(name for name, b in stage.world.bundles().items() if b["spec"]["owner"] == "pulsar-broker-0")
        assignment = {"owner": "pulsar-broker-2", "reason": "Overloaded", "time": "2026-01-31T12:00:00Z"}
        desired = {"spec": {"owner": "pulsar-broker-2", "assignment": assignment}}
        stage.control_plane.rest.patch(f"{stage.path('bundles')}/{bundle}", desired)
        stage.world.wait_until_owned()
        (move,) = follower.snapshot().moves
        stage.control_plane.rest.patch(f"{stage.path('bundles')}/{bundle}", {"spec": {"owner": "pulsar-broker-1"}})
        stage.world.wait_until_owned()
        (_, by_hand) = follower.snapshot().moves
        servers = [stage.prometheus.server, stage.control_plane.server("etcd")]
    assert (move.bundle, move.source, move.destination) == (bundle, "pulsar-broker-0", "pulsar-broker-2")
    assert (move.reason, move.landed) == ("Overloaded", True)
    assert (by_hand.destination, by_hand.reason) == ("pulsar-broker-1", "Admin")
    assert said[0] == "starting etcd and kube-apiserver"
    assert not any(server.running for server in servers)
