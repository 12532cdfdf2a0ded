"""`trimtab lint` refuses what a real API server refuses, and takes what that takes: both are asked the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import broker, bundle, bundle_split, policy, topic_namespace
from trimtab_operator.cli.lint.files import Found, documents, spelt
from trimtab_operator.cli.lint.schema import refusals
from trimtab_operator.resources.crd import manifests as crds
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError

pytestmark = [pytest.mark.apiserver, pytest.mark.long]

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
PLURALS = {crd["spec"]["names"]["kind"]: crd["spec"]["names"]["plural"] for crd in crds().values()}
ENTRY = {"secretKeyRef": {"name": "prometheus", "key": "token"}}
_REFUSED = frozenset({400, 422})
"""HTTP status of an object with unknown fields or of a wrong type, and of one that is invalid."""

Manifest = dict[str, Any]


def asking(**auth: Any) -> Manifest:
    return policy(source={"prometheus": {"url": "http://prometheus:9090", "auth": auth}})


def pulsar(**auth: Any) -> Manifest:
    return policy(pulsar={"adminUrl": "http://pulsar:8080", "auth": auth})


OAUTH2 = {"issuerUrl": "https://issuer", "clientId": ENTRY, "clientSecret": ENTRY}
HEADER = {"name": "X-Scope-OrgID", "value": "a"}

BROKEN: Mapping[str, Manifest] = {
    "brokerInterval must not exceed interval": policy(interval="30s", brokerInterval="1m"),
    "bundleMetrics Statistics reads from Pulsar's brokers": policy(
        source={"prometheus": {"url": "http://prometheus:9090", "bundleMetrics": "Statistics"}}
    ),
    "is set by Trimtab: name another label": policy(
        source={"prometheus": {"url": "http://prometheus:9090", "matchers": {"namespace": "a"}}}
    ),
    "is set by Trimtab: leave it out": policy(
        source={"prometheus": {"url": "http://prometheus:9090", "parameters": {"query": "a"}}}
    ),
    "brokerInterval is at least 5s": policy(brokerInterval="4s"),
    "bearerToken and basic exclude each other": asking(bearerToken=ENTRY, basic={"username": ENTRY, "password": ENTRY}),
    "certificate and key belong together": asking(tls={"certificate": ENTRY}),
    "a certificate authority comes from a Secret or from a ConfigMap": asking(
        tls={"ca": {**ENTRY, "configMapKeyRef": {"name": "authorities", "key": "ca.crt"}}}
    ),
    "a header has value or secretKeyRef": asking(headers=[{**HEADER, **ENTRY}]),
    "a header that controls the connection": asking(headers=[{"name": "Host", "value": "a"}]),
    "maxClockSkew must be 1s to 5m": policy(
        source={"prometheus": {"url": "http://prometheus:9090", "trust": {"maxClockSkew": "10m"}}}
    ),
    "a window lasts at most 168h": policy(windows=[{"start": "22:00", "duration": "169h"}]),
    "token and oauth2 exclude each other": pulsar(token=ENTRY, oauth2=OAUTH2),
    "pod or address must be set": broker(schedulable=True),
    "range.lower": bundle(lower="0x40000000", upper="0x20000000"),
    "name either boundaries, or an algorithm": bundle_split(algorithm="range_equally_divide"),
    "destinations must name one broker for each child": bundle_split(destinations=["a", "b", "c"]),
    "boundaries must ascend": bundle_split(boundaries=["0x30000000", "0x20000000"]),
    "isolation names no broker": topic_namespace(isolation={"minAvailable": 2}),
    "is primary and secondary": topic_namespace(isolation={"primary": ["a"], "secondary": ["a"]}),
    "budget sets no limit": topic_namespace(budget={}),
}
"""By the beginning of a rule's message, an object that breaks this rule alone. Those of unions are made below."""


