"""When a factor may be set up, and what a passkey is called."""

from collections.abc import Sequence
from typing import Final

from identity_common.authentication import Authentication, FactorKind
from identity_common.names import canonical_name, name_problem
from identity_common.wire.events import SecondFactorMode
from identity_common.wire.factors import RefusalReason
from stead.verify.acr import satisfies

MAX_PASSKEYS: Final = 20
"""Passkeys of one user: a browser is told all of them."""
FRESH_S: Final = 600
"""How long ago a user may have signed in to change how they sign in."""

_MS: Final = 1000
_MAKES: Final = {
    "adce0002-35bc-c60a-648b-0b25f1f05503": "Chrome on Mac",
    "b84e4048-15dc-4dd0-8640-f4f60813c8af": "NordPass",
    "bada5566-a7aa-401f-bd96-45619a55120d": "1Password",
    "d548826e-79b4-db40-a3d8-11116f7e8349": "Bitwarden",
    "dd4ec289-e01d-41c9-bb89-70fa845d4bf2": "iCloud Keychain",
    "ea9b8d66-4d01-1d21-3ce4-b6b48cb575d4": "Google Password Manager",
    "fbfc3007-154e-4ecc-8c0b-6e020557d7bd": "iCloud Keychain",
    "08987058-cadc-4b81-b6e1-30de50dcbe96": "Windows Hello",
    "6028b017-b1d4-4c02-b4b3-afcdafc96bb2": "Windows Hello",
    "9ddd1817-af5a-4672-a2b9-3e3dd95000a9": "Windows Hello",
    "531126d6-e717-415c-9320-3d9aa6981239": "Dashlane",
    "53414d53-554e-4700-0000-000000000000": "Samsung Pass",
    "fdb141b2-5d84-443e-8a35-4698c205a502": "KeePassXC",
}
"""Names of common makes, by AAGUID."""


class FactorRefusedError(Exception):
    """A factor is not accepted, or may not be set up.

    Attributes:
        reason: What token-service is told.
        retry_after_s: With ``throttled``: seconds until another attempt is judged.
    """

    def __init__(self, reason: RefusalReason, *, retry_after_s: int = 0) -> None:
        super().__init__(reason)
        self.reason: RefusalReason = reason
        self.retry_after_s = retry_after_s


def enrolment_refusal(
    mode: SecondFactorMode, second_factors: Sequence[FactorKind], signed_in: Authentication, *, now: int
) -> RefusalReason | None:
    """Return why a user may not set up a factor; None if they may, with an enrolment code for the first one.

    Who has a factor proves it again: a stolen session adds none.

    Args:
        mode: The tenant's policy.
        second_factors: What the user has set up.
        signed_in: The user's sign-in.
        now: Milliseconds since the epoch.
    """
    if mode == "off":
        return "off"
    if now - signed_in.latest > FRESH_S * _MS:
        return "sign-in-again"
    if second_factors and not satisfies(signed_in.level, "mfa"):
        return "sign-in-again"
    return None


def has_gone_back(stored: int, sign_count: int) -> bool:
    """Return whether a passkey's counter shows that there is a copy of it; synced ones have none, and say 0.

    Source:
        WebAuthn Level 3 section 7.2 (the step about ``signCount``).
    """
    return (stored, sign_count) != (0, 0) and sign_count <= stored


def passkey_name(given: str, aaguid: str) -> str:
    """Return what a new passkey is called: as given, else by its make; empty if neither has a name."""
    name = canonical_name(given)
    return _MAKES.get(aaguid, "") if name_problem(name) is not None else name
