"""`PrometheusSpec`: a Prometheus server, with authentication and the metrics to read."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from trimtab_operator.resources.common import Name, Resource, cel
from trimtab_pipeline.query_additions import (
    LABEL,
    LONGEST_VALUE,
    OUR_LABELS,
    OUR_PARAMETERS,
    PARAMETER,
    check_matcher,
    check_parameter,
)
from trimtab_strategies.params import Duration, PositiveQuantity, seconds

_BAD_MATCHER = (
    f"matchers name labels (letters, digits and _) other than {', '.join(OUR_LABELS)} "
    "(each is set by Trimtab: name another label)"
)
_BAD_PARAMETER = (
    f"parameters have names of letters, digits, _ . - and [], other than {', '.join(OUR_PARAMETERS)} "
    "(each is set by Trimtab: leave it out)"
)


def _names(pattern: str, ours: tuple[str, ...], message: str) -> tuple[str, str]:
    """The CEL rule for the keys of a map: they match `pattern`, and none of them is among `ours`."""
    return f"self.all(name, name.matches(r'^{pattern}$') && !(name in {list(ours)}))", message


def _each(check: Callable[[str, str], None]) -> Callable[[dict[str, str]], dict[str, str]]:
    """A validator that checks each name and value of a map."""

    def checked(found: dict[str, str]) -> dict[str, str]:
        for name, value in found.items():
            check(name, value)
        return found

    return checked


Url = Annotated[str, Field(pattern=r"^https?://[^\s@?#\\]+$", max_length=512)]
"""A URL without a user name, ``?`` or ``#``. Credentials belong in Secrets, and the path of a query is appended to the
URL. The administrator decides which servers it may name."""
Label = Annotated[str, Field(pattern=f"^{LABEL}$", max_length=128)]
"""Name of a Prometheus label."""
Matchers = Annotated[
    dict[str, Annotated[str, Field(max_length=LONGEST_VALUE["matcher"])]],
    Field(max_length=16, json_schema_extra=cel(_names(LABEL, OUR_LABELS, _BAD_MATCHER))),
    AfterValidator(_each(check_matcher)),
]
"""Label -> the value that it must have."""
Parameters = Annotated[
    dict[str, Annotated[str, Field(max_length=LONGEST_VALUE["parameter"])]],
    Field(max_length=16, json_schema_extra=cel(_names(PARAMETER, OUR_PARAMETERS, _BAD_PARAMETER))),
    AfterValidator(_each(check_parameter)),
]
"""Name of a URL parameter -> its value."""
PromQL = Annotated[str, Field(min_length=1, max_length=4096)]
SecretEntry = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", min_length=1, max_length=253)]

_ONE_WAY = "bearerToken and basic exclude each other: leave one out"
_PAIR = "certificate and key belong together: give both, or none"
_ONE_VALUE = "a header has value or secretKeyRef: give one of them"
_ONE_PLACE = "a certificate authority comes from a Secret or from a ConfigMap: give secretKeyRef or configMapKeyRef"
_FRAMING = ("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect")
_FRAMES = f"a header that controls the connection or the framing of a request can't be set: {', '.join(_FRAMING)}"
_NO_FRAMING = f"!(self.name.lowerAscii() in {list(_FRAMING)})"

_SKEW = "duration(self) >= duration('1s') && duration(self) <= duration('5m')"
_SKEW_BOUNDS = "maxClockSkew must be 1s to 5m"


def _skew(text: str) -> str:
    if not 1 <= seconds(text) <= 300:  # noqa: PLR2004  (the bounds, in seconds)
        raise ValueError(_SKEW_BOUNDS)
    return text


ClockSkew = Annotated[Duration, Field(json_schema_extra=cel((_SKEW, _SKEW_BOUNDS))), AfterValidator(_skew)]
"""Allowed difference between clocks. Prometheus itself rejects samples more than ten minutes in the future."""


class ResourcePreset(StrEnum):
    """Source of broker usage."""

    KUBERNETES = "Kubernetes"
    PULSAR = "Pulsar"


class BundleMetrics(StrEnum):
    """Source of bundle load."""

    AUTO = "Auto"
    BUNDLE = "Bundle"
    TOPIC = "Topic"
    STATISTICS = "Statistics"


class Averages(StrEnum):
    """Method of averaging a bundle's short- and long-term load."""

    TIME = "Time"
    SAMPLES = "Samples"


