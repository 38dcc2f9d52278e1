"""The one synchronous question between services: token-service asks management-service whether a password is right.

A NATS request on a subject of no stream, so that no stream ever holds a password. Only token-service may ask and only
management-service may answer.
"""

import msgspec


def password_check_subject(tenant_id: str) -> str:
    """Return the subject that is asked on."""
    return f"identity-rpc.{tenant_id}.password-check"


class PasswordQuestion(msgspec.Struct, frozen=True):
    """Whose password this is.

    Attributes:
        identifier: A user name, e-mail address or telephone number, as typed.
    """

    identifier: str
    password: str

    def __repr__(self) -> str:
        """Show neither."""
        return "PasswordQuestion(…)"


class PasswordAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who it is.

    Attributes:
        user_id: None when there is no such user, none with a password, or the password is another one: nobody can tell
            which, by the answer or by the time it takes.
        tokens_valid_after: Milliseconds: whoever signs in signs in after it, whatever another machine's clock says.
        revision: management-service's, as of the check: whoever judges this user by other records must have seen it.
        busy: Too many passwords are being checked: ask again later. Nothing was checked.
    """

    user_id: str | None = None
    tokens_valid_after: int = 0
    revision: int = 0
    busy: bool = False
