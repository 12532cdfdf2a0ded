"""Inputs that once crashed a reader, or took too long or too much memory."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
from collections.abc import Mapping

import pytest

from fuzz_target import BETWEEN, SLOWEST, peak, reset_peak
from fuzz_targets import TARGETS
from pulsar_readers import CALLS, CODES

HUGE = "1" + "0" * 400
"""An integer beyond floating point."""

SUCCESS = b'{"status":"success","data":{"resultType":"vector","result":['

MOST = 300 * 2**20

ON_A_SHARED_MACHINE = 3 * SLOWEST
"""Seconds of processor time: what takes a second alone takes up to three beside other work. A bomb takes minutes."""


def answer(call: str, body: object, status: int = 200) -> bytes:
    """An answer of a broker."""
    text = body if isinstance(body, str) else json.dumps(body)
    return bytes([list(CALLS).index(call), CODES.index(status)]) + b"\n" + text.encode()


def series(count: int) -> bytes:
    """As many series, each with a label of its own."""
    rows = (b'{"metric":{"l%d":""},"value":[1,"1"]}' % k for k in range(count))
    return SUCCESS + b", ".join(rows) + b"]}}"


def tar_of(**fields: object) -> bytes:
    """An archive whose only table has these fields in its header."""
    member = tarfile.TarInfo("messaging/main/demand.parquet")
    for name, value in fields.items():
        setattr(member, name, value)
    return member.tobuf(format=tarfile.PAX_FORMAT).ljust(tarfile.RECORDSIZE, b"\0")


def sparse() -> bytes:
    """An archive whose table is a hole of a tebibyte."""
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**40)}
    names = {"GNU.sparse.name": "messaging/main/demand.parquet"}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("messaging/main/demand.parquet")
        member.pax_headers, body = {**headers, **names}, f"1\n{2**40}\n0\n".encode().ljust(512, b"\0")
        member.size = len(body)
        tar.addfile(member, io.BytesIO(body))
    return made.getvalue()


def merges(levels: int) -> bytes:
    """YAML that merges ten times ten times ... fields."""
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, levels):
        inner = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {{<<: [{inner}], y{level}: 1}}")
    return "\n".join(lines).encode()


def aliases() -> bytes:
    """YAML in which each of ten lists is nine times the one before, as a title and a description."""
    lines = ["a0: &a0 [1, 1]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 10)]
    return "\n".join([*lines, "title: *a9", "description: *a9"]).encode()


def policy(spec: str) -> bytes:
    return f"apiVersion: trimtab.dev/v1alpha1\nkind: BalancingPolicy\nmetadata: {{name: p}}\nspec: {spec}\n".encode()


def zeros() -> bytes:
    return base64.b64encode(gzip.compress(bytes(2**30 // 4), 9))


BOMBS: Mapping[str, list[bytes]] = {
    "prometheus": [
        SUCCESS + b'"metric","value"]}]}}',
        SUCCESS + b'{"metric":{},"value":[1,"1"]}]},"warnings":5}',
        SUCCESS + b'{"metric":{},"value":[1,' + HUGE.encode() + b"]}]}}",
        SUCCESS + b'{"metric":{"pod":null},"value":[1,"1"]}]}}',
        SUCCESS + b'{"metric":{"pod":"\\ud800"},"value":[1,"1"]}]}}',
        SUCCESS.replace(b"vector", b"matrix")
        + b'{"metric":{},"values":[[1,"1",2]]},{"metric":{},"values":[[NaN,"1"]]}]}}',
        SUCCESS + b'{"metric":{' + b'"a":"b",' * 100_000 + b'"c":"d"},"value":[1,"1"]}]}}',
        series(5_000),
        b"[" * 100_000,
    ],
    "statistics": [b'{"t/n":{"b":{"p":{"t":{"msgRateIn":' + HUGE.encode() + b"}}}}}"],
    "date": [b"Mon, 01 Jan 2024 00:00:00 +99999999999999", b"Mon, 01 Jan 0000 00:00:00 GMT", b" "],
    "pulsar": [
        answer("reported", {"bundles": 5}),
        answer("boundaries", {"boundaries": ["-0x5", "0x1ffffffff"]}),
        answer("policies", {}),
        answer("leader", {"serviceUrl": "http://["}),
        answer("lookup", {"httpUrl": "http://["}),
        answer("origin", {"httpUrlTls": "http://["}),
        answer("loads", '{"t/n":{"b":{"p":{"t":{"msgRateIn":' + HUGE + "}}}}}"),
        answer("positions", {"topicHashPositions": {"a": "x"}}),
        answer("positions", '{"topicHashPositions": {"a": Infinity}}'),
        answer("isolation", {"a": 5}),
        answer("isolation", {"a": {"namespaces": [["t/.*"]], "primary": [5]}}),
        answer("isolation", {"a": {"namespaces": ["t/.*"], "primary": ["a"], "auto_failover_policy": "x"}}),
        answer(
            "isolation",
            {
                "a": {
                    "namespaces": ["t/.*"],
                    "primary": ["broker-0"],
                    "auto_failover_policy": {"parameters": {"min_limit": "9" * 5000}},
                }
            },
        ),
        answer("unload", "<" * 65_536, status=500),
        b"\x00\x02http://[\n",
        answer("brokers", ["["]),
    ],
    "issuer": [BETWEEN.join((b"{}", b'{"access_token": "a", "expires_in": ' + HUGE.encode() + b"}"))],
    "proposal": [
        b'{"state": "ProposalReady", "message": "", "uid": "uid"}' + BETWEEN + b"[" * 100_000,
        TARGETS["proposal"].seeds()[0].replace(b'"made_at": 1800000000.0', b'"made_at": "soon"'),
        TARGETS["proposal"].seeds()[0].replace(b'"made_at": 1800000000.0', b'"made_at": 1e300'),
        TARGETS["proposal"].seeds()[0].replace(b'"brokers": ["a", "b"]', b'"brokers": ["a"]'),
        TARGETS["proposal"].seeds()[1].replace(b'">+"', b'">>"'),
        TARGETS["proposal"].seeds()[1].replace(b'"finished": null', b'"finished": "soon"'),
        TARGETS["proposal"].seeds()[1].replace(b'"started": 1800000000.0', b'"started": Infinity'),
    ],
    "found": [TARGETS["found"].seeds()[0].replace(b'"undone": [1800000000.0]', b'"undone": [' + HUGE.encode() + b"]")],
    "memory": [TARGETS["memory"].seeds()[0].replace(b'"epoch": 2', b'"epoch": Infinity'), b"[" * 100_000],
    "decisions": [b"[" * 100_000],
    "packed": [b"\x01" + zeros(), b"\x01" + base64.b64encode(gzip.compress(b"{}" * 50)[:-9] + bytes(9))],
    "quantity": [b"9" * 400 + b"s", b"9" * 5000 + b"h", b"9" * 400 + b"Ei"],
    "lint": [
        b"\x00",
        b"? [a]\n: b",
        b"a: !!timestamp x",
        b'a: !!int ""',
        b"a: !!bool x",
        b"a: !!float " + b"9:" * 300 + b"9",
        b'a: "\\UFFFFFFFF"',
        b'a: "\\ud800"',
        b"a: 0x" + b"f" * 5000,
        b"&a [*a]",
        b"a: &a " + b"[" * 150 + b"]" * 150,
        merges(9),
        b"\n".join(b"k%d: 1" % k for k in range(8_000)),
        policy("{limits: {maxMovesPerCycle: " + HUGE + "}}"),
        policy("{shedder: {type: ThresholdShedder, thresholdShedder: {minThroughput: '" + "1" * 50_000 + "x'}}}"),
        policy("{" + ", ".join(f"x{k}: 1" for k in range(3_000)) + "}"),
        b'{"kind": "List", "items": [' + b", ".join([b'{"a": [1, 2, 3]}'] * 20_000) + b"]}",
    ],
    "policy": [
        b"kind: BalancingPolicy\nmetadata: name\n",
        policy("{brokers: {names: [" + ", ".join(f"b{k}" for k in range(3_000)) + "]}}"),
    ],
    "plan": [b"kind: MovePlan\nmoves: [[[[", b"{" * 1000],
    "scenario": [
        b"a: " + b"[" * 5_000,
        aliases(),
        b"title: t\ndescription: d\nmachines:\n- &m {count: 2000, usage: 0.5}\n" + b"- *m\n" * 500,
        b"a: !!int ''",
    ],
    "recording": [b"[" * 100_000, b"9" * 5_000, b'{"algorithm": "a", "expect": {}, "alternatives": 5}'],
    "archive": [tar_of(size=-512), tar_of(type=tarfile.GNUTYPE_LONGNAME, size=2**62), sparse(), b"\0" * 1024],
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, inputs in BOMBS.items() for number in range(len(inputs))]
)
def test_it_raises_nothing_unforeseen_in_bounded_time_and_memory(name: str, number: int) -> None:
    TARGETS[name].warm_up()
    before = reset_peak()

    TARGETS[name].check(BOMBS[name][number], slowest=ON_A_SHARED_MACHINE)

    assert peak() - before < MOST
