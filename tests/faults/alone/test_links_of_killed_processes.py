"""Mailed links are followed while every process is killed, in turn: each is accepted once, and no mail is lost."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes
from email.policy import SMTPUTF8
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from provision import ServerAddresses
from stead import ManagementClient
from tests.support.at_a_browser import PASSWORD, Form
from tests.support.lengths import length
from tests.support.mail import MailServer
from tests.support.processes import Deployment
from tests.support.waiting import eventually, eventually_here

pytestmark = pytest.mark.slow

PEOPLE = length(short=12, long=500)
"""As many forget their passwords, and as many others are invited."""
KILLS = length(short=3, long=60)
RIVALS = ("chosen at one browser", "chosen at another one")
DONE = {"Your password is set", "You are a member of Kestrel"}
NOT_VALID = "This link is not valid"


async def test_each_link_is_accepted_once_while_every_process_is_killed(
    own_addresses: ServerAddresses, tmp_path: Path
) -> None:
    async with MailServer() as server:
        mail = {
            "SMTP_URL": f"smtp://127.0.0.1:{server.port}",
            "SMTP_REQUIRE_TLS": "false",
            "SMTP_TIMEOUT_S": "2",  # on a busy machine an answer that comes later would double a mail
            "MAIL_FROM": "stead@id.test",
        }
        deployment = Deployment(
            own_addresses,
            tmp_path,
            token_settings={"PASSWORD_ATTEMPTS_PER_ADDRESS": "1000000"},  # all come from one address
            management_settings=mail,
        )
        try:
            await asyncio.to_thread(deployment.start)
            followers = Followers(deployment, server)
            await asyncio.to_thread(followers.ask_for_links)
            following = asyncio.create_task(asyncio.to_thread(followers.follow_all))
            for kill in range(KILLS):
                await eventually_here(lambda: followers.followed >= 2 * PEOPLE * kill // KILLS)  # noqa: B023
                process = deployment.processes[kill % len(deployment.processes)]
                process.kill()
                process.start()
            confirmed = await following
            assert confirmed <= Counter(followers.addresses)  # by one of the rivals at most
            await asyncio.to_thread(followers.require_accepted_once)
            expected = sorted([*followers.addresses, *followers.forgetful])  # a notice follows a new password
            await eventually_here(lambda: sorted(mails(server)) == expected)
            assert len(server.recipients()) <= len(expected) + KILLS
        finally:
            await asyncio.to_thread(deployment.stop)


def mails(server: MailServer) -> list[str]:
    """Return the recipient of each mail, however often it was sent."""
    return list({str(message["Message-ID"]): str(message["To"]) for message in server.messages()}.values())


class Followers:
    """People who ask for links, and follow them from two browsers at a time.

    Attributes:
        forgetful: Addresses of those who forgot their passwords.
        addresses: All addresses.
        followed: How many links have been followed.
    """

    def __init__(self, deployment: Deployment, server: MailServer) -> None:
        self._url = deployment.tokens[0].url
        self._server = server
        self._management: ManagementClient = deployment.management_client()
        self.forgetful = [f"forgetful-{number}@id.test" for number in range(PEOPLE)]
        self._invited = [f"invited-{number}@id.test" for number in range(PEOPLE)]
        self.addresses = [*self.forgetful, *self._invited]
        self.followed = 0
        self._reading = Lock()
        self._read = 0
        self._links: dict[str, str] = {}
        self._organization = self._management.organizations.create("Kestrel").id
        self._role = self._management.organization_roles.create("member").id

    def ask_for_links(self) -> None:
        for address in self.forgetful:
            self._management.users.create(primary_email=address, password=PASSWORD, is_email_verified=True)
            sent = httpx.post(f"{self._url}/sign-in/forgotten", data={"address": address}, timeout=30)
            assert heading(sent) == "Check your e-mail", sent.text
        for address in self._invited:
            self._management.organization_invitations.create(
                self._organization,
                address,
                expires_at=int((time.time() + 3600) * 1000),
                role_ids=[self._role],
                message="See you",
            )

    def follow_all(self) -> Counter[str]:
        """Return how often the link of each address was confirmed."""
        with ThreadPoolExecutor(8) as pool:
            results = pool.map(self._follow, self.addresses * 2, [RIVALS[0]] * 2 * PEOPLE + [RIVALS[1]] * 2 * PEOPLE)
            return Counter(address for address, is_confirmed in results if is_confirmed)

    def _follow(self, address: str, password: str) -> tuple[str, bool]:
        """Follow a link until an answer says what has become of it."""
        eventually(lambda: self._link(address) is not None)
        answers: list[str] = []
        eventually(lambda: bool(answers) or self._try(address, password, answers))
        self.followed += 1
        return address, answers[0] in DONE

    def _try(self, address: str, password: str, answers: list[str]) -> bool:
        link = self._link(address) or ""
        try:
            with httpx.Client(base_url=self._url, timeout=20) as browser:
                opened = browser.get(link)
                page = browser.get(urlsplit(opened.headers["Location"]).path)
                if heading(page) != NOT_VALID and page.status_code == 200:
                    form = Form(page.text)
                    typed = {"name": "Bob", "password": password, "repeated": password}
                    page = browser.post(form.action, data={**form.values, **typed})
        except (httpx.HTTPError, KeyError):
            return False
        answers.extend({heading(page)} & {*DONE, NOT_VALID})
        return bool(answers)

    def _link(self, address: str) -> str | None:
        """Return the path of the link that was mailed to an address; None until then."""
        with self._reading:
            new = self._server.envelopes[self._read :]
            self._read += len(new)
            for envelope in new:
                message = message_from_bytes(envelope.original_content or b"", policy=SMTPUTF8)
                text = message.get_body(("plain",))
                found = re.search(r"/sign-in/[a-z]+\?link=\w+", text.get_content() if text else "")
                if found is not None:
                    self._links[str(message["To"])] = found[0]
            return self._links.get(address)

    def require_accepted_once(self) -> None:
        users = {address: [*self._management.users.list(exact={"primaryEmail": address})] for address in self.addresses}
        assert {len(found) for found in users.values()} == {1}
        ids = {address: user.id for address, (user,) in users.items()}
        for operation, addresses in (("RecoverPassword", self.forgetful), ("JoinOrganization", self._invited)):
            expected = Counter(ids[address] for address in addresses)
            eventually(lambda: self._entries(operation) == expected)  # noqa: B023
        members = {each.id: each for each in self._management.organizations.users(self._organization)}
        assert {ids[address] for address in self._invited} == set(members)
        assert {tuple(role.id for role in each.organization_roles) for each in members.values()} == {(self._role,)}
        invitations = self._management.organization_invitations.list(organization_id=self._organization)
        assert [each.status for each in invitations] == ["Accepted"] * PEOPLE

    def _entries(self, operation: str) -> Counter[str | None]:
        return Counter(entry.user_id for entry in self._management.logs.list(operation=operation))


def heading(page: httpx.Response) -> str:
    found = re.search(r"<h1>(.*?)</h1>", page.text, re.DOTALL)
    return re.sub("</?bdi>", "", found[1]) if found else ""
