"""The process that relays and sends mail is killed at work: no mail is lost, and each kill doubles at most one."""

import asyncio
import base64
import os
from pathlib import Path

import pytest

from identity_common.outbox.mail import MailOutbox
from identity_common.sealing import SealingKeys
from identity_common.stores.database import create_database_engine
from identity_common.wire.mail import Mail
from provision import ServerAddresses
from tests.support.lengths import length
from tests.support.mail import MailServer
from tests.support.processes import Deployment
from tests.support.waiting import eventually_here

pytestmark = pytest.mark.slow

TENANT = "mail"
"""Of its own: the processes of other tests would send the mail of theirs."""
MAILS = length(short=200, long=1000)
KILLS = length(short=3, long=20)


async def test_a_killed_process_loses_no_mail_and_doubles_at_most_the_one_it_was_sending(
    own_addresses: ServerAddresses, tmp_path: Path
) -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    mails = [
        Mail(kind="registration", recipient=f"user-{number}@id.test", values={"link": "/x", "minutes": "15"})
        for number in range(MAILS)
    ]
    async with MailServer() as server:
        settings = {
            "TENANT_ID": TENANT,
            "MAIL_KEYS": key,
            "SMTP_URL": f"smtp://127.0.0.1:{server.port}",
            "SMTP_REQUIRE_TLS": "false",
            "SMTP_TIMEOUT_S": "2",  # on a busy machine an answer that comes later would double a mail
            "MAIL_FROM": "stead@id.test",
        }
        deployment = Deployment(own_addresses, tmp_path, management_settings=settings)
        process = deployment.management
        try:
            await asyncio.to_thread(deployment.start, only=[process])
            engine = create_database_engine(own_addresses.management_database_url, service="tests", pool_size=1)
            outbox = MailOutbox(SealingKeys([key]), tenant_id=TENANT)
            async with engine.begin() as connection:
                for mail in mails:
                    await outbox.queue(connection, mail)
            await engine.dispose()
            for kill in range(1, KILLS + 1):
                await eventually_here(lambda: len(server.envelopes) >= MAILS * kill // (KILLS + 1))  # noqa: B023
                process.kill()
                process.start()
            await eventually_here(lambda: len(set(server.recipients())) == MAILS)
        finally:
            await asyncio.to_thread(deployment.stop)
    assert sorted(set(server.recipients())) == sorted(mail.recipient for mail in mails)
    assert len(server.recipients()) <= MAILS + KILLS
    assert len({message["Message-ID"] for message in server.messages()}) == MAILS
