"""Attempts to sign in: the limit of an address, and what metrics, log and audit trail say about refusals."""

from collections.abc import Awaitable
from typing import Literal

from prometheus_client import Counter

from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.logs import get_logger
from identity_common.wire.provider_sign_in import NotAcceptedReason
from token_service.audit import Origin, TokenAudit

_log = get_logger(__name__)

ProviderProblem = (
    Literal["provider-denied", "provider-refused", "provider-unavailable", "provider-ended"] | NotAcceptedReason
)
Problem = (
    Literal["incomplete", "wrong", "wrong-code", "wrong-passkey", "throttled", "blocked", "unavailable"]
    | ProviderProblem
)
"""What a page states."""


class SignInRefused(Exception):  # noqa: N818 - the name is what happened
    """No session was begun or continued.

    Attributes:
        problem: The problem that the page states.
        status: HTTP status.
        retry_after_s: Seconds until another attempt may succeed, if known.
    """

    def __init__(self, problem: Problem, *, status: int = 200, retry_after_s: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.status = status
        self.retry_after_s = retry_after_s


class Attempts:
    """Counts attempts, and records how they end.

    Args:
        throttle: Limits the attempts of an address.
        audit: The audit trail.
        outcomes: Counts the outcomes.
    """

    def __init__(self, throttle: SourceLimit, audit: TokenAudit, *, outcomes: Counter) -> None:
        self._throttle = throttle
        self._audit = audit
        self._outcomes = outcomes

    async def count(self, origin: Origin, client_id: str) -> None:
        """Count an attempt.

        Raises:
            SignInRefused: There were too many from this address.
        """
        throttled = await self._throttle.count(origin.address)
        if throttled is not None:
            # One audit entry a window: a flood must not fill the backlog, which would then drop other entries.
            self.refused("throttled-address", origin, client_id, is_recorded=throttled.is_first)
            raise too_many_attempts(throttled.wait_s)

    def forgive(self, origin: Origin) -> Awaitable[object]:
        """Take an attempt back that was right, or could not be judged; sent at once, so that it need not be awaited."""
        return self._throttle.forgive(origin.address)

    async def provider_unavailable(self, origin: Origin) -> SignInRefused:
        """Take a visit to a provider back that could not be judged, and return the refusal."""
        await self.forgive(origin)
        self._outcomes.labels("provider-unavailable").inc()
        return SignInRefused("provider-unavailable")

    async def unavailable(self, origin: Origin, retry_after_s: int) -> SignInRefused:
        """Take an attempt back that could not be judged, and return the refusal."""
        await self.forgive(origin)
        self._outcomes.labels("unavailable").inc()
        return SignInRefused("unavailable", status=503, retry_after_s=retry_after_s)

    def succeeded(self) -> None:
        """Count a sign-in."""
        self._outcomes.labels("succeeded").inc()

    def refused(
        self,
        outcome: str,
        origin: Origin,
        client_id: str,
        *,
        user_id: str | None = None,
        is_recorded: bool = True,
        connector_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Count, log and record a refusal; management-service logs the account, which may be unknown here.

        Args:
            outcome: Of the metric.
            origin: Where the request came from.
            client_id: The application to continue to.
            user_id: The user, if it is known.
            is_recorded: Whether it gets an audit entry.
            connector_id: The connector through which it came.
            reason: For the audit trail, if it is more than the outcome.
        """
        self._outcomes.labels(outcome).inc()
        if is_recorded:
            self._audit.not_signed_in(
                user_id, client_id=client_id, origin=origin, reason=reason or outcome, connector_id=connector_id
            )
        _log.info(
            "sign-in.refused",
            reason=reason or outcome,
            address=origin.address,
            client_id=client_id,
            user_id=user_id,
            connector_id=connector_id,
        )


def too_many_attempts(wait_s: int) -> SignInRefused:
    """Return the refusal of an attempt beyond a limit."""
    return SignInRefused("throttled", status=429, retry_after_s=wait_s)
