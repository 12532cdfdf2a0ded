"""The steps of a split, on objects in memory: whatever happens between two writes, no hash is served twice."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from split_model import CHILDREN, SplitModel, order
from trimtab_operator.splits.steps import SplitStep, next_step, owner_of, parent_of, split_of

ENDED = {SplitStep.DONE, SplitStep.UNDONE}

EVENTS = st.one_of(
    st.just(("operator", "")),
    st.sampled_from([("brokers", name) for name in ("b", *CHILDREN)]),
)
MISHAPS = st.one_of(
    EVENTS,
    EVENTS,
    st.sampled_from([("move", "b"), ("pin", "b"), ("delete", "b"), ("late", ""), *(("move", c) for c in CHILDREN)]),
)


def happen(model: SplitModel, event: str, name: str) -> None:
    match event:
        case "operator":
            model.advance()
        case "brokers":
            model.serve(name)
        case "move":
            model.set_owner(name, "y")
        case "pin":
            model.set_owner(name, model.bundles[name]["spec"]["owner"]) if name in model.bundles else None
        case "delete":
            model.delete_parent()
        case "late":
            model.give_up = "it took too long"


def to_the_end(model: SplitModel) -> SplitStep:
    """Brokers follow desired owners, and the operator continues, until nothing is left to be done."""
    for _ in range(60):
        step = model.advance()
        model.check_once()
        for name in ("b", *CHILDREN):
            model.serve(name)
        if step in ENDED:
            break
    for name in ("b", *CHILDREN) * 2:
        model.serve(name)
    return step


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=40), st.sampled_from([(), ("", "y", ""), ("y", "z", "x")]))
def test_an_undisturbed_split_serves_every_hash_once_after_each_write(
    events: list[tuple[str, str]], destinations: tuple[str, ...]
) -> None:
    model = SplitModel(order(*destinations))
    for event, name in events:
        happen(model, event, name)
        model.check_once()
        if "b" in model.bundles:
            model.check_whole()

    assert to_the_end(model) is SplitStep.DONE

    model.check_whole()
    owners = [owner_of(model.bundles[name]) for name in CHILDREN]
    assert owners == [destination or "x" for destination in (destinations or ("", "", ""))]
    assert not any(parent_of(bundle) for bundle in model.bundles.values())


@settings(max_examples=300, deadline=None)
@given(st.lists(MISHAPS, max_size=40), st.sampled_from([(), ("", "y", "")]))
def test_whatever_happens_in_between_ends_with_every_hash_served_once(
    events: list[tuple[str, str]], destinations: tuple[str, ...]
) -> None:
    model = SplitModel(order(*destinations))
    for event, name in events:
        happen(model, event, name)
        model.check_once()

    assert to_the_end(model) in ENDED

    model.check_whole()
    assert not any(parent_of(bundle) or split_of(bundle) for bundle in model.bundles.values())
    assert set(model.bundles) in ({"b"}, set(CHILDREN))


def test_a_parent_goes_only_after_each_child_has_an_owner() -> None:
    model = SplitModel(order())
    while (step := model.advance()) is not SplitStep.WAIT:
        assert step in {SplitStep.LOCK, SplitStep.CREATE}

    for name in CHILDREN[:-1]:
        model.serve(name)
    assert model.advance() is SplitStep.WAIT
    model.serve(CHILDREN[-1])

    assert model.advance() is SplitStep.DELETE


def test_a_parent_that_a_finalizer_holds_is_waited_for_and_not_gone_back_to() -> None:
    model = SplitModel(order())
    while model.advance() is not SplitStep.WAIT:
        model.bundles["b"]["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    model.give_up = "it took too long"

    assert model.advance() is SplitStep.WAIT
    assert set(model.bundles) == {"b", *CHILDREN}
    model.delete_parent()

    assert to_the_end(model) is SplitStep.DONE
    model.check_whole()


def test_the_bundles_go_through_the_states_of_pulsars_split() -> None:
    """The parent goes from Owned to Splitting. Once each child is Owned, it is Deleted, and its record removed."""
    model, written = SplitModel(order()), list[SplitStep]()
    while (step := model.advance()) is not SplitStep.DONE:
        if step in {SplitStep.LOCK, SplitStep.CREATE, SplitStep.DELETE}:
            written.append(step)
        for name in CHILDREN:
            model.serve(name)

    assert written == [SplitStep.LOCK, *(SplitStep.CREATE for _ in CHILDREN), SplitStep.DELETE]


def test_a_foreign_bundle_with_the_name_of_a_child_is_not_taken_for_the_child() -> None:
    for owner in ("x", ""):
        model = SplitModel(order())
        foreign = {
            "metadata": {"generation": 1, "name": CHILDREN[0]},
            "spec": {"owner": owner, "range": {"lower": "0x00000000", "upper": "0x40000000"}},
            "status": {"owner": owner, "observedGeneration": 1},
        }
        model.bundles[CHILDREN[0]] = foreign

        step, why = next_step(model.order, model.seen())

        assert (step, why) == (SplitStep.UNDONE, f"{CHILDREN[0]} exists already, and is not a child of b")
        assert model.advance() is SplitStep.UNDONE
        assert model.bundles[CHILDREN[0]] == foreign
        assert "b" in model.bundles


def test_a_split_that_begins_again_removes_the_children_of_the_attempt_before() -> None:
    model = SplitModel(order())
    for _ in range(3):
        model.advance()
    model.give_up = "it took too long"
    assert model.advance() is SplitStep.UNLOCK
    model.give_up = ""
    old = [name for name in CHILDREN if name in model.bundles]

    steps = [model.advance() for _ in old]

    assert old
    assert steps == [SplitStep.REMOVE] * len(old)
    assert model.advance() is SplitStep.LOCK
    assert to_the_end(model) is SplitStep.DONE
