"""Asks management-service about links in mails, over the bus."""

from identity_common.bus.connection import Bus
from identity_common.bus.sealed_questions import SealedQuestions
from identity_common.wire.account_links import REPLY_TIMEOUT_S, AccountLinkRequests, Question, Refused, Unavailable


class AccountLinks(SealedQuestions[Question, Refused]):
    """management-service's operations on links in mails."""

    def __init__(self, bus: Bus, requests: AccountLinkRequests) -> None:
        super().__init__(
            bus,
            requests,
            refused=Refused,
            unavailable=Unavailable,
            name="account-links",
            timeout_s=REPLY_TIMEOUT_S,
            why="no answer about links in mails",
        )
