"""Names that are hashed: stable, keyed, equal where they were equal, and nothing else shown."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from trimtab_pipeline.history.anonymizer import Renaming, kept_key
from trimtab_strategies.hash_ring import is_monitoring

HASHED = Renaming(b"key")


def test_the_same_name_has_the_same_hash_and_another_key_another_one() -> None:
    assert HASHED.broker("pulsar-0") == Renaming(b"key").broker("pulsar-0") != Renaming(b"other").broker("pulsar-0")
    assert re.fullmatch(r"broker-[0-9a-f]{12}", HASHED.broker("pulsar-0"))


def test_no_owner_stays_no_owner() -> None:
    assert HASHED.broker("") == ""


def test_a_bundle_keeps_its_range_and_shares_its_namespaces_hash() -> None:
    low, high = (
        HASHED.bundle(f"acme/orders/{extent}") for extent in ("0x00000000_0x80000000", "0x80000000_0xffffffff")
    )
    assert low.endswith("/0x00000000_0x80000000")
    assert low.split("/")[:2] == high.split("/")[:2]
    assert "acme" not in low
    assert "orders" not in low


@pytest.mark.parametrize("home", ["pulsar/broker-0.pulsar:8080", "sla-monitor/cluster/broker-0:8080"])
def test_a_brokers_own_namespace_is_still_one(home: str) -> None:
    """No policy may move it, in a replay neither."""
    hashed = Renaming(b"key").bundle(f"{home}/0x00000000_0xffffffff").rpartition("/")[0]

    assert is_monitoring(hashed)
    assert "broker-0" not in hashed


def test_a_namespace_of_the_same_name_in_another_tenant_is_another_one() -> None:
    one, other = (HASHED.bundle(f"{tenant}/orders/0x00000000_0xffffffff") for tenant in ("acme", "umbrella"))
    assert one.split("/")[1] != other.split("/")[1]


@pytest.mark.parametrize("name", ["acme", "acme/orders", "acme/orders/secret"])
def test_a_bundle_of_another_form_is_hashed_as_a_whole(name: str) -> None:
    assert re.fullmatch(r"bundle-[0-9a-f]{12}", HASHED.bundle(name))


def test_a_topic_keeps_domain_and_partition_and_lies_in_its_bundles_namespace() -> None:
    topic = HASHED.topic("persistent://acme/orders/new-partition-7")
    home = HASHED.bundle("acme/orders/0x00000000_0xffffffff").rpartition("/")[0]
    assert re.fullmatch(rf"persistent://{home}/topic-[0-9a-f]{{12}}-partition-7", topic)
    assert topic.removesuffix("7") == HASHED.topic("persistent://acme/orders/new-partition-8").removesuffix("8")


def test_the_segments_of_a_topic_stay_apart_and_lie_in_its_namespace() -> None:
    home = HASHED.bundle("acme/orders/0x00000000_0xffffffff").rpartition("/")[0]
    first, second = (HASHED.topic(f"segment://acme/orders/new/{end}") for end in ("0000-7fff-1", "8000-ffff-2"))
    assert re.fullmatch(rf"segment://{home}/topic-[0-9a-f]{{12}}/0000-7fff-1", first)
    assert first.replace("0000-7fff-1", "8000-ffff-2") == second


def test_free_text_is_left_out_and_columns_no_one_thought_of_are_emptied() -> None:
    rows = pa.table(
        {
            "kind": ["dropped", "failed", "warning"],
            "what": ["NaN", "broker a: http://acme: refused", "store acme-2 is out"],
            "count": [1, 2, 3],
            "owner_mail": ["a@acme.example"] * 3,
        }
    )
    hashed = HASHED.table(rows)
    assert hashed.column_names == rows.column_names
    assert hashed["what"].to_pylist() == ["NaN", "text left out", "text left out"]
    assert hashed["count"].to_pylist() == [1, 2, 3]
    assert hashed["owner_mail"].to_pylist() == [None] * 3


def test_a_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    first = kept_key(tmp_path / "names.key")
    assert len(first) == 64
    assert kept_key(tmp_path / "names.key") == first
    assert stat.S_IMODE((tmp_path / "names.key").stat().st_mode) == 0o600


def test_an_empty_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "names.key").touch()
    with pytest.raises(ValueError, match=r"names\.key is empty"):
        kept_key(tmp_path / "names.key")
