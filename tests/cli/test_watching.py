"""`trimtab status --watch`: lines for a pipe, objects for a program, one place of a terminal for a person."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from manifests import broker, bundle, policy, topic_namespace
from trimtab_operator.cli.commands.status import InPlace, LineByLine, PendingMoveRow, in_flight
from trimtab_operator.cli.commands.status_table import as_data, edited, policy_grid, print_all, print_one
from trimtab_operator.kube.records import bundle_record
from trimtab_testbed.servers.kube import ControlPlane

Captured = pytest.CaptureFixture[str]
NOON = 1_770_000_000.0
PENDING = PendingMoveRow("b", "broker-0", "broker-1", "Overloaded", NOON - 3)


def shown(name: str = "main", ready: str = "True", **status: Any) -> dict[str, Any]:
    """A policy as `status` shows it."""
    conditions = [{"type": "Ready", "status": ready, "reason": "Untrusted", "message": "half of them are silent"}]
    made = policy(name, mode="Auto")
    meta = {"name": name, "namespace": "messaging"}
    return as_data({**made, "metadata": meta, "status": {"conditions": conditions, "inFlight": 1, **status}})


def test_a_line_is_printed_for_each_change_and_for_no_more(capsys: Captured) -> None:
    lines = LineByLine("table")
    quiet = shown(lastCycle={"outcome": "Balanced"}, inFlight=0)
    busy = shown(lastCycle={"outcome": "Overloaded"})

    for policies, pending_moves in (
        ([quiet], []),
        ([quiet], []),
        ([busy], [PENDING]),
        ([busy], [PENDING]),
        ([busy], []),
        ([], []),
    ):
        lines.show(policies, pending_moves, NOON)

    told = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "messaging/main  Auto  Ready=True  Balanced  proposed 0, in flight 0",
        "messaging/main  Auto  Ready=True  Overloaded  proposed 0, in flight 1",
        "b  broker-0 -> broker-1 (Overloaded)",
        "b  is no longer moving to broker-1",
        "messaging/main  is gone",
    ]


def test_a_policy_that_no_operator_manages_is_shown_as_such_and_once(capsys: Captured) -> None:
    alone = [shown(ready="False") | {"leftAlone": f"its last cycle was {age}s ago"} for age in (61, 62)]
    lines, objects = LineByLine("table"), LineByLine("json")
    for policy_ in alone:
        lines.show([policy_], [], NOON)
        objects.show([policy_], [], NOON)

    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("in flight 1  no operator manages it")
    assert json.loads(second)["policies"][0]["leftAlone"] == "its last cycle was 61s ago"


def test_a_status_of_the_policy_before_an_edit_is_shown_as_such(capsys: Captured) -> None:
    seen = shown(observedGeneration=2)
    assert edited({**seen, "generation": 2}) == edited({**shown(), "generation": 1}) == ""
    told = "edited: its status is of generation 2, before the edit (now 3)"
    late = {**seen, "generation": 3}
    LineByLine("table").show([late], [], NOON)
    print_one(late, "never")
    print_all([late], "messaging", "never")
    assert capsys.readouterr().out.count(told) == 3


def test_a_program_reads_an_object_a_line(capsys: Captured) -> None:
    lines = LineByLine("json")
    for pending_moves in ([], [], [PENDING]):
        lines.show([shown()], pending_moves, NOON)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[move["bundle"] for move in one["inFlight"]] for one in told] == [[], ["b"]]
    assert told[0]["policies"][0]["policy"] == "main"


def test_the_picture_has_policies_progress_trouble_and_bundles_on_their_way(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    progress = {"proposal": "x", "percent": 40, "landed": 2, "total": 5, "inFlight": 1}
    view = InPlace("never", everywhere=False, wide=True)
    view.show([shown("fine", progress=progress), shown("odd", ready="False")], [PENDING] * 20, NOON)
    view.close()
    picture = capsys.readouterr().out
    for words in ("fine", "40 %: 2 of 5 landed", "odd: Untrusted: half of them are silent", "ThresholdShedder"):
        assert words in picture
    assert "Pending moves (the first 15 of 20)" in picture
    assert "broker-0 -> broker-1" in picture
    assert "20 pending moves; Ctrl-C ends" in picture


def test_on_their_way_are_bundles_that_are_not_where_they_are_wished() -> None:
    def record(name: str, owner: str, status_owner: str) -> Any:
        raw = bundle(name, owner=owner)
        raw["metadata"] |= {"resourceVersion": "1", "generation": 2, "uid": "u"}
        return bundle_record({**raw, "status": {"owner": status_owner, "state": "Owned", "observedGeneration": 2}})

    records = [record("there", "x", "x"), record("going", "x", "y"), record("nobody", "", "y"), record("new", "x", "")]
    assert [(f.bundle, f.source, f.destination) for f in in_flight(records)] == [("going", "y", "x"), ("new", "", "x")]


# -- the whole program against a real API server --


def objects(plane: ControlPlane, namespace: str) -> str:
    """A policy and a bundle on its way; gives the API's root."""
    root = f"/apis/trimtab.dev/v1alpha1/namespaces/{namespace}"
    plane.rest.create(f"{root}/topicnamespaces", topic_namespace())
    plane.rest.create(f"{root}/brokers", broker())
    plane.rest.create(f"{root}/bundles", bundle(owner="broker-0"))
    plane.rest.create(f"{root}/balancingpolicies", policy())
    return root


