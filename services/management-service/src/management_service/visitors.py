"""Who changes something on a page of token-service, for the audit trail."""

from identity_common.audited_request import AUDITED_REQUEST, AuditedRequest
from identity_common.wire.account_links import Visitor


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
