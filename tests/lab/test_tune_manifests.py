"""Changed fields in the text of a policy's file: everything else stays, and what is not clear is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from trimtab_lab.backtest.manifest_edit import UneditableError, edited

PRICE = ("shedder", "trim", "price")
COMMENTED = """\
# of the team
apiVersion: trimtab.dev/v1alpha1
kind: BalancingPolicy
metadata:
  name: main  # the only one
spec:
  interval: 60s
  shedder:
    type: Trim
    trim:
      # gentle at night
      price: 400   # points squared
      worth: 300

  # where the load comes from
  source:
    prometheus: {url: "http://prometheus:9090"}
"""
FLOW = (
    "kind: BalancingPolicy\nmetadata: {name: main}\nspec: {interval: 60s, shedder: {type: Trim, trim: {price: 400}}}\n"
)


def spec(text: str, name: str = "main") -> Any:
    """The specification of a policy in a text."""
    documents = [inner for one in yaml.safe_load_all(text) for inner in (one or {}).get("items", [one])]
    [found] = [one["spec"] for one in documents if "spec" in one and one["metadata"]["name"] == name]
    return found


def changed_lines(before: str, after: str) -> list[str]:
    """The lines of `after` that `before` does not have."""
    return [line for line in after.splitlines() if line not in before.splitlines()]


def test_a_value_is_replaced_and_its_comment_stays() -> None:
    after = edited(COMMENTED, "main", {PRICE: 189})

    assert after == COMMENTED.replace("price: 400 ", "price: 189 ")


def test_several_fields_change_together() -> None:
    after = edited(COMMENTED, "main", {PRICE: 1.5, ("interval",): "30s", ("shedder", "trim", "worth"): 100})

    assert changed_lines(COMMENTED, after) == [
        "  interval: 30s",
        "      price: 1.5   # points squared",
        "      worth: 100",
    ]


def test_a_missing_field_is_added_below_its_neighbours() -> None:
    after = edited(COMMENTED, "main", {("shedder", "trim", "floor"): 20})

    assert after == COMMENTED.replace("worth: 300\n", "worth: 300\n      floor: 20\n")


def test_missing_parents_are_added_with_it() -> None:
    after = edited(COMMENTED, "main", {("limits", "coolDown"): "10m"})

    assert after == f"{COMMENTED}  limits:\n    coolDown: 10m\n"


def test_a_strategy_that_was_the_default_gets_its_type() -> None:
    text = "kind: BalancingPolicy\nmetadata:\n  name: main\nspec:\n  interval: 60s\n"

    after = edited(text, "main", {PRICE: 200, ("shedder", "trim", "worth"): 100})

    assert spec(after)["shedder"] == {"type": "Trim", "trim": {"price": 200, "worth": 100}}


@pytest.mark.parametrize("path", [PRICE, ("shedder", "trim", "worth"), ("limits", "coolDown"), ("interval",)])
def test_braces_stay_braces(path: tuple[str, ...]) -> None:
    after = edited(FLOW, "main", {path: 5})

    assert len(after.splitlines()) == 3
    inner = spec(after)
    for key in path:
        inner = inner[key]
    assert inner == 5


def test_empty_braces_are_filled() -> None:
    after = edited(FLOW.replace("{price: 400}", "{}"), "main", {PRICE: 5})

    assert after == FLOW.replace("400", "5")


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("path", [PRICE, ("shedder", "trim", "worth"), ("interval",), ("limits", "coolDown")])
def test_json_stays_json(indent: int | None, path: tuple[str, ...]) -> None:
    text = json.dumps(next(yaml.safe_load_all(FLOW)), indent=indent)

    found = json.loads(edited(text, "main", {path: "30s"}))["spec"]

    for key in path:
        found = found[key]
    assert found == "30s"


def test_only_the_named_policy_changes() -> None:
    other = COMMENTED.replace("name: main ", "name: other ")
    text = f"kind: Secret\nmetadata: {{name: main}}\n---\n{other}---\n{COMMENTED}"

    after = edited(text, "main", {PRICE: 7, ("limits", "coolDown"): "10m"})

    assert after.startswith(text[: text.index(COMMENTED)])
    assert spec(after)["limits"] == {"coolDown": "10m"}
    assert edited(text, "other", {PRICE: 7}).endswith(COMMENTED)


def test_a_policy_in_a_list_changes() -> None:
    text = "kind: List\nitems:\n- kind: BalancingPolicy\n  metadata:\n    name: main\n  spec:\n    interval: 60s\n"

    assert spec(edited(text, "main", {("interval",): "30s", PRICE: 5})) == {
        "interval": "30s",
        "shedder": {"type": "Trim", "trim": {"price": 5}},
    }


def test_line_ends_and_a_missing_last_one_stay() -> None:
    text = COMMENTED.replace("\n", "\r\n")
    assert edited(text, "main", {PRICE: 9, ("mode",): "Auto"}).count("\n") == text.count("\r\n") + 1
    assert "\n" not in edited(text, "main", {("mode",): "Auto"}).replace("\r\n", "")

    bare = "kind: BalancingPolicy\nmetadata: {name: main}\nspec:\n  interval: 60s"
    assert edited(bare, "main", {("interval",): "30s"}) == bare.replace("60s", "30s")
    assert spec(edited(bare, "main", {("mode",): "Auto"})) == {"interval": "60s", "mode": "Auto"}


def test_a_text_over_several_lines_before_a_new_field_stays() -> None:
    text = FLOW[: FLOW.index("spec")] + "spec:\n  note: |\n    one\n    two\n# end\n"

    assert spec(edited(text, "main", {("interval",): "30s"})) == {"note": "one\ntwo\n", "interval": "30s"}


def test_a_field_that_comes_from_a_merge_is_set_beside_it() -> None:
    text = f"base: &base {{price: 400, worth: 3}}\n{FLOW.replace('{price: 400}', '{<<: *base}')}"

    after = edited(text, "main", {PRICE: 5})

    [found] = yaml.safe_load_all(after)
    assert found["spec"]["shedder"]["trim"] == {"price": 5, "worth": 3}
    assert found["base"]["price"] == 400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"base: &base 400\n{FLOW.replace('400', '*base')}", "no place of its own for spec.shedder.trim.price"),
        (f"base: &base {{price: 400}}\n{FLOW.replace('{price: 400}', '*base')}", "resolve its aliases"),
        (FLOW.replace("400", "&p 400").replace("60s", "60s, x: 1") + "other: *p\n", "no place of its own"),
        (FLOW.replace("price: 400", "price: 400, price: 500"), "no place of its own"),
        (FLOW.replace("{price: 400}", "5"), "spec.shedder.trim holds no fields of its own"),
        (FLOW.replace("{type: Trim, trim: {price: 400}}", ""), "spec.shedder holds no fields of its own"),
        (FLOW.replace("name: main", "name: other"), "there is no BalancingPolicy main"),
    ],
)
def test_what_is_not_clear_is_refused(text: str, said: str) -> None:
    with pytest.raises(UneditableError, match=said):
        edited(text, "main", {PRICE: 5})


def test_no_field_is_refused() -> None:
    with pytest.raises(UneditableError, match="no field is named"):
        edited(FLOW, "main", {(): 5})
