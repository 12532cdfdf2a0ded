"""The pods of the chart: where they run, what they may read, and how Prometheus finds them."""

from __future__ import annotations

from typing import Any

import pytest

from chart import Manifest, Runner, combinations, names, of_kind, one, operator_container

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
RESTORE = "trimtab-restore"


def pod_of(manifests: list[Manifest], kind: str = "Deployment", name: str = "trimtab") -> dict[str, Any]:
    return dict(one(manifests, kind, name)["spec"]["template"]["spec"])


@pytest.mark.parametrize("how", ["soft", "hard"])
def test_pods_of_an_upgrade_may_stand_beside_those_they_replace(offline: Runner, how: str) -> None:
    """Else, with as many replicas as nodes, the new pod never finds a node: the old ones end only after it is ready."""
    affinity = pod_of(offline.rendered({"antiAffinity": how}))["affinity"]["podAntiAffinity"]
    ((term,),) = affinity.values()
    assert term.get("podAffinityTerm", term)["matchLabelKeys"] == ["pod-template-hash"]


def test_a_pod_that_is_not_ready_does_not_block_a_drain(offline: Runner) -> None:
    assert one(offline.rendered(), "PodDisruptionBudget")["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_the_token_is_in_the_operators_container_alone(offline: Runner) -> None:
    manifests = offline.rendered({"spark": {"mode": "sidecar"}})
    pod = pod_of(manifests)
    assert pod["automountServiceAccountToken"] is False
    assert one(manifests, "ServiceAccount", "trimtab")["automountServiceAccountToken"] is False
    mounted = {c["name"]: [m["name"] for m in c["volumeMounts"] if m["mountPath"] == TOKEN] for c in pod["containers"]}
    assert mounted == {"operator": ["token"], "spark": []}
    (token,) = (volume["projected"]["sources"] for volume in pod["volumes"] if volume["name"] == "token")
    assert [next(iter(source)) for source in token] == ["serviceAccountToken", "configMap", "downwardAPI"]
    assert pod_of(manifests, "Job", "trimtab-test")["automountServiceAccountToken"] is False


def test_the_restore_runs_where_the_operator_does_with_what_it_has(offline: Runner) -> None:
    values = combinations()["everything"] | {"restore": combinations()["locked-down"]["restore"]}
    manifests = offline.rendered(values)
    operator, job = pod_of(manifests, name="trimtab-balancer"), one(manifests, "Job")
    restore = job["spec"]["template"]["spec"]
    for key in ("affinity", "nodeSelector", "tolerations", "dnsConfig", "dnsPolicy", "hostAliases", "runtimeClassName"):
        assert restore[key] == operator[key], key
    assert restore["priorityClassName"] == "system-cluster-critical"
    assert restore["imagePullSecrets"] == [{"name": "registry"}]
    theirs, ours = operator["containers"][0], restore["containers"][0]
    assert ours["env"] == theirs["env"]
    assert ours["envFrom"] == theirs["envFrom"]
    assert {"name": "ca", "mountPath": "/etc/ca"} in ours["volumeMounts"]
    assert {volume["name"] for volume in restore["volumes"]} == {"scratch", "ca"}
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert job["metadata"]["annotations"]["example.com/owner"] == "messaging"
    assert job["spec"]["template"]["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}


def test_listed_egress_is_open_for_the_hooks_too(offline: Runner) -> None:
    manifests = offline.rendered(combinations()["locked-down"])
    policy = one(manifests, "NetworkPolicy")["spec"]
    (rule,) = policy["podSelector"]["matchExpressions"]
    for kind, name in (("Deployment", "trimtab"), ("Job", RESTORE), ("Job", "trimtab-test")):
        labels = one(manifests, kind, name)["spec"]["template"]["metadata"]["labels"]
        assert labels.items() >= policy["podSelector"]["matchLabels"].items()
        assert labels[rule["key"]] in rule["values"]
    assert "trimtab-leave" in rule["values"], "its Job is rendered only in an upgrade of a release"
    assert policy["egress"] == combinations()["locked-down"]["networkPolicy"]["egress"]


def test_the_test_of_a_release_reaches_the_operator_whoever_else_may(offline: Runner) -> None:
    other = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    values = {"networkPolicy": {"enabled": True, "ingressFrom": [other]}}
    manifests = offline.rendered(values)
    labels = one(manifests, "Job", "trimtab-test")["spec"]["template"]["metadata"]["labels"]

    (rule,) = one(manifests, "NetworkPolicy")["spec"]["ingress"]

    prometheus, test = (peer["podSelector"]["matchLabels"] for peer in rule["from"])
    assert prometheus == other["podSelector"]["matchLabels"]
    assert labels.items() >= test.items()


def test_spark_beside_the_operator_has_its_environment(offline: Runner) -> None:
    more = {"name": "AWS_REGION", "value": "eu-west-1"}
    secret = {"secretRef": {"name": "bucket"}}
    values = {"spark": {"mode": "sidecar"}, "extraEnv": [more], "extraEnvFrom": [secret]}

    for container in pod_of(offline.rendered(values))["containers"]:
        assert more in container["env"], container["name"]
        assert container["envFrom"] == [secret], container["name"]


def test_times_of_probes_strategy_and_logs_are_values(offline: Runner) -> None:
    manifests = offline.rendered(combinations()["everything"])
    container = operator_container(manifests)
    assert container["startupProbe"]["failureThreshold"] == 300
    assert container["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert container["livenessProbe"]["periodSeconds"] == 30
    assert container["readinessProbe"]["initialDelaySeconds"] == 5
    assert {"--log-level=warning", "--log-format=json", "--verbose"} <= set(container["args"])
    assert one(manifests, "Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}


def test_annotations_are_on_all_objects_and_beside_their_own(offline: Runner) -> None:
    values = combinations()["everything"] | {"restore": {"enabled": True}, "crds": {"keep": True}, "extraObjects": []}
    manifests = offline.rendered(values)
    found = {(m["kind"], m["metadata"]["name"]): m["metadata"].get("annotations", {}) for m in manifests}
    assert [key for key, annotations in found.items() if annotations.get("example.com/owner") != "messaging"] == []
    assert found["Deployment", "trimtab-balancer"]["example.com/reload"] == "true"
    assert found["Service", "trimtab-balancer"]["prometheus.io/scrape"] == "true"
    assert found["CustomResourceDefinition", "bundles.trimtab.dev"]["helm.sh/resource-policy"] == "keep"


def test_prometheus_scrapes_as_it_was_told(offline: Runner) -> None:
    monitor = one(offline.rendered(combinations()["monitored"]), "ServiceMonitor")
    assert monitor["metadata"]["namespace"] == "monitoring"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["messaging"]}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("30s", "10s")
    assert endpoint["relabelings"] == [{"targetLabel": "cluster", "replacement": "blue"}]
    assert [rule["action"] for rule in endpoint["metricRelabelings"]] == ["drop"]


def test_prometheus_scrapes_pods_without_a_service(offline: Runner) -> None:
    manifests = offline.rendered(combinations()["monitored-pods"])
    assert not of_kind(manifests, "Service")
    assert "trimtab-test" not in names(manifests, "Job"), "it asks the Service"
    (endpoint,) = one(manifests, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in operator_container(manifests)["ports"]}
