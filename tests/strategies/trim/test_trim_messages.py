"""What Trim says of its decisions: the texts of conditions, Events and `trimtab explain`."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from trim_world import Play, World, skewed, spread
from trimtab_strategies.model import Reason
from trimtab_strategies.shedding.trim.messages import below_floor
from trimtab_strategies.shedding.trim.shedder import TrimParams


def test_the_texts_name_the_broker_and_the_figures() -> None:
    level, young = Play(skewed(43)), Play(skewed())
    floor, price = Play(skewed(29 - 0.01), TrimParams(floor=60)), Play(skewed(51.5), TrimParams(worth=4000, hot=5))
    for play, minutes in ((level, 9), (young, 1), (floor, 9), (price, 9)):
        play.minutes(minutes)

    assert level.reasons == [Reason.BALANCED]
    needed = "a plan needs 7.5 points (trim.hot) or 15 (trim.apart) that last for 2 to 8 minutes"
    assert level.text == f"broker-4 is 2.4 points above its level, 3.0 above broker-0; {needed}"
    assert young.reasons == [Reason.AVERAGING]
    now = "broker-4 is 36.0 points above its level, 45.0 above broker-0, for 1 minute now"
    at = datetime.fromtimestamp(young.world.now + 6 * 60, UTC)  # the world is a minute after the decision
    acts = f"acts by {at:%H:%M} UTC if it lasts and a plan pays"
    assert young.text == f"{now}; {needed}, the larger the sooner; {acts}"
    assert floor.reasons == [Reason.BELOW_MINIMUM]
    assert floor.text == "the busiest broker is at 40 %; balancing begins at 60 % (trim.floor); 40 or less would act"
    assert price.reasons == [Reason.BELOW_MINIMUM]
    assert price.text.startswith("broker-4 was 9.2 points above its level for 8 minutes; 2 moves would save 4.6 points")
    assert price.text.endswith(
        "for 60 minutes, 276 point-minutes, and cut 2.0 % of the clients: worth it from 400 on"
        " (trim.worth is 4000; 2700 or less would act)"
    )


def test_a_measured_cpu_above_the_busiest_broker_of_the_replay_is_named() -> None:
    now = np.array([8.0, 45.0])

    text = below_floor(8.0, 30, ("a", "b"), now)
    assert text.startswith(
        "the busiest broker is at 8 % with the current owners of the bundles, though b was at 45 % last"
    )
    assert below_floor(45.0, 60, ("a", "b"), now).startswith("the busiest broker is at 45 %; balancing begins at 60 %")


def test_a_plan_says_why_it_is_made() -> None:
    play = Play(skewed())
    play.first_move(12)

    assert play.last.cause == (
        "broker-4 was 36.0 points above its level for 3 minutes; 5 moves would save 33.2 points for 3 minutes,"
        " 100 point-minutes, and cut 5.0 % of the clients: worth it from 75 on"
    )


def test_a_plan_that_only_has_to_wait_says_until_when() -> None:
    play = Play(skewed(60), TrimParams(worth=400))
    play.minutes(5)

    assert play.reasons == [Reason.BELOW_MINIMUM]
    assert play.text.endswith("worth it from 60 on, or once it has lasted for 8 minutes")
    assert play.first_move(12)


def test_after_a_plan_the_texts_name_the_smaller_cause_that_suffices_then() -> None:
    play = Play(skewed(43))
    play.memory = {"campaign": play.world.now}
    play.minutes(3)

    assert "a plan now needs 2.5 points or 5.0 (33 % of trim.hot and trim.apart)" in play.text


def test_after_a_spike_the_texts_say_how_long_the_next_one_must_last() -> None:
    play = Play(skewed())
    play.memory = {"spikes": [[play.world.now, 5.0]]}
    play.minutes(2)

    assert "that last for 8 minutes, as one of 5 minutes ended by itself within an hour; acts by " in play.text


def test_a_rollout_says_who_left_last_and_when_balancing_goes_on() -> None:
    play = Play(skewed())
    play.memory = {"seen": [*play.world.brokers, "gone-1", "gone-2"]}
    play.minute()

    left = "2 brokers left within 15 minutes, the last was gone-2"
    assert play.text == f"{left}; balancing goes on in 2 minutes if no other leaves"


def test_a_plan_that_fills_a_broker_says_which() -> None:
    play = Play(World.of(*(spread(20, 20, seed) for seed in range(3)), []))
    play.first_move(6)

    assert play.last.cause.startswith("broker-3 has hardly any bundles; ")
    assert play.last.cause.endswith("% of the clients")
