"""Verifies what a browser sends when a passkey is created or used (WebAuthn Level 3 section 7)."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection
from json import JSONDecodeError
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final, TypeVar

import msgspec

from identity_common.relying_party import RelyingParty
from identity_common.telemetry.logs import get_logger
from management_service.factors.rules import FactorRefusedError

_log = get_logger(__name__)

T = TypeVar("T")

_MAX_CHARACTERS: Final = 16_384
_MAX_CREDENTIAL_ID: Final = 1023  # WebAuthn Level 3 section 7.1
_MAX_PUBLIC_KEY: Final = 2048
_FORMATS: Final = ("none", "packed")  # with ``none`` wanted, browsers keep a self attestation, which is packed


class NewCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey that a browser has created.

    Attributes:
        public_key: COSE key (RFC 9052 section 7).
        sign_count: The authenticator's counter; 0 of one without a counter.
        aaguid: Its make: a UUID, of zeros where the browser hides it.
        transports: How browsers reach it.
        is_backup_eligible: Whether it may be synced.
        is_backed_up: Whether it is.
    """

    credential_id: bytes
    public_key: bytes
    sign_count: int
    aaguid: str
    transports: list[str]
    is_backup_eligible: bool
    is_backed_up: bool


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """What a passkey has signed; not verified yet.

    Attributes:
        credential_id: The passkey that it claims to be from.
        user_handle: The user that the authenticator claims; None: it does not say.
    """

    credential_id: bytes
    user_handle: bytes | None
    parsed: Any


class Verified(msgspec.Struct, frozen=True):
    """What a verified assertion says about its passkey."""

    sign_count: int
    is_backup_eligible: bool
    is_backed_up: bool


class Ceremonies:
    """Verifies for one relying party. Its methods raise ``FactorRefusedError``; none of them touches a store.

    The library is imported at first use: it takes a seventh of a second.

    Args:
        relying_party: The relying party; None: passkeys are off.
        aaguids: The makes that are accepted; empty for all.
    """

    def __init__(self, relying_party: RelyingParty | None, *, aaguids: Collection[str] = ()) -> None:
        self._relying_party = relying_party
        self._aaguids = frozenset(each.lower() for each in aaguids)

    @property
    def are_on(self) -> bool:
        """Whether there can be passkeys here."""
        return self._relying_party is not None

    def require_on(self) -> RelyingParty:
        """Return the relying party."""
        if self._relying_party is None:
            raise FactorRefusedError("off")
        return self._relying_party

    def require_same(self, rp_id: str | None) -> None:
        """Refuse a page of another relying party: no passkey of it could ever be verified here."""
        own = self.require_on().id
        if rp_id not in {None, own}:
            reason = f"WEBAUTHN_RP_ID differs: passkeys belong to {own} here, and to {rp_id} in token-service"
            _log.error("passkeys.rp-id-differs", reason=reason)
            raise FactorRefusedError("off")

    def created(self, credential: str, challenge: str) -> NewCredential:
        """Return a passkey that was created with this challenge and the user's verification.

        The attestation says nothing about who made the authenticator: none is asked for.
        """
        relying_party = self.require_on()
        made = _judged(lambda: _created(credential, challenge, relying_party))
        if self._aaguids and made.aaguid not in self._aaguids:
            raise FactorRefusedError("not-accepted")
        return made

    def parse(self, credential: str) -> Assertion:
        """Return what a browser has sent when a passkey was used."""
        self.require_on()
        return _judged(lambda: _parse(credential))

    def verify(self, assertion: Assertion, challenge: str, *, public_key: bytes) -> Verified:
        """Verify an assertion with the passkey's key, and the user's verification; its counter is not judged."""
        relying_party = self.require_on()
        return _judged(lambda: _verify(assertion, challenge, public_key, relying_party))


def base64url(value: bytes) -> str:
    """Return an id or handle as browsers are told it."""
    return urlsafe_b64encode(value).decode().rstrip("=")


class _UnacceptableError(Exception):
    """The browser's answer is well-formed, and not acceptable."""


def _judged(verify: Callable[[], T]) -> T:
    """Run a verification; whatever hostile input makes of it, it is not accepted."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415
    from webauthn.helpers.exceptions import WebAuthnException  # noqa: PLC0415

    try:
        return verify()
    except (
        *(_UnacceptableError, WebAuthnException, InvalidSignature, UnsupportedAlgorithm, JSONDecodeError, StructError),
        *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    ) as error:
        raise FactorRefusedError("not-accepted") from error


def _created(credential: str, challenge: str, relying_party: RelyingParty) -> NewCredential:
    from webauthn import base64url_to_bytes, verify_registration_response  # noqa: PLC0415
    from webauthn.helpers import parse_attestation_object, parse_registration_credential_json  # noqa: PLC0415

    _require(len(credential) <= _MAX_CHARACTERS)
    parsed = parse_registration_credential_json(credential)
    _require_same_origin(parsed.response.client_data_json)
    # Before the library verifies it: it would also follow the certificates of other formats.
    attested = parse_attestation_object(parsed.response.attestation_object)
    _require(attested.fmt in _FORMATS and not attested.att_stmt.x5c)
    made = verify_registration_response(
        credential=parsed,
        expected_challenge=base64url_to_bytes(challenge),
        expected_rp_id=relying_party.id,
        expected_origin=relying_party.origin,
        require_user_verification=True,
    )
    _require(len(made.credential_id) <= _MAX_CREDENTIAL_ID and len(made.credential_public_key) <= _MAX_PUBLIC_KEY)
    return NewCredential(
        credential_id=made.credential_id,
        public_key=made.credential_public_key,
        sign_count=made.sign_count,
        aaguid=made.aaguid,
        transports=sorted({each.value for each in parsed.response.transports or ()}),
        is_backup_eligible=attested.auth_data.flags.be,
        is_backed_up=made.credential_backed_up,
    )


def _parse(credential: str) -> Assertion:
    from webauthn.helpers import parse_authentication_credential_json  # noqa: PLC0415

    _require(len(credential) <= _MAX_CHARACTERS)
    parsed = parse_authentication_credential_json(credential)
    _require_same_origin(parsed.response.client_data_json)
    return Assertion(credential_id=parsed.raw_id, user_handle=parsed.response.user_handle, parsed=parsed)


def _verify(assertion: Assertion, challenge: str, public_key: bytes, relying_party: RelyingParty) -> Verified:
    from webauthn import base64url_to_bytes, verify_authentication_response  # noqa: PLC0415
    from webauthn.helpers.structs import CredentialDeviceType  # noqa: PLC0415

    verified = verify_authentication_response(
        credential=assertion.parsed,
        expected_challenge=base64url_to_bytes(challenge),
        expected_rp_id=relying_party.id,
        expected_origin=relying_party.origin,
        credential_public_key=public_key,
        credential_current_sign_count=0,
        require_user_verification=True,
    )
    is_eligible = verified.credential_device_type is CredentialDeviceType.MULTI_DEVICE
    return Verified(verified.new_sign_count, is_eligible, verified.credential_backed_up)


def _require_same_origin(client_data: bytes) -> None:
    """Refuse an answer that was given in a frame of another site's page (WebAuthn Level 3 section 5.8.1)."""
    from webauthn.helpers import parse_client_data_json  # noqa: PLC0415

    _require(not parse_client_data_json(client_data).cross_origin)


def _require(is_acceptable: bool) -> None:
    if not is_acceptable:
        raise _UnacceptableError
