"""The requests that token-service makes while a person signs in at a connector's provider.

token-service has the browser, and makes ``state``, ``nonce`` and the code verifier. management-service has the
connector's secret, makes every call to the provider, reads its tokens, and knows whose identity it is. The request is
sealed, on a subject that belongs to no stream. Only token-service may send it, only management-service may reply.

Source:
    OpenID Connect Core 1.0 section 3.1 (the code flow), RFC 7636 (PKCE), RFC 9207 (``iss`` of the answer).
"""

from typing import Final, Literal

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.sealing import SealingKeys
from identity_common.wire.account_links import Visitor
from identity_common.wire.sealed_requests import SealedRequests
from stead.verify.acr import Level

PROVIDER_TIMEOUT_S: Final = 8.0
"""How long token-service waits for the reply: the provider has 5 s for its own."""

NotAcceptedReason = Literal[
    "connector-closed",  # it does not exist, is disabled, or has no client
    "provider-refused",  # the provider refused the code, or its answer has another issuer
    "token-not-acceptable",  # signature, audience, nonce, age
    "signed-in-too-long-ago",  # ``max_age``, by the provider's ``auth_time``
    "no-identity",  # the claim that says who it is, is missing or not usable
    "not-allowed",  # a required claim is missing, or no user is created: another domain, or the address is taken
    "link-expired",  # the account was changed, or the identity given away, meanwhile
    "another-account",  # another account was signed in to than the one that the link is about
]


def provider_sign_in_subject(tenant_id: str) -> str:
    """Return the subject of the requests."""
    return f"identity-rpc.{tenant_id}.provider-sign-in"


class _Private(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A part of a message; its text is hidden, because it holds secrets or personal data."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class BeginAtProvider(_Private, frozen=True, kw_only=True, tag="begin"):
    """Return where a browser is sent to sign in. The reply is ``ProviderAddress``.

    Attributes:
        redirect_uri: The connector's own callback address here.
        code_challenge: Of the code verifier, by S256.
        login_hint: Who is expected to sign in, if that is known.
        max_age_s: How long ago the person may have signed in at the provider.
        must_sign_in: Whether the provider must ask again (``prompt=login``).
        level: The level that is wanted; asked for with ``acr_values`` if the connector maps some.
        ui_locales: As requested by the application.
    """

    connector_id: str
    redirect_uri: str
    state: str
    nonce: str
    code_challenge: str
    login_hint: str | None = None
    max_age_s: int | None = None
    must_sign_in: bool = False
    level: Level = "password"
    ui_locales: str | None = None


class ProviderAddress(_Private, frozen=True, kw_only=True, tag="address"):
    """Reply to ``BeginAtProvider``."""

    url: str


class FinishAtProvider(_Private, frozen=True, kw_only=True, tag="finish"):
    """Redeem the code with which the provider sent a browser back. The reply is ``ProviderPerson`` or ``AccountFound``.

    Attributes:
        redirect_uri: As in ``BeginAtProvider``.
        code: As received.
        issuer: ``iss`` of the answer, as received (RFC 9207).
        begun_at: When the browser was sent away, milliseconds since the epoch.
        max_age_s: As in ``BeginAtProvider``; 0 where the provider had to ask again.
        language: Of a mail that follows.
        application_id: The application that the person signs in to.
    """

    connector_id: str
    redirect_uri: str
    code: str
    code_verifier: str
    nonce: str
    begun_at: int
    issuer: str | None = None
    max_age_s: int | None = None
    language: str | None = None
    application_id: str | None = None
    visitor: Visitor = Visitor()


class ProviderPerson(_Private, frozen=True, kw_only=True, tag="person"):
    """The person has signed in, and has a user here.

    Attributes:
        revision: Management's revision that includes this sign-in: the user, its identity and its groups.
        tokens_valid_after: The user's, milliseconds since the epoch.
        level: How strong the sign-in was, by what the connector is trusted for.
        amr: The methods that the provider names, if it is trusted to say how people have signed in.
        auth_time: When the person signed in, seconds since the epoch; None if the provider does not say.
        provider_session_id: ``sid``, by which the provider ends it (Back-Channel Logout 1.0).
        subject: Stands for the person at the provider, also in ``EndedAtProvider`` and ``IdentityState``; a hash.
        is_new: Whether the user was created, or the identity linked, just now.
    """

    user_id: str
    revision: int
    tokens_valid_after: int
    level: Level = "password"
    amr: tuple[str, ...] = ()
    auth_time: int | None = None
    provider_session_id: str | None = None
    subject: str | None = None
    is_new: bool = False


class AccountFound(_Private, frozen=True, kw_only=True, tag="account-found"):
    """The person has no user yet, but the verified address has an account: its owner must sign in to it once.

    Attributes:
        link: What ``LinkIdentity`` needs; opaque, valid for 15 minutes.
        identifier: What the account signs in with.
    """

    link: str
    identifier: str


class LinkIdentity(_Private, frozen=True, kw_only=True, tag="link"):
    """Link the identity of ``AccountFound`` to the account whose owner has signed in. The reply is ``ProviderPerson``.

    Attributes:
        user_id: Who has signed in at the same browser, for the same request.
    """

    link: str
    user_id: str
    language: str | None = None
    application_id: str | None = None
    visitor: Visitor = Visitor()


class ReadLogoutToken(_Private, frozen=True, kw_only=True, tag="logout"):
    """Verify a logout token of a connector's provider. The reply is ``EndedAtProvider``.

    Source:
        OpenID Connect Back-Channel Logout 1.0 section 2.6.
    """

    connector_id: str
    logout_token: str


class EndedAtProvider(_Private, frozen=True, kw_only=True, tag="ended"):
    """Whose sign-ins have ended.

    Attributes:
        user_id: All of this user's, through the connector; None if the token names a session alone, or a person who has
            no user.
        provider_session_id: Those of this session; None for all of the user's.
        subject: Of the person whom the token names, who may get a user just now.
        before: Only sign-ins before this time, milliseconds since the epoch. The token was read before: the provider
            may repeat what failed, but ends nothing that began since.
    """

    user_id: str | None = None
    provider_session_id: str | None = None
    subject: str | None = None
    before: int | None = None


class NotAccepted(msgspec.Struct, frozen=True, tag="not-accepted"):
    """The person is not signed in, or the logout token is not valid.

    Attributes:
        reason: What went wrong.
        detail: More, for the log alone.
    """

    reason: NotAcceptedReason
    detail: str = ""


class ProviderUnavailable(msgspec.Struct, frozen=True, omit_defaults=True, tag="unavailable"):
    """It cannot be judged now: the database or the provider does not answer.

    Attributes:
        retry_after_s: Seconds until it may be possible.
    """

    retry_after_s: int = 1


ProviderQuestion = BeginAtProvider | FinishAtProvider | LinkIdentity | ReadLogoutToken
ProviderAnswer = ProviderAddress | ProviderPerson | AccountFound | EndedAtProvider | NotAccepted | ProviderUnavailable


class ProviderSignInRequests(SealedRequests[ProviderQuestion, ProviderAnswer]):
    """Seals and opens the requests of one tenant.

    Args:
        keys: The environment variable keys, which both services have.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(self, keys: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        super().__init__(
            keys,
            provider_sign_in_subject(tenant_id),
            msgspec.json.Decoder(ProviderQuestion),
            msgspec.json.Decoder(ProviderAnswer),
            clock=clock,
        )
