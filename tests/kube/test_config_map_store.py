"""A value in a ConfigMap of a real API server: format, owners, conflicts, sizes, and content of others."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from faulty_api import FaultyApi, status
from trimtab_operator.kube.client import CONFIG_MAPS, Api, ApiUnavailableError, ConflictError, FencedError, RefusedError
from trimtab_operator.kube.config_map_store import (
    MOST_BYTES,
    ConfigMapStore,
    PolicyOwner,
    StoredFormat,
    UnreadableContentError,
    check_version,
    packed,
    reading,
    size,
    unpacked,
)
from trimtab_operator.kube.fence import Fence
from trimtab_testbed.servers.kube import ControlPlane

NAME = "kept"
OWNER = PolicyOwner("main", "0b5f1e2c-0000-4000-8000-000000000001")
LATER_OWNER = PolicyOwner("main", "0b5f1e2c-0000-4000-8000-000000000002")


@dataclass(frozen=True)
class Note:
    """A value: one small part, one large part, and the epoch of the leader that wrote it."""

    small: str
    large: str = ""
    epoch: int = 0


def encode(note: Note, stored: Note | None) -> Mapping[str, str | Callable[[], str]]:
    texts: dict[str, str | Callable[[], str]] = {"note.json": json.dumps([note.small, note.epoch])}
    if stored is None or stored.large != note.large:
        texts["large.txt.gz"] = lambda: note.large
    return texts


def decode(texts: Mapping[str, str]) -> Note:
    small, epoch = json.loads(texts["note.json"])
    return Note(str(small), texts["large.txt.gz"], int(epoch))


LAST_WINS: StoredFormat[Note] = StoredFormat(encode, decode)
GUARDED = replace(LAST_WINS, epoch=lambda note: note.epoch, inherit=lambda note: Note("", epoch=note.epoch))


# -- format --


@pytest.mark.parametrize("text", ["", "a", "ä" * 1000])
def test_a_packed_text_is_unpacked_unchanged(text: str) -> None:
    assert unpacked(packed(text)) == text
    assert packed(text) == packed(text)


def test_a_key_that_ends_in_gz_is_stored_compressed() -> None:
    _, content = LAST_WINS.fit(Note("a", "b"), encode(Note("a", "b"), None))

    assert content["data"] == {"note.json": '["a", 0]'}
    assert gzip.decompress(base64.b64decode(content["binaryData"]["large.txt.gz"])) == b"b"


def test_a_value_that_is_too_large_is_shortened_until_it_fits() -> None:
    shorter = replace(LAST_WINS, shorten=lambda note: replace(note, small=note.small[1:]), most_bytes=40)
    value = Note("x" * 100)

    kept, content = shorter.fit(value, encode(value, None))

    assert 0 < len(kept.small) < 100
    assert size(content) == 40
    assert shorter.read({"metadata": {"name": NAME}, **content}) == kept


def test_a_value_that_cannot_be_shortened_stays_as_it_is() -> None:
    whole = replace(LAST_WINS, shorten=lambda _: None, most_bytes=1)

    assert whole.fit(Note("a"), encode(Note("a"), None))[0] == Note("a")


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"data": {"note.json": "not json"}, "binaryData": {"large.txt.gz": ""}},
        {"data": {"note.json": '["a"]'}, "binaryData": {"large.txt.gz": ""}},
        {"data": {"note.json": '["a", 0]'}, "binaryData": {"large.txt.gz": "bm90IGd6aXA="}},
        {"data": {"note.json": '["a", 0]'}, "binaryData": {"large.txt.gz": packed("whole")[:-8]}},
    ],
    ids=["nothing", "not JSON", "too few values", "not compressed", "cut off"],
)
def test_content_that_trimtab_did_not_write_is_refused_with_its_remedy(content: dict[str, Any]) -> None:
    with pytest.raises(UnreadableContentError, match=r"^ConfigMap kept: it is not .*; delete the ConfigMap$"):
        LAST_WINS.read({"metadata": {"name": NAME}, **content})


def test_a_reason_for_refused_content_is_kept() -> None:
    with pytest.raises(UnreadableContentError, match="has version 2, this Trimtab reads version 1"), reading("it"):
        check_version("it", 2)


# -- in a cluster --

Scenario = Callable[[FaultyApi, Api], Awaitable[None]]
RunScenario = Callable[[Scenario], None]


@pytest.fixture
def run_scenario(control_plane: ControlPlane, tmp_path: Path) -> RunScenario:
    """Runs a scenario with a client, and the proxy that is between it and the API server."""

    async def whole(scenario: Scenario) -> None:
        async with (
            FaultyApi(control_plane, tmp_path) as proxy,
            Api.connect(str(proxy.kubeconfig), patience=0.3) as api,
        ):
            await scenario(proxy, api)

    return lambda scenario: asyncio.run(whole(scenario))


@pytest.fixture
def store_of(kube_namespace: str) -> Callable[..., ConfigMapStore[Note]]:
    def made(api: Api, form: StoredFormat[Note] = LAST_WINS, owner: PolicyOwner | None = OWNER) -> ConfigMapStore[Note]:
        return ConfigMapStore(api, kube_namespace, NAME, form, owner)

    return made


Stores = Callable[..., ConfigMapStore[Note]]


@pytest.mark.apiserver
@pytest.mark.parametrize("form", [LAST_WINS, GUARDED], ids=["last wins", "guarded"])
def test_a_value_is_created_changed_and_read_by_another_process(
    run_scenario: RunScenario, store_of: Stores, form: StoredFormat[Note]
) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        store = store_of(api, form)
        assert await store.load() is None
        await store.save(Note("first", "large"))
        await store.save(Note("second", "large"))

        assert await store_of(api, form).load() == Note("second", "large") == store.stored

    run_scenario(scenario)


@pytest.mark.apiserver
def test_a_write_leaves_out_what_is_stored_already_until_the_config_map_is_gone(
    run_scenario: RunScenario, store_of: Stores
) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        store = store_of(api)
        await store.save(Note("first", "large"))
        await api.patch(CONFIG_MAPS, store.namespace, NAME, {"binaryData": {"large.txt.gz": packed("another")}})
        await store.save(Note("second", "large"))
        assert await store_of(api).load() == Note("second", "another")

        await api.delete(CONFIG_MAPS, store.namespace, NAME)
        await store.save(Note("third", "large"))
        assert await store_of(api).load() == Note("third", "large")

    run_scenario(scenario)


@pytest.mark.apiserver
def test_a_policy_owns_its_config_map_and_any_other_is_labelled(run_scenario: RunScenario, store_of: Stores) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        store = store_of(api)
        await store.save(Note("a"))
        [owner] = (await api.get(CONFIG_MAPS, store.namespace, NAME))["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("BalancingPolicy", OWNER.name, OWNER.uid)

        await store.delete()
        await store_of(api, owner=None).save(Note("b"))
        meta = (await api.get(CONFIG_MAPS, store.namespace, NAME))["metadata"]
        assert meta["labels"] == {"app.kubernetes.io/managed-by": "trimtab"}
        assert "ownerReferences" not in meta

    run_scenario(scenario)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("form", "inherited"), [(LAST_WINS, None), (GUARDED, Note("", epoch=4))], ids=["nothing", "the epoch"]
)
def test_a_new_policy_of_the_name_takes_over_what_the_format_says(
    run_scenario: RunScenario, store_of: Stores, form: StoredFormat[Note], inherited: Note | None
) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        await store_of(api, form).save(Note("of the old one", "large", epoch=4))

        store = store_of(api, form, LATER_OWNER)
        assert await store.load() == inherited
        assert store.stored is None
        await store.save(Note("of the new one", "large", epoch=5))

        assert await store_of(api, form, LATER_OWNER).load() == Note("of the new one", "large", epoch=5)

    run_scenario(scenario)


@pytest.mark.apiserver
def test_an_earlier_leader_does_not_overwrite_a_later_one(run_scenario: RunScenario, store_of: Stores) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        early, late = store_of(api, GUARDED), store_of(api, GUARDED)
        await early.save(Note("early", epoch=1))
        await late.load()
        await late.save(Note("late", epoch=2))

        with pytest.raises(ConflictError, match="written by a later leader, of epoch 2; ours is 1"):
            await early.save(Note("again", epoch=1))

        assert await late.load() == Note("late", epoch=2)

    run_scenario(scenario)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "edit",
    [{"metadata": {"labels": {"seen-by": "me"}}}, {"data": {"note.json": "not json"}}],
    ids=["a label", "its content"],
)
def test_an_edit_by_a_person_is_overwritten(run_scenario: RunScenario, store_of: Stores, edit: dict[str, Any]) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        store = store_of(api, GUARDED)
        await store.save(Note("first", "large", epoch=1))
        await api.patch(CONFIG_MAPS, store.namespace, NAME, edit)

        await store.save(Note("second", "large", epoch=1))

        assert await store_of(api, GUARDED).load() == Note("second", "large", epoch=1)

    run_scenario(scenario)


@pytest.mark.apiserver
def test_a_config_map_that_appears_before_the_first_write_is_overwritten(
    run_scenario: RunScenario, store_of: Stores
) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        store = store_of(api, GUARDED)
        assert await store.load() is None
        await store_of(api, GUARDED).save(Note("of another replica", epoch=1))

        await store.save(Note("ours", epoch=1))

        assert await store_of(api, GUARDED).load() == Note("ours", epoch=1)

    run_scenario(scenario)


@pytest.mark.apiserver
def test_foreign_content_is_refused_and_can_be_overwritten(run_scenario: RunScenario, store_of: Stores) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        store = store_of(api, GUARDED)
        meta = {"name": NAME}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"note.json": "{}"}}
        await api.create(CONFIG_MAPS, store.namespace, body)
        with pytest.raises(UnreadableContentError, match="not what Trimtab writes"):
            await store.load()

        await store.save(Note("ours"))

        assert await store_of(api).load() == Note("ours")

    run_scenario(scenario)


@pytest.mark.apiserver
def test_more_than_a_mebibyte_is_refused_before_it_is_sent(run_scenario: RunScenario, store_of: Stores) -> None:
    large = "x" * (MOST_BYTES + 1 - len('["", 0]'))

    async def scenario(proxy: FaultyApi, api: Api) -> None:
        with pytest.raises(RefusedError, match=f"would have {MOST_BYTES + 1} bytes, above {MOST_BYTES}: allow fewer"):
            await store_of(api).save(Note(large))
        assert proxy.seen == []

    run_scenario(scenario)


@pytest.mark.apiserver
def test_the_limit_counts_compressed_bytes_as_the_api_server_does(run_scenario: RunScenario, store_of: Stores) -> None:
    noise = random.Random(5).randbytes(MOST_BYTES * 6 // 10).hex()  # as hex it compresses to little more than that
    assert len(noise) > MOST_BYTES

    async def scenario(_: FaultyApi, api: Api) -> None:
        await store_of(api).save(Note("a", noise))

        assert await store_of(api).load() == Note("a", noise)

    run_scenario(scenario)


@pytest.mark.apiserver
def test_a_server_that_is_away_for_a_moment_is_asked_again(run_scenario: RunScenario, store_of: Stores) -> None:
    async def scenario(proxy: FaultyApi, api: Api) -> None:
        store = store_of(api)
        proxy.faults["request"] += [status(503)]
        await store.save(Note("first"))
        assert await store.load() == Note("first")

        proxy.refusing = True
        with pytest.raises(ApiUnavailableError):
            await store.save(Note("second"))
        assert store.stored == Note("first")

    run_scenario(scenario)


@pytest.mark.apiserver
def test_a_process_that_does_not_lead_writes_nothing(control_plane: ControlPlane, kube_namespace: str) -> None:
    async def scenario() -> None:
        async with Api.connect(str(control_plane.kubeconfig), fence=Fence()) as api:
            store = ConfigMapStore(api, kube_namespace, NAME, LAST_WINS, OWNER)
            with pytest.raises(FencedError):
                await store.save(Note("a"))
            assert await store.load() is None

    asyncio.run(scenario())


@pytest.mark.apiserver
def test_what_was_deleted_already_is_deleted_without_complaint(run_scenario: RunScenario, store_of: Stores) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        store = store_of(api)
        await store.save(Note("a"))
        await store.delete()
        await store.delete()

        assert await store.load() is None

    run_scenario(scenario)


@pytest.mark.apiserver
def test_a_late_write_or_deletion_of_a_guarded_config_map_is_a_conflict(
    run_scenario: RunScenario, store_of: Stores
) -> None:
    async def scenario(_: FaultyApi, api: Api) -> None:
        form = replace(LAST_WINS, guarded=True)
        former, latter = store_of(api, form), store_of(api, form)
        await former.save(Note("first"))
        await latter.load()
        await latter.save(Note("second"))

        with pytest.raises(ConflictError):
            await former.save(Note("late"))
        with pytest.raises(ConflictError):
            await former.delete()

        assert await former.load() == Note("second")
        await former.save(Note("third"))
        await former.delete()
        assert await latter.load() is None

    run_scenario(scenario)
