"""A history in a bucket of S3: the same rows as in a folder, and the same state after a restart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kept_histories import (
    AT,
    FOREVER,
    LOAD,
    NoHousekeeping,
    dataset,
    held,
    inside,
    keep,
    measured,
    merge,
    resources,
)
from s3_server import S3Server, serving
from trimtab_operator.cli import main
from trimtab_pipeline.api import Retention
from trimtab_pipeline.history.dataset import DEMAND, TABLES
from trimtab_pipeline.history.export import export, readable
from trimtab_pipeline.history.files import read_state
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.location import Location
from trimtab_pipeline.history.reader import HistoryReader
from trimtab_pipeline.history.writer import HistoryWriter

POLICY, ROOT = "prod/one", "s3a://telemetry/trimtab"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server that the environment names."""
    with serving() as server:
        settings = {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.mark.slow
def test_a_history_in_a_bucket_is_that_in_a_folder(bucket: S3Server, tmp_path: Path) -> None:
    for root in (ROOT, tmp_path):
        keep(root, POLICY, range(0, 130, 30))
        merge(root, POLICY, 190)
    for table in TABLES.values():
        assert held(ROOT, POLICY, table).equals(held(tmp_path, POLICY, table))
    there, here = (HistoryReader(root, POLICY).summary() for root in (ROOT, tmp_path))
    assert there == here
    assert bucket.keys == sorted(
        f"telemetry/trimtab/{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*.parquet")
    )


def test_a_restart_goes_on_from_the_state_in_the_bucket(bucket: S3Server) -> None:
    keep(ROOT, POLICY, [0, 1, 2])
    state = HistoryWriter(ROOT, POLICY, FOREVER, NoHousekeeping()).state(AT + 180, math.inf)
    assert state.bundles == f"{ROOT}/state/prod/one/bundles/20250615T150200.000000Z.parquet"
    assert set(read_state(state.bundles, ["seen"])["seen"].to_pylist()) == {AT + 120}
    assert len([key for key in bucket.keys if "/state/" in key]) == 4


def test_a_cycle_is_listed_only_once_all_of_it_is_there(bucket: S3Server) -> None:
    keep(ROOT, POLICY, [0])
    assert "/history/demand/" in bucket.writes[-1]


def test_a_bucket_that_takes_nothing_costs_history_and_no_averages(bucket: S3Server) -> None:
    writer = HistoryWriter(ROOT, POLICY, FOREVER, NoHousekeeping())
    bucket.full = True
    told = writer.keep(*measured(LOAD, AT), replace(LOAD, now=AT), resources(LOAD), inside=inside(LOAD))
    assert told.startswith(f"the history below {ROOT} can't be written: ")
    assert set(read_state(writer.state(AT + 60, math.inf).bundles)["seen"].to_pylist()) == {AT}


def test_old_hours_go_and_damage_is_set_aside(bucket: S3Server) -> None:
    keep(ROOT, POLICY, [0, 30, 60, 90])
    first = dataset(ROOT, POLICY).files(DEMAND)[2].place
    bucket.objects[first.path] = b"damaged"
    Housekeeping(dataset(ROOT, POLICY), Retention(seconds=3600, merge_after=0)).tidy(AT + 150 * 60)
    assert not [key for key in bucket.objects if "hour=15" in key]
    assert [Location.of(f"s3a://{key}").name for key in bucket.keys if key.endswith(".bad")] == [
        "_20250615T160000.000000Z.bad"
    ]
    assert HistoryReader(ROOT, POLICY).times() == [AT + 90 * 60]


@pytest.mark.slow
@pytest.mark.usefixtures("bucket")
def test_a_window_goes_from_a_bucket_into_a_file(tmp_path: Path) -> None:
    keep(ROOT, POLICY, range(0, 130, 30))
    past = HistoryReader(ROOT, POLICY)
    export([past], -math.inf, math.inf, tmp_path / "window.tar", None)
    with readable(str(tmp_path / "window.tar")) as folder:
        assert HistoryReader(folder, POLICY).times() == past.times()


@pytest.mark.usefixtures("bucket")
def test_the_command_line_takes_a_bucket(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep(ROOT, POLICY, [0, 1])
    assert main(["history", "--dir", ROOT, "--compact"]) == 0
    assert "prod/one: 6 hours of a table merged" in capsys.readouterr().err
    assert main(["history", "export", "--dir", ROOT, "--hash-names", str(tmp_path / "x.tar")]) == 2
    assert "name a file for it with --key" in capsys.readouterr().err


def test_options_in_a_uri_are_refused() -> None:
    with pytest.raises(ValueError, match="takes no options; name the server in the environment as AWS_ENDPOINT_URL"):
        Location.of("s3a://telemetry/x?endpoint_override=http://localhost")
