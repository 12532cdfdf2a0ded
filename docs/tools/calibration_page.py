"""The page of the calibration: one scenario on real brokers and in the lab."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import calibration_plot
import numpy as np
from calibration_figures import (
    LAB_STEP,
    REAL_STEP,
    added,
    change,
    data,
    fitted,
    growth,
    lab_curve,
    lab_gaps,
    minutes,
    points,
    predictions,
    real_gaps,
    scenario,
    values,
)
from page_text import filled, table, wrapped

from trimtab_lab.simulation.realism import Batching
from trimtab_strategies.model.cluster_load import FloatArray

RANKS = ("busiest", "middle", "idlest")
"""Ranks of brokers in a minute, by messages/s.

Real brokers and the lab's are compared by rank. Idle brokers are alike, so load may go to another broker in the lab.
"""


def page() -> str:
    """docs/calibration.md."""
    real = data()["real"]
    return filled(
        "calibration.md",
        SCENARIO=wrapped(f"**The scenario.** {scenario().description} {_SCENARIO}"),
        RUN=wrapped(_RUN.format(**real, unread=max(0, real["acked"] - real["received"]))),
        SHORT=_short(),
        LOAD=_load(),
        MOVES=_moves(),
        CONSTANTS=_constants(),
        AVERAGE=f"{real['load']:g}",
        MACHINE=str(real["machine_cores"]),
        PREDICTIONS=_predictions(),
        RUNS=wrapped(" ".join(_run_of(name, run) for name, run in predictions()["runs"].items())),
    )


_SCENARIO = (
    "The scenario is in [benchmarks/calibration.yaml](../benchmarks/calibration.yaml); `trimtab simulate"
    " benchmarks/calibration.yaml` plays it. The lab decides what the clients of each bundle send in each minute. Real"
    " producers send exactly that, in messages of 512 bytes, each read by one consumer."
)
_RUN = (
    "**The real run** finished on {finished} (UTC): Pulsar 4.0.8 with the modular load manager, each broker in a"
    " control group of {cores:g} cores. The load ran for a minute before the policy was applied. CPU comes from the"
    " kernel, and owners from the admin REST API twice a second. Producers and consumers measure the gap"
    " of a move: the longest silence of the bundle's topic, from 2 s before to 2 s after it was first seen at the new"
    " owner, less the usual time between two messages."
    " {acked:,} messages were acknowledged, {errors} sends failed, {unread} messages were not read."
)


def traces() -> str:
    """docs/calibration.svg."""
    return calibration_plot.traces(data(), change())


def curve() -> str:
    """docs/calibration-cpu.svg."""
    found = points(data())
    return calibration_plot.curve(found, fitted(found).percent, lab_curve().percent)


DRAWINGS: Mapping[str, Callable[[], str]] = {"calibration": traces, "calibration-cpu": curve}


def _ranked(side: str, step: float) -> tuple[FloatArray, FloatArray]:
    """Messages/s and CPU (percent) by minute and rank, busiest first."""
    rates, cpu = (minutes(values(data()[side][what]), step) for what in ("rates", "cpu"))
    order = np.argsort(-rates, axis=1, kind="stable")
    return np.take_along_axis(rates, order, axis=1), np.take_along_axis(cpu, order, axis=1)


def moments() -> Mapping[str, int]:
    """The minutes of the table."""
    return {"first minute": 0, "before the change": change() - 1, "last minute": scenario().rounds - 1}


def _load() -> str:
    (real_rates, real_cpu), (lab_rates, lab_cpu) = _ranked("real", REAL_STEP), _ranked("lab", LAB_STEP)
    rows = [
        (
            when,
            rank,
            f"{real_rates[minute, n]:.0f}",
            f"{lab_rates[minute, n]:.0f}",
            f"{real_cpu[minute, n]:.0f} %",
            f"{lab_cpu[minute, n]:.0f} %",
            f"{lab_cpu[minute, n] - real_cpu[minute, n]:+.0f}",
        )
        for when, minute in moments().items()
        for n, rank in enumerate(RANKS)
    ]
    return table("when | broker | messages/s, real | lab | CPU, real | lab | difference, points", rows)


def _moves() -> str:
    head = "what | real | lab"
    return table(head, [(what, real, lab) for what, real, lab in _move_rows()])


def _move_rows() -> Iterator[tuple[str, str, str]]:
    changed = 60.0 * change()
    sides = _both_moves()
    yield ("first move after the policy was applied", _seconds(sides[0]), _seconds(sides[1]))
    for words, low, high in (("before", 0.0, changed), ("after", changed, np.inf)):
        counts = [sum(low <= move["at"] < high for move in moves) for moves in sides]
        yield (f"moves {words} the change", str(counts[0]), str(counts[1]))
    share = [sum(move["rate"] for move in moves if move["at"] < changed) for moves in sides]
    yield ("messages/s that these moves carry, before the change", f"{share[0]:.0f}", f"{share[1]:.0f}")
    received = real_gaps("receive")
    for words, of, lab in (("producers", real_gaps(), lab_gaps()), ("consumers", received, lab_gaps())):
        yield (f"gap of {words}, median", f"{of.median:.2f} s", f"{lab.median:.2f} s")
        yield (f"gap of {words}, 95 %", f"{of.most:.2f} s", f"{lab.most:.2f} s")


def _backlog() -> tuple[int, float]:
    """The most unacknowledged messages in the minute after a move, and the seconds until there were few again."""
    waiting = data()["real"]["backlog"]["unacknowledged"]
    usual = float(np.median(waiting))
    most, longest = 0, 0.0
    for move in data()["real"]["moves"]:
        start = int(move["at"] // REAL_STEP)
        after = waiting[start : start + 6]
        most = max([most, *after])
        calm = next((n for n, count in enumerate(after) if n and count <= 2 * usual + 10), len(after))
        longest = max(longest, REAL_STEP * calm)
    return most, longest


def _short() -> str:
    found, curve, lab = points(data()), fitted(points(data())), lab_curve()
    apart = np.abs((lab.percent(found.rates) - found.cpu)[~found.grown])
    real_added, lab_added = added(curve, growth(data())), added(lab, _batching().growth)
    gaps, drawn = real_gaps(), lab_gaps()
    most, gone = _backlog()
    rows = [
        ("CPU at the same messages/s", f"{np.median(apart):.0f} points apart (median), {apart.max():.0f} at most", ""),
        ("CPU of a bundle with six times the traffic", f"+{real_added:.0f} points", f"+{lab_added:.0f} points"),
        ("first move after the policy was applied", *(_seconds(moves) for moves in _both_moves())),
        ("moves", *(str(len(moves)) for moves in _both_moves())),
        ("gap of a move, median and 95 %", *(f"{of.median:.1f} and {of.most:.1f} s" for of in (gaps, drawn))),
        ("backlog after moves", f"{most} messages, gone within {gone:.0f} s", "gone within a round"),
    ]
    return table("what | real brokers | the lab", rows)


def _predictions() -> str:
    """What a backtest predicted from each history, and what happened. Replays of a history's own policy come last."""
    found = sorted(predictions()["predictions"], key=lambda one: one["policy"] == one["history"])
    rows = [
        (
            _NAMES[one["policy"]],
            _NAMES[one["history"]],
            *(f"{one['predicted'][key]:.{digits}f} / {one['measured'][key]:.{digits}f}" for key, digits in _COMPARED),
            f"{one['predicted']['measured']:.0%}",
        )
        for one in found
    ]
    return table(
        "policy | history of | moves | points apart, mean | 95 % of the time within | hot minutes | measured", rows
    )


