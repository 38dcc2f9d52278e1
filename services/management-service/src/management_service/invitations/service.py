"""Creates invitations, and sets the passwords of those who accept them."""

import hashlib
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.http.api_errors import ApiError, missing_by_id
from identity_common.http.audited_request import audit_user
from identity_common.identifiers import new_secret
from identity_common.outbox.changes import Changes
from identity_common.stores.database import retry_on_conflict
from management_service.invitations import store
from management_service.invitations.rules import InvitationAcceptance, StoredInvitation
from management_service.passwords.hashing import Passwords
from management_service.users.service import Users
from management_service.users.store import find_user, lock_user

_KIND: Final = "invitation"
_MS_PER_MINUTE: Final = 60_000


def _not_valid() -> ApiError:
    message = "The invitation is not valid: it was used, replaced or withdrawn, or it has expired. Ask for a new one."
    return ApiError(422, "invitation.not_valid", message)


class Invitations:
    """Invitations, each of which can be accepted once.

    Accepting needs no access token: the value of an invitation has 256 random bits, so it cannot be guessed, and no
    password is hashed for a value that is not one.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        users: Users,
        passwords: Passwords,
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._users = users
        self._passwords = passwords
        self._tenant_id = tenant_id
        self._clock = clock

    async def create(self, user_id: str, *, minutes: int, value: str | None = None) -> tuple[str, int]:
        """Create an invitation in place of the user's earlier one; return its value and when it expires.

        Args:
            user_id: Who is invited.
            minutes: How long it is valid.
            value: A new secret that the caller has stored already; by default one is drawn.

        Raises:
            ApiError: 404 for an unknown user.
        """
        await self._changes.record_action(_KIND, (user_id,), "create")
        value = value or new_secret()
        return value, await self._store(user_id, value, expires_at=self._clock() + minutes * _MS_PER_MINUTE)

    @retry_on_conflict
    async def _store(self, user_id: str, value: str, *, expires_at: int) -> int:
        async with self._changes.transaction() as transaction:
            user = await lock_user(transaction.connection, self._tenant_id, user_id)
            if user is None:
                raise missing_by_id()
            invitation = StoredInvitation(
                tenant_id=self._tenant_id,
                user_id=user_id,
                sha256=_sha256(value),
                tokens_valid_after=user.tokens_valid_after,
                expires_at=expires_at,
            )
            await store.put_invitation(transaction.connection, invitation)
        return expires_at

    async def withdraw(self, user_id: str) -> None:
        """Delete the invitation of a user, if there is one."""
        await self._changes.record_action(_KIND, (user_id,), "delete")
        async with self._changes.transaction() as transaction:
            await store.delete_invitation(transaction.connection, self._tenant_id, user_id)

    async def is_valid(self, user_id: str, value: str) -> bool:
        """Return whether this is the value of a valid invitation of a user."""
        found = await self._find(value)
        return found is not None and found.user_id == user_id

    async def accept(self, acceptance: InvitationAcceptance) -> dict[str, str]:
        """Set the password of the invited user, which invalidates the invitation and the user's earlier tokens.

        Raises:
            ApiError: 422 for an invitation that is not valid.
        """
        found = await self._find(acceptance.invitation)
        if found is None:
            raise _not_valid()
        audit_user(found.user_id)
        return await self._set_password(found, await self._passwords.hash(acceptance.password))

    @retry_on_conflict
    async def _set_password(self, found: StoredInvitation, password_hash: str) -> dict[str, str]:
        async with self._changes.transaction() as transaction:
            user = await lock_user(transaction.connection, self._tenant_id, found.user_id)
            current = await store.find_invitation(transaction.connection, self._tenant_id, found.sha256)
            if user is None or current is None or not self._is_valid(current, user.tokens_valid_after):
                raise _not_valid()
            await store.delete_invitation(transaction.connection, self._tenant_id, user.id)
            await self._users.store_password(transaction, user, password_hash)
        return transaction.revision_header

    async def _find(self, value: str) -> StoredInvitation | None:
        async with self._reader.connect() as connection:
            found = await store.find_invitation(connection, self._tenant_id, _sha256(value))
            if found is None:
                return None
            user = await find_user(connection, self._tenant_id, found.user_id)
        return found if user is not None and self._is_valid(found, user.tokens_valid_after) else None

    def _is_valid(self, invitation: StoredInvitation, tokens_valid_after: int) -> bool:
        return invitation.is_valid(now=self._clock(), tokens_valid_after=tokens_valid_after)


def _sha256(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
