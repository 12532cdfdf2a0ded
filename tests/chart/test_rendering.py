"""What the chart renders for which values, and what it refuses."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart import CHART, HelmError, Manifest, Runner, combinations, documents, names, of_kind, one, operator_container
from trimtab_operator import __version__
from trimtab_operator.cli import main
from trimtab_operator.cli.parser import parser_for
from trimtab_operator.resources import crd, rbac

REPOSITORY = CHART.parents[1]
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
KUBERNETES = {"resources", "strategy", "dnsConfig"}
"""Values with fields of Kubernetes, which values.yaml does not list."""
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


@pytest.mark.parametrize("name", combinations())
def test_it_passes_the_linter(offline: Runner, name: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(combinations()[name]))
    assert "0 chart(s) failed" in offline.run("lint", "--strict", CHART, "--values", values)


def test_crds_are_those_of_the_program(offline: Runner) -> None:
    found = of_kind(offline.rendered(), "CustomResourceDefinition")
    assert {crd["metadata"]["name"]: crd["spec"] for crd in found} == {
        crd["metadata"]["name"]: crd["spec"] for crd in crd.manifests().values()
    }
    assert {crd["metadata"]["annotations"]["helm.sh/resource-policy"] for crd in found} == {"keep"}


def test_crds_can_be_left_to_others_or_go_with_the_release(offline: Runner) -> None:
    assert not of_kind(offline.rendered({"crds": {"enabled": False}}), "CustomResourceDefinition")
    going = of_kind(offline.rendered({"crds": {"keep": False}}), "CustomResourceDefinition")
    assert len(going) == 5
    assert not any("annotations" in crd["metadata"] for crd in going)


def test_what_is_copied_into_the_chart_is_up_to_date() -> None:
    assert main(["crds", "--check", str(CHART / "files" / "crds")]) == 0
    assert main(["rbac", "--watch-nodes", "--check", str(CHART / "files")]) == 0


def test_the_role_is_that_of_the_program_and_no_more(offline: Runner) -> None:
    manifests = offline.rendered()
    assert one(manifests, "Role", "trimtab")["rules"] == [right.rule() for right in rbac.PERMISSIONS]
    assert {role["metadata"]["name"] for role in of_kind(manifests, "ClusterRole")} == {
        "trimtab-messaging-view",
        "trimtab-messaging-edit",
        "trimtab-messaging-approve",
    }
    assert not of_kind(manifests, "ClusterRoleBinding")
    text = offline.template()
    assert all(why in text for right in rbac.PERMISSIONS for why in right.verbs.values())


@pytest.mark.parametrize("name", ["another", "42"])
def test_the_role_names_the_lease_that_the_operator_takes(offline: Runner, name: str) -> None:
    manifests = offline.rendered({"lease": {"name": name}})
    wanted = [right.rule() for right in rbac.permissions(lease=name)]
    assert one(manifests, "Role", "trimtab")["rules"] == wanted
    assert f"--lease-name={name}" in operator_container(manifests)["args"]


def test_nodes_are_watched_on_request_alone(offline: Runner) -> None:
    manifests = offline.rendered({"watchNodes": True})
    assert one(manifests, "ClusterRole", "trimtab-messaging-nodes")["rules"] == [rbac.NODES.rule()]
    binding = one(manifests, "ClusterRoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "trimtab", "namespace": "messaging"}]
    assert "--watch-nodes" in operator_container(manifests)["args"]


def test_roles_for_people_are_added_to_kubernetes_own_on_request_alone(offline: Runner) -> None:
    def aggregated(manifests: list[Manifest]) -> dict[str, set[str]]:
        return {
            role["metadata"]["name"]: {
                label.rpartition("-")[2] for label in role["metadata"]["labels"] if "/aggregate-to-" in label
            }
            for role in of_kind(manifests, "ClusterRole")
        }

    assert set(map(frozenset, aggregated(offline.rendered()).values())) == {frozenset()}
    assert aggregated(offline.rendered({"rbac": {"aggregate": True}})) == {
        "trimtab-messaging-view": {"view", "edit", "admin"},
        "trimtab-messaging-edit": {"edit", "admin"},
        "trimtab-messaging-approve": {"admin"},
    }


@pytest.mark.parametrize("name", combinations())
def test_the_program_understands_its_arguments(offline: Runner, name: str) -> None:
    manifests = offline.rendered(combinations()[name])
    container = operator_container(manifests)
    assert container["command"] == ["trimtab"]
    understood = parser_for(container["args"]).parse_args(container["args"])
    watched = {"several-namespaces": ["orders", "payments"], "all-namespaces": None}.get(name, ["messaging"])
    assert (understood.namespace, understood.all_namespaces) == (watched, watched is None)
    assert (understood.lease_namespace, str(understood.history)) == ("messaging", "/var/lib/trimtab")
    for job in (one(manifests, "Job", name) for name in names(manifests, "Job") if not name.endswith("-test")):
        words = job["spec"]["template"]["spec"]["containers"][0]["args"]
        parser_for(words).parse_args(words)


def test_the_hook_before_an_uninstall_asks_the_servers_that_the_operator_may_ask(offline: Runner) -> None:
    def allowed(arguments: list[str]) -> list[str]:
        return [word for word in arguments if word.startswith("--allow-url=")]

    manifests = offline.rendered({"allowUrls": ["*.svc", "https://pulsar.example.com:8443"]})
    hook = one(manifests, "Job", "trimtab-restore")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert allowed(hook) == ["--allow-url=*.svc", "--allow-url=https://pulsar.example.com:8443"]
    assert allowed(hook) == allowed(operator_container(manifests)["args"])


def test_every_option_that_a_user_wants_is_a_value(offline: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left out: who this is, which namespace, and how to reach the cluster come from the pod."""
    values = combinations()["locked-down"] | {"watchNodes": True}
    told = operator_container(offline.rendered(values))["args"]
    with pytest.raises(SystemExit):
        parser_for(["run"]).parse_args(["run", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out.partition("options:")[2]))
    options.remove("--all-namespaces")  # of the value watchAllNamespaces
    known = {option for option in options if not any(word.partition("=")[0] == option for word in told)}
    assert known - {"--identity", "--kubeconfig", "--context", "--help"} == {"--verbose"}
    assert "--verbose" in operator_container(offline.rendered({"log": {"verbose": True}}))["args"]


