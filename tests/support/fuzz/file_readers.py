"""Readers of files: manifests, saved plans, scenarios, recordings, and histories."""

from __future__ import annotations

import atexit
import gzip
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from conformance.recording import InvalidRecordingError, read
from fuzz_target import Target
from recorded_history import POLICY, RecordedHistory
from trim_world import START, World, spread
from trimtab_lab.simulation.scenario import CATALOGUE, InvalidScenarioError, parsed
from trimtab_operator.cli.commands.apply import _policy
from trimtab_operator.cli.commands.plan_file import read_plan
from trimtab_operator.cli.commands.plan_manifest import policy_among
from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.lint.command import Checking
from trimtab_operator.cli.lint.files import UnreadableError, documents_of
from trimtab_operator.cli.lint.rules import LintContext
from trimtab_operator.proposals.saved_plan import InvalidPlanError, received
from trimtab_operator.resources.urls import SERVICES_ALONE
from trimtab_operator.state.settings import InvalidPolicyError, Settings
from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.export import ExchangeError, export, unpack
from trimtab_pipeline.history.reader import HistoryReader, NoHistoryError
from trimtab_pipeline.history.recording import Recording

ROOT = Path(__file__).parents[3]
RECORDING = ROOT / "tests" / "conformance" / "pulsar"
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Folder for temporary files, in memory if the machine has one: on a disk, making folders takes most of the time."""

UID = "00000000-0000-0000-0000-000000000000"


def _text(data: bytes) -> tuple[str, str]:
    """Name and text of a file; one that begins with a brace is JSON."""
    return "file.json" if data[:1] == b"{" else "file.yaml", data.decode("utf-8", "replace")


def read_lint(data: bytes) -> None:
    """A manifest, as `trimtab lint` reads it."""
    name, text = _text(data)
    checking = Checking(LintContext(SERVICES_ALONE, 15.0, time.time()))
    for document in documents_of(name, text):
        checking._document(document)
    for finding in checking.end():
        json.dumps(finding.as_data(), ensure_ascii=False).encode()


def read_policy(data: bytes) -> None:
    """A policy, as `trimtab plan -f` and `trimtab apply` read it."""
    name, text = _text(data)
    given = policy_among(documents_of(name, text), name, None)
    _policy(name, given)
    meta = {**given["metadata"], "uid": UID, "generation": 1, "namespace": "messaging"}
    Settings.of({**given, "metadata": meta})


@cache
def _manifests() -> tuple[bytes, ...]:
    files = sorted((ROOT / "examples").glob("*.yaml"))[:12]
    merged = b"a: &a {x: 1}\nb: {<<: *a}\nc: [*a, !!int '7', 0x1F, 1e3, ~]\n"
    return (*(file.read_bytes() for file in files), merged, b'{"apiVersion": "trimtab.dev/v1alpha1", "kind": "Broker"}')


def read_saved_plan(data: bytes) -> None:
    """A saved plan, as `trimtab approve -f` reads it, and the operator then."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        file = Path(folder, _text(data)[0])
        file.write_bytes(data)
        plan = read_plan(str(file))
        assert received(plan.sent) == plan
        assert received(plan.undone.sent)


def _plans() -> list[bytes]:
    move = {"bundle": "t/n/0x00000000_0x80000000", "source": "a", "destination": "b", "reason": "Overloaded"}
    plan = {"kind": "MovePlan", "namespace": "n", "policy": "p", "madeAt": "2026-01-01T00:00:00Z", "moves": [move]}
    return [json.dumps(plan).encode(), b"kind: MovePlan\nnamespace: n\npolicy: p\nmoves:\n- {bundle: b, source: a}\n"]


def read_scenario(data: bytes) -> None:
    """A scenario, as `trimtab simulate` reads it."""
    found = parsed(data.decode("utf-8", "replace"), "file.yaml")
    assert found.event >= 0
    assert len(found.bundles) == len(found.tenants)