def unions() -> Iterator[tuple[str, Manifest]]:
    """For each type of strategy an object with the block of another."""
    spec = next(c for name, c in crds().items() if "balancingpolicies" in name)["spec"]["versions"][0]["schema"]
    fields = spec["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for part in ("shedder", "placement", "selection", "split"):
        for rule in fields[part]["x-kubernetes-validations"]:
            member, _, owner = rule["message"].partition(" belongs to type ")
            owner = owner.removesuffix(" only")
            other = next(name for name in fields[part]["properties"]["type"]["enum"] if name != owner)
            yield f"{member} belongs to type {owner}", policy(**{part: {"type": other, member: {}}})


def rules() -> Iterator[str]:
    """Messages of all CEL rules that look at one version of an object."""

    def walk(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            for rule in schema.get("x-kubernetes-validations", ()) if "type" in schema else ():
                if "oldSelf" not in rule["rule"]:
                    yield rule["message"]
            for part in schema.values():
                yield from walk(part)
        elif isinstance(schema, list):
            for part in schema:
                yield from walk(part)

    for crd in crds().values():
        yield from walk(crd["spec"]["versions"][0]["schema"])


CASES = {**BROKEN, **dict(unions())}


def test_every_rule_across_fields_has_an_object_that_breaks_it() -> None:
    heads = tuple(CASES)
    uncovered = [message for message in rules() if not any(head in message for head in heads)]
    assert uncovered == []


@pytest.mark.parametrize("head", CASES)
def test_a_broken_rule_is_told_alike(head: str, trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    manifest = CASES[head]
    [found] = refusals(manifest)
    assert found.rule == "rule"
    assert head in found.text
    told = refusal(trimtab_crds, kube_namespace, manifest)
    assert head in told
    assert spelt(found.at) in told or spelt(found.at[:-1]) in told, "the server names the object around a field"


def refusal(plane: ControlPlane, namespace: str, manifest: Manifest) -> str:
    """What the API server says against an object; empty when it would take it. Nothing is stored."""
    path = f"/apis/trimtab.dev/v1alpha1/namespaces/{namespace}/{PLURALS[manifest['kind']]}"
    body = json.dumps(manifest).encode()
    try:
        plane.rest._send("POST", f"{path}?dryRun=All&fieldValidation=Strict", json.loads(body))
    except KubeApiError as error:
        if error.status not in _REFUSED:
            raise
        return str(error)
    return ""


# -- every field, in turn, with what should not be there --


def objects() -> dict[str, Manifest]:
    """One of each example, and one with everything that no example has."""
    found = {}
    for file in EXAMPLES:
        for document in documents(str(file)):
            found[f"{file.stem}/{document.data['kind']}/{document.data['metadata']['name']}"] = document.data
    found["auth"] = asking(bearerToken=ENTRY, tls={"certificate": ENTRY, "key": ENTRY}, headers=[HEADER])
    found["pulsar"] = pulsar(oauth2=OAUTH2)
    return found


def first_of_their_kind(whole: Mapping[str, Manifest]) -> dict[str, list[tuple[Any, ...]]]:
    """Places in each object that no object before has: the same field needs no second look."""
    seen, chosen = set[Any](), dict[str, list[tuple[Any, ...]]]()
    for name, manifest in whole.items():
        for at in places(manifest["spec"]):
            mark = (manifest["kind"], *("*" if isinstance(step, int) else step for step in at))
            if mark not in seen:
                seen.add(mark)
                chosen.setdefault(name, []).append(at)
    return chosen


OBJECTS = objects()
ODD: tuple[Any, ...] = ("", "odd value", -1, 0, 1.5, 10**9, True, None, [], {}, ["x", "x"], {"odd": "x"}, "0s", "1h")


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*at, key))


def mutants(name: str) -> Iterator[tuple[str, Manifest]]:
    """The same object with one thing changed, left out, or added."""
    manifest = OBJECTS[name]
    for at in PLACES[name]:
        for odd in ODD:
            yield f"{spelt(at)} = {odd!r}", put(manifest, at, odd)
        if isinstance(at[-1], str):
            yield f"{spelt(at)} left out", put(manifest, at, ...)
            yield f"{spelt(at)} beside an unknown key", put(manifest, (*at[:-1], "unknownKey"), 1)


def put(manifest: Manifest, at: tuple[Any, ...], value: Any) -> Manifest:
    changed = copy.deepcopy(manifest)
    part = changed["spec"]
    for step in at[:-1]:
        part = part[step]
    if value is ...:
        del part[at[-1]]
    else:
        part[at[-1]] = value
    return changed


def only_the_operator_refuses(found: list[Found]) -> bool:
    """Lengths of 0 s and unknown time zones: the CRD has no words for these, and the policy becomes `InvalidPolicy`."""
    stricter = ("must be longer than 0s", "is not known: write one of the IANA names")
    return bool(found) and all(any(words in one.text for words in stricter) for one in found)


PLACES = first_of_their_kind(OBJECTS)


@pytest.mark.parametrize("name", PLACES)
def test_whatever_a_field_holds_both_judge_it_alike(name: str, trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    differ, seen = [], 0
    for told, mutant in mutants(name):
        seen += 1
        found = list(refusals(mutant))
        ours = [f"{spelt(one.at)}: {one.text}" for one in found]
        theirs = refusal(trimtab_crds, kube_namespace, mutant)
        if bool(ours) != bool(theirs) and not only_the_operator_refuses(found):
            differ.append(f"{told}: lint says {ours or 'fine'}, the API server {theirs or 'fine'}")
    assert seen
    assert differ == []


@pytest.mark.parametrize("odd", ["", "Main", "a_b", "a" * 254, "-a", "a."])
def test_names_are_judged_alike(odd: str, trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    manifest = policy(odd)
    assert list(refusals(manifest))
    assert refusal(trimtab_crds, kube_namespace, manifest)


@pytest.mark.parametrize("scalar", ["22:00", "1.25e9", "1e3", "0x10", "yes", "1_000", "2026-01-01", "~", "012", "'7'"])
def test_scalars_mean_what_they_mean_to_kubectl(
    scalar: str, trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path
) -> None:
    """A ConfigMap takes what it is given: kubectl refuses all but texts, so its JSON shows how it read the rest."""
    file = tmp_path / "scalar.yaml"
    file.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata: {{a: {scalar}}}\n")
    [document] = documents(str(file))
    options = ("--dry-run=client", "--validate=false", "-o", "yaml", "-n", kube_namespace)
    theirs = yaml.safe_load(trimtab_crds.kubectl("create", *options, "-f", str(file)))["data"]["a"]
    ours = document.data["data"]["a"]
    assert (ours if isinstance(ours, (bool, str)) or ours is None else float(ours)) == (
        theirs if isinstance(theirs, (bool, str)) or theirs is None else float(theirs)
    )
