"""Impersonations and the subject tokens that begin them."""

from __future__ import annotations

import msgspec

from stead.models.audit import AuditContext, AuditEntry
from stead.models.versions import Versioned


class SubjectToken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A one-time token that represents a user until it is exchanged. Its repr hides the token.

    Attributes:
        token: Secret; hand it only to the application that exchanges it.
        expires_in: Lifetime in seconds.
        impersonation_id: Id of the impersonation that begins with this token; not a secret. Empty if the
            service did not send it.
    """

    token: str = msgspec.field(name="subjectToken")
    expires_in: int
    impersonation_id: str = ""

    def __repr__(self) -> str:
        return f"SubjectToken(token=…, expires_in={self.expires_in}, impersonation_id={self.impersonation_id!r})"


class Impersonation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An impersonation, from the subject token on.

    Attributes:
        id: Public id of the subject token.
        user_id: The subject.
        actor_id: The user who acts for the subject; None before the exchange, or without an actor token.
        client_id: The application that exchanged the subject token.
        organization_id: The organization that the access token was requested for.
        resource: The resource that the access token was requested for.
        scope: The scopes that were granted, separated by spaces.
        context: Reason and ticket, as given by the requesting application.
        issued_to: The application that requested the subject token.
        requested_by: The user on whose behalf the application requested it; None if it acted for itself.
        created_at: Milliseconds since the epoch, UTC.
        exchanged_at: When the subject token was spent, milliseconds since the epoch.
        expires_at: Expiry of the access token, or of the subject token before the exchange; milliseconds since the
            epoch.
        ended_at: When it was ended before its expiry, milliseconds since the epoch.
        ended_by: The user or, without one, the application that ended it, or did what ended it.
        reason: Why it ended: ``ended`` (by its id); ``within`` (an enclosing impersonation was ended); ``all``,
            ``user``, ``actor``, ``client``, ``organization`` (all impersonations were ended, or all of this party);
            ``user_suspended``, ``actor_password``, ``client_exchange_off``, ``resource_deleted``, ``member_removed``
            and the like (a change of a party); or the error of an exchange that was refused after the subject token
            was spent.
        end_reason: Why, in the words of the request that ended it by its id; None in lists.
        events: Its entries in the audit trail, oldest first; empty in lists.
    """

    id: str
    user_id: str
    actor_id: str | None = None
    client_id: str | None = None
    organization_id: str | None = None
    resource: str | None = None
    scope: str | None = None
    context: AuditContext = AuditContext()
    issued_to: str = ""
    requested_by: str | None = None
    created_at: int
    exchanged_at: int | None = None
    expires_at: int
    ended_at: int | None = None
    ended_by: str | None = None
    reason: str | None = None
    end_reason: str | None = None
    events: tuple[AuditEntry, ...] = ()


class ImpersonationPolicy(Versioned, frozen=True, kw_only=True, rename="camel"):
    """What impersonations need, and which users they exclude.

    Attributes:
        require_actor: Whether an exchange without an actor token is refused.
        require_context: Names of members that the context of every subject token must have as text.
        excluded_roles: Sorted ids of API roles whose holders cannot be impersonated.
        actor_max_age_s: How long ago an actor may have signed in, seconds; None for any time.
        actor_acr: How strongly an actor must have signed in: ``mfa``, with a second factor or a passkey; ``phr``, with
            a passkey; None for any sign-in.
    """

    require_actor: bool = False
    require_context: tuple[str, ...] = ()
    excluded_roles: tuple[str, ...] = ()
    actor_max_age_s: int | None = None
    actor_acr: str | None = None
