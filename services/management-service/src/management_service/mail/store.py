"""The mail that was given up, and what the sender looks up."""

from collections.abc import Sequence
from typing import Final

import asyncpg
from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from identity_common.wire.mail import Mail
from management_service.mail.rules import KEPT_DAYS, MAX_ANSWER, MAX_FAILURES, MailFailure, MailFailureReason
from management_service.mail.texts import Look
from management_service.schema import mail_failures

_MS_PER_DAY: Final = 86_400_000
_COLUMNS: Final = tuple(mail_failures.c[name] for name in MailFailure.__struct_fields__)
_FAILURES: Final = PagedList(
    select(*_COLUMNS)
    .where(mail_failures.c.tenant_id == bindparam("tenant"), mail_failures.c.occurred_at > bindparam("after"))
    .order_by(mail_failures.c.occurred_at.desc(), mail_failures.c.id.desc()),
    searched=(mail_failures.c.recipient, mail_failures.c.kind),
)
_EXISTS: Final = "SELECT EXISTS (SELECT FROM users WHERE tenant_id = $1 AND id = $2)"
_LOOK: Final = "SELECT name, primary_color FROM applications WHERE tenant_id = $1 AND id = $2"
# The user may have been deleted a moment ago.
_ADD: Final = """
    INSERT INTO mail_failures (tenant_id, id, kind, reason, recipient, user_id, code, answer, occurred_at)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9
    WHERE $6::text IS NULL OR EXISTS (SELECT FROM users WHERE tenant_id = $1 AND id = $6)
    ON CONFLICT DO NOTHING
"""
_FORGET: Final = """
    DELETE FROM mail_failures WHERE tenant_id = $1 AND (occurred_at, id) <= (
        SELECT occurred_at, id FROM mail_failures WHERE tenant_id = $1
        ORDER BY occurred_at DESC, id DESC OFFSET $2 LIMIT 1
    )
"""
_FORGET_OLD: Final = "DELETE FROM mail_failures WHERE tenant_id = $1 AND occurred_at <= $2"
# A row that a transaction holds is about to get a new link, or goes with its user.
_FORGET_LINKS: Final = """
    DELETE FROM mailed_links WHERE tenant_id = $1 AND (kind, subject) IN (
        SELECT kind, subject FROM mailed_links WHERE tenant_id = $1 AND expires_at <= $2 FOR UPDATE SKIP LOCKED
    ) AND expires_at <= $2
"""


async def list_failures(
    connection: AsyncConnection, tenant_id: str, page: Page, *, now: int
) -> tuple[Sequence[MailFailure], int]:
    """Return a page of the mail that was given up, the newest first, and its total."""
    values = {"tenant": tenant_id, "after": now - KEPT_DAYS * _MS_PER_DAY}
    rows, total = await _FAILURES.fetch(connection, values, page)
    return [MailFailure(*row) for row in rows], total


async def add_failure(
    connection: asyncpg.Connection,
    tenant_id: str,
    mail_id: str,
    mail: Mail,
    *,
    reason: MailFailureReason,
    code: int | None,
    answer: str,
    now: int,
) -> None:
    """Store a mail that was given up, without its text, and forget the oldest ones beyond the limit."""
    shown = "".join(each if each.isprintable() else " " for each in answer)[:MAX_ANSWER]
    row = (mail_id, mail.kind, reason, mail.recipient, mail.user_id, code, shown, now)
    async with connection.transaction():
        await connection.execute(_ADD, tenant_id, *row)
        await connection.execute(_FORGET, tenant_id, MAX_FAILURES)


async def forget_old_addresses(connection: asyncpg.Connection, tenant_id: str, *, now: int) -> None:
    """Delete failures that have been kept for long enough, and links that have expired."""
    await connection.execute(_FORGET_OLD, tenant_id, now - KEPT_DAYS * _MS_PER_DAY)
    await connection.execute(_FORGET_LINKS, tenant_id, now)


async def user_exists(connection: asyncpg.Connection, tenant_id: str, user_id: str) -> bool:
    """Return whether a user has not been deleted."""
    return bool(await connection.fetchval(_EXISTS, tenant_id, user_id))


async def look_of(connection: asyncpg.Connection, tenant_id: str, application_id: str, default: Look) -> Look:
    """Return the name and the colour of an application; the default for one that was deleted."""
    found = await connection.fetchrow(_LOOK, tenant_id, application_id)
    return default if found is None else Look(found["name"], found["primary_color"] or default.color)
