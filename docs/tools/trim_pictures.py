"""The pictures of the page about Trim: why it moved, why it waited, what work costs, which bundles it took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from trim_plot import Axes, svg, text
from trim_runs import (
    FOREIGN,
    FOREIGN_BROKER,
    JOIN,
    NEIGHBOUR_BROKER,
    Minute,
    TrimRun,
    best_gain,
    played,
)

from trimtab_strategies.model import CPU
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.shedding.trim.cause import LOUD
from trimtab_strategies.shedding.trim.plan import rows_of
from trimtab_strategies.shedding.trim.replay import Replay
from trimtab_strategies.shedding.trim.samples import sampled

_LEFT, _WIDE, _HALF = 44.0, 420.0, 190.0
_RIGHT = _LEFT + _WIDE - _HALF  # left edge of the second of two fields side by side
_MEGA = 1e6
_PERCENT = (0, 20, 40, 60, 80)
_GAINS = (10, 100, 1000)
_GAIN = "gain, points² (logarithmic)"
_WORK = "work, MB/s"


def moved() -> str:
    """A broker joins: CPU as measured, and the replay with the owners before and after the moves."""
    run = played("new-broker")
    first, after, rounds = run.acted[0], run.after, len(run.cpu)
    top = Axes(_LEFT, 50, _WIDE, 150, (0, rounds), (0, 80))
    body = [*top.frame(range(0, rounds + 1, 10), _PERCENT, "minutes", "CPU, percent", "As measured")]
    body += _brokers(top, range(rounds), run.cpu)
    body.append(top.line([JOIN, rounds], [first.level] * 2, "ink", dash="5 4"))
    body.append(top.note(rounds, first.level - 12, f"level {first.level:.0f} %", anchor="end"))
    body.append(top.note(JOIN - 0.5, 6, f"{run.brokers[-1]} joins", "cold", anchor="end"))
    body += _counts(top, run)
    replay = first.replay
    body.append(text(_LEFT, 273, f"The last {len(replay)} minutes, replayed with the owners"))
    body += _replayed(_LEFT, f"of minute {first.number}, CPU in %", first, replay)
    body += _replayed(_RIGHT, f"of minute {after.number}, CPU in %", first, run.after_in(first))
    title = "CPU of ten brokers while one joins, and eight minutes replayed with the owners before and after the moves"
    return svg(488, title, body)


def _brokers(axes: Axes, minutes: Sequence[int], percent: FloatArray) -> Iterator[str]:
    """A line for each broker (k, n), the last one in its own colour."""
    for row in range(percent.shape[1] - 1):
        yield axes.line(minutes, percent[:, row].tolist(), "many", wide=1.2)
    yield axes.line(minutes, percent[:, -1].tolist(), "cold", wide=2.6)


def _counts(axes: Axes, run: TrimRun) -> Iterator[str]:
    """How many bundles moved, at the minutes in which they did."""
    for minute in run.acted:
        yield axes.bar(minute.number, minute.number + 0.8, len(minute.plan.moves), 0, "rare")
    counts = ", ".join(str(len(minute.plan.moves)) for minute in run.acted)
    yield axes.note(run.acted[-1].number + 1.3, 6, f"{counts} moves", "rare")


def _replayed(left: float, words: str, minute: Minute, replay: Replay) -> Iterator[str]:
    minutes = range(minute.number + 1 - len(replay), minute.number + 1)
    axes = Axes(left, 303, _HALF, 140, (minutes[0], minutes[-1]), (0, 80))
    yield from axes.frame(minutes[::2], _PERCENT, "minutes", words)
    yield from _brokers(axes, minutes, 100 * replay.usage[..., CPU])
    yield axes.line([minutes[0], minutes[-1]], [minute.level] * 2, "ink", dash="5 4")


def waited() -> str:
    """Another program comes and goes: the excess, how long it lasted, and how long it must last for a move."""
    run = played("noisy-neighbour")
    minutes = [*run.minutes.values()]
    away = np.array([minute.replay.away[-1][NEIGHBOUR_BROKER] for minute in minutes])
    lasted = np.array([minute.cycle.watch.lasted(minute.cycle.watch.since)[NEIGHBOUR_BROKER] for minute in minutes])
    needed = np.array([max(minute.cycle.watch.patience, LOUD) for minute in minutes])
    hot, xs = minutes[0].cycle.params.hot, range(0, len(minutes) + 1, 10)
    name = run.brokers[NEIGHBOUR_BROKER]
    top = Axes(_LEFT, 50, _WIDE, 140, (0, len(minutes)), (-10, 50))
    body = [*top.frame(xs, (0, 25, 50), "minutes", "percentage points", f"{name}: distance from its level")]
    body += [top.bar(x, x + 1, top.y[1], top.y[0], "band") for x in np.flatnonzero(lasted).tolist()]
    body += [top.line([0, len(minutes)], [hot] * 2, "ink", dash="5 4"), top.stairs(away, "warm", wide=2)]
    body.append(top.note(0.5, -8, f"dashed: a cause from {hot:g} points on"))
    most = 5 * int(np.ceil(max(needed.max(), lasted.max()) / 5))
    low = Axes(_LEFT, 282, _WIDE, 120, (0, len(minutes)), (0, most))
    body += low.frame(
        xs, range(0, most + 1, 5), "minutes", "minutes", "Minutes it has lasted (bars), and must last (line)"
    )
    body += [low.bar(x, x + 1, lasted[x], 0, "warm") for x in np.flatnonzero(lasted).tolist()]
    body.append(low.stairs(needed, "cold", wide=2))
    body += _changes(low, needed)
    title = f"{name} is far above its level for a few minutes, again and again, but never for as long as it must last"
    return svg(450, title, body)


def _changes(axes: Axes, needed: FloatArray) -> Iterator[str]:
    """The number of minutes that an excess must last, written wherever it changes."""
    steps = [0, *(np.flatnonzero(np.diff(needed)) + 1).tolist()]
    for x, end in pairwise([*steps, len(needed)]):
        words = f"{needed[x]:g} needed" if end - x >= 12 else f"{needed[x]:g}"  # noqa: PLR2004 - minutes as wide as it
        yield axes.note(x + 0.5, needed[x] + axes.y[1] / 25, words, "cold")


def work() -> str:
    """CPU against work: a line for each kind of machine, and one for a broker alongside another program."""
    run = played("mixed-costs")
    last = run.last
    model, cores = last.replay.model, last.cycle.cluster.brokers.limit[:, CPU]
    many, few = sorted({*cores.tolist()}, reverse=True)
    xs, ys = _work_and_cpu(run)
    foreign = np.zeros(xs.shape, dtype=bool)
    foreign[FOREIGN:, FOREIGN_BROKER] = True
    slopes = {kind: float(np.median(model.slope[cores == kind])) * _MEGA for kind in (many, few)}
    whole, part = Axes(_LEFT, 50, _WIDE, 180, (0, 900), (0, 15)), Axes(_LEFT, 320, _WIDE, 180, (0, 225), (0, 7))
    body = [*whole.frame(range(0, 801, 200), (0, 5, 10, 15), _WORK, "CPU, cores", "All machines")]
    body += part.frame(range(0, 201, 50), range(0, 7, 2), _WORK, "CPU, cores", f"The machines with {few:g} cores")
    for axes, kind, color in ((whole, many, "cold"), (whole, few, "warm"), (part, few, "warm")):
        of = (cores == kind) & ~foreign
        body += [axes.dots(xs[of], ys[of], color, pale=True), _straight(axes, slopes[kind], 0.0, color)]
    body += [axes.dots(xs[foreign], ys[foreign], "rare", size=5, pale=True) for axes in (whole, part)]
    body.append(whole.note(900, 5.6, f"{many:g} cores: {1000 * slopes[many]:.1f} cores per GB/s", "cold", anchor="end"))
    body.append(whole.note(420, 13.6, f"{few:g} cores: {1000 * slopes[few]:.1f} cores per GB/s", "warm", anchor="end"))
    slope, background = float(model.slope[FOREIGN_BROKER]) * _MEGA, float(model.background[-1, FOREIGN_BROKER])
    body.append(_straight(part, slope, background, "rare"))
    body.append(part.note(6, background - 0.65, f"{background:.1f} cores", "rare"))
    name = run.brokers[FOREIGN_BROKER]
    body.append(part.note(225, 1.5, f"{name} alongside another program", "rare", anchor="end"))
    body.append(part.note(225, 0.8, f"from minute {FOREIGN} on", "rare", anchor="end"))
    return svg(545, "CPU against work of nine brokers on two kinds of machines, with the lines that Trim learned", body)


def _work_and_cpu(run: TrimRun) -> tuple[FloatArray, FloatArray]:
    """Work, MB/s, and measured CPU, cores, of each broker in each minute (minutes, n)."""
    model, brokers = run.last.replay.model, [minute.cycle.cluster.brokers for minute in run.minutes.values()]
    carried = [model.work(sampled(each.traffic)) for each in brokers]
    return np.array(carried) / _MEGA, np.array([each.usage[:, CPU] for each in brokers])


def _straight(axes: Axes, slope: float, start: float, color: str) -> str:
    end = min(axes.x[1], (axes.y[1] - start) / slope)
    return axes.line([0, end], [start, start + slope * end], color, wide=1.4)


def taken() -> str:
    """Gain against price of each bundle before the first plan, and of each move in turn until none is worth it."""
    run = played("new-broker")
    first = run.acted[0]
    owner, price = first.cycle.cluster.bundles.owner, first.price
    gain = best_gain(first.balance(), owner)
    chosen = np.zeros(len(owner), dtype=bool)
    chosen[rows_of(first.plan.moves)] = True
    axes = Axes(_LEFT, 50, _WIDE, 190, (0.5, 4), (2, 2000), logarithmic=True)
    heading = f"Minute {first.number}: each bundle, if it moved to {run.brokers[-1]}"
    body = [*axes.frame(range(1, 5), _GAINS, "price (an average bundle costs 1)", _GAIN, heading)]
    body += [axes.dots(price[~chosen], gain[~chosen], "many", pale=True)]
    body += [axes.dots(price[chosen], gain[chosen], "good", size=8)]
    body.append(axes.note(4, 1250, f"taken: {chosen.sum()} of {len(owner)}", "good", anchor="end"))
    xs = np.linspace(0.5, 4, 40)
    body.append(axes.line(xs.tolist(), (first.least * xs).tolist(), "ink", dash="5 4"))
    body.append(axes.note(4, 4.5, "a move is worth its price above the dashed line", anchor="end"))
    body += _in_turn(run)
    return svg(560, "Gain against price of all bundles, and of each move that was made, until none was worth it", body)


def _in_turn(run: TrimRun) -> Iterator[str]:
    """Each move with its gain and its price, plan by plan, and the best one that was left."""
    steps = run.steps()
    axes = Axes(_LEFT, 330, _WIDE, 180, (0, len(steps) + 1.5), (2, 2000), logarithmic=True)
    yield from axes.frame((), _GAINS, "moves, in the order in which they were taken", _GAIN, "Each move in turn")
    for x, step in enumerate(steps):
        yield axes.bar(x + 0.1, x + 0.8, step.gain, axes.y[0], "good")
        yield axes.line([x, x + 0.9], [step.price] * 2, "ink", wide=2)
    for minute in run.acted:
        x = next(x for x, step in enumerate(steps) if step.minute == minute.number)
        yield axes.note(x + 0.1, steps[x].gain * 1.25, f"minute {minute.number}", "good")
    left, x = run.left_over, len(steps) + 0.5
    yield axes.bar(x + 0.1, x + 0.8, left.gain, axes.y[0], "many")
    yield axes.line([x, x + 0.9], [left.price] * 2, "ink", wide=2)
    yield axes.note(x + 0.9, 150, "the next: not worth it", "many", anchor="end")


PICTURES: Mapping[str, Callable[[], str]] = {
    "trim-moved": moved,
    "trim-waited": waited,
    "trim-work": work,
    "trim-taken": taken,
}
"""The pictures by name, with the functions that draw them."""
