"""Rules of `trimtab lint` about policies in mode Shadow, which depend on the other policies of their namespace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab_operator.cli.lint.files import Document, Found, Level
from trimtab_operator.resources.policy import Mode
from trimtab_operator.state.policies import MOST_SHADOWS


def is_shadow(policy: Document) -> bool:
    """Whether the mode of a BalancingPolicy is Shadow."""
    return bool(policy.data["spec"].get("mode") == Mode.SHADOW)


def shadow_findings(policies: Sequence[Document]) -> Iterator[tuple[Document, Found]]:
    """Findings on the shadows among `policies`. What acts beside them may be in other files, so none is no finding."""
    for k, shadow in enumerate(policies):
        if not is_shadow(shadow):
            continue
        near = [one for one in policies if _namespace(one) == _namespace(shadow)]
        before = [one for one in policies[:k] if is_shadow(one) and one in near]
        if len(before) >= MOST_SHADOWS:
            text = (
                f"is Shadow, as of {MOST_SHADOWS} other policies of the namespace: the operator would refuse the third"
            )
            yield shadow, Found(Level.WARNING, "too-many-shadows", ("spec", "mode"), f"{text}; leave one out")
        acting = [one for one in near if not is_shadow(one)]
        brokers = shadow.data["spec"].get("brokers")
        if acting and all(one.data["spec"].get("brokers") != brokers for one in acting):
            names = ", ".join(str(one.data["metadata"]["name"]) for one in acting[:3])
            text = f"differs from that of {names}: a shadow must select the brokers of the policy that acts; copy it"
            at = ("spec", "brokers") if brokers is not None else ("spec",)
            yield shadow, Found(Level.WARNING, "shadow-of-others", at, text)


def _namespace(policy: Document) -> str:
    return str(policy.data["metadata"].get("namespace") or "")
