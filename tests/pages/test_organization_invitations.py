"""The page of a link of an invitation to an organization, as a browser without scripts sees it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx2 as httpx
import pytest
import pytest_asyncio

from stead import OrganizationInvitation
from tests.pages.test_factors import CONFIRM, FactorPerson
from tests.support.administrator import CONSOLE, Administrator, errors
from tests.support.at_a_browser import PASSWORD, Form, Person, application, is_signed_in
from tests.support.at_a_browser import heading as heading_of
from tests.support.management_api import unique
from tests.support.queued_mail import QueuedMail
from tests.support.waiting import eventually
from tests.support.world import Client, World
from token_service.sign_in.pages.cookies import INVITATION

PATH = "/sign-in/invitation"


def heading(page: httpx.Response) -> str:
    return re.sub("</?bdi>", "", heading_of(page))


class Invited:
    """A person with an e-mail address and a browser, who was invited to an organization with a role."""

    def __init__(self, world: World, mails: QueuedMail) -> None:
        self._world, self._mails = world, mails
        self.address = f"{unique('bob')}@id.test"
        name = unique("Acme & <Söhne>")
        self.organization = world.management.organizations.create(name)
        self.role = world.management.organization_roles.create(unique("role"))
        self.person = Person(world)
        self.invitation: OrganizationInvitation
        self.link = ""

    async def mailed(self, **members: Any) -> None:
        """Invite the person, by a mail."""
        self.invitation = self._world.management.organization_invitations.create(
            self.organization.id,
            self.address,
            expires_at=int((time.time() + 3600) * 1000),
            role_ids=[self.role.id],
            **members,
        )
        self.link = await self._mails.link(self.address)

    def opened(self) -> Any:
        """Follow the link, and return the page."""
        answer = self.person.browser.get(PATH, params={"link": self.link})
        assert answer.headers["Location"] == f"{self._world.stack.base_url}{PATH}"
        return self.person.follow(answer)

    def has(self, **members: Any) -> str:
        """Give the person's account the invited address; return its id."""
        user_id = self.person.user_id
        self._world.management.users.update(user_id, primary_email=self.address, **members)
        return user_id

    def membership(self) -> dict[str, list[str]]:
        """Return the members of the organization, and their roles."""
        members = self._world.management.organizations.users(self.organization.id)
        return {member.id: [role.id for role in member.organization_roles] for member in members}

    def status(self) -> str:
        return self._world.management.organization_invitations.get(self.invitation.id).status


@pytest_asyncio.fixture
async def mails(world: World) -> AsyncIterator[QueuedMail]:
    settings = world.stack._stack.template
    database = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
    async with QueuedMail(database, settings.tenant_id, settings.mail_keys) as mails:
        yield mails
    await database.close()


@pytest.fixture
def invited(world: World, mails: QueuedMail) -> Invited:
    return Invited(world, mails)


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


async def test_a_person_without_an_account_chooses_a_password_and_is_a_member(world: World, invited: Invited) -> None:
    await invited.mailed(message="See you")
    page = invited.opened()
    assert (page.status_code, heading(page)) == (200, f"Join {invited.organization.name}")
    assert invited.address in page.text
    assert all(" type=" in each for each in re.findall("<input[^>]*>", page.text))  # the style goes by it
    assert page.headers["Referrer-Policy"] == "no-referrer"
    for refused, values in (
        ("differ", {"name": "Bob", "password": PASSWORD, "repeated": "x"}),
        ("8 to 256", {"name": "Bob", "password": "x", "repeated": "x"}),
        ("invisible", {"name": " ", "password": PASSWORD, "repeated": PASSWORD}),
    ):
        again = invited.person.send(page, **values)
        assert refused in again.text
    assert (invited.membership(), invited.status()) == ({}, "Pending")
    done = invited.person.send(page, name="Bob <b>", password=PASSWORD, repeated=PASSWORD)
    assert (done.status_code, heading(done)) == (200, f"You are a member of {invited.organization.name}")
    (user,) = world.management.users.list(exact={"primaryEmail": invited.address})
    assert (user.name, user.is_email_verified) == ("Bob <b>", True)
    assert (invited.membership(), invited.status()) == ({user.id: [invited.role.id]}, "Accepted")
    assert INVITATION not in invited.person.browser.cookies
    assert '<a class="button" href="/account">' in done.text
    gone = invited.opened()
    assert (gone.status_code, heading(gone)) == (400, "This link is not valid")
    assert invited.person.send(page, name="Eve", password=PASSWORD, repeated=PASSWORD).status_code == 400

    def entries() -> set[str | None]:
        found = world.management.logs.list(user_id=user.id)
        return {entry.operation for entry in found}

    eventually(lambda: "ReplaceOrganizationInvitationStatus" in entries())


