"""What can fail below the edge. A failure has a code and a message; it knows no status, header or media type.

``http/problems.py`` renders failures for the Management API, and token-service's ``grants/failures.py`` for OAuth. The
exception of a driver becomes a failure where it is caught, once for each store.
"""

from typing import Final, Literal

import msgspec

from identity_common.fields import MAX_RELATED

Store = Literal["postgresql", "redis", "nats", "smtp"]

_STORE_OF_DRIVER: Final[dict[str, Store]] = {
    "asyncpg": "postgresql",
    "sqlalchemy": "postgresql",
    "redis": "redis",
    "nats": "nats",
}

UNKNOWN_RELATION: Final = "entity.relation_foreign_key_not_found"


class Issue(msgspec.Struct, frozen=True):
    """One invalid member of a body, query or path.

    Attributes:
        path: The member: ``name`` or ``oidcClientMetadata.redirectUris[0]``; empty for the request as a whole.
        message: The problem; never contains the value.
    """

    path: str
    message: str


class ErrorData(msgspec.Struct, frozen=True, omit_defaults=True):
    """``data`` of an error body; its members depend on the code.

    Attributes:
        issues: The invalid members of the request.
        reason: Why a script failed, for programs.
        line: Line in the script, from 1.
        column: Column in the line, from 1.
        missing: Names of what is missing: members of the request, or scopes of the access token.
    """

    issues: list[Issue] = []
    reason: str | None = None
    line: int | None = None
    column: int | None = None
    missing: list[str] = []


RETRY_AFTER_S: Final = 1
"""When to retry by default: ``Retry-After`` of an answer while a store is down."""


