"""The queries to Prometheus about brokers, bundles and topics. A user's own queries replace those of the preset.

Queries of bundles and topics are instant queries that aggregate with ``max by``. This fixes the label set, which the
fast parser needs, and duplicate rows (a pod scraped by two jobs) do not add up. Where series are known to exist more
than once, `of_newest` leaves out those whose pod has newer samples in other series. Such a query takes three times as
long, so it is used only there. Brokers are read as raw samples (one query per selector) and as single values (one
query for all). Templates have the selectors of `broker_presets` and one more:

    $topic      the brokers' metrics of topics. Their namespace label may hold Pulsar's namespace, and not that of
                Kubernetes. `topics_in` inserts the pattern of their names
"""

from __future__ import annotations

import math
import re
import string
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Template
from types import MappingProxyType

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import RESOURCES, TIMES, TRAFFIC, USAGE
from trimtab_pipeline.prometheus.broker_presets import BEYOND, EVERY, BrokerPreset, Series, latest, preset
from trimtab_pipeline.prometheus.containers import NO_NAMES, Containers
from trimtab_pipeline.transform.interfaces import BOND, NIC, VIRTUAL
from trimtab_pipeline.transform.topic_to_bundle import DOMAINS

RANGE = 5.0
"""Number of windows of raw samples to read: one complete window before the newest sample, and enough to find the scrape
interval."""
LOOKBACK = 300.0
"""Seconds for which a server shows a series after its last sample. Samples of traffic are read that far back."""
TOLD_APART = "signal"
"""The label that names the signal in the answer of `combined`."""


class UnknownSignalError(ValueError):
    """A query for an unknown signal. The text lists the known ones."""


@dataclass(frozen=True, slots=True)
class Table:
    """A wide table from instant queries that share their labels.

    keys: labels that every series has; together they identify a row. queries: PromQL template of each value column.
    own: columns with a user's query.
    """

    keys: tuple[str, ...]
    queries: Mapping[str, str]
    own: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the value columns."""
        return tuple(self.queries)


@dataclass(frozen=True, slots=True)
class BrokerQueries:
    """Templates of the queries about brokers, as in `BrokerPreset`.

    ahead, apart: empty if users' queries replace the checked series. own: a user's instant query of each signal that
    has one. rated: range selector of the counter whose rate such a query takes.
    """

    values: Mapping[str, str]
    series: Mapping[str, Series]
    ahead: str = ""
    apart: str = ""
    own: Mapping[str, str] = field(default_factory=dict)
    rated: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: BrokerPreset, own: Mapping[str, str]) -> BrokerQueries:
        """The preset's queries, without those of signals that have their `own`."""
        given_by = {f"{resource}_node": f"{resource}_limit" for resource in ("cpu", "memory")}
        values = {signal: promql for signal, promql in given.values.items() if given_by.get(signal, signal) not in own}
        series = {signal: one for signal, one in given.series.items() if signal not in own}
        rated = {signal: counter for signal in USAGE if (counter := _rated(own.get(signal, "")))}
        ahead, apart = (
            "" if names & set(own) else text for names, text in ((_CHECKED, given.ahead), (_LIMITS, given.apart))
        )
        return cls(values, series, ahead, apart, own, rated)


@dataclass(frozen=True, slots=True)
class RawRead:
    """One query for raw samples. series: metric -> the signal and its `Series`.

    every: whether the answer has rows of all containers.
    """

    promql: str
    series: Mapping[str, tuple[str, Series]]
    every: bool = False


def _rated(promql: str) -> str:
    """The range selector of the first counter that a user's query takes a rate of; empty if there is none."""
    found = _RATE.search(promql)
    return "" if found is None else f"{found[1]}[$samples]"


_RATE = re.compile(
    r'\b(?:rate|increase)\s*\(\s*([a-zA-Z_:][\w:]*\s*(?:\{(?:"(?:[^"\\]|\\.)*"|[^"}])*\})?)\s*\[\$window\]'
)
_PLAIN = (string.ascii_letters + string.digits + "_.-~ ").encode()
"""Bytes that URLs and forms hold as they are, or as one other byte."""
_CHECKED = {"cpu", "rate_in"}
"""Signals whose series are checked for samples from the future. If a user's query replaces one, there is no check."""
_LIMITS = {"cpu_limit", "memory_limit"}
"""The same for the check of limits."""
_BUNDLE_METRICS = {
    **{name: f"msg_{name}" for name in TRAFFIC},
    "topics": "topics_count",
    "producers": "producer_count",
    "consumers": "consumer_count",
}
_TOPIC_METRICS = {
    **{name: name for name in TRAFFIC},
    "producers": "producers_count",
    "consumers": "consumers_count",
}

