"""The page about Trim: its pictures in words, one decision in numbers, and its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from page_text import filled, table
from trim_runs import (
    FOREIGN,
    FOREIGN_BROKER,
    FOREIGN_USAGE,
    JITTER,
    JOIN,
    NEIGHBOUR_BROKER,
    NOISE,
    ON_OFF_BROKER,
    Minute,
    TrimRun,
    played,
)

from trimtab_lab.simulation import named
from trimtab_lab.simulation.compare import SEED
from trimtab_lab.simulation.world import CORE
from trimtab_strategies.shedding.trim import cause, plan, replay, scores
from trimtab_strategies.shedding.trim.shedder import TrimParams

EFFECTS: Mapping[str, tuple[str, str, str]] = {
    "hot": ("points", "larger differences stay", "it acts on smaller differences, also on noise"),
    "apart": ("points", "a cold broker stays cold for longer", "it fills cold brokers sooner"),
    "price": ("points²", "fewer moves, more points left", "more moves, fewer points left"),
    "worth": ("point-minutes", "it waits for longer, fewer moves in vain", "it acts sooner, more moves in vain"),
    "fixed_percent": ("percent", "fewer moves, more clients disconnected", "fewer clients disconnected, by more moves"),
    "floor": ("percent", "a busier cluster is left alone", "a quiet cluster is levelled too"),
    "moves_per_broker": ("moves", "level sooner, larger steps", "smaller steps, level later"),
}
"""Unit of each parameter, and what happens when it is raised, and lowered."""


def page() -> str:
    """docs/explanation/trim.md."""
    parts = {**_moved(), **_waited(), **_costs(), **_taken(), **_scored()}
    return filled("explanation/trim.md", **parts, **_constants(), PARAMETERS=_parameters())


def _constants() -> dict[str, str]:
    return {
        "SHORTEST": f"{min(cause.WINDOWS)}",
        "LONGEST": f"{max(cause.WINDOWS)}",
        "WINDOWS": ", ".join(map(str, cause.WINDOWS)),
        "REPLAYED": f"{replay.WINDOW}",
        "LOUD": f"{cause.LOUD:g}",
        "SURGE": f"{cause.SURGE:g}",
        "BUSY": f"{cause.BUSY:g}",
        "WITHIN": f"{scores.WITHIN:g}",
        "NARROW": f"{100 * cause.NARROW:.0f}",
        "NARROWS": f"{cause.NARROWS:g}",
        "AHEAD": f"{plan.AHEAD:g}",
        "CAMPAIGN": f"{cause.CAMPAIGN:g}",
        "SEED": f"{SEED}",
        "JITTER": f"{100 * JITTER:g}",
        "ENOUGH": f"{100 * scores.RIGHT:g}",
        "CAP": f"{TrimParams().moves_per_broker}",
        "FLOOR": f"{TrimParams().floor:g}",
    }


def _moved() -> dict[str, str]:
    run = played("new-broker")
    first = run.acted[0]
    return {
        "JOIN": f"{JOIN}",
        "NEWCOMER": run.brokers[-1],
        "FIRST": f"{first.number}",
        "AFTER": f"{run.after.number}",
        "RANGE": f"{np.ptp(run.after_in(first).away.mean(axis=0)):.0f}",
        "PLANS": f"{len(run.acted)}",
        "DECISIONS": _decisions(run),
    }


def _waited() -> dict[str, str]:
    run, waves, stays = played("noisy-neighbour"), played("on-off"), played("foreign-load")
    away = np.array([minute.replay.away[-1][NEIGHBOUR_BROKER] for minute in run.minutes.values()])
    over = np.array(
        [minute.cycle.watch.lasted(minute.cycle.watch.since)[NEIGHBOUR_BROKER] for minute in run.minutes.values()]
    )
    wave = np.array([minute.replay.away[-1][ON_OFF_BROKER] for minute in waves.minutes.values()])
    spikes = [minute.cycle.watch for minute in run.minutes.values() if minute.cycle.watch.patience > cause.LOUD]
    return {
        "NEIGHBOUR": run.brokers[NEIGHBOUR_BROKER],
        "HIGHEST": f"{away.max():.0f}",
        "TIMES": f"{(over == 1).sum()}",
        "MOVES": f"{run.score.moves}",
        "SPIKE": f"{spikes[0].spike:g}",
        "NEEDED": f"{spikes[0].patience:g}",
        "SAYS": f"```text\n{run.held_back}\n```",
        "WAVER": waves.brokers[ON_OFF_BROKER],
        "WAVE": f"{wave.max():.0f}",
        "DIP": f"{-np.minimum(wave[1:], wave[:-1]).max():.0f}",
        "WAVEMOVES": f"{waves.score.moves}",
        "STAYS": f"{100 * named('foreign-load').events[0].usage:g}",
        "STARTS": f"{stays.scenario.event}",
        "LEAVES": f"{stays.acted[0].number}",
    }


def _costs() -> dict[str, str]:
    run = played("mixed-costs")
    learned, groups = run.last.replay.model, run.scenario.machines
    slopes = {group.cores: 1e9 * float(np.median(learned.slope[learned.cores == group.cores])) for group in groups}
    many, few = sorted(groups, key=lambda group: -group.cores)
    return {
        "FOREIGN": f"{FOREIGN}",
        "GUEST": run.brokers[FOREIGN_BROKER],
        "TAKES": f"{FOREIGN_USAGE * few.cores:g}",
        "NOISE": f"{100 * NOISE:g}",
        "MESSAGE": f"{learned.message:g}",
        "TRUEMESSAGE": f"{run.scenario.realism.message_price:g}",
        "MANYCORES": f"{many.cores:g}",
        "FEWCORES": f"{few.cores:g}",
        "MANYSLOPE": f"{slopes[many.cores]:.1f}",
        "FEWSLOPE": f"{slopes[few.cores]:.1f}",
        "TRUEMANY": f"{1e9 / (CORE * many.speed):.1f}",
        "TRUEFEW": f"{1e9 / (CORE * few.speed):.1f}",
        "BACKGROUND": f"{learned.background[-1, FOREIGN_BROKER]:.1f}",
    }


def _taken() -> dict[str, str]:
    run = played("new-broker")
    left = run.left_over
    return {
        "COUNT": f"{len(run.acted[0].plan.moves)}",
        "LEFTGAIN": f"{left.gain:.1f}",
        "LEFTPRICE": f"{left.price:.1f}",
        "LEFT": f"{run.score.left:.1f}",
    }


def _scored() -> dict[str, str]:
    found = played("new-broker").predictions()
    off = [abs(predicted - measured) for _, predicted, measured in found]
    name, predicted, measured = found[int(np.argmax(off))]
    return {
        "RIGHT": f"{sum(points <= scores.WITHIN for points in off)}",
        "JUDGED": f"{len(found)}",
        "FARTHEST": name,
        "PREDICTED": f"{predicted:.1f}",
        "MEASURED": f"{measured:.1f}",
    }


def _decisions(run: TrimRun) -> str:
    columns = [list(_decision(minute)) for minute in run.acted]
    heads = " | ".join(f"minute {minute.number}" for minute in run.acted)
    rows = [(column[0], *(each[row][1] for each in columns)) for row, column in enumerate(columns[0])]
    return table(f"what | {heads}", rows)


def _decision(minute: Minute) -> Iterator[tuple[str, str]]:
    """Name and value of each number of a decision, in the order in which they are computed."""
    shown, made, life = minute.cause, minute.plan, minute.life
    balance, names = minute.balance(), minute.cycle.cluster.brokers.names
    away = balance.away()
    hottest, coldest = int(np.argmax(away)), int(np.argmin(away))
    yield "level of the cluster, the target of each broker", f"{balance.target.min():.1f} %"
    yield "hottest broker: distance from its target", f"`{names[hottest]}`: {away[hottest]:+.1f} points"
    yield "coldest broker: distance from its target", f"`{names[coldest]}`: {away[coldest]:+.1f} points"
    yield "window that shows a cause", f"{shown.window} minutes"
    yield "hottest: least distance in the window (needed for a cause)", f"{shown.hottest:.1f} ({shown.hot:g}) points"
    yield "hottest to coldest: least range in the window (needed)", f"{shown.range:.1f} ({shown.apart:g}) points"
    yield "life: how long the difference will probably last", f"{life:g} minutes"
    yield "points that the plan takes off brokers above their target", f"{made.gained:.1f} points"
    yield "gain: these points times the life", f"{made.gained * life:.0f} point-minutes"
    yield "price: what the moves must gain at least", f"{made.price:.0f} point-minutes"
    yield "moves", f"{len(made.moves)}"
    yield "clients that they disconnect", f"{100 * made.cut:.1f} %"


def _parameters() -> str:
    rows = []
    for name, field in TrimParams.model_fields.items():
        unit, raised, lowered = EFFECTS[name]
        rows.append((f"`{field.alias or name}`", f"{field.default:g}", unit, raised, lowered))
    return table("parameter | default | unit | raised | lowered", rows)
