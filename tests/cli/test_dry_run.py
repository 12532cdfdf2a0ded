"""`--dry-run` of every verb that writes: what would be written is shown, and nothing is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from policy_environment import PolicyEnvironment
from trimtab_operator.cli import main

pytestmark = pytest.mark.apiserver

Verb = Callable[..., tuple[int, str, str]]

GONE = dict.fromkeys(("trimtab.dev/proposal", "trimtab.dev/approved-by", "trimtab.dev/plan"))
"""What a command without a proposal removes."""

WRITES = {
    "approve main --proposal 3f9c01d2": {
        "trimtab.dev/rebalance": "approve",
        "trimtab.dev/proposal": "3f9c01d2",
        "trimtab.dev/approved-by": "admin",
        "trimtab.dev/plan": None,
    },
    "refresh main": {**GONE, "trimtab.dev/rebalance": "refresh"},
    "stop main": {**GONE, "trimtab.dev/rebalance": "stop"},
    "pause main": {"trimtab.dev/paused": "true"},
    "resume main": {"trimtab.dev/paused": None},
    "drain a": {"schedulable": False},
    "undrain a": {"schedulable": True},
    "move FIRST b": {"owner": "b", "assignment": None},
    "split FIRST": {"bundle": "FIRST", "algorithm": "range_equally_divide"},
}
"""Words of a verb, and the annotations or the spec that it would write."""


@pytest.fixture
def verb(env: PolicyEnvironment, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs a verb in the environment; exit code, output and errors. FIRST stands for a bundle of broker a."""
    env.create_policy(mode="Approve")

    def run(words: str, *more: str) -> tuple[int, str, str]:
        first = env.names[env.load.bundles.names[0]]
        code = main(
            [*words.replace("FIRST", first).split(), *more, "-n", env.namespace, "--kubeconfig", env.kubeconfig]
        )
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def everything(env: PolicyEnvironment) -> dict[str, dict[str, str]]:
    return {kind: env.versions(kind) for kind in ("bundles", "brokers", "balancingpolicies", "bundlesplits")}


def told(body: dict[str, Any]) -> Any:
    return body.get("spec") or body["metadata"]["annotations"]


@pytest.mark.parametrize("how", ["client", "server"])
@pytest.mark.parametrize("words", WRITES)
def test_a_dry_run_shows_the_write_and_makes_none(words: str, how: str, env: PolicyEnvironment, verb: Verb) -> None:
    before = everything(env)

    code, out, err = verb(words, f"--dry-run={how}", "-o", "json")

    assert (code, err) == (0, "")
    found = json.loads(out)
    [write] = found["writes"]
    first = env.names[env.load.bundles.names[0]]
    wanted = {key: first if value == "FIRST" else value for key, value in WRITES[words].items()}
    assert (found["dryRun"], told(write["body"])) == (how, wanted)
    assert write["namespace"] == env.namespace
    assert everything(env) == before


def test_a_person_reads_the_write_as_yaml(env: PolicyEnvironment, verb: Verb) -> None:
    code, out, _ = verb("drain a", "--dry-run")

    assert code == 0
    head, _, body = out.partition("\n")
    assert head == f"dry run (client): would patch Broker a in namespace {env.namespace}:"
    assert yaml.safe_load(body) == {"spec": {"schedulable": False}}


def test_a_mistake_is_found_by_a_dry_run_too(verb: Verb) -> None:
    code, _, err = verb("drain z", "--dry-run")

    assert (code, "no Broker z in namespace" in err) == (2, True)


def test_a_move_that_is_not_needed_would_write_nothing(verb: Verb) -> None:
    assert verb("move FIRST a", "--dry-run")[:2] == (0, "dry run (client): nothing would be written\n")


def test_the_server_refuses_in_a_dry_run_what_the_user_may_not_do(env: PolicyEnvironment, verb: Verb) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": ["trimtab.dev"], "resources": ["*"], "verbs": ["get", "list"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "readers"}],
    }
    root = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{env.namespace}"
    env.rest.create(f"{root}/roles", role)
    env.rest.create(f"{root}/rolebindings", binding)
    before = everything(env)
    jane = ("--as", "jane", "--as-group", "other", "--as-group", "readers")

    assert verb("drain a", "--dry-run=client", *jane)[0] == 0, "a reader may see what would be written"
    for how in (["--dry-run=server"], []):
        code, out, err = verb("drain a", *how, *jane)
        assert (code, out) == (2, "")
        assert 'User "jane" cannot patch resource "brokers"' in err
        assert err.count("\n") == 1

    code, _, err = verb("drain a", "--as", "jane")
    assert (code, 'User "jane" cannot get resource "brokers"' in err) == (2, True), "without the group"
    assert everything(env) == before