BUNDLES = Table(
    ("bundle", "pod"),
    MappingProxyType(
        {
            column: f"max by (bundle, pod) (pulsar_bundle_{metric}{{$broker}})"
            for column, metric in _BUNDLE_METRICS.items()
        }
    ),
)
"""Traffic of each bundle on each pod that reports it: msg/s, bytes/s, counts."""
TOPICS = Table(
    ("topic", "partition", "pod"),
    MappingProxyType(
        {
            column: f"max by (topic, partition, pod) (pulsar_{metric}{{$topic}})"
            for column, metric in _TOPIC_METRICS.items()
        }
    ),
)
"""Traffic of each topic on each pod that serves it. ``partition`` is empty unless a broker splits it off the name."""

BUNDLE = "bundle_"
"""Prefix of the names of bundle signals in users' queries."""
SIGNALS = frozenset({*RESOURCES, *TRAFFIC, *TIMES, *(BUNDLE + name for name in BUNDLES.columns)}) - {"direct_memory"}
"""Signals for which users may write a query; direct memory is missing, as it has no limit to compare with."""


def tables(settings: PrometheusSettings) -> tuple[BrokerQueries, Table]:
    """The queries of brokers and of bundles, with users' queries in place of the preset's.

    Raises `UnknownPresetError`, and `UnknownSignalError` for a query of an unknown signal.
    """
    queries = dict(settings.queries)
    if unknown := sorted(set(queries) - SIGNALS):
        raise UnknownSignalError(f"queries: {unknown[0]!r} is not a signal; use some of {', '.join(sorted(SIGNALS))}")
    of_bundles = {name: queries[BUNDLE + name] for name in BUNDLES.columns if BUNDLE + name in queries}
    of_brokers = {signal: promql for signal, promql in queries.items() if not signal.startswith(BUNDLE)}
    bundles = replace(BUNDLES, queries=MappingProxyType({**BUNDLES.queries, **of_bundles}), own=frozenset(of_bundles))
    return BrokerQueries.of(preset(settings.resources), of_brokers), bundles


def render(
    templates: Mapping[str, str], settings: PrometheusSettings, pods: Sequence[str], containers: Containers = NO_NAMES
) -> dict[str, str]:
    """The PromQL of each template, restricted to the brokers' `pods` in their Kubernetes namespace.

    Users' queries may use the same selectors. Other words with a dollar stay unchanged, as PromQL has dollars too.
    """
    words = _words(settings, pods, containers)
    return {column: Template(text).safe_substitute(words) for column, text in templates.items()}


def raw_reads(series: Mapping[str, Series], settings: PrometheusSettings, pods: Sequence[str]) -> tuple[RawRead, ...]:
    """The queries for raw samples of `series`, one for all that have the same selector and the same range."""
    shared: dict[tuple[str, float], dict[str, tuple[str, Series]]] = defaultdict(dict)
    for signal, one in series.items():
        usual = RANGE * settings.window
        seconds = max(usual, LOOKBACK) if signal in TRAFFIC else usual
        shared[one.selector, seconds][one.metric] = signal, one
    texts = {key: f"{_selector(list(found), key[0])}[{_duration(key[1])}]" for key, found in shared.items()}
    rendered = render({f"{k}": text for k, text in enumerate(texts.values())}, settings, pods)
    return tuple(
        RawRead(promql, found, every=selector == EVERY)
        for promql, ((selector, _), found) in zip(rendered.values(), shared.items(), strict=True)
    )


def _selector(metrics: Sequence[str], selector: str) -> str:
    if len(metrics) == 1:
        return f"{metrics[0]}{{{selector}}}"
    return f'{{__name__=~"{"|".join(metrics)}",{selector}}}'


def combined(values: Mapping[str, str]) -> str:
    """One query for the instant queries of several signals, whose answer names the signal in the label `TOLD_APART`.

    The series of each signal must have only the label ``pod``.
    """
    return " or ".join(
        f'label_replace({promql}, "{TOLD_APART}", "{signal}", "", "")' for signal, promql in values.items()
    )


