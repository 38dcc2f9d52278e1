"""How OAuth puts a failure from below the grants and endpoints (RFC 6749 section 5.2): the only place that knows."""

from typing import Final, assert_never, get_args

from identity_common.failures import (
    AnyFailure,
    Conflict,
    Failure,
    Invalid,
    NotFound,
    NotYetThere,
    Refused,
    StoreUnavailable,
    TemporarilyUnavailable,
    TooLarge,
    TooManyAttempts,
)
from identity_common.telemetry.logs import get_logger
from token_service.grants.oauth_errors import (
    OAuthError,
    invalid_grant,
    invalid_request,
    invalid_scope,
    invalid_target,
    temporarily_unavailable,
    too_many_requests,
)

_log = get_logger(__name__)

Refusal = OAuthError | Failure
"""Why a request gets no answer: a fact of the protocol, or a failure from below it."""

REFUSALS: Final[tuple[type[Refusal], ...]] = get_args(Refusal)
"""The same, for ``except``."""


def refusal_of(error: Refusal) -> OAuthError:
    """Return the error response to a request that was refused or failed; log a store that does not answer."""
    return error if isinstance(error, OAuthError) else oauth_error_of(error)


def oauth_error_of(failure: Failure) -> OAuthError:
    """Return the error response to a failure; log a store that does not answer."""
    match failure:
        case NotYetThere() | TemporarilyUnavailable():
            log_unavailable(failure)
            return temporarily_unavailable(failure.why or failure.message, retry_after_s=failure.retry_after_s)
        case Refused():
            return OAuthError("access_denied", failure.message, reason=failure.code)
        case NotFound():
            return invalid_target(failure.message)  # a client names nothing else that may be unknown
        case TooLarge():
            return invalid_scope(failure.message)  # a token: its scopes are all that a client can shorten
        case TooManyAttempts():
            return too_many_requests(failure.message, retry_after_s=failure.retry_after_s)
        case Invalid():
            return invalid_request(failure.message)
        case Conflict():
            return invalid_grant(failure.message)
        case _:
            assert_never(failure)


def log_unavailable(failure: AnyFailure) -> None:
    """Log which store does not answer, if the failure is about one."""
    if isinstance(failure, StoreUnavailable):
        _log.warning("store.unavailable", store=failure.store, error=failure.cause)
