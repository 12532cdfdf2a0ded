"""`deploy/rbac.yaml` is rendered from one table, and grants nothing that would surprise an administrator."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from shipped_role import FILE, asked, granted
from trimtab_operator.cli import main
from trimtab_operator.resources.rbac import PERMISSIONS, rendered_rbac


def test_the_file_is_what_the_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--check", str(FILE.parent)]) == 0
    assert capsys.readouterr().out == ""
    assert granted() == {(p.group, p.resource, verb) for p in PERMISSIONS for verb in p.verbs}


def test_every_verb_carries_its_reason() -> None:
    for permission in PERMISSIONS:
        assert all(permission.verbs.values())
        for verb, why in permission.verbs.items():
            assert f"      - {verb}  # {why}\n" in FILE.read_text()


def test_another_name_of_the_lease_stands_in_the_role(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--lease-name", "42"]) == 0
    text = capsys.readouterr().out
    assert "      - '42'  # --lease-name\n" in text
    _, role, _ = yaml.safe_load_all(text)
    leases = [rule for rule in role["rules"] if rule["resources"] == ["leases"]]
    assert {tuple(rule["verbs"]): rule.get("resourceNames") for rule in leases} == {
        ("create",): None,
        ("get", "patch"): ["42"],
    }


def test_everything_is_in_one_namespace_and_belongs_together() -> None:
    account, role, binding = yaml.safe_load_all(rendered_rbac("other"))
    assert [m["kind"] for m in (account, role, binding)] == ["ServiceAccount", "Role", "RoleBinding"]
    assert {m["metadata"]["namespace"] for m in (account, role, binding)} == {"other"}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "other"}
    ]


def test_secrets_are_read_by_name_and_nothing_is_granted_by_a_wildcard() -> None:
    assert {verb for _, resource, verb in granted() if resource.startswith("secrets")} == {"get"}
    assert not [right for right in granted() if "*" in right]
    assert {verb for _, _, verb in granted()} <= {"get", "list", "watch", "create", "patch", "delete"}
    assert not {resource for _, resource, _ in granted()} & {"pods/exec", "serviceaccounts", "roles", "rolebindings"}


def test_a_file_that_is_out_of_date_is_shown_with_what_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rbac", "--write", str(tmp_path / "deploy")]) == 0
    path = tmp_path / "deploy" / "rbac.yaml"
    path.write_text(path.read_text().replace("      - secrets\n", "      - '*'\n"))
    assert main(["rbac", "--check", str(tmp_path / "deploy")]) == 1
    shown = capsys.readouterr().out
    assert "-      - '*'" in shown
    assert f"update it with: trimtab rbac --write {path.parent}" in shown


def test_a_folder_that_cant_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--check", str(tmp_path)]) == 2
    assert f"trimtab: {tmp_path}/rbac.yaml: No such file" in capsys.readouterr().err


def test_an_audit_log_tells_what_the_operator_asked_and_how_it_was_answered() -> None:
    def event(user: str, verb: str, code: int, **reference: str) -> dict[str, object]:
        account = f"system:serviceaccount:messaging:{user}"
        return {"user": {"username": account}, "verb": verb, "objectRef": reference, "responseStatus": {"code": code}}

    log = [
        event("trimtab", "patch", 200, apiGroup="trimtab.dev", resource="bundles", subresource="status"),
        event("trimtab", "patch", 403, apiGroup="trimtab.dev", resource="bundles", subresource="status"),
        event("somebody", "delete", 200, resource="pods"),
    ]
    assert asked(log, "messaging") == {("trimtab.dev", "bundles/status", "patch"): {200, 403}}
