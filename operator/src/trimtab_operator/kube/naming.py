"""The rules for object names, and Pulsar's spelling of a bundle. Nothing else in Trimtab composes such a name.

A slug is lower case and DNS-safe. Where several originals share one slug (``a-b``/``c`` and ``a``/``b-c``; capitals;
characters DNS does not have) a short hash of the original follows, so that the name is still one to one.
"""

from __future__ import annotations

import hashlib
import re

LONGEST = 253
"""Characters a Kubernetes object name may have (DNS-1123 subdomain)."""

PULSAR_FOUND = "trimtab-pulsar-found"
"""Name of the ConfigMap that keeps what was found of Pulsar's own balancing before it was switched off."""

_RANGE = len("-0x00000000-0x00000000")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_BUNDLE = re.compile(r"(?P<tenant>[^/]+)/(?P<name>[^/]+)/(?P<lower>0x[0-9a-f]{8})_(?P<upper>0x[0-9a-f]{8})")


def pulsar_bundle(tenant: str, name: str, lower: str, upper: str) -> str:
    """``tenant/name/0xLLLLLLLL_0xUUUUUUUU``, as Pulsar spells a bundle."""
    return f"{tenant}/{name}/{lower}_{upper}"


def parse_pulsar_bundle(text: str) -> tuple[str, str, str, str]:
    """(tenant, name, lower, upper) of Pulsar's spelling. Raises ValueError for anything else."""
    match = _BUNDLE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a bundle: write tenant/namespace/0x00000000_0x40000000")
    return match["tenant"], match["name"], match["lower"], match["upper"]


def topic_namespace_name(tenant: str, name: str, *, hashed: bool = False) -> str:
    """Name that the TopicNamespace object of ``tenant/name`` gets when Trimtab makes it.

    hashed: with a hash in any case, for when somebody called another object so.
    """
    return _slug(f"{tenant}/{name}", exact="-" not in tenant and not hashed, longest=LONGEST - _RANGE)


def bundle_name(tenant: str, name: str, lower: str, upper: str) -> str:
    """Name of the Bundle object of a range: ``<tenant>-<name>-<lower>-<upper>``; lower, upper: ``0x%08x``."""
    return f"{topic_namespace_name(tenant, name)}-{lower}-{upper}"


def split_name(bundle: str, boundaries: tuple[int, ...]) -> str:
    """Name that the BundleSplit of the Bundle object `bundle` at these hashes gets when Trimtab makes it."""
    digest = hashlib.blake2s(",".join(map(str, boundaries)).encode(), digest_size=4).hexdigest()
    return _slug(f"{bundle}-{digest}", exact=True, longest=LONGEST)


def memory_name(policy: str) -> str:
    """Name of the ConfigMap in which the BalancingPolicy object `policy` remembers."""
    return _slug(f"trimtab-memory-{policy}", exact=True, longest=LONGEST)


def proposal_name(policy: str) -> str:
    """Name of the ConfigMap that holds the whole proposal of the BalancingPolicy object `policy`."""
    return _slug(f"trimtab-proposal-{policy}", exact=True, longest=LONGEST)


def decisions_name(policy: str) -> str:
    """Name of the ConfigMap that holds the latest decisions of the BalancingPolicy object `policy`."""
    return _slug(f"trimtab-decisions-{policy}", exact=True, longest=LONGEST)


def broker_name_of_pod(pod: str) -> str:
    """Name of the Broker object that stands for a pod: the pod's."""
    return pod


def broker_name_of_address(address: str) -> str:
    """Name of the Broker object of a broker that no pod stands for; address: ``host:webPort``."""
    return _slug(address, exact=True, longest=LONGEST)


def _slug(original: str, *, exact: bool, longest: int) -> str:
    """`original` as a subdomain; with a hash unless `exact` and only its separator (``/`` or ``:``) had to change."""
    plain = re.sub(r"[/:]", "-", original, count=1) if exact else ""
    if len(plain) <= longest and _SUBDOMAIN.fullmatch(plain):
        return plain
    digest = hashlib.blake2s(original.encode(), digest_size=4).hexdigest()
    words = re.sub(r"[^a-z0-9]+", "-", original.lower()).strip("-")
    return f"{words[: longest - len(digest) - 1]}-{digest}".lstrip("-")
