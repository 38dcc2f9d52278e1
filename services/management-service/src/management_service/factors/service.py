"""Shows, names and removes the factors of users; on the pages of the sign-in, users set them up."""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.access.callers import Caller, admitted
from identity_common.authentication import FactorKind
from identity_common.failures import Conflict, Refused, missing_by_id
from identity_common.names import accepted_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.stores.database import retry_on_conflict
from identity_common.wire.account_links import LinkContext
from management_service.administrators import Administrators
from management_service.attainable_scopes import AttainableScopes
from management_service.factors import passkey_store as store
from management_service.factors.authenticator_store import Authenticator, delete_authenticator, find_authenticator
from management_service.factors.changes import FactorChanges
from management_service.factors.enrolment_store import count_factors
from management_service.factors.enrolments import Enrolments
from management_service.factors.rules import MAX_PASSKEYS
from management_service.provider_people import find_people
from management_service.sign_in_policy.rules import SignInPolicy
from management_service.sign_in_policy.store import find_policy
from management_service.users.rules import language_of
from management_service.users.service import Users
from management_service.users.store import User, lock_user

MAX_REASON: Final = 256
"""Characters of the reason for a reset."""


class Factor(msgspec.Struct, frozen=True, kw_only=True):
    """A factor as its user and administrators see it.

    Attributes:
        name: Empty for an authenticator app.
        created_at: Milliseconds since the epoch.
        last_used_at: Likewise; None if it was not used yet.
        is_backed_up: Whether a passkey is synced between devices.
    """

    id: str
    kind: FactorKind
    name: str = ""
    created_at: int
    last_used_at: int | None
    is_backed_up: bool = False


class FactorsOfUser(msgspec.Struct, frozen=True, kw_only=True):
    """All factors of a user.

    Attributes:
        factors: In the order in which they were set up.
        recovery_codes: How many are left.
        can_add: What the user may set up.
        is_required: Whether the last one must stay.
    """

    factors: Sequence[Factor]
    recovery_codes: int
    can_add: Sequence[FactorKind]
    is_required: bool


def _last_factor() -> Conflict:
    return Conflict("user.last_factor", "A second factor is required here, and this is the last one.")


def _last_credential() -> Conflict:
    message = "There is no password, and this is the last passkey: nothing would remain to sign in with."
    return Conflict("user.last_credential", message)


def _has_factor() -> Conflict:
    message = "The user has a factor, and sets up another with it. Reset the factors if they are lost."
    return Conflict("user.has_factor", message)


def _own() -> Refused:
    message = "Users change their own factors on the account page: it asks for a recent sign-in with a factor."
    return Refused("user.own_factors", message)


def _off() -> Conflict:
    return Conflict("factor.off", "The sign-in policy is off: no factor can be set up here.")


