"""The account that joins an organization by a link: found or created, before template-service accepts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import nats
import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from identity_common.sealing import SealingKeys
from identity_common.wire import organization_invitations as template
from identity_common.wire.account_links import (
    AccountLinkRequests,
    Answer,
    InvitationFound,
    Joined,
    JoinOrganization,
    Question,
    ReadInvitation,
    Refused,
    Unavailable,
    Visitor,
)
from tests.support.factors import FactorPages
from tests.support.mailed_links import Pages
from tests.support.management_api import Management, unique

PASSWORD = "correct horse battery staple"
LINK = "x" * 43


class Invitations:
    """Answers in place of template-service, and asks in place of token-service.

    Attributes:
        invitee: The address that every link names; none is open without it.
        accepting: What an acceptance is answered with.
        accepted: The accounts that have accepted.
    """

    def __init__(self, management: Management) -> None:
        self.invitee = ""
        self.accepting: template.Answer = template.InvitationAccepted(organization="Acme")
        self.accepted: list[str] = []
        self._management = management
        settings = management.settings
        self._requests = AccountLinkRequests(
            SealingKeys(settings.environment_variable_keys), tenant_id=settings.tenant_id
        )
        self._invitations = template.OrganizationInvitationRequests(
            SealingKeys(settings.mail_keys), tenant_id=settings.tenant_id
        )

    async def __aenter__(self) -> Self:
        addresses = self._management.addresses
        self._template = await nats.connect(addresses.template_nats_url, inbox_prefix="_INBOX_template")
        self._token = await nats.connect(addresses.token_nats_url, inbox_prefix="_INBOX_token")
        await self._template.subscribe(self._invitations.subject, cb=self._answer)
        await self._template.flush()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._template.close()
        await self._token.close()

    async def ask(self, question: Question) -> Answer:
        sealed = self._requests.seal_question(question)
        reply = await self._token.request(self._requests.subject, sealed, timeout=20)
        return self._requests.open_answer(reply.data, sealed_question=sealed)

    async def join(self, user_id: str | None = None, *, name: str = "Bob", password: str = PASSWORD) -> Answer:
        visitor = Visitor(address="192.0.2.1", user_agent="test")
        return await self.ask(
            JoinOrganization(link=LINK, user_id=user_id, name=name, password=password, visitor=visitor)
        )

    async def accounts(self) -> list[Any]:
        """Return the accounts with the invited address."""
        params = {"search.primaryEmail": self.invitee, "mode.primaryEmail": "exact"}
        found: list[Any] = (await self._management.client.get("/api/users", params=params)).json()
        return found

    async def _answer(self, message: Msg) -> None:
        question = self._invitations.open_question(message.data)
        answer: template.Answer = template.Refused(reason="link-not-valid")
        if isinstance(question, template.AcceptInvitation):
            self.accepted.append(question.user_id)
            answer = self.accepting
        elif self.invitee:
            answer = template.InvitationFound(organization="Acme", invitee=self.invitee)
        await message.respond(self._invitations.seal_answer(answer, sealed_question=message.data))


@pytest_asyncio.fixture
async def invitations(own: Management) -> AsyncIterator[Invitations]:
    async with Invitations(own) as invitations:
        invitations.invitee = f"{unique('bob')}@id.test"
        yield invitations


def found(invitations: Invitations, account: Any) -> InvitationFound:
    return InvitationFound(organization="Acme", address=invitations.invitee, account=account)


async def test_a_new_account_is_created_once_and_stays_if_accepting_fails(
    own: Management, invitations: Invitations
) -> None:
    """The process may end in between: the link then goes on for the account, without a password."""
    read = ReadInvitation(link=LINK)
    assert await invitations.ask(read) == found(invitations, "new")
    assert await invitations.accounts() == []  # reading changes nothing
    invitations.accepting = template.Unavailable()
    assert isinstance(await invitations.join(), Unavailable)
    (account,) = await invitations.accounts()
    assert (account["name"], account["isEmailVerified"], account["hasPassword"]) == ("Bob", True, True)
    assert not (await FactorPages(own, invitations._token).read(account["id"])).needs_code  # the link was mailed
    entry = await Pages(own, invitations._token).entry("JoinOrganization", account["id"])
    assert (entry.key, entry.ids, entry.address) == ("management.user.create", {"user_id": account["id"]}, "192.0.2.1")
    assert await invitations.ask(read) == found(invitations, "known")
    invitations.accepting = template.InvitationAccepted(organization="Acme")
    assert await invitations.join(name="", password="") == Joined(organization="Acme")
    assert [each["id"] for each in await invitations.accounts()] == [account["id"]]
    assert invitations.accepted == [account["id"]] * 2


async def test_of_many_who_join_at_once_one_account_is_made(invitations: Invitations) -> None:
    answers = await asyncio.gather(*(invitations.join() for _ in range(6)))
    assert all(isinstance(answer, Joined | Refused) for answer in answers)
    assert {answer.reason for answer in answers if isinstance(answer, Refused)} <= {"address-in-use"}
    (account,) = await invitations.accounts()
    assert set(invitations.accepted) == {account["id"]}


@pytest.mark.parametrize(
    ("name", "password", "reason"),
    [
        ("", PASSWORD, "name-not-accepted"),
        ("   ", PASSWORD, "name-not-accepted"),
        ("x" * 257, PASSWORD, "name-not-accepted"),
        ("Bob\u202e", PASSWORD, "name-not-accepted"),
        ("Bob", "", "password-not-accepted"),
        ("Bob", "x" * 257, "password-not-accepted"),
    ],
)
async def test_a_new_account_needs_a_name_and_a_password(
    invitations: Invitations, name: str, password: str, reason: Any
) -> None:
    assert await invitations.join(name=name, password=password) == Refused(reason=reason)
    assert (await invitations.accounts(), invitations.accepted) == ([], [])


async def test_an_account_whose_address_nobody_has_verified_joins_only_signed_in(
    own: Management, invitations: Invitations
) -> None:
    """It may be an account that another person created with the address. The link then verifies it."""
    user = (await own.created("users", primaryEmail=invitations.invitee.upper(), password=PASSWORD))["id"]
    other = (await own.created("users"))["id"]
    refused = Refused(reason="account-not-accepted")
    for signed_in in (None, other):
        read = ReadInvitation(link=LINK, user_id=signed_in)
        assert await invitations.ask(read) == found(invitations, "unverified")
        assert await invitations.join(signed_in) == refused
    assert invitations.accepted == []
    assert await invitations.ask(ReadInvitation(link=LINK, user_id=user)) == found(invitations, "known")
    assert await invitations.join(user) == Joined(organization="Acme")
    assert invitations.accepted == [user]
    assert (await own.client.get(f"/api/users/{user}")).json()["isEmailVerified"]

    suspended = f"/api/users/{user}/is-suspended"
    assert (await own.client.patch(suspended, json={"isSuspended": True})).is_success
    assert await invitations.ask(ReadInvitation(link=LINK)) == refused
    assert await invitations.join() == refused


async def test_a_link_shows_nothing_about_an_address_that_only_compares_equal(
    own: Management, invitations: Invitations
) -> None:
    """The letter \u00df folds to ss: each of the two domains may be another person's."""
    address = f"{unique('bob')}@strasse.test"
    user = (await own.created("users", primaryEmail=address, isEmailVerified=True, password=PASSWORD))["id"]
    invitations.invitee = address.replace("strasse", "stra\u00dfe")
    assert await invitations.ask(ReadInvitation(link=LINK)) == found(invitations, "unverified")
    assert await invitations.join() == Refused(reason="account-not-accepted")
    assert (await own.client.patch(f"/api/users/{user}", json={"isEmailVerified": False})).is_success
    assert await invitations.join(user) == Joined(organization="Acme")  # signed in, and with the link
    assert not (await own.client.get(f"/api/users/{user}")).json()["isEmailVerified"]


