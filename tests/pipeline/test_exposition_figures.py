"""The load of brokers beside pandas on the lines that their exporters showed, for each preset and each trap.

`promtool` writes the lines as blocks of a real Prometheus: fifteen minutes of scrapes, every 15 s. The load of each
broker is constant, so a figure is right to the last digits, or it is wrong.
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import pytest

from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.factory import direct_sources
from trimtab_strategies.model import CPU, MEMORY, NETWORK_IN, NETWORK_OUT, ClusterLoad
from trimtab_testbed.programs import find
from trimtab_testbed.servers.prometheus import PrometheusServer

pytestmark = pytest.mark.prometheus

NOW = 1_750_000_000.0
WINDOW = 60.0
SCRAPES = [NOW - 3 - 15 * k for k in reversed(range(60))]
CORES, GIB, NIC = 4.0, 2.0**30, 1e8
CPU_SECONDS, WORKING_SET = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
NETWORK = {NETWORK_IN: "container_network_receive_bytes_total", NETWORK_OUT: "container_network_transmit_bytes_total"}
LB = {CPU: "cpu", MEMORY: "memory", NETWORK_IN: "bandwidth_in", NETWORK_OUT: "bandwidth_out"}
Labels = Mapping[str, str]


@dataclass
class Exposition:
    """Lines of exporters: metric, labels, time (epoch s) and value."""

    lines: list[dict[str, object]] = field(default_factory=list)

    def show(self, metric: str, labels: Labels, times: Sequence[float], values: Sequence[float]) -> None:
        """A series with its values at these times."""
        named = {"namespace": "messaging", **labels}
        self.lines += [
            {"metric": metric, "series": tuple(sorted(named.items())), **named, "time": time, "value": value}
            for time, value in zip(times, values, strict=True)
        ]

    def count(self, metric: str, labels: Labels, times: Sequence[float], rate: float, begin: float) -> None:
        """A counter of a process that began at `begin` (epoch s)."""
        self.show(metric, labels, times, [rate * (time - begin) for time in times])

    def frame(self) -> pd.DataFrame:
        """The lines as a table: a column for each label, and ``series`` with all of them."""
        return pd.DataFrame(self.lines)

    def text(self) -> str:
        """The lines in OpenMetrics' text format."""
        return "".join(f"{_line(line)}\n" for line in self.lines) + "# EOF\n"


def _line(line: dict[str, object]) -> str:
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in line["series"])  # type: ignore[attr-defined]
    return f"{line['metric']}{{{labels}}} {line['value']:.17g} {line['time']:.3f}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def kubelet(shown: Exposition, pod: str, *, cores: float, begin: float, times: Sequence[float], **labels: str) -> None:
    """What cAdvisor shows of one process: CPU, memory, and two network interfaces beside the loopback."""
    container = {"pod": pod, "container": "broker", **labels}
    shown.count(CPU_SECONDS, container, times, cores, begin)
    shown.show(WORKING_SET, container, times, [cores * GIB] * len(times))
    for metric in NETWORK.values():
        for interface, share in {"eth0": 0.5, "eth1": 0.25, "lo": 9.0}.items():
            shown.count(metric, {"pod": pod, "interface": interface, **labels}, times, cores * NIC / 4 * share, begin)


def limits(shown: Exposition, pod: str, values: Sequence[float]) -> None:
    """CPU and memory of the container's limits over time, and Pulsar's own rates, which say that the broker runs."""
    for resource, size in {"cpu": 1.0, "memory": 2 * GIB}.items():
        labels = {"pod": pod, "container": "broker", "resource": resource}
        shown.show("kube_pod_container_resource_limits", labels, SCRAPES, [size * value for value in values])
    for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
        shown.show(f"pulsar_broker_{name}", {"pod": pod}, SCRAPES, [1.0] * len(SCRAPES))