class QueryMethod(StrEnum):
    """HTTP method of a query."""

    POST = "POST"
    GET = "GET"


class SecretKeyRef(Resource):
    """One entry of a Secret in the policy's namespace.

    The Secret must have the label `trimtab.dev/credentials: "true"`. By setting it, the owner of the Secret agrees that
    the entry is sent to the server that a policy names.
    """

    name: Name
    """Name of the Secret."""
    key: SecretEntry
    """Key of the entry."""


class SecretKey(Resource):
    """A text in a Secret."""

    secret_key_ref: SecretKeyRef
    """Name of the Secret, and the key in it. The Secret must have the label `trimtab.dev/credentials: "true"`."""


class ConfigMapKeyRef(Resource):
    """One entry of a ConfigMap in the policy's namespace, such as the one that trust-manager or OpenShift fills."""

    name: Name
    """Name of the ConfigMap."""
    key: SecretEntry
    """Key of the entry."""


class TrustedAuthorities(Resource):
    """Trusted certificate authorities, in a Secret or in a ConfigMap."""

    model_config = ConfigDict(
        json_schema_extra=cel(("has(self.secretKeyRef) != has(self.configMapKeyRef)", _ONE_PLACE))
    )

    secret_key_ref: SecretKeyRef | None = None
    """Name of the Secret, and the key in it. The Secret must have the label `trimtab.dev/credentials: "true"`."""
    config_map_key_ref: ConfigMapKeyRef | None = None
    """Name of the ConfigMap, and the key in it. The ConfigMap needs no label. The label marks Secrets that may be sent
    to a server, and a certificate authority is not sent."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.secret_key_ref is None) == (self.config_map_key_ref is None):
            raise ValueError(_ONE_PLACE)
        return self


class BasicAuth(Resource):
    """HTTP Basic authentication."""

    username: SecretKey
    """Secret entry with the user name."""
    password: SecretKey
    """Secret entry with the password."""


class Tls(Resource):
    """TLS settings. All entries are PEM text."""

    model_config = ConfigDict(json_schema_extra=cel(("has(self.certificate) == has(self.key)", _PAIR)))

    ca: TrustedAuthorities | None = None
    """Trusted certificate authorities. If absent, well-known authorities are trusted."""
    certificate: SecretKey | None = None
    """Secret entry with the client certificate."""
    key: SecretKey | None = None
    """Secret entry with the client key."""

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError(_PAIR)
        return self

    @property
    def secret(self) -> bool:
        """Whether any part is in a Secret."""
        return self.certificate is not None or (self.ca is not None and self.ca.secret_key_ref is not None)


class Header(Resource):
    """A header of each query."""

    model_config = ConfigDict(
        json_schema_extra=cel(("has(self.value) != has(self.secretKeyRef)", _ONE_VALUE), (_NO_FRAMING, _FRAMES))
    )

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=128)]
    """Name of the header, such as `X-Scope-OrgID` for a Mimir tenant."""
    value: Annotated[str, Field(pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$", max_length=1024)] | None = None
    """Value of the header, if it is not secret."""
    secret_key_ref: SecretKeyRef | None = None
    """Secret entry with the value of the header."""

    @field_validator("name")
    @classmethod
    def _frames_nothing(cls, name: str) -> str:
        if name.lower() in _FRAMING:
            raise ValueError(_FRAMES)
        return name

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        if (self.value is None) == (self.secret_key_ref is None):
            raise ValueError(_ONE_VALUE)
        return self


class Auth(Resource):
    """Authentication, with credentials from Secrets. Certificate authorities may be in a ConfigMap. All are read again
    for each cycle, so a new password applies without an edit of the policy."""

    model_config = ConfigDict(json_schema_extra=cel(("!has(self.bearerToken) || !has(self.basic)", _ONE_WAY)))

    bearer_token: SecretKey | None = None
    """Secret entry with the bearer token."""
    basic: BasicAuth | None = None
    """User name and password."""
    tls: Tls | None = None
    """TLS: a private certificate authority, a client certificate."""
    headers: Annotated[list[Header], Field(max_length=16)] = Field(default_factory=list)
    """Additional headers, 16 at most."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.bearer_token is not None and self.basic is not None:
            raise ValueError(_ONE_WAY)
        return self

    @property
    def secret(self) -> bool:
        """Whether any part is in a Secret."""
        tls = self.tls is not None and self.tls.secret
        return bool(self.bearer_token or self.basic or tls or any(header.secret_key_ref for header in self.headers))


