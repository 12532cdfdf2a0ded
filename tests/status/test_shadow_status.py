"""What a person reads of a shadow: `status.shadow`, the condition `ShadowBetter`, and `trimtab status`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trimtab_operator.cli.commands.status_table import as_data, policy_grid, print_one
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.shadow_state import ShadowReport
from trimtab_operator.status.conditions import policy_status
from trimtab_operator.status.shadow import shadow_status, with_verdict
from trimtab_strategies.counterfactual.comparison import Comparison, PairSums, SideSums
from trimtab_strategies.model import HeldBack, Plan, Reason

DAY = 86400.0
NOON = 43200.0


def report(days: int, acting: float, shadow: float, *, clients: bool = True) -> ShadowReport:
    """So many whole days on which the brokers were so many points apart; 3 moves a day really, and 1 in the shadow."""
    compared = Comparison(NOON, NOON)
    for day in range(days + 1):
        sides = SideSums(3, 6.0, acting * DAY, 600.0), SideSums(1, 2.0, shadow * DAY, 0.0)
        counted = DAY if clients else 0.0
        sums = PairSums(DAY, DAY, 100 * counted, counted, 0.9 * DAY, *sides) if day < days else PairSums()
        compared = compared.after(sums, day * DAY + NOON)
    return ShadowReport("balance", "the shadow is new", compared, displaced=7)


def result(**changes: Any) -> CycleResult:
    """A cycle with a plan that moves nothing, unless `changes` say otherwise."""
    plan = Plan((), (), ("a",), np.full((1, 5), 50.0), np.full((1, 5), 50.0))
    return CycleResult(**{"started": 10 * DAY, "seconds": {}, "generation": 2, "plan": plan, **changes})


def verdict(found: CycleResult) -> tuple[str, str, str]:
    """Status, reason and message of the only condition."""
    [condition] = with_verdict([], found)
    assert condition["type"] == "ShadowBetter"
    return condition["status"], condition["reason"], condition["message"]


def test_both_are_shown_beside_each_other_the_shadow_first() -> None:
    shown = shadow_status(report(9, acting=38, shadow=12))

    assert shown["summary"] == "9 : 27 moves, 18 : 54 % cut, 12 : 38 points"
    assert shown["acting"] == {"moves": 27, "cut": 54, "range": 38, "hotMinutes": 90}
    assert shown["shadow"] == {"moves": 9, "cut": 18, "range": 12, "hotMinutes": 0}
    assert (shown["policy"], shown["since"], shown["hours"]) == ("balance", "1970-01-01T12:00:00Z", 216)
    assert (shown["better"], shown["days"], shown["displaced"], shown["measured"]) == ("Yes", 9, 7, 90)


def test_what_is_not_known_is_left_out() -> None:
    shown = shadow_status(report(1, acting=38, shadow=12, clients=False))

    assert shown["summary"] == "1 : 3 moves, 12 : 38 points"
    assert shown["acting"]["cut"] is None
    assert shown["savings"] is None
    assert shadow_status(report(0, acting=1, shadow=1))["measured"] is None


@pytest.mark.parametrize(
    ("days", "acting", "shadow", "status", "reason", "words"),
    [
        (3, 38, 12, "Unknown", "TooEarly", "3 whole days of 7 compared with balance since 1970-01-01T12:00:00Z"),
        (7, 38, 12, "True", "Better", "a day of the shadow costs 30.1 points less (30.1 to 30.1) than one of balance"),
        (7, 12, 38, "False", "NotBetter", "a day of the shadow costs 21.9 points more (21.9 to 21.9)"),
    ],
)
def test_the_condition_says_whether_it_is_better(
    days: int, acting: float, shadow: float, status: str, reason: str, words: str
) -> None:
    found = verdict(result(shadow=report(days, acting, shadow)))

    assert found[:2] == (status, reason)
    assert words in found[2]


def test_without_a_policy_that_acts_the_condition_says_that() -> None:
    refusal = HeldBack("", Reason.NO_ACTING_POLICY, "nobody is there")

    assert verdict(result(plan=None, refusal=refusal)) == ("Unknown", "NoActingPolicy", "nobody is there")


def test_a_refused_cycle_keeps_the_comparison_and_a_cycle_of_another_mode_drops_it() -> None:
    before = policy_status(result(shadow=report(7, 38, 12)), {}, 0)

    refused = policy_status(result(plan=None, refusal=HeldBack("", Reason.SOURCE_UNAVAILABLE, "silent")), before, 0)
    acts = policy_status(result(), before, 0)

    assert "shadow" not in refused
    assert "ShadowBetter" in {condition["type"] for condition in refused["conditions"]}
    assert acts["shadow"] is None
    assert "ShadowBetter" not in {condition["type"] for condition in acts["conditions"]}


def test_trimtab_status_shows_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    shown = policy_status(result(shadow=report(9, 38, 12)), {}, 0)
    data = as_data({"metadata": {"name": "trim-shadow"}, "spec": {"mode": "Shadow"}, "status": shown})

    print_one(data, "never")

    printed = capsys.readouterr().out
    text = " ".join(printed.split())
    assert "Compared with balance since 1970-01-01T12:00:00Z (216 h; the shadow is new)" in text
    assert "better: Yes, saves 30.1 points a day (30.1 to 30.1)" in text
    assert "7 bundles would be on another broker; 90 % of the load was measured where it would be" in text
    assert [line.split() for line in printed.splitlines() if line.strip().startswith(("acting", "shadow"))] == [
        ["acting", "27", "54.0", "38.0", "90.0"],
        ["shadow", "9", "18.0", "12.0", "0.0"],
    ]
    assert "9 : 27 moves, 18 : 54 % cut, 12 : 38 points" in policy_grid([data]).rows[0]
