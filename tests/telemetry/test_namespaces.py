"""Metrics of an operator that manages several namespaces."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from trimtab_operator.app import OperatorOptions
from trimtab_operator.telemetry.metrics import Metrics


def samples(metrics: Metrics, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    families = list(text_string_to_metric_families(metrics.text().decode()))
    assert len({family.name for family in families}) == len(families), "a family stands twice"
    found = (sample for family in families for sample in family.samples if sample.name == name)
    return {tuple(sorted(sample.labels.items())): sample.value for sample in found}


def test_policies_of_the_same_name_are_apart_by_namespace() -> None:
    process = Metrics()
    process.of_namespace("a").hits.labels("main", "high").set(1)
    process.of_namespace("b").hits.labels("main", "high").set(2)

    assert samples(process, "trimtab_hit_count") == {
        (("kind", "high"), ("namespace", "a"), ("policy", "main")): 1.0,
        (("kind", "high"), ("namespace", "b"), ("policy", "main")): 2.0,
    }


def test_the_leader_leads_in_each_namespace_and_the_process_is_counted_once() -> None:
    process = Metrics()
    first, _ = process.of_namespace("a"), process.of_namespace("b")
    process.leader.set(1)
    first.observe_request("get", "200", 0.1)

    assert samples(process, "trimtab_leader") == {(("namespace", "a"),): 1.0, (("namespace", "b"),): 1.0}
    (labels,) = samples(process, "trimtab_api_request_seconds_count")
    assert labels == (("code", "200"), ("verb", "get"))
    assert len(samples(process, "trimtab_build_info")) == 1
    assert len(samples(process, "process_open_fds")) == 1


def test_a_namespace_that_is_left_has_no_more_samples() -> None:
    process = Metrics()
    process.of_namespace("a").in_flight.labels("main").set(3)
    process.of_namespace("b")
    process.forget_namespace("a")

    assert samples(process, "trimtab_moves_in_flight") == {}
    assert samples(process, "trimtab_store_objects") == {}


def test_one_namespace_alone_has_no_label() -> None:
    metrics = Metrics()
    metrics.in_flight.labels("main").set(3)
    assert samples(metrics, "trimtab_moves_in_flight") == {(("policy", "main"),): 3.0}


@pytest.mark.parametrize("managed", [("other",), ("own", "other"), ()])
def test_samples_have_a_label_unless_all_are_of_the_operators_own_namespace(managed: tuple[str, ...]) -> None:
    assert OperatorOptions(managed).others_than("own")
    assert not OperatorOptions(("own",)).others_than("own")
