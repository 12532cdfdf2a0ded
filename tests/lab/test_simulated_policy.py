"""`trimtab simulate --policy`: a BalancingPolicy plays with its strategies, limits and interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trimtab_lab.simulation import named, parsed, played
from trimtab_lab.simulation.policy import PolicyPlayer, policies
from trimtab_operator.cli import main
from trimtab_operator.cli.common import CommandError

Captured = pytest.CaptureFixture[str]

POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: BalancingPolicy
metadata: {name: NAME}
spec:
  mode: Auto
  source: {prometheus: {url: "http://prometheus.monitoring.svc:9090"}}
"""

EXAMPLES = Path(__file__).parents[2] / "examples"


def policy(folder: Path, *lines: str, name: str = "balance") -> Path:
    """A file with a policy, and more lines of its spec."""
    file = folder / f"{name}.yaml"
    file.write_text(POLICY.replace("NAME", name) + "".join(f"  {line}\n" for line in lines))
    return file


def player(folder: Path, *lines: str) -> PolicyPlayer:
    [found] = policies([str(policy(folder, *lines))])
    return found


def test_a_policy_plays_as_its_strategies_do(tmp_path: Path) -> None:
    shedder = "shedder: {type: AvgShedder, avgShedder: {highThreshold: 20}}"
    who = player(tmp_path, shedder, "placement: {type: AvgShedder}", "selection: {type: Extensible}")

    decider = who.decider(None)  # type: ignore[arg-type]  # a policy needs no world
    pair = decider.inner.pair
    assert type(pair.shedder).__name__ == "AvgShedder"
    assert pair.shedder.params.high_threshold == 20  # type: ignore[attr-defined]
    assert pair.selection is not None
    assert played(named("two-hot"), who, 1).score.moves > 0


def test_the_limits_of_a_policy_hold_in_every_round(tmp_path: Path) -> None:
    moves = played(named("two-hot"), player(tmp_path, "limits: {maxMovesPerCycle: 1}"), 1).record.moves

    assert moves.max() == 1
    assert moves.sum() > 1


@pytest.mark.slow
def test_the_moves_of_an_hour_are_limited(tmp_path: Path) -> None:
    moves = played(named("two-hot"), player(tmp_path, "limits: {maxMovesPerHour: 3}"), 1).record.moves

    assert moves.sum() == 3


FIVE_OF_200 = """\
title: Five of 200 leave
description: Two hundred equal brokers are between 30 and 80 %; five leave.
machines:
  - {count: 200, usage: {first: 0.3, last: 0.8}, bundles: 60}
events:
  - {event: leave, brokers: [0, 1, 2, 3, 4], round: 5}
"""


@pytest.mark.slow
def test_without_a_limit_a_large_cluster_may_make_more_moves_in_an_hour(tmp_path: Path) -> None:
    scenario = parsed(FIVE_OF_200)

    bounded = played(scenario, player(tmp_path, "limits: {maxMovesPerHour: 200}"), 1)
    by_size = played(scenario, player(tmp_path), 1)

    assert bounded.record.moves.sum() == 200
    assert 200 < by_size.record.moves.sum() <= 20 * 200
    assert by_size.score.left < 5
    assert bounded.score.left > 15


def test_no_hour_cuts_more_clients_than_the_budget_allows(tmp_path: Path) -> None:
    hour = named("skewed")
    assert hour.rounds == 60
    assert played(hour, player(tmp_path), 1).record.cut > 0.02

    cut = played(hour, player(tmp_path, "budget: {connectionsPercentPerHour: 2}"), 1).record.cut

    assert 0 < cut <= 0.02 + 1e-9


def test_a_policy_decides_at_its_interval(tmp_path: Path) -> None:
    moves = played(named("skewed"), player(tmp_path, "interval: 7m", "limits: {maxMovesPerCycle: 2}"), 1).record.moves

    assert len(np.flatnonzero(moves)) > 1
    assert {round_ % 7 for round_ in np.flatnonzero(moves).tolist()} == {0}


def test_bundles_of_a_lost_broker_do_not_wait_for_the_interval(tmp_path: Path) -> None:
    record = played(named("lost-broker"), player(tmp_path, "interval: 30m"), 1).record

    assert record.owned > 0
    assert np.nanmin(record.pressure[5]) > 0
    assert record.unserved / record.wanted < 0.01


def test_policies_play_beside_strategies(tmp_path: Path, capsys: Captured) -> None:
    file = policy(tmp_path, "shedder: {type: OverloadShedder}")
    file.write_text(f"{file.read_text()}---\n{POLICY.replace('NAME', 'other')}")
    asked = ["--policy", str(file), "--scenario", "two-hot", "--against", "AvgShedder/Pulsar", "--seeds", "1"]
    assert main(["simulate", *asked, "--jobs", "1"]) == 0

    printed = capsys.readouterr()
    names = {line.split()[0] for line in printed.out.splitlines() if line.startswith(" ") and line.strip()}
    assert {"balance", "other", "AvgShedder/Pulsar"} < names
    assert "Trim/Trimtab" not in names
    assert printed.err.splitlines() == [f"policy {name}: the scenario replaces source" for name in ("balance", "other")]


def test_policies_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    files = [str(policy(tmp_path / name)) for name in ("old", "new")]

    assert [who.name for who in policies(files)] == [f"{file}:balance" for file in files]


def test_what_does_not_count_is_named_in_one_line(tmp_path: Path) -> None:
    who = player(
        tmp_path,
        "brokers: {podLabels: {app: pulsar}}",
        "interval: 90s",
        "paused: true",
        "limits: {maxUndoneMoves: 9, maxMovesPerBroker: 3}",
        "budget: {movesInFlight: 3}",
    )

    assert who.notes == (
        "policy balance: the scenario replaces brokers and source; "
        "not simulated: paused, limits.maxUndoneMoves; "
        "interval 90s counts as 120s, as a round is a minute"
    )


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_plays_or_is_refused(example: Path) -> None:
    try:
        found = policies([str(example)])
    except CommandError as error:
        assert "kind: BalancingPolicy" not in example.read_text()
        assert str(error).startswith(f"{example} must hold a BalancingPolicy, but it holds ")  # noqa: PT017
    else:
        assert all(who.notes.startswith(f"policy {who.name}: the scenario replaces ") for who in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (POLICY + "  limits: {maxMovesPerCycle: 0}\n", "7: spec.limits.maxMovesPerCycle: is 0, but must be at least 1"),
        (POLICY + "  limit: {}\n", "spec.limit: is unknown; did you mean limits?"),
        (POLICY + "  shedder: {type: Avg}\n", 'spec.shedder.type: is "Avg", but must be one of Trim'),
        (POLICY + "  brokerInterval: 2m\n", "brokerInterval must not exceed interval"),
        ("kind: [", "1: it is not YAML"),
        ("", "must hold a BalancingPolicy, but it holds nothing: give the file of a policy"),
        ("kind: Service\nmetadata: {name: web}\n", "but it holds Service web: give the file of a policy"),
    ],
)
def test_a_policy_that_can_t_be_played_is_refused(tmp_path: Path, text: str, words: str, capsys: Captured) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text.replace("NAME", "balance"))

    assert main(["simulate", "two-hot", "--policy", str(file)]) == 2
    assert words in capsys.readouterr().err


def test_a_policy_that_is_not_there_is_refused(capsys: Captured) -> None:
    assert main(["simulate", "two-hot", "--policy", "none.yaml"]) == 2
    assert "there is no file or folder none.yaml" in capsys.readouterr().err
