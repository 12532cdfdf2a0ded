"""Health of the five kinds for Argo CD: its Lua scripts, by a real Lua 5.1 without libraries, in states that occur."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime

from manifests import broker, bundle, bundle_split, policy, topic_namespace
from trimtab_operator.resources.crd import KINDS

ARGO = Path(__file__).parents[2] / "examples/gitops/argocd-cm.yaml"
SCRIPTS: dict[str, str] = {
    key.rpartition("_")[2]: text for key, text in yaml.safe_load(ARGO.read_text())["data"].items()
}
LEFT = frozenset(
    {"assert", "error", "getmetatable", "ipairs", "next", "pairs", "pcall", "print", "rawequal", "rawget"}
    | {"rawset", "select", "setmetatable", "tonumber", "tostring", "type", "unpack", "_G", "_VERSION", "table"}
)
"""What Argo CD's interpreter knows by itself."""


def health(manifest: dict[str, Any], *, generation: int = 2, **status: Any) -> tuple[str, str]:
    """Status and message that Argo CD would show."""
    lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    for name in list(lua.globals()):
        if name not in LEFT:
            lua.globals()[name] = None
    whole = {**manifest, "metadata": {**manifest["metadata"], "generation": generation}}
    if status:
        whole["status"] = status
    lua.globals()["obj"] = lua.table_from(whole, recursive=True)
    told = lua.execute(SCRIPTS[manifest["kind"]])
    return str(told["status"]), str(told["message"] or "")


def condition(kind: str, status: str, reason: str = "Why", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": "in words", "observedGeneration": 2, **more}


def conditions(*found: dict[str, Any]) -> dict[str, Any]:
    return {"conditions": list(found)}


VALID = condition("Valid", "True")

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "a new policy": (policy(), {}, "Progressing", "no operator has looked"),
    "a policy that runs": (policy(), conditions(VALID, condition("Ready", "True", "Cycled")), "Healthy", "in words"),
    "a policy whose data is not believed": (
        policy(),
        conditions(condition("Ready", "False", "Untrusted")),
        "Degraded",
        "Untrusted: in words",
    ),
    "an invalid policy": (
        policy(),
        conditions(condition("Ready", "False", "InvalidPolicy")),
        "Degraded",
        "InvalidPolicy",
    ),
    "an edit that the operator has not seen yet": (
        policy(),
        conditions(condition("Ready", "True", observedGeneration=1)),
        "Progressing",
        "the last edit",
    ),
    "a policy that Git pauses": (
        policy(paused=True),
        conditions(condition("Ready", "True")),
        "Suspended",
        "spec.paused",
    ),
    "a policy that a person pauses": (
        policy(),
        conditions(condition("Ready", "False", "Paused")),
        "Suspended",
        "in words",
    ),
    "a policy with other conditions alone": (policy(), conditions(VALID), "Progressing", "not known yet"),
    "a proposal that waits": (
        policy(mode="Approve"),
        {**conditions(condition("Ready", "True"), condition("ProposalReady", "True")), "proposal": {"total": 3}},
        "Healthy",
        "",
    ),
    "a new namespace": (topic_namespace(), {}, "Progressing", "being cut"),
    "a namespace that is cut": (topic_namespace(), conditions(condition("Ready", "True", "Cut")), "Healthy", ""),
    "a namespace that Pulsar refuses": (
        topic_namespace(),
        conditions(condition("Ready", "False", "Refused")),
        "Degraded",
        "Refused: in words",
    ),
    "a namespace with a bad pattern": (
        topic_namespace(),
        conditions(condition("Ready", "True"), condition("Valid", "False", "InvalidPolicy")),
        "Degraded",
        "InvalidPolicy",
    ),
    "a new broker": (broker(), {}, "Progressing", "no operator has looked"),
    "a broker that serves": (broker(), {"ready": True}, "Healthy", ""),
    "a broker whose pod is gone": (broker(), {"ready": False}, "Degraded", "not ready"),
    "a broker that is drained": (broker(pod="x", schedulable=False), {"ready": True}, "Suspended", "no bundles"),
    "a new bundle": (bundle(), {}, "Progressing", "no broker was asked"),
    "a bundle on its desired owner": (bundle(owner="a"), {"owner": "a"}, "Healthy", "on a"),
    "a bundle on its way": (bundle(owner="b"), {"owner": "a"}, "Progressing", "on its way to b"),
    "a bundle between two brokers": (bundle(owner="b"), {"state": "Assigning"}, "Progressing", "on its way to b"),
    "a bundle without a desired owner": (bundle(), {"owner": "a"}, "Healthy", "on a"),
    "a new split": (bundle_split(), {}, "Progressing", ""),
    "a split under way": (bundle_split(), {"phase": "Splitting", "message": "1 of 2"}, "Progressing", "1 of 2"),
    "a split that is done": (bundle_split(), {"phase": "Completed"}, "Healthy", ""),
    "a split that failed": (bundle_split(), {"phase": "Failed", "message": "no such bundle"}, "Degraded", "no such"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_state_has_its_health(case: str) -> None:
    manifest, status, expected, words = CASES[case]
    found, message = health(manifest, **status)
    assert found == expected
    assert words in message


def test_every_kind_has_a_script_and_every_script_a_case() -> None:
    kinds = {kind.kind for kind in KINDS}
    assert set(SCRIPTS) == kinds == {manifest["kind"] for manifest, *_ in CASES.values()}


def test_a_library_is_not_at_hand() -> None:
    """What would fail in Argo CD fails here."""
    lua = LuaRuntime()
    for name in list(lua.globals()):
        if name not in LEFT:
            lua.globals()[name] = None
    with pytest.raises(Exception, match="string"):
        lua.execute("return string.len('x')")
