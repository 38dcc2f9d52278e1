"""Authorizations: they begin before their code is issued, and end by sign-out, withdrawal, revocation or replay.

So an outstanding code ends with its authorization, and redeeming it is one update of the row. Ending an authorization
is one transaction: its refresh tokens become invalid, and a revocation of its id covers every live access token.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Row,
    Select,
    Text,
    any_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.audited_request import audited_request
from identity_common.authentication import UsedFactor
from identity_common.background import BackgroundLoop
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.stores.database import database_answers
from identity_common.telemetry.logs import get_logger
from token_service.audit.writes import record_write
from token_service.authorizations import consents
from token_service.authorizations.codes import MARK_TTL_S
from token_service.authorizations.consented import Authorization, Consented
from token_service.authorizations.consents import KnownConsent
from token_service.authorizations.through import Through
from token_service.presented_tokens.revocations import Revocation, Revocations
from token_service.schema import authorizations, refresh_tokens

_log = get_logger(__name__)

EXPIRY_MARGIN_MS: Final = 120_000
"""How long a revocation outlives its token: verifiers allow a minute of leeway, and clocks differ."""

_CODE_IS_FORGOTTEN_MS: Final = 2 * 1000 * MARK_TTL_S
_FORGET_EVERY_S: Final = 600
_AT_ONCE: Final = 1000

_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode_consented: Final = msgspec.json.Decoder(Consented).decode
_decode_factors: Final = msgspec.json.Decoder(tuple[UsedFactor, ...]).decode

_THIS: Final = (authorizations.c.tenant_id == bindparam("tenant"), authorizations.c.id == bindparam("authorization"))
_INSERT: Final = insert(authorizations)


def _end(*which: ColumnElement[bool]) -> Any:
    return (
        update(authorizations)
        .where(authorizations.c.tenant_id == bindparam("tenant"), authorizations.c.ended_at.is_(None), *which)
        .values(ended_at=bindparam("now"))
        .returning(authorizations.c.id, authorizations.c.tokens_expire_at)
    )


_END_ONE: Final = _end(authorizations.c.id == bindparam("authorization"))
_END_OF_SESSION: Final = _end(authorizations.c.session_id == bindparam("session"))
_END_OF_USER_AND_SESSION: Final = _end(
    authorizations.c.user_id == bindparam("user"), authorizations.c.session_id == bindparam("session")
)
_END_OF_SESSION_AND_APPLICATION: Final = _end(
    authorizations.c.session_id == bindparam("session"), authorizations.c.application_id == bindparam("application")
)
_END_OF_USER_AND_APPLICATION: Final = _end(
    authorizations.c.user_id == bindparam("user"), authorizations.c.application_id == bindparam("application")
)
_END_OF_THIRD_PARTIES: Final = _end(
    authorizations.c.first_party,
    authorizations.c.application_id == any_(bindparam("third_parties", type_=ARRAY(Text))),
)
_THROUGH: Final = (authorizations.c.tenant_id == bindparam("tenant"), authorizations.c.ended_at.is_(None))
# In the order of their ids: replicas that end the same ones wait for each other, and do not deadlock.
_END_THESE: Final = _end(
    authorizations.c.id.in_(
        select(authorizations.c.id)
        .where(*_THROUGH, authorizations.c.id == any_(bindparam("ids", type_=ARRAY(Text))))
        .order_by(authorizations.c.id)
        .with_for_update()
    )
)
_SESSION: Final = select(authorizations.c.session_id).where(*_THIS)
_PROLONG: Final = (
    update(authorizations)
    .where(*_THIS)
    .values(tokens_expire_at=func.greatest(authorizations.c.tokens_expire_at, bindparam("until")))
)
_REDEEM: Final = (
    _PROLONG.where(authorizations.c.redeemed_at.is_(None), authorizations.c.ended_at.is_(None))
    .values(redeemed_at=bindparam("now"))
    .returning(authorizations.c.id)
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


def _live_through(which: Through) -> Select[tuple[str]]:
    """Return the statement that finds some of these, with their conditions alone: each has an index of its own."""
    statement = select(authorizations.c.id).where(*_THROUGH, authorizations.c.connector_id == bindparam("connector_id"))
    if which.before is not None:
        statement = statement.where(authorizations.c.auth_time < bindparam("before"))
    if which.user_id is not None:
        statement = statement.where(authorizations.c.user_id == bindparam("user_id"))
    if which.provider_session_id is not None:
        statement = statement.where(authorizations.c.provider_session_id == bindparam("provider_session_id"))
    return statement.limit(_AT_ONCE)


def _consent(user_id: str, application_id: str) -> str:
    return f"consent/{user_id}/{application_id}"


def consented_from(text: str) -> Consented:
    """Decode the column ``consented``."""
    return _decode_consented(text)


def factors_from(text: str | None) -> tuple[UsedFactor, ...]:
    """Decode the column ``factors``."""
    return _decode_factors(text) if text else ()


async def prolong(connection: AsyncConnection, tenant_id: str, authorization_id: str, *, until: int) -> None:
    """Record when an access token will expire (milliseconds since the epoch), before it is signed."""
    values = {"tenant": tenant_id, "authorization": authorization_id, "until": until + EXPIRY_MARGIN_MS}
    await connection.execute(_PROLONG, values)


class Agreement:
    """A transaction that locks a user's consent to an application, so that it cannot be withdrawn meanwhile.

    Attributes:
        known: The consent when the transaction began.
    """

    def __init__(self, connection: AsyncConnection, tenant_id: str, known: KnownConsent, clock: Clock) -> None:
        self._connection = connection
        self._tenant_id = tenant_id
        self._clock = clock
        self._has_changed = False
        self._is_implicit = False
        self.known = known

    async def begin(self, authorization: Authorization, *, implicit: bool) -> None:
        """Begin an authorization and record what it adds to the consent, both or neither.

        Args:
            authorization: The authorization to store.
            implicit: Whether its consent is recorded without a page.
        """
        now, consented, provider = self._clock(), authorization.consented, authorization.authentication.provider
        whose = (self._tenant_id, authorization.user_id, authorization.application_id)
        self._has_changed |= await consents.add(
            self._connection, *whose, consented=consented, known=self.known, implicit=implicit, now=now
        )
        self._is_implicit = implicit
        row = {
            **msgspec.structs.asdict(authorization),
            "tenant_id": self._tenant_id,
            "consented": _encode(consented).decode(),
            "factors": _encode(authorization.factors).decode(),
            "connector_id": provider.connector_id if provider else None,
            "provider_session_id": provider.session_id if provider else None,
            "begun_at": now,
            "tokens_expire_at": now,  # no token yet
        }
        await self._connection.execute(_INSERT, row)

    async def record(self, user_id: str, application_id: str) -> None:
        """Record an audit entry if the consent has changed, as the transaction's last statement."""
        if self._has_changed:
            is_new = self.known.recorded == Consented(organizations=frozenset())
            await record_write(
                self._connection,
                self._tenant_id,
                "token.consent.imply" if self._is_implicit else f"token.consent.{'create' if is_new else 'update'}",
                aggregates=[_consent(user_id, application_id)],
                occurred_at=self._clock(),
                user_id=user_id,
                application_id=application_id,
            )


