"""`trimtab apply`: policies from files, server-side, also directly after the CRDs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import yaml

from manifests import broker, policy
from trimtab_operator.cli import main
from trimtab_operator.resources.crd import manifests as crds
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube import ControlPlane

API = "/apis/trimtab.dev/v1alpha1/namespaces"


def written(folder: Path, *manifests: object) -> str:
    file = folder / "policies.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    return str(file)


def named(name: str, **meta: str) -> dict[str, object]:
    return {**policy(), "metadata": {"name": name, **meta}}


@pytest.mark.apiserver
def test_it_creates_and_changes_policies_as_the_named_manager(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["-n", kube_namespace, f"--kubeconfig={trimtab_crds.kubeconfig}", "--field-manager=helm"]
    assert main(["apply", "-f", written(tmp_path, named("a"), named("b")), *flags]) == 0
    assert capsys.readouterr().out == "policy a: applied\npolicy b: applied\n"
    changed = {**named("a"), "spec": {**policy()["spec"], "mode": "Approve"}}
    assert main(["apply", "-f", written(tmp_path, changed), *flags]) == 0

    found = trimtab_crds.rest.get(f"{API}/{kube_namespace}/balancingpolicies/a")
    assert found["spec"]["mode"] == "Approve"
    assert [(entry["manager"], entry["operation"]) for entry in found["metadata"]["managedFields"]] == [
        ("helm", "Apply")
    ]


@pytest.mark.apiserver
def test_it_deletes_what_has_the_labels_and_is_in_no_file(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def labelled(name: str, release: str) -> dict[str, object]:
        return {**policy(), "metadata": {"name": name, "labels": {"release": release}}}

    flags = ["-n", kube_namespace, f"--kubeconfig={trimtab_crds.kubeconfig}"]
    everything = (labelled("a", "one"), labelled("b", "one"), labelled("c", "another"), named("d"))
    assert main(["apply", "-f", written(tmp_path, *everything), *flags]) == 0
    capsys.readouterr()
    assert main(["apply", "-f", written(tmp_path, labelled("a", "one")), "--prune", "release=one", *flags]) == 0

    assert capsys.readouterr().out == "policy a: applied\npolicy b: deleted\n"
    left = trimtab_crds.rest.get(f"{API}/{kube_namespace}/balancingpolicies")["items"]
    assert sorted(item["metadata"]["name"] for item in left) == ["a", "c", "d"]


@pytest.mark.apiserver
def test_it_waits_until_the_kind_is_served(
    kube_binaries: KubeBinaries, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ControlPlane(kube_binaries, tmp_path / "control-plane") as plane:
        plane.rest.create_namespace("messaging")
        words = ["apply", "-n", "messaging", f"--kubeconfig={plane.kubeconfig}", "-f", written(tmp_path, named("a"))]
        assert main(words) == 2
        assert "this cluster has no kinds of trimtab.dev" in capsys.readouterr().err

        later = threading.Timer(3, lambda: plane.rest.apply_crds(list(crds().values())))
        later.start()
        assert main([*words, "--wait", "90s"]) == 0
        later.join()


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        (broker(), "is not a BalancingPolicy of trimtab.dev/v1alpha1: apply it with kubectl"),
        ({**policy(), "metadata": {}}, "has no metadata.name"),
        (["a list"], "is not a BalancingPolicy"),
    ],
    ids=["another kind", "no name", "no object"],
)
def test_it_refuses_what_is_no_policy_before_it_asks_anyone(
    manifest: object, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", "-n", "messaging", "-f", written(tmp_path, manifest)]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.apiserver
def test_it_refuses_a_policy_of_another_namespace(
    control_plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, named("a", namespace="billing"))
    assert main(["apply", "-n", "messaging", f"--kubeconfig={control_plane.kubeconfig}", "-f", file]) == 2
    assert "policy a is in namespace billing: name it with -n, not messaging" in capsys.readouterr().err
