"""The words that people and their tools read (conditions, reasons, Events, columns, metrics) are the same everywhere.

What the code can say is taken from its registries and, where it has none, from its syntax.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest

from promql import known_metrics
from trimtab_operator.interference.controller import AS_DESIRED
from trimtab_operator.pulsar.bridge.unload_request import UnloadResult
from trimtab_operator.resources.conditions import ConditionReason, ConditionType
from trimtab_operator.resources.crd import KINDS, Kind
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_operator.state.ownership_changes import ChangeKind
from trimtab_operator.status.metrics import ACTING
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_strategies.model import Reason

ROOT = Path(__file__).parents[2]
DOCS, FILES = ROOT / "docs", ROOT / "charts" / "trimtab" / "files"
OPERATOR = ROOT / "operator" / "src"
SOURCES = [path for part in ("operator", "strategies", "pipeline") for path in (ROOT / part / "src").rglob("*.py")]
DATED = {"decisions", "data"}
"""Folders of pages and figures that stay as they were written."""

PAGES = sorted(
    page
    for page in {*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("charts/**/*.md"), *ROOT.glob("examples/**/*.md")}
    if page.name != "CHANGELOG.md" and not DATED & set(page.relative_to(ROOT).parts)
)
TEXTS = sorted({*PAGES, FILES / "alerts.yaml", FILES / "board.json", *ROOT.glob("examples/**/*.yaml")})

WORD = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)*")
Function = ast.FunctionDef | ast.AsyncFunctionDef
STATES = frozenset({"True", "False", "Unknown"})
CONDITIONS = tuple(chain.from_iterable(get_args(ConditionType)))
CONDITION_KINDS = {
    "PolicyCondition": "BalancingPolicy",
    "BrokerCondition": "Broker",
    "SplitCondition": "BundleSplit",
    "TopicNamespaceCondition": "TopicNamespace",
}


# -- what the code can say --


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """The calls of functions or methods of these names."""
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if getattr(called, "id", getattr(called, "attr", None)) in names and isinstance(node, ast.Call):
            yield node


def functions(tree: ast.Module | ast.ClassDef) -> Iterator[Function]:
    """Functions of a module and methods of its classes; what is defined inside one belongs to it."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node)


def texts(path: Path, node: ast.AST) -> set[str]:
    """The words that `node` is: itself, or by the name of a constant that the module at `path` knows."""
    if isinstance(node, ast.Subscript):
        return texts(path, node.value)
    found: object = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    if isinstance(node, ast.Name):
        module = ".".join(path.relative_to(OPERATOR).with_suffix("").parts).removesuffix(".__init__")
        found = getattr(importlib.import_module(module), node.id, None)
    return {word for word in (found if isinstance(found, tuple) else (found,)) if isinstance(word, str)}


def event_reasons() -> set[str]:
    """The reasons of Events that are written out in the code; all others are words of an enumeration."""
    others = {"Normal", "Warning", *(kind.kind for kind in KINDS)}
    found = set[str]()
    for path in OPERATOR.rglob("*.py"):
        for call in calls(syntax(path), "event", "_event", "post"):
            words = [n.value for a in call.args for n in ast.walk(a) if isinstance(n, ast.Constant)]
            found |= {word for word in words if isinstance(word, str) and WORD.fullmatch(word)}
            named = [n for a in call.args for n in ast.walk(a) if isinstance(n, ast.Attribute)]
            found |= {str(ConditionReason[n.attr]) for n in named if ast.unparse(n.value) == "ConditionReason"}
        for call in calls(syntax(path), "_give_up"):
            result = UnloadResult[getattr(call.args[1], "attr", "")]
            found |= {f"Unload{result}"} if str(result) not in set(Reason) else set()
    return found - others


