"""`trimtab approve --wait`, while the API server stops answering, or the operator ends for good."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trimtab_operator.cli.commands import proposal
from trimtab_operator.cli.commands.proposal import CommandOutcome, until_ended
from trimtab_operator.kube.client import Api, ApiUnavailableError, RefusedError, ResourceRef
from trimtab_operator.kube.conditions import micro_timestamp, timestamp

OUTAGE = ApiUnavailableError("connection reset")


def policy(landed: int, *, cycle: float | None = None) -> dict[str, Any]:
    """The policy whose proposal of two moves has `landed` ones. cycle: time of its last cycle, by default now."""
    progress = {"proposal": "x", "percent": 50 * landed, "landed": landed, "total": 2, "inFlight": 2 - landed}
    if landed == 2:
        progress["finishedAt"] = timestamp(time.time())
    last = {"time": timestamp(time.time() if cycle is None else cycle)}
    metadata = {"name": "main", "namespace": "prod", "generation": 1}
    return {"metadata": metadata, "spec": {}, "status": {"progress": progress, "lastCycle": last}}


class _Cluster:
    """Answers the reads of the policy with `answers`, the last one again and again, and lists `leases`."""

    def __init__(self, *answers: dict[str, Any] | Exception, leases: list[dict[str, Any]] | Exception) -> None:
        self._answers, self._leases = list(answers), leases
        self.checks = 0

    async def get(self, _ref: ResourceRef, _namespace: str, _name: str) -> dict[str, Any]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def list(self, _ref: ResourceRef, _namespace: str) -> AsyncIterator[Any]:
        self.checks += 1
        if isinstance(self._leases, Exception):
            raise self._leases
        yield SimpleNamespace(items=self._leases)


def lease(renewed: float) -> dict[str, Any]:
    spec = {"holderIdentity": "trimtab-1", "renewTime": micro_timestamp(renewed), "leaseDurationSeconds": 15}
    return {"metadata": {"name": "trimtab"}, "spec": spec}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal, "POLL", 0.005)
    monkeypatch.setattr(proposal, "CHECK", 0.02)


def waited(cluster: _Cluster, patience: float = 20.0) -> CommandOutcome:
    """How the wait ended. Raises `TimeoutError` if it goes on for longer than `patience`."""
    arguments = argparse.Namespace(namespace="prod", policy="main")
    return asyncio.run(asyncio.wait_for(until_ended(cast("Api", cluster), arguments, "x"), patience))


def test_a_short_outage_is_told_once_and_the_wait_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = waited(_Cluster(policy(1), OUTAGE, OUTAGE, policy(2), leases=[lease(time.time())]))

    assert (outcome.taken, outcome.text) == (True, "100 %: 2 of 2 landed, 0 in flight")
    assert capsys.readouterr().err.splitlines() == [
        "50 %: 1 of 2 landed, 1 in flight",
        "the API server does not answer, trying again: connection reset",
    ]


def test_what_the_moves_wait_for_is_told_and_no_time_is_promised(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = policy(1)
    waits = "1 move held back: t-a: spec.budget.publishSecondsPerHour: 590 of 600 are spent, free at 12:59"
    waiting["status"]["progress"] |= {"waits": waits, "inFlight": 0, "timeLeft": "3s"}

    assert waited(_Cluster(waiting, waiting, policy(2), leases=[lease(time.time())])).taken

    assert capsys.readouterr().err.splitlines() == [f"50 %: 1 of 2 landed, 0 in flight; {waits}"]


@pytest.mark.parametrize("leases", [[], [lease(time.time() - 3600)]], ids=["no Lease", "an old Lease"])
def test_a_wait_ends_when_no_operator_manages_the_policy_any_more(leases: list[dict[str, Any]]) -> None:
    outcome = waited(_Cluster(policy(1, cycle=time.time() - 3600), leases=leases))

    assert not outcome.taken
    assert outcome.text.startswith("no operator manages this policy: ")


@pytest.mark.parametrize(
    "leases",
    [[lease(time.time() + 3600)], OUTAGE, RefusedError("403 forbidden", status=403)],
    ids=["held", "an outage", "no right"],
)
def test_a_wait_goes_on_while_an_operator_leads_or_its_lease_can_not_be_read(
    leases: list[dict[str, Any]] | Exception,
) -> None:
    cluster = _Cluster(policy(1, cycle=time.time() - 3600), leases=leases)

    with pytest.raises(TimeoutError):
        waited(cluster, patience=0.3)

    assert cluster.checks > 1


def test_another_refusal_ends_the_wait() -> None:
    with pytest.raises(RefusedError):
        waited(_Cluster(RefusedError("403 forbidden", status=403), leases=[]))
