"""The CRDs teach, show and select as people expect of them; on a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manifests import broker, bundle, bundle_split, policy, topic_namespace
from trimtab_operator.resources.policy import BalancingPolicySpec
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver


def create(plane: ControlPlane, namespace: str, *manifests: dict[str, Any]) -> None:
    everything = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    plane.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(everything))


def spec(plane: ControlPlane, namespace: str, kind: str, name: str) -> dict[str, Any]:
    found = json.loads(plane.kubectl("get", kind, name, "-n", namespace, "-o", "json"))
    return dict(found["spec"])


def test_defaults_of_the_crd_are_those_of_the_model(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    create(trimtab_crds, kube_namespace, policy())
    stored = spec(trimtab_crds, kube_namespace, "bpol", "main")
    assert stored["mode"] == "DryRun"
    assert stored["limits"]["coolDown"] == "30m"
    given = BalancingPolicySpec.model_validate(policy()["spec"])
    expected = given.model_dump(mode="json", by_alias=True, exclude_none=True)
    prometheus = expected["source"]["prometheus"]
    assert (prometheus.pop("matchers"), prometheus.pop("parameters")) == ({}, {})  # an empty map is not stored
    assert stored == expected


def test_a_minimal_object_of_each_kind_is_accepted(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    create(trimtab_crds, kube_namespace, topic_namespace(), bundle(), broker(), bundle_split(), policy())
    assert spec(trimtab_crds, kube_namespace, "tns", "public-default")["bundles"] == 4
    assert spec(trimtab_crds, kube_namespace, "bdl", "b")["owner"] == ""
    assert spec(trimtab_crds, kube_namespace, "bkr", "broker-0")["schedulable"] is True
    assert spec(trimtab_crds, kube_namespace, "bspl", "split")["boundaries"] == ["0x20000000"]


def test_the_category_lists_all_kinds(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    create(trimtab_crds, kube_namespace, topic_namespace(), bundle(), broker(), bundle_split(), policy())
    names = trimtab_crds.kubectl("get", "trimtab", "-n", kube_namespace, "-o", "name").split()
    assert sorted(name.partition(".")[0] for name in names) == [
        "balancingpolicy",
        "broker",
        "bundle",
        "bundlesplit",
        "topicnamespace",
    ]


def test_bundles_show_desired_owner_owner_state_and_reason(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    assignment = {"owner": "x", "reason": "Overloaded", "time": "2026-01-31T12:00:00Z"}
    create(trimtab_crds, kube_namespace, bundle(owner="x", assignment=assignment))
    trimtab_crds.kubectl(
        *("patch", "bdl", "b", "-n", kube_namespace, "--subresource=status", "--type=merge"),
        '--patch={"status":{"owner":"y","state":"Releasing"}}',
    )
    header, row = trimtab_crds.kubectl("get", "bdl", "-n", kube_namespace).splitlines()
    assert header.split() == ["NAME", "DESIRED", "OWNER", "STATE", "SINCE", "REASON", "AGE"]
    assert row.split()[:4] == ["b", "x", "y", "Releasing"]
    assert "Overloaded" in row


def test_bundles_are_selected_by_desired_owner_and_by_owner(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    create(trimtab_crds, kube_namespace, bundle("a", owner="x"), bundle("b", owner="y"), bundle("c"))

    def selected(selector: str) -> list[str]:
        found = trimtab_crds.kubectl("get", "bdl", "-n", kube_namespace, f"--field-selector={selector}", "-o", "name")
        return [line.partition("/")[2] for line in found.split()]

    assert selected("spec.owner=x") == ["a"]
    assert selected("spec.owner=") == ["c"]
    assert selected("status.owner=x") == []


def test_writing_the_status_leaves_the_desired_owner_alone(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    create(trimtab_crds, kube_namespace, bundle(owner="x"))
    trimtab_crds.kubectl(
        *("patch", "bdl", "b", "-n", kube_namespace, "--subresource=status", "--type=merge"),
        '--patch={"spec":{"owner":"z"},"status":{"owner":"x","state":"Owned"}}',
    )
    found = json.loads(trimtab_crds.kubectl("get", "bdl", "b", "-n", kube_namespace, "-o", "json"))
    assert (found["spec"]["owner"], found["metadata"]["generation"]) == ("x", 1)
    assert found["status"]["owner"] == "x"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("bundle.spec.owner", "Change it to move the bundle"),
        ("balancingpolicy.spec.mode", "`DryRun`: show the planned moves"),
        ("balancingpolicy.spec.shedder", "Which bundles leave which brokers"),
        ("balancingpolicy.spec.shedder.thresholdShedder.threshold", "Percentage points above the average"),
        ("broker.spec.schedulable", "Whether the broker may receive bundles"),
    ],
)
def test_kubectl_explain_teaches(path: str, words: str, trimtab_crds: ControlPlane) -> None:
    text = " ".join(trimtab_crds.kubectl("explain", path).split())
    assert words in text


def test_every_field_has_a_description(trimtab_crds: ControlPlane) -> None:
    found = json.loads(trimtab_crds.kubectl("get", "crds", "-o", "json"))["items"]
    ours = [crd for crd in found if crd["spec"]["group"] == "trimtab.dev"]
    assert len(ours) == 5
    silent = [
        path
        for crd in ours
        for path in _without_description(
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], crd["metadata"]["name"]
        )
    ]
    assert silent == []


def _without_description(schema: dict[str, Any], at: str) -> list[str]:
    here = [] if schema.get("description") else [at]
    below = [
        path
        for name, field in schema.get("properties", {}).items()
        for path in _without_description(field, f"{at}.{name}")
    ]
    return here + below