class Queries(Resource):
    """Custom queries. Each series of an answer must have the label `pod` and no other, so a query usually begins with
    `max by (pod)`. The fields `bundle...` need the labels `bundle` and `pod`. `$container`, `$network`, `$pod` and
    `$broker` are replaced by selectors of the brokers' series, as in `up{$broker}`, and `$window` by `window`."""

    cpu: PromQL | None = None
    """CPU usage, in cores, or in percent with the preset `Pulsar`."""
    cpu_limit: PromQL | None = None
    """CPU cores that count as 100 %."""
    memory: PromQL | None = None
    """Memory usage, in bytes, or in percent with the preset `Pulsar`."""
    memory_limit: PromQL | None = None
    """Bytes of memory that count as 100 %."""
    network_in: PromQL | None = None
    """Network received, in bytes per second, or in percent with the preset `Pulsar`."""
    network_out: PromQL | None = None
    """Network sent, in bytes per second, or in percent with the preset `Pulsar`."""
    network_limit: PromQL | None = None
    """Bytes per second that count as 100 %, in either direction."""
    throttled: PromQL | None = None
    """Ratio 0-1 of periods in which the CPU limit throttled the broker. Only for display."""
    resource_time: PromQL | None = None
    """Time of the newest sample of usage, in epoch seconds."""
    rate_in: PromQL | None = None
    """Messages per second that the broker receives."""
    rate_out: PromQL | None = None
    """Messages per second that the broker sends."""
    throughput_in: PromQL | None = None
    """Bytes per second of messages that the broker receives."""
    throughput_out: PromQL | None = None
    """Bytes per second of messages that the broker sends."""
    traffic_time: PromQL | None = None
    """Time of the newest sample of traffic, in epoch seconds."""
    bundle_rate_in: PromQL | None = None
    """Messages per second that a bundle receives."""
    bundle_rate_out: PromQL | None = None
    """Messages per second that a bundle sends."""
    bundle_throughput_in: PromQL | None = None
    """Bytes per second that a bundle receives."""
    bundle_throughput_out: PromQL | None = None
    """Bytes per second that a bundle sends."""
    bundle_topics: PromQL | None = None
    """Number of topics of a bundle."""
    bundle_producers: PromQL | None = None
    """Number of producers of a bundle."""
    bundle_consumers: PromQL | None = None
    """Number of consumers of a bundle."""

    def given(self) -> tuple[tuple[str, str], ...]:
        """(signal, query) of each custom query."""
        return tuple((name, text) for name, text in self if text is not None)


class TrustSpec(Resource):
    """Rules for trusted samples. A broker with untrusted samples neither sheds nor receives bundles."""

    above_limit: Annotated[float, Field(ge=1, le=1000)] = 10
    """Usage that is more than this many times its limit is not trusted: the limit or the usage is wrong. This is for
    limits that a user gave. More than 110 % of a limit that the kernel enforces is never trusted."""
    max_resets: Annotated[int, Field(ge=0, le=1000)] = 3
    """Maximum number of counter resets within `window`. Rates correct for resets, but not for a broker that restarts
    all the time."""
    max_clock_skew: ClockSkew = "30s"
    """How far a sample may be ahead of the operator's clock, 1s to 5m."""
    min_samples: Annotated[int, Field(ge=2, le=1000)] = 2
    """Minimum number of CPU samples within `window` for a rate (preset `Kubernetes`). More than 2 detects gaps."""