def on_kubernetes() -> Exposition:
    """A broker for each trap, named after it."""
    shown, begin = Exposition(), NOW - 5_000
    for pod in TRAPS:
        limits(shown, pod, [CORES] * len(SCRAPES) if pod != "limit-raised" else [2.0] * 40 + [CORES] * 20)
    for pod, cores in {"plain": 1.0, "sidecar": 1.5, "limit-raised": 1.9, "not-a-number": 2.0, "renamed": 0.6}.items():
        kubelet(shown, pod, cores=cores, begin=begin, times=SCRAPES if pod != "renamed" else SCRAPES[-12:])
    kubelet(shown, "renamed-before", cores=3.9, begin=begin, times=SCRAPES[:-12])
    kubelet(shown, "started-late", cores=3.0, begin=NOW - 70, times=SCRAPES[-5:])
    kubelet(shown, "started-now", cores=3.0, begin=NOW - 30, times=SCRAPES[-2:])
    kubelet(shown, "not-scraped", cores=3.6, begin=begin, times=SCRAPES[:-4])
    kubelet(shown, "scraped-again", cores=2.4, begin=begin, times=[*SCRAPES[:-20], *SCRAPES[-6:]])
    for cut, series in {"reset": "same", "restarted": "other"}.items():
        first, last = SCRAPES[:-8], SCRAPES[-8:]
        kubelet(shown, cut, cores=3.2, begin=begin, times=first, id="first")
        kubelet(shown, cut, cores=3.2, begin=last[0] - 4, times=last, id="first" if series == "same" else "second")
    for replica, behind, cores in (("a", 0.0, 2.2), ("b", 7.0, 2.2), ("dead", 100.0, 0.1)):
        times = [time - behind for time in SCRAPES]
        kubelet(shown, "replicas", cores=cores, begin=begin, times=times, prometheus_replica=replica)
    for other in ("istio-proxy", "POD", ""):
        shown.count(CPU_SECONDS, {"pod": "sidecar", "container": other}, SCRAPES, 2.0, begin)
        shown.show(WORKING_SET, {"pod": "sidecar", "container": other}, SCRAPES, [6 * GIB] * len(SCRAPES))
    for line in shown.lines:
        if line["pod"] == "not-a-number" and line["metric"] == WORKING_SET and line["time"] == SCRAPES[-1]:
            line["value"] = float("nan")
    return shown


TRAPS = (
    *("plain", "sidecar", "limit-raised", "not-a-number", "renamed", "started-late", "started-now", "not-scraped"),
    *("scraped-again", "reset", "restarted", "replicas"),
)
NOT_BELIEVED = {"not-a-number", "started-now", "not-scraped"}


def of_pod(lines: pd.DataFrame, metric: str, pod: str) -> pd.DataFrame:
    """The lines of a metric that count for a pod: its container's, of real interfaces."""
    rows = lines[(lines.metric == metric) & (lines.pod == pod)]
    if metric in NETWORK.values():
        return rows[rows.interface.str.startswith("eth")]
    return rows[rows.container == "broker"] if metric.startswith("container_") else rows


def newest_series(rows: pd.DataFrame) -> pd.DataFrame:
    """The series with the newest line."""
    return rows[rows.series == rows.loc[rows.time.idxmax(), "series"]].sort_values("time")


def increase(rows: pd.DataFrame) -> float:
    """Units/s of one counter: what it gained in the window, over the time between these lines."""
    one = newest_series(rows)
    steps = one[one.time > one.time.max() - WINDOW][["time", "value"]].diff().dropna()
    steps = steps[steps.value >= 0]
    return float(steps.value.sum() / steps.time.sum())


def test_usage_on_kubernetes(loads: Mapping[str, ClusterLoad], exposed: Mapping[str, pd.DataFrame]) -> None:
    load, lines = loads["kubernetes"], exposed["kubernetes"]
    assert set(load.quality.doubts) == NOT_BELIEVED
    for row, pod in enumerate(load.brokers.names):
        if pod in NOT_BELIEVED:
            continue
        usage, limit = load.brokers.usage[row], load.brokers.limit[row]
        assert usage[CPU] == pytest.approx(increase(of_pod(lines, CPU_SECONDS, pod)), rel=1e-9), pod
        assert usage[MEMORY] == newest_series(of_pod(lines, WORKING_SET, pod)).value.iloc[-1], pod
        for resource, metric in NETWORK.items():
            both = of_pod(lines, metric, pod).groupby("interface").apply(increase, include_groups=False)
            assert usage[resource] == pytest.approx(both.sum(), rel=1e-9), pod
        allowed = of_pod(lines, "kube_pod_container_resource_limits", pod).groupby("resource").value.last()
        assert limit[[CPU, MEMORY]].tolist() == allowed[["cpu", "memory"]].tolist() == [CORES, 2 * GIB * CORES], pod


def by_brokers_themselves() -> Exposition:
    """Percentages that brokers report of themselves, and the bundles and topics that they serve."""
    shown = Exposition()
    for pod, percent in {"plain": 30.0, "restarted": 60.0, "replicas": 45.0}.items():
        times = SCRAPES[-10:] if pod == "restarted" else SCRAPES
        for name in (*LB.values(), "directMemory"):
            shown.show(f"pulsar_lb_{name}_usage", {"pod": pod}, times, [percent] * len(times))
        for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
            shown.show(f"pulsar_broker_{name}", {"pod": pod}, SCRAPES, [1.0] * len(SCRAPES))
    for name in LB.values():  # a replica that died, and a process that ended but is still shown for a while
        shown.show(f"pulsar_lb_{name}_usage", {"pod": "replicas", "replica": "dead"}, SCRAPES[:-6], [1.0] * 54)
        shown.show(f"pulsar_lb_{name}_usage", {"pod": "restarted", "instance": "old"}, SCRAPES[:-1], [99.0] * 59)
    for number, topic in enumerate(TOPICS):
        pod = "plain" if zlib.crc32(topic.encode()) < 2**31 else "restarted"
        labels = {"topic": topic, "namespace": "/".join(topic.split("/")[2:4]), "pod": pod}
        for name, factor in {"rate_in": 1.0, "rate_out": 2.0, "throughput_in": 100.0, "throughput_out": 300.0}.items():
            shown.show(f"pulsar_{name}", labels, SCRAPES, [factor * (number + 1)] * len(SCRAPES))
    return shown


