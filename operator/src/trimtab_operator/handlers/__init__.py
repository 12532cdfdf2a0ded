"""Kopf handlers of the small kinds: each reads the object and calls one function of `loop` or `reconcile`.

Bundles, Brokers and BundleSplits have none: Kopf would write to each of 60,000 objects, and loses deletions across a
re-list. Our own stores follow those.
"""

from __future__ import annotations

import kopf

from trimtab_operator.handlers import policy, topic_namespace
from trimtab_operator.resources.common import GROUP

__all__ = ["operator_settings", "registry"]


def registry() -> kopf.OperatorRegistry:
    """A fresh registry with all handlers; no global one is used."""
    handlers = kopf.OperatorRegistry()
    for module in (policy, topic_namespace):
        module.register(handlers)
    return handlers


def operator_settings() -> kopf.OperatorSettings:
    """Kopf's settings: everything it writes carries our group, streams that died are noticed, no Events by Kopf."""
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    settings.posting.enabled = False
    settings.scanning.disabled = True
    # Kopf looks once, and then again only after the whole back-off: give a loop the time to end its turn by itself
    settings.background.instant_exit_timeout = 3.0
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 30
    return settings
