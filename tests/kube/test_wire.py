"""Pages of a list, as the API server writes them: custom resources are parsed one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimtab_operator.kube.errors import ApiUnavailableError
from trimtab_operator.kube.wire import parse_page

META = {"continue": "more", "remainingItemCount": 7, "resourceVersion": "42"}
OBJECTS = [
    {"apiVersion": "trimtab.dev/v1alpha1", "kind": "Bundle", "metadata": {"name": "a"}, "spec": {"x": [1, "],{"]}},
    {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": "b"},
        "spec": {"x": '"metadata":{}}'},
    },
]


def text(objects: list[Any], *, tail: str = "\n", **meta: Any) -> bytes:
    """A list as the server writes custom resources: keys in order, no blanks."""
    body = {"apiVersion": "trimtab.dev/v1alpha1", "items": objects, "kind": "BundleList", "metadata": meta}
    return (json.dumps(body, separators=(",", ":")) + tail).encode()


@pytest.mark.parametrize("objects", [[], OBJECTS[:1], OBJECTS, OBJECTS[::-1]], ids=["none", "one", "two", "reversed"])
def test_a_page_of_custom_resources_is_what_json_makes_of_it(objects: list[Any]) -> None:
    page = parse_page(text(objects, **META))

    assert (page.resource_version, page.token) == ("42", "more")
    assert list(page.items) == objects


def test_the_last_page_has_no_token() -> None:
    assert not parse_page(text(OBJECTS, resourceVersion="42")).token


def test_lists_of_kinds_of_kubernetes_itself_are_read_too() -> None:
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": META, "items": OBJECTS}

    page = parse_page(json.dumps(body).encode())

    assert (page.resource_version, page.token, list(page.items)) == ("42", "more", OBJECTS)


def test_objects_are_parsed_as_they_are_read() -> None:
    page = parse_page(text(OBJECTS, **META).replace(b'"name":"b"', b'"name":b'))
    items = iter(page.items)

    assert next(items) == OBJECTS[0]
    with pytest.raises(ApiUnavailableError, match="a page of a list is not JSON"):
        next(items)


@pytest.mark.parametrize("kept", [10, 120, -3], ids=["head", "objects", "tail"])
def test_a_page_that_breaks_off_is_no_json(kept: int) -> None:
    with pytest.raises(json.JSONDecodeError):
        parse_page(text(OBJECTS, **META)[:kept])
