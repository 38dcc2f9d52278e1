"""Metrics of token-service: its decisions as they are made, and its state when the metrics are read."""

from functools import partial
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

from identity_common.bus.connection import Bus
from identity_common.bus.streams import published_revision
from identity_common.clock import now_ms
from identity_common.outbox.lost_writes import lost_writes_gauge
from identity_common.revisions import Source
from identity_common.telemetry.metrics import NAMESPACE, Samples, counter, gauge
from token_service.directory import Directory
from token_service.not_valid import Tail
from token_service.presented_tokens.revocations import Revocations
from token_service.tokens.keys import KeyStatus, SigningKeys

_SOURCES: Final[tuple[Source, ...]] = get_args(Source)
_AGES_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60, 300)
_SIGN_IN_OUTCOMES: Final = (
    "succeeded",
    "wrong-password",
    "wrong-passkey",
    "wrong-code",
    "wrong-enrolment-code",
    "throttled-account",
    "throttled-address",
    "not-allowed",
    "provider-denied",
    "provider-refused",
    "provider-unavailable",
    "unavailable",
)


class TokenServiceMetrics:
    """The metrics of this service.

    Attributes:
        registry: All of them.
        samples: Those computed when the metrics are read.
        tokens: Token requests by grant and outcome: ``issued``, ``throttled``, or the error.
        unknown_scopes: Token requests whose every requested scope is unknown.
        sign_ins: Attempts to sign in by outcome.
        throttled: Attempts beyond a limit, by limit.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.samples = Samples()
        registry = self.registry
        self.tokens: Counter = counter(
            registry, "token_requests", "Token requests by grant and outcome.", "grant_type", "outcome"
        )
        self.unknown_scopes: Counter = counter(
            registry, "unknown_scopes", "Token requests whose every requested scope is unknown.", "grant_type"
        )
        self.sign_ins: Counter = counter(registry, "sign_ins", "Attempts to sign in by outcome.", "outcome")
        for outcome in _SIGN_IN_OUTCOMES:
            self.sign_ins.labels(outcome)  # a series that begins with its first event has no rate for it
        self.throttled: Counter = counter(registry, "throttled", "Attempts beyond a limit, by limit.", "limit")

    def measure_directory(self, directory: Directory, bus: Bus, *, tenant_id: str) -> None:
        """Measure freshness, which readiness deliberately leaves out."""
        registry = self.registry
        revision = gauge(
            registry,
            "directory_revision",
            "Highest revision that a part of the directory has applied.",
            *("store", "source"),
        )
        silence = gauge(
            registry,
            "directory_silence_seconds",
            "Seconds since a part of the directory last received anything from the bus, heartbeats included.",
            "store",
        )
        lag = gauge(
            registry,
            "directory_lag_revisions",
            "Published revisions that a part of the directory has not applied yet.",
            *("store", "source"),
        )
        age = Histogram(
            "change_enforced_seconds",
            "Time from a change to its application in a part of the directory, of the first change of each batch.",
            ("store",),
            namespace=NAMESPACE,
            buckets=_AGES_S,
            registry=registry,
        )
        parts = {"memory": directory.in_memory.freshness, "redis": directory.in_redis.freshness}
        for store, freshness in parts.items():
            freshness.observe_age = age.labels(store).observe
            silence.labels(store).set_function(partial(getattr, freshness, "silence_s"))
            for source in _SOURCES:
                revision.labels(store, source).set_function(partial(freshness.seen, source))

        async def behind(source: Source) -> list[float]:
            head = await published_revision(bus.jetstream(), source, tenant_id)
            return [max(0.0, float(head - freshness.seen(source))) for freshness in parts.values()]

        for source in _SOURCES:
            self.samples.add([lag.labels(store, source) for store in parts], partial(behind, source))
        connected = gauge(registry, "bus_connected", "1 while the service is connected to NATS, otherwise 0.")
        connected.set_function(lambda: float(bus.is_connected))

    def measure_lost_writes(self, revocations: Revocations) -> None:
        """Measure whether the database lost revocations, the only writes whose loss can be found."""
        lost_writes_gauge(self.registry, "token").set_function(lambda: revocations.found_lost_at_s)

    def measure_feed(self, tail: Tail) -> None:
        """Measure the not-valid feed as this replica passes it on."""
        prefix = "not_valid_feed"
        sequence = gauge(self.registry, f"{prefix}_sequence", "Sequence of the not-valid feed.")
        sequence.set_function(lambda: float(tail.sequence))
        silence = gauge(self.registry, f"{prefix}_silence_seconds", "Seconds since its last message or heartbeat.")
        silence.set_function(lambda: tail.silence_s)
        readers = gauge(self.registry, f"{prefix}_readers", "Its readers over HTTP at this replica.")
        readers.set_function(lambda: float(tail.readers))

    def measure_keys(self, keys: SigningKeys) -> None:
        """Measure the age of the signing keys."""
        age = gauge(self.registry, "signing_key_age_seconds", "Age of a signing key, in seconds.", "status")
        statuses: tuple[KeyStatus, ...] = ("Next", "Current")

        async def ages() -> list[float]:
            created = {key.status: key.created_at for key in await keys.stored()}
            return [(now_ms() - created[status]) / 1000 for status in statuses]

        self.samples.add([age.labels(status) for status in statuses], ages)
