"""Requests that token-service makes about links in mails: for forgotten passwords and e-mail addresses.

token-service has the pages that these links lead to, management-service the links and the accounts. A NATS request on a
subject that belongs to no stream. Only token-service may send them, only management-service may reply. Requests and
replies are sealed with the keys of the environment variables, which both know, because they hold passwords, the secrets
of links, and personal data.
"""

from typing import Final, Literal

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.sealing import SealingKeys
from identity_common.wire.sealed_requests import SealedRequests

REPLY_TIMEOUT_S: Final = 8.0
"""How long token-service waits for the reply; a password may have to be hashed."""


def account_links_subject(tenant_id: str) -> str:
    """Return the subject of the requests."""
    return f"identity-rpc.{tenant_id}.account-links"


class _Private(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a message; its text is hidden, because it holds secrets or personal data."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class LinkContext(_Private, frozen=True, kw_only=True):
    """Where a link was requested, so that its page can lead back there.

    Attributes:
        language: Tag of the language of the mail; None for the default.
        application_id: The application whose sign-in was interrupted, if any.
        request_id: The pending request of that sign-in; only the browser that has begun it can continue it.
    """

    language: str | None = None
    application_id: str | None = None
    request_id: str | None = None


class Visitor(_Private, frozen=True, kw_only=True):
    """The browser of a request that changes something, for the audit trail and the log.

    Attributes:
        address: Its address.
        user_agent: Its ``User-Agent``, printable and shortened.
    """

    address: str = ""
    user_agent: str = ""


class ReadOffers(_Private, frozen=True, kw_only=True, tag="offers"):
    """Return what can be done by mail. The reply is ``Offers``."""


class Offers(_Private, frozen=True, kw_only=True, tag="offers"):
    """Reply to ``ReadOffers``.

    Attributes:
        is_mail_sent: Whether this deployment sends mail at all.
    """

    is_mail_sent: bool


class RequestRecovery(_Private, frozen=True, kw_only=True, tag="request-recovery"):
    """Mail a link for a forgotten password. The reply is ``LinkRequested``.

    Attributes:
        address: The e-mail address, as typed.
    """

    address: str
    context: LinkContext = LinkContext()
    visitor: Visitor = Visitor()


class LinkRequested(_Private, frozen=True, kw_only=True, tag="requested"):
    """Reply to a request for a link, whether or not the address has an account, and whether or not mail was sent.

    Attributes:
        minutes: How long the link is valid.
    """

    minutes: int


class ReadRecovery(_Private, frozen=True, kw_only=True, tag="read-recovery"):
    """Return what a link for a forgotten password is for. The reply is ``LinkFound``.

    Attributes:
        link: Value of the link.
    """

    link: str


class Recover(_Private, frozen=True, kw_only=True, tag="recover"):
    """Set a new password, which spends the link and ends all sessions of the account.

    The reply is ``Done``.

    Attributes:
        link: Value of the link.
        password: The new password, as typed.
    """

    link: str
    password: str
    visitor: Visitor = Visitor()


class ReadVerification(_Private, frozen=True, kw_only=True, tag="read-verification"):
    """Return what a link for an e-mail address is for. The reply is ``LinkFound``.

    Attributes:
        link: Value of the link.
    """

    link: str


class ConfirmAddress(_Private, frozen=True, kw_only=True, tag="confirm-address"):
    """Make the address of the link the verified address of its account, which spends the link.

    The reply is ``Done``.

    Attributes:
        link: Value of the link.
    """

    link: str
    visitor: Visitor = Visitor()


class RequestRegistration(_Private, frozen=True, kw_only=True, tag="request-registration"):
    """Mail a link to register with an address. The reply is ``LinkRequested``.

    Attributes:
        address: The e-mail address, as typed.
    """

    address: str
    context: LinkContext = LinkContext()
    visitor: Visitor = Visitor()


class ReadRegistration(_Private, frozen=True, kw_only=True, tag="read-registration"):
    """Return what a link to register is for. The reply is ``LinkFound``.

    Attributes:
        link: Value of the link.
    """

    link: str


class Register(_Private, frozen=True, kw_only=True, tag="register"):
    """Create the account of an address, which spends the link. The reply is ``Registered``.

    Attributes:
        link: Value of the link.
        name: Name of the person, as typed.
        password: As typed.
    """

    link: str
    name: str
    password: str
    visitor: Visitor = Visitor()


class Registered(_Private, frozen=True, kw_only=True, tag="registered"):
    """Reply to ``Register``.

    Attributes:
        user_id: The new account.
        revision: Management revision of its creation; the directory must have seen it before it judges the user.
        context: Where the link was requested.
    """

    user_id: str
    revision: int
    context: LinkContext = LinkContext()


class ReadInvitation(_Private, frozen=True, kw_only=True, tag="read-invitation"):
    """Return what a link of an invitation to an organization is for. The reply is ``InvitationFound``.

    Attributes:
        link: Value of the link.
        user_id: Who is signed in at this browser; None for no one.
    """

    link: str
    user_id: str | None = None


InvitedAccount = Literal["new", "known", "unverified"]
"""The account with an invited address: none yet; one whose address is verified, or that is signed in at the browser; or
one that must be signed in first, since the address may have been given to it by someone else."""


class InvitationFound(_Private, frozen=True, kw_only=True, tag="invitation"):
    """Reply to ``ReadInvitation``.

    Attributes:
        organization: Name of the organization.
        address: The invited e-mail address.
        account: The account that would join.
        inviter: Name of the user who invites, if one does.
    """

    organization: str
    address: str
    account: InvitedAccount
    inviter: str | None = None


class JoinOrganization(_Private, frozen=True, kw_only=True, tag="join-organization"):
    """Accept an invitation to an organization, which spends its link; create the account first, if there is none.

    The reply is ``Joined``. If accepting fails, a new account stays.

    Attributes:
        link: Value of the link.
        user_id: Who is signed in at this browser; None for no one.
        name: Name of the person, as typed, for a new account.
        password: As typed, for a new account.
    """

    link: str
    user_id: str | None = None
    name: str = ""
    password: str = ""
    visitor: Visitor = Visitor()


class Joined(_Private, frozen=True, kw_only=True, tag="joined"):
    """Reply to ``JoinOrganization``: the account is a member.

    Attributes:
        organization: Name of the organization.
    """

    organization: str


class LinkFound(_Private, frozen=True, kw_only=True, tag="found"):
    """Reply about a valid link.

    Attributes:
        address: The e-mail address that it was sent to.
        account: What the account signs in with: a user name, an e-mail address or a telephone number.
        context: Where it was requested.
    """

    address: str
    account: str = ""
    context: LinkContext = LinkContext()


class Done(_Private, frozen=True, kw_only=True, tag="done"):
    """Reply about a link that was spent.

    Attributes:
        context: Where it was requested.
    """

    context: LinkContext = LinkContext()


RefusalReason = Literal[
    "no-mail",
    "not-an-address",
    "link-not-valid",
    "password-not-accepted",
    "address-in-use",
    "name-not-accepted",
    "account-not-accepted",
]
"""Why a request was refused: this deployment sends no mail; the text cannot be an e-mail address; the link is unknown,
spent, replaced or expired, or its account has changed since; the password is too short or too long; another account has
the address by now; the name is blank or too long, or has invisible characters; the account is suspended, has to sign in
first, or at the provider of a connector, would be given rights by default roles that no link gives, or is the last
administrator's and could not be signed in to. All but the first three leave the link as it was."""


class Refused(_Private, frozen=True, kw_only=True, tag="refused"):
    """Reply to any request that nothing was done about."""

    reason: RefusalReason


class Unavailable(_Private, frozen=True, kw_only=True, tag="unavailable"):
    """Reply to any request: a store does not answer, or too many passwords are being hashed.

    Attributes:
        retry_after_s: Seconds until another attempt makes sense.
    """

    retry_after_s: int = 1


Question = (
    ReadOffers
    | RequestRecovery
    | ReadRecovery
    | Recover
    | ReadVerification
    | ConfirmAddress
    | RequestRegistration
    | ReadRegistration
    | Register
    | ReadInvitation
    | JoinOrganization
)
Answer = Offers | LinkRequested | LinkFound | Done | Registered | InvitationFound | Joined | Refused | Unavailable

_questions: Final[msgspec.json.Decoder[Question]] = msgspec.json.Decoder(Question)
_answers: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


class AccountLinkRequests(SealedRequests[Question, Answer]):
    """Seals and opens requests and replies.

    Args:
        keys: Of the environment variables.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(self, keys: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        super().__init__(keys, account_links_subject(tenant_id), _questions, _answers, clock=clock)