HALVES = {"t/n/0x00000000_0x80000000": (0, 2**31), "t/n/0x80000000_0xffffffff": (2**31, 2**32)}
TOPICS = (
    *(f"persistent://t/n/plain-{number}" for number in range(20)),
    'persistent://t/n/with "quotes" and \\backslash',
    "persistent://t/n/grüße-日本-🚀",
    "persistent://t/n/a.b+c(d)[e]{f}$",
    "persistent://t/n/events-partition-12",
    "non-persistent://t/n/volatile",
    "persistent://t/unknown/lost",
)


def test_usage_that_brokers_report(loads: Mapping[str, ClusterLoad], exposed: Mapping[str, pd.DataFrame]) -> None:
    load, lines = loads["pulsar"], exposed["pulsar"]
    assert not load.quality.doubts
    for row, pod in enumerate(load.brokers.names):
        for resource, name in LB.items():
            newest = newest_series(of_pod(lines, f"pulsar_lb_{name}_usage", pod)).value.iloc[-1]
            assert (load.brokers.usage[row, resource], load.brokers.limit[row, resource]) == (newest, 100.0), pod


def test_topics_as_bundles(loads: Mapping[str, ClusterLoad], exposed: Mapping[str, pd.DataFrame]) -> None:
    load, lines = loads["pulsar"], exposed["pulsar"]
    topics = lines[lines.topic.notna()].copy()
    topics["hash"] = [zlib.crc32(topic.encode()) for topic in topics.topic]
    newest = topics[topics.time == topics.time.max()]
    for row, name in enumerate(load.bundles.names):
        lower, upper = HALVES[name]
        ours = newest[newest.hash.between(lower, upper - 1) & newest.topic.str.contains("://t/n/", regex=False)]
        sums = ours.groupby("metric").value.sum()
        wanted = [sums[f"pulsar_{name}"] for name in ("rate_in", "rate_out", "throughput_in", "throughput_out")]
        assert load.bundles.short[row].tolist() == wanted
        assert load.bundles.topics[row] == ours.topic.nunique()
    assert load.quality.dropped == {"Unknown": 1, "Duplicate": 1}  # a series of "replicas"


WORLDS: dict[str, tuple[Topology, PrometheusSettings]] = {
    "kubernetes": (
        topology({pod: pod for pod in TRAPS}, {}),
        PrometheusSettings("http://x", "messaging", window=WINDOW, nic_speed=NIC),
    ),
    "pulsar": (
        topology(
            {pod: pod for pod in ("plain", "restarted", "replicas")},
            dict(zip(HALVES, ("plain", "restarted"), strict=True)),
        ),
        PrometheusSettings("http://x", "messaging", "pulsar", window=WINDOW, bundle_metrics="topic"),
    ),
}


@pytest.fixture(scope="module")
def shown() -> Mapping[str, Exposition]:
    return {"kubernetes": on_kubernetes(), "pulsar": by_brokers_themselves()}


@pytest.fixture(scope="module")
def exposed(shown: Mapping[str, Exposition]) -> Mapping[str, pd.DataFrame]:
    return {name: one.frame() for name, one in shown.items()}


@pytest.fixture(scope="module")
def loads(
    prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory, shown: Mapping[str, Exposition]
) -> Mapping[str, ClusterLoad]:
    """The load as Trimtab measures it, by preset."""
    found = {}
    for name, one in shown.items():
        folder = tmp_path_factory.mktemp(name)
        lines = folder / "lines"
        lines.write_text(one.text())
        made = [find.find_prometheus(find.TOOL), "tsdb", "create-blocks-from", "openmetrics", lines, folder / "data"]
        subprocess.run(made, check=True, capture_output=True)
        sources = direct_sources(folder / "history")
        world, settings = WORLDS[name]
        with PrometheusServer(prometheus_binary, folder) as server:
            source = sources.open("tests/figures", replace(settings, url=server.url))
            found[name] = source.observe(world, NOW).result(timeout=60).load
        sources.close()
    return found
