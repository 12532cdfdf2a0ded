"""The door to the pipeline: what the operator hands in, what it gets, and the port between.

Importing this module loads neither Spark nor pandas; `spark_sources` does, when it is called.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import quote, quote_plus

from trimtab_strategies.model import Bundles, ClusterLoad
from trimtab_strategies.model.load import BoolArray, FloatArray, IntArray

_HIDDEN = "***"
_HEADER = r"[A-Za-z0-9-]+"
_LABEL = r"[A-Za-z_][A-Za-z0-9_]*"


class SourceUnavailableError(RuntimeError):
    """Nothing could be measured: the source did not answer, or answered nothing usable. Says which URL and why."""


class SourceMisconfiguredError(SourceUnavailableError):
    """Nothing can be measured until somebody changes the source's settings. Says which, and what was found."""


class CredentialsError(ValueError):
    """Credentials that can't be used. Says which part is wrong and what to do, never what it holds."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """What proves to a server who asks, and to us that it is the server. Never shown: neither printed nor logged.

    bearer_token:      sent as ``Authorization: Bearer``; `bearer_token_file` is read for every query instead, as tokens
                       in files rotate. The file lies where the Spark tasks run.
    username, password: HTTP Basic.
    certificate, key:  what we prove ourselves by in TLS; `ca`: the only authorities that are believed, instead of the
                       usual ones. Each is PEM text, or the path of a PEM file (read again for every shard).
    headers:           further ones with each query, such as a tenant's ``X-Scope-OrgID``.
    Raises `CredentialsError` for parts that exclude each other, or that no HTTP header can carry.
    """

    bearer_token: str = ""
    bearer_token_file: str = ""
    username: str = ""
    password: str = ""
    certificate: str = ""
    key: str = ""
    ca: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        ways = (self.bearer_token, self.bearer_token_file, self.username or self.password)
        if sum(map(bool, ways)) > 1:
            raise CredentialsError("there are several of bearer token, token file and user name; give one")
        if bool(self.certificate) != bool(self.key):
            raise CredentialsError("a client certificate needs its key, and a key its certificate; give both or none")
        if ":" in self.username:
            raise CredentialsError("the user name holds a colon, which HTTP Basic can't carry")
        for name, value in (("bearer token", self.bearer_token), *self.headers):
            _check_header(name, value)
        if odd := [name for name, _ in self.headers if not re.fullmatch(_HEADER, name)]:
            raise CredentialsError(f"{odd[0]!r} is no name of an HTTP header: use letters, digits and dashes")

    def __repr__(self) -> str:
        given = ", ".join(f.name for f in fields(self) if getattr(self, f.name))
        return f"<Credentials: {given or 'none'}>"

    @property
    def custom_tls(self) -> bool:
        """Whether TLS takes more than the usual authorities."""
        return bool(self.ca or self.certificate)

    def authorization(self) -> str:
        """Value of the ``Authorization`` header, empty for none. Reads the token's file; raises `CredentialsError`."""
        if self.username or self.password:
            return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        token = self.bearer_token or (_token_in(self.bearer_token_file) if self.bearer_token_file else "")
        return f"Bearer {token}" if token else ""

    def hide(self, text: str) -> str:
        """`text` without anything secret that it repeats: servers like to quote what they refuse.

        To be called before the text is cut: the beginning of a secret is not recognized.
        """
        spelt = {spelling for secret in filter(None, self._secrets()) for spelling in _spellings(secret)}
        for secret in sorted(spelt, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    def _secrets(self) -> Iterator[str]:
        yield self.password
        yield from (value for _, value in self.headers)
        try:
            yield self.authorization().partition(" ")[2]
        except CredentialsError:
            return  # there is no token, so nobody can repeat it

    def to_json(self) -> str:
        """The form in which they travel to Spark's tasks."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        told = json.loads(text)
        return cls(**{**told, "headers": tuple((name, value) for name, value in told["headers"])})


def _spellings(secret: str) -> Iterator[str]:
    """How `secret` is written in a plain text, a Python or JSON string, a page (each as Go does it, too) and a URL."""
    for text in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]):
        yield text
        yield "".join(f"\\u{ord(letter):04x}" if letter in "<>&" else letter for letter in text)
    page = html.escape(secret, quote=False)
    yield from (page, html.escape(secret), page.replace('"', "&#34;").replace("'", "&#39;"))
    yield from (quote(secret, safe=""), quote(secret), quote_plus(secret))


def _check_header(name: str, value: str) -> None:
    """Refuse what `requests` would refuse by an error that repeats it."""
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise CredentialsError(
            f"{name} holds a line break, a blank at an end or a letter that no HTTP header can carry"
        )


def _token_in(path: str) -> str:
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CredentialsError(f"bearer token file {path} can't be read: {why}") from None
    _check_header(f"bearer token file {path}", token)
    return token


NO_CREDENTIALS = Credentials()
"""The server asks for none."""


@dataclass(frozen=True, slots=True)
class Topology:
    """What the resources say exists, in the rows that the resulting `ClusterLoad` will have.

    brokers:        names of the Broker objects (n); `pods`: the pod label each one's metrics carry.
    declared_limit: (n, 5) capacities a person declared (`RESOURCES` order), NaN where the source's own limit counts.
    ready, schedulable: (n,).
    bundles:        Pulsar's spelling ``tenant/namespace/0x.._0x..`` (m); `namespace`, `owner`, `last_unload`, `pinned`,
                    `in_flight`, `moving_from`, `moving_share`: (m,) exactly as in `trimtab_strategies.model.Bundles`.
    """

    brokers: tuple[str, ...]
    pods: tuple[str, ...]
    declared_limit: FloatArray
    ready: BoolArray
    schedulable: BoolArray
    namespaces: tuple[str, ...]
    bundles: tuple[str, ...]
    namespace: IntArray
    owner: IntArray
    last_unload: FloatArray
    pinned: BoolArray
    in_flight: BoolArray
    moving_from: IntArray
    moving_share: FloatArray

    def carrying(self, short: FloatArray, long: FloatArray, topics: FloatArray, sessions: FloatArray) -> Bundles:
        """These bundles with the load that was measured of them: (m, 4), (m, 4), (m,), (m,), NaN unknown."""
        return Bundles(
            names=self.bundles,
            namespace=self.namespace,
            owner=self.owner,
            short=short,
            long=long,
            topics=topics,
            sessions=sessions,
            last_unload=self.last_unload,
            pinned=self.pinned,
            in_flight=self.in_flight,
            moving_from=self.moving_from,
            moving_share=self.moving_share,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at the cluster.

    load:    the picture, rows as in the topology; `load.now` is the evaluation time.
    seconds: time spent by phase (``prometheus``, ``spark``, ``write``, ...), for `trimtab_cycle_seconds`.
    shown:   (n,) further signals of the brokers, by name, that are shown and not balanced by; NaN unknown.
             ``throttled``: ratio 0-1 of periods in which its CPU limit held a broker up.
    """

    load: ClusterLoad
    seconds: Mapping[str, float]
    shown: Mapping[str, FloatArray] = field(default_factory=dict)


class LoadSource(Protocol):
    """Where load comes from. Implementations work in a thread of their own; nothing here blocks an event loop."""

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """Measure the cluster as of `at` (epoch seconds).

        The future fails with `SourceUnavailableError` when nothing could be measured; a part that is missing is told
        in `Observation.load.quality` and by untrusted brokers instead.
        """

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """Measure the brokers alone, as of `at`: much less work, and nothing is remembered of it.

        No bundle of the topology is measured. The future fails as that of `observe`.
        """

    def close(self) -> None:
        """Stop the thread and whatever runs behind it. Idempotent."""


class LoadSources(Protocol):
    """Makes one `LoadSource` per policy, all on one engine."""

    def open(self, policy: str, settings: PrometheusSettings) -> LoadSource:
        """A source for the policy named `policy` (``namespace/name``), which also names its history folder."""

    def warm_up(self) -> Future[None]:
        """Run what a cycle runs, on made-up samples, so that the first real cycle is as fast as the others.

        The future is done when the engine is warm; it fails with `SourceUnavailableError` when the engine can't start.
        """

    def close(self) -> None:
        """Stop the engine. Idempotent."""


@dataclass(frozen=True, slots=True)
class Trust:
    """From where on samples are not believed. Age has a bound of its own, `PrometheusSettings.max_age`.

    above_limit:    usage of so many times its limit can't be.
    max_resets:     so many resets of a broker's counters within the window of the rates are borne; `rate()` copes with
                    each, but what restarts all the time has no rate.
    max_clock_skew: seconds by which a sample's time may be ahead of the evaluation time.
    min_samples:    so many samples of CPU in the window make a rate.
    Raises `ValueError` for a bound that would believe nobody, or that Prometheus can't be asked for.
    """

    above_limit: float = 10.0
    max_resets: int = 3
    max_clock_skew: float = 30.0
    min_samples: int = 2

    def __post_init__(self) -> None:
        bounds = {"above_limit": (1, 1e6), "max_resets": (0, 1e6), "max_clock_skew": (1, 300), "min_samples": (2, 1e6)}
        for name, (lowest, highest) in bounds.items():
            if not lowest <= (value := getattr(self, name)) <= highest:
                raise ValueError(f"trust {name} {value!r} must be {lowest:g} to {highest:g}")


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """How to read one Prometheus.

    url:        base URL, e.g. ``http://prometheus.monitoring.svc:9090``.
    namespace:  Kubernetes namespace whose pods are the brokers.
    resources:  ``kubernetes`` (cAdvisor and kube-state-metrics) or ``pulsar`` (``pulsar_lb_*``, percent).
    window:     seconds over which rates are taken; at least two scrape intervals.
    timeout:    seconds for one query.
    max_age:    seconds after which the newest sample of a broker counts as stale.
    trust:      what else a broker's samples must be like to be believed.
    nic_speed:  bytes/s that count as 100 % of network in, and of network out, where node exporter does not say it
                (preset ``kubernetes``).
    container:  container name of the broker in its pod.
    namespace_label: label that holds the Kubernetes namespace on what brokers expose themselves. A scrape configuration
                that keeps it elsewhere (as Pulsar's own label is called ``namespace`` too) names it here.
    averages:   ``time``: exponential, by the time that samples are apart. ``samples``: Pulsar's, which count them,
                one a cycle (see `trimtab_pipeline.cycle`).
    short_tau, long_tau: time constants (seconds) of the short- and long-term averages by time.
    bundle_metrics: where the bundles' load comes from. ``bundle``: their own metrics. ``topic``: those of their topics,
                summed up, as the extensible load manager exports no others. ``auto``: their own where there are any.
    queries:    (signal, PromQL) of signals that the preset's query does not fit (`trimtab_pipeline.queries.SIGNALS`).
                Series carry exactly the label ``pod`` (``bundle`` and ``pod`` for a bundle's signal).
    hot_bundles: of how many bundles, those with the most messages and those with the most bytes, the topics inside are
                told; 0 of none.
    credentials: who asks.
    method:     ``POST``, or ``GET`` for a server or proxy that refuses POST; a shard of many brokers may then exceed
                the length that a URL may have.
    partial_response: whether Thanos may leave out stores that don't answer: it then warns, so that the data counts as
                partial; if it may not, the query fails. None leaves it to Thanos; other servers know no such parameter.
    Raises `ValueError` for a URL that holds a password, which would be repeated in messages, and for a label that is
    none.
    """

    url: str
    namespace: str
    resources: str = "kubernetes"
    window: float = 60.0
    timeout: float = 10.0
    max_age: float = 120.0
    trust: Trust = Trust()
    nic_speed: float = 1.25e9
    container: str = "broker"
    namespace_label: str = "namespace"
    averages: str = "time"
    short_tau: float = 120.0
    long_tau: float = 3600.0
    bundle_metrics: str = "auto"
    queries: tuple[tuple[str, str], ...] = ()
    hot_bundles: int = 0
    credentials: Credentials = NO_CREDENTIALS
    method: str = "POST"
    partial_response: bool | None = None

    def __post_init__(self) -> None:
        if "@" in self.url.partition("//")[2].partition("/")[0]:
            raise ValueError("the source's url holds a user name; leave it out, and give it as credentials")
        if re.fullmatch(_LABEL, self.namespace_label) is None:
            raise ValueError(
                f"namespace_label {self.namespace_label!r} is no name of a label: use letters, digits and _"
            )
        if self.method not in {"POST", "GET"}:
            raise ValueError(f"method {self.method!r} must be POST or GET")
        if self.averages not in {"time", "samples"}:
            raise ValueError(f"averages {self.averages!r} must be time or samples")
        if self.bundle_metrics not in {"auto", "bundle", "topic"}:
            raise ValueError(f"bundle_metrics {self.bundle_metrics!r} must be auto, bundle or topic")


@dataclass(frozen=True, slots=True)
class Retention:
    """How a policy's history is kept. Its newest cycle always stays, whatever these say.

    seconds:     nothing older is kept.
    bytes:       nor more than this; the oldest goes first. Measured: 6 MB per cycle of 60,000 bundles, 0.1 MB of 1,000.
    merge_after: seconds after its end at which an hour's cycles become one file.
    Raises `ValueError` for a bound that can't be kept.
    """

    seconds: float = 86_400.0
    bytes: int = 8 * 2**30
    merge_after: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("seconds", "bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"history {name} {getattr(self, name)!r} must be more than 0")
        if not self.merge_after >= 0:
            raise ValueError(f"history merge_after {self.merge_after!r} must be 0 seconds or more")


KEEP_A_DAY = Retention()
"""A day of cycles, or eight gibibytes of them."""


def spark_sources(
    history_dir: Path,
    *,
    master: str = "local[*]",
    memory: str = "700m",
    deadline: float = 60.0,
    retention: Retention = KEEP_A_DAY,
) -> LoadSources:
    """Sources on a Spark session that starts in the background; the first call in a process loads PySpark.

    history_dir: where each policy's history lies, which is also its state.
    master:      ``local[N]``, ``local[*]``, or ``sc://host:port`` of a Spark Connect server.
    memory:      heap of the embedded JVM. deadline: seconds one cycle may take.
    retention:   how much of each policy's history is kept.
    Raises `SourceUnavailableError` when Spark is to be embedded and there is no Java 17 or later.
    """
    from trimtab_pipeline.spark_source import SparkLoadSources  # noqa: PLC0415  (keeps PySpark out until it is asked for)

    return SparkLoadSources(history_dir, master=master, memory=memory, deadline=deadline, retention=retention)
