"""What can go wrong, as one small tree; every call of this library raises these and nothing of the HTTP library.

    IdentityError
    ├── ApiError              the Management API refused or answered what this library cannot read
    │   ├── InvalidInput      400
    │   ├── Unauthenticated   401
    │   ├── Forbidden         403
    │   ├── NotFound          404
    │   └── Conflict          422
    ├── OAuthError            the token endpoint refused (RFC 6749 section 5.2)
    ├── Unavailable           nobody answered in time, or the service asked to come back later
    ├── TokenInvalid          an access token was refused by the verifier
    └── SignInRequired        nobody is signed in, or not any more: send the person to ``sign_in_url``

No error holds a token, a secret or a password: not in its text or repr, nor does an error that it was raised from.
Wrong use of this library (an empty issuer, an id that is no path segment) is a ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

TokenInvalidReason = Literal[
    "too_large",
    "malformed",
    "unsupported_type",
    "unsupported_algorithm",
    "unsupported_header",
    "unknown_key",
    "bad_signature",
    "invalid_claims",
    "wrong_issuer",
    "wrong_audience",
    "expired",
    "not_yet_valid",
    "organization_only",
]


class IdentityError(Exception):
    """The root: catch it to catch everything that this library raises on purpose."""


class ApiError(IdentityError):
    """The Management API refused a request, or answered what this library cannot read.

    Attributes:
        status: HTTP status of the answer.
        code: Machine-readable code, such as ``entity.not_exists_with_id``; ``unexpected_answer`` when the answer was
            not of the form that the service promises (a proxy's page, say).
        message: One sentence in English, for people.
        data: Whatever else the service said about the refusal; empty if nothing.
        request_id: Value of ``X-Request-Id``, to be quoted to whoever runs the service; None if there was none.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        data: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.data = data or {}
        self.request_id = request_id
        super().__init__(f"{status} {code}: {message}" + (f" (request {request_id})" if request_id else ""))

    @property
    def issues(self) -> Sequence[Mapping[str, Any]]:
        """What is wrong with which member of the request: ``path`` and ``message`` each; empty if nothing was said."""
        issues = self.data.get("issues")
        return [issue for issue in issues if isinstance(issue, dict)] if isinstance(issues, list) else []


class InvalidInput(ApiError):  # noqa: N818 - the names read as the answer
    """400: the request is not of the form that the service accepts; see ``issues``."""


class Unauthenticated(ApiError):  # noqa: N818
    """401: the access token was refused, also after it had been renewed once."""


class Forbidden(ApiError):  # noqa: N818
    """403: the access token is good but does not hold the scope."""


class NotFound(ApiError):  # noqa: N818
    """404: there is no such thing, or no longer, or not under that parent."""


class Conflict(ApiError):  # noqa: N818
    """422: the request is well-formed but contradicts what is there: a duplicate, an unknown id in a relation."""


class OAuthError(IdentityError):
    """The token endpoint refused (RFC 6749 section 5.2, RFC 8693 section 2.2.2).

    Attributes:
        error: The code of the refusal, such as ``invalid_grant``; ``unexpected_answer`` when the answer was not of the
            form that the RFC demands.
        description: ``error_description``, or the empty string.
        status: HTTP status of the answer.
        retry_after: Seconds to wait before another attempt, if the service said so.
        request_id: Value of ``X-Request-Id``; None if there was none.
    """

    def __init__(
        self,
        error: str,
        description: str = "",
        *,
        status: int,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        self.error = error
        self.description = description
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id
        super().__init__(f"{error}: {description}" if description else error)


class Unavailable(IdentityError):  # noqa: N818
    """No answer in time, no connection, or a 502, 503 or 504.

    Whether a write was carried out is not known then.

    Attributes:
        retry_after: Seconds to wait before another attempt, if that is known.
        request_id: Value of ``X-Request-Id``; None if there was no answer.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, request_id: str | None = None) -> None:
        self.retry_after = retry_after
        self.request_id = request_id
        super().__init__(message)


class TokenInvalid(IdentityError):  # noqa: N818
    """An access token was refused. Never says more of the token than which rule it broke.

    Attributes:
        reason: The rule, as a word that is safe to count and to log, but not meant for whoever sent the token.
    """

    def __init__(self, reason: TokenInvalidReason) -> None:
        self.reason: TokenInvalidReason = reason
        super().__init__(reason)


class SignInRequired(IdentityError):  # noqa: N818
    """Nobody is signed in, not any more, or not in the way that is needed: send the person to ``sign_in_url``.

    Attributes:
        reason: A word: ``not_signed_in``, ``not_granted``, ``unknown_state``, or the error that the service gave.
        description: More for the developer; may be empty.
    """

    def __init__(self, reason: str, description: str = "") -> None:
        self.reason = reason
        self.description = description
        super().__init__(f"{reason}: {description}" if description else reason)
