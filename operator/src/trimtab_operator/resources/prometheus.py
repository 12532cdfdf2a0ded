"""`PrometheusSpec`: a Prometheus server, who asks it, and which of its metrics are read."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from trimtab_operator.resources.common import Duration, Name, Resource, cel, seconds

Url = Annotated[str, Field(pattern=r"^https?://[^\s@?#\\]+$", max_length=512)]
"""A URL without a user name (credentials have a place of their own, where nobody reads them), and without ``?`` or
``#``, behind which the path of a query would not count. Which servers it may name is up to the administrator."""
Label = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
"""Name of a label of Prometheus."""
PromQL = Annotated[str, Field(min_length=1, max_length=4096)]
SecretEntry = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", min_length=1, max_length=253)]

_ONE_WAY = "bearerToken and basic exclude each other: leave one out"
_PAIR = "certificate and key belong together: give both, or none"
_ONE_VALUE = "a header has a value or a secret: give one of them"
_FRAMING = ("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect")
_FRAMES = f"a header that says where a request goes, or where it ends, is not yours to set: {', '.join(_FRAMING)}"
_NO_FRAMING = f"!(self.name.lowerAscii() in {list(_FRAMING)})"

_SKEW = "duration(self) >= duration('1s') && duration(self) <= duration('5m')"
_SKEW_BOUNDS = "a clock's skew is 1s to 5m"


def _skew(text: str) -> str:
    if not 1 <= seconds(text) <= 300:  # noqa: PLR2004  (the bounds, in seconds)
        raise ValueError(_SKEW_BOUNDS)
    return text


ClockSkew = Annotated[Duration, Field(json_schema_extra=cel((_SKEW, _SKEW_BOUNDS))), AfterValidator(_skew)]
"""How far clocks may differ. Prometheus itself takes no samples of a time further ahead than ten minutes."""


class ResourcePreset(StrEnum):
    """Whose metrics say how busy a broker is."""

    KUBERNETES = "Kubernetes"
    PULSAR = "Pulsar"


class BundleMetrics(StrEnum):
    """Whose metrics say how busy a bundle is."""

    AUTO = "Auto"
    BUNDLE = "Bundle"
    TOPIC = "Topic"
    STATISTICS = "Statistics"


class Averages(StrEnum):
    """How a bundle's short- and long-term load is averaged."""

    TIME = "Time"
    SAMPLES = "Samples"


class QueryMethod(StrEnum):
    """How a query is sent."""

    POST = "POST"
    GET = "GET"


class SecretKey(Resource):
    """One entry of a Secret of the policy's namespace.

    The Secret must carry the label `trimtab.dev/credentials: "true"`, by which its owner agrees that it is sent to the
    server a policy names.
    """

    secret: Name
    """Name of the Secret."""
    key: SecretEntry
    """Key of the entry."""


class BasicAuth(Resource):
    """HTTP Basic."""

    username: SecretKey
    """Where the user name is."""
    password: SecretKey
    """Where the password is."""


class Tls(Resource):
    """What TLS takes besides the usual authorities; all entries are PEM text."""

    model_config = ConfigDict(json_schema_extra=cel(("has(self.certificate) == has(self.key)", _PAIR)))

    ca: SecretKey | None = None
    """Where the authorities are that alone are believed."""
    certificate: SecretKey | None = None
    """Where the client's certificate is."""
    key: SecretKey | None = None
    """Where the client's key is."""

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError(_PAIR)
        return self