class AnyFailure(Exception):  # noqa: N818 - the kinds are named after what happened
    """Base of the kinds of failures, for ``except`` and for exception handlers.

    Attributes:
        code: For programs; stable.
        message: For developers; may change.
        data: For programs; depends on the code.
    """

    def __init__(self, code: str, message: str, *, data: ErrorData | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.message = message
        self.data = data


class Invalid(AnyFailure):
    """The request contradicts the interface, whatever is stored."""


class NotFound(AnyFailure):
    """What the request names does not exist; also if it belongs to another parent or tenant."""


class Conflict(AnyFailure):
    """The request is valid, and what is stored does not allow it."""


class Refused(AnyFailure):
    """The caller may not do this."""


class TooLarge(AnyFailure):
    """The request, or one of its free-form members, exceeds its limit."""


class TooManyAttempts(AnyFailure):
    """The limit of attempts in a window is reached; this one did not count.

    Attributes:
        retry_after_s: Seconds until the window ends.
    """

    def __init__(self, code: str, message: str, *, retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(code, message)
        self.retry_after_s = retry_after_s


class NotYetThere(AnyFailure):
    """What the request asks for is on its way; a retry will find it.

    Attributes:
        why: What is missing, as a clause; empty if there is nothing to add.
        retry_after_s: Seconds to wait before retrying.
    """

    def __init__(self, code: str, message: str, *, why: str = "", retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(code, message)
        self.why = why
        self.retry_after_s = retry_after_s


_LATER: Final = "The service is temporarily unavailable. Try again later."


class TemporarilyUnavailable(AnyFailure):
    """A part that the request needs does not answer. A write may or may not have been committed; a retry is safe.

    Attributes:
        why: What is missing, as a clause: "the directory is being loaded"; empty if there is nothing to add.
        retry_after_s: Seconds to wait before retrying.
    """

    def __init__(
        self,
        message: str = _LATER,
        *,
        why: str = "",
        retry_after_s: int = RETRY_AFTER_S,
    ) -> None:
        super().__init__("temporarily_unavailable", message)
        self.why = why
        self.retry_after_s = retry_after_s


class StoreUnavailable(TemporarilyUnavailable):
    """A store does not answer. The edge logs it, or the background work that has met it.

    Attributes:
        store: The store.
        cause: Name of the driver's error.
    """

    def __init__(self, store: Store, cause: str, *, why: str = "", message: str = _LATER) -> None:
        super().__init__(message, why=why)
        self.store = store
        self.cause = cause

    def __str__(self) -> str:
        """Return the cause, for logs."""
        return self.cause

    def explained(self, why: str) -> "StoreUnavailable":
        """Return the failure with what is missing because of it, unless it says so already."""
        return self if self.why else StoreUnavailable(self.store, self.cause, why=why)


Failure = Invalid | NotFound | Conflict | Refused | TooLarge | TooManyAttempts | NotYetThere | TemporarilyUnavailable
"""Every failure is one of these: who renders them names each kind, and mypy finds a missing one."""


def log_fields(error: Exception) -> dict[str, str]:
    """Return the fields of a log line about an error: the store, if it is known, and what happened to it.

    Drivers' errors are named by their classes. Their messages may quote values, or a URL with its password.
    """
    match error:
        case StoreUnavailable():
            return {"store": error.store, "error": error.cause}
        case NotYetThere() | TemporarilyUnavailable() if error.why:
            return {"error": type(error).__name__, "reason": error.why}
        case _:
            kinds = _kinds(error)
            drivers = [kind.__module__.partition(".")[0] for kind in kinds]
            stores = [_STORE_OF_DRIVER[driver] for driver in drivers if driver in _STORE_OF_DRIVER]
            names = " < ".join(dict.fromkeys(kind.__name__ for kind in kinds))
            # JetStream's API names its errors by a text of its own, without values of ours.
            reason = getattr(error, "description", None) if stores == ["nats"] else None
            return {
                "error": names,
                **({"store": stores[0]} if stores else {}),
                **({"reason": reason} if reason else {}),
            }


def _kinds(error: BaseException) -> list[type[BaseException]]:
    """Return the classes of an error and its causes."""
    return [type(error), *(_kinds(error.__cause__) if error.__cause__ else ())]


def invalid_input(*issues: Issue) -> Invalid:
    """Return the failure of an invalid body, query or path; one issue for each invalid member."""
    return Invalid(
        "guard.invalid_input", "The request is invalid. See data.issues.", data=ErrorData(issues=list(issues))
    )


def missing_by_id(code: str = "entity.not_exists_with_id") -> NotFound:
    """Return the failure of an id in the path without an entity.

    Args:
        code: ``entity.not_exists_with_id`` (reading, or a parent), ``entity.not_exists`` (changing) or
            ``entity.not_found`` (deleting).
    """
    return NotFound(code, "No entity with this id exists.")


def duplicate(
    code: str = "entity.unique_integrity_violation", message: str = "An entity with this value already exists."
) -> Conflict:
    """Return the failure of a value that must be unique and is in use."""
    return Conflict(code, message)


def unknown_relation() -> Conflict:
    """Return the failure of a body that refers to an id that does not exist."""
    return Conflict(UNKNOWN_RELATION, "The request refers to an id that does not exist.")


def wrong_kind(message: str) -> Conflict:
    """Return the failure of a role or application of the wrong type."""
    return Conflict("entity.db_constraint_violated", message)


def too_many_related() -> Conflict:
    """Return the failure of a relation beyond its limit, which keeps its event below the limit of the bus."""
    return Conflict("entity.db_constraint_violated", f"At most {MAX_RELATED} of these are allowed.")


def invalid_scope_name() -> Conflict:
    """Return the failure of a name that ``identity_common.scope_names`` does not allow."""
    message = (
        "A name must have 1 to 128 printable ASCII characters other than space, quotation mark and backslash, "
        "and must not be reserved by OpenID Connect or by this service."
    )
    return Conflict("scope.invalid_name", message)


def body_too_large(message: str = "The body or one of its free-form members is too large.") -> TooLarge:
    """Return the failure of a body, or of one of its free-form members, beyond its limit."""
    return TooLarge("request.too_large", message)
