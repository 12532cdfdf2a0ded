"""What is wrong with objects beside each other, or with one that the API server can't judge: patterns, overlaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trimtab_operator.cli.lint_findings import Finding, Found, Level
from trimtab_operator.cli.manifest_files import At, Document
from trimtab_operator.resources.policy import BrokerSelector
from trimtab_strategies.patterns import problem


@dataclass(frozen=True, slots=True)
class Checked:
    """An object that the API server would take. subject: ``Kind/name``."""

    document: Document
    subject: str

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.document.data["kind"])

    @property
    def namespace(self) -> str:
        """Its Kubernetes namespace; empty where the file does not say."""
        return str(self.document.data["metadata"].get("namespace") or "")

    @property
    def spec(self) -> Mapping[str, Any]:
        """Its spec, as written."""
        spec: Mapping[str, Any] = self.document.data["spec"]
        return spec

    def found(self, level: Level, rule: str, at: At, text: str) -> Finding:
        """A finding in it."""
        return Finding.of(self.document, self.subject, Found(level, rule, at, text))


def together(objects: Sequence[Checked]) -> Iterator[Finding]:
    """All findings of this module."""
    yield from _twice(objects)
    yield from _overlapping([o for o in objects if o.kind == "BalancingPolicy"])
    spaces = [o for o in objects if o.kind == "TopicNamespace"]
    yield from _same_namespace(spaces)
    for space in spaces:
        yield from _patterns(space)
    yield from _overlapping_bundles([o for o in objects if o.kind == "Bundle"])
    yield from _heedless(objects)


def _place(checked: Checked) -> str:
    return f"{checked.document.file}:{checked.document.line(())}"


def _twice(objects: Sequence[Checked]) -> Iterator[Finding]:
    seen: dict[tuple[str, str], Checked] = {}
    for one in objects:
        first = seen.setdefault((one.namespace, one.subject), one)
        if first is not one:
            text = f"is in {_place(first)} already: the one that is applied last counts; leave one out"
            yield one.found(Level.WARNING, "twice", ("metadata", "name"), text)


def _overlapping(policies: Sequence[Checked]) -> Iterator[Finding]:
    """Each policy is told of the first before it that it shares brokers with; a third says no more than the second."""
    for k, younger in enumerate(policies):
        for older in policies[:k]:
            if older.namespace != younger.namespace or older.subject == younger.subject:
                continue
            if shared := _shared(older.spec.get("brokers") or {}, younger.spec.get("brokers") or {}):
                at: At = ("spec", "brokers") if "brokers" in younger.spec else ("spec",)
                text = (
                    f"selects {shared} {older.subject} in {_place(older)}: the younger of the two would be refused; "
                    "select others, or keep one policy"
                )
                yield younger.found(Level.WARNING, "overlapping-policies", at, text)
                break


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Which brokers two selectors both select, in words; empty where that can't be said, or they share none."""
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


def _same_namespace(spaces: Sequence[Checked]) -> Iterator[Finding]:
    seen: dict[tuple[str, str, str], Checked] = {}
    for space in spaces:
        full = f"{space.spec['tenant']}/{space.spec['name']}"
        first = seen.setdefault((space.namespace, *full.split("/", 1)), space)  # type: ignore[arg-type]
        if first is not space and first.subject != space.subject:
            text = f"{full} is cut by {first.subject} in {_place(first)} already; leave one out"
            yield space.found(Level.WARNING, "same-topic-namespace", ("spec", "name"), text)


def _patterns(space: Checked) -> Iterator[Finding]:
    isolation = space.spec.get("isolation") or {}
    for part in ("primary", "secondary"):
        for k, pattern in enumerate(isolation.get(part) or ()):
            if told := problem(pattern):
                text = f"pattern {pattern!r} {told}; until then it matches nobody"
                yield space.found(Level.ERROR, "pattern", ("spec", "isolation", part, k), text)


def _overlapping_bundles(bundles: Sequence[Checked]) -> Iterator[Finding]:
    for one, other in combinations(bundles, 2):
        if (one.namespace, one.spec["topicNamespace"]) == (other.namespace, other.spec["topicNamespace"]):
            mine, theirs = one.spec["range"], other.spec["range"]
            if one.subject != other.subject and mine["lower"] < theirs["upper"] and theirs["lower"] < mine["upper"]:
                text = f"overlaps the range of {one.subject} in {_place(one)}: a topic would belong to both"
                yield other.found(Level.WARNING, "overlapping-bundles", ("spec", "range"), text)


def _heedless(objects: Sequence[Checked]) -> Iterator[Finding]:
    """Weights that nobody heeds, where the policies are at hand."""
    policies = [o for o in objects if o.kind == "BalancingPolicy"]
    for broker in (o for o in objects if o.kind == "Broker" and o.spec.get("weight") is not None):
        near = [policy for policy in policies if policy.namespace == broker.namespace]
        if near and all(policy.spec["shedder"]["type"] != "WeightedBalancer" for policy in near):
            text = "is heeded by shedder WeightedBalancer alone, and no policy here has it"
            yield broker.found(Level.NOTICE, "weight-unheeded", ("spec", "weight"), text)
