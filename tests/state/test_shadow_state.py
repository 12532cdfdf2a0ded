"""What a shadow stores: it comes back as it was, it is small, and what does not fit is left out."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, strategies as st

from trimtab_operator.kube.config_map_store import MOST_BYTES, UnreadableContentError, size
from trimtab_operator.state.shadow_state import SHADOW_FORMAT, ShadowState, fingerprint
from trimtab_strategies.counterfactual.comparison import Comparison, PairSums
from trimtab_strategies.counterfactual.ownership import VirtualOwner
from trimtab_strategies.hash_ring import bundle_names, default_boundaries

times = st.floats(0, 4e9).map(lambda at: round(at, 3)) | st.none()
names = st.text(st.characters(codec="utf-8"), min_size=1)
owners = st.builds(VirtualOwner, names, times.map(lambda at: math.nan if at is None else at))


def state(displaced: dict[str, VirtualOwner] | None) -> ShadowState:
    """A state with a day of figures."""
    day = PairSums(seconds=3600.0, known=3600.0)
    return ShadowState("0a1b", "main", "it is new", Comparison(5.0, 9.0, ((3, day),), day), displaced, epoch=4)


@given(displaced=st.none() | st.dictionaries(names, owners, max_size=5))
def test_a_state_survives_being_stored(displaced: dict[str, VirtualOwner] | None) -> None:
    text = state(displaced).to_json()

    again = ShadowState.from_json(text)

    assert again.to_json() == text
    assert (again.displaced is None) == (displaced is None)
    assert {name: owner.broker for name, owner in (again.displaced or {}).items()} == {
        name: owner.broker for name, owner in (displaced or {}).items()
    }


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2}', state({}).to_json().replace('"days"', '"other"')])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UnreadableContentError, match="shadow"):
        ShadowState.from_json(text)


def displaced(count: int) -> dict[str, VirtualOwner]:
    """So many bundles of a large cluster, moved at different times to brokers at random."""
    chance = random.Random(1)
    bundles = [name for k in range(count // 500) for name in bundle_names(f"tenant/space-{k}", default_boundaries(500))]
    return {
        name: VirtualOwner(f"pulsar-broker-{chance.randrange(100)}", 1.7e9 + chance.random() * 1e6) for name in bundles
    }


def test_20_000_virtual_owners_fit() -> None:
    whole = state(displaced(20_000))

    kept, content = SHADOW_FORMAT.fit(whole, SHADOW_FORMAT.encode(whole, None))

    assert kept is whole
    assert size(content) < MOST_BYTES


def test_what_does_not_fit_leaves_the_figures() -> None:
    whole = state(displaced(100_000))

    kept, content = SHADOW_FORMAT.fit(whole, SHADOW_FORMAT.encode(whole, None))

    assert kept.displaced is None
    assert kept.comparison == whole.comparison
    assert size(content) < 1000


def test_a_pause_is_no_edit() -> None:
    spec = {"mode": "Shadow", "interval": "60s"}

    assert fingerprint(spec, {}) == fingerprint({**spec, "paused": True}, {"paused": False})
    assert fingerprint(spec, {}) != fingerprint({**spec, "interval": "30s"}, {})
