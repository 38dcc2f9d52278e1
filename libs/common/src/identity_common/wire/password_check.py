"""The request in which token-service asks management-service to check a password.

A NATS request on a subject that belongs to no stream, so that no password is ever stored. Only token-service may send
it, only management-service may reply.
"""

import msgspec

from identity_common.wire.factors import ArmedFactors
from identity_common.wire.known_devices import KnownDevice


def password_check_subject(tenant_id: str) -> str:
    """Return the subject of the request."""
    return f"identity-rpc.{tenant_id}.password-check"


class PasswordQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """The credentials to check.

    Attributes:
        identifier: User name, e-mail address or phone number, as typed.
        password: The password, as typed.
        devices: The identities of the browser, one for each user who has signed in there.
        timeout_ms: How long the caller waits for the answer, counted from the arrival of the request; after that, the
            password is not checked.
        address: Address of the browser, for the log of the replying service, which knows the account.
        link: That of ``AccountFound``, where the sign-in is to confirm it: the account's password counts for that,
            although its owner signs in at a provider from then on.
    """

    identifier: str
    password: str
    devices: tuple[KnownDevice, ...] = ()
    timeout_ms: int = msgspec.field(name="patience_ms", default=4000)
    address: str = ""
    link: str | None = None

    def __repr__(self) -> str:
        """Hide the identifier and the password."""
        return "PasswordQuestion(…)"


class PasswordAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of the check.

    Attributes:
        user_id: The user; None for an unknown user, one without a password, or a wrong password. Neither the reply nor
            its duration reveals which, except for a digest that another system made (docs/decisions/0058).
        tokens_valid_after: Milliseconds; the sign-in is dated after it, whatever the clock of another machine says.
        revision: Management revision of the check; the directory must have seen it before it judges the user.
        busy: Whether nothing was checked, because too many checks are waiting or a store does not answer; retry later.
        retry_after_s: Seconds until another attempt makes sense; if not busy, the account has had too many attempts.
        factors: What the user has set up, so that the page which asks for it next needs no question; None without a
            second factor.
    """

    user_id: str | None = None
    tokens_valid_after: int = 0
    revision: int = 0
    busy: bool = False
    retry_after_s: int = 0
    factors: ArmedFactors | None = None
