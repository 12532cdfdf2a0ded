"""Every query of the board and of the alerts is asked of a real Prometheus that has scraped a running operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asked_board import NEEDS_PULSAR, NEEDS_TIME, Asked
from promql import OTHERS, grouping, known_metrics, selectors
from small_cluster import API, NAMESPACE, POLICY, SmallCluster, until
from trimtab_operator.proposals.states import BECAME
from trimtab_operator.pulsar.bridge.unload_request import UnloadResult
from trimtab_operator.state.ownership_changes import ChangeKind
from trimtab_operator.status.metrics import ACTING, TRUSTED
from trimtab_strategies.model import RESOURCES, Reason
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.prometheus import Target
from trimtab_testbed.simulated.scenarios import LEARNING_POLICY, SCENARIOS

DEMO = SCENARIOS["skewed-96"]

PATIENCE = 200.0
"""Seconds for each step of the scenario; on a machine left alone it takes a few."""

WORDS = {
    "state": {ACTING, *map(str, Reason)},
    "data": {TRUSTED, *map(str, Reason)},
    "result": {"Written", *map(str, Reason), *map(str, UnloadResult)},
    "event": set(BECAME.values()),
    "kind": {kind.value for kind in ChangeKind},
    "resource": {*RESOURCES, "memory"},
}
"""What the values of some labels can be."""


@pytest.fixture(scope="module")
def board_queries(panels: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(panel["title"], target) for panel in panels for target in panel["targets"]]


def queries(panels: list[dict[str, Any]], rules: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Title or alert, and PromQL."""
    yield from ((panel["title"], target["expr"]) for panel in panels for target in panel["targets"])
    yield from ((name, rule["expr"]) for name, rule in rules.items())


def test_every_metric_and_label_that_is_named_exists(
    panels: list[dict[str, Any]], rules: dict[str, dict[str, Any]], board: dict[str, Any]
) -> None:
    known, asked = known_metrics(), list(queries(panels, rules))
    asked += [("takeovers", note["expr"]) for note in board["annotations"]["list"]]
    for where, query in asked:
        found = list(selectors(query))
        assert found or query == "vector(0)", where
        for selector in found:
            assert selector.metric in known, f"{where}: {selector.text}"
            assert {label for label, _, _ in selector.matchers} <= known[selector.metric], f"{where}: {selector.text}"
        assert grouping(query) <= frozenset().union(*(known[selector.metric] for selector in found)), where


def test_every_word_that_a_query_waits_for_can_be_said(
    panels: list[dict[str, Any]], rules: dict[str, dict[str, Any]]
) -> None:
    for where, query in queries(panels, rules):
        for selector in selectors(query):
            for label, operator, value in selector.matchers:
                words = set(value.split("|")) if operator in {"=~", "!~"} else {value}
                if label in WORDS and selector.metric not in OTHERS:
                    assert words <= WORDS[label], f"{where}: {selector.text}"


def test_every_legend_names_labels_that_the_query_keeps(board_queries: list[tuple[str, dict[str, Any]]]) -> None:
    for title, target in board_queries:
        legend = {word.split("}}")[0] for word in target["legendFormat"].split("{{")[1:]}
        assert legend <= grouping(target["expr"]), f"{title}: {target['legendFormat']}"


def test_the_board_speaks_of_every_metric_but_a_few(panels: list[dict[str, Any]]) -> None:
    """A new metric has a place on the board, or is named here."""
    elsewhere = {  # only in a closer look
        *("trimtab_build_info", "trimtab_cpu_range_ratio", "trimtab_cycle_interval_seconds", "trimtab_store_objects"),
        "trimtab_brokers_wanted",
        *("process_max_fds", "process_open_fds", "process_start_time_seconds", "process_virtual_memory_bytes"),
    }
    shown = {s.metric for panel in panels for target in panel["targets"] for s in selectors(target["expr"])}
    whole = {name for name in known_metrics().keys() - OTHERS.keys() if not name.endswith(("_sum", "_count"))}

    unseen = {name for name in whole - shown if name.removesuffix("_bucket") + "_count" not in shown}
    assert unseen - elsewhere == set()
    assert elsewhere & shown == set()


# -- asked of a real Prometheus --


