"""Rules of `trimtab lint` that the API server does not check: overlaps, patterns, and risky settings.

Each rule stands for a mistake that can unbalance a cluster. Facts that are only good to know are notices.
`trimtab.dev/lint-ignore: "rule, rule"` on an object silences rules there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trimtab_operator.cli.lint.files import At, Document, Finding, Found, Level
from trimtab_operator.loop.schedule import opening
from trimtab_operator.resources.common import WindowKind
from trimtab_operator.resources.policy import BalancingPolicySpec, BrokerSelector, Mode
from trimtab_operator.resources.urls import FLAG, AllowedUrls, RefusedUrlError
from trimtab_strategies.filters.patterns import problem
from trimtab_strategies.model import counted, some
from trimtab_strategies.params import Compatibility, seconds
from trimtab_strategies.registry import PLACEMENTS, SHEDDERS, SPLITTERS


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
        """Its Kubernetes namespace; empty if the file has none."""
        return str(self.document.data["metadata"].get("namespace") or "")

    @property
    def spec(self) -> Mapping[str, Any]:
        """Spec of the object, as written."""
        spec: Mapping[str, Any] = self.document.data["spec"]
        return spec

    def found(self, level: Level, rule: str, at: At, text: str) -> Finding:
        """A finding in it."""
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
    """A finding for each policy that shares brokers with an earlier one. It names the first such policy."""
    for k, younger in enumerate(policies):
        for older in policies[:k]:
            if older.namespace != younger.namespace or older.subject == younger.subject:
                continue
            if shared := _shared(older.spec.get("brokers") or {}, younger.spec.get("brokers") or {}):
                at: At = ("spec", "brokers") if "brokers" in younger.spec else ("spec",)
                text = (
                    f"selects {shared} {older.subject} in {_place(older)}: the operator would refuse the younger one; "
                    "select others, or keep one policy"
                )
                yield younger.found(Level.WARNING, "overlapping-policies", at, text)
                break


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Text that names the brokers two selectors share; empty if they share none, or that is unknown."""
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
    """Weights that no policy of their Kubernetes namespace uses. Silent where no such policy is checked."""
    for broker in brokers:
        shedders = {policy.spec["shedder"]["type"] for policy in policies if policy.namespace == broker.namespace}
        if broker.spec.get("weight") is not None and shedders and "WeightedBalancer" not in shedders:
            text = "is used only by shedder WeightedBalancer, which no policy here has"
            yield broker.found(Level.NOTICE, "weight-unheeded", ("spec", "weight"), text)


def _nothing_to_balance(policy: LintedObject, beside: Sequence[LintedObject]) -> Iterator[Finding]:
    """Why a policy without a Pulsar cluster has no bundles, or no brokers. beside: objects of its namespace."""
    if not any(one.kind in {"TopicNamespace", "Bundle"} for one in beside):
        text = (
            "has no pulsar, and no TopicNamespace beside it declares bundles: it has nothing to balance. For Pulsar's "
            "brokers, write pulsar.adminUrl; for others, check their objects in the same run"
        )
        yield policy.found(Level.WARNING, "nothing-to-balance", ("spec",), text)
    declared = {str(one.document.data["metadata"].get("name")) for one in beside if one.kind == "Broker"}
    names = (policy.spec.get("brokers") or {}).get("names") or ()
    if declared and (missing := [name for name in names if name not in declared]):
        text = f"{some(missing)} is none of the Brokers here: while one does not exist, nothing moves"
        yield policy.found(Level.WARNING, "unknown-broker", ("spec", "brokers", "names"), text)


_PROMETHEUS: At = ("spec", "source", "prometheus")

_LIMITS: At = ("spec", "limits")

_HALF = 50
"""Percent: lower bound of minTrustedBrokersPercent and upper bound of maxLostBrokersPercent for a policy that acts."""

_TIME_TO_APPROVE = 300.0
"""Minimum seconds that a person needs to see a proposal and to decide."""

_SERVICE = r"http://[^/:]+\.svc(\.cluster\.local)?[:/]?"
"""URL of a server inside the cluster."""


@dataclass(frozen=True, slots=True)
class LintContext:
    """Where a policy will run. urls: allowed URLs. scrape: scrape interval in seconds. now: epoch seconds."""

    urls: AllowedUrls
    scrape: float
    now: float


