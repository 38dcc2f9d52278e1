"""Mail: queued in the transaction that wants it, sealed until it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from identity_common.outbox.mail import MAX_BYTES
from identity_common.wire.mail import STREAM_MAIL, Mail, SealedMail, mail_subject, sealing_name
from tests.support.mail import MailTenant
from tests.support.management_api import Management

VALUES = {"link": "/sign-in/recovery", "minutes": "15"}
MAIL = Mail(kind="password-recovery", recipient="ada@id.test", user_id="u1", values=VALUES)


@pytest.fixture
async def mail(management: Management) -> AsyncIterator[MailTenant]:
    async with MailTenant(management) as mail:
        yield mail


@pytest.mark.servers
async def test_mail_is_queued_sealed_and_only_if_its_transaction_commits(mail: MailTenant) -> None:
    with pytest.raises(ZeroDivisionError):
        async with mail.engine.begin() as connection:
            await mail.outbox.queue(connection, msgspec.structs.replace(MAIL, recipient="never@id.test"))
            raise ZeroDivisionError
    with pytest.raises(ValueError, match="too large"):
        await mail.queue(msgspec.structs.replace(MAIL, values={"message": "a" * MAX_BYTES}))
    await mail.queue(MAIL)
    assert await mail.in_stream() == 1
    message = await mail.jetstream.get_last_msg(STREAM_MAIL, mail_subject("management", mail.tenant_id))
    assert message.data is not None
    sealed = msgspec.json.decode(message.data, type=SealedMail)
    assert msgspec.json.decode(mail.keys.open(sealed.sealed, name=sealing_name(sealed.id)), type=Mail) == MAIL
    assert b"ada@id.test" not in sealed.sealed
    assert message.headers is not None
    assert message.headers["Nats-Msg-Id"] == f"{mail.tenant_id}:mail:{sealed.id}"
    assert repr(MAIL) == "Mail(kind='password-recovery')"
