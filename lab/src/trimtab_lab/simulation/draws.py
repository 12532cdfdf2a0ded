"""Random draws of a scenario: sizes of bundles, clients, noise, and trends. All functions but `day` take a generator.

Factors have the shape (rounds, m). Noise has a mean of about 1. `home` (m,) is the first broker of each bundle.
"""

from __future__ import annotations

import numpy as np

from trimtab_lab.simulation.scenario_fields import loads
from trimtab_lab.simulation.tenants import Alternation, Bursts, DailyCycle, Drift, Steps, Tenant
from trimtab_strategies.model.cluster_load import FloatArray, IntArray

WARM_UP = 10
"""Bundles were already measured for this many minutes before the first round: a full short window."""

_WEEK, _WORKDAYS = 7, 5
_MOST_CLIENTS = 400.0
_CLIENT_SPREAD = 0.9


def clients(rng: np.random.Generator, size: FloatArray, average: float) -> FloatArray:
    """Producers and consumers (m,) of each bundle, 1 to 400.

    They are proportional to the square root of its size, times a lognormal factor.
    """
    raw = average * np.sqrt(size / size.mean()) * rng.lognormal(0.0, _CLIENT_SPREAD, len(size))
    found: FloatArray = np.round(np.clip(raw, 1, _MOST_CLIENTS))
    return found


def noise(rng: np.random.Generator, tenant: Tenant, rounds: int, home: IntArray) -> FloatArray:
    """The factor that a balancer should ignore, with `WARM_UP` rounds before the first."""
    rounds += WARM_UP
    factors = jitter(rng, rounds, len(home), tenant.jitter)
    if tenant.bursts is not None:
        factors = factors * bursts(rng, rounds, home, tenant.bursts)
    if tenant.alternation is not None:
        factors = factors * alternation(rng, rounds, home, tenant.alternation)
    return factors


def jitter(rng: np.random.Generator, rounds: int, bundles: int, spread: float) -> FloatArray:
    """Independent factors, uniform within `spread` (ratio 0-1) of 1."""
    return rng.uniform(1 - spread, 1 + spread, (rounds, bundles)) if spread else np.ones((rounds, bundles))


def bursts(rng: np.random.Generator, rounds: int, home: IntArray, given: Bursts) -> FloatArray:
    """Random bursts of one round, for the bundles of one broker or for all."""
    group = np.zeros_like(home) if given.together else home
    bursting = rng.random((rounds, int(group.max(initial=0)) + 1)) < given.chance
    factors: FloatArray = np.where(bursting, given.factor, 1.0)[:, group]
    return factors


def alternation(rng: np.random.Generator, rounds: int, home: IntArray, given: Alternation) -> FloatArray:
    """Traffic that alternates between high and low, for each broker with its own phase."""
    phase = rng.integers(0, 2 * given.minutes, int(home.max(initial=0)) + 1)
    part = (np.arange(rounds)[:, np.newaxis] + phase) // given.minutes % 2
    factors: FloatArray = np.where(part == 0, given.high, given.low)[:, home]
    return factors


def trend(rng: np.random.Generator, tenant: Tenant, rounds: int, home: IntArray, brokers: int) -> FloatArray:
    """The factor by which load really changes."""
    factors = np.ones((rounds, len(home)))
    if tenant.day is not None:
        factors *= day(rounds, tenant.day)[:, np.newaxis]
    if tenant.steps is not None:
        factors *= steps(rng, rounds, tenant.steps)[:, np.newaxis]
    if tenant.drift is not None:
        factors *= drift(rng, rounds, home, brokers, tenant.drift)
    return factors


def day(rounds: int, given: DailyCycle) -> FloatArray:
    """Factor of each round (rounds,): a cosine over the day, lower on the last two of seven days."""
    days = np.arange(rounds) / given.length
    factor = 1 + given.swing * np.cos(2 * np.pi * (days - given.peak))
    found: FloatArray = np.where(days.astype(np.int64) % _WEEK < _WORKDAYS, factor, factor * given.weekend)
    return found


def steps(rng: np.random.Generator, rounds: int, given: Steps) -> FloatArray:
    """Factor of each round (rounds,): it stays for a while, then changes abruptly."""
    found = np.ones(rounds)
    step = int(rng.integers(given.every[0], given.every[1] + 1))
    while step < rounds:
        found[step:] = rng.uniform(*given.factor)
        step += int(rng.integers(given.every[0], given.every[1] + 1))
    return found


def drift(rng: np.random.Generator, rounds: int, home: IntArray, brokers: int, given: Drift) -> FloatArray:
    """Factors that change linearly until the last round, times a random walk for each bundle."""
    ends = loads(rng, given.to, brokers)[home]
    part = np.linspace(0, 1, rounds)[:, np.newaxis]
    walk = rng.normal(0, given.walk, (rounds, len(home))).cumsum(axis=0) if given.walk else 0.0
    factors: FloatArray = (1 + part * (ends - 1)) * np.exp(walk)
    return factors


def foreign_runs(rng: np.random.Generator, rounds: int, minutes: tuple[int, int], every: tuple[int, int]) -> FloatArray:
    """Whether (0 or 1, (rounds,)) another program runs: for some `minutes`, with pauses of `every`."""
    found = np.zeros(rounds)
    step = int(rng.integers(every[0], every[1] + 1))
    while step < rounds:
        length = int(rng.integers(minutes[0], minutes[1] + 1))
        found[step : step + length] = 1
        step += length + int(rng.integers(every[0], every[1] + 1))
    return found