def _run_of(name: str, run: Mapping[str, Any]) -> str:
    """A sentence on a run."""
    return (
        f"{_NAMES[name]}'s run finished on {run['finished']} (UTC) at load average {run['load']:.1f}: {run['moves']}"
        f" moves, the first one {run['first']:.0f} s after the policy was applied; {run['acked']:,} messages were"
        f" acknowledged, and {run['errors']} sends failed."
    )


_NAMES = {"trim": "Trim", "avg": "AvgShedder"}
_COMPARED = (("moves", 0), ("area", 1), ("within", 1), ("hot", 1))
"""Figures of a prediction, with their digits."""


def _both_moves() -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    return data()["real"]["moves"], data()["lab"]["moves"]


def _seconds(moves: list[Mapping[str, Any]]) -> str:
    """When the first of `moves` landed, as text."""
    return f"{moves[0]['at']:.0f} s" if moves else "never"


def _constants() -> str:
    found, lab = fitted(points(data())), lab_curve()
    gaps, drawn = real_gaps(), lab_gaps()
    spread = float(np.log(gaps.most / gaps.median)) / 1.645
    given = scenario().realism.reconnect
    assert given is not None, "the scenario asks for it"
    rows = [
        ("`batching.exponent`", f"{found.exponent:.2f}", f"{lab.exponent:.2f}"),
        ("`batching.idle`", f"{found.idle:.3f}", f"{lab.idle:.3f}"),
        ("`batching.growth`", f"{growth(data()):.2f}", f"{_batching().growth:.2f}"),
        ("messages/s that fill a broker of the run", f"{found.full:.0f}", f"{lab.full:.0f}"),
        ("`reconnect.gap`, seconds", f"{gaps.median:.2f}", f"{drawn.median:.2f}"),
        ("`reconnect.spread`", f"{spread:.2f}", f"{given.spread:.2f}"),
    ]
    return table("constant | this run | the lab", rows)


def _batching() -> Batching:
    given = scenario().realism.batching
    assert given is not None, "the scenario asks for it"
    return given
