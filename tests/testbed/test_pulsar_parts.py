"""Parts around real brokers: topic names per bundle, tokens, control groups, files, and the kubelet's metrics."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
import zlib
from pathlib import Path

import pytest

from real_pulsar.cgroups import Box
from real_pulsar.clients import ClientTraffic, Flow, topics_of
from real_pulsar.cluster import PulsarCluster
from real_pulsar.exporter import Kubelet, Payload, PodLimits
from real_pulsar.settings import LoadManagerKind
from small_cluster import until
from trimtab_testbed.servers.processes import HOST, Server


@pytest.mark.parametrize("bounds", ["0x00000000_0x40000000", "0x80000000_0xc0000000", "0xc0000000_0xffffffff"])
def test_topics_fall_into_the_bundle_they_are_meant_for(bounds: str) -> None:
    low, high = (int(edge, 16) for edge in bounds.split("_"))

    found = topics_of(f"t/n/{bounds}", 20)

    assert len(set(found)) == 20
    assert all(low <= zlib.crc32(topic.encode()) <= high for topic in found)
    assert all(topic.startswith("persistent://t/n/") for topic in found)


def test_topics_of_a_bundle_are_found_again_by_their_hash() -> None:
    bundle = "t/n/0x40000000_0x80000000"
    inside = topics_of(bundle, 3, persistent=False)
    outside = topics_of("t/n/0x80000000_0xc0000000", 3, persistent=False)
    traffic = ClientTraffic("pulsar://127.0.0.1:1", [Flow(topic, 1) for topic in (*inside, *outside)])

    assert traffic.inside(bundle) == inside


def test_a_process_joins_its_groups_before_it_becomes_itself(tmp_path: Path) -> None:
    for controller in ("cpu", "cpuacct", "memory"):
        (tmp_path / controller).mkdir()
    box = Box("broker-0", tmp_path)
    assert not box.make(), "these folders are not control groups"
    for controller in ("cpu", "cpuacct", "memory"):
        (tmp_path / controller / "broker-0").mkdir(exist_ok=True)
        (tmp_path / controller / "broker-0" / "cgroup.procs").touch()
    assert box.make()

    script = "import os; print(os.getpid(), end='')"
    said = subprocess.run(box.around([sys.executable, "-c", script]), capture_output=True, text=True, check=True)

    joined = [(tmp_path / c / "broker-0" / "cgroup.procs").read_text() for c in ("cpu", "cpuacct", "memory")]
    assert {pid.strip() for pid in joined} == {said.stdout}


def test_a_limit_of_cores_is_written_as_each_layout_wants_it(tmp_path: Path) -> None:
    old, unified = tmp_path / "old", tmp_path / "unified"
    for folder in (old / "cpu" / "box", unified / "box"):
        folder.mkdir(parents=True)
    (unified / "cgroup.controllers").write_text("cpu memory\n")

    Box("box", old).limit(0.5)
    Box("box", unified).limit(1.5)

    assert (old / "cpu" / "box" / "cpu.cfs_quota_us").read_text() == "50000"
    assert (unified / "box" / "cpu.max").read_text() == "150000 100000"


class _Brokers(PulsarCluster):
    """Processes of ours in the place of brokers."""

    def run(self, folder: Path) -> None:
        command = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
        self._brokers = [Server(command, log=folder / f"{n}.log") for n in range(len(self.ids))]
        for server in self._brokers:
            server.start()
        for number in range(len(self.ids)):  # until its program runs, a process has hardly any memory
            until("a broker is up", (folder / f"{number}.log").read_text)


def test_the_kubelet_tells_the_true_figures_of_running_brokers_only(tmp_path: Path) -> None:
    cluster = _Brokers(tmp_path, tmp_path, LoadManagerKind.MODULAR, brokers=2)
    kubelet = Kubelet(cluster, ("pulsar-broker-0", "pulsar-broker-1"), "messaging", PodLimits(cores=0.5, memory=1000))
    try:
        cluster.run(tmp_path)
        with kubelet:
            with urllib.request.urlopen(f"http://{kubelet.target.address}/metrics", timeout=5) as answer:
                page = answer.read().decode()
            cluster.kill(1)
            later = kubelet.page()
    finally:
        cluster.stop()

    cpu = 'container_cpu_usage_seconds_total{namespace="messaging",pod="pulsar-broker-0",container="broker"}'
    memory = re.search(r'working_set_bytes\{[^}]*pod="pulsar-broker-0",container="broker"\} (\S+)', page)
    assert cpu in page
    assert memory is not None
    assert 1e5 < float(memory[1]) < 1e9
    assert (
        'limits{namespace="messaging",pod="pulsar-broker-1",container="broker",resource="cpu",unit="core"} 0.5' in page
    )
    assert "pulsar-broker-0" in later
    assert "pulsar-broker-1" not in later


def _topic(name: str, received: int, sent: int) -> str:
    """A broker's page for a topic with one subscription, and the total of what the broker serves now."""
    labels = f'cluster="e2e",namespace="t/n",topic="persistent://t/n/{name}"'
    return (
        f"pulsar_in_bytes_total{{{labels}}} {received}\n"
        f'pulsar_out_bytes_total{{{labels},subscription="s"}} {sent}\n'
        f'pulsar_broker_in_bytes_total{{cluster="e2e",system_topic="false"}} {received}\n'
    )