def command(plane: ControlPlane, namespace: str) -> list[str]:
    """What is begun in the background by a shell ignores SIGINT, and so would a watch of tests that were."""
    words = ["-m", "trimtab_operator", "status", "-w", "-n", namespace, "--kubeconfig", str(plane.kubeconfig)]
    return ["env", "--default-signal=INT", sys.executable, *words]


@pytest.mark.apiserver
def test_a_pipe_gets_lines_until_it_is_ended(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    root = objects(trimtab_crds, kube_namespace)
    running = subprocess.Popen(command(trimtab_crds, kube_namespace), stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        first = running.stdout.readline()
        assert f"{kube_namespace}/main  DryRun  Ready=Unknown  no cycle yet" in first
        assert first.endswith("in flight 0  no operator manages it\n")
        assert "b  (no owner) -> broker-0" in running.stdout.readline()
        body = {"status": {"owner": "broker-0", "state": "Owned", "observedGeneration": 1}}
        trimtab_crds.rest.patch(f"{root}/bundles/b/status", body)
        assert "b  is no longer moving to broker-0" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.communicate()


@pytest.mark.apiserver
def test_a_terminal_gets_one_picture_that_is_drawn_anew(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    objects(trimtab_crds, kube_namespace)
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    running = subprocess.Popen(
        command(trimtab_crds, kube_namespace), stdin=theirs, stdout=theirs, stderr=theirs, env=env, close_fds=True
    )
    os.close(theirs)
    try:
        shown = until(ours, lambda text: text.count("Ctrl-C ends") >= 2)
        assert "broker-0" in shown
        assert "\x1b[1A" in shown, "the cursor goes up to where the picture begins"
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
        os.close(ours)


def until(terminal: int, seen: Any, patience: float = 120.0) -> str:
    """What was written to the terminal up to where it is as expected."""
    text, deadline = "", time.monotonic() + patience
    while not seen(text):
        assert time.monotonic() < deadline, text
        if select.select([terminal], [], [], 1.0)[0]:
            text += os.read(terminal, 65536).decode(errors="replace")
    return text


def test_the_cpu_of_a_policy_that_measured_nothing_is_a_dash() -> None:
    grid = policy_grid([as_data({"metadata": {"name": "main"}, "spec": {}, "status": {}})], wide=True)

    assert grid.rows[0][grid.headings.index("CPU")] == "-"
