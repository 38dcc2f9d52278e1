"""Token requests and sign-ins in the audit trail."""

from typing import Final, NamedTuple

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id
from identity_common.oauth import (
    GRANT_AUTHORIZATION_CODE,
    GRANT_CLIENT_CREDENTIALS,
    GRANT_REFRESH_TOKEN,
    GRANT_TOKEN_EXCHANGE,
)
from identity_common.stores.audit_streams import AuditStream, AuditStreamKeys
from identity_common.stores.redis import RedisCommands
from identity_common.telemetry.logs import REQUEST_ID
from identity_common.wire.audit import AuditEntry, AuditLog, Outcome
from token_service.audit.refusals import RefusalWindows

LOG: Final[AuditLog] = "exchanges"
TAKEN: Final = "token.exchange.taken"
UNKNOWN: Final = "token.exchange.unknown"

OBJECTS: Final = {
    GRANT_AUTHORIZATION_CODE: "authorization-code",
    GRANT_CLIENT_CREDENTIALS: "client-credentials",
    GRANT_REFRESH_TOKEN: "refresh-token",
    GRANT_TOKEN_EXCHANGE: "exchange",
}
"""The second part of an entry's key, by grant type; ``other`` for an unknown one, which is refused, and for several."""
_OTHER: Final = "other"
_SEVERAL: Final = "several"
_MAX_ADDRESS: Final = 64


class Origin(NamedTuple):
    """Where a browser's request came from.

    Attributes:
        address: Of the client.
        user_agent: Its ``User-Agent``, shortened.
    """

    address: str
    user_agent: str


class AuditedTokenRequest(msgspec.Struct, kw_only=True):
    """Facts about a token request, completed by each phase through the methods below.

    Attributes:
        address: Of the client.
        user_agent: Its ``User-Agent``, shortened.
        client_id: The client, once it is authenticated.
        is_public: Whether the client does not authenticate: any caller can send its id.
        user_id: The subject.
        actor_id: The actor.
        organization_id: The organization of the target.
        resource: The resource of the target.
        subject_token_id: Public id of the subject token, once it was taken.
        issued_token_id: ``jti`` of the token to be issued.
        scope: The granted scopes.
        expires_at: When a token that is issued by exchange expires, milliseconds since the epoch.
        reason: Code of the refusal, where the error that the client gets is not specific enough.
        amr: The methods of a sign-in so far.
        connector_id: The connector through which a sign-in came.
        is_taken: Whether Redis has confirmed that the subject token was taken; the attempt is then recorded.
    """

    address: str = ""
    user_agent: str = ""
    client_id: str | None = None
    is_public: bool = False
    user_id: str | None = None
    actor_id: str | None = None
    organization_id: str | None = None
    resource: str | None = None
    subject_token_id: str | None = None
    issued_token_id: str | None = None
    scope: str | None = None
    expires_at: int | None = None
    reason: str | None = None
    amr: tuple[str, ...] = ()
    connector_id: str | None = None
    is_taken: bool = False

    def note_client(self, client_id: str, *, is_public: bool) -> None:
        """Note which client is authenticated."""
        self.client_id, self.is_public = client_id, is_public

    def note_target(self, organization_id: str | None, resource: str | None) -> None:
        """Note the organization and the resource of the target."""
        self.organization_id, self.resource = organization_id, resource

    def note_actor(self, actor_id: str) -> None:
        """Note the subject of a valid actor token."""
        self.actor_id = actor_id

    def note_user(self, user_id: str) -> None:
        """Note the user of a code or refresh token."""
        self.user_id = user_id

    def note_taken(self, subject_token_id: str, *, user_id: str, issued_token_id: str) -> None:
        """Note that a subject token is spent, and that its attempt has this ``jti`` in the audit trail."""
        self.is_taken = True
        self.subject_token_id, self.user_id, self.issued_token_id = subject_token_id, user_id, issued_token_id

    def note_token(self, issued_token_id: str, *, scope: str) -> None:
        """Note which token is issued, unless it is issued by exchange."""
        self.issued_token_id, self.scope = issued_token_id, scope

    def note_exchanged(self, *, scope: str, expires_at: int) -> None:
        """Note the token that the attempt announced."""
        self.scope, self.expires_at = scope, expires_at

    def note_reason(self, reason: str) -> None:
        """Note why the request is refused."""
        self.reason = reason


