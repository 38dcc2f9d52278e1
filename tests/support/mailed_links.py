"""Links in mails: requested, opened and spent as token-service does it, and read from the mails."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec
import nats
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from identity_common.sealing import SealingKeys
from identity_common.wire.account_links import (
    AccountLinkRequests,
    Answer,
    LinkContext,
    LinkRequested,
    Question,
    RequestRecovery,
)
from identity_common.wire.audit import AuditEntry
from identity_common.wire.mail import STREAM_MAIL, Mail, SealedMail, mail_subject, sealing_name
from identity_common.wire.password_check import PasswordAnswer, PasswordQuestion, password_check_subject
from management_service.settings import Settings
from tests.support.audit_entries import entries_on_the_bus
from tests.support.management_api import Management, unique
from tests.support.waiting import WAIT_S

_PENDING = "SELECT count(*) FROM mail_outbox WHERE tenant_id = $1"
PASSWORD = "correct horse battery staple"
SENT = LinkRequested(minutes=15)
CONTEXT = LinkContext(language="de", application_id="an-application", request_id="a-request")


class Pages:
    """Sends the same requests as token-service, and reads the mails."""

    def __init__(self, management: Management, client: Client) -> None:
        self.management = management
        self._client = client
        self._requests = AccountLinkRequests(
            SealingKeys(management.settings.environment_variable_keys), tenant_id=management.tenant_id
        )

    async def ask(self, question: Question) -> Answer:
        sealed = self._requests.seal_question(question)
        reply = await self._client.request(self._requests.subject, sealed, timeout=20)
        return self._requests.open_answer(reply.data, sealed_question=sealed)

    async def user(self, **members: Any) -> dict[str, Any]:
        """Create a user with an e-mail address and a password."""
        address = f"{unique('ada')}@id.test"
        return dict(
            await self.management.created("users", **{"primaryEmail": address, "password": PASSWORD, **members})
        )

    async def sent(self, recipient: str) -> list[Mail]:
        """Return the mails to a recipient."""
        return [mail for mail in await mails_of(self.management.settings) if mail.recipient == recipient]

    async def link(self, recipient: str) -> str:
        """Return the link in the last mail to a recipient."""
        return (await self.sent(recipient))[-1].values["link"].partition("?link=")[2]

    async def recovery(self, user: dict[str, Any]) -> str:
        """Request a link for a forgotten password, and return it from the mail."""
        question = RequestRecovery(address=user["primaryEmail"], context=CONTEXT)
        assert await self.ask(question) == SENT
        return await self.link(user["primaryEmail"])

    async def verification(self, user: dict[str, Any]) -> str:
        """Have a link for a user's present address mailed, and return it."""
        answer = await self.management.client.post(f"/api/users/{user['id']}/verification-email")
        assert answer.status_code == 204, answer.text
        return await self.link(user["primaryEmail"])

    async def signs_in(self, user: dict[str, Any], password: str) -> bool:
        question = PasswordQuestion(user["primaryEmail"], password)
        subject = password_check_subject(self.management.tenant_id)
        message = await self._client.request(subject, msgspec.json.encode(question), timeout=20)
        return bool(msgspec.json.decode(message.data, type=PasswordAnswer).user_id == user["id"])

    async def entry(self, operation: str, user_id: str) -> AuditEntry:
        """Return the entry of an operation of a user in the audit trail, once it is there."""
        subject = f"identity-audit.{self.management.tenant_id}.management"
        async with asyncio.timeout(WAIT_S):
            while True:
                for entry in await entries_on_the_bus(self.management._jetstream, subject):
                    if (entry.operation, entry.user_id) == (operation, user_id):
                        return entry
                await asyncio.sleep(0.05)


async def mails_of(settings: Settings) -> list[Mail]:
    """Return all mails of management-service that wait to be sent, oldest first, once its outbox is empty."""
    database = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
    async with asyncio.timeout(WAIT_S):
        while await database.fetchval(_PENDING, settings.tenant_id):  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.01)
    await database.close()
    keys, subject = SealingKeys(settings.mail_keys), mail_subject("management", settings.tenant_id)
    client = await nats.connect(settings.nats_url, inbox_prefix="_INBOX_management")
    found, sequence = [], 1
    try:
        while True:
            message = await client.jetstream(timeout=WAIT_S).get_msg(STREAM_MAIL, sequence, subject, next=True)
            sealed = msgspec.json.decode(message.data or b"", type=SealedMail)
            found.append(msgspec.json.decode(keys.open(sealed.sealed, name=sealing_name(sealed.id)), type=Mail))
            sequence = (message.seq or 0) + 1
    except NotFoundError:
        return found
    finally:
        await client.close()
