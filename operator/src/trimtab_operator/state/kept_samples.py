"""The recent samples of a policy, and the source that they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trimtab_pipeline.api import PrometheusSettings
from trimtab_strategies.shedding.trim.samples import SampleRing


class SampleSource(NamedTuple):
    """The settings that say what a sample means: another preset has CPU in percent and not in cores."""

    url: str
    resources: str
    queries: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, settings: PrometheusSettings) -> SampleSource:
        """The source that `settings` name."""
        return cls(settings.url, settings.resources, settings.queries)


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """The ring of one policy, with the samples of one source."""

    source: SampleSource
    ring: SampleRing
