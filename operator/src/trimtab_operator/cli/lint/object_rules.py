"""Rules of `trimtab lint` about several objects, or objects other than policies: duplicates, overlaps, patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trimtab_operator.cli.lint.files import At, Document, Finding, Found, Level
from trimtab_operator.resources.policy import BrokerSelector
from trimtab_strategies.filters.patterns import problem
from trimtab_strategies.model import some


@dataclass(frozen=True, slots=True)
class LintedObject:
    """An object that the API server would accept. subject: ``Kind/name``."""

    document: Document
    subject: str

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.document.data["kind"])

    @property
    def namespace(self) -> str:
        """Kubernetes namespace of the object; empty if the file names none."""
        return str(self.document.data["metadata"].get("namespace") or "")

    @property
    def spec(self) -> Mapping[str, Any]:
        """Spec of the object, as written."""
        spec: Mapping[str, Any] = self.document.data["spec"]
        return spec

    def found(self, level: Level, rule: str, at: At, text: str) -> Finding:
        """A finding in this object."""
        return Finding.of(self.document, self.subject, Found(level, rule, at, text))


def object_findings(objects: Sequence[LintedObject]) -> Iterator[Finding]:
    """Findings that concern several objects, or objects other than policies."""
    spaces = [o for o in objects if o.kind == "TopicNamespace"]
    policies = [o for o in objects if o.kind == "BalancingPolicy"]
    yield from _twice(objects)
    yield from _overlapping(policies)
    yield from _same_namespace(spaces)
    for space in spaces:
        yield from _patterns(space)
    yield from _overlapping_bundles([o for o in objects if o.kind == "Bundle"])
    yield from _unused_weights([o for o in objects if o.kind == "Broker"], policies)
    for policy in policies:
        if policy.spec.get("pulsar") is None:
            yield from _nothing_to_balance(policy, [o for o in objects if o.namespace == policy.namespace])


def _place(checked: LintedObject) -> str:
    return f"{checked.document.file}:{checked.document.line(())}"


def _twice(objects: Sequence[LintedObject]) -> Iterator[Finding]:
    seen: dict[tuple[str, str], LintedObject] = {}
    for one in objects:
        first = seen.setdefault((one.namespace, one.subject), one)
        if first is not one:
            text = f"is also in {_place(first)}: the last one applied wins; leave one out"
            yield one.found(Level.WARNING, "twice", ("metadata", "name"), text)


def _overlapping(policies: Sequence[LintedObject]) -> Iterator[Finding]:
    """A finding for each policy that shares brokers with earlier ones. It names the first of the earlier ones."""
    for k, younger in enumerate(policies):
        for older in policies[:k]:
            if older.namespace != younger.namespace or older.subject == younger.subject:
                continue
            if shared := _shared(older.spec.get("brokers") or {}, younger.spec.get("brokers") or {}):
                at: At = ("spec", "brokers") if "brokers" in younger.spec else ("spec",)
                text = (
                    f"selects {shared} {older.subject} in {_place(older)}: the operator would refuse the younger "
                    "policy; select other brokers, or keep one policy"
                )
                yield younger.found(Level.WARNING, "overlapping-policies", at, text)
                break


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Text that names the brokers that two selectors share; empty if they share none, or if that is unknown."""
    first, second = BrokerSelector.model_validate(dict(one)), BrokerSelector.model_validate(dict(other))
    if not any((first.names, first.pod_labels)) or not any((second.names, second.pod_labels)):
        return "brokers of any name, as"
    if first.names is not None and second.names is not None:
        both = [name for name in first.names if name in second.names]
        return f"the same brokers ({', '.join(both[:3])}) as" if both else ""
    if first.pod_labels is not None and second.pod_labels is not None:
        labels = second.pod_labels
        apart = any(labels.get(key, value) != value for key, value in first.pod_labels.items())
        return "" if apart else "the same pods as"
    return ""


def _same_namespace(spaces: Sequence[LintedObject]) -> Iterator[Finding]:
    seen: dict[tuple[str, str], LintedObject] = {}
    for space in spaces:
        full = f"{space.spec['tenant']}/{space.spec['name']}"
        first = seen.setdefault((space.namespace, full), space)
        if first is not space and first.subject != space.subject:
            text = f"{full} is also described by {first.subject} in {_place(first)}; leave one out"
            yield space.found(Level.WARNING, "same-topic-namespace", ("spec", "name"), text)


def _patterns(space: LintedObject) -> Iterator[Finding]:
    isolation = space.spec.get("isolation") or {}
    for part in ("primary", "secondary"):
        for k, pattern in enumerate(isolation.get(part) or ()):
            if why := problem(pattern):
                text = f"pattern {pattern!r} {why}; until then it matches no broker"
                yield space.found(Level.ERROR, "pattern", ("spec", "isolation", part, k), text)


def _overlapping_bundles(bundles: Sequence[LintedObject]) -> Iterator[Finding]:
    for one, other in combinations(bundles, 2):
        if (one.namespace, one.spec["topicNamespace"]) == (other.namespace, other.spec["topicNamespace"]):
            mine, theirs = one.spec["range"], other.spec["range"]
            if one.subject != other.subject and mine["lower"] < theirs["upper"] and theirs["lower"] < mine["upper"]:
                text = f"overlaps the range of {one.subject} in {_place(one)}: a topic would belong to both"
                yield other.found(Level.WARNING, "overlapping-bundles", ("spec", "range"), text)


def _unused_weights(brokers: Sequence[LintedObject], policies: Sequence[LintedObject]) -> Iterator[Finding]:
    """Findings on weights that no policy of their namespace uses. Namespaces without a checked policy are left out."""
    for broker in brokers:
        shedders = {
            (policy.spec.get("shedder") or {}).get("type", "Trim")
            for policy in policies
            if policy.namespace == broker.namespace
        }
        if broker.spec.get("weight") is not None and shedders and "WeightedBalancer" not in shedders:
            text = "is used only by shedder WeightedBalancer, which no policy here has"
            yield broker.found(Level.NOTICE, "weight-unheeded", ("spec", "weight"), text)


def _nothing_to_balance(policy: LintedObject, beside: Sequence[LintedObject]) -> Iterator[Finding]:
    """Findings on a policy without `spec.pulsar`: it has no bundles, or names Brokers that are not declared.

    beside: objects of the policy's namespace.
    """
    if not any(one.kind in {"TopicNamespace", "Bundle"} for one in beside):
        text = (
            "has no pulsar, and no TopicNamespace here declares bundles: it has nothing to balance. For Pulsar's "
            "brokers, write pulsar.adminUrl; for others, check their objects in the same run"
        )
        yield policy.found(Level.WARNING, "nothing-to-balance", ("spec",), text)
    declared = {str(one.document.data["metadata"].get("name")) for one in beside if one.kind == "Broker"}
    names = (policy.spec.get("brokers") or {}).get("names") or ()
    if declared and (missing := [name for name in names if name not in declared]):
        text = f"{some(missing)} is not among the Brokers here: while a named broker does not exist, nothing moves"
        yield policy.found(Level.WARNING, "unknown-broker", ("spec", "brokers", "names"), text)
