"""Creates thousands of Bundle objects in seconds: the first through the API server, the others as copies in etcd.

Through the server, creating one object and writing its status takes 3 ms on two cores. A copy in etcd has the same
result.
"""

from __future__ import annotations

import base64
import json
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab_operator.resources.common import API_VERSION
from trimtab_testbed.servers.kube import ControlPlane

PUTS = 100
"""Objects in one transaction of etcd, whose limit is 128."""

SINCE = "2026-01-01T00:00:00Z"


def make_bundles(plane: ControlPlane, namespace: str, bundles: Sequence[Mapping[str, Any]]) -> None:
    """Create `bundles` (manifests) in `namespace`, each served by the owner in its spec."""
    if not bundles:
        return
    stored = _stored(plane, namespace, bundles[0])
    for at in range(1, len(bundles), PUTS):
        copies = [_copy(stored, bundle) for bundle in bundles[at : at + PUTS]]
        puts = [{"key": _key(namespace, copy), "value": _encoded(_compact(copy))} for copy in copies]
        _etcd(plane, "txn", {"success": [{"requestPut": put} for put in puts]})


def _stored(plane: ControlPlane, namespace: str, bundle: Mapping[str, Any]) -> dict[str, Any]:
    """The stored form of a bundle that its broker has confirmed."""
    path = f"/apis/{API_VERSION}/namespaces/{namespace}/bundles"
    plane.rest.create(path, bundle)
    plane.rest.patch(f"{path}/{bundle['metadata']['name']}/status", {"status": _status(bundle)})
    found = _etcd(plane, "range", {"key": _key(namespace, bundle)})
    return dict(json.loads(base64.b64decode(found["kvs"][0]["value"])))


def _status(bundle: Mapping[str, Any]) -> dict[str, Any]:
    return {"owner": bundle["spec"]["owner"], "state": "Owned", "since": SINCE, "observedGeneration": 1}


def _copy(stored: Mapping[str, Any], bundle: Mapping[str, Any]) -> dict[str, Any]:
    """`stored` with the values of another manifest."""
    meta = {**stored["metadata"], **bundle["metadata"], "uid": str(uuid.uuid4())}
    return {**stored, "metadata": meta, "spec": {**stored["spec"], **bundle["spec"]}, "status": _status(bundle)}


def _key(namespace: str, bundle: Mapping[str, Any]) -> str:
    return _encoded(f"/registry/trimtab.dev/bundles/{namespace}/{bundle['metadata']['name']}")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _etcd(plane: ControlPlane, call: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Make one call of etcd's JSON gateway."""
    request = urllib.request.Request(f"{plane.etcd_url}/v3/kv/{call}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer))
