"""Mailed links are followed while every process is killed, in turn: each is accepted once, and no mail is lost."""

from __future__ import annotations

import asyncio
import itertools
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

ROUNDS = length(short=1, long=10)
"""In each, links are requested and followed: on a slow machine, those of all rounds together would expire."""
PEOPLE = length(short=12, long=50)
"""As many forget their passwords in a round, and as many others are invited."""
KILLS = length(short=3, long=6)
"""In a round."""
AT_ONCE = 8
STANDSTILL_S = 300
"""How long the processes may take to start again, and a link to be followed, on a busy machine."""
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
            victims = itertools.cycle(deployment.processes)
            for number in range(ROUNDS):
                await asyncio.to_thread(followers.ask_for_links, number)
                following = asyncio.create_task(asyncio.to_thread(followers.follow_all))
                for kill in range(KILLS):
                    due = len(followers.visits) * kill // KILLS
                    await eventually_here(lambda: following.done() or followers.followed >= due, within_s=STANDSTILL_S)  # noqa: B023
                    process = next(victims)
                    process.kill()
                    process.start()
                await following
                for process in deployment.processes:
                    await asyncio.to_thread(process.wait_until_ready)
            assert followers.confirmed <= Counter(followers.addresses)  # by one of the rivals at most
            await asyncio.to_thread(followers.require_accepted_once)
            expected = sorted([*followers.addresses, *followers.forgetful])  # a notice follows a new password
            await eventually_here(lambda: sorted(mails(server)) == expected)
            assert len(server.recipients()) <= len(expected) + ROUNDS * KILLS
        finally:
            await asyncio.to_thread(deployment.stop)


def mails(server: MailServer) -> list[str]:
    """Return the recipient of each mail, however often it was sent."""
    return list({str(message["Message-ID"]): str(message["To"]) for message in server.messages()}.values())


class Followers:
    """People who ask for links, and follow them from two browsers at a time.

    Attributes:
        forgetful: Addresses of those who forgot their passwords.
        invited: Addresses of the others.
        visits: Each address of this round twice, with the password that is chosen at one browser and at the other.
        followed: How many of the visits are over.
        confirmed: How often the link of each address was confirmed.
    """

    def __init__(self, deployment: Deployment, server: MailServer) -> None:
        self._url = deployment.tokens[0].url
        self._server = server
        self._management: ManagementClient = deployment.management_client()
        self.forgetful: list[str] = []
        self.invited: list[str] = []
        self.visits: list[tuple[str, str]] = []
        self.followed = 0
        self.confirmed: Counter[str] = Counter()
        self._lock = Lock()
        self._read = 0
        self._links: dict[str, str] = {}
        self._organization = self._management.organizations.create("Kestrel").id
        self._role = self._management.organization_roles.create("member").id

    @property
    def addresses(self) -> list[str]:
        """All addresses."""
        return [*self.forgetful, *self.invited]

    def ask_for_links(self, number: int) -> None:
        invited = [f"invited-{number}-{each}@id.test" for each in range(PEOPLE)]
        forgetful = [f"forgetful-{number}-{each}@id.test" for each in range(PEOPLE)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for asked in (pool.map(self._invite, invited), pool.map(self._forget, forgetful)):
                assert all(asked)
        self.invited += invited
        self.forgetful += forgetful
        self.visits = [(address, password) for address in (*forgetful, *invited) for password in RIVALS]
        self.followed = 0

    def _invite(self, address: str) -> bool:
        invitation = self._management.organization_invitations.create(
            self._organization,
            address,
            expires_at=int((time.time() + 3600) * 1000),
            role_ids=[self._role],
            message="See you",
        )
        return invitation.status == "Pending"

    def _forget(self, address: str) -> bool:
        self._management.users.create(primary_email=address, password=PASSWORD, is_email_verified=True)
        sent = httpx.post(f"{self._url}/sign-in/forgotten", data={"address": address}, timeout=30)
        return heading(sent) == "Check your e-mail"

    def follow_all(self) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            assert len([*pool.map(self._follow, self.visits)]) == len(self.visits)

    def _follow(self, visit: tuple[str, str]) -> None:
        """Follow a link until an answer says what has become of it."""
        address, password = visit
        eventually(lambda: self._link(address) is not None, within_s=STANDSTILL_S)
        answers: list[str] = []
        with httpx.Client(base_url=self._url, timeout=20) as browser:
            eventually(lambda: bool(answers) or self._try(browser, address, password, answers), within_s=STANDSTILL_S)
        with self._lock:
            self.followed += 1
            self.confirmed[address] += answers[0] in DONE

    def _try(self, browser: httpx.Client, address: str, password: str, answers: list[str]) -> bool:
        try:
            opened = browser.get(self._link(address) or "")
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
        with self._lock:
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
        for operation, addresses in (("RecoverPassword", self.forgetful), ("JoinOrganization", self.invited)):
            expected = Counter(ids[address] for address in addresses)
            eventually(lambda: self._entries(operation) == expected)  # noqa: B023
        members = {each.id: each for each in self._management.organizations.users(self._organization)}
        assert {ids[address] for address in self.invited} == set(members)
        assert {tuple(role.id for role in each.organization_roles) for each in members.values()} == {(self._role,)}
        invitations = self._management.organization_invitations.list(organization_id=self._organization)
        assert [each.status for each in invitations] == ["Accepted"] * len(self.invited)

    def _entries(self, operation: str) -> Counter[str | None]:
        return Counter(entry.user_id for entry in self._management.logs.list(operation=operation))


def heading(page: httpx.Response) -> str:
    found = re.search(r"<h1>(.*?)</h1>", page.text, re.DOTALL)
    return re.sub("</?bdi>", "", found[1]) if found else ""
