"""Moves that a person makes, while requests fail or a bundle is deleted: nothing is lost from the report."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, cast

import pytest

from trimtab_operator.cli.commands import moves_by_hand
from trimtab_operator.cli.commands.moves_by_hand import HandMove, HandMoves, MoveReport, MoveState
from trimtab_operator.kube.client import Api, ApiError, ApiUnavailableError, NotFoundError, RefusedError

MOVES = [HandMove("b-1", "p", "q"), HandMove("b-2", "p", "q"), HandMove("b-3", "p", "q")]


class _Bundles:
    """Bundles whose brokers confirm at once. The requests with the numbers `lost` end with `error`."""

    def __init__(self, *lost: int, error: ApiError | None = None) -> None:
        self.owner = {move.name: move.source for move in MOVES}
        self.asked, self._lost = 0, lost
        self._error = error or ApiUnavailableError("connection reset")

    async def get(self, _ref: object, _namespace: str, name: str) -> dict[str, Any]:
        self._count()
        owner = self.owner[name]
        return {"metadata": {"resourceVersion": "1"}, "spec": {"owner": owner}, "status": {"owner": owner}}

    async def patch(self, _ref: object, _namespace: str, name: str, body: dict[str, Any]) -> None:
        self.owner[name] = body["spec"]["owner"]
        self._count()

    def _count(self) -> None:
        self.asked += 1
        if self.asked in self._lost:
            raise self._error


def made(bundles: _Bundles, monkeypatch: pytest.MonkeyPatch, timeout: float = 5.0) -> list[MoveReport]:
    """The reports of `MOVES`, two at a time."""
    monkeypatch.setattr(moves_by_hand, "POLL", 0.01)
    making = HandMoves(argparse.Namespace(namespace="prod", timeout=timeout), MOVES, at_once=2)

    async def run() -> list[MoveReport]:
        api = cast("Api", bundles)
        await making.start(api)
        return await making.finish(api)

    return asyncio.run(run())


def states(reports: list[MoveReport]) -> list[str]:
    return [str(report.state) for report in reports]


def test_a_short_outage_while_moves_are_followed_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(made(_Bundles(5, 6), monkeypatch)) == ["landed"] * 3


def test_a_move_whose_owner_can_not_be_read_in_time_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = made(_Bundles(*range(5, 500)), monkeypatch, timeout=0.05)

    assert states(reports) == ["failed", "failed", "not started"]
    assert reports[0].text == "it was written, and its owner can't be read: connection reset"


def test_a_write_without_an_answer_ends_the_run_and_the_others_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = made(_Bundles(4), monkeypatch)

    assert states(reports) == [str(state) for state in (MoveState.LANDED, MoveState.FAILED, MoveState.NOT_STARTED)]
    assert reports[1].text == "no answer came, so it may have been written: connection reset"


def test_a_bundle_that_is_deleted_fails_its_move_and_the_others_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = made(_Bundles(5, error=NotFoundError("no b-1", status=404, reason="NotFound")), monkeypatch)

    assert states(reports) == ["failed", "landed", "not started"]
    assert reports[0].text == "it was written, and the bundle was deleted meanwhile"


@pytest.mark.parametrize(
    ("request_", "expected", "why"),
    [
        (4, ["landed", "failed", "not started"], "403 forbidden"),
        (5, ["failed", "landed", "not started"], "it was written, and its owner can't be read: 403 forbidden"),
        (8, ["landed", "landed", "failed"], "403 forbidden"),
    ],
    ids=["the second write", "a pending move", "a write after others landed"],
)
def test_a_refused_request_fails_its_move_and_the_others_are_followed(
    request_: int, expected: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = made(_Bundles(request_, error=RefusedError("403 forbidden", status=403)), monkeypatch)

    assert states(reports) == expected
    assert reports[expected.index("failed")].text == why


def test_a_user_who_may_not_write_at_all_gets_the_plain_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="403 forbidden"):
        made(_Bundles(2, error=RefusedError("403 forbidden", status=403)), monkeypatch)