@pytest.fixture(scope="module")
def asked(
    kube_binaries: KubeBinaries, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    """The demo, played by a person who approves first, and then tries other shedders."""
    folder = tmp_path_factory.mktemp("observed")
    with SmallCluster(kube_binaries, prometheus_binary, folder, DEMO) as stage:
        address = stage.operator.url.removeprefix("http://")
        scraped = Target(address, {"namespace": NAMESPACE, "pod": "trimtab-0", "job": "trimtab"})
        stage.prometheus.set_targets([*stage.world.targets, scraped])
        begin = time.time()
        run_policy(stage)
        yield Asked(stage.prometheus.url, begin, time.time())


def run_policy(stage: SmallCluster) -> None:
    """What the board can show without a Pulsar."""
    stage.apply_policy(mode="Approve", limits={"moveTimeout": "60s"})
    stage.wait_condition("ProposalReady", "True", within=PATIENCE)
    stage.rest.patch(
        f"{API}/balancingpolicies/{POLICY}", {"metadata": {"annotations": {"trimtab.dev/rebalance": "approve"}}}
    )
    until("what was approved has landed", lambda: stage.status().get("progress", {}).get("finishedAt"), within=PATIENCE)
    until(
        "it is known how far the prediction was off",
        lambda: counted(stage, "trimtab_prediction_error_ratio_count") > 0,
        within=PATIENCE,
    )

    stage.edit_policy(mode="Auto", shedder={"type": "AvgShedder", "thresholdShedder": None})
    stage.wait_cycles(2)
    stage.edit_policy(
        shedder={"type": "Trim", "avgShedder": None}, placement={"type": "Trim", "leastResourceUsageWithWeight": None}
    )
    stage.wait_cycles(2)
    stage.edit_policy(shedder={"trim": None, **LEARNING_POLICY["shedder"]}, placement=LEARNING_POLICY["placement"])
    stage.wait_cycles(2)
    hot = stage.world.brokers[0]
    stage.world.mute_metrics(hot)
    stage.wait_condition("DataTrusted", "False", within=PATIENCE)
    stage.world.unmute_metrics(hot)
    split(stage)
    stage.wait_condition("DataTrusted", "True", within=PATIENCE)
    stage.wait_cycles(2)
    time.sleep(2)  # two scrapes


def split(stage: SmallCluster) -> None:
    name = "fleet-telemetry-0x00000000-0x08000000"
    spec = {"bundle": name, "boundaries": ["0x04000000"]}
    body = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BundleSplit", "metadata": {"name": "halve"}, "spec": spec}
    stage.rest.create(f"{API}/bundlesplits", body)
    until("the bundle is divided", lambda: counted(stage, "trimtab_splits_total") > 0, within=PATIENCE)


def counted(stage: SmallCluster, metric: str) -> float:
    """The sum of a counter on the operator's page."""
    lines = stage.operator.page("metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{metric}{{", f"{metric} ")))


LIVE = [
    *(pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.long),
    pytest.mark.timeout(1200),  # the first test waits for the whole scenario
]


class TestAsked:
    """With everything running."""

    pytestmark = LIVE

    def test_every_panel_shows_what_the_demo_makes(
        self, asked: Asked, board_queries: list[tuple[str, dict[str, Any]]]
    ) -> None:
        empty = {title for title, target in board_queries if not asked.shown(target)}

        assert empty == {*NEEDS_PULSAR, *NEEDS_TIME}

    def test_every_alert_asks_for_what_is_there(self, asked: Asked, rules: dict[str, dict[str, Any]]) -> None:
        for name, rule in rules.items():
            asked.series(rule["expr"])  # it is understood
            for selector in selectors(rule["expr"]):
                if selector.metric in OTHERS or selector.metric.startswith("trimtab_pulsar_unloads"):
                    continue
                kept = [f'{label}{how}"{value}"' for label, how, value in selector.matchers if label != "state"]
                assert asked.series(f"{selector.metric}{{{','.join(kept)}}}"), f"{name}: {selector.text}"

    def test_no_alert_fires_in_a_cluster_that_is_fine(self, asked: Asked, rules: dict[str, dict[str, Any]]) -> None:
        now = Asked(asked.url, asked.end, asked.end)
        firing = {name for name, rule in rules.items() if now.series(rule["expr"])}

        assert firing <= {"TrimtabStalls"}, "that one says that others use this machine"

    def test_the_variables_offer_what_there_is(self, asked: Asked, board: dict[str, Any]) -> None:
        offered = dict[str, set[str]]()
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = (
                    variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
                )
                offered[variable["name"]] = {one["metric"][label] for one in asked.series(metric)}

        assert offered == {"namespace": {NAMESPACE}, "policy": {POLICY}}

    def test_moves_are_marked_on_every_chart(self, asked: Asked, board: dict[str, Any]) -> None:
        notes = {note["name"]: note["expr"] for note in board["annotations"]["list"]}

        assert {one["metric"]["policy"] for one in asked.series(notes["Moves"])} == {POLICY}

    def test_documented_metrics_are_those_on_the_page(self, asked: Asked) -> None:
        """Also those of the process, which only some systems have."""
        stored = {one["metric"]["__name__"] for one in asked.stored('{job="trimtab"}')}
        unlabelled = {
            name
            for name, labels in known_metrics().items()
            if name not in OTHERS and not labels - {*OTHERS["ALERTS"], "le"}
        }
        foreign = {name for name in stored if not name.startswith(("trimtab_", "process_", "up", "scrape_"))}

        assert foreign == set()
        assert {name for name in unlabelled if not name.endswith("_created")} <= stored
