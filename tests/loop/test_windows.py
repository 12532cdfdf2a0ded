"""When a policy may act by itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_operator.loop.schedule import Opening, opening
from trimtab_operator.resources.common import Day, Window

BERLIN = ZoneInfo("Europe/Berlin")


def window(**fields: Any) -> Window:
    return Window.model_validate({"start": "22:00", "duration": "4h", **fields})


def at(text: str, zone: Any = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


NIGHTS = window(days=["Mon", "Tue"], timeZone="Europe/Berlin")  # 2026-11-23 is a Monday


def test_without_windows_it_is_always_open() -> None:
    assert opening([], at("2026-11-23T12:00")) == Opening(open=True, until=None)


@pytest.mark.parametrize(
    ("now", "is_open", "until"),
    [
        ("2026-11-23T21:59", False, "2026-11-23T22:00"),
        ("2026-11-23T22:00", True, "2026-11-24T02:00"),
        ("2026-11-24T01:59", True, "2026-11-24T02:00"),
        ("2026-11-24T02:00", False, "2026-11-24T22:00"),
        ("2026-11-25T03:00", False, "2026-11-30T22:00"),
    ],
)
def test_a_window_is_open_from_its_start_for_its_duration(now: str, is_open: Any, until: str) -> None:
    assert opening([NIGHTS], at(now)) == Opening(is_open, at(until))


def test_within_a_denied_window_nothing_acts_even_where_another_allows_it() -> None:
    denied = window(kind="Deny", start="23:00", duration="30m", timeZone="Europe/Berlin")

    assert opening([NIGHTS, denied], at("2026-11-23T22:30")) == Opening(open=True, until=at("2026-11-23T23:00"))
    assert opening([NIGHTS, denied], at("2026-11-23T23:10")) == Opening(open=False, until=at("2026-11-23T23:30"))
    assert opening([denied], at("2026-11-23T12:00")) == Opening(open=True, until=at("2026-11-23T23:00"))


def test_windows_that_meet_are_one() -> None:
    both = [window(start="20:00", duration="2h"), window(start="22:00", duration="1h")]

    assert opening(both, at("2026-11-23T20:30", ZoneInfo("UTC"))).until == at("2026-11-23T23:00", ZoneInfo("UTC"))


def test_a_window_of_a_week_that_is_renewed_is_never_closed() -> None:
    always = window(start="00:00", duration="24h")

    assert opening([always], at("2026-11-23T12:00")).open
    assert opening([window(days=["Mon"], start="00:00", duration="168h")], at("2026-11-25T12:00")).open


def test_the_start_follows_the_clocks_when_they_change_and_the_duration_does_not() -> None:
    night = window(start="01:00", duration="4h", timeZone="Europe/Berlin")

    spring = opening([night], at("2026-03-29T01:30"))
    autumn = opening([night], at("2026-10-25T01:30"))

    assert spring.until == at("2026-03-29T06:00")  # 5:00 by the clocks of the day before
    assert autumn.until == at("2026-10-25T04:00")


def test_a_start_that_does_not_exist_is_an_hour_later() -> None:
    gap = window(start="02:30", duration="1h", timeZone="Europe/Berlin")

    assert not opening([gap], at("2026-03-29T03:29")).open
    assert opening([gap], at("2026-03-29T03:30")).open


@given(
    st.lists(
        st.builds(
            lambda days, hour, length, kind: window(days=days, start=f"{hour:02}:00", duration=f"{length}h", kind=kind),
            st.lists(st.sampled_from([day.value for day in Day]), unique=True),
            st.integers(0, 23),
            st.integers(1, 168),
            st.sampled_from(["Allow", "Deny"]),
        ),
        max_size=4,
    ),
    st.integers(1_700_000_000, 1_900_000_000),
)
def test_nothing_changes_before_the_time_that_is_reported(windows: list[Window], now: int) -> None:
    found = opening(windows, now)

    if found.until is not None:
        assert found.until > now
        assert opening(windows, (now + found.until) / 2).open == found.open
        assert opening(windows, found.until).open != found.open


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("timeZone", "Mars/Olympus", "IANA names"),
        ("timeZone", "../etc/passwd", "IANA names"),
        ("start", "24:00", "pattern"),
        ("duration", "169h", "at most 168h"),
        ("days", ["Monday"], "'Mon'"),
    ],
)
def test_what_is_no_window_is_refused(field: str, value: Any, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        window(**{field: value})


@pytest.mark.apiserver
def test_outside_its_windows_a_policy_shows_its_plan_and_says_when_it_acts(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.desired_owners()
        await env.reconcile()

        assert env.desired_owners() == before
        assert env.status()["proposal"]["total"] > 0
        assert env.condition("Acting") == ("False", "OutsideWindow")
        assert env.condition("Ready") == ("True", "Cycled")

        env.edit(windows=None)
        await env.reconcile(after=1)
        assert env.condition("Acting") == ("True", "Acting")
        assert env.desired_owners() != before

    hot = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
    run_policy(hot, scenario, windows=[{"kind": "Deny", "start": "00:00", "duration": "24h"}])
