"""The exceptions of this library. No call raises an exception of the HTTP library.

    IdentityError
    ├── ApiError              the Management API refused the request, or its response is unreadable
    │   ├── InvalidInput      400
    │   ├── Unauthenticated   401
    │   │   └── RecentSignInRequired  … until the person signs in again
    │   ├── Forbidden         403
    │   ├── NotFound          404
    │   ├── VersionMismatch   412
    │   ├── Conflict          422
    │   └── TooManyAttempts   429
    ├── OAuthError            the token endpoint refused the request (RFC 6749 section 5.2)
    ├── Unavailable           no answer in time, or the service asked for a later retry
    ├── TokenInvalid          a verifier rejected a token
    │   └── StepUpRequired    … until its user signs in again, or with a second factor
    ├── CallerUnknown         a request lacks a header of the verifier at the proxy
    └── SignInRequired        no user is signed in: redirect the browser to ``sign_in_url``

::

    try:
        management.users.create(username="ada")
    except Conflict as error:
        print(error.code)  # user.username_already_in_use
    except InvalidInput as error:
        print(error)  # 400 guard.invalid_input: The request is invalid. … type: must be one of Native, SPA, …
    except Unavailable as error:
        retry(after=error.retry_after)

No error contains a token, a secret or a password: neither its text, its repr, nor the errors that caused it. Incorrect
use of the library, such as an empty issuer, is a ``ValueError``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

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
    "ended_token",
    "ended_key",
    "ended_user",
    "ended_client",
    "ended_exchange",
    "ended_resource",
    "ended_organization",
    "ended_member",
    "stale_permissions",
    "insufficient_user_authentication",
]


_MAX_SHOWN_ISSUES: Final = 10
_INSUFFICIENT: Final = "insufficient_user_authentication"
_ACR_VALUES: Final = re.compile(r'acr_values="([^"]*)"')
_MAX_AGE: Final = re.compile(r'max_age="?([0-9]{1,9})')


class IdentityError(Exception):
    """The base class: catch it to catch every error that this library raises."""


class ApiError(IdentityError):
    """The Management API refused the request, or its response is unreadable. The text names the invalid members.

    Attributes:
        status: The HTTP status.
        code: Machine-readable, such as ``entity.not_exists_with_id``; ``unexpected_answer`` if the response does
            not come from the service, but for example from a proxy.
        message: One sentence in English, for humans.
        data: Details of the refusal; may be empty.
        request_id: The ``X-Request-Id`` to quote to the operator of the service; None if absent.
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
        shown = [f"{status} {code}: {message}", *_shown_issues(self.issues)]
        super().__init__("; ".join(shown) + (f" (request {request_id})" if request_id else ""))

    @property
    def issues(self) -> Sequence[Mapping[str, Any]]:
        """The invalid members of the request, each with ``path`` and ``message``; may be empty.

        A path leads to a nested member: ``oidcClientMetadata.redirectUris[0]``.
        """
        issues = self.data.get("issues")
        return [issue for issue in issues if isinstance(issue, dict)] if isinstance(issues, list) else []