def test_no_image_is_taken_that_no_one_named(offline: Runner) -> None:
    with pytest.raises(HelmError, match=r"image\.repository is empty, and no image of Trimtab is published: build"):
        offline.template({"image": {"repository": ""}})
    assert VALUES["image"]["repository"] == ""
    named = offline.rendered({"image": {"repository": "localhost:5000/a/trimtab", "tag": "1"}})
    assert operator_container(named)["image"] == "localhost:5000/a/trimtab:1"
    mirrored = offline.rendered(
        {"image": {"registry": "mirror.example.com:5000", "repository": "a/trimtab", "tag": "1"}}
    )
    assert operator_container(mirrored)["image"] == "mirror.example.com:5000/a/trimtab:1"


def test_pods_are_restricted(offline: Runner) -> None:
    """As the Pod Security Standard `restricted` demands, and with a read-only root file system."""
    manifests = offline.rendered({"spark": {"mode": "sidecar"}})
    pods = [
        manifest["spec"]["template"]["spec"] for kind in ("Deployment", "Job") for manifest in of_kind(manifests, kind)
    ]
    assert [len(pod["containers"]) for pod in pods] == [2, 1, 1]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"requests", "limits"} == set(container["resources"])


def test_probes_ask_for_life_and_for_readiness(offline: Runner) -> None:
    container = operator_container(offline.rendered())
    asked = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert asked == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


