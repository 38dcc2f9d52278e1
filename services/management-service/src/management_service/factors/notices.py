"""Mail about factors, to the verified address of their user."""

from typing import Literal

from identity_common.authentication import FactorKind
from identity_common.wire.account_links import LinkContext
from identity_common.wire.mail import Mail, MailKind
from management_service.factors.enrolment_store import Overview
from management_service.users.store import User

_ACCOUNT = "/account"


def added(user: User, factor: FactorKind, context: LinkContext) -> Mail:
    """Return the mail that tells a user of a new factor."""
    return _notice(user, context, "factor-added", factor=factor)


def removed(user: User, factor: FactorKind | Literal["all"], context: LinkContext, *, by_administrator: bool) -> Mail:
    """Return the mail that tells a user of a factor that was removed, or of all."""
    by = {"by": "administrator"} if by_administrator else {}
    return _notice(user, context, "factor-removed", factor=factor, **by)


def recovery_code_used(user: User, context: LinkContext, *, left: int) -> Mail:
    """Return the mail that tells a user of a recovery code that was used, and how many are left."""
    return _notice(user, context, "recovery-code-used", left=str(left))


def enrolment_code(user: User, context: LinkContext, *, code: str, minutes: int, expires_at: int) -> Mail:
    """Return the mail with a code that lets a user set up the first factor."""
    return Mail(
        kind="enrolment-code",
        recipient=verified_address(user),
        language=context.language,
        application_id=context.application_id,
        user_id=user.id,
        expires_at=expires_at,
        values={"code": code, "minutes": str(minutes)},
    )


def verified_address(user: User | Overview) -> str:
    """Return the address that mail about factors goes to; empty without one, and then nothing is sent."""
    return (user.primary_email or "") if user.is_email_verified else ""


def _notice(user: User, context: LinkContext, kind: MailKind, **values: str) -> Mail:
    return Mail(
        kind=kind,
        recipient=verified_address(user),
        language=context.language,
        application_id=context.application_id,
        user_id=user.id,
        values={"link": _ACCOUNT, **values},
    )