@dataclass(frozen=True, slots=True)
class LintedPolicy:
    """A policy that the API server would accept. raw: its spec as written, without defaults."""

    spec: BalancingPolicySpec
    raw: Mapping[str, Any]
    namespace: str
    context: LintContext

    @property
    def acts(self) -> bool:
        """Whether it can move bundles, by itself or approved."""
        return self.spec.mode is not Mode.DRY_RUN


Rule = Callable[[LintedPolicy], Iterator[Found]]


def _warn(rule: str, at: At, text: str) -> Found:
    return Found(Level.WARNING, rule, at, text)


def _note(rule: str, at: At, text: str) -> Found:
    return Found(Level.NOTICE, rule, at, text)


def _unlimited(policy: LintedPolicy) -> Iterator[Found]:
    limits = policy.spec.limits
    if policy.spec.mode is Mode.AUTO and "limits" not in policy.raw:
        yield _warn(
            "auto-without-limits",
            ("spec", "mode"),
            "mode is Auto and spec.limits is left out, which allows twice as many moves in a cycle as there are "
            f"brokers, and {limits.max_moves_per_hour} in an hour: write limits that suit your clients",
        )


def _hour_below_cycle(policy: LintedPolicy) -> Iterator[Found]:
    limits = policy.spec.limits
    if limits.max_moves_per_cycle is not None and limits.max_moves_per_hour < limits.max_moves_per_cycle:
        yield _note(
            "caps",
            (*_LIMITS, "maxMovesPerHour"),
            f"is {limits.max_moves_per_hour}, below maxMovesPerCycle ({limits.max_moves_per_cycle}): one cycle may use "
            "up the hour's moves, and overload then waits",
        )


def _bouncing(policy: LintedPolicy) -> Iterator[Found]:
    cool_down, interval = seconds(policy.spec.limits.cool_down), seconds(policy.spec.interval)
    if cool_down < 2 * interval:
        yield _warn(
            "short-cool-down",
            (*_LIMITS, "coolDown"),
            f"is {policy.spec.limits.cool_down}, less than two intervals ({policy.spec.interval}): a bundle may "
            "move again before its load on the new broker is measured; write 30m",
        )


def _few_trusted_brokers(policy: LintedPolicy) -> Iterator[Found]:
    limits = policy.spec.limits
    if policy.acts and limits.min_trusted_brokers_percent < _HALF:
        yield _warn(
            "acts-blindly",
            (*_LIMITS, "minTrustedBrokersPercent"),
            f"is {limits.min_trusted_brokers_percent:g}: it would move bundles while most brokers are unknown; "
            f"write {_HALF} or more (75)",
        )
    if policy.acts and limits.max_lost_brokers_percent > _HALF:
        yield _warn(
            "no-brake",
            (*_LIMITS, "maxLostBrokersPercent"),
            f"is {limits.max_lost_brokers_percent:g}: with most brokers lost, the rest would get all their bundles; "
            f"write {_HALF} or less (40)",
        )


def _scrapes(policy: LintedPolicy) -> Iterator[Found]:
    source, scrape = policy.spec.source.prometheus, policy.context.scrape
    if seconds(policy.spec.interval) < scrape:
        yield _warn(
            "interval-below-scrape",
            ("spec", "interval"),
            f"is {policy.spec.interval}, but brokers are scraped every {scrape:g} s: most cycles would have no "
            "new data; write a longer one, or give --scrape-interval",
        )
    if seconds(source.window) < 2 * scrape:
        yield _warn(
            "window-below-scrapes",
            (*_PROMETHEUS, "window"),
            f"is {source.window}, less than two scrapes ({scrape:g} s each): rates would be missing, and without data "
            "nothing moves",
        )


