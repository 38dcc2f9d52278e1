"""The errors of OAuth: what the grants and endpoints refuse, because of the protocol.

Owns the names and the fields. Does not own HTTP: the endpoints render an error. What goes wrong below is a failure
(``identity_common.failures``), and ``failures`` says which error a client gets for it.
"""

from typing import Literal

ErrorCode = Literal[
    "access_denied",
    "insufficient_scope",
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "invalid_target",
    "invalid_token",
    "server_error",
    "temporarily_unavailable",
    "unauthorized_client",
    "unsupported_grant_type",
]


class OAuthError(Exception):
    """An error response of OAuth (RFC 6749 section 5.2; RFC 8693 section 2.2.2).

    Attributes:
        error: The error code.
        description: Text for developers; never contains a token, a secret or personal data.
        status: HTTP status.
        retry_after_s: Seconds to wait before retrying; only with 429 and 503.
        reason: Code for the audit trail, where the error is not specific enough; the response does not contain it.
        acr_values: How strongly the user, or the actor, must sign in for the request to succeed; None for any sign-in.
        max_age_s: How long ago, in seconds; None for any time.
    """

    def __init__(
        self,
        error: ErrorCode,
        description: str,
        *,
        status: int = 400,
        retry_after_s: int | None = None,
        reason: str | None = None,
        acr_values: str | None = None,
        max_age_s: int | None = None,
    ) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.status = status
        self.retry_after_s = retry_after_s
        self.reason = reason
        self.acr_values = acr_values
        self.max_age_s = max_age_s


class MalformedRequestError(OAuthError):
    """``invalid_request`` because of the request alone: catching up with the bus would not change the answer."""

    def __init__(self, description: str) -> None:
        super().__init__("invalid_request", description)


def invalid_request(description: str) -> OAuthError:
    """The request is malformed, or repeats a parameter."""
    return MalformedRequestError(description)


def invalid_client() -> OAuthError:
    """Client authentication failed; one description for all reasons, so that the response reveals none."""
    description = (
        "client authentication failed: an application with a secret must authenticate with the Authorization header "
        "(HTTP Basic), unless it may use client_secret_post"
    )
    return OAuthError("invalid_client", description, status=401)


def unauthorized_client(description: str) -> OAuthError:
    """The client is authenticated but may not use this grant."""
    return OAuthError("unauthorized_client", description)


def unsupported_grant_type() -> OAuthError:
    """The grant type has no handler."""
    return OAuthError("unsupported_grant_type", "this grant type is not supported")


def invalid_grant(description: str) -> OAuthError:
    """The code or refresh token is invalid or belongs to another client; the response does not say which."""
    return OAuthError("invalid_grant", description)


def invalid_scope(description: str) -> OAuthError:
    """The user has not consented to a requested scope, or a token cannot hold all of them (RFC 6749 section 5.2)."""
    return OAuthError("invalid_scope", description)


def insufficient_scope(description: str) -> OAuthError:
    """The request needs a scope that the user has not consented to; 403, as SDKs of compatible services expect."""
    return OAuthError("insufficient_scope", description, status=403)


def invalid_target(description: str) -> OAuthError:
    """The requested resource is missing, unknown or not allowed (RFC 8707 section 2, RFC 8693 section 2.2.2)."""
    return OAuthError("invalid_target", description)


def access_denied(description: str, *, reason: str) -> OAuthError:
    """The subject may not get this token; 403, as SDKs of compatible services expect."""
    return OAuthError("access_denied", description, status=403, reason=reason)


def insufficient_sign_in(description: str, *, acr_values: str | None, max_age_s: int | None = None) -> OAuthError:
    """The user, or the actor, has to sign in more strongly or again; the response says how.

    Source:
        RFC 9470 section 3, whose parameters an API's challenge has; the token endpoint has no code of its own for this.
    """
    return OAuthError(
        "access_denied",
        description,
        status=403,
        reason="sign_in.insufficient",
        acr_values=acr_values,
        max_age_s=max_age_s,
    )


def too_many_requests(description: str, *, retry_after_s: int) -> OAuthError:
    """The client is beyond a limit (RFC 6585 section 4); OAuth has no code of its own for that."""
    return OAuthError("temporarily_unavailable", description, status=429, retry_after_s=retry_after_s)


def temporarily_unavailable(description: str, *, retry_after_s: int = 1) -> OAuthError:
    """A store does not answer, or the directory lags behind; retry later."""
    return OAuthError("temporarily_unavailable", description, status=503, retry_after_s=retry_after_s)
