"""What happens in a scenario, by round: brokers leave and join, other programs take CPU, load comes and goes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trimtab_lab.simulation.scenario_fields import BrokerRows, Load, Minutes, Positive, Ratio, Round, ScenarioPart


class Leaves(ScenarioPart):
    """Brokers leave. Their bundles have no owner until other brokers get them."""

    event: Literal["leave"]
    brokers: BrokerRows
    """The brokers that leave."""
    round: Round
    """The first round without them."""
    until: Round | None = None
    """The round in which they come back, without bundles. If it is not set, they never come back."""


class Joins(ScenarioPart):
    """Brokers that were not there before join without bundles."""

    event: Literal["join"]
    brokers: BrokerRows
    """The brokers that join. The `usage` that `machines` gives them does not apply: they begin without load."""
    round: Round
    """The first round with them."""


class Restarts(ScenarioPart):
    """Brokers restart one after the other. The operator sees by their pods which ones have restarted."""

    event: Literal["restart"]
    brokers: BrokerRows
    """The brokers, in this order."""
    round: Round
    """The round in which the first one stops."""
    away: Annotated[int, Field(ge=1, le=60)] = 2
    """Rounds for which each one is gone."""
    every: Annotated[int, Field(ge=1, le=1440)] = 3
    """Rounds from the stop of one broker to the stop of the next."""


class ForeignLoad(ScenarioPart):
    """Another program on the brokers' machines takes CPU."""

    event: Literal["foreign"]
    brokers: BrokerRows
    """The brokers on whose machines it runs."""
    usage: Load
    """Ratio of the machine that it takes."""
    round: Round = 0
    """The first round with this load. If it is 0, the load was also there before the simulation began."""
    until: Round | None = None
    """The round in which it is over; none: never."""


class Neighbour(ScenarioPart):
    """Another program on the brokers' machines takes CPU for a few minutes now and then."""

    event: Literal["neighbour"]
    brokers: BrokerRows
    """The brokers on whose machines it runs, each at its own times."""
    usage: Load
    """Ratio of the machine that it takes."""
    minutes: Minutes
    """The fewest and the most minutes of one run. Each duration is drawn between them."""
    every: Minutes
    """The fewest and the most minutes from the end of one run to the beginning of the next. Each pause is drawn between
    them."""


class Crowd(ScenarioPart):
    """One bundle carries a multiple of its traffic for a while."""

    event: Literal["crowd"]
    broker: Annotated[int, Field(ge=0)]
    """Owner of the bundle at the beginning."""
    size: Ratio
    """Ratio of the machine that the bundle takes before it grows."""
    factor: Positive
    """Multiple of its traffic that it then carries."""
    round: Round
    """The first round with that traffic."""
    until: Round
    """The round in which it is over."""


class HotBundle(ScenarioPart):
    """One bundle grows and stays that large. It may be split between its topics."""

    event: Literal["hot"]
    broker: Annotated[int, Field(ge=0)]
    """Owner of the bundle at the beginning."""
    usage: Load
    """Ratio of the machine that the bundle wants from `round` on."""
    round: Round
    """The first round with that traffic."""


class Failover(ScenarioPart):
    """Another leader takes over. Recent samples are lost, and so is the memory of a strategy that runs as in Pulsar."""

    event: Literal["failover"]
    round: Round
    """The round before whose decision the failover happens."""


Happening = Annotated[
    Leaves | Joins | Restarts | ForeignLoad | Neighbour | Crowd | HotBundle | Failover, Field(discriminator="event")
]
"""One event of a scenario."""


def last_round(happening: Happening, brokers: int) -> int:
    """The round in which an event is over; 0 for failovers and repeated events. brokers: how many it affects."""
    match happening:
        case Restarts():
            return happening.round + happening.every * (brokers - 1) + happening.away
        case Leaves() | ForeignLoad():
            return happening.round if happening.until is None else happening.until
        case Crowd():
            return happening.until
        case Joins() | HotBundle():
            return happening.round
        case Failover() | Neighbour():
            return 0