def read_recording(data: bytes) -> None:
    """A recording, as `make conformance` reads it."""
    for _ in read(data.decode("utf-8", "replace").splitlines()):
        pass


def _recordings() -> list[bytes]:
    file = min(RECORDING.glob("*.jsonl.gz"), key=lambda file: file.stat().st_size)
    lines = gzip.decompress(file.read_bytes()).splitlines()
    hermes = {"algorithm": "a", "input": {}, "expected": {}}
    return [min(lines, key=len), json.dumps(hermes).encode()]


def read_archive(data: bytes) -> None:
    """An archive of a history, unpacked and then read as by a backtest."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        archive, root = Path(folder, "window.tar"), Path(folder, "root")
        archive.write_bytes(data)
        for policy in unpack(archive, root).cycles:
            _replay(root, policy)


def read_history_file(data: bytes) -> None:
    """A file of a history, put in the place of a cycle's demand file."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        root = Path(folder, "root")
        shutil.copytree(_unpacked(), root, copy_function=os.link)
        place = _demand_file(root)
        place.unlink()  # a hard link: writing to it would change the unpacked history
        place.write_bytes(data)
        _replay(root, POLICY)


def _replay(root: Path, policy: str) -> None:
    recording = Recording(str(root), policy)
    recording.specs(0.0, 1e12)
    recording.hidden_isolation(START, START + 3600)
    for _ in recording.cycles(0.0, 1e12):
        pass


@cache
def _recorded() -> bytes:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        history = RecordedHistory(Path(folder))
        world = World.of(spread(70, 4, 1), spread(25, 4, 2))
        history.policy(START, {"mode": "Auto"})
        rows = zip(world.bundles, world.owner, strict=True)
        facts = {("bundle", name): {"owner": world.brokers[row]} for name, row in rows}
        isolated = {"isolation": {"primary": ["broker-0"], "secondary": [], "min_available": 1}, "unload": True}
        history.know(START, {**facts, ("namespace", "public/default"): isolated, ("traits", "broker-0"): {"weight": 2}})
        for _ in range(2):
            history.cycle(world.cluster(np.ones(len(world.load))))
            world.now += 60
        target = Path(folder, "window.tar")
        export([HistoryReader(folder, POLICY)], 0.0, 1e12, target, None)
        return target.read_bytes()


@cache
def _unpacked() -> Path:
    """A small history that was unpacked once. Copy it: this folder must not change."""
    folder = Path(tempfile.mkdtemp(prefix="history-to-fuzz-", dir=IN_MEMORY))
    atexit.register(shutil.rmtree, folder)
    archive = folder / "window.tar"
    archive.write_bytes(_recorded())
    unpack(archive, folder / "root")
    return folder / "root"


def _demand_file(root: Path) -> Path:
    """The file of the first cycle's demand in the history at `root`."""
    (found,) = (root / "history" / "demand").rglob("*.parquet")
    return found


def _history_files() -> Sequence[bytes]:
    return [_demand_file(_unpacked()).read_bytes()]


FOREIGN = (ExchangeError, ForeignFileError, NoHistoryError)
MANIFEST = (CommandError, UnreadableError)

_seeds: Callable[[], Sequence[bytes]] = _manifests

TARGETS = (
    Target("lint", read_lint, (UnreadableError,), _seeds),
    Target("policy", read_policy, (*MANIFEST, InvalidPolicyError), _seeds),
    Target("plan", read_saved_plan, (CommandError, InvalidPlanError), _plans),
    Target(
        "scenario",
        read_scenario,
        (InvalidScenarioError,),
        lambda: [file.read_bytes() for file in sorted(CATALOGUE.glob("*.yaml"))],
    ),
    Target("recording", read_recording, (InvalidRecordingError,), _recordings),
    Target("archive", read_archive, FOREIGN, lambda: [_recorded()]),
    Target("history", read_history_file, FOREIGN, _history_files),
)
