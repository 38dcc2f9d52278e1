"""Mail about identities, to the verified address of their user."""

from typing import Literal

from identity_common.wire.account_links import LinkContext
from identity_common.wire.mail import Mail
from management_service.users.rules import language_of
from management_service.users.store import User

_ACCOUNT = "/account"


def identity_notice(
    user: User, kind: Literal["factor-added", "factor-removed"], provider: str, context: LinkContext
) -> Mail:
    """Return the mail that tells a user of an identity that was linked or removed; without an address it goes nowhere.

    Args:
        user: The user.
        kind: What has happened.
        provider: Name of the connector.
        context: Where it happened.
    """
    return Mail(
        kind=kind,
        recipient=(user.primary_email or "") if user.is_email_verified else "",
        language=context.language or language_of(user.profile),
        application_id=context.application_id,
        user_id=user.id,
        values={"link": _ACCOUNT, "factor": "identity", "provider": provider},
    )
