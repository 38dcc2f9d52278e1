"""Who changes something on a page of token-service: for the audit trail, and without rights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from identity_common.access.callers import ADMITTED, Caller
from identity_common.audited_request import AUDITED_REQUEST, AuditedRequest
from identity_common.failures import Refused
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import Visitor

_log = get_logger(__name__)

_NO_RIGHTS: Final = Caller(application_id="")


class DefaultRolesRefusedError(Exception):
    """The default roles grant scopes of the Management API, which no link gives."""


def audit_visitor(operation: str, user_id: str, visitor: Visitor) -> None:
    """Have the changes of this task recorded in the audit trail, as made by the user whom a page has authenticated.

    Args:
        operation: What the audit trail calls the change.
        user_id: The user.
        visitor: The browser.
    """
    AUDITED_REQUEST.set(
        AuditedRequest(
            operation=operation,
            application_id=None,
            user_id=user_id,
            token_id="",
            address=visitor.address,
            user_agent=visitor.user_agent,
            ids={"user_id": user_id},
        )
    )


@contextmanager
def creating_account() -> Iterator[None]:
    """Create an account as a caller without rights, who gives none of the Management API by default roles.

    Raises:
        DefaultRolesRefusedError: The default roles grant scopes of the Management API.
    """
    admitted = ADMITTED.set(_NO_RIGHTS)
    try:
        yield
    except Refused:
        _log.warning("account.refused", reason="the default roles grant scopes of the Management API")
        raise DefaultRolesRefusedError from None
    finally:
        ADMITTED.reset(admitted)
