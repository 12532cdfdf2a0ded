"""Which topics of an answer are in the hottest bundles. PromQL has no CRC-32, so a query selects whole namespaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from trimtab_pipeline.prometheus.sample_batches import full_names
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.transform.topic_to_bundle import HashRanges


class InsideBundles:
    """Keeps the topics in some bundles. Answers with the same labels share their topics' places."""

    def __init__(self, bundles: Sequence[str]) -> None:
        self._ranges = HashRanges.of(bundles)
        self._labels: Mapping[str, pa.StringArray] | None = None
        self._kept = pa.array([], pa.bool_())

    def holds(self, topics: pa.StringArray) -> pa.BooleanArray:
        """Whether each topic is in one of the bundles."""
        return pa.array(self._ranges.place(topics)[0] >= 0)

    def asked(self, ask: Callable[[], Samples]) -> Samples:
        """The series of an answer whose topics are in one of the bundles."""
        answer = ask()
        if answer.labels is not self._labels:
            self._labels = answer.labels
            self._kept = self.holds(full_names(answer.label("topic"), answer.label("partition")))
        return answer.filter(self._kept)
