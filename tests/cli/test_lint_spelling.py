"""Values in another spelling: lint names the field, what is wrong, and the value to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import policy
from trimtab_operator.cli import main
from trimtab_operator.cli.lint.spelling import choice_meant, duration_meant, quantity_meant
from trimtab_operator.resources.urls import RefusedUrlError, parse, safe_text
from trimtab_strategies.params import quantity, seconds

Captured = pytest.CaptureFixture[str]

PULSAR = "org.apache.pulsar.broker.loadbalance"
SECRET = "s3cr3t"


def told(text: str | dict[str, Any], folder: Path, capsys: Captured) -> dict[str, str]:
    """The errors in a manifest, by field."""
    file = folder / "policy.yaml"
    file.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
    main(["lint", str(file), "-o", "json"])
    shown = capsys.readouterr().out
    assert SECRET not in shown
    return {f["field"]: f["message"] for f in json.loads(shown) if f["level"] == "error"}


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        (
            {"interval": "1d"},
            "spec.interval",
            'is "1d": write 24h (a duration in h, m and s, such as 90s, 5m or 1h30m)',
        ),
        ({"interval": "soon"}, "spec.interval", 'is "soon": write a duration in h, m and s, such as 90s, 5m or 1h30m'),
        ({"interval": 60}, "spec.interval", 'is 60: write a string, in quotes: "60s"'),
        ({"mode": "auto"}, "spec.mode", 'is "auto": write Auto'),
        ({"mode": "dry-run"}, "spec.mode", 'is "dry-run": write DryRun'),
        ({"mode": "Automatic"}, "spec.mode", "must be one of DryRun, Approve, Auto"),
        ({"paused": "yes"}, "spec.paused", 'is "yes": write true or false: true, without quotes'),
        ({"paused": 0}, "spec.paused", "is 0: write true or false: false, without quotes"),
        ({"limits": {"maxMovesPerHour": "20"}}, "spec.limits.maxMovesPerHour", "a whole number: 20, without quotes"),
        ({"shedder": "ThresholdShedder"}, "spec.shedder", "write a map of fields: {type: ThresholdShedder}"),
        ({"shedder": {"type": f"{PULSAR}.impl.ThresholdShedder"}}, "spec.shedder.type", ": write ThresholdShedder"),
        (
            {"placement": {"type": f"{PULSAR}.extensions.strategy.LeastResourceUsageWithWeight"}},
            "spec.placement.type",
            ": write ExtensibleLeastResourceUsageWithWeight",
        ),
        (
            {"shedder": {"type": f"{PULSAR}.impl.LeastLongTermMessageRate"}},
            "spec.shedder.type",
            "; that belongs in spec.placement: {type: LeastLongTermMessageRate}",
        ),
        (
            {"shedder": {"type": f"{PULSAR}.extensions.ExtensibleLoadManagerImpl"}},
            "spec.shedder.type",
            "that is a load manager of Pulsar, which names no strategy: `trimtab migrate` reads broker.conf",
        ),
        (
            {"shedder": {"type": "AvgShedder", "avgShedder": {"minThroughput": "1MB"}}},
            "spec.shedder.avgShedder.minThroughput",
            'is "1MB": write 1M (a quantity such as 500k, 10Mi or 1.5G)',
        ),
        (
            {"source": {"prometheus": {"url": "localhost:9090"}}},
            "spec.source.prometheus.url",
            "the url has no scheme; write http://localhost:9090 or https://localhost:9090",
        ),
        (
            {"source": {"prometheus": {"url": f"https://thanos:9092?token={SECRET}"}}},
            "spec.source.prometheus.url",
            "write https://thanos:9092: queries are added to its path; its parameters belong in spec.source",
        ),
        ({"pulsar": {"adminUrl": f"http://ann:{SECRET}@h:8080"}}, "spec.pulsar.adminUrl", "the url holds a user name"),
        ({"pulsar": {"adminUrl": f"http://ann:x?{SECRET}@h"}}, "spec.pulsar.adminUrl", "the url can't be read"),
    ],
    ids=str,
)
def test_what_to_write_is_told(
    changes: dict[str, Any], field: str, message: str, tmp_path: Path, capsys: Captured
) -> None:
    assert message in told(policy(**changes), tmp_path, capsys)[field]


def test_a_number_in_the_notation_of_science_is_what_the_api_server_gets(tmp_path: Path, capsys: Captured) -> None:
    given = policy(shedder={"type": "AvgShedder", "avgShedder": {"minThroughput": "NUMBER"}})
    text = yaml.safe_dump(given)
    assert told(text.replace("NUMBER", "1e3"), tmp_path, capsys) == {}
    (large,) = told(text.replace("NUMBER", "1e21"), tmp_path, capsys).values()
    assert "write a whole number, or a quantity such as 10Mi" in large  # JSON has it as 1e+21
    (quoted,) = told(text.replace("NUMBER", "'1e3'"), tmp_path, capsys).values()
    assert quoted.startswith('is "1e3": write 1000')


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("1d", 86400), ("1.5h", 5400), ("5 min", 300), ("PT5M", 300), ("P1DT2H", 93600), ("1w", 604800)),
        *(("1h 30m", 5400), ("2000ms", 2), ("30 Seconds", 30)),
        *((wrong, None) for wrong in ("90", "500ms", "-5m", "soon", "1h30", "0d", "P1M", "1y", "", "1,5h")),
    ],
)
def test_a_duration_in_other_units_is_converted_if_its_length_is_certain(text: str, meant: float | None) -> None:
    found = duration_meant(text)
    assert (seconds(found) if found else None) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("1MB", 1e6), ("10 Mi", 10 * 2**20), ("1K", 1e3), ("1kb", 1e3), ("1e3", 1e3), ("1.5e3", 1500)),
        *(("1,000,000", 1e6), ("10MiB/s", 10 * 2**20), ("1_000", 1e3), ("1.50GB", 1.5e9), ("5 bytes", 5)),
        *((wrong, None) for wrong in ("10Mbit", "1,5M", "100m", "1e99", "-5M", "many", "", "1..5M", "5 i")),
    ],
)
def test_a_quantity_is_respelt_if_its_size_is_certain(text: str, meant: float | None) -> None:
    found = quantity_meant(text)
    assert (quantity(found) if found else None) == meant


def test_a_choice_is_taken_from_its_field_only() -> None:
    assert choice_meant(f"{PULSAR}.impl.AvgShedder", ["Trim"]) == ""
    assert choice_meant("", ["Trim"]) == choice_meant("...", ["Trim"]) == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"http://h:9090/x?token={SECRET}", "http://h:9090/x"),
        (f"http://h#{SECRET}", "http://h"),
        (f"http://ann:{SECRET}@h", "http://h"),
        (f"http://ann:{SECRET}?x@h", "http://..."),
        (f"h?token={SECRET}@x", "..."),
        (f"ann:{SECRET}@h:9090", "h:9090"),
        (f"http://h:{SECRET}", None),
    ],
)
def test_no_text_about_a_url_shows_what_may_be_a_secret(url: str, shown: str | None) -> None:
    with pytest.raises(RefusedUrlError) as refused:
        parse(url)
    assert SECRET not in str(refused.value)
    if shown is not None:
        assert safe_text(url) == shown


@pytest.mark.parametrize("url", ["localhost:9090", f"http://h/?token={SECRET}", f"http://a:{SECRET}@h", "http://::1:9"])
@pytest.mark.parametrize("words", ["observe -n x --url", "migrate --prometheus-url http://p.m.svc:9090 --admin-url"])
def test_verbs_refuse_such_a_url_before_they_use_it(words: str, url: str, capsys: Captured) -> None:
    assert main([*words.split(), url]) == 2
    error = capsys.readouterr().err
    assert SECRET not in error
    assert "the url " in error
    assert "write " in error


@pytest.mark.parametrize("proxy", [f"socks5://ann:{SECRET}@127.0.0.1:1", f"ftp://ann:{SECRET}@h:1"])
def test_a_proxy_that_is_not_http_is_named_as_the_cause(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy)
    kubeconfig = tmp_path / "config"
    context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
    cluster = {"name": "c", "cluster": {"server": "http://kube.example:1"}}
    user = {"name": "c", "user": {"token": "x"}}
    kubeconfig.write_text(
        json.dumps({"contexts": [context], "clusters": [cluster], "users": [user], "current-context": "c"})
    )
    for words in (
        "observe -n x --spark none --url http://prometheus.example:1",
        f"status -n x --kubeconfig {kubeconfig}",
    ):
        assert main(words.split()) == 2
        error = capsys.readouterr().err
        assert SECRET not in error
        assert "proxy" in error
        assert "NO_PROXY" in error
