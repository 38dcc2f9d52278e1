"""Refresh tokens: stored as hashes, rotated on use, with detection of replays.

Each rotation begins a new *generation* of the family. The first use of a token rotates its whole generation: its
tokens may be used again within the grace period, for a client whose response was lost, and yield siblings in the next
generation.
So a thief and the owner cannot both continue: a use after the grace period ends the family for both.

Source:
    RFC 9700 section 4.14.2 (rotation with detection of a replay).
"""

import hashlib
from typing import Final

import msgspec
from sqlalchemy import and_, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_secret
from identity_common.stores.database import database_answers
from identity_common.telemetry.logs import get_logger
from token_service.authorizations.authorizations import Authorizations, consented_from, factors_from, prolong
from token_service.authorizations.consented import Authorization
from token_service.schema import authorizations, refresh_tokens

_log = get_logger(__name__)

_PREFIX: Final = "ref_"
"""The prefix of every refresh token, so that no other kind of token can be mistaken for one."""

_FIND: Final = (
    select(
        authorizations.c.id,
        authorizations.c.user_id,
        authorizations.c.application_id,
        authorizations.c.session_id,
        authorizations.c.auth_time,
        authorizations.c.consented,
        authorizations.c.first_party,
        authorizations.c.factors,
        authorizations.c.judged_valid_after,
        refresh_tokens.c.generation,
        refresh_tokens.c.issued_at,
        refresh_tokens.c.expires_at,
        refresh_tokens.c.rotated_at,
    )
    .join_from(
        refresh_tokens,
        authorizations,
        and_(
            authorizations.c.tenant_id == refresh_tokens.c.tenant_id,
            authorizations.c.id == refresh_tokens.c.authorization_id,
        ),
    )
    .where(
        refresh_tokens.c.tenant_id == bindparam("tenant"),
        refresh_tokens.c.sha256 == bindparam("sha256"),
        refresh_tokens.c.expires_at > bindparam("now"),
        authorizations.c.ended_at.is_(None),
    )
)
_LOCK: Final = (
    select(authorizations.c.id)
    .where(
        authorizations.c.tenant_id == bindparam("tenant"),
        authorizations.c.id == bindparam("authorization"),
        authorizations.c.ended_at.is_(None),
    )
    .with_for_update(key_share=True)
)
_GENERATION: Final = (
    refresh_tokens.c.tenant_id == bindparam("tenant"),
    refresh_tokens.c.authorization_id == bindparam("authorization"),
    refresh_tokens.c.generation == bindparam("of_generation"),
)
_ROTATE: Final = (
    update(refresh_tokens)
    .where(*_GENERATION, refresh_tokens.c.rotated_at.is_(None))
    .values(rotated_at=bindparam("now"))
)
_ROTATED_AT: Final = select(func.min(refresh_tokens.c.rotated_at)).where(*_GENERATION)
_INSERT: Final = insert(refresh_tokens)


class FoundRefreshToken(msgspec.Struct, frozen=True, kw_only=True):
    """A refresh token that has not expired, of an authorization that has not ended.

    Attributes:
        authorization: Of its family.
        sha256: Its hash.
        issued_at: Milliseconds.
        expires_at: Milliseconds.
        rotated_at: When its generation was first used, milliseconds since the epoch; None before.
    """

    authorization: Authorization
    sha256: str
    generation: int
    issued_at: int
    expires_at: int
    rotated_at: int | None

    def __repr__(self) -> str:
        """Show the family instead of the hash."""
        return f"FoundRefreshToken(authorization={self.authorization.id!r}, generation={self.generation})"


