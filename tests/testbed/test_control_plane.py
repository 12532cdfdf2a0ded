"""The control plane is a real one: it versions, refuses, authorises, restarts and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube import ControlPlane, KubectlError
from trimtab_testbed.servers.kube_rest import KubeApiError, KubeRest

pytestmark = pytest.mark.apiserver


def _config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}}


def test_a_kubeconfig_with_a_namespace_needs_no_flag(control_plane: ControlPlane, kube_namespace: str) -> None:
    control_plane.rest.create(f"/api/v1/namespaces/{kube_namespace}/configmaps", _config_map("here"))
    token = {"token": control_plane.token}
    kubeconfig = control_plane.write_kubeconfig("placed", token, namespace=kube_namespace)
    found = control_plane.kubectl("get", "configmap", "here", "-o", "name", f"--kubeconfig={kubeconfig}")
    assert found.strip() == "configmap/here"


def test_a_user_without_rights_is_refused(control_plane: ControlPlane, kube_namespace: str) -> None:
    kubeconfig = control_plane.user_kubeconfig("nobody-special", "guests")
    with pytest.raises(KubectlError, match='User "nobody-special" cannot list'):
        control_plane.kubectl("get", "pods", "-n", kube_namespace, f"--kubeconfig={kubeconfig}")


def test_a_connection_is_kept_for_the_next_request_and_a_refusal_is_not_its_end(control_plane: ControlPlane) -> None:
    rest = KubeRest(control_plane.url, token=control_plane.token, ca=control_plane.ca)
    rest.get("/version")
    [kept] = rest._idle
    with pytest.raises(KubeApiError, match="not found"):
        rest.get("/api/v1/namespaces/nowhere")
    assert rest.get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
    assert rest._idle == [kept]

    rest.close()

    assert kept.sock is None
    assert rest.get("/version")


def test_data_and_address_survive_a_crash_of_the_api_server(kube_binaries: KubeBinaries, tmp_path: Path) -> None:
    with ControlPlane(kube_binaries, tmp_path, audit=True) as own:
        url = own.url
        own.rest.create("/api/v1/namespaces/default/configmaps", _config_map("kept"))
        own.stop_apiserver(kill=True)
        with pytest.raises(OSError, match="refused"):
            own.rest.get("/version")
        own.start_apiserver()
        assert own.url == url
        assert own.rest.get("/api/v1/namespaces/default/configmaps/kept")["data"] == {"key": "value"}
        verbs = {event["verb"] for event in own.audit_events() if event.get("objectRef", {}).get("name") == "kept"}
    assert verbs == {"create", "get"}
    assert not own.server("kube-apiserver").running
    assert not own.server("etcd").running


def test_no_server_outlives_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys, time, pathlib\n"
        "from trimtab_testbed.servers.processes import Server\n"
        "server = Server(['/bin/sleep', '300'], log=pathlib.Path(sys.argv[1]) / 'sleep.log')\n"
        "server.start(); print(server.pid, flush=True); time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    assert _ends(child, within=5)


def _ends(pid: int, *, within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False


@pytest.mark.controllers
def test_with_controllers_dependents_follow_their_owner(full_control_plane: ControlPlane) -> None:
    rest, maps = full_control_plane.rest, "/api/v1/namespaces/default/configmaps"
    owner = rest.create(maps, _config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    rest.create(maps, {**_config_map("dependent"), "metadata": {"name": "dependent", "ownerReferences": [reference]}})
    rest.delete(f"{maps}/owner")
    deadline = time.monotonic() + 30
    names = {"dependent"}
    while "dependent" in names and time.monotonic() < deadline:
        time.sleep(0.2)
        names = {item["metadata"]["name"] for item in rest.get(maps)["items"]}
    assert "dependent" not in names
