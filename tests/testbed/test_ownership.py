"""What a broker does about a bundle it sees: the broker's side of the Declarative actuator."""

from __future__ import annotations

import pytest

from trimtab_testbed.ownership import Step, step


def seen(wished: str, held: str, *, generation: int = 2, observed: int = 1) -> dict[str, object]:
    return {
        "metadata": {"generation": generation},
        "spec": {"owner": wished},
        "status": {"owner": held, "observedGeneration": observed},
    }


@pytest.mark.parametrize(
    ("wished", "held", "expected"),
    [
        ("me", "", Step.TAKE),
        ("me", "me", Step.CONFIRM),
        ("other", "me", Step.RELEASE),
        ("", "me", Step.SERVE),  # an empty wish is no wish
        ("me", "other", Step.LEAVE),  # until the other has released it
        ("other", "other", Step.LEAVE),
        ("other", "", Step.LEAVE),
        ("", "", Step.LEAVE),
    ],
)
def test_what_a_broker_does_about_an_open_wish(wished: str, held: str, expected: Step) -> None:
    assert step(seen(wished, held), "me") is expected


@pytest.mark.parametrize(
    ("wished", "held", "expected"),
    [
        ("me", "me", Step.SERVE),
        ("other", "me", Step.SERVE),  # it came here by itself; the operator adopts that or drives it back
        ("me", "", Step.LEAVE),  # someone freed it, and will say who is next
        ("me", "other", Step.LEAVE),
    ],
)
def test_what_a_broker_does_once_the_wish_was_confirmed(wished: str, held: str, expected: Step) -> None:
    assert step(seen(wished, held, generation=2, observed=2), "me") is expected


def test_a_bundle_without_status_is_taken() -> None:
    assert step({"metadata": {"generation": 1}, "spec": {"owner": "me"}}, "me") is Step.TAKE