class RefreshTokens:
    """The refresh tokens of one tenant.

    Args:
        engine: This service's database.
        authorizations: Redeems codes, ends families.
        tenant_id: The tenant.
        grace_s: How many seconds after its rotation a token still yields a sibling.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        authorizations: Authorizations,
        *,
        tenant_id: str,
        grace_s: float,
        clock: Clock = now_ms,
    ) -> None:
        self._engine = engine
        self._authorizations = authorizations
        self._tenant_id = tenant_id
        self._grace_ms = int(grace_s * 1000)
        self._clock = clock

    async def redeem(
        self, authorization_id: str, *, tokens_expire_at: int, issued_at: int, expires_at: int | None
    ) -> tuple[bool, str | None]:
        """Redeem the code of an authorization for its first refresh token, in one transaction.

        Args:
            authorization_id: From the code.
            tokens_expire_at: When the access token that is about to be signed will expire, milliseconds.
            issued_at: When the refresh token is issued, milliseconds since the epoch.
            expires_at: When it expires, milliseconds since the epoch; None for an authorization without one.

        Returns:
            Whether it could be redeemed, and the refresh token.
        """
        with database_answers():
            async with self._engine.begin() as connection:
                redeemed = await self._authorizations.redeem(
                    connection, authorization_id, tokens_expire_at=tokens_expire_at
                )
                if not redeemed or expires_at is None:
                    return redeemed, None
                return True, await self._insert(
                    connection, authorization_id, generation=0, issued_at=issued_at, expires_at=expires_at
                )

    async def find(self, refresh_token: str, *, application_id: str | None = None) -> FoundRefreshToken | None:
        """Return a refresh token; None if it is unknown or expired, or its family has ended.

        Args:
            refresh_token: As presented.
            application_id: The client that must own it; omitted by callers that compare it themselves.
        """
        if not refresh_token.startswith(_PREFIX):
            return None
        sha256 = hashlib.sha256(refresh_token.encode()).hexdigest()
        values = {"tenant": self._tenant_id, "sha256": sha256, "now": self._clock()}
        with database_answers():
            async with self._engine.connect() as connection:
                row = (await connection.execute(_FIND, values)).one_or_none()
        if row is None or application_id not in {None, row.application_id}:
            return None
        authorization = Authorization(
            id=row.id,
            user_id=row.user_id,
            application_id=row.application_id,
            session_id=row.session_id,
            auth_time=row.auth_time,
            consented=consented_from(row.consented),
            first_party=row.first_party,
            factors=factors_from(row.factors),
            judged_valid_after=row.judged_valid_after,
        )
        return FoundRefreshToken(
            authorization=authorization,
            sha256=sha256,
            generation=row.generation,
            issued_at=row.issued_at,
            expires_at=row.expires_at,
            rotated_at=row.rotated_at,
        )

    async def is_replayed(self, found: FoundRefreshToken) -> bool:
        """Return whether the token was used after its grace period; if so, end its family."""
        if not self._is_past_grace(found.rotated_at):
            return False
        _log.warning("refresh-token.replayed", authorization_id=found.authorization.id)
        await self._authorizations.end(found.authorization.id)
        return True

    def _is_past_grace(self, rotated_at: int | None) -> bool:
        return rotated_at is not None and self._clock() - rotated_at > self._grace_ms

    async def keep(self, found: FoundRefreshToken, *, tokens_expire_at: int) -> bool:
        """Use a token without rotating it; return whether its family is still live."""
        with database_answers():
            async with self._engine.begin() as connection:
                if not await self._lock(connection, found):
                    return False
                await prolong(connection, self._tenant_id, found.authorization.id, until=tokens_expire_at)
                return True

    async def rotate(
        self, found: FoundRefreshToken, *, tokens_expire_at: int, issued_at: int, expires_at: int
    ) -> str | None:
        """Use a token; return its successor, or None if its family has ended, or ends now because of a replay.

        Uses in a family are serialized by a lock on the authorization's row.

        Args:
            found: The token.
            tokens_expire_at: When the access token that is about to be signed will expire, milliseconds.
            issued_at: When the successor is issued, milliseconds since the epoch.
            expires_at: When it expires, milliseconds since the epoch.
        """
        family = {"tenant": self._tenant_id, "authorization": found.authorization.id}
        used, successors = ({**family, "of_generation": found.generation + place} for place in (0, 1))
        with database_answers():
            async with self._engine.begin() as connection:
                if not await self._lock(connection, found):
                    return None
                rotated_at: int | None = await connection.scalar(_ROTATED_AT, used)
                if not self._is_past_grace(rotated_at):
                    await connection.execute(_ROTATE, {**used, "now": self._clock()})
                    await prolong(connection, self._tenant_id, found.authorization.id, until=tokens_expire_at)
                    return await self._insert(
                        connection,
                        found.authorization.id,
                        generation=found.generation + 1,
                        issued_at=issued_at,
                        expires_at=expires_at,
                        rotated_at=await connection.scalar(_ROTATED_AT, successors),
                    )
        await self.is_replayed(msgspec.structs.replace(found, rotated_at=rotated_at))
        return None

    async def _lock(self, connection: AsyncConnection, found: FoundRefreshToken) -> bool:
        values = {"tenant": self._tenant_id, "authorization": found.authorization.id}
        return await connection.scalar(_LOCK, values) is not None

    async def _insert(
        self,
        connection: AsyncConnection,
        authorization_id: str,
        *,
        generation: int,
        issued_at: int,
        expires_at: int,
        rotated_at: int | None = None,
    ) -> str:
        secret = _PREFIX + new_secret()
        row = {
            "tenant_id": self._tenant_id,
            "sha256": hashlib.sha256(secret.encode()).hexdigest(),
            "authorization_id": authorization_id,
            "generation": generation,
            "issued_at": issued_at,
            "expires_at": expires_at,
            "rotated_at": rotated_at,
        }
        await connection.execute(_INSERT, row)
        return secret
