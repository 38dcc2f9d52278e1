"""The metrics of the services as one document; the label ``service`` tells their series apart."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from identity_common.http.routing import Service

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Answers(Collector):
    """Collects the series in the answers of the services."""

    def __init__(self, answers: Mapping[Service, str]) -> None:
        self._answers = answers

    def collect(self) -> Iterator[Metric]:
        """Yield each family once: a document with two of the same name would be invalid."""
        families: dict[tuple[str, str], Metric] = {}
        for service, text in self._answers.items():
            for found in text_string_to_metric_families(text):
                family = families.setdefault(
                    (found.name, found.type), Metric(found.name, found.documentation, found.type)
                )
                for sample in found.samples:
                    family.add_sample(sample.name, {**sample.labels, "service": service}, sample.value)
        yield from families.values()


def merged(answers: Mapping[Service, str]) -> bytes:
    """Return one document with the answers of the services at ``/metrics``."""
    registry = CollectorRegistry()
    registry.register(_Answers(answers))
    return generate_latest(registry)
