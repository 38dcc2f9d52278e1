"""The vocabulary of OAuth 2.0 that the services share, and its one error.

Owns names and the error's shape. Does not own HTTP: the token service's endpoints render the error.
"""

from typing import Final

GRANT_AUTHORIZATION_CODE: Final = "authorization_code"
GRANT_CLIENT_CREDENTIALS: Final = "client_credentials"
GRANT_REFRESH_TOKEN: Final = "refresh_token"  # noqa: S105 - a type, not a token
GRANT_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a type, not a token

TOKEN_TYPE_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a type, not a token

OIDC_SCOPES: Final = frozenset({"openid", "offline_access", "profile", "email", "phone", "address", "roles"})
"""Scopes that OpenID Connect (or this service) gives a meaning of its own; never the name of a permission."""

USERINFO_SCOPES: Final = OIDC_SCOPES - {"offline_access"}
"""OIDC scopes that a userinfo token may carry; ``offline_access`` asks for a refresh token and is no right."""


class OAuthError(Exception):
    """A refusal in the words of OAuth (RFC 6749 section 5.2; RFC 8693 section 2.2.2).

    Attributes:
        error: The error code, such as ``invalid_request``.
        description: Text for the developer of the client; never a token, secret or person.
        status: HTTP status of the answer.
        retry_after_s: Seconds after which another try makes sense; only with 503.
    """

    def __init__(self, error: str, description: str, *, status: int = 400, retry_after_s: int | None = None) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.status = status
        self.retry_after_s = retry_after_s


class MalformedRequestError(OAuthError):
    """``invalid_request`` for what the request itself is like: nothing that becomes known could change it."""

    def __init__(self, description: str) -> None:
        super().__init__("invalid_request", description)


def invalid_request(description: str) -> OAuthError:
    """The request is malformed, or repeats a parameter."""
    return MalformedRequestError(description)


def invalid_client() -> OAuthError:
    """Client authentication failed; one description for every reason, so that nothing can be told apart."""
    return OAuthError("invalid_client", "client authentication failed", status=401)


def unauthorized_client(description: str) -> OAuthError:
    """The client is known, but may not use this grant."""
    return OAuthError("unauthorized_client", description)


def unsupported_grant_type() -> OAuthError:
    """No handler exists for the grant type."""
    return OAuthError("unsupported_grant_type", "this grant type is not supported")


def invalid_grant(description: str) -> OAuthError:
    """The code or refresh token is not good, or not this client's; nothing more can be told apart."""
    return OAuthError("invalid_grant", description)


def invalid_scope(description: str) -> OAuthError:
    """A scope was asked for that the person has not consented to."""
    return OAuthError("invalid_scope", description)


def insufficient_scope(description: str) -> OAuthError:
    """What is asked for needs a scope that was not consented to; 403, as the SDKs of this family expect."""
    return OAuthError("insufficient_scope", description, status=403)


def invalid_target(description: str) -> OAuthError:
    """The requested resource is unknown, missing or not acceptable (RFC 8707 section 2, RFC 8693 section 2.2.2)."""
    return OAuthError("invalid_target", description)


def access_denied(description: str) -> OAuthError:
    """The subject may not have such a token; 403, as the SDKs of this family expect."""
    return OAuthError("access_denied", description, status=403)


def temporarily_unavailable(description: str, *, retry_after_s: int = 1) -> OAuthError:
    """A store that is needed does not answer, or the directory is not far enough; try again later."""
    return OAuthError("temporarily_unavailable", description, status=503, retry_after_s=retry_after_s)