class PrometheusSpec(Resource):
    """A Prometheus server, or a compatible one such as Thanos or Mimir, and how to read it."""

    url: Url
    """Base URL, such as `http://prometheus.monitoring.svc:9090`, or `http://mimir.monitoring.svc/prometheus` for Mimir.
    The operator connects only to Services of the Kubernetes cluster, unless it runs with `--allow-url`."""
    auth: Auth | None = None
    """Authentication. If absent, requests are anonymous."""
    method: QueryMethod = QueryMethod.POST
    """HTTP method. Use `GET` for a proxy that refuses `POST`. As URLs must be short, more queries are then sent."""
    matchers: Matchers = Field(default_factory=dict)
    """Labels that the selectors of all queries require in addition, such as `cluster: east`. Set them if the store has
    metrics of several Kubernetes clusters: without them, brokers of the same name in the same namespace are mixed, and
    not trusted. All metrics need the label: cAdvisor's, those of kube-state-metrics and node exporter, and the
    brokers'. In custom queries, `$container`, `$network`, `$pod` and `$broker` contain the matchers."""
    parameters: Parameters = Field(default_factory=dict)
    """URL parameters of each query, such as `namespace: pulsar` for the tenancy port of OpenShift's Thanos,
    `extra_label: tenant=a` for VictoriaMetrics, or `dedup: "true"` for Thanos. No secret belongs here: servers and
    proxies log URLs. Trimtab's own messages do not show the values."""
    partial_response: bool | None = None
    """Whether Thanos may omit stores that do not answer. If true, Thanos warns, and nothing moves on partial data. If
    false, the query fails. If absent, the setting of Thanos applies."""
    resources: ResourcePreset = ResourcePreset.KUBERNETES
    """Source of broker usage. `Kubernetes`: cAdvisor and kube-state-metrics. Usage is relative to the limit of the
    container or of its pod that is in force, else to what the node can allocate. A request is no limit. Network usage
    is relative to the node's fastest NIC, if node exporter reports it. `Pulsar`: the brokers' own metrics
    (`pulsar_lb_*`, percent)."""
    bundle_metrics: BundleMetrics = BundleMetrics.AUTO
    """Source of bundle load. `Bundle`: `pulsar_bundle_*`, which brokers with the modular load manager export if
    `exposeBundlesMetricsInPrometheus` is on. `Topic`: topic metrics such as `pulsar_rate_in`, summed by bundle through
    the hash of the topic's name. The extensible load manager exports only topic metrics. `Auto`: `Bundle` if there are
    metrics of bundles, else `Topic`. `Statistics` (with `spec.pulsar` only): like `Topic`, but from each broker's admin
    REST API, for brokers that export no topics (`exposeTopicLevelMetricsInPrometheus=false`). Broker usage still comes
    from Prometheus."""
    averages: Averages = Averages.TIME
    """Method of averaging a bundle's short- and long-term load. `Time`: over 2 minutes and one hour, by the time of the
    samples, so that `interval` and missed cycles do not matter. `Samples`: like Pulsar's modular load manager, over 10
    and 1000 samples, one per decision. With `Samples`, a new bundle begins with Pulsar's default statistics."""
    hot_bundles: Annotated[int, Field(ge=0, le=1000)] = 10
    """Number of bundles whose topics are read in each of two groups: bundles with the highest message rate, and bundles
    with the highest throughput. Together, the topics of up to twice this number of bundles are read. A split by load
    needs these topics."""
    queries: Queries | None = None
    """Custom queries that replace those of the preset. A query that Prometheus refuses, or whose series have other
    labels, makes the policy invalid."""
    window: Duration = "60s"
    """Time over which rates are computed. Use at least two scrape intervals."""
    timeout: Duration = "10s"
    """Time-out of one query."""
    max_age: Duration = "2m"
    """Maximum age of the newest sample. A broker whose newest sample is older is not trusted, and neither sheds nor
    receives bundles. A bundle whose newest sample is older stays where it is."""
    trust: TrustSpec = TrustSpec()
    """Further rules for trusted samples."""
    nic_speed: PositiveQuantity = "10G"
    """Bits per second that count as 100 % of network in and of network out, if node exporter does not report the speed:
    10G is 10 Gbit/s."""
    network_device: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@:-]*$", max_length=15)] = ""
    """Network device of the nodes whose traffic and speed count for brokers with `hostNetwork`, such as `ens5`. If
    absent, the NICs count, or a bond of them. If it is unclear which those are, the use of the network is unknown, and
    does not count."""
    container: Annotated[str, Field(max_length=63)] = ""
    """Name of the brokers' container in their pods. If empty, the operator reads it from each pod: the container that
    the annotation `kubectl.kubernetes.io/default-container` names, else the one called `broker`, else the first one."""
    namespace_label: Label = "namespace"
    """Label with the Kubernetes namespace on the brokers' own metrics. Both settings of `honor_labels` work: Pulsar's
    own label `namespace` may override it or become `exported_namespace`. Set another name if the scrape configuration
    uses one, such as `kubernetes_namespace`."""
