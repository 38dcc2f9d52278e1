"""Failed calls: each is logged, counted, and listed for operators, without personal data."""

from itertools import product
from typing import Final, get_args

import msgspec
from prometheus_client import Counter

from identity_common.clock import Clock, now_ms
from identity_common.stores.redis import RedisCommands
from identity_common.telemetry.logs import get_logger
from identity_common.telemetry.metrics import NAMESPACE
from identity_common.wire.claims_function import TOKEN_KINDS, Failure, TokenKind
from token_service.claims_function.last_records import LastRecords
from token_service.claims_function.sandbox import Problem
from token_service.claims_function.sandbox.outcomes import Reason

_log = get_logger(__name__)

_KEPT_MS: Final = 7 * 86_400_000
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Failure).decode


class FailedCalls:
    """The failed calls of one tenant.

    Attributes:
        count: Failed calls of this replica by kind and reason.
    """

    def __init__(self, commands: RedisCommands, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._lists = {
            kind: LastRecords(commands, f"identity:{tenant_id}:claims-function:{kind}:failures") for kind in TOKEN_KINDS
        }
        self.count = Counter(
            "claims_function_failures",
            "Number of calls of the custom-claims function that gave no claims.",
            ("kind", "reason"),
            namespace=NAMESPACE,
            registry=None,
        )
        for kind, reason in product(TOKEN_KINDS, get_args(Reason)):
            self.count.labels(kind, reason)  # a series that begins with its first event has no rate for it

    def add(self, problem: Problem, *, kind: TokenKind, version: int, client_id: str) -> None:
        """Log and count a failed call; its entry is stored without delaying the response.

        Args:
            problem: Why it failed; its message may quote the arguments, and so is left out.
            kind: Of the token.
            version: Of the function.
            client_id: The client.
        """
        _log.warning(
            "claims-function.failed",
            kind=kind,
            version=version,
            reason=problem.reason,
            line=problem.line,
            client_id=client_id,
        )
        self.count.labels(kind, problem.reason).inc()
        failure = Failure(
            at=self._clock(), version=version, reason=problem.reason, line=problem.line, column=problem.column
        )
        self._lists[kind].add(_encode(failure), ttl_ms=_KEPT_MS)

    async def last(self, kind: TokenKind) -> list[Failure]:
        """Return the last failures of all replicas within seven days, newest first.

        Those that only a later version of this service can read are left out.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        failures, unreadable = [], 0
        for record in await self._lists[kind].all():
            try:
                failures.append(_decode(record))
            except msgspec.DecodeError:
                unreadable += 1
        if unreadable:
            _log.warning("claims-function.failures-unreadable", kind=kind, count=unreadable)
        return sorted(failures, key=lambda each: each.at, reverse=True)
