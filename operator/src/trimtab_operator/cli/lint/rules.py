"""Rules of `trimtab lint` about a policy that the API server would accept: settings that are risky or have no effect.

A warning is about a mistake that can unbalance a cluster. A notice is about a fact that is only good to know.
The annotation `trimtab.dev/lint-ignore: "rule, rule"` on an object silences the named rules for that object.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cli.lint.files import At, Found, Level
from trimtab_operator.loop.schedule import opening
from trimtab_operator.resources.common import WindowKind
from trimtab_operator.resources.policy import BalancingPolicySpec, Mode
from trimtab_operator.resources.urls import FLAG, AllowedUrls, RefusedUrlError
from trimtab_strategies.model import counted
from trimtab_strategies.params import Compatibility, seconds
from trimtab_strategies.registry import PLACEMENTS, SHEDDERS, SPLITTERS
from trimtab_strategies.shedding.trim.samples import SampleRing

_PROMETHEUS: At = ("spec", "source", "prometheus")

_LIMITS: At = ("spec", "limits")

_HALF = 50
"""Percent. An acting policy with a lower minTrustedBrokersPercent or a higher maxLostBrokersPercent gets a warning."""

_TIME_TO_APPROVE = 300.0
"""Minimum seconds that a person needs to see a proposal and to decide."""

_LONGEST = 240.0
"""Longest interval in seconds with which Trim can always have enough recent samples."""

_SERVICE = r"http://[^/:]+\.svc(\.cluster\.local)?[:/]?"
"""Pattern for the URL of a server inside the cluster."""


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
        """Whether the policy can move bundles, by itself or after approval."""
        return self.spec.mode is not Mode.DRY_RUN


Rule = Callable[[LintedPolicy], Iterator[Found]]


def _warn(rule: str, at: At, text: str) -> Found:
    return Found(Level.WARNING, rule, at, text)


def _note(rule: str, at: At, text: str) -> Found:
    return Found(Level.NOTICE, rule, at, text)


def _unlimited(policy: LintedPolicy) -> Iterator[Found]:
    if policy.spec.mode is Mode.AUTO and "limits" not in policy.raw:
        yield _warn(
            "auto-without-limits",
            ("spec", "mode"),
            "is Auto and spec.limits is left out, which allows twice as many moves in a cycle as there are "
            "brokers, and 200 or more in an hour: write limits that suit your clients",
        )


def _hour_below_cycle(policy: LintedPolicy) -> Iterator[Found]:
    limits = policy.spec.limits
    if (limits.max_moves_per_hour or math.inf) < (limits.max_moves_per_cycle or 0):
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


def _rare_cycles(policy: LintedPolicy) -> Iterator[Found]:
    interval = policy.spec.interval
    if policy.spec.shedder.chosen()[0] == "Trim" and seconds(interval) > _LONGEST:
        yield _warn(
            "rare-cycles",
            ("spec", "interval"),
            f"is {interval}: Trim needs eight cycles in {SampleRing().span / 60:g} minutes, and with fewer a small "
            f"imbalance lasts forever; write {_LONGEST / 60:g}m or less (60s)",
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
    if policy.spec.mode is not Mode.AUTO and policy.spec.approval.auto is None:
        said = f"apply only to mode Auto and to approval.auto, and mode is {policy.spec.mode}"
        yield _note("windows-without-auto", at, f"{said}: in this mode a person decides when")
    for k, window in enumerate(windows):
        if window.kind is WindowKind.ALLOW and seconds(window.duration) < 2 * seconds(policy.spec.interval):
            text = f"is {window.duration}, less than two intervals ({policy.spec.interval}): it may contain no cycle"
            yield _warn("short-window", (*at, k, "duration"), text)


def _approval(policy: LintedPolicy) -> Iterator[Found]:
    expires = seconds(policy.spec.approval.expires_after)
    if policy.spec.mode is Mode.APPROVE and expires < _TIME_TO_APPROVE:
        text = f"is {policy.spec.approval.expires_after}: too short for a person to decide; write 5m or more (15m)"
        yield _warn("approval-too-short", ("spec", "approval", "expiresAfter"), text)
    if (auto := policy.spec.approval.auto) is None:
        return
    if policy.spec.mode is not Mode.APPROVE:
        text = f"applies only to mode Approve, and mode is {policy.spec.mode}"
        yield _note("auto-approval-without-approve", ("spec", "approval", "auto"), text)
    shedder, _ = policy.spec.shedder.chosen()
    if auto.trusted_predictions and shedder != "Trim":
        text = f"is true, and {shedder} makes no predictions: nothing is ever approved; set it to false"
        yield _warn("auto-approval-never", ("spec", "approval", "auto", "trustedPredictions"), text)


def _dry_run(policy: LintedPolicy) -> Iterator[Found]:
    if policy.spec.mode is Mode.DRY_RUN:
        at, begin = (("spec", "mode"), "is") if "mode" in policy.raw else (("spec",), "has mode")
        yield _note("dry-run", at, f"{begin} DryRun: it balances nothing, and shows its plan; Approve and Auto move")


def _paused(policy: LintedPolicy) -> Iterator[Found]:
    if policy.spec.paused:
        yield _note("paused", ("spec", "paused"), "is true: it decides nothing until this is changed")


def _splits(policy: LintedPolicy) -> Iterator[Found]:
    spec = policy.spec
    if spec.split is None:
        return
    rule, _ = spec.split.chosen()
    if spec.limits.max_splits_per_cycle == 0:
        yield _warn("never-splits", (*_LIMITS, "maxSplitsPerCycle"), f"is 0: {rule} never splits; leave one out")
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
    _rare_cycles,
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
