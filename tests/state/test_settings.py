"""A policy object becomes settings, or an error that names field, value and bound."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab_operator.resources.policy import Mode
from trimtab_operator.state.settings import InvalidPolicyError, Settings

MINIMAL = {
    "source": {"prometheus": {"url": "http://prometheus:9090"}},
    "shedder": {"type": "ThresholdShedder"},
    "placement": {"type": "LeastResourceUsageWithWeight"},
}


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "main", "namespace": "messaging", "generation": 2}, "spec": {**MINIMAL, **spec}}


def test_the_least_a_policy_says_runs_dry() -> None:
    settings = Settings.of(policy())

    assert settings.mode is Mode.DRY_RUN
    assert not settings.paused
    assert settings.interval == 60
    assert settings.prometheus.namespace == "messaging"


def test_percent_becomes_ratio_and_durations_seconds() -> None:
    settings = Settings.of(policy(limits={"coolDown": "1h30m", "minTrustedBrokersPercent": 50, "moveTimeout": "5s"}))

    assert settings.limits.cool_down == 5400
    assert settings.limits.min_trusted_brokers == 0.5
    assert settings.move_timeout == 5


def test_statistics_are_asked_for_as_long_as_pulsar_is() -> None:
    source = {"prometheus": {**MINIMAL["source"]["prometheus"], "bundleMetrics": "Statistics"}}
    pulsar = {"adminUrl": "http://pulsar:8080", "timeout": "7s"}
    settings = Settings.of(policy(source=source, pulsar=pulsar))

    assert settings.asks_brokers
    assert settings.prometheus.statistics.timeout == 7
    with pytest.raises(InvalidPolicyError, match=r"it needs spec\.pulsar"):
        Settings.of(policy(source=source))


def test_an_annotation_pauses() -> None:
    paused = policy()
    paused["metadata"]["annotations"] = {"trimtab.dev/paused": "true"}

    assert Settings.of(paused).paused


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"mode": "Always"}, ["spec.mode", "DryRun", "Always"]),
        ({"interval": "5 minutes"}, ["spec.interval", "5 minutes"]),
        ({"interval": "0s"}, ["spec.interval", "longer than 0s"]),
        ({"limits": {"maxMovesPerCycle": 0}}, ["spec.limits.maxMovesPerCycle", "greater than or equal to 1"]),
        ({"shedder": {"type": "NoSuchShedder"}}, ["spec.shedder", "ThresholdShedder"]),
        (
            {"shedder": {"type": "ThresholdShedder", "thresholdShedder": {"threshold": 250}}},
            ["threshold", "100", "250"],
        ),
        ({"colour": "blue"}, ["spec.colour"]),
        ({"source": {}}, ["spec.source.prometheus"]),
    ],
    ids=str,
)
def test_a_bad_policy_is_refused_in_words(spec: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidPolicyError) as refused:
        Settings.of(policy(**spec))

    for word in words:
        assert word in str(refused.value)