def _shown_issues(issues: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the text of each issue; neither path nor message contains a value."""
    for issue in issues[:_MAX_SHOWN_ISSUES]:
        yield ": ".join(str(part) for part in (issue.get("path"), issue.get("message")) if part)
    if len(issues) > _MAX_SHOWN_ISSUES:
        yield f"and {len(issues) - _MAX_SHOWN_ISSUES} more"


class InvalidInput(ApiError):  # noqa: N818 - the names read as the answer
    """400: the request is malformed; ``issues`` names the invalid members."""


class Unauthenticated(ApiError):  # noqa: N818
    """401: the access token was refused, even after one renewal."""


class RecentSignInRequired(Unauthenticated):
    """401: the person signed in too long ago for this, or too weakly (RFC 9470).

    Redirect the browser to ``sign_in_url`` with both attributes, and repeat the request.

    Attributes:
        max_age_s: How long ago the sign-in may be, in seconds; None for any time.
        acr_values: The required ``acr`` of the sign-in; empty for any.
    """

    max_age_s: int | None = None
    acr_values: tuple[str, ...] = ()


class Forbidden(ApiError):  # noqa: N818
    """403: the access token lacks the required scope, or a script that was tested denied access."""


class NotFound(ApiError):  # noqa: N818
    """404: the entity does not exist, or not under this parent."""


class InvalidId(ValueError):  # noqa: N818
    """An id or a name that cannot be part of a path, so no entity can have it."""


class VersionMismatch(ApiError):  # noqa: N818
    """412: the entity does not have, or no longer has, the version that ``if_match`` or ``if_none_match`` requires.

    Nothing was changed. Read the entity again before you decide whether to retry.
    """


class Conflict(ApiError):  # noqa: N818
    """422: the request contradicts the current state: a duplicate name, or a reference to an unknown id."""


class TooManyAttempts(ApiError):  # noqa: N818
    """429: the limit of attempts in a window is reached.

    Attributes:
        retry_after: Seconds to wait before a retry; None if unknown.
    """

    retry_after: float | None = None


class OAuthError(IdentityError):
    """The token endpoint refused the request (RFC 6749 section 5.2, RFC 8693 section 2.2.2).

    If it ``requires_sign_in``, redirect the browser to ``sign_in_url`` with ``acr_values`` and ``max_age_s``, and
    repeat the request afterwards: in an exchange with the same subject token, which was not spent.

    Attributes:
        error: The error code, such as ``invalid_grant``; ``unexpected_answer`` if the response does not come from a
            token endpoint.
        description: ``error_description``; may be empty.
        status: The HTTP status.
        retry_after: Seconds to wait before a retry; None if unknown.
        request_id: The ``X-Request-Id``; None if absent.
        acr_values: The accepted values of ``acr`` of a sign-in; empty for any.
        max_age_s: How long ago a sign-in may be, in seconds; None for any time.
    """

    def __init__(
        self,
        error: str,
        description: str = "",
        *,
        status: int,
        retry_after: float | None = None,
        request_id: str | None = None,
        acr_values: tuple[str, ...] = (),
        max_age_s: int | None = None,
    ) -> None:
        self.error = error
        self.description = description
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id
        self.acr_values = acr_values
        self.max_age_s = max_age_s
        super().__init__(f"{error}: {description}" if description else error)

    @property
    def requires_sign_in(self) -> bool:
        """Whether the user, in an exchange the actor, must sign in again, or more strongly."""
        return bool(self.acr_values) or self.max_age_s is not None


class Unavailable(IdentityError):  # noqa: N818
    """The service did not answer in time, or answered 502, 503 or 504.

    A write may or may not have been carried out. The text names the address, without credentials and query.

    Attributes:
        retry_after: Seconds to wait before a retry; None if unknown.
        request_id: The ``X-Request-Id``; None if absent.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, request_id: str | None = None) -> None:
        self.retry_after = retry_after
        self.request_id = request_id
        super().__init__(message)


class TokenInvalid(IdentityError):  # noqa: N818
    """A token was rejected.

    Attributes:
        reason: The violated rule. Safe to log and to use as a metric label; do not reveal it to the caller of your API.
    """

    def __init__(self, reason: TokenInvalidReason) -> None:
        self.reason: TokenInvalidReason = reason
        super().__init__(reason)


class StepUpRequired(TokenInvalid):
    """The token is valid, but its user signed in too long ago or too weakly for this.

    An API answers 401 with ``challenge``. Its client reads that, and redirects the browser to ``sign_in_url`` with both
    attributes::

        required = StepUpRequired.read(answer.headers.get("WWW-Authenticate", ""))
        if required is not None:
            redirect(client.sign_in_url(callback, acr_values=required.acr_values, max_age=required.max_age_s))

    Attributes:
        acr_values: The accepted values of ``acr`` of the sign-in; empty for any.
        max_age_s: How long ago the sign-in may be, in seconds; None for any time.
    """

    def __init__(self, *, acr_values: tuple[str, ...] = (), max_age_s: int | None = None) -> None:
        self.acr_values = acr_values
        self.max_age_s = max_age_s
        super().__init__(_INSUFFICIENT)

    @property
    def challenge(self) -> str:
        """The value of ``WWW-Authenticate`` (RFC 9470 section 3)."""
        acr_values = f', acr_values="{" ".join(self.acr_values)}"' if self.acr_values else ""
        max_age = "" if self.max_age_s is None else f', max_age="{self.max_age_s}"'
        return f'Bearer error="{_INSUFFICIENT}"{acr_values}{max_age}'

    @classmethod
    def read(cls, challenge: str) -> StepUpRequired | None:
        """Return what the value of ``WWW-Authenticate`` of a 401 requires; None if it is another challenge."""
        if f'error="{_INSUFFICIENT}"' not in challenge:
            return None
        acr_values, max_age = _ACR_VALUES.search(challenge), _MAX_AGE.search(challenge)
        return cls(
            acr_values=tuple(acr_values[1].split()) if acr_values else (),
            max_age_s=int(max_age[1]) if max_age else None,
        )


class CallerUnknown(IdentityError):  # noqa: N818
    """A request behind a proxy lacks a header that tells who its caller is, or has it empty or twice.

    Attributes:
        header: Which one.
    """

    def __init__(self, header: str) -> None:
        self.header = header
        super().__init__(f"{header} is missing, empty, repeated or malformed")


class SignInRequired(IdentityError):  # noqa: N818
    """The user must sign in: redirect the browser to ``sign_in_url``.

    Attributes:
        reason: ``not_signed_in``, ``not_granted``, ``unknown_state`` and so on, or the error code of the service.
        description: Details for developers; may be empty.
    """

    def __init__(self, reason: str, description: str = "") -> None:
        self.reason = reason
        self.description = description
        super().__init__(f"{reason}: {description}" if description else reason)