class Header(Resource):
    """A header that is sent with each query."""

    model_config = ConfigDict(
        json_schema_extra=cel(("has(self.value) != has(self.secret)", _ONE_VALUE), (_NO_FRAMING, _FRAMES))
    )

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=128)]
    """Its name, e.g. `X-Scope-OrgID` for a tenant of Mimir."""
    value: Annotated[str, Field(pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$", max_length=1024)] | None = None
    """Its value, if everybody may know it."""
    secret: SecretKey | None = None
    """Where its value is, if not."""

    @field_validator("name")
    @classmethod
    def _frames_nothing(cls, name: str) -> str:
        if name.lower() in _FRAMING:
            raise ValueError(_FRAMES)
        return name

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        if (self.value is None) == (self.secret is None):
            raise ValueError(_ONE_VALUE)
        return self


class Auth(Resource):
    """Who asks, from Secrets. They are read again for each cycle, so that a new password counts without an edit."""

    model_config = ConfigDict(json_schema_extra=cel(("!has(self.bearerToken) || !has(self.basic)", _ONE_WAY)))

    bearer_token: SecretKey | None = None
    """Where the bearer token is."""
    basic: BasicAuth | None = None
    """User name and password."""
    tls: Tls | None = None
    """An authority of one's own, a client certificate."""
    headers: Annotated[list[Header], Field(max_length=16)] = Field(default_factory=list)
    """Further headers."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.bearer_token is not None and self.basic is not None:
            raise ValueError(_ONE_WAY)
        return self

    @property
    def secret(self) -> bool:
        """Whether any of it is in a Secret."""
        return bool(self.bearer_token or self.basic or self.tls or any(header.secret for header in self.headers))


class Queries(Resource):
    """Queries of one's own. Each series of an answer carries the label `pod` and no other (`bundle` and `pod` for
    `bundle...`), so a query usually begins with `max by (pod)`. `$container`, `$network`, `$pod` and `$broker` stand
    for what selects the brokers' series, as in `up{$broker}`, and `$window` for `window`."""

    cpu: PromQL | None = None
    """CPU used: cores, or percent with the preset `Pulsar`."""
    cpu_limit: PromQL | None = None
    """Cores that count as 100 %."""
    memory: PromQL | None = None
    """Memory used: bytes, or percent with the preset `Pulsar`."""
    memory_limit: PromQL | None = None
    """Bytes of memory that count as 100 %."""
    network_in: PromQL | None = None
    """Bytes per second received, or percent with the preset `Pulsar`."""
    network_out: PromQL | None = None
    """Bytes per second sent, or percent with the preset `Pulsar`."""
    network_limit: PromQL | None = None
    """Bytes per second that count as 100 %, in either direction."""
    throttled: PromQL | None = None
    """Ratio of periods in which the CPU limit held the broker up; only shown."""
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
    """Topics of a bundle."""
    bundle_producers: PromQL | None = None
    """Producers of a bundle."""
    bundle_consumers: PromQL | None = None
    """Consumers of a bundle."""

    def given(self) -> tuple[tuple[str, str], ...]:
        """(signal, query) of each that was written."""
        return tuple((name, text) for name, text in self if text is not None)


class TrustSpec(Resource):
    """What a broker's samples must be like to be believed. One that is not believed neither sheds nor receives."""

    above_limit: Annotated[float, Field(ge=1, le=1000)] = 10
    """Usage of so many times its limit can't be: the limit, or the usage, is wrong."""
    max_resets: Annotated[int, Field(ge=0, le=1000)] = 3
    """So many resets of its counters within `window` are borne. Rates take account of each, but what restarts all the
    time has none."""
    max_clock_skew: ClockSkew = "30s"
    """A sample may be of a time that is so much ahead of the operator's clock; 1s to 5m."""
    min_samples: Annotated[int, Field(ge=2, le=1000)] = 2
    """So many samples of CPU within `window` make a rate (preset `Kubernetes`). More than 2 notices gaps."""


class PrometheusSpec(Resource):
    """A Prometheus server, or what speaks its language (Thanos, Mimir), and how to read it."""

    url: Url
    """Base URL, e.g. `http://prometheus.monitoring.svc:9090`, or `http://mimir.monitoring.svc/prometheus` for Mimir.
    The operator asks Services of the cluster only, unless it was started with `--allow-url`."""
    auth: Auth | None = None
    """Who asks; nobody in particular if left out."""
    method: QueryMethod = QueryMethod.POST
    """`GET` for a proxy that refuses `POST`; the queries of many brokers may then be too long for a URL."""
    partial_response: bool | None = None
    """Whether Thanos may leave out stores that do not answer. If it may, it warns, and nothing moves on partial data;
    if it may not, the query fails. Its own setting counts if left out."""
    resources: ResourcePreset = ResourcePreset.KUBERNETES
    """Where broker usage comes from. `Kubernetes`: cAdvisor and kube-state-metrics, usage against the container's
    limit, else its request, else what its node has for pods; network against the node's fastest NIC, where node
    exporter tells it. `Pulsar`: what the brokers say themselves (`pulsar_lb_*`, percent)."""
    bundle_metrics: BundleMetrics = BundleMetrics.AUTO
    """Where bundle load comes from. `Bundle`: `pulsar_bundle_*`, which brokers with the modular load manager export if
    `exposeBundlesMetricsInPrometheus` is on. `Topic`: `pulsar_rate_in` and the like, each topic added to the bundle
    that its name's hash falls into; the extensible load manager exports nothing else. `Auto`: `Bundle` where there are
    any, else `Topic`. `Statistics` (actuator `Pulsar` only): as `Topic`, but told by each broker's admin REST, where
    brokers export no topics (`exposeTopicLevelMetricsInPrometheus=false`); their own usage still comes from
    Prometheus."""
    averages: Averages = Averages.TIME
    """How a bundle's short- and long-term load is averaged. `Time`: over 2 minutes and an hour, by the time of the
    samples, so that neither `interval` nor a missed cycle matters. `Samples`: as Pulsar's modular load manager does,
    over 10 and 1000 samples, one a decision, and a bundle begins with Pulsar's default statistics."""
    hot_bundles: Annotated[int, Field(ge=0, le=1000)] = 10
    """Of how many bundles the topics inside are looked at, of those with the most messages and those with the most
    bytes each: a split by load needs them."""
    queries: Queries | None = None
    """Queries of one's own instead of those of the preset. One that Prometheus refuses, or whose series carry other
    labels, makes the policy invalid."""
    window: Duration = "60s"
    """Rates are taken over this time; at least two scrape intervals."""
    timeout: Duration = "10s"
    """How long one query may take."""
    max_age: Duration = "2m"
    """A broker whose newest sample is older is not trusted: it neither sheds nor receives. Nor is a bundle's load
    believed whose newest sample is older: it stays where it is."""
    trust: TrustSpec = TrustSpec()
    """What else a broker's samples must be like."""
    nic_speed: Annotated[float, Field(gt=0)] = 1.25e9
    """Bytes per second that count as 100 % of network in, and of network out, where node exporter does not tell
    (1.25e9 = 10 Gbit/s)."""
    container: Annotated[str, Field(max_length=63)] = "broker"
    """Name of the broker's container in its pod."""
    namespace_label: Label = "namespace"
    """Label that holds the Kubernetes namespace on what brokers expose themselves. Whether Pulsar's own label
    `namespace` wins over it (`honor_labels`), or becomes `exported_namespace`, makes no difference; name another one
    where the scrape configuration calls it differently, such as `kubernetes_namespace`."""