class Factors:
    """The factors of a tenant's users.

    Args:
        reader: Runs each statement on its own.
        changes: Records changes.
        users: Ends sessions.
        factor_changes: What every change of factors does besides.
        enrolments: Gives leave to set up the first one.
        administrators: Keeps the last administrator.
        attainable: Refuses callers that lack what the user holds.
        offers_passkeys: Whether passkeys can be set up here.
        tenant_id: The tenant.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        users: Users,
        factor_changes: FactorChanges,
        enrolments: Enrolments,
        administrators: Administrators,
        attainable: AttainableScopes,
        *,
        offers_passkeys: bool,
        tenant_id: str,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._users = users
        self._factor_changes = factor_changes
        self._enrolments = enrolments
        self._administrators = administrators
        self._attainable = attainable
        self._offers_passkeys = offers_passkeys
        self._tenant_id = tenant_id

    async def of_user(self, user_id: str) -> FactorsOfUser:
        """Return the factors of a user, who exists."""
        async with self._reader.connect() as connection:
            passkeys = await store.find_passkeys(connection, self._tenant_id, user_id)
            authenticator = await find_authenticator(connection, self._tenant_id, user_id)
            recovery_codes = (await count_factors(connection, self._tenant_id, user_id)).recovery_codes
            mode = (await self._policy(connection)).second_factor
        factors = [_passkey(each) for each in passkeys]
        if authenticator is not None:
            factors.append(_authenticator(authenticator))
        can_add: list[FactorKind] = [] if mode == "off" else ["authenticator"]
        if can_add and self._offers_passkeys and len(passkeys) < MAX_PASSKEYS:
            can_add.append("passkey")
        return FactorsOfUser(
            factors=sorted(factors, key=lambda factor: (factor.created_at, factor.id)),
            recovery_codes=recovery_codes,
            can_add=can_add,
            is_required=mode == "required",
        )

    async def remove(self, user_id: str, factor_id: str) -> None:
        """Remove a factor of a user, for an administrator.

        Raises:
            Conflict: The tenant requires a second factor, and this is the last one; or this would end the last
                administrator.
            Refused: The caller lacks scopes that the user holds, or is the user.
        """
        await self._remove(user_id, factor_id, LinkContext())

    async def remove_own(self, caller: Caller, factor_id: str) -> None:
        """Remove a factor of the caller.

        Raises:
            Conflict: The tenant requires a second factor, and this is the last one; or nothing would remain to sign in
                with.
        """
        await self._remove(
            caller.user_id or "", factor_id, LinkContext(application_id=caller.application_id), is_own=True
        )

    @retry_on_conflict
    async def _remove(self, user_id: str, factor_id: str, context: LinkContext, *, is_own: bool = False) -> None:
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            user = await self._lock(transaction, user_id)
            kind = await self._delete(transaction.connection, user_id, factor_id)
            user = await self._factor_changes.removed(
                transaction, user, kind, _speaking(context, user), by_administrator=not is_own
            )
            if not transaction.changes:  # another one of this kind is left, so the state of the user is the same
                transaction.record_action(kind, (user_id, factor_id), "delete")
            if not user.second_factors and (await self._policy(transaction.connection)).second_factor == "required":
                raise _last_factor()
            is_last = kind == "passkey" and not user.has_password and "passkey" not in user.second_factors
            if is_own and is_last and not await self._gets_in_there(transaction.connection, user_id):
                raise _last_credential()

    @retry_on_conflict
    async def reset(self, user_id: str) -> None:
        """Remove all factors of a user with what gives leave to set up new ones, and invalidate earlier tokens.

        Raises:
            Conflict: This would end the last administrator.
            Refused: The caller lacks scopes that the user holds, or is the user.
        """
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            user = await self._lock(transaction, user_id)
            user = await self._factor_changes.remove_all(transaction, user, _speaking(LinkContext(), user))
            await self._users.invalidate_tokens(transaction, user, cause="factors")

    @retry_on_conflict
    async def create_enrolment_code(self, user_id: str) -> tuple[str, int]:
        """Return a new code with which a user sets up the first factor, and when it expires.

        Raises:
            Conflict: The user has a factor, or the policy is off.
            Refused: The caller lacks scopes that the user holds, or is the user.
        """
        async with self._changes.transaction() as transaction:
            user = await self._lock(transaction, user_id)
            if user.second_factors:
                raise _has_factor()
            if (await self._policy(transaction.connection)).second_factor == "off":
                raise _off()
            transaction.record_action("enrolment-code", (user_id,), "create")
            return await self._enrolments.create_code(transaction.connection, user_id)

    async def rename_own(self, user_id: str, factor_id: str, name: str) -> Factor:
        """Change how a user calls a passkey.

        Raises:
            Conflict: The name is not valid.
        """
        name = accepted_name(name)
        await self._rename(user_id, factor_id, name)
        found = (each for each in (await self.of_user(user_id)).factors if each.id == factor_id)
        factor = next(found, None)
        if factor is None:
            raise missing_by_id("entity.not_exists")
        return factor

    @retry_on_conflict
    async def _rename(self, user_id: str, factor_id: str, name: str) -> None:
        async with self._changes.transaction() as transaction:
            if not await store.rename_passkey(transaction.connection, self._tenant_id, user_id, factor_id, name):
                raise missing_by_id("entity.not_exists")
            transaction.record_action("passkey", (user_id, factor_id), "update")

    async def _lock(self, transaction: Transaction, user_id: str) -> User:
        """Return a user, locked, whose caller may change how it signs in.

        A caller's own user is refused but on the account page, which asks for a factor: an administrator's stolen
        session must not be enough to remove the factors that it was signed in with.
        """
        caller = admitted()
        if caller is not None and caller.user_id == user_id and not caller.is_own_account:
            raise _own()
        user = await lock_user(transaction.connection, self._tenant_id, user_id)
        if user is None:
            raise missing_by_id("entity.not_found")
        await self._attainable.require_holder(transaction.connection, "user", user_id)
        return user

    async def _delete(self, connection: AsyncConnection, user_id: str, factor_id: str) -> FactorKind:
        """Delete a factor, and return its kind."""
        if await store.delete_passkey(connection, self._tenant_id, user_id, factor_id):
            return "passkey"
        if await delete_authenticator(connection, self._tenant_id, user_id, factor_id):
            return "authenticator"
        raise missing_by_id("entity.not_found")

    async def _gets_in_there(self, connection: AsyncConnection, user_id: str) -> bool:
        """Return whether the user signs in at a provider, where a passkey is no more than a second factor."""
        return (await find_people(connection, self._tenant_id, [user_id])).get(user_id, False)

    async def _policy(self, connection: AsyncConnection) -> SignInPolicy:
        return await find_policy(connection, self._tenant_id) or SignInPolicy(tenant_id=self._tenant_id)


def _passkey(passkey: store.Passkey) -> Factor:
    return Factor(
        id=passkey.id,
        kind="passkey",
        name=passkey.name,
        created_at=passkey.created_at,
        last_used_at=passkey.last_used_at,
        is_backed_up=passkey.is_backed_up,
    )


def _authenticator(authenticator: Authenticator) -> Factor:
    return Factor(
        id=authenticator.id,
        kind="authenticator",
        created_at=authenticator.created_at,
        last_used_at=authenticator.last_used_at,
    )


def _speaking(context: LinkContext, user: User) -> LinkContext:
    """Return the context of a mail in the language of its user."""
    return msgspec.structs.replace(context, language=language_of(user.profile))