class Authorizations:
    """The authorizations of one tenant."""

    def __init__(self, engine: AsyncEngine, revocations: Revocations, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._engine = engine
        self._revocations = revocations
        self._tenant_id = tenant_id
        self._clock = clock
        self.loop = BackgroundLoop(
            self.delete_expired,
            name="authorizations",
            pause_s=_FORGET_EVERY_S,
            log=_log,
            failed="authorizations.failed",
            interrupted="authorizations.interrupted",
            expected=(StoreUnavailable,),
        )

    @asynccontextmanager
    async def agreement(
        self, user_id: str, application_id: str, *, exclusive: bool = False
    ) -> AsyncIterator[Agreement]:
        """Lock a user's consent to an application, in the transaction in which authorizations begin.

        A concurrent withdrawal waits, and then ends the new authorizations; an earlier one is visible here.

        Args:
            user_id: The user.
            application_id: The application.
            exclusive: Whether to exclude other agreements too: needed to replace the picked organizations without
                missing one.
        """
        whose = (self._tenant_id, user_id, application_id)
        with database_answers():
            async with self._engine.begin() as connection:
                known = await consents.lock(connection, *whose, exclusive=exclusive)
                agreement = Agreement(connection, self._tenant_id, known, self._clock)
                yield agreement
                await agreement.record(user_id, application_id)

    async def redeem(self, connection: AsyncConnection, authorization_id: str, *, tokens_expire_at: int) -> bool:
        """Mark an authorization's code as redeemed; return whether it could be redeemed.

        It cannot if the authorization has ended, nor a second time, even if Redis has lost the mark of the first use.

        Args:
            connection: In the redemption's transaction.
            authorization_id: From the code.
            tokens_expire_at: When the access token about to be signed will expire, milliseconds since the epoch.
        """
        until = tokens_expire_at + EXPIRY_MARGIN_MS
        values = {"tenant": self._tenant_id, "authorization": authorization_id, "until": until, "now": self._clock()}
        return await connection.scalar(_REDEEM, values) is not None

    async def end(self, authorization_id: str) -> bool:
        """End one authorization; return whether it was live."""
        return await self._end_in_one(_END_ONE, authorization=authorization_id)

    async def end_of_session(self, session_id: str, *, application_id: str | None = None) -> bool:
        """End the authorizations of a session, all or those of one application; return whether there were any."""
        if application_id is None:
            return await self._end_in_one(_END_OF_SESSION, session=session_id)
        of_application = {"session": session_id, "application": application_id}
        return await self._end_in_one(_END_OF_SESSION_AND_APPLICATION, **of_application)

    async def end_by_request(self, user_id: str, session_id: str, *, is_live: bool) -> bool:
        """End the authorizations of a user's session; return whether that ends anything, which is then recorded.

        Args:
            user_id: The user.
            session_id: The session.
            is_live: Whether the session itself still exists.
        """
        with database_answers():
            async with self._engine.begin() as connection:
                values = {"user": user_id, "session": session_id}
                has_ended = await self._end(connection, _END_OF_USER_AND_SESSION, **values)
                if has_ended or is_live:
                    await record_write(
                        connection,
                        self._tenant_id,
                        "token.session.delete",
                        aggregates=[f"session/{user_id}/{session_id}"],
                        occurred_at=self._clock(),
                        request=audited_request(),
                        user_id=user_id,
                    )
        await self._revocations.copy()
        return has_ended or is_live

    async def session_of(self, authorization_id: str) -> str | None:
        """Return the session in which an authorization began; None if it is unknown, or began without a session."""
        values = {"tenant": self._tenant_id, "authorization": authorization_id}
        with database_answers():
            async with self._engine.connect() as connection:
                session_id: str | None = await connection.scalar(_SESSION, values)
        return session_id

    async def end_of_third_parties(self, third_parties: Collection[str]) -> None:
        """End the authorizations that began while these applications were first-party."""
        await self._end_in_one(_END_OF_THIRD_PARTIES, third_parties=sorted(third_parties))

    async def end_through(self, through: Through) -> None:
        """End the authorizations that came through a connector."""
        statement = _live_through(through)
        named = {name: value for name, value in msgspec.structs.asdict(through).items() if value is not None}
        which = {"tenant": self._tenant_id, **named}
        with database_answers():
            while True:
                async with self._engine.begin() as connection:
                    ids = list(await connection.scalars(statement, which))
                    if not ids:
                        break
                    await self._end(connection, _END_THESE, ids=ids)
        await self._revocations.copy()

    async def withdraw_consent(self, user_id: str, application_id: str) -> bool:
        """Withdraw a user's consent to an application and end its authorizations; return whether there was either."""
        with database_answers():
            async with self._engine.begin() as connection:
                was_known = await consents.withdraw(connection, self._tenant_id, user_id, application_id)
                values = {"user": user_id, "application": application_id}
                has_ended = await self._end(connection, _END_OF_USER_AND_APPLICATION, **values)
                if was_known or has_ended:
                    await record_write(
                        connection,
                        self._tenant_id,
                        "token.consent.delete",
                        aggregates=[_consent(user_id, application_id)],
                        occurred_at=self._clock(),
                        request=audited_request(),
                        user_id=user_id,
                    )
        await self._revocations.copy()
        return has_ended or was_known

    async def delete_expired(self) -> None:
        """Delete expired refresh tokens, and authorizations without live tokens."""
        now = self._clock()
        values = {"tenant": self._tenant_id, "now": now}
        with database_answers():
            async with self._engine.begin() as connection:
                await connection.execute(_DELETE_EXPIRED_TOKENS, values)
                await connection.execute(_DELETE_OVER, {**values, "begun_before": now - _CODE_IS_FORGOTTEN_MS})

    async def _end_in_one(self, statement: Any, **which: object) -> bool:
        with database_answers():
            async with self._engine.begin() as connection:
                has_ended = await self._end(connection, statement, **which)
        await self._revocations.copy()
        return has_ended

    async def _end(self, connection: AsyncConnection, statement: Any, **which: object) -> bool:
        values = {"tenant": self._tenant_id, "now": self._clock(), **which}
        ended: Sequence[Row[Any]] = (await connection.execute(statement, values)).all()
        for row in ended:
            _log.info("authorization.ended", authorization_id=row.id)
        await self._revocations.record(connection, [Revocation(row.id, row.tokens_expire_at) for row in ended])
        return bool(ended)
