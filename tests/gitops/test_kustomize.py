"""The kustomize base and its overlays: rendered by kubectl, taken by a real API server, and no stale copies in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab_operator.cli import main
from trimtab_operator.cli.common import EMBEDDED
from trimtab_operator.cli.parser import parser_for
from trimtab_operator.resources.crd import manifests as crds
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[2]
BASE, HA, OVERLAY = (ROOT / part for part in ("deploy/kustomize/base", "deploy/kustomize/ha", "examples/gitops"))


def rendered(plane: ControlPlane, folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Objects by kind and name."""
    found = yaml.safe_load_all(plane.kubectl("kustomize", str(folder)))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def test_the_base_holds_the_role_as_it_is_rendered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--check", str(BASE)]) == 0, capsys.readouterr().out


def test_the_base_holds_every_kind_as_it_is_rendered(control_plane: ControlPlane) -> None:
    found = rendered(control_plane, BASE)
    for crd in crds().values():
        assert found["CustomResourceDefinition", crd["metadata"]["name"]]["spec"] == crd["spec"]


def test_the_image_of_the_base_cannot_be_pulled_by_accident(control_plane: ControlPlane) -> None:
    """No registry has a name that ends with .invalid (RFC 2606): an overlay must name an image."""
    [container] = rendered(control_plane, BASE)["Deployment", "trimtab"]["spec"]["template"]["spec"]["containers"]
    assert container["image"].partition("/")[0].endswith(".invalid")


def test_two_replicas_are_the_base_and_a_budget(control_plane: ControlPlane) -> None:
    base, ha = rendered(control_plane, BASE), rendered(control_plane, HA)
    assert set(ha) - set(base) == {("PodDisruptionBudget", "trimtab")}
    assert ha["Deployment", "trimtab"]["spec"]["replicas"] == 2
    pods = ha["Deployment", "trimtab"]["spec"]["template"]["spec"]
    assert pods["containers"] == base["Deployment", "trimtab"]["spec"]["template"]["spec"]["containers"]


def test_an_overlay_names_image_and_namespace_once(control_plane: ControlPlane, tmp_path: Path) -> None:
    text = (OVERLAY / "kustomization.yaml").read_text().replace("namespace: messaging", "namespace: elsewhere")
    (tmp_path / "policy.yaml").write_text((OVERLAY / "policy.yaml").read_text())
    above = "../" * (len(tmp_path.parts) - 1)
    (tmp_path / "kustomization.yaml").write_text(text.replace("../../", f"{above}{str(ROOT)[1:]}/"))

    found = rendered(control_plane, tmp_path)

    spaces = {
        one["metadata"].get("namespace") for (kind, _), one in found.items() if kind != "CustomResourceDefinition"
    }
    assert spaces == {"elsewhere"}
    assert found["RoleBinding", "trimtab"]["subjects"][0]["namespace"] == "elsewhere"
    [container] = found["Deployment", "trimtab"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/messaging/trimtab:0.1.0"


def test_what_the_container_gets_is_what_the_program_takes(
    control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    [container] = rendered(control_plane, BASE)["Deployment", "trimtab"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["trimtab"]
    assert main([*container["args"], "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word.partition("=")[0] in shown for word in container["args"][1:])


def test_a_client_side_apply_has_room_for_every_kind(trimtab_crds: ControlPlane) -> None:
    """It keeps what was applied in an annotation; an API server takes no more than 262,144 bytes of those."""
    text = yaml.safe_dump_all([dict(crd) for crd in crds().values()], sort_keys=False)

    said = trimtab_crds.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)

    assert said.count("(server dry run)") == len(crds())


def test_the_base_measures_as_its_memory_allows(control_plane: ControlPlane) -> None:
    """As in the chart."""
    [container] = rendered(control_plane, BASE)["Deployment", "trimtab"]["spec"]["template"]["spec"]["containers"]
    told = parser_for(container["args"]).parse_args(container["args"])
    chart = yaml.safe_load((ROOT / "charts/trimtab/values.yaml").read_text())
    assert (told.spark, chart["spark"]["mode"]) == (EMBEDDED, "embedded")
    assert container["resources"] == chart["resources"]


def test_a_real_api_server_takes_all_of_it(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    """With strict validation, server-side as GitOps controllers apply it; a second time nothing is left to change."""
    found = rendered(trimtab_crds, OVERLAY)
    ours = [one for (kind, _), one in found.items() if kind != "CustomResourceDefinition"]
    for one in ours:
        one["metadata"]["namespace"] = kube_namespace
        for subject in one.get("subjects", ()):
            subject["namespace"] = kube_namespace
    definitions = [one for (kind, _), one in found.items() if kind == "CustomResourceDefinition"]
    text = yaml.safe_dump_all([*definitions, *ours], sort_keys=False)
    apply = ("apply", "--server-side", "--validate=strict", "--force-conflicts", "-f", "-")

    first = trimtab_crds.kubectl(*apply, stdin=text)
    version = trimtab_crds.kubectl(
        "get", "bpol", "main", "-n", kube_namespace, "-o", "jsonpath={.metadata.resourceVersion}"
    )
    trimtab_crds.kubectl(*apply, stdin=text)

    assert first.count("serverside-applied") == len(definitions) + len(ours)
    again = trimtab_crds.kubectl(
        "get", "bpol", "main", "-n", kube_namespace, "-o", "jsonpath={.metadata.resourceVersion}"
    )
    assert again == version
