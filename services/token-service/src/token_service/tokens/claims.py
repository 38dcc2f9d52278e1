"""The claims of an access token and the actor chain. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from identity_common.authentication import Authentication
from identity_common.clock import whole_second
from stead.verify.acr import acr_of
from stead.verify.impersonations import actors_of

MAX_ACTOR_DEPTH: Final = 4


class Actor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ``act`` claim (RFC 8693 section 4.1): who acts, and in ``act`` who acted before.

    Attributes:
        sub: The actor's user id.
    """

    sub: str
    act: Actor | None = None


class SignInClaims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What tokens say about a sign-in (RFC 9068 section 2.2.1, OpenID Connect Core 1.0 section 2).

    Attributes:
        auth_time: When the first factor was used, seconds since the epoch; None if a connector's provider does not say.
        amr: The methods (RFC 8176), sorted.
        acr: How strong it was.
    """

    auth_time: int | None = None
    amr: tuple[str, ...]
    acr: str

    @classmethod
    def of(cls, signed_in: Authentication, *, urn_namespace: str) -> SignInClaims:
        """Return the claims about a sign-in."""
        return cls(
            auth_time=None if signed_in.auth_time is None else signed_in.auth_time // 1000,
            amr=signed_in.amr,
            acr=acr_of(signed_in.level, urn_namespace=urn_namespace),
        )


class AccessTokenClaims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The claims of an access token (RFC 9068 section 2.2).

    Attributes:
        iat: Seconds since the epoch.
        auth_time: As in ``SignInClaims`` (section 2.2.1), like the next two; only in tokens that descend from an
            authorization: in those issued by exchange, the subject did not sign in.
        iat_ms: Milliseconds since the epoch; only in tokens issued in the second of a change that ended earlier ones.
        exp: Seconds since the epoch.
        jti: ``<authorization id>.<random>`` in tokens that descend from an authorization;
            ``<impersonation ids>.<random>`` in those issued by exchange, at most ``MAX_ACTOR_DEPTH`` ancestors' ids
            before the own one.
        scope: Space-separated scope tokens; may be empty.
        organization_id: The organization to which a token for a resource is restricted.
        gty: The grant type, in tokens issued by exchange.
        act: The actor, if an actor token was presented.
        actor_authentication: How the user who presented the actor token had signed in. In a chain of actors that is the
            first of them: the others were impersonated.
        pv: The revisions by source that the scopes were computed from, in tokens whose scopes come from roles.
    """

    iss: str
    sub: str
    aud: str
    client_id: str
    iat: int
    exp: int
    jti: str
    scope: str
    organization_id: str | None = None
    gty: str | None = None
    act: Actor | None = None
    pv: Mapping[str, int] | None = None
    iat_ms: int | None = None
    auth_time: int | None = None
    amr: tuple[str, ...] | None = None
    acr: str | None = None
    actor_authentication: SignInClaims | None = None


def exact_issue_ms(*, now: int, tokens_valid_after: int) -> int | None:
    """Return ``iat_ms``; None if ``iat``, the whole seconds of now, is not before tokensValidAfter.

    ``iat`` has whole seconds, tokensValidAfter milliseconds: by its ``iat`` alone, a token issued in the second of a
    password change would look older than the change. See docs/decisions/0004.

    Args:
        now: Milliseconds since the epoch.
        tokens_valid_after: Milliseconds since the epoch; by the clock of another machine, so maybe later than now.
    """
    return None if tokens_valid_after <= whole_second(now) else max(now, tokens_valid_after)


def is_outdated(*, issued_at_ms: int, tokens_valid_after: int) -> bool:
    """Return whether ``issued_at_ms`` is before ``tokens_valid_after``; both are milliseconds since the epoch."""
    return issued_at_ms < tokens_valid_after


def organization_audience(urn_namespace: str, organization_id: str) -> str:
    """Return the ``aud`` of an organization's tokens."""
    return f"urn:{urn_namespace}:organization:{organization_id}"


def actor_chain(subject: str, earlier: Mapping[str, Any] | None) -> Actor | None:
    """Return the ``act`` claim for an actor token: its subject outermost, its own ``act`` nested inside.

    Source:
        RFC 8693 section 4.1 (the outermost claim is the current actor, nested ones are prior actors).

    Returns:
        The chain, or none if it is deeper than four actors or malformed.
    """
    prior = actors_of(earlier)
    if prior is None or len(prior) >= MAX_ACTOR_DEPTH:
        return None
    chain: Actor | None = None
    for sub in reversed([subject, *prior]):
        chain = Actor(sub=sub, act=chain)
    return chain