async def test_the_account_with_the_address_joins_signed_in_or_not_and_another_never(
    world: World, invited: Invited, ours: Client
) -> None:
    user = invited.has(is_email_verified=True)
    await invited.mailed()
    other = Person(world)
    invited.person, owner = other, invited.person
    other.code(ours)
    assert is_signed_in(other, ours)
    page = invited.opened()
    assert f"You are signed in as <strong><bdi>{other.username}" in page.text
    assert "password" not in Form(page.text).values
    assert heading(other.send(page)) == f"You are a member of {invited.organization.name}"
    assert invited.membership() == {user: [invited.role.id]}
    assert is_signed_in(other, ours)  # and nobody else
    assert not is_signed_in(owner, ours)


async def test_an_account_with_an_unverified_address_has_to_sign_in(
    world: World, invited: Invited, ours: Client
) -> None:
    user = invited.has()
    await invited.mailed()
    page = invited.opened()
    assert "<form" not in page.text
    assert "Sign in to the account" in page.text
    forged = invited.person.browser.post(PATH, data={"link": invited.link})
    assert "This account cannot join" in forged.text
    assert (invited.membership(), invited.status()) == ({}, "Pending")
    invited.person.code(ours)
    page = invited.opened()
    assert heading(invited.person.send(page)) == f"You are a member of {invited.organization.name}"
    assert invited.membership() == {user: [invited.role.id]}
    assert world.management.users.get(user).is_email_verified


@pytest.mark.heavy
async def test_a_sign_in_that_lacks_its_second_factor_is_none(world: World, invited: Invited, ours: Client) -> None:
    """Who knows the password alone would otherwise join, and have the address verified."""
    person = FactorPerson(world)
    await asyncio.to_thread(person.with_passkey, ours)
    invited.person = person
    user = invited.has()
    await invited.mailed()
    person.leaves()
    assert heading(person.arrive(ours)) == CONFIRM
    page = invited.opened()
    assert ("<form" in page.text, "Sign in to the account" in page.text) == (False, True)
    forged = person.browser.post(PATH, data={"link": invited.link})
    assert "This account cannot join" in forged.text
    assert (invited.membership(), invited.status()) == ({}, "Pending")
    assert not world.management.users.get(user).is_email_verified


async def test_a_link_that_is_only_opened_changes_nothing_and_stays_out_of_pages(
    world: World, invited: Invited
) -> None:
    """Programs that scan mails open links, and follow redirects; the form of another site is refused."""
    invited.has(is_email_verified=True)
    await invited.mailed()
    browser = invited.person.browser
    for method in ("GET", "HEAD"):
        answer = browser.request(method, PATH, params={"link": invited.link}, follow_redirects=True)
        assert answer.status_code == 200
    assert browser.get(PATH).status_code == 200
    assert invited.status() == "Pending"
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert browser.post(PATH, data={"link": invited.link}, headers=elsewhere).status_code >= 400
    for link in ("", "x" * 43, "x" * 5000, invited.link.swapcase()):
        assert browser.post(PATH, data={"link": link}).status_code == 400
    assert invited.status() == "Pending"
    world.management.organization_invitations.revoke(invited.invitation.id)
    assert browser.post(PATH, data={"link": invited.link}).status_code == 400
    assert invited.membership() == {}


async def test_an_administrator_invites_mails_again_and_withdraws_in_the_console(
    world: World, mails: QueuedMail
) -> None:
    administrator = Administrator(world.stack, "all")
    organization = world.management.organizations.create(unique("Acme"))
    role = world.management.organization_roles.create(unique("role"))
    here, address = f"{CONSOLE}/organizations/{organization.id}/invitations", f"{unique('bob')}@id.test"
    organization_page = f"{CONSOLE}/organizations/{organization.id}"
    assert "No invitation is waiting to be accepted." in administrator.opens(organization_page).text
    page = administrator.opens(f"{here}/new")
    wrong = administrator.sends(page, invitee="bob, eve@id.test", role=role.name)
    assert (wrong.status_code, errors(wrong).keys()) == (400, {"invitee"})
    assert administrator.sends(page, invitee=address, role="nothing").status_code == 422
    assert administrator.sends(page, invitee=f" {address} ", role=role.name, message="Hi & <b>").status_code == 303
    again = administrator.sends(page, invitee=address, role=role.name)
    assert (again.status_code, errors(again).keys()) == (422, {"invitee"})
    (invitation,) = world.management.organization_invitations.list(organization_id=organization.id)
    assert invitation.inviter_id == administrator.user_id
    assert [each.id for each in invitation.organization_roles] == [role.id]
    (mail,) = await mails.to(address)
    assert mail.values["message"] == "Hi & <b>"
    for path in (here, organization_page):
        assert f'<a href="{here}/{invitation.id}"><bdi>{address}</bdi></a>' in administrator.opens(path).text
    page = administrator.opens(f"{here}/{invitation.id}")
    assert administrator.sends(page, step="send").status_code == 429
    assert administrator.sends(page, step="withdraw").status_code == 303
    assert world.management.organization_invitations.get(invitation.id).status == "Revoked"
    assert administrator.sends(page, step="withdraw").status_code == 422
    assert [address in administrator.opens(path).text for path in (here, organization_page)] == [False, False]
    assert "withdrawn" in administrator.opens(f"{here}?state=all").text
