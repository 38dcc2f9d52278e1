"""Mail: queued in the transaction that wants it, sealed until it is sent."""

from __future__ import annotations

import base64
import os

import msgspec
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from identity_common.outbox.mail import MailOutbox
from identity_common.sealing import SealingKeys
from identity_common.wire.mail import Mail, sealing_name
from tests.support.management_api import Management, unique

KEYS = SealingKeys([base64.b64encode(os.urandom(32)).decode()])
VALUES = {"link": "/sign-in/recovery", "minutes": "15"}
MAIL = Mail(kind="password-recovery", recipient="ada@id.test", user_id="u1", values=VALUES)


async def test_mail_is_queued_sealed_and_only_if_its_transaction_commits(management: Management) -> None:
    tenant_id = unique("mail")
    outbox = MailOutbox(KEYS, tenant_id=tenant_id, clock=lambda: 42)
    engine = create_async_engine(management.settings.database_url)
    with pytest.raises(ZeroDivisionError):
        async with engine.begin() as connection:
            await outbox.queue(connection, msgspec.structs.replace(MAIL, recipient="never@id.test"))
            raise ZeroDivisionError
    async with engine.begin() as connection:
        await outbox.queue(connection, MAIL)
    await engine.dispose()
    query = "SELECT id, sealed, created_at FROM mail_outbox WHERE tenant_id = $1"
    (row,) = await management.database.fetch(query, tenant_id)
    opened = KEYS.open(row["sealed"], name=sealing_name(row["id"]))
    assert (msgspec.json.decode(opened, type=Mail), row["created_at"]) == (MAIL, 42)
    assert b"ada@id.test" not in row["sealed"]
    assert repr(MAIL) == "Mail(kind='password-recovery')"