class TokenAudit:
    """Makes the entries and appends those about a request's outcome, without waiting for Redis.

    Attributes:
        refusals: Those of public clients; its worker has to run.

    Args:
        commands: Runs the Redis commands.
        tenant_id: The tenant.
        backlog: How many entries may wait in Redis for the bus.
        clock: The clock; for tests.
    """

    def __init__(self, commands: RedisCommands, *, tenant_id: str, backlog: int, clock: Clock = now_ms) -> None:
        self.keys = AuditStreamKeys.of(LOG, tenant_id)
        self.backlog = backlog
        self._stream = AuditStream(commands, self.keys, backlog=backlog)
        self.refusals = RefusalWindows(commands, self._stream, self.keys, backlog=backlog, clock=clock)
        self._tenant_id = tenant_id
        self._clock = clock

    async def flush(self) -> None:
        """Send waiting entries to Redis, before the process ends."""
        await self._stream.flush()

    def attempt(self, request: AuditedTokenRequest) -> AuditEntry:
        """Return the entry that the take appends after it has added the subject token and its user."""
        return self._entry(TAKEN, request)

    def issued(self, grant_type: str, request: AuditedTokenRequest) -> None:
        """Record that a token was issued."""
        self._append(f"token.{OBJECTS.get(grant_type, _OTHER)}.succeeded", request)

    def refused(self, grant_type: str, request: AuditedTokenRequest, reason: str) -> None:
        """Record a refusal, unless the client is unknown or failed to authenticate: any caller could fill the trail.

        A refusal of a public client is counted, unless it is the outcome of an attempt, which took a subject token.

        Args:
            grant_type: As requested.
            request: The request.
            reason: Code of the refusal; the one that was noted in the request takes precedence.
        """
        if request.client_id is None:
            return
        key, reason = f"token.{OBJECTS.get(grant_type, _OTHER)}.refused", request.reason or reason
        if request.is_public and not request.is_taken:
            in_common = AuditedTokenRequest(address=request.address, user_agent=request.user_agent)
            self.refusals.append(
                self._entry(key, request, "refused", reason),
                in_common=self._entry(f"token.{_OTHER}.refused", in_common, "refused", _SEVERAL),
            )
        else:
            self._append(key, request, "refused", reason)

    def signed_in(
        self, user_id: str, *, client_id: str, origin: Origin, amr: tuple[str, ...], connector_id: str | None = None
    ) -> None:
        """Record that a user signed in with a first factor to continue to an application."""
        self._append("token.sign-in.succeeded", _at_a_browser(user_id, client_id, origin, amr, connector_id))

    def factor_used(
        self, user_id: str, *, client_id: str, origin: Origin, amr: tuple[str, ...], connector_id: str | None = None
    ) -> None:
        """Record that a user who has signed in used another factor, set one up, or linked an identity."""
        self._append("token.factor.succeeded", _at_a_browser(user_id, client_id, origin, amr, connector_id))

    def not_signed_in(
        self,
        user_id: str | None,
        *,
        client_id: str,
        origin: Origin,
        reason: str,
        connector_id: str | None = None,
    ) -> None:
        """Record a refused sign-in; the typed identifier is not recorded.

        Args:
            user_id: The user, if the password was right.
            client_id: The application to continue to.
            origin: Where the request came from.
            reason: The metric's label: ``wrong-password``, ``wrong-passkey``, ``wrong-code``,
                ``wrong-enrolment-code``, ``throttled-address``, ``throttled-account``, ``not-allowed``; of a provider:
                ``provider-denied``, ``provider-refused``, ``provider-ended``, or why management-service does not accept
                it.
            connector_id: The connector through which it came.
        """
        verb = "throttled" if reason.startswith("throttled-") else "refused"
        self._append(
            f"token.sign-in.{verb}", _at_a_browser(user_id, client_id, origin, (), connector_id), "refused", reason
        )

    def signed_out(
        self, user_id: str, *, client_id: str | None, origin: Origin, connector_id: str | None = None
    ) -> None:
        """Record that a session ended: its user signed out, here or at the provider, or another user signed in.

        Args:
            user_id: The user of the session.
            client_id: The application that sent the browser here, if it is known.
            origin: Where the request came from.
            connector_id: The connector whose provider ended it.
        """
        self._append("token.session.ended", _at_a_browser(user_id, client_id, origin, (), connector_id))

    def signed_out_of(self, client_id: str, user_id: str, *, origin: Origin) -> None:
        """Record that an application's authorizations in a session ended, but not the session."""
        self._append("token.session.left", _at_a_browser(user_id, client_id, origin))

    def _append(
        self, key: str, request: AuditedTokenRequest, outcome: Outcome = "success", reason: str | None = None
    ) -> None:
        self._stream.append(self._entry(key, request, outcome, reason), is_outcome=request.is_taken)

    def _entry(
        self, key: str, request: AuditedTokenRequest, outcome: Outcome = "success", reason: str | None = None
    ) -> AuditEntry:
        return AuditEntry(
            id=new_id(),
            occurred_at=self._clock(),
            tenant_id=self._tenant_id,
            log=LOG,
            key=key,
            outcome=outcome,
            reason=reason,
            application_id=request.client_id,
            user_id=request.user_id,
            actor_id=request.actor_id,
            organization_id=request.organization_id,
            subject_token_id=request.subject_token_id,
            resource=request.resource,
            scope=request.scope,
            issued_token_id=request.issued_token_id,
            amr=request.amr,
            connector_id=request.connector_id,
            expires_at=request.expires_at,
            request_id=REQUEST_ID.get() or "",
            address=request.address[:_MAX_ADDRESS],
            user_agent=request.user_agent,
        )


def _at_a_browser(
    user_id: str | None,
    client_id: str | None,
    origin: Origin,
    amr: tuple[str, ...] = (),
    connector_id: str | None = None,
) -> AuditedTokenRequest:
    return AuditedTokenRequest(
        user_id=user_id,
        client_id=client_id,
        address=origin.address,
        user_agent=origin.user_agent,
        amr=amr,
        connector_id=connector_id,
    )
