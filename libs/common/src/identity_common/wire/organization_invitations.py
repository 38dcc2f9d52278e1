"""Requests that management-service makes to template-service about links of invitations to organizations.

template-service has the invitations and the members, management-service the accounts. A NATS request on a subject that
belongs to no stream. Only management-service may send it, only template-service may reply. Requests and replies are
sealed with the keys of mails, which both know: an acceptance gives rights, and an answer has an e-mail address.
"""

from typing import Final, Literal

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.sealing import SealingKeys
from identity_common.wire.sealed_requests import SealedRequests

REPLY_TIMEOUT_S: Final = 4.0
"""How long management-service waits for the reply."""


def organization_invitations_subject(tenant_id: str) -> str:
    """Return the subject of the requests."""
    return f"identity-rpc.{tenant_id}.organization-invitations"


class _Private(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a message; its text is hidden, because it holds personal data, or what a link is found by."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class FindInvitation(_Private, frozen=True, kw_only=True, tag="find"):
    """Return the pending invitation with a link. The reply is ``InvitationFound``.

    Attributes:
        link_sha256: Hexadecimal SHA-256 of the link.
    """

    link_sha256: str


class AcceptInvitation(_Private, frozen=True, kw_only=True, tag="accept"):
    """Accept the invitation with a link, for the account with its address. The reply is ``InvitationAccepted``.

    Attributes:
        link_sha256: Hexadecimal SHA-256 of the link.
        user_id: The account.
        address: Of the browser, for the audit trail.
        user_agent: Of the browser, printable and shortened.
    """

    link_sha256: str
    user_id: str
    address: str = ""
    user_agent: str = ""


class IsInvited(_Private, frozen=True, kw_only=True, tag="is-invited"):
    """Return whether an e-mail address has a pending invitation. The reply is ``Invited``.

    Attributes:
        email: The address, as typed.
    """

    email: str


class InvitationFound(_Private, frozen=True, kw_only=True, tag="found"):
    """Reply to ``FindInvitation``.

    Attributes:
        organization: Name of the organization.
        invitee: The invited e-mail address.
        inviter: Name of the user who invites; None if none does, or has no name.
    """

    organization: str
    invitee: str
    inviter: str | None = None


class InvitationAccepted(_Private, frozen=True, kw_only=True, tag="accepted"):
    """Reply to ``AcceptInvitation``: the account is a member.

    Attributes:
        organization: Name of the organization.
    """

    organization: str


class Invited(_Private, frozen=True, kw_only=True, tag="invited"):
    """Reply to ``IsInvited``."""

    is_invited: bool


RefusalReason = Literal["link-not-valid", "account-not-accepted"]
"""Why an invitation is not found or accepted: its link is unknown or replaced, or it is not pending any more; or the
account has another address, is suspended, or has too many roles."""


class Refused(_Private, frozen=True, kw_only=True, tag="refused"):
    """Reply to ``FindInvitation`` and ``AcceptInvitation``; nothing was done."""

    reason: RefusalReason


class Unavailable(_Private, frozen=True, kw_only=True, tag="unavailable"):
    """Reply to any request: the database does not answer, or too many requests wait.

    Attributes:
        retry_after_s: Seconds until another attempt makes sense.
    """

    retry_after_s: int = 1


Question = FindInvitation | AcceptInvitation | IsInvited
Answer = InvitationFound | InvitationAccepted | Invited | Refused | Unavailable

_questions: Final[msgspec.json.Decoder[Question]] = msgspec.json.Decoder(Question)
_answers: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


class OrganizationInvitationRequests(SealedRequests[Question, Answer]):
    """Seals and opens requests and replies.

    Args:
        keys: Of mails.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(self, keys: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        super().__init__(keys, organization_invitations_subject(tenant_id), _questions, _answers, clock=clock)
