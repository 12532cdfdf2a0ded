"""The board as a file: Grafana can lay it out, and its page says what each panel means."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from trimtab_operator.resources.policy_status import ProposalState
from trimtab_operator.status.metrics import ACTING
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_strategies.model import Reason

DOCS = Path(__file__).parents[2] / "docs"
BOARD = DOCS.parent / "charts" / "trimtab" / "files" / "board.json"
WIDE = 24

Panels = list[dict[str, Any]]


def test_the_list_of_runbooks_is_up_to_date() -> None:
    command = [sys.executable, str(DOCS / "tools" / "generate.py"), "--check", "runbooks/README"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stderr


def test_the_file_is_written_so_that_a_change_of_a_panel_is_a_small_diff(board: dict[str, Any]) -> None:
    assert BOARD.read_text() == json.dumps(board, indent=1, ensure_ascii=False) + "\n"


def test_every_panel_has_a_title_a_unit_and_says_what_it_shows(panels: Panels) -> None:
    titles = [panel["title"] for panel in panels]

    assert len(set(titles)) == len(titles)
    for panel in panels:
        assert panel["title"][0].isupper()
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]


def test_every_query_goes_to_the_data_source_that_was_chosen(panels: Panels) -> None:
    for panel in panels:
        assert {panel["datasource"]["uid"], *(t["datasource"]["uid"] for t in panel["targets"])} == {"${datasource}"}


def test_every_query_keeps_to_the_namespace_that_was_chosen(panels: Panels) -> None:
    for target in (target for panel in panels for target in panel["targets"]):
        assert 'namespace=~"$namespace' in target["expr"]


def test_one_namespace_is_shown_at_a_time(board: dict[str, Any]) -> None:
    """Policies of two namespaces may have the same name, and no query keeps them apart."""
    namespace = next(one for one in board["templating"]["list"] if one["name"] == "namespace")

    assert (namespace["multi"], namespace["includeAll"]) == (False, False)
    assert "current" not in namespace, "Grafana chooses the first one that there is"


def test_an_operator_for_several_namespaces_has_what_is_asked_for_a_namespace(board: dict[str, Any]) -> None:
    process = Metrics()
    alone = {metric.name for metric in process.described} - {
        metric.name for metric in process.of_namespace("a").described
    }
    alone -= {"trimtab_leader", "trimtab_leader_epoch"}  # these stand on the page for each namespace
    text = json.dumps(board)
    asked = {*re.findall(r"(\w+)\{namespace=~", text), *re.findall(r"label_values\((\w+)", text)}

    assert {re.sub("_(bucket|count|sum)$", "", name) for name in asked}.isdisjoint(alone)


def test_every_query_of_a_panel_has_a_letter_of_its_own_and_a_number_shows_one_moment(panels: Panels) -> None:
    for panel in panels:
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == list("ABCDEFGH"[: len(letters)]), panel["title"]
        assert {target["instant"] for target in panel["targets"]} == {panel["type"] in {"stat", "table"}}, panel[
            "title"
        ]


def test_states_that_have_a_colour_are_states_of_a_policy_or_a_proposal(panels: Panels) -> None:
    charts = [panel for panel in panels if panel["type"] != "table"]
    overrides = [override for panel in charts for override in panel["fieldConfig"]["overrides"]]
    coloured = {word for each in overrides for word in re.findall(r"\w+", each["matcher"]["options"])}

    assert overrides
    assert coloured <= {ACTING, *map(str, Reason), *map(str, ProposalState)}


def test_panels_lie_side_by_side(board: dict[str, Any], panels: Panels) -> None:
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDE, panel["title"]
    for one, other in itertools.combinations(board["panels"], 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (apart or above)


def test_numbers_of_panels_are_unique(board: dict[str, Any]) -> None:
    found = [panel["id"] for row in board["panels"] for panel in (row, *row.get("panels", ()))]

    assert len(set(found)) == len(found)


def test_rows_for_a_closer_look_are_closed(board: dict[str, Any]) -> None:
    opened = [row["title"] for row in board["panels"] if row["type"] == "row" and not row["collapsed"]]

    assert opened == ["Now", "Balance", "Moves"]


def test_each_column_of_a_table_comes_from_a_query_of_its_own(panels: Panels) -> None:
    tables = {panel["title"]: panel for panel in panels if panel["type"] == "table"}
    assert {*tables} == {"Brokers", "Moves that wait"}

    for title, panel in tables.items():
        renamed = panel["transformations"][-1]["options"]["renameByName"]
        letters = {f"Value #{target['refId']}" for target in panel["targets"]}
        assert {name for name in renamed if name.startswith("Value")} == letters, title


def test_the_top_row_answers_first(board: dict[str, Any]) -> None:
    first = [panel["title"] for panel in board["panels"] if panel["gridPos"]["y"] == 1]

    assert first[:3] == ["Is it balanced?", "Is it acting?", "Can its data be trusted?"]
