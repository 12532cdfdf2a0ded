"""Approving is a right of its own: the chart's ValidatingAdmissionPolicy on a real API server, with two people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chart import CHART, IMAGE, NAMESPACE, RELEASE, Runner
from small_cluster import until
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError, KubeRest

pytestmark = [pytest.mark.apiserver]

POLICIES = f"/apis/trimtab.dev/v1alpha1/namespaces/{NAMESPACE}/balancingpolicies"
ALICE, BOB = (f"system:serviceaccount:{NAMESPACE}:{name}" for name in ("alice", "bob"))


@pytest.fixture
def people(release_plane: ControlPlane, online: Runner) -> Iterator[dict[str, KubeRest]]:
    """Alice may edit and approve, Bob may edit. The chart is installed, and there is a policy in mode Approve."""
    online.run(
        *("install", RELEASE, CHART, "--namespace", NAMESPACE, "--create-namespace"),
        *("--set", f"image.repository={IMAGE}", "--set", "replicas=0"),
    )
    rest = release_plane.rest
    tokens = {name: _person(rest, name, roles) for name, roles in (("alice", ("edit", "approve")), ("bob", ("edit",)))}
    rest.create(POLICIES, _policy())
    found = {name: KubeRest(release_plane.url, token=token, ca=release_plane.ca) for name, token in tokens.items()}
    until("the admission policy is in force", lambda: _refused(found["bob"]), within=60)
    yield found
    for each in found.values():
        each.close()


def _person(rest: KubeRest, name: str, roles: tuple[str, ...]) -> str:
    """A ServiceAccount that stands for a person; its token."""
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    rest.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    for role in roles:
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{name}-{role}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": f"{RELEASE}-{NAMESPACE}-{role}",
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        }
        rest.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings", body)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = rest.create(f"{accounts}/{name}/token", request)["status"]["token"]
    return token


def _policy(**spec: Any) -> dict[str, Any]:
    source = {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}}
    return {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "BalancingPolicy",
        "metadata": {"name": "main"},
        "spec": {"mode": "Approve", "source": source, **spec},
    }


def _approve(person: KubeRest, by: str | None, proposal: str = "3f9c01d2") -> None:
    notes = {"trimtab.dev/rebalance": "approve", "trimtab.dev/proposal": proposal, "trimtab.dev/approved-by": by}
    person.patch(f"{POLICIES}/main", {"metadata": {"annotations": notes}})


def _withdraw(person: KubeRest) -> None:
    names = ("rebalance", "proposal", "approved-by", "plan")
    notes = dict.fromkeys(f"trimtab.dev/{name}" for name in names)
    person.patch(f"{POLICIES}/main", {"metadata": {"annotations": notes}})


def _refused(person: KubeRest) -> bool:
    try:
        _approve(person, BOB)
    except KubeApiError as error:
        return error.status == 403
    _withdraw(person)
    return False


def test_who_may_edit_may_not_approve(people: dict[str, KubeRest]) -> None:
    people["bob"].patch(f"{POLICIES}/main", {"spec": {"interval": "90s"}})
    people["bob"].patch(f"{POLICIES}/main", {"metadata": {"annotations": {"trimtab.dev/rebalance": "refresh"}}})

    for by in (BOB, ALICE, None):
        with pytest.raises(KubeApiError, match=f"user {BOB} may not approve proposals: that needs the verb approve"):
            _approve(people["bob"], by)


def test_who_may_approve_does_so_in_their_own_name_and_the_audit_log_has_it(
    people: dict[str, KubeRest], release_plane: ControlPlane
) -> None:
    for by in (BOB, None):
        with pytest.raises(KubeApiError, match=f"must name the user who approves, {ALICE}"):
            _approve(people["alice"], by)

    _approve(people["alice"], ALICE)

    approvals = [
        (event["user"]["username"], note)
        for event in release_plane.audit_events()
        for key, note in (event.get("annotations") or {}).items()
        if key.endswith("-approval/approval") and (event.get("responseStatus") or {}).get("code", 200) == 200
    ]
    assert approvals == [(ALICE, f"{ALICE} approves proposal 3f9c01d2")]


def test_an_approval_that_waits_is_not_redirected_by_others(people: dict[str, KubeRest]) -> None:
    _approve(people["alice"], ALICE)

    people["bob"].patch(f"{POLICIES}/main", {"spec": {"interval": "90s"}})
    with pytest.raises(KubeApiError, match="may not approve"):
        _approve(people["bob"], ALICE, proposal="00000000")
    _withdraw(people["bob"])


def test_a_plan_is_approved_with_the_same_right_and_exchanged_by_nobody(
    people: dict[str, KubeRest], release_plane: ControlPlane
) -> None:
    def plan(person: str, text: str | None, **more: str | None) -> None:
        notes = {"trimtab.dev/plan": text, **{f"trimtab.dev/{name.replace('_', '-')}": to for name, to in more.items()}}
        people[person].patch(f"{POLICIES}/main", {"metadata": {"annotations": notes}})

    with pytest.raises(KubeApiError, match=f"user {BOB} may not approve"):
        plan("bob", "H4sI", rebalance="approve", approved_by=BOB)
    with pytest.raises(KubeApiError, match="may not approve"):
        plan("bob", "H4sI")  # laid down for the next approval of another user

    plan("alice", "H4sI", rebalance="approve", approved_by=ALICE)
    for text in ("AAAA", None):
        with pytest.raises(KubeApiError, match="may not approve"):
            plan("bob", text)
    notes = {note for event in release_plane.audit_events() for note in (event.get("annotations") or {}).values()}
    assert f"{ALICE} approves a plan" in notes
    _withdraw(people["bob"])


@pytest.mark.parametrize("spec", [{"mode": "Auto"}, {"approval": {"auto": {"maxMoves": 3}}}])
def test_what_makes_approvals_needless_needs_the_same_right(people: dict[str, KubeRest], spec: dict[str, Any]) -> None:
    other = {**_policy(**spec), "metadata": {"name": "other"}}
    with pytest.raises(KubeApiError, match=f"user {BOB} may not choose mode Auto or spec.approval.auto"):
        people["bob"].patch(f"{POLICIES}/main", {"spec": spec})
    with pytest.raises(KubeApiError, match="may not choose mode Auto"):
        people["bob"].create(POLICIES, other)

    people["alice"].patch(f"{POLICIES}/main", {"spec": spec})
    people["bob"].patch(f"{POLICIES}/main", {"spec": {"interval": "90s"}})
    people["bob"].patch(f"{POLICIES}/main", {"spec": {"mode": "DryRun"}})
