"""Rules of `trimtab lint` that the API server can't judge: overlaps, patterns, and settings that cost sleep.

A rule is here because it cost a cluster its balance, not for taste. What is only to be known is a notice.
`trimtab.dev/lint-ignore: "rule, rule"` on an object silences rules there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trimtab_operator.cli.lint.files import At, Document
from trimtab_operator.cli.lint.findings import Finding, Found, Level
from trimtab_operator.loop.schedule import opening
from trimtab_operator.resources.common import WindowKind, seconds
from trimtab_operator.resources.policy import BalancingPolicySpec, BrokerSelector, Mode
from trimtab_operator.resources.urls import FLAG, AllowedUrls, RefusedUrlError
from trimtab_strategies.filters.patterns import problem
from trimtab_strategies.model import counted
from trimtab_strategies.params import Compatibility
from trimtab_strategies.registry import PLACEMENTS, SHEDDERS, SPLITTERS


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


_PROMETHEUS: At = ("spec", "source", "prometheus")

_LIMITS: At = ("spec", "limits")

_HALF = 50
"""Percent of the brokers of which a policy that acts should know, and that may be lost, at least and at most."""

_A_LOOK = 300.0
"""Seconds that a person takes at least to see a proposal and to decide."""

_SERVICE = r"http://[^/:]+\.svc(\.cluster\.local)?[:/]?"
"""A server that is reached without leaving the cluster."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of where a policy will run. urls: what its operator may ask. scrape: seconds between two scrapes.
    now: epoch seconds.
    """

    urls: AllowedUrls
    scrape: float
    now: float


@dataclass(frozen=True, slots=True)
class Written:
    """A policy that the API server would take. raw: its spec as written, where what is left out is not there."""

    spec: BalancingPolicySpec
    raw: Mapping[str, Any]
    namespace: str
    around: Surroundings

    @property
    def acts(self) -> bool:
        """Whether it moves anything, by itself or approved."""
        return self.spec.mode is not Mode.DRY_RUN


Rule = Callable[[Written], Iterator[Found]]


def _warn(rule: str, at: At, text: str) -> Found:
    return Found(Level.WARNING, rule, at, text)


def _note(rule: str, at: At, text: str) -> Found:
    return Found(Level.NOTICE, rule, at, text)


def _unlimited(policy: Written) -> Iterator[Found]:
    limits = policy.spec.limits
    if policy.spec.mode is Mode.AUTO and "limits" not in policy.raw:
        yield _warn(
            "auto-without-limits",
            ("spec", "mode"),
            f"mode is Auto and spec.limits is left out, which allows {limits.max_moves_per_cycle} moves in a cycle and "
            f"{limits.max_moves_per_hour} in an hour: write limits that your clients can bear",
        )


def _hour_below_cycle(policy: Written) -> Iterator[Found]:
    limits = policy.spec.limits
    if limits.max_moves_per_hour < limits.max_moves_per_cycle:
        yield _note(
            "caps",
            (*_LIMITS, "maxMovesPerHour"),
            f"is {limits.max_moves_per_hour}, below maxMovesPerCycle ({limits.max_moves_per_cycle}): one cycle may use "
            "up the hour, and what overloads then waits",
        )


def _bouncing(policy: Written) -> Iterator[Found]:
    cool_down, interval = seconds(policy.spec.limits.cool_down), seconds(policy.spec.interval)
    if cool_down < 2 * interval:
        yield _warn(
            "short-cool-down",
            (*_LIMITS, "coolDown"),
            f"is {policy.spec.limits.cool_down}, less than two intervals ({policy.spec.interval}): a bundle would be "
            "moved again before its load is seen where it is now; write 30m",
        )


def _half_blind(policy: Written) -> Iterator[Found]:
    limits = policy.spec.limits
    if policy.acts and limits.min_trusted_brokers < _HALF:
        yield _warn(
            "acts-blindly",
            (*_LIMITS, "minTrustedBrokers"),
            f"is {limits.min_trusted_brokers:g}: it would move bundles while most brokers are unknown; "
            f"write {_HALF} or more (75)",
        )
    if policy.acts and limits.max_lost_brokers > _HALF:
        yield _warn(
            "no-brake",
            (*_LIMITS, "maxLostBrokers"),
            f"is {limits.max_lost_brokers:g}: with most brokers gone their bundles would be heaped on the rest; "
            f"write {_HALF} or less (40)",
        )


def _scrapes(policy: Written) -> Iterator[Found]:
    source, scrape = policy.spec.source.prometheus, policy.around.scrape
    if seconds(policy.spec.interval) < scrape:
        yield _warn(
            "interval-below-scrape",
            ("spec", "interval"),
            f"is {policy.spec.interval}, but brokers are scraped every {scrape:g} s: most cycles would decide on what "
            "is known already; write a longer one, or give --scrape-interval",
        )
    if seconds(source.window) < 2 * scrape:
        yield _warn(
            "window-below-scrapes",
            (*_PROMETHEUS, "window"),
            f"is {source.window}, less than two scrapes ({scrape:g} s each): rates would be missing, and without data "
            "nothing moves",
        )


def _addresses(policy: Written) -> Iterator[Found]:
    spec = policy.spec
    auth = spec.source.prometheus.auth
    asked = [((*_PROMETHEUS, "url"), spec.source.prometheus.url, auth is not None and auth.secret)]
    if spec.pulsar is not None:
        pulsar = spec.pulsar.auth
        asked.append((("spec", "pulsar", "adminUrl"), spec.pulsar.admin_url, pulsar is not None and pulsar.secret))
    for at, url, secret in asked:
        try:
            policy.around.urls.admit(url, policy.namespace or "default", secrets=secret)
        except RefusedUrlError as error:
            told = f"{error}; if its operator allows it, tell this: {FLAG}"
            yield _warn("url-not-allowed", at, told)
        if secret and url.startswith("http://"):
            told = f"is {url}, and credentials are sent there unencrypted: use https"
            near = re.match(_SERVICE, url) is not None
            yield (_note if near else _warn)("credentials-in-clear", at, told)


def _windows(policy: Written) -> Iterator[Found]:
    windows, at = policy.spec.windows, ("spec", "windows")
    if not windows:
        return
    now = opening(windows, policy.around.now)
    if not now.open and now.until is None:
        yield _warn("never-open", at, "never let it act: each Allow is covered by a Deny")
    if policy.spec.mode is not Mode.AUTO:
        said = f"bind mode Auto alone, and mode is {policy.spec.mode}"
        yield _note("windows-without-auto", at, f"{said}: who approves decides when")
    for k, window in enumerate(windows):
        if window.kind is WindowKind.ALLOW and seconds(window.duration) < 2 * seconds(policy.spec.interval):
            text = f"is {window.duration}, less than two intervals ({policy.spec.interval}): it may open for no cycle"
            yield _warn("short-window", (*at, k, "duration"), text)


def _approval(policy: Written) -> Iterator[Found]:
    expires = seconds(policy.spec.approval.expires_after)
    if policy.spec.mode is Mode.APPROVE and expires < _A_LOOK:
        text = f"is {policy.spec.approval.expires_after}: a person has hardly looked by then; write 5m or more (15m)"
        yield _warn("approval-too-short", ("spec", "approval", "expiresAfter"), text)


def _paused(policy: Written) -> Iterator[Found]:
    if policy.spec.paused:
        yield _note("paused", ("spec", "paused"), "is true: it decides nothing until this is edited")


def _splits(policy: Written) -> Iterator[Found]:
    spec = policy.spec
    if spec.split is None:
        return
    rule, _ = spec.split.chosen()
    if spec.limits.max_splits_per_cycle == 0:
        yield _warn("never-splits", (*_LIMITS, "maxSplitsPerCycle"), f"is 0: {rule} is not even asked; leave one out")
    if rule == "WeightedSplitter" and spec.source.prometheus.hot_bundles == 0:
        text = "is 0: WeightedSplitter divides by the load of topics, and would see none; write 10 or more"
        yield _warn("never-splits", (*_PROMETHEUS, "hotBundles"), text)


def _defects(policy: Written) -> Iterator[Found]:
    if not policy.acts:
        return
    parts = (("shedder", policy.spec.shedder, SHEDDERS), ("placement", policy.spec.placement, PLACEMENTS))
    more = (("split", policy.spec.split, SPLITTERS),) if policy.spec.split is not None else ()
    for part, union, table in (*parts, *more):
        assert union is not None
        name, params = union.chosen()
        defects = table[name].defects
        if defects and getattr(params, "compatibility", None) is Compatibility.JAVA:
            yield _note(
                "known-defects",
                ("spec", part, "type"),
                f"{name} decides as Pulsar's, with {counted(len(defects), 'known defect')}, first: "
                f"{defects[0].original} `compatibility: corrected` mends that (docs/strategies.md)",
            )


RULES: tuple[Rule, ...] = (
    _unlimited,
    _hour_below_cycle,
    _bouncing,
    _half_blind,
    _scrapes,
    _addresses,
    _windows,
    _approval,
    _paused,
    _splits,
    _defects,
)
"""In the order in which they are told."""


def advice(policy: Written) -> Iterator[Found]:
    """What all rules say of a policy."""
    for rule in RULES:
        yield from rule(policy)
