"""Bad objects are refused by a real API server, with a message that names the field and what is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manifests import broker, bundle, bundle_split, policy, topic_namespace
from trimtab_testbed.servers.kube import ControlPlane, KubectlError

pytestmark = pytest.mark.apiserver

_ENTRY = {"secretKeyRef": {"name": "prometheus", "key": "token"}}


def _asking(**auth: Any) -> dict[str, Any]:
    return {"prometheus": {"url": "http://prometheus:9090", "auth": auth}}


REFUSED = {
    "range upside down": (
        bundle(lower="0x40000000", upper="0x20000000"),
        ["spec.range", "range.lower 0x40000000 must be below range.upper 0x20000000"],
    ),
    "empty range": (bundle(lower="0x40000000", upper="0x40000000"), ["spec.range", "must be below"]),
    "range not in Pulsar's spelling": (bundle(upper="0X4"), ["spec.range.upper", "^0x[0-9a-f]{8}$"]),
    "no topic namespace": (bundle(topicNamespace=""), ["spec.topicNamespace", "at least 1"]),
    "unknown key of a strategy": (
        policy(shedder={"type": "ThresholdShedder", "thresholdShedder": {"treshold": 10}}),
        ['unknown field "spec.shedder.thresholdShedder.treshold"'],
    ),
    "an actuator, which follows from pulsar": (policy(actuator="Pulsar"), ['unknown field "spec.actuator"']),
    "threshold 250": (
        policy(shedder={"type": "ThresholdShedder", "thresholdShedder": {"threshold": 250}}),
        ["spec.shedder.thresholdShedder.threshold", "less than or equal to 100"],
    ),
    "threshold 0": (
        policy(shedder={"type": "ThresholdShedder", "thresholdShedder": {"threshold": 0}}),
        ["spec.shedder.thresholdShedder.threshold", "greater than 0"],
    ),
    "brokers looked at less often than decided about": (
        policy(interval="30s", brokerInterval="1m"),
        ["spec", "brokerInterval must not exceed interval"],
    ),
    "statistics without a Pulsar cluster": (
        policy(source={"prometheus": {"url": "http://prometheus:9090", "bundleMetrics": "Statistics"}}),
        ["spec", "bundleMetrics Statistics reads from Pulsar's brokers: it needs spec.pulsar"],
    ),
    "a budget without a limit": (
        topic_namespace(budget={}),
        ["spec.budget", "budget sets no limit: set one, or leave budget out"],
    ),
    "a budget of no connections": (
        policy(budget={"connectionsPercentPerHour": 0}),
        ["spec.budget.connectionsPercentPerHour", "greater than 0"],
    ),
    "a budget of a policy without a limit": (
        policy(budget={}),
        ["spec.budget", "budget sets no limit: set one, or leave budget out"],
    ),
    "a priority that there is not": (topic_namespace(priority="First"), ["spec.priority", '"Normal", "Last"']),
    "a label that is none": (
        policy(source={"prometheus": {"url": "http://prometheus:9090", "namespaceLabel": 'x"}'}}),
        ["spec.source.prometheus.namespaceLabel", "should match"],
    ),
    "a matcher of a label that is none": (
        policy(source={"prometheus": {"url": "http://prometheus:9090", "matchers": {"a-b": "x"}}}),
        ["spec.source.prometheus.matchers", "matchers name labels (letters, digits and _) other than __name__"],
    ),
    "a matcher that Trimtab sets": (
        policy(source={"prometheus": {"url": "http://prometheus:9090", "matchers": {"pod": "x"}}}),
        ["spec.source.prometheus.matchers", "is set by Trimtab: name another label"],
    ),
    "a parameter that Trimtab sets": (
        policy(source={"prometheus": {"url": "http://prometheus:9090", "parameters": {"query": "up"}}}),
        ["spec.source.prometheus.parameters", "other than query, time, timeout, start, end, step, partial_response"],
    ),
    "a parameter whose name is none": (
        policy(source={"prometheus": {"url": "http://prometheus:9090", "parameters": {"a b": "x"}}}),
        ["spec.source.prometheus.parameters", "parameters have names of letters, digits, _ . - and []"],
    ),
    "too many matchers": (
        policy(source={"prometheus": {"url": "http://x:9090", "matchers": {f"l{n}": "x" for n in range(17)}}}),
        ["spec.source.prometheus.matchers", "16"],
    ),
    "brokers looked at all the time": (
        policy(brokerInterval="4s"),
        ["spec.brokerInterval", "brokerInterval is at least 5s"],
    ),
    "a clock that may be wrong by an hour": (
        policy(source={"prometheus": {"url": "http://prometheus:9090", "trust": {"maxClockSkew": "1h"}}}),
        ["spec.source.prometheus.trust.maxClockSkew", "maxClockSkew must be 1s to 5m"],
    ),
    "a rate of one sample": (
        policy(source={"prometheus": {"url": "http://prometheus:9090", "trust": {"minSamples": 1}}}),
        ["spec.source.prometheus.trust.minSamples", "greater than or equal to 2"],
    ),
    "a throughput in another unit": (
        policy(shedder={"type": "ThresholdShedder", "thresholdShedder": {"minThroughput": "10MB"}}),
        ["spec.shedder.thresholdShedder.minThroughput", "should match"],
    ),
    "a throughput below 0": (
        policy(shedder={"type": "AvgShedder", "avgShedder": {"minThroughput": -1}}),
        ["spec.shedder.avgShedder.minThroughput", "greater than or equal to 0"],
    ),
    "a limit of no bytes": (
        policy(split={"type": "BundleSplitterTask", "bundleSplitterTask": {"maxThroughput": "0Mi"}}),
        ["spec.split.bundleSplitterTask.maxThroughput", "should match"],
    ),
    "two strategies": (
        policy(
            placement={
                "type": "LeastResourceUsageWithWeight",
                "leastResourceUsageWithWeight": {},
                "extensibleLeastResourceUsageWithWeight": {"historyPercent": 50},
            }
        ),
        [
            "spec.placement",
            "extensibleLeastResourceUsageWithWeight belongs to type ExtensibleLeastResourceUsageWithWeight",
            "but type is LeastResourceUsageWithWeight",
        ],
    ),
    "unknown strategy": (policy(shedder={"type": "CoinToss"}), ["spec.shedder.type", '"ThresholdShedder"']),
    "duration in words": (
        policy(interval="5 minutes"),
        ["spec.interval", "^([0-9]+(s|m|h))+$"],
    ),
    "mode that is none": (policy(mode="Maybe"), ["spec.mode", '"DryRun", "Approve", "Auto"']),
    "cap of no moves": (policy(limits={"maxMovesPerCycle": 0}), ["spec.limits.maxMovesPerCycle", "to 1"]),
    "share above 100 percent": (
        policy(limits={"minTrustedBrokersPercent": 101}),
        ["spec.limits.minTrustedBrokersPercent", "to 100"],
    ),
    "no URL": (policy(source={"prometheus": {"url": "prometheus:9090"}}), ["spec.source.prometheus.url", "^https?://"]),
    "password in a URL": (
        policy(source={"prometheus": {"url": "http://me:secret@prometheus:9090"}}),
        ["spec.source.prometheus.url", "[^\\s@"],
    ),
    "two ways to prove oneself": (
        policy(source=_asking(bearerToken=_ENTRY, basic={"username": _ENTRY, "password": _ENTRY})),
        ["spec.source.prometheus.auth", "bearerToken and basic exclude each other"],
    ),
    "certificate without a key": (
        policy(source=_asking(tls={"certificate": _ENTRY})),
        ["spec.source.prometheus.auth.tls", "certificate and key belong together"],
    ),
    "authority without a place": (
        policy(source=_asking(tls={"ca": {}})),
        ["spec.source.prometheus.auth.tls.ca", "a certificate authority comes from a Secret or from a ConfigMap"],
    ),
    "authority in two places": (
        policy(source=_asking(tls={"ca": {**_ENTRY, "configMapKeyRef": {"name": "authorities", "key": "ca.crt"}}})),
        ["spec.source.prometheus.auth.tls.ca", "a certificate authority comes from a Secret or from a ConfigMap"],
    ),
    "header without a value": (
        policy(source=_asking(headers=[{"name": "X-Scope-OrgID"}])),
        ["spec.source.prometheus.auth.headers[0]", "a header has value or secretKeyRef"],
    ),
    "broker that nothing stands for": (broker(schedulable=True), ["pod or address must be set"]),
    "address without a port": (broker(address="broker-0"), ["spec.address", ":[0-9]+$"]),
    "boundaries that descend": (
        bundle_split(boundaries=["0x30000000", "0x20000000"]),
        ["spec.boundaries", "boundaries must ascend"],
    ),
    "boundary twice": (
        bundle_split(boundaries=["0x20000000", "0x20000000"]),
        ["spec.boundaries[1]", "Duplicate value", "0x20000000"],
    ),
    "no boundary": (bundle_split(boundaries=[]), ["spec.boundaries", "at least 1"]),
    "positions and an algorithm that finds them": (
        bundle_split(algorithm="range_equally_divide"),
        ["spec", "name either boundaries, or an algorithm that finds them"],
    ),
    "one owner for two children": (
        bundle_split(destinations=["broker-0", "", ""]),
        ["spec", "destinations must name one broker for each child"],
    ),
    "algorithm that Pulsar does not have": (
        bundle_split(algorithm="in_half"),
        ["spec.algorithm", '"range_equally_divide", "topic_count_equally_divide", "specified_positions_divide"'],
    ),
    "unknown split rule": (policy(split={"type": "Mine"}), ["spec.split.type", '"BundleSplitterTask"']),
    "parameters of another split rule": (
        policy(split={"type": "BundleSplitterTask", "weightedSplitter": {"budget": 1}}),
        ["spec.split", "weightedSplitter belongs to type WeightedSplitter, but type is BundleSplitterTask"],
    ),
    "a split rule without bundles": (
        policy(split={"type": "WeightedSplitter", "weightedSplitter": {"maxBundles": 0}}),
        ["spec.split.weightedSplitter.maxBundles", "to 1"],
    ),
    "an owner that can be no broker's name": (bundle(owner="NOT A NAME"), ["spec.owner", "^([a-z0-9]"]),
    "an owner with a stray blank": (bundle(owner="broker-1 "), ["spec.owner", "^([a-z0-9]"]),
    "a child for what can be no broker's name": (
        bundle_split(destinations=["", "Broker_1"]),
        ["spec.destinations[1]", "^([a-z0-9]"],
    ),
    "no bundles": (topic_namespace(bundles=0), ["spec.bundles", "to 1"]),
    "isolation to no broker": (
        topic_namespace(isolation={"minAvailable": 2}),
        ["spec.isolation", "isolation names no broker: add a pattern to primary or secondary"],
    ),
    "isolation that contradicts itself": (
        topic_namespace(isolation={"primary": ["a", "broker-1"], "secondary": ["broker-1"]}),
        ["spec.isolation", "pattern broker-1 is primary and secondary: leave it in one of the two lists"],
    ),
    "isolation by an empty pattern": (
        topic_namespace(isolation={"primary": [""]}),
        ["spec.isolation.primary[0]", "at least 1 chars"],
    ),
    "isolation by more patterns than anybody reads": (
        topic_namespace(isolation={"primary": [f"broker-{i}" for i in range(65)]}),
        ["spec.isolation.primary", "at most 64"],
    ),
    "fewer than no brokers": (
        topic_namespace(isolation={"primary": ["a"], "minAvailable": -1}),
        ["spec.isolation.minAvailable", "to 0"],
    ),
    "unknown selection": (policy(selection={"type": "Mine"}), ["spec.selection.type", '"Extensible", "Modular"']),
    "parameters of another selection": (
        policy(selection={"type": "Modular", "extensible": {"maxTopics": 10}}),
        ["spec.selection", "extensible belongs to type Extensible, but type is Modular"],
    ),
    "no topic at all": (
        policy(selection={"type": "Modular", "modular": {"maxTopics": 0}}),
        ["spec.selection.modular.maxTopics", "to 1"],
    ),
    "tenant with a slash": (topic_namespace(tenant="a/b"), ["spec.tenant", "[-=:.A-Za-z0-9_]"]),
}

CHANGED = {
    "range of a bundle": (
        bundle(),
        {"range": {"lower": "0x00000000", "upper": "0x30000000"}},
        "range is immutable: split the bundle instead",
    ),
    "topic namespace of a bundle": (bundle(), {"topicNamespace": "other"}, "topicNamespace is immutable"),
    "boundaries of a split": (bundle_split(), {"boundaries": ["0x10000000"]}, "a BundleSplit is immutable"),
    "destinations of a split": (bundle_split(), {"destinations": ["a", "b"]}, "a BundleSplit is immutable"),
    "bundle of a split": (bundle_split(), {"bundle": "c"}, "a BundleSplit is immutable"),
    "pod of a broker": (broker(pod="p"), {"pod": "q"}, "pod and address are immutable: create another Broker"),
    "address of a broker": (broker(address="a:1"), {"address": "b:1"}, "pod and address are immutable"),
    "address of a broker that has a pod": (broker(pod="p"), {"address": "b:1"}, "pod and address are immutable"),
    "tenant of a topic namespace": (topic_namespace(), {"tenant": "other"}, "tenant and name are immutable"),
    "bundles of a topic namespace": (topic_namespace(), {"bundles": 8}, "bundles is immutable"),
}


def create(plane: ControlPlane, namespace: str, manifest: dict[str, Any]) -> None:
    plane.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(manifest))


@pytest.mark.parametrize("case", REFUSED)
def test_bad_objects_are_refused_with_field_and_bound(
    case: str, trimtab_crds: ControlPlane, kube_namespace: str
) -> None:
    manifest, parts = REFUSED[case]
    with pytest.raises(KubectlError) as refusal:
        create(trimtab_crds, kube_namespace, manifest)
    assert [part for part in parts if part not in str(refusal.value)] == [], str(refusal.value)


@pytest.mark.parametrize("case", CHANGED)
def test_immutable_fields_stay_as_they_are(case: str, trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    manifest, change, message = CHANGED[case]
    create(trimtab_crds, kube_namespace, manifest)
    kind, name = manifest["kind"].lower(), manifest["metadata"]["name"]
    patch = json.dumps({"spec": change})
    with pytest.raises(KubectlError) as refusal:
        trimtab_crds.kubectl("patch", kind, name, "-n", kube_namespace, "--type=merge", f"--patch={patch}")
    assert message in str(refusal.value)


def test_what_a_topic_namespace_asks_for_may_change(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    create(trimtab_crds, kube_namespace, topic_namespace())
    asked = {"isolation": {"primary": ["broker-[01]"]}, "antiAffinityGroup": "shop", "balanced": False}
    trimtab_crds.kubectl(
        *("patch", "tns", "public-default", "-n", kube_namespace, "--type=merge"),
        f"--patch={json.dumps({'spec': asked})}",
    )
    spec = json.loads(trimtab_crds.kubectl("get", "tns", "public-default", "-n", kube_namespace, "-o", "json"))["spec"]
    assert spec["isolation"] == {"primary": ["broker-[01]"], "secondary": [], "minAvailable": 1}
    assert (spec["antiAffinityGroup"], spec["balanced"]) == ("shop", False)


def test_an_owner_may_be_patched_any_time(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    create(trimtab_crds, kube_namespace, bundle())
    trimtab_crds.kubectl(
        *("patch", "bundle", "b", "-n", kube_namespace, "--type=merge"), '--patch={"spec":{"owner":"broker-1"}}'
    )
    shown = trimtab_crds.kubectl("get", "bundle", "b", "-n", kube_namespace, "-o", "jsonpath={.spec.owner}")
    assert shown == "broker-1"
