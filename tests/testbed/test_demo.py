"""The demo: what it sees, when it calls a cluster level, what it says; and its stage, without the operator."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest
from rich.console import Console

from trimtab_operator.cli import main
from trimtab_testbed.demo.follow import BrokerRow, Cycle, Follower, Look, SeenMove
from trimtab_testbed.demo.settle import Settling
from trimtab_testbed.demo.show import Lines, picture
from trimtab_testbed.demo.stage import Stage
from trimtab_testbed.demo.summary import Result, as_json, as_lines
from trimtab_testbed.scenarios import Solved, scenario

QUIET = Cycle("2026-01-31T12:00:05Z", "Balanced", 0, 0.5, {"spark": 0.4, "decide": 0.1})
BUSY = Cycle("2026-01-31T12:00:00Z", "Overloaded", 2, 0.7, {"spark": 0.6, "decide": 0.1})
MOVE = SeenMove("t-n-0x00000000-0x80000000", "a", "b", "Overloaded", at=3.0, landed=True)


def look(
    at: float = 0,
    cpu: tuple[float | None, ...] = (50, 50),
    *,
    moves: tuple[SeenMove, ...] = (),
    cycles: tuple[Cycle, ...] = (QUIET,),
    unconfirmed: int = 0,
) -> Look:
    rows = tuple(BrokerRow(name, percent, 20, 5, 9, 4) for name, percent in zip("abcdef", cpu, strict=False))
    return Look(at, rows, moves, cycles, unconfirmed, "Balanced: all is well")


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
        (look(cpu=(40, 55)), "the CPU range is 15.0 points, wanted below 15"),
        (look(cpu=(40, None)), "not all brokers are measured"),
        (look(unconfirmed=2), "2 bundles are not where they should be yet"),
        (look(cycles=()), "the operator has not finished a cycle yet"),
        (look(cycles=(QUIET, BUSY)), "the last cycle still moved something"),
    ],
)
def test_what_is_missing_is_said(seen: Look, missing: str) -> None:
    assert Settling(Solved()).missing(seen) == missing


def test_the_json_has_ranges_moves_and_cycles() -> None:
    end = look(30, cpu=(45, 51), moves=(MOVE,), cycles=(BUSY, QUIET))
    result = as_json(Result("x", settled=True, seconds=30, start=look(cpu=(20, 70)), end=end, missing=""))
    assert (result["settled"], result["cpu_range_start"], result["cpu_range_end"]) == (True, 50, 6)
    assert result["moves"] == [
        {"bundle": MOVE.bundle, "source": "a", "destination": "b", "reason": "Overloaded", "landed": True}
    ]
    assert result["cycles"][0]["seconds"] == {"spark": 0.6, "decide": 0.1, "total": 0.7}
    assert json.loads(json.dumps(result)) == result


def test_the_summary_says_what_kept_it_from_settling_and_who_moved_twice() -> None:
    end = look(30, cpu=(40, 70), moves=(MOVE, MOVE))
    lines = list(as_lines(Result("x", settled=False, seconds=30, start=look(), end=end, missing="too uneven")))
    assert lines[0] == "x: NOT settled after 30 s"
    assert "  because too uneven" in lines
    assert f"  moved twice    {MOVE.bundle}" in lines


def test_lines_tell_each_move_once_with_its_reason() -> None:
    out = io.StringIO()
    lines = Lines(Console(file=out))
    lines.update(look(3, moves=(MOVE,)))
    lines.update(look(4, moves=(MOVE,)))
    assert out.getvalue().splitlines() == [
        "   3 s  t-n-0x00000000-0x80000000: a -> b (Overloaded)",
        "   3 s  CPU 50-50 %; 1 moves, 1 landed; last cycle 0.50 s: Balanced",
    ]


def test_the_table_shows_an_unmeasured_broker_as_unknown() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(picture(look(cpu=(80, None), moves=(MOVE,)), "a demo"))
    first, second = [line for line in out.getvalue().splitlines() if line.startswith(("a  ", "b  "))]
    assert "██████████░░  80 %" in first
    assert "░░░░░░░░░░░░   ?" in second
    assert MOVE.bundle in out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--scenario", "nope"], "there is no scenario 'nope': use one of skewed-96"),
        (["--timeout", "-1"], "-1 must be above 0 seconds"),
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
    with Stage(scenario("uneven-8"), tmp_path, said.append) as stage:
        stage.create_policy()
        follower = Follower(stage)
        while (seen := follower.look()).cpu_range is None or seen.cpu_range < 40:
            assert seen.at < 40, f"the skewed load is not measured: {seen}"
            time.sleep(0.5)
        bundle = next(name for name, b in stage.world.bundles().items() if b["spec"]["owner"] == "pulsar-broker-0")
        assignment = {"owner": "pulsar-broker-2", "reason": "Overloaded", "time": "2026-01-31T12:00:00Z"}
        wish = {"spec": {"owner": "pulsar-broker-2", "assignment": assignment}}
        stage.control_plane.rest.patch(f"{stage.path('bundles')}/{bundle}", wish)
        stage.world.wait_until_owned()
        (move,) = follower.look().moves
        stage.control_plane.rest.patch(f"{stage.path('bundles')}/{bundle}", {"spec": {"owner": "pulsar-broker-1"}})
        stage.world.wait_until_owned()
        (_, by_hand) = follower.look().moves
        servers = [stage.prometheus.server, stage.control_plane.server("etcd")]
    assert (move.bundle, move.source, move.destination) == (bundle, "pulsar-broker-0", "pulsar-broker-2")
    assert (move.reason, move.landed) == ("Overloaded", True)
    assert (by_hand.destination, by_hand.reason) == ("pulsar-broker-1", "Admin")
    assert said[0] == "starting etcd and kube-apiserver"
    assert not any(server.running for server in servers)
