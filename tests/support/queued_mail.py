"""Mail that a service has queued, whether or not it is on its way by now."""

from typing import Self

import asyncpg
import msgspec

from identity_common.sealing import SealingKeys
from identity_common.wire.mail import Mail, sealing_name

_INSTALL = """
    CREATE SCHEMA IF NOT EXISTS observed_mail;
    CREATE TABLE IF NOT EXISTS observed_mail.queued (
        number bigint GENERATED ALWAYS AS IDENTITY, tenant_id text, id text, sealed bytea
    );
    CREATE OR REPLACE FUNCTION observed_mail.remember() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO observed_mail.queued (tenant_id, id, sealed) VALUES (new.tenant_id, new.id, new.sealed);
        RETURN NULL;
    END $$;
    CREATE OR REPLACE TRIGGER observed AFTER INSERT ON mail_outbox
        FOR EACH ROW EXECUTE FUNCTION observed_mail.remember();
"""


class QueuedMail:
    """The mail of one tenant, as it was committed to the outbox of a service.

    Args:
        database: A connection to the database of the service.
        tenant_id: The tenant.
        keys: ``MAIL_KEYS`` of the service.
    """

    def __init__(self, database: asyncpg.Connection, tenant_id: str, keys: tuple[str, ...]) -> None:
        self._database = database
        self._tenant_id = tenant_id
        self._keys = SealingKeys(keys)

    async def __aenter__(self) -> Self:
        await self._database.execute(_INSTALL)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._database.execute("DROP SCHEMA observed_mail CASCADE")

    async def to(self, recipient: str) -> list[Mail]:
        """Return the mail to an address, in the order in which it was queued."""
        rows = await self._database.fetch(
            "SELECT id, sealed FROM observed_mail.queued WHERE tenant_id = $1 ORDER BY number", self._tenant_id
        )
        opened = [self._keys.open(row["sealed"], name=sealing_name(row["id"])) for row in rows]
        mails = [msgspec.json.decode(each, type=Mail) for each in opened]
        return [mail for mail in mails if mail.recipient == recipient]

    async def link(self, recipient: str) -> str:
        """Return the link in the last mail to an address, without its path."""
        return (await self.to(recipient))[-1].values["link"].partition("?link=")[2]
