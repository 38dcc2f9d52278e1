"""Registration, as token-service requests links, opens and spends them over the bus."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import nats
import pytest
import pytest_asyncio
from nats.aio.msg import Msg
from sqlalchemy import event

from identity_common.outbox.mail import MailOutbox
from identity_common.sealing import SealingKeys
from identity_common.wire.account_links import (
    Answer,
    ConfirmAddress,
    LinkFound,
    LinkRequested,
    ReadRecovery,
    ReadRegistration,
    Refused,
    Register,
    Registered,
    RequestRegistration,
    Unavailable,
    Visitor,
)
from identity_common.wire.events import AssignmentState
from identity_common.wire.mail import Mail
from identity_common.wire.organization_invitations import Invited, IsInvited, OrganizationInvitationRequests
from identity_common.wire.password_check import PasswordAnswer, PasswordQuestion, password_check_subject
from management_service.app import VERSIONS
from management_service.links.rules import REQUESTED_MAILS
from management_service.parts.shared import Shared
from management_service.restoration import mend
from tests.support.factors import FactorPages
from tests.support.mailed_links import CONTEXT, PASSWORD, Pages
from tests.support.management_api import Management, unique

POLICY = "/api/configs/sign-in"

NOT_VALID = Refused(reason="link-not-valid")
SENT = LinkRequested(minutes=24 * 60)


class Visitors(Pages):
    """People who register."""

    async def allow(self, **members: Any) -> None:
        answer = await self.management.client.patch(POLICY, json=members)
        assert answer.status_code == 200, answer.text

    async def request(self, address: str) -> None:
        assert await self.ask(RequestRegistration(address=address, context=CONTEXT)) == SENT

    async def requested(self, address: str) -> str:
        """Request a link, and return it from the mail."""
        await self.request(address)
        return await self.link(address)

    async def register(self, link: str, *, name: str = "Ada Lovelace", password: str = PASSWORD) -> Answer:
        return await self.ask(Register(link=link, name=name, password=password))

    async def kinds(self, recipient: str) -> list[str]:
        return [mail.kind for mail in await self.sent(recipient)]

    async def holders(self, address: str) -> list[dict[str, Any]]:
        """Return the users with an address."""
        users: list[dict[str, Any]] = (
            await self.management.client.get("/api/users", params={"search": address})
        ).json()
        return users

    async def user_who_signs_in(self, address: str, password: str) -> str | None:
        question = PasswordQuestion(address, password)
        subject = password_check_subject(self.management.tenant_id)
        message = await self._client.request(subject, msgspec.json.encode(question), timeout=20)
        return msgspec.json.decode(message.data, type=PasswordAnswer).user_id


def new_address(domain: str = "id.test") -> str:
    return f"{unique('ada')}@{domain}"


@asynccontextmanager
async def invitations(own: Management, addresses: set[str]) -> AsyncIterator[list[str]]:
    """Answer which addresses are invited in place of template-service; yields those that were asked for."""
    requests = OrganizationInvitationRequests(SealingKeys(own.settings.mail_keys), tenant_id=own.tenant_id)
    asked = list[str]()

    async def answer(message: Msg) -> None:
        question = requests.open_question(message.data)
        assert isinstance(question, IsInvited)
        asked.append(question.email)
        answer = Invited(is_invited=question.email in addresses)
        await message.respond(requests.seal_answer(answer, sealed_question=message.data))

    client = await nats.connect(own.addresses.template_nats_url, inbox_prefix="_INBOX_template")
    await client.subscribe(requests.subject, cb=answer)
    await client.flush()
    yield asked
    await client.close()


@pytest_asyncio.fixture
async def visitors(own: Management) -> AsyncIterator[Visitors]:
    client = await nats.connect(own.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    visitors = Visitors(own, client)
    await visitors.allow(registration="open", registrationDomains=None)
    yield visitors
    await visitors.allow(registration=None, registrationDomains=None)
    await client.close()


async def test_a_link_creates_a_verified_account_with_the_default_roles_once(visitors: Visitors) -> None:
    own, address = visitors.management, f"{unique('Ada')}@Id.test"
    role = (await own.created("roles", name=unique("r"), description="", type="User", isDefault=True))["id"]
    link = await visitors.requested(address)
    (mail,) = await visitors.sent(address)
    assert (mail.kind, mail.language, mail.application_id, mail.user_id) == (
        *("registration", "de", "an-application", None),
    )
    assert mail.values == {"link": f"/sign-in/registration?link={link}", "minutes": "1440"}
    found = LinkFound(address=address, context=CONTEXT)
    assert [await visitors.ask(ReadRegistration(link=link)) for _ in range(2)] == [found, found]
    assert await visitors.ask(ReadRecovery(link=link)) == NOT_VALID  # a link does one thing
    assert await visitors.holders(address) == []

    registered = await visitors.register(link, name="  Ada   Lovelace ")
    (user,) = await visitors.holders(address)
    revision = await own.revision()
    assert registered == Registered(user_id=user["id"], revision=revision, context=CONTEXT)
    assert {name: user[name] for name in ("name", "primaryEmail", "isEmailVerified", "username", "hasPassword")} == {
        "name": "Ada Lovelace",
        "primaryEmail": address,
        "isEmailVerified": True,
        "username": None,
        "hasPassword": True,
    }
    assert not (await FactorPages(own, visitors._client).read(user["id"])).needs_code  # the link was mailed just now
    assert await visitors.user_who_signs_in(address.upper(), PASSWORD) == user["id"]
    assignment = (await own.last_events())[f"assignment.user.{user['id']}"]
    assert msgspec.json.decode(assignment.data, type=AssignmentState).role_ids == (role,)
    assert await visitors.ask(ReadRegistration(link=link)) == NOT_VALID
    assert await visitors.register(link) == NOT_VALID
    await own.client.delete(f"/api/roles/{role}")


async def test_a_restored_database_opens_no_link_and_sends_no_mail_of_its_outbox(visitors: Visitors) -> None:
    """Whether a link was spent after the backup is not known; mail that was queued then has been sent."""
    address = new_address()
    link, user = await visitors.requested(address), await visitors.user()
    verification = await visitors.verification(user)
    settings = visitors.management.settings
    shared = Shared(settings, versions=VERSIONS)
    outbox = MailOutbox(SealingKeys(settings.mail_keys), tenant_id=settings.tenant_id)
    async with shared.changes.transaction() as transaction:
        await outbox.queue(transaction.connection, Mail(kind="registration", recipient=address))
        await mend(transaction, [], revision=0, tenant_id=settings.tenant_id)
    await shared.connections.stop()
    assert await visitors.kinds(address) == ["registration"]  # not that of the restored outbox
    assert await visitors.register(link) == NOT_VALID
    assert await visitors.ask(ConfirmAddress(link=verification)) == NOT_VALID


async def test_an_account_is_told_and_nothing_else_happens(visitors: Visitors) -> None:
    user = await visitors.management.created("users", primaryEmail=new_address(), password=PASSWORD)
    address = user["primaryEmail"]
    await visitors.request(address.upper())
    (notice,) = await visitors.sent(address)
    assert (notice.kind, notice.user_id, notice.language) == ("already-registered", user["id"], "de")
    assert notice.values == {"link": "/account"}
    foreign = new_address("foreign.example")
    await visitors.allow(registration="domains", registrationDomains=["id.test"])
    await visitors.request(foreign)
    rows = await visitors.management.database.fetch("SELECT * FROM mailed_links")
    assert not {address, foreign} & {row["address"] for row in rows}
    assert await visitors.sent(address.upper()) == []


async def test_only_addresses_that_the_policy_allows_get_a_link(visitors: Visitors) -> None:
    inside, spelled = new_address("bücher.example"), new_address("XN--Bcher-KVA.Example")
    outside, below = new_address("bucher.example"), new_address("mail.bücher.example")
    policies: list[tuple[dict[str, Any], set[str]]] = [
        ({"registration": "domains", "registrationDomains": ["BÜCHER.example"]}, {inside, spelled}),
        ({"registration": "off"}, set()),
    ]
    for policy, allowed in policies:
        await visitors.allow(**policy)
        before = {each: await visitors.kinds(each) for each in (inside, spelled, outside, below)}
        for each in before:
            await visitors.request(each)
        got = {each for each, kinds in before.items() if await visitors.kinds(each) != kinds}
        assert got == allowed


async def test_a_link_ends_when_its_address_may_no_longer_register(visitors: Visitors) -> None:
    address = new_address()
    link = await visitors.requested(address)
    for policy in ({"registration": "off"}, {"registration": "domains", "registrationDomains": ["other.example"]}):
        await visitors.allow(**policy)
        assert await visitors.ask(ReadRegistration(link=link)) == NOT_VALID
        assert await visitors.register(link) == NOT_VALID
    await visitors.allow(registration="open")
    assert isinstance(await visitors.register(link), Registered)


async def test_invited_addresses_register_as_long_as_they_are_and_all_others_are_asked_for_alike(
    visitors: Visitors,
) -> None:
    own, invited, other = visitors.management, new_address(), new_address()
    known = (await own.created("users", primaryEmail=new_address()))["primaryEmail"]
    await visitors.allow(registration="invited")
    addresses = {invited, known}
    async with invitations(own, addresses) as asked:
        for address in (invited, known, other):
            await visitors.request(address)
        assert asked == [invited, known, other]
        kinds = [await visitors.kinds(each) for each in (invited, known, other)]
        assert kinds == [["registration"], ["already-registered"], []]
        link = await visitors.link(invited)
        addresses.clear()
        assert await visitors.ask(ReadRegistration(link=link)) == NOT_VALID
        assert await visitors.register(link) == NOT_VALID
        addresses.add(invited)
        assert isinstance(await visitors.register(link), Registered)


async def test_nothing_is_lost_while_nobody_tells_who_is_invited(visitors: Visitors) -> None:
    address, unavailable = new_address(), Unavailable()
    await visitors.allow(registration="invited")
    async with invitations(visitors.management, {address}):
        link = await visitors.requested(address)
    for _ in range(2 * REQUESTED_MAILS):  # this does not use up the limit
        assert await visitors.ask(RequestRegistration(address=address)) == unavailable
    assert await visitors.ask(ReadRegistration(link=link)) == unavailable
    assert await visitors.register(link) == unavailable
    assert await visitors.kinds(address) == ["registration"]
    async with invitations(visitors.management, {address}):
        assert isinstance(await visitors.register(await visitors.requested(address)), Registered)


@pytest.mark.parametrize(
    ("entered", "reason"),
    [
        ({"name": ""}, "name-not-accepted"),
        ({"name": " \t\u2003"}, "name-not-accepted"),
        ({"name": "Ada\u200bLovelace"}, "name-not-accepted"),
        ({"name": "\u202eada"}, "name-not-accepted"),
        ({"name": "A\0da"}, "name-not-accepted"),
        ({"name": "x" * 257}, "name-not-accepted"),
        ({"password": ""}, "password-not-accepted"),
        ({"password": "7 chars"}, "password-not-accepted"),
        ({"password": "x" * 257}, "password-not-accepted"),
    ],
)
async def test_a_name_or_password_that_is_not_accepted_leaves_the_link(
    visitors: Visitors, entered: dict[str, str], reason: Any
) -> None:
    address = new_address()
    link = await visitors.requested(address)
    assert await visitors.register(link, **entered) == Refused(reason=reason)
    assert await visitors.holders(address) == []
    assert isinstance(await visitors.register(link), Registered)


async def test_an_address_that_was_taken_meanwhile_is_refused_and_the_link_stays(visitors: Visitors) -> None:
    address = new_address()
    link = await visitors.requested(address)
    other = await visitors.management.created("users", primaryEmail=address.upper())
    assert await visitors.register(link) == Refused(reason="address-in-use")
    await visitors.management.client.delete(f"/api/users/{other['id']}")
    assert isinstance(await visitors.register(link), Registered)


async def test_a_newer_link_replaces_the_earlier_one_and_an_expired_one_is_not_valid(visitors: Visitors) -> None:
    address = new_address()
    first, second = await visitors.requested(address), await visitors.requested(address.upper())
    assert await visitors.register(first) == NOT_VALID
    database, tenant_id = visitors.management.database, visitors.management.tenant_id
    await database.execute("UPDATE mailed_links SET expires_at = 1 WHERE tenant_id = $1", tenant_id)
    assert await visitors.ask(ReadRegistration(link=second)) == NOT_VALID
    assert await visitors.register(second) == NOT_VALID


@pytest.mark.servers
async def test_of_many_who_spend_a_link_one_registers(visitors: Visitors) -> None:
    address = new_address()
    link, passwords = await visitors.requested(address), [f"password number {number}" for number in range(64)]
    answers = await asyncio.gather(*(visitors.register(link, password=each) for each in passwords))
    kinds = Counter(type(answer) for answer in answers)
    assert kinds[Registered] == 1
    assert kinds.keys() <= {Registered, Refused, Unavailable}  # the last if the queue of passwords is too long
    (winner,) = (each for each, answer in zip(passwords, answers, strict=True) if isinstance(answer, Registered))
    (user,) = await visitors.holders(address)
    assert await visitors.user_who_signs_in(address, winner) == user["id"]


async def test_an_address_gets_a_few_mails_in_a_window(visitors: Visitors) -> None:
    address = new_address()
    for number in range(2 * REQUESTED_MAILS):
        visitor = Visitor(address=f"192.0.2.{number}")
        assert await visitors.ask(RequestRegistration(address=address, visitor=visitor)) == SENT
    assert await visitors.kinds(address) == ["registration"] * REQUESTED_MAILS
    assert isinstance(await visitors.register(await visitors.link(address)), Registered)


@pytest.mark.parametrize(
    "address",
    ["", "ada", "a@b", "a\0@b.test", "a\r\nBcc: x@b.test", f"{'x' * 250}@b.test", '"><script>@id.test', "a,b@id.test"],
)
async def test_what_is_not_an_address_gets_no_mail(visitors: Visitors, address: str) -> None:
    assert await visitors.ask(RequestRegistration(address=address)) == Refused(reason="not-an-address")


@pytest.mark.parametrize("link", ["", "x", "0" * 43, "\0", "x" * 100_000, "' OR 1=1 --"])
async def test_what_is_not_a_link_opens_nothing(visitors: Visitors, link: str) -> None:
    assert await visitors.ask(ReadRegistration(link=link)) == NOT_VALID
    assert await visitors.register(link) == NOT_VALID


async def test_known_unknown_and_foreign_addresses_take_the_same_steps(visitors: Visitors) -> None:
    domain = f"{unique('d')}.example"
    await visitors.allow(registration="domains", registrationDomains=[domain])
    known = await visitors.management.created("users", primaryEmail=new_address(domain))
    shared, steps = Shared(visitors.management.settings, versions=VERSIONS), list[str]()
    event.listen(
        shared.connections.engine.sync_engine,
        "before_cursor_execute",
        lambda _, __, statement, *___: steps.append(statement),
    )
    taken = []
    try:
        for address in (known["primaryEmail"], new_address(domain), new_address("foreign.example")):
            steps.clear()
            await shared.links.registration.request(address, CONTEXT, visitor_address="192.0.2.1")
            taken.append([*steps])
    finally:
        await shared.connections.stop()
    assert len(taken[0]) >= 5
    assert taken[0] == taken[1] == taken[2]
    assert sum("mail_outbox" in statement for statement in taken[2]) == 1


async def test_no_registration_gives_scopes_of_the_management_api(visitors: Visitors) -> None:
    """A default role may get them while registration is open."""
    own, address = visitors.management, new_address()
    link = await visitors.requested(address)
    scopes = (await own.client.get("/api/resources/management-api/scopes")).json()
    (read,) = (each["id"] for each in scopes if each["name"] == "users:read")
    role = await own.created("roles", name=unique("r"), description="", type="User", isDefault=True, scopeIds=[read])
    assert await visitors.register(link) == Refused(reason="account-not-accepted")
    assert await visitors.holders(address) == []
    await own.client.delete(f"/api/roles/{role['id']}")
    assert isinstance(await visitors.register(link), Registered)