async def test_a_link_that_is_not_open_and_a_service_that_is_down_create_nothing(
    own: Management, invitations: Invitations
) -> None:
    address, invitations.invitee = invitations.invitee, ""
    not_valid = Refused(reason="link-not-valid")
    assert await invitations.ask(ReadInvitation(link=LINK)) == not_valid
    assert await invitations.join() == not_valid
    invitations.invitee = address
    await invitations._template.close()
    assert isinstance(await invitations.ask(ReadInvitation(link=LINK)), Unavailable)
    assert isinstance(await invitations.join(), Unavailable)
    assert await invitations.accounts() == []


async def test_no_invitation_gives_scopes_of_the_management_api(own: Management, invitations: Invitations) -> None:
    """A default role may grant them: who may invite, and no more, would have them by an account of their own."""
    resource = next(
        each
        for each in (await own.client.get("/api/resources")).json()
        if each["indicator"] == own.settings.management_api_resource
    )
    scopes = (await own.client.get(f"/api/resources/{resource['id']}/scopes")).json()
    users = next(scope["id"] for scope in scopes if scope["name"] == "users")
    role = await own.created("roles", name=unique("r"), description="", type="User", isDefault=True, scopeIds=[users])
    try:
        assert await invitations.join() == Refused(reason="account-not-accepted")
        assert (await invitations.accounts(), invitations.accepted) == ([], [])
    finally:
        await own.client.delete(f"/api/roles/{role['id']}")