@pytest.mark.parametrize(
    ("pages", "received", "sent"),
    [
        ([""], 0, 0),
        ([_topic("a", 100, 200)], 100, 200),
        ([_topic("a", 100, 200), _topic("a", 130, 260)], 130, 260),
        ([_topic("a", 100, 200) + _topic("b", 10, 20), _topic("b", 15, 30)], 115, 230),
        ([_topic("a", 100, 200), "", _topic("a", 5, 7)], 105, 207),
        ([_topic("a", 100, 200), _topic("a", 5, 7)], 105, 207),
        ([_topic("odd} 7", 100, 200)], 100, 200),
    ],
    ids=["no topics", "one", "grows", "one leaves", "leaves and returns", "restarts between pages", "odd name"],
)
def test_payload_never_falls(pages: list[str], received: float, sent: float) -> None:
    payload = Payload()

    for page in pages:
        payload.add(page)

    assert payload.total == {"in": received, "out": sent}


class _Pages(_Brokers):
    """Brokers that serve the files of their folder: ``metrics/index.html`` is their page."""

    def run(self, folder: Path) -> None:
        ports = [name.rpartition(":")[2] for name in self.ids]
        folders = [folder / str(n) for n in range(len(ports))]
        commands = [[sys.executable, "-m", "http.server", port, "--bind", HOST] for port in ports]
        self._brokers = [Server(c, log=f / "log") for c, f in zip(commands, folders, strict=True)]
        for server, url in zip(self._brokers, self.urls, strict=True):
            server.start()
            server.wait_ready(f"{url}/metrics/")


def _received(kubelet: Kubelet) -> float | None:
    found = re.search(r"container_network_receive_bytes_total\{[^}]*\} (\S+)", kubelet.page())
    return None if found is None else float(found[1])


def _awaited(kubelet: Kubelet, received: float) -> list[float]:
    """Wait until the page shows `received`; returns the values that it showed on the way."""
    told: list[float] = []
    deadline = time.monotonic() + 30
    while not told or told[-1] != received:
        assert time.monotonic() < deadline, told
        if (value := _received(kubelet)) is not None and value not in told[-1:]:
            told.append(value)
        time.sleep(0.02)
    return told


@pytest.mark.slow
def test_network_counters_fall_with_a_restart_only(tmp_path: Path) -> None:
    cluster = _Pages(tmp_path, tmp_path, LoadManagerKind.MODULAR, brokers=1)
    page = tmp_path / "0" / "metrics" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(_topic("a", 100, 200) + _topic("b", 1000, 2000))
    try:
        cluster.run(tmp_path)
        with Kubelet(cluster, ("pulsar-broker-0",), "messaging") as kubelet:
            at_first = _awaited(kubelet, 1100)
            page.write_text(_topic("a", 150, 300))  # the other topic has left
            moved = _awaited(kubelet, 1150)
            cluster.kill(0)
            page.write_text(_topic("a", 30, 60))
            cluster.start_broker(0, wait=False)
            restarted = _awaited(kubelet, 30)
    finally:
        cluster.stop()

    assert (at_first, moved, restarted) == ([1100], [1100, 1150], [30])


def test_a_folder_without_jars_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=re.escape(str(tmp_path / "lib"))):
        PulsarCluster(tmp_path, tmp_path / "work", LoadManagerKind.MODULAR).start()
    assert not (tmp_path / "work").exists()
