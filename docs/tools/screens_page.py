"""Pictures of terminals: the end of the demo, and what verbs print about the demo's cluster.

The verbs print decisions that the operator's code makes for this cluster. The pictures do not depend on the machine,
the terminal or the day.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import islice
from typing import Any

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text
from screens_scene import LANDED_AFTER, NOW, Scene, served, usage

from trimtab_operator.cli.commands.plan_table import print_tables
from trimtab_operator.cli.commands.status_table import as_data, print_one
from trimtab_operator.cli.tables import console
from trimtab_operator.cli.why.answers import Answer, Facts
from trimtab_operator.cli.why.broker import BrokerExplanation
from trimtab_operator.cli.why.bundle import BundleExplanation
from trimtab_operator.kube.naming import bundle_name, parse_pulsar_bundle
from trimtab_operator.resources.policy import Mode
from trimtab_strategies.model import Move
from trimtab_testbed.demo.cluster import NAMESPACE, POLICY
from trimtab_testbed.demo.snapshot import BrokerRow, DemoSnapshot, SeenMove
from trimtab_testbed.demo.summary import Result, as_lines
from trimtab_testbed.demo.view import broker_table, move_table
from trimtab_testbed.simulated.scenarios import SCENARIOS, ClusterScenario

WIDTH, WIDE = 104, 122
"""Characters of a line, and of a line in pictures with wide tables."""

_LINES = 60  # of a terminal
_FONTS = re.compile(r"<!--.*?-->\s*|@font-face .*?\n    \}\}\s*", re.DOTALL)
_FORMAT = _FONTS.sub("", CONSOLE_SVG_FORMAT).replace('2000/svg">', '2000/svg" role="img">\n<title>TITLE</title>', 1)
"""Rich's own picture of a terminal, with a title for screen readers and without fonts of another host."""


def _prompt(screen: Console, command: str) -> None:
    screen.print(Text.assemble(("$ ", "dim"), (command, "bold")))


def _demo(screen: Console) -> None:
    """The table at the end of the demo, and the part of its summary that is the same on every machine."""
    scene = _scene(Mode.AUTO)
    end = {move.bundle: move.destination for move in scene.moves}
    _, owners = scene.scenario.stage()
    moves = tuple(_landed(move) for move in scene.moves)
    start, last = _look(scene.scenario, owners, ()), _look(scene.scenario, {**owners, **end}, moves)
    _prompt(screen, "make demo")
    for part in (broker_table(last, WIDTH), move_table(last)):
        screen.print(part)
    lines = as_lines(Result(scene.scenario.name, settled=True, seconds=0.0, start=start, end=last, missing=""))
    screen.print(Text("\n".join(islice(lines, 1, 5))))


def _landed(move: Move) -> SeenMove:
    name = bundle_name(*parse_pulsar_bundle(move.bundle))
    return SeenMove(name, move.source, move.destination, str(move.reason), 0.0, landed=True)


def _look(played: ClusterScenario, owners: Mapping[str, str], moves: tuple[SeenMove, ...]) -> DemoSnapshot:
    brokers = [served(played, broker.shape, owners) for broker in played.brokers]
    rows = tuple(BrokerRow(broker.shape.name, *usage(broker), len(broker.serving)) for broker in brokers)
    return DemoSnapshot(0.0, rows, moves, (), 0, "")


def _status(screen: Console) -> None:
    """The status of a proposal that waits."""
    policy = _scene(Mode.APPROVE).policy()
    _prompt(screen, f"trimtab status {POLICY} -n {NAMESPACE}")
    _print(screen, lambda: print_one(as_data(policy), "always"))


def _plan(screen: Console) -> None:
    scene = _scene(Mode.APPROVE)
    _prompt(screen, f"trimtab plan {POLICY} -n {NAMESPACE}")
    _print(screen, lambda: print_tables(console("always"), POLICY, scene.foreseen))


def _explain(screen: Console) -> None:
    """Why a bundle moved."""
    scene = _scene(Mode.AUTO)
    move = scene.record.moves[0]
    _prompt(screen, f"trimtab explain bundle {move.name} -n {NAMESPACE}")
    _answer(screen, BundleExplanation(move.name, move.destination, _facts(scene), [scene.record]).explain())


def _why_not(screen: Console) -> None:
    """Why a broker got nothing though it had room."""
    scene = _scene(Mode.AUTO)
    given = {move.destination for move in scene.record.moves} | {move.source for move in scene.record.moves}
    name = next(view.name for view in scene.record.brokers if view.name not in given)
    _prompt(screen, f"trimtab why-not {name} -n {NAMESPACE}")
    _answer(screen, BrokerExplanation(name, _facts(scene), [scene.record]).why_not(""))


@cache
def _scene(mode: Mode) -> Scene:
    return Scene(SCENARIOS["skewed-96"], mode)


def _facts(scene: Scene) -> Facts:
    cool_down = scene.settings.limits.cool_down
    return Facts(NOW + LANDED_AFTER, NAMESPACE, POLICY, cool_down=cool_down, last=(NOW, str(scene.result.outcome)))


def _answer(screen: Console, answer: Answer | None) -> None:
    assert answer is not None
    screen.print(Text(answer.text()))


def _print(screen: Console, work: Callable[[], Any]) -> None:
    """Show what `work` prints on a terminal that is as wide as `screen`."""
    os.environ.update(COLUMNS=str(screen.width), LINES=str(_LINES))  # a dumb terminal would have 80 columns
    out = io.StringIO()
    with redirect_stdout(out):
        work()
    screen.print(Text.from_ansi(out.getvalue()))


@dataclass(frozen=True, slots=True)
class Screen:
    """One picture. width: characters of a line."""

    title: str
    show: Callable[[Console], None]
    width: int = WIDTH


SCREENS: Mapping[str, Screen] = {
    "demo": Screen("The end of make demo: six brokers are level, and every move has a reason", _demo),
    "status": Screen("trimtab status: a proposal waits, with its moves and what they cost", _status, WIDE),
    "plan": Screen("trimtab plan: what the next cycle would do, broker by broker and move by move", _plan),
    "explain": Screen("trimtab explain: why a bundle moved, and how to change that", _explain, WIDE),
    "why-not": Screen("trimtab why-not: why a broker got no bundles", _why_not),
}
"""The pictures in docs/images, by name."""


def drawing(name: str) -> str:
    """The text of the SVG file of a picture."""
    screen = SCREENS[name]
    paper = Console(
        record=True,
        width=screen.width,
        height=_LINES,
        file=io.StringIO(),
        force_terminal=True,
        legacy_windows=False,
        color_system="truecolor",
        no_color=False,
    )
    screen.show(paper)
    svg = paper.export_svg(title=screen.title, theme=SVG_EXPORT_THEME, code_format=_FORMAT, unique_id=name)
    lines = svg.replace("TITLE", escape(screen.title)).splitlines()
    return "\n".join(line.strip() for line in lines if line.strip()) + "\n"