def _addresses(policy: LintedPolicy) -> Iterator[Found]:
    spec = policy.spec
    auth = spec.source.prometheus.auth
    asked = [((*_PROMETHEUS, "url"), spec.source.prometheus.url, auth is not None and auth.secret)]
    if spec.pulsar is not None:
        pulsar = spec.pulsar.auth
        asked.append((("spec", "pulsar", "adminUrl"), spec.pulsar.admin_url, pulsar is not None and pulsar.secret))
    for at, url, secret in asked:
        try:
            policy.context.urls.admit(url, policy.namespace or "default", secrets=secret)
        except RefusedUrlError as error:
            text = f"{error}; if the operator allows it, give lint the same {FLAG}"
            yield _warn("url-not-allowed", at, text)
        if secret and url.startswith("http://"):
            text = f"is {url}, and credentials are sent there unencrypted: use https"
            near = re.match(_SERVICE, url) is not None
            yield (_note if near else _warn)("credentials-in-clear", at, text)


def _windows(policy: LintedPolicy) -> Iterator[Found]:
    windows, at = policy.spec.windows, ("spec", "windows")
    if not windows:
        return
    now = opening(windows, policy.context.now)
    if not now.open and now.until is None:
        yield _warn("never-open", at, "never allow it to act: each Allow is covered by a Deny")
    if policy.spec.mode is not Mode.AUTO:
        said = f"apply only to mode Auto, and mode is {policy.spec.mode}"
        yield _note("windows-without-auto", at, f"{said}: in this mode a person decides when")
    for k, window in enumerate(windows):
        if window.kind is WindowKind.ALLOW and seconds(window.duration) < 2 * seconds(policy.spec.interval):
            text = f"is {window.duration}, less than two intervals ({policy.spec.interval}): it may open for no cycle"
            yield _warn("short-window", (*at, k, "duration"), text)


def _approval(policy: LintedPolicy) -> Iterator[Found]:
    expires = seconds(policy.spec.approval.expires_after)
    if policy.spec.mode is Mode.APPROVE and expires < _TIME_TO_APPROVE:
        text = f"is {policy.spec.approval.expires_after}: too short for a person to decide; write 5m or more (15m)"
        yield _warn("approval-too-short", ("spec", "approval", "expiresAfter"), text)


def _dry_run(policy: LintedPolicy) -> Iterator[Found]:
    if not policy.acts:
        at: At = ("spec", "mode") if "mode" in policy.raw else ("spec",)
        yield _note("dry-run", at, "mode is DryRun: it moves nothing, and shows its plan; Approve and Auto move")


def _paused(policy: LintedPolicy) -> Iterator[Found]:
    if policy.spec.paused:
        yield _note("paused", ("spec", "paused"), "is true: it decides nothing until this is changed")


def _splits(policy: LintedPolicy) -> Iterator[Found]:
    spec = policy.spec
    if spec.split is None:
        return
    rule, _ = spec.split.chosen()
    if spec.limits.max_splits_per_cycle == 0:
        yield _warn("never-splits", (*_LIMITS, "maxSplitsPerCycle"), f"is 0: {rule} is never asked; leave one out")
    if rule == "WeightedSplitter" and spec.source.prometheus.hot_bundles == 0:
        text = "is 0: WeightedSplitter needs the load of topics, and would see none; write 10 or more"
        yield _warn("never-splits", (*_PROMETHEUS, "hotBundles"), text)


def _defects(policy: LintedPolicy) -> Iterator[Found]:
    spec = policy.spec
    parts = (
        ("shedder", spec.shedder, SHEDDERS),
        ("placement", spec.placement, PLACEMENTS),
        ("split", spec.split, SPLITTERS),
    )
    for part, union, table in parts:
        if union is None or not policy.acts:
            continue
        name, params = union.chosen()
        defects = table[name].defects
        if defects and getattr(params, "compatibility", None) is Compatibility.JAVA:
            yield _note(
                "known-defects",
                ("spec", part, "type"),
                f"{name} decides as Pulsar's, with {counted(len(defects), 'known defect')}, first: "
                f"{defects[0].original} `compatibility: Corrected` fixes that (docs/strategies.md)",
            )


RULES: tuple[Rule, ...] = (
    _unlimited,
    _hour_below_cycle,
    _bouncing,
    _few_trusted_brokers,
    _scrapes,
    _addresses,
    _windows,
    _approval,
    _dry_run,
    _paused,
    _splits,
    _defects,
)
"""The rules for policies, in the order of their findings."""


def policy_findings(policy: LintedPolicy) -> Iterator[Found]:
    """Findings of all rules on a policy."""
    for rule in RULES:
        yield from rule(policy)
