"""Mailed links in PostgreSQL."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import structs
from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_secret
from identity_common.wire.account_links import LinkContext
from management_service.links.rules import LinkKind, LinkNotValidError, MailedLink, link_sha256
from management_service.schema import mailed_links
from management_service.users.store import User, find_user, lock_user

_MS_PER_S: Final = 1000
_encode: Final = msgspec.json.Encoder().encode
_decode_context: Final = msgspec.json.Decoder(LinkContext).decode
_COLUMNS: Final = tuple(mailed_links.c[name] for name in MailedLink.__struct_fields__)
_UNEXPIRED: Final = (
    mailed_links.c.tenant_id == bindparam("tenant"),
    mailed_links.c.sha256 == bindparam("hash"),
    mailed_links.c.kind == bindparam("of_kind"),
    mailed_links.c.expires_at > bindparam("now"),
)
_FIND: Final = select(*_COLUMNS).where(*_UNEXPIRED)
_TAKE: Final = delete(mailed_links).where(*_UNEXPIRED).returning(*_COLUMNS)
_PUT: Final = insert(mailed_links)
_REPLACE: Final = _PUT.on_conflict_do_update(
    constraint=mailed_links.primary_key,
    set_={
        name: _PUT.excluded[name]
        for name in MailedLink.__struct_fields__
        if name not in {"tenant_id", "kind", "subject"}
    },
)


class OpenedLink(msgspec.Struct, frozen=True):
    """A link with its account."""

    link: MailedLink
    user: User


class MailedLinks:
    """The links of one tenant."""

    def __init__(self, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._tenant_id = tenant_id
        self._clock = clock

    async def put(
        self,
        connection: AsyncConnection,
        kind: LinkKind,
        subject: str,
        *,
        address: str,
        context: LinkContext,
        lifetime_s: int,
        user_id: str | None = None,
        tokens_valid_after: int | None = None,
    ) -> tuple[str, int]:
        """Store a link in place of the subject's earlier one; return its value and when it expires.

        Args:
            connection: Of the transaction that queues the mail.
            kind: What the link does.
            subject: What has at most one link of this kind.
            address: The e-mail address that it is sent to.
            context: Where it is requested.
            lifetime_s: How long the link is valid, in seconds.
            user_id: The account that it belongs to, if any.
            tokens_valid_after: The account's value.
        """
        value, now = new_secret(), self._clock()
        link = MailedLink(
            tenant_id=self._tenant_id,
            kind=kind,
            subject=subject,
            sha256=link_sha256(value),
            user_id=user_id,
            address=address,
            tokens_valid_after=tokens_valid_after,
            context=context,
            created_at=now,
            expires_at=now + lifetime_s * _MS_PER_S,
        )
        await connection.execute(_REPLACE, {**structs.asdict(link), "context": _encode(context).decode()})
        return value, link.expires_at

    async def find(self, connection: AsyncConnection, kind: LinkKind, value: str) -> MailedLink | None:
        """Return the unexpired link with this value; None if there is none."""
        row = (await connection.execute(_FIND, self._values(kind, value))).one_or_none()
        return None if row is None else _link(row)

    async def open(self, connection: AsyncConnection, kind: LinkKind, value: str) -> OpenedLink:
        """Return the unexpired link with this value, and its account.

        Raises:
            LinkNotValidError: There is none.
        """
        link = await self.find(connection, kind, value)
        user = (
            None if link is None or link.user_id is None else await find_user(connection, self._tenant_id, link.user_id)
        )
        if link is None or user is None:
            raise LinkNotValidError
        return OpenedLink(link, user)

    async def spend(self, connection: AsyncConnection, kind: LinkKind, value: str, *, user_id: str) -> OpenedLink:
        """Lock the account of a link, as everywhere before its relations; then delete and return the link.

        Raises:
            LinkNotValidError: The link is gone, or its account.
        """
        user = await lock_user(connection, self._tenant_id, user_id)
        link = None if user is None else await self.take(connection, kind, value)
        if user is None or link is None:
            raise LinkNotValidError
        return OpenedLink(link, user)

    async def take(self, connection: AsyncConnection, kind: LinkKind, value: str) -> MailedLink | None:
        """Delete and return it: of concurrent transactions only one gets the link, if it commits."""
        row = (await connection.execute(_TAKE, self._values(kind, value))).one_or_none()
        return None if row is None else _link(row)

    def _values(self, kind: LinkKind, value: str) -> dict[str, object]:
        return {"tenant": self._tenant_id, "hash": link_sha256(value), "of_kind": kind, "now": self._clock()}


def _link(row: Iterable[Any]) -> MailedLink:
    values = dict(zip(MailedLink.__struct_fields__, row, strict=True))
    return MailedLink(**{**values, "context": _decode_context(values["context"])})
