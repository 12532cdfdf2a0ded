"""Splits: children are new bundles, and together they are what their parent was."""

from __future__ import annotations

import numpy as np
import pytest

from small_worlds import RNG, Script, cpu, small
from trimtab_lab.simulation import World, contender, named, played, run
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.splitting.boundaries import InvalidBoundaryError


def cut_points(world: World, bundle: int, count: int) -> list[int]:
    """Boundaries of a bundle between its topics, `count` of them."""
    place = world.pieces.place[world.pieces.bundle == bundle]
    return [int(place[k * len(place) // (count + 1)]) for k in range(1, count + 1)]


def test_children_conserve_load_and_clients() -> None:
    made = small(0.8, 0.2)
    script = Script(splits={2: (0, cut_points(made, 0, 3), ())})

    record = run(made, script, RNG(0))

    before, after = script.seen[2].bundles, script.seen[3].bundles
    assert len(after) == len(before) + 3
    assert after.newest.sum(axis=0) == pytest.approx(before.newest.sum(axis=0))
    assert after.newest[-4:].sum(axis=0) == pytest.approx(before.newest[0])
    assert record.imbalance[-1] == pytest.approx(record.imbalance[0])
    assert (record.splits.sum(), record.moves.sum()) == (1, 0)


def test_children_are_named_by_their_ranges_and_begin_without_a_history() -> None:
    made = small(0.8, 0.2)
    points = cut_points(made, 1, 1)
    script = Script(splits={2: (1, points, ())})

    run(made, script, RNG(0))

    cluster = script.seen[3]
    first, second = (parse_bundle(name) for name in cluster.bundles.names[-2:])
    assert (first.lower, first.upper, second.lower, second.upper) == (
        made.lower[1],
        points[0],
        points[0],
        made.upper[1],
    )
    assert cluster.bundles.short[-2:] == pytest.approx(cluster.bundles.newest[-2:])
    assert cluster.recent is not None
    assert np.isnan(np.stack(cluster.recent.bundles)[:-1, -2:]).all()
    assert np.isfinite(cluster.recent.bundles[-1][-2:]).all()


def test_children_go_where_the_split_says() -> None:
    made = small(0.8, 0.0)
    script = Script(splits={0: (0, cut_points(made, 0, 1), (-1, 1))})

    record = run(made, script, RNG(0))

    bundles = script.seen[1].bundles
    assert bundles.owner[-2:].tolist() == [0, 1]
    assert 0 < cpu(script.seen[1])[1] < 20
    assert (record.moves[0], record.splits[0]) == (1, 1)
    assert record.cut == pytest.approx(made.sessions[0] / made.sessions.sum()), "the clients of the parent, once"


def test_a_child_can_be_split_again() -> None:
    made = small(0.8, 0.2)
    points = cut_points(made, 0, 3)
    script = Script(splits={1: (0, points[:1], ()), 3: (8, points[1:], ())})

    run(made, script, RNG(0))

    after = script.seen[4].bundles
    assert len(after) == 10 + 1
    assert after.newest.sum() == pytest.approx(script.seen[0].bundles.newest.sum())


def test_a_boundary_outside_is_refused() -> None:
    made = small(0.8, 0.2)

    with pytest.raises(InvalidBoundaryError, match="not strictly inside"):
        run(made, Script(splits={1: (0, [int(made.upper[0]) + 5], ())}), RNG(0))


@pytest.mark.parametrize("who", ["AvgShedder", "UniformLoadShedder/Pulsar"])
def test_baselines_split_a_hot_bundle(who: str) -> None:
    result = played(named("hot-bundle"), contender(who), 1)

    assert result.record.splits.sum() > 0
    assert np.nanmax(result.record.pressure[-1]) < 1