def test_two_replicas_stand_apart_and_one_needs_no_budget(offline: Runner) -> None:
    two, single = offline.rendered(), offline.rendered({"replicas": 1})
    assert one(two, "Deployment")["spec"]["replicas"] == 2
    assert one(two, "Deployment")["spec"]["minReadySeconds"] == 60
    assert one(two, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert not of_kind(single, "PodDisruptionBudget")
    spread = {
        how: one(offline.rendered({"antiAffinity": how}), "Deployment")["spec"]["template"]["spec"].get("affinity", {})
        for how in ("soft", "hard", "none")
    }
    assert {how: list(affinity.get("podAntiAffinity", {})) for how, affinity in spread.items()} == {
        "soft": ["preferredDuringSchedulingIgnoredDuringExecution"],
        "hard": ["requiredDuringSchedulingIgnoredDuringExecution"],
        "none": [],
    }


def test_history_is_where_it_was_asked_for(offline: Runner) -> None:
    def volume(**history: Any) -> tuple[dict[str, Any], int, str]:
        manifests = offline.rendered({"replicas": 1, "history": history})
        spec = one(manifests, "Deployment")["spec"]
        (found,) = (v for v in spec["template"]["spec"]["volumes"] if v["name"] == "history")
        return found, len(of_kind(manifests, "PersistentVolumeClaim")), spec["strategy"]["type"]

    assert volume() == ({"name": "history", "emptyDir": {"sizeLimit": "10Gi"}}, 0, "RollingUpdate")
    claim = {"name": "history", "persistentVolumeClaim": {"claimName": "trimtab-history"}}
    assert volume(volume="claim") == (claim, 1, "Recreate")
    claim["persistentVolumeClaim"]["claimName"] = "mine"
    assert volume(volume="claim", existingClaim="mine") == (claim, 0, "Recreate")
    own, claims, strategy = volume(volume="ephemeral", size="3Gi", keepSize="2Gi")
    assert own["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"] == {"requests": {"storage": "3Gi"}}
    assert (claims, strategy) == (0, "RollingUpdate")


def test_spark_is_where_it_was_asked_for(offline: Runner) -> None:
    def spark(values: dict[str, Any]) -> str:
        args = operator_container(offline.rendered(values))["args"]
        return next(word.partition("=")[2] for word in args if word.startswith("--spark="))

    assert spark({}) == parser_for(["run"]).parse_args(["run"]).spark
    assert spark({"spark": {"mode": "none"}}) == "none"
    assert spark({"spark": {"cores": 1}}) == "local[1]"
    assert spark({"spark": {"mode": "sidecar", "sidecar": {"port": 15010}}}) == "sc://127.0.0.1:15010"
    shared = {"volume": "claim", "existingClaim": "shared"}
    remote = {"mode": "remote", "remote": {"url": "sc://spark:15002"}}
    assert spark({"spark": remote}) == "sc://spark:15002", "no volume is shared with it"
    assert spark({"spark": remote, "history": shared}) == "sc://spark:15002"
    cluster = {"mode": "remote", "remote": {"url": "spark://spark:7077"}}
    assert spark({"spark": cluster, "history": shared}) == "spark://spark:7077"
    assert spark(combinations()["spark-remote"]) == "$(TRIMTAB_SPARK_URL)"
    (entry,) = (
        e for e in operator_container(offline.rendered(combinations()["spark-remote"]))["env"] if "valueFrom" in e
    )
    assert entry["valueFrom"] == {"secretKeyRef": {"name": "spark-url", "key": "url"}}


def test_alerts_lead_to_their_runbooks(offline: Runner) -> None:
    def urls(values: dict[str, Any]) -> list[str | None]:
        groups = one(offline.rendered({"alerts": {"enabled": True, **values}}), "PrometheusRule")["spec"]["groups"]
        return [rule["annotations"].get("runbook_url") for group in groups for rule in group["rules"]]

    with_base = urls({"runbookBaseUrl": "https://docs.example.com/runbooks/"})
    assert len(with_base) >= 3
    assert all(re.fullmatch(r"https://docs\.example\.com/runbooks/\w+\.md", str(url)) for url in with_base)
    on_site = urls({"runbookBaseUrl": "https://docs.example.com/runbooks", "runbookSuffix": ".html"})
    assert on_site == [str(url).removesuffix(".md") + ".html" for url in with_base]
    assert set(urls({})) == {None}


def test_alerts_are_those_of_the_file(offline: Runner) -> None:
    rendered = one(offline.rendered({"alerts": {"enabled": True}}), "PrometheusRule")["spec"]["groups"]
    (source,) = documents((CHART / "files" / "alerts.yaml").read_text())
    for group in source["groups"]:
        for rule in group["rules"]:
            rule["annotations"].pop("runbook_url", None)
    assert rendered == source["groups"]


def test_the_dashboard_is_found_by_grafanas_sidecar(offline: Runner) -> None:
    def dashboard(**values: Any) -> Manifest:
        return one(offline.rendered({"dashboard": {"enabled": True, **values}}), "ConfigMap")

    config_map = dashboard()
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config_map["metadata"]["namespace"] == "messaging"
    elsewhere = dashboard(namespace="monitoring", label="board", labelValue="grafana", labels={"a": "b"})["metadata"]
    assert elsewhere["namespace"] == "monitoring"
    assert elsewhere["labels"].items() >= {"board": "grafana", "a": "b"}.items()
    assert json.loads(config_map["data"]["trimtab.json"]) == json.loads((CHART / "files" / "board.json").read_text())


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"replica": 2}, "replica"),
        ({"spark": {"heap": "1g"}}, "heap"),
        ({"spark": {"mode": "cluster"}}, "mode"),
        ({"spark": {"memory": "1Gi"}}, "memory"),
        ({"spark": {"memory": "100m"}}, "spark.memory is 100m, and Spark needs 480m or more: set it to 700m or 1g"),
        ({"spark": {"memory": "0g"}}, "memory"),
        ({"spark": {"mode": "sidecar", "memory": "479m"}}, "spark.memory is 479m, and Spark needs 480m or more"),
        (
            {"resources": {"limits": {"memory": "768Mi"}}},
            "but resources.limits.memory is 768Mi: lower the first or raise the second",
        ),
        (
            {"spark": {"mode": "sidecar", "memory": "1g", "sidecar": {"resources": {"limits": {"memory": "1Gi"}}}}},
            "but spark.sidecar.resources.limits.memory is 1Gi: lower the first or raise the second",
        ),
        ({"extraArgs": ["--lease-name=mine"]}, "extraArgs has --lease-name=mine: set lease.name instead"),
        ({"extraArgs": ["--allow-url", "*.svc"]}, "extraArgs has --allow-url: set allowUrls instead"),
        ({"image": {"tag": "a:b"}}, "tag"),
        ({"image": {"tag": "a" * 129}}, "tag"),
        ({"image": {"repository": "registry.example.com/trimtab:1"}}, "repository"),
        ({"history": {"keepSize": "20Gi"}}, "history.keepSize is 20Gi, and history.size is 10Gi: make size larger"),
        ({"history": {"keepSize": "600Mi", "size": "0.5Gi"}}, "history.keepSize is 600Mi, and history.size is 0.5Gi"),
        (
            {"policies": [{"name": name, "spec": {}} for name in "abc"]},
            "history.keepSize is 4Gi for each of 3 policies, and history.size is 10Gi: make size larger",
        ),
        ({"history": {"keep": "one day"}}, "keep"),
        ({"history": {"keep": "1d"}}, "keep"),
        ({"history": {"keep": "0h0m"}}, "keep"),
        ({"history": {"keepSize": "0Gi"}}, "keepSize"),
        ({"history": {"keepSize": "8GB"}}, "keepSize"),
        ({"replicas": "2"}, "replicas"),
        ({"http": {"port": 80}}, "port"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"policies": [{"spec": {}}]}, "name"),
        ({"allowUrls": "*.svc"}, "allowUrls"),
        ({"allowUrls": ["https://pulsar.example.com/admin"]}, "allowUrls"),
        ({"allowUrls": ["http://a b"]}, "allowUrls"),
        ({"history": {"volume": "claim"}}, "set replicas to 1, or history.volume to ephemeral or emptyDir"),
        ({"spark": {"mode": "remote", "remote": {"url": "yarn"}}}, "url"),
        ({"lease": {"renewDeadline": 20}}, "must decrease, or two could lead at once"),
        ({"serviceAccount": {"create": False}}, "set serviceAccount.name to one that exists"),
        ({"watchAllNamespaces": True, "watchNamespaces": ["a"]}, "exclude each other: set one"),
        ({"watchAllNamespaces": True, "policies": [{"name": "a", "spec": {}}]}, "policies are of the release's own"),
        ({"watchNamespaces": ["a", "a"]}, "watchNamespaces"),
        ({"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}, "needs service.enabled"),
        ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "scraped twice: enable one"),
    ],
)
def test_values_that_can_not_work_are_refused(offline: Runner, values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(HelmError, match=re.escape(complaint)):
        offline.template(values)


@pytest.mark.parametrize(
    "values",
    [
        {"spark": {"memory": "480m"}},
        {"spark": {"memory": "1g"}},
        {"image": {"tag": "v1.2.3-rc.1_x"}},
        {"history": {"keepSize": "1024Mi", "size": "1Gi"}},
        {"history": {"keepSize": "5Gi"}, "policies": [{"name": name, "spec": {}} for name in "ab"]},
        {"policies": None},
        {"history": {"keep": "1h30m"}},
        {"allowUrls": ["*.svc", "HTTPS://Pulsar.example.com:8443", "http://[::1]:*", "10.0.0.1"]},
        {"history": {"keepSize": "1Ti", "size": "1.5Ti"}},
        {"replicas": 1, "history": {"keepSize": "1Ti", "volume": "claim", "existingClaim": "mine"}},
    ],
    ids=str,
)
def test_values_at_the_bound_are_taken(offline: Runner, values: dict[str, Any]) -> None:
    assert operator_container(offline.rendered(values))["command"] == ["trimtab"]


def test_the_schema_knows_every_value_and_allows_no_other() -> None:
    def leaves(schema: dict[str, Any], at: str = "") -> Iterator[str]:
        for name, part in schema.get("properties", {}).items():
            yield f"{at}{name}"
            if "properties" in part and name not in KUBERNETES:
                assert part["additionalProperties"] is False, f"{at}{name} takes anything"
                yield from leaves(part, f"{at}{name}.")

    def names(values: dict[str, Any], at: str = "") -> Iterator[str]:
        for name, value in values.items():
            yield f"{at}{name}"
            known = SCHEMA
            for word in f"{at}{name}".split("."):
                known = known["properties"][word]
            if isinstance(value, dict) and "properties" in known and name not in KUBERNETES:
                yield from names(value, f"{at}{name}.")

    assert SCHEMA["additionalProperties"] is False
    assert set(leaves(SCHEMA)) - {"global"} == set(names(VALUES))


def test_names_fit_however_long_the_release_is_called(offline: Runner) -> None:
    manifests = offline.rendered(release="a" * 53)
    labels = itertools.chain.from_iterable(m["metadata"].get("labels", {}).values() for m in manifests)
    assert max(map(len, labels)) <= 63
    assert all(len(name) <= 61 for kind in ("Deployment", "Job") for name in names(manifests, kind))


def test_the_chart_has_the_version_of_the_program() -> None:
    (chart,) = documents((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
