"""Authorizations: begun by the redemption of a code, ended by whatever ends what a client may do for a person.

Ending one is one transaction: no refresh token of it is good any more, and a revocation of its id takes every access
token along that has not expired.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Row, bindparam, delete, exists, func, or_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.background import end
from identity_common.clock import Clock, now_ms
from identity_common.logs import get_logger
from identity_common.oauth import OAuthError
from token_service.authorizations.codes import MARK_TTL_S
from token_service.authorizations.consented import Authorization, Consented
from token_service.authorizations.tables import authorizations, consents, refresh_tokens
from token_service.database import database_answers
from token_service.revocations import Revocation, Revocations

_log = get_logger(__name__)

EXPIRY_MARGIN_MS: Final = 120_000
"""A token counts a minute longer than it says, and clocks differ: so long is it remembered that it was revoked."""

_CODE_IS_FORGOTTEN_MS: Final = 2 * 1000 * MARK_TTL_S
_FORGET_EVERY_S: Final = 600

_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode_consented: Final = msgspec.json.Decoder(Consented).decode

_THIS: Final = (authorizations.c.tenant_id == bindparam("tenant"), authorizations.c.id == bindparam("authorization"))
_INSERT: Final = insert(authorizations).on_conflict_do_nothing().returning(authorizations.c.id)
_INSERT_ENDED: Final = insert(authorizations).on_conflict_do_nothing()


def _end(*which: ColumnElement[bool]) -> Any:
    return (
        update(authorizations)
        .where(authorizations.c.tenant_id == bindparam("tenant"), authorizations.c.ended_at.is_(None), *which)
        .values(ended_at=bindparam("now"))
        .returning(authorizations.c.id, authorizations.c.tokens_expire_at)
    )


_END_ONE: Final = _end(authorizations.c.id == bindparam("authorization"))
_END_OF_SESSION: Final = _end(authorizations.c.session_id == bindparam("session"))
_END_OF_SESSION_AND_APPLICATION: Final = _end(
    authorizations.c.session_id == bindparam("session"), authorizations.c.application_id == bindparam("application")
)
_END_OF_USER_AND_APPLICATION: Final = _end(
    authorizations.c.user_id == bindparam("user"), authorizations.c.application_id == bindparam("application")
)
_DELETE_CONSENTS: Final = delete(consents).where(
    consents.c.tenant_id == bindparam("tenant"),
    consents.c.user_id == bindparam("user"),
    consents.c.application_id == bindparam("application"),
)
_PROLONG: Final = (
    update(authorizations)
    .where(*_THIS)
    .values(tokens_expire_at=func.greatest(authorizations.c.tokens_expire_at, bindparam("until")))
)
_DELETE_EXPIRED_TOKENS: Final = delete(refresh_tokens).where(
    refresh_tokens.c.tenant_id == bindparam("tenant"), refresh_tokens.c.expires_at <= bindparam("now")
)
_DELETE_OVER: Final = delete(authorizations).where(
    authorizations.c.tenant_id == bindparam("tenant"),
    authorizations.c.tokens_expire_at <= bindparam("now"),
    authorizations.c.begun_at <= bindparam("begun_before"),
    or_(
        authorizations.c.ended_at.is_not(None),
        ~exists().where(
            refresh_tokens.c.tenant_id == authorizations.c.tenant_id,
            refresh_tokens.c.authorization_id == authorizations.c.id,
        ),
    ),
)


def consented_from(text: str) -> Consented:
    """Return what the column ``consented`` holds."""
    return _decode_consented(text)


async def prolong(connection: AsyncConnection, tenant_id: str, authorization_id: str, *, until: int) -> None:
    """Take note, before it is signed, until when an access token of an authorization may live (milliseconds)."""
    values = {"tenant": tenant_id, "authorization": authorization_id, "until": until + EXPIRY_MARGIN_MS}
    await connection.execute(_PROLONG, values)


class Authorizations:
    """The authorizations of one tenant."""

    def __init__(self, engine: AsyncEngine, revocations: Revocations, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._engine = engine
        self._revocations = revocations
        self._tenant_id = tenant_id
        self._clock = clock
        self._forgetting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to forget what is over, from time to time, in the background."""
        self._forgetting = asyncio.create_task(self._keep_forgetting(), name="authorizations")

    async def stop(self) -> None:
        """Stop."""
        await end(self._forgetting)

    async def begin(self, connection: AsyncConnection, authorization: Authorization, *, tokens_expire_at: int) -> bool:
        """Begin an authorization; return whether that is still possible.

        It is not when it was begun or ended before: its code is being used a second time, and the first use is known
        here even if Redis has lost its mark.

        Args:
            connection: In a transaction, with what else belongs to the redemption.
            authorization: From the code.
            tokens_expire_at: Milliseconds: until when the access token that is about to be signed will live.
        """
        values = {**self._values(authorization), "tokens_expire_at": tokens_expire_at + EXPIRY_MARGIN_MS}
        return await connection.scalar(_INSERT, {**values, "ended_at": None}) is not None

    async def end_code(self, authorization: Authorization) -> None:
        """End the authorization of a code that was used twice, also when it has not begun yet.

        Source:
            RFC 6749 section 4.1.2: all tokens that were issued for such a code are revoked.

        Raises:
            OAuthError: ``temporarily_unavailable``.
        """
        now = self._clock()
        values = {**self._values(authorization), "tokens_expire_at": now, "ended_at": now}
        with database_answers():
            async with self._engine.begin() as connection:
                await connection.execute(_INSERT_ENDED, values)
                await self._end(connection, _END_ONE, authorization=authorization.id)
        await self._revocations.copy()

    async def end(self, authorization_id: str) -> None:
        """End one authorization.

        Raises:
            OAuthError: ``temporarily_unavailable``.
        """
        await self._end_in_one(_END_ONE, authorization=authorization_id)

    async def end_of_session(self, session_id: str, *, application_id: str | None = None) -> None:
        """End the authorizations of a session: all, or those of one application (signing out).

        Raises:
            OAuthError: ``temporarily_unavailable``.
        """
        if application_id is None:
            await self._end_in_one(_END_OF_SESSION, session=session_id)
        else:
            await self._end_in_one(_END_OF_SESSION_AND_APPLICATION, session=session_id, application=application_id)

    async def withdraw_consent(self, user_id: str, application_id: str) -> bool:
        """Forget what a user has agreed to for an application, and end its authorizations; return whether it had any.

        Raises:
            OAuthError: ``temporarily_unavailable``.
        """
        values = {"user": user_id, "application": application_id}
        with database_answers():
            async with self._engine.begin() as connection:
                forgotten = await connection.execute(_DELETE_CONSENTS, {"tenant": self._tenant_id, **values})
                has_ended = await self._end(connection, _END_OF_USER_AND_APPLICATION, **values)
        await self._revocations.copy()
        return has_ended or forgotten.rowcount > 0

    async def forget_what_is_over(self) -> None:
        """Delete expired refresh tokens, and authorizations of which nothing is left.

        Raises:
            OAuthError: ``temporarily_unavailable``.
        """
        now = self._clock()
        values = {"tenant": self._tenant_id, "now": now}
        with database_answers():
            async with self._engine.begin() as connection:
                await connection.execute(_DELETE_EXPIRED_TOKENS, values)
                await connection.execute(_DELETE_OVER, {**values, "begun_before": now - _CODE_IS_FORGOTTEN_MS})

    async def _keep_forgetting(self) -> None:
        while True:
            with contextlib.suppress(OAuthError):  # it was logged where it was caught
                await self.forget_what_is_over()
            await asyncio.sleep(_FORGET_EVERY_S)

    async def _end_in_one(self, statement: Any, **which: str) -> None:
        with database_answers():
            async with self._engine.begin() as connection:
                await self._end(connection, statement, **which)
        await self._revocations.copy()

    async def _end(self, connection: AsyncConnection, statement: Any, **which: str) -> bool:
        values = {"tenant": self._tenant_id, "now": self._clock(), **which}
        ended: Sequence[Row[Any]] = (await connection.execute(statement, values)).all()
        for row in ended:
            _log.info("authorization.ended", authorization_id=row.id)
        await self._revocations.record(connection, [Revocation(row.id, row.tokens_expire_at) for row in ended])
        return bool(ended)

    def _values(self, authorization: Authorization) -> dict[str, Any]:
        return {
            **msgspec.structs.asdict(authorization),
            "tenant_id": self._tenant_id,
            "consented": _encode(authorization.consented).decode(),
            "begun_at": self._clock(),
        }
