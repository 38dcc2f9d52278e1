"""Requests that token-service makes about second factors and passkeys.

token-service has the pages and makes and takes the challenges; management-service has the factors, verifies what a
browser sends, and decides who may set one up. A NATS request on a subject that belongs to no stream. Only token-service
may send them, only management-service may reply. Requests and replies are sealed with the keys of the environment
variables, which both know.

A user's sign-in travels with a request that adds something: token-service vouches for it.
"""

from typing import Final, Literal

import msgspec

from identity_common.authentication import Authentication, FactorMethod
from identity_common.clock import Clock, now_ms
from identity_common.sealing import SealingKeys
from identity_common.wire.account_links import Visitor
from identity_common.wire.known_devices import KnownDevice
from identity_common.wire.sealed_requests import SealedRequests

REPLY_TIMEOUT_S: Final = 5.0
"""How long token-service waits for a reply."""


def factors_subject(tenant_id: str) -> str:
    """Return the subject of the requests."""
    return f"identity-rpc.{tenant_id}.factors"


class _Private(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a message; its text is hidden, because it holds secrets or personal data."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class ReadFactors(_Private, frozen=True, kw_only=True, tag="read"):
    """Return what a user has set up. The reply is ``ArmedFactors``."""

    user_id: str


class ArmedFactors(_Private, frozen=True, kw_only=True, tag="armed"):
    """Reply to ``ReadFactors``.

    Attributes:
        passkeys: Credential ids of the passkeys, base64url; the browser asks for one of them.
        has_authenticator: Whether an authenticator app is set up.
        recovery_codes: How many recovery codes are left.
        masked_email: The verified address that a code can be mailed to, shortened so that only its owner recognizes it;
            None without one, or where no mail is sent.
        needs_code: Whether setting up the first factor needs an enrolment code.
    """

    passkeys: tuple[str, ...] = ()
    has_authenticator: bool = False
    recovery_codes: int = 0
    masked_email: str | None = None
    needs_code: bool = True


class VerifyPasskey(_Private, frozen=True, kw_only=True, tag="verify-passkey"):
    """Verify an assertion of a passkey, with user verification. The reply is ``FactorAccepted``.

    Attributes:
        challenge: The challenge that token-service made, and took before asking; base64url.
        credential: JSON of the browser's ``PublicKeyCredential``, as sent (WebAuthn Level 3 section 5.1).
        user_id: The user that must own it; None: it says who signs in.
        rp_id: The relying party's id on the page, which must be management-service's; None if it is not told.
        link: As in ``PasswordQuestion``.
    """

    challenge: str
    credential: str
    user_id: str | None = None
    rp_id: str | None = None
    link: str | None = None
    visitor: Visitor = Visitor()


class VerifyCode(_Private, frozen=True, kw_only=True, tag="verify-code"):
    """Verify a code of the authenticator app, or a recovery code, which spends it. The reply is ``FactorAccepted``.

    Attributes:
        code: As typed.
        devices: The users that the browser is known to: their attempts are counted apart.
    """

    user_id: str
    code: str
    devices: tuple[KnownDevice, ...] = ()
    language: str | None = None
    application_id: str | None = None
    visitor: Visitor = Visitor()


class FactorAccepted(_Private, frozen=True, kw_only=True, tag="accepted"):
    """Reply to ``VerifyPasskey`` and ``VerifyCode``.

    Attributes:
        method: What was accepted.
        tokens_valid_after: The user's, milliseconds since the epoch.
        revision: Management's revision that the user's records must include.
        recovery_codes: How many recovery codes are left, if one was spent.
    """

    user_id: str
    method: FactorMethod
    tokens_valid_after: int
    revision: int
    recovery_codes: int | None = None


class SendEnrolmentCode(_Private, frozen=True, kw_only=True, tag="send-code"):
    """Mail a code to the verified address of a user who sets up the first factor. The reply is ``CodeSent``."""

    user_id: str
    language: str | None = None
    application_id: str | None = None
    visitor: Visitor = Visitor()


class CodeSent(_Private, frozen=True, kw_only=True, tag="code-sent"):
    """Reply to ``SendEnrolmentCode``.

    Attributes:
        minutes: How long the code is valid.
    """

    minutes: int


class BeginPasskey(_Private, frozen=True, kw_only=True, tag="begin-passkey"):
    """Return what the browser needs to create a passkey, but for the challenge. The reply is ``PasskeyBegun``.

    Attributes:
        rp_id: See ``VerifyPasskey``.
    """

    user_id: str
    rp_id: str | None = None


class PasskeyBegun(_Private, frozen=True, kw_only=True, tag="passkey-begun"):
    """Reply to ``BeginPasskey``.

    Attributes:
        user_handle: Base64url; not the user's id, since authenticators keep it (WebAuthn Level 3 section 14.6.1).
        name: What the user signs in with.
        display_name: The user's name.
        existing: Credential ids of the passkeys that the user has, base64url.
    """

    user_handle: str
    name: str
    display_name: str
    existing: tuple[str, ...] = ()


class AddPasskey(_Private, frozen=True, kw_only=True, tag="add-passkey"):
    """Store a new passkey. The reply is ``FactorAdded``.

    Attributes:
        challenge: See ``VerifyPasskey``.
        credential: JSON of the browser's ``PublicKeyCredential``, as sent.
        name: How the user calls it; empty for the name of its make, or none.
        signed_in: The user's sign-in at this browser.
        code: The enrolment code as typed, for the first factor.
    """

    user_id: str
    challenge: str
    credential: str
    signed_in: Authentication
    name: str = ""
    code: str = ""
    language: str | None = None
    application_id: str | None = None
    visitor: Visitor = Visitor()


class BeginAuthenticator(_Private, frozen=True, kw_only=True, tag="begin-authenticator"):
    """Return a new secret for an authenticator app; nothing is stored. The reply is ``AuthenticatorBegun``."""

    user_id: str


class AuthenticatorBegun(_Private, frozen=True, kw_only=True, tag="authenticator-begun"):
    """Reply to ``BeginAuthenticator``.

    Attributes:
        secret: Base32, for typing.
        picture: The QR code of the key URI, as an SVG image.
        sealed: The secret, sealed for this user and some minutes; the form sends it back.
    """

    secret: str
    picture: str
    sealed: str


class AddAuthenticator(_Private, frozen=True, kw_only=True, tag="add-authenticator"):
    """Store the secret of an authenticator app, in place of an earlier one. The reply is ``FactorAdded``.

    Attributes:
        sealed: From ``AuthenticatorBegun``.
        current: The code that the app shows, as typed.
        signed_in: The user's sign-in at this browser.
        code: The enrolment code as typed, for the first factor.
    """

    user_id: str
    sealed: str
    current: str
    signed_in: Authentication
    code: str = ""
    language: str | None = None
    application_id: str | None = None
    visitor: Visitor = Visitor()


class NewRecoveryCodes(_Private, frozen=True, kw_only=True, tag="new-recovery-codes"):
    """Make new recovery codes in place of the earlier ones. The reply is ``RecoveryCodes``.

    Attributes:
        signed_in: The user's sign-in at this browser.
    """

    user_id: str
    signed_in: Authentication
    language: str | None = None
    application_id: str | None = None
    visitor: Visitor = Visitor()


class RecoveryCodes(_Private, frozen=True, kw_only=True, tag="recovery-codes"):
    """Reply to ``NewRecoveryCodes``: the codes, which are shown this once."""

    codes: tuple[str, ...]


class FactorAdded(_Private, frozen=True, kw_only=True, tag="added"):
    """Reply to ``AddPasskey`` and ``AddAuthenticator``. What was set up counts as used in this sign-in.

    Attributes:
        method: What was set up.
        revision: Management's revision that the user's records must include.
        recovery_codes: With the first factor, ten recovery codes, which are shown this once.
    """

    method: FactorMethod
    revision: int
    recovery_codes: tuple[str, ...] = ()


RefusalReason = Literal[
    "not-accepted",
    "wrong-code",
    "throttled",
    "wrong-enrolment-code",
    "enrolment-code-needed",
    "sign-in-again",
    "off",
    "no-address",
    "too-many",
]
"""Why a request was refused: the browser's answer is not that of an acceptable passkey, or the user may not sign in; a
code is wrong, used or too old; there were too many attempts; the enrolment code is wrong, or missing; the sign-in is
too old or too weak for what it changes; the tenant's policy is off; the user has no verified address, or no mail is
sent; the user has as many passkeys as one may have."""


class Refused(_Private, frozen=True, kw_only=True, tag="refused"):
    """Reply to any request that nothing was done about.

    Attributes:
        retry_after_s: With ``throttled``: seconds until another attempt is judged.
    """

    reason: RefusalReason
    retry_after_s: int = 0


class Unavailable(_Private, frozen=True, kw_only=True, tag="unavailable"):
    """Reply to any request: a store does not answer.

    Attributes:
        retry_after_s: Seconds until another attempt makes sense.
    """

    retry_after_s: int = 1


Question = (
    ReadFactors
    | VerifyPasskey
    | VerifyCode
    | SendEnrolmentCode
    | BeginPasskey
    | AddPasskey
    | BeginAuthenticator
    | AddAuthenticator
    | NewRecoveryCodes
)
Answer = (
    ArmedFactors
    | FactorAccepted
    | CodeSent
    | PasskeyBegun
    | AuthenticatorBegun
    | RecoveryCodes
    | FactorAdded
    | Refused
    | Unavailable
)

_questions: Final[msgspec.json.Decoder[Question]] = msgspec.json.Decoder(Question)
_answers: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


class FactorRequests(SealedRequests[Question, Answer]):
    """Seals and opens requests and replies.

    Args:
        keys: Of the environment variables.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(self, keys: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        super().__init__(keys, factors_subject(tenant_id), _questions, _answers, clock=clock)