@cache
def known_words() -> frozenset[str]:
    """Every word that the code has as a whole text of its own, or as the name of a class."""
    found = event_reasons()
    for path in SOURCES:
        tree = syntax(path)
        former = [
            node for node in tree.body if isinstance(node, ast.Assign) and "_FORMER" in ast.unparse(node.targets[0])
        ]
        old = {id(node) for assigned in former for node in ast.walk(assigned)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in old:
                found.add(node.value)
            elif isinstance(node, ast.ClassDef):
                found.add(node.name)
    return frozenset(found)


# -- the reference has it --


def section(title: str) -> str:
    """That section of the page of reasons."""
    return (DOCS / "reference" / "reasons.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def test_the_reference_has_every_condition_under_its_kind_and_no_other() -> None:
    listed = re.findall(r"^\| ([A-Z]\w+) \| `(\w+)` \| .+ \| .+ \|$", section("Conditions"), re.MULTILINE)

    assert len(listed) > 15
    assert listed == [(CONDITION_KINDS[type(t).__name__], str(t)) for t in CONDITIONS]


def test_the_reference_has_every_reason_of_a_condition_and_the_condition() -> None:
    rows = section("Reasons").split("### Only in conditions\n")[1]
    listed = re.findall(r"^\| `(\w+)` \| of `(\w+)`: .+ \|$", rows, re.MULTILINE)

    assert [reason for reason, _ in listed] == [str(reason) for reason in ConditionReason]
    assert {condition for _, condition in listed} <= {str(t) for t in CONDITIONS}


def test_the_reference_has_every_event_and_no_other() -> None:
    listed = set(re.findall(r"^\| [A-Z]\w+ \| `(\w+)` \|", section("Events"), re.MULTILINE))

    assert len(listed) > 10
    assert listed == event_reasons()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_the_reference_has_every_column(kind: Kind) -> None:
    page = (DOCS / "reference" / f"{kind.kind.lower()}.md").read_text()

    assert [c.name for c in kind.columns if f"| {c.name} | `{c.path}` |" not in page] == []


def test_the_reference_has_every_metric() -> None:
    page = (DOCS / "metrics.md").read_text()

    assert [metric.name for metric in Metrics().described if f"| `{metric.name}` |" not in page] == []


@pytest.mark.parametrize(
    ("metric", "panel", "words"),
    [
        ("trimtab_pulsar_unloads_total", "How unloads ended", [str(result) for result in UnloadResult]),
        (
            "trimtab_external_moves_total",
            "Changes by others",
            [kind.value for kind in ChangeKind if kind not in AS_DESIRED],
        ),
    ],
)
def test_metric_and_panel_name_every_value_of_the_label(metric: str, panel: str, words: list[str]) -> None:
    said = next(known.text for known in Metrics().described if known.name == metric)
    told = next(description for title, description in panels() if title == panel)

    assert [word for word in words if word not in said or word not in told] == []


def panels() -> Iterator[tuple[str, str]]:
    """Title and description of each panel of the board."""
    for row in json.loads((FILES / "board.json").read_text())["panels"]:
        for panel in [row, *row.get("panels", [])]:
            yield panel["title"], panel.get("description", "")


# -- what pages, board, alerts and examples say can be said --


def pages(*files: Path) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", files, ids=lambda page: str(page.relative_to(ROOT)))


@pages(*PAGES)
def test_every_word_in_code_on_a_page_exists(page: Path) -> None:
    """Also in tables: `OneWord` in backquotes is a word of the code."""
    others = {"ExternalName", "Host", "Params"}  # of Kubernetes, of HTTP, and the end of our classes' names
    told = {word for word in re.findall(r"`([^`\n]+)`", page.read_text()) if WORD.fullmatch(word)}

    assert told - known_words() - others == set()


def test_every_condition_and_event_that_a_command_asks_for_exists() -> None:
    conditions, events = {str(t) for t in CONDITIONS}, event_reasons() | set(Reason) | set(ProposalState)
    asked = {text: text.read_text() for text in TEXTS}
    types = {w: p for p, t in asked.items() for w in re.findall(r"""@\.type==["'](\w+)|--for=condition=(\w+)""", t)}
    reasons = {w: p for p, t in asked.items() for w in re.findall(r"\breason=([A-Z]\w+)", t)}

    assert len(types) > 3
    assert reasons
    assert {word: page for words, page in types.items() for word in words if word}.keys() - conditions == set()
    assert reasons.keys() - events == set()


def test_every_metric_that_is_named_exists() -> None:
    modules = re.compile(r"trimtab_(strategies|pipeline|operator|testbed|lab)\b")
    known = known_metrics().keys() | {metric.name for metric in Metrics().described}
    found = {
        f"{text.relative_to(ROOT)}: {name}"
        for text in TEXTS
        for name in re.findall(r"(?<![\w./-])trimtab_[a-z_]+[a-z](?![\w*/])", text.read_text())
        if name not in known and not modules.match(name)
    }

    assert found == set()


def test_every_word_with_a_color_on_the_board_exists() -> None:
    words = set(Reason) | set(ProposalState) | {ACTING}
    found = set[str]()
    for options in re.findall(r'"options": "/: \(([\w|]+)\)\$/"', (FILES / "board.json").read_text()):
        found |= set(options.split("|"))

    assert len(found) > 10
    assert found - words == set()


# -- what they were called before --


FORMER = re.compile(
    r"OneHand|TwoHands|\bContested|PutBack|CameBack|TrimtabContested|ONE_HAND|TWO_HANDS|\bCONTESTED|CAME_BACK"
    r"|one_hand|two_hands|trimtab_foreign|ChangeKind\.(?:FOREIGN|UNDONE|WISHED)|\bWISHED {2}"
    r"|(?<!\w)(?:Undone|Foreign|Wished)(?=[\"'`*|:,)]| \()"
)
READS_BOTH = (
    *("model/reason.py", "status/conditions.py"),
    *("test_model.py", "test_conditions.py", "test_decisions.py", "test_proposal_store.py", "test_public_words.py"),
)
"""What reads words that an older version stored, and its tests."""


def test_former_words_stand_nowhere() -> None:
    """But in what is dated, and in what reads both."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = dict[str, list[str]]()
    for name in filter(None, listed.split("\0")):
        parts = set(Path(name).parts)
        if DATED & parts or name.endswith(READS_BOTH):
            continue
        path = ROOT / name
        text = f"{name}\n{path.read_text(errors='ignore') if path.is_file() else ''}"
        if old := FORMER.findall(text):
            found[name] = old

    assert found == {}