def _words(settings: PrometheusSettings, pods: Sequence[str], containers: Containers) -> Mapping[str, str]:
    """The values of the selectors in a query's text."""
    namespace, pod = quoted(settings.namespace), naming(pods)
    matchers = matchers_of(settings)
    kubelet, either = f"namespace={namespace},{pod}{matchers}", quoted(f"{_any_of([settings.namespace])}|.+/.+")
    known = replace(containers, given=settings.container)
    names = sorted({known.of(one) for one in pods}) or [known.of("")]
    container = f"container={quoted(names[0])}" if len(names) == 1 else f"container=~{quoted(_any_of(names))}"
    device = settings.network_device and f"device={quoted(settings.network_device)}"
    return {
        "container": f"{kubelet},{container}",
        "containers": f"namespace={namespace},{container}{matchers}",
        "every": f'{kubelet},container!="POD"',
        "network": f'{kubelet},interface!~"{VIRTUAL}"',
        "nics": device or f'device=~"{NIC}|{BOND}"',
        "devices": device or f'device!~"{VIRTUAL}"',
        "pod": kubelet,
        "pods": f"namespace={namespace}{matchers}",
        "broker": f"{settings.namespace_label}={namespace},{pod}{matchers}",
        "topic": f'{settings.namespace_label}=~{either},{pod}{matchers},topic=~"$topics"',
        "matchers": matchers,
        "window": _duration(settings.window),
        "samples": _duration(RANGE * settings.window),
        "beyond": _duration(BEYOND - settings.trust.max_clock_skew),
    }


def naming(pods: Iterable[str]) -> str:
    """The part of a selector that selects these pods; queries are rendered with it."""
    return f"pod=~{quoted(_any_of(pods))}"


def sent_bytes(promql: str) -> int:
    """Bytes of a query in a URL or a form, where most other signs than letters and digits take three bytes."""
    text = promql.encode()
    return len(text) + 2 * len(text.translate(None, _PLAIN))


def broker_selector(settings: PrometheusSettings) -> str:
    """The selector of all brokers' own metrics."""
    return f"{settings.namespace_label}={quoted(settings.namespace)}{matchers_of(settings)}"


def container_selector(settings: PrometheusSettings) -> str:
    """The selector of cAdvisor's rows of all containers in the namespace."""
    return f'namespace={quoted(settings.namespace)}{matchers_of(settings)},container!~"|POD"'


def matchers_of(settings: PrometheusSettings) -> str:
    """The part of a selector that adds the user's matchers, which begins with a comma."""
    return "".join(f",{label}={quoted(value)}" for label, value in settings.matchers)


def topics_in(promql: str, namespaces: Iterable[str] | None = None) -> str:
    """A query of `TOPICS` about the topics of these namespaces, or about all of them."""
    pattern = ".+" if namespaces is None else f"{DOMAINS}({_any_of(namespaces)})/.+"
    return promql.replace('"$topics"', quoted(pattern))


def asked_late(ahead: str, seconds: float) -> str:
    """The check `ahead` for a request `seconds` after its evaluation time: it ignores samples scraped since then."""

    def shorter(found: re.Match[str]) -> str:
        length = int(found[1]) / (1000 if found[2] == "ms" else 1)
        return f"[{_duration(max(1.0, length - math.ceil(seconds)))}] offset -{BEYOND}s"

    return re.sub(rf"\[(\d+)(ms|s)\] offset -{BEYOND}s", shorter, ahead)


def of_newest(promql: str) -> str:
    """A query of `BUNDLES` or `TOPICS` without series whose pod has newer samples in other series."""
    keys, _, series = promql.removesuffix(")").partition(") (")
    return f"{keys}) ({series} and ({latest(series)}))"


def _any_of(names: Iterable[str]) -> str:
    """A regular expression for these names. Those with the same beginning, as the pods of one owner, share it."""
    ends = defaultdict[str, list[str]](list)
    for name in names:
        begin = name[: max(map(name.rfind, "-/")) + 1]
        ends[_literal(begin)].append(_literal(name.removeprefix(begin)))
    several = {begin: "|".join(theirs) for begin, theirs in ends.items()}
    return "|".join(f"{begin}({text})" if begin and "|" in text else begin + text for begin, text in several.items())


def _literal(text: str) -> str:
    return re.sub(r"([.\\+*?()|\[\]{}^$])", r"\\\1", text)


def quoted(text: str) -> str:
    """`text` as a PromQL string; what would end the string is escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _duration(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"
