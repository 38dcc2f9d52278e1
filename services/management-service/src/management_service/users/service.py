"""Creates, reads, changes, suspends and deletes users."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.authentication import FactorKind
from identity_common.clock import Clock, now_ms
from identity_common.failures import (
    Conflict,
    Issue,
    body_too_large,
    duplicate,
    invalid_input,
    missing_by_id,
)
from identity_common.fields import FreeForm, free_form_text, is_too_large, merged
from identity_common.identifiers import new_short_id
from identity_common.names import accepted_name, canonical_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.stores.database import cancelled, refusals, retry_on_conflict
from identity_common.stores.lookups import Lookups
from identity_common.wire.events import AssignmentState, ProviderGroupsState, UserState
from management_service.administrators import IDENTIFIERS, Administrators
from management_service.attainable_scopes import AttainableScopes
from management_service.party_ends import Cause, put_party_end, user_party
from management_service.passwords.attempts import SignInAttempts
from management_service.passwords.digests import Algorithm, objection
from management_service.passwords.hashing import Passwords
from management_service.phone_numbers import is_phone_number
from management_service.provider_people import signs_in_at_provider
from management_service.users import rules, store
from management_service.users.store import User

SEARCH_TIMEOUT_S = 1

RecordDefaultRoles = Callable[[Transaction, Sequence[str], tuple[str, ...]], Awaitable[None]]
"""Checks and records the default roles of new users, in the transaction that creates them with these.

Roles belong to another package.
"""


def phone_in_use() -> Conflict:
    """Return the refusal of a telephone number that another user has."""
    return duplicate("user.phone_already_in_use", "The telephone number is in use.")


REFUSALS: Final[Mapping[str, Callable[[], Conflict]]] = {
    "users_username_unique": lambda: duplicate("user.username_already_in_use", "The username is in use."),
    "users_primary_email_unique": lambda: duplicate("user.email_already_in_use", "The e-mail address is in use."),
    "users_primary_phone_unique": phone_in_use,
    "users_external_id_unique": lambda: duplicate("user.external_id_already_in_use", "The external id is in use."),
}


def _last_identifier() -> Conflict:
    message = "A user name, an e-mail address or a telephone number must remain to sign in with."
    return Conflict("user.last_identifier", message)


def _without_effect() -> Conflict:
    message = "The user signs in at the provider of a connector: without allowsPassword, a password has no effect."
    return Conflict("user.signs_in_at_provider", message)


def _search_too_slow() -> Conflict:
    # Not TemporarilyUnavailable: a client that retries would occupy the database with the same search again.
    message = (
        f"The search took longer than {SEARCH_TIMEOUT_S} s. Search one field: search.<field> with mode.<field>=exact."
    )
    return Conflict("user.search_too_slow", message)


def user_state(user: User) -> UserState:
    """Return the state of a user for its event."""
    return UserState(
        id=user.id,
        username=user.username,
        primary_email=user.primary_email,
        primary_phone=user.primary_phone,
        name=user.name,
        avatar=user.avatar,
        external_id=user.external_id,
        is_email_verified=user.is_email_verified,
        has_password=user.has_password,
        is_suspended=user.is_suspended,
        tokens_valid_after=user.tokens_valid_after,
        second_factors=tuple(user.second_factors),
        custom_data=Raw(user.custom_data.encode()),
        profile=Raw(user.profile.encode()),
        created_at=user.created_at,
        updated_at=user.updated_at,
    )


def _checked(body: rules.UserCreation | rules.MovedUser | rules.UserUpdate) -> dict[str, Any]:
    """Return the given members, as they are stored.

    Raises:
        Conflict: A telephone number does not have the international form, or a password digest is not accepted.
    """
    problems = [Issue(path=path, message=message) for path, message in rules.problems(body)]
    if problems:
        raise invalid_input(*problems)
    members = {name: getattr(body, name, UNSET) for name in rules.UserUpdate.__struct_fields__}
    given: dict[str, Any] = {name: value for name, value in members.items() if value is not UNSET}
    for name in ("custom_data", "profile"):
        if name in given:
            given[name] = free_form_text(given[name])
            if is_too_large(given[name]):
                raise body_too_large()
    for name in ("username", "primary_email"):
        if given.get(name) is not None:
            given[name] = rules.canonical(given[name])
    if given.get("primary_phone") is not None and not is_phone_number(given["primary_phone"]):
        message = "The telephone number must have its international form (E.164), for example +4915112345678."
        raise Conflict("user.invalid_phone", message)
    if isinstance(body, rules.UserCreation | rules.MovedUser):
        _require_acceptable(body.password_algorithm, body.password_digest)
    return given


def _require_acceptable(algorithm: Algorithm | None, digest: str | None) -> None:
    if algorithm is not None and digest is not None and (reason := objection(algorithm, digest)):
        raise Conflict("user.unacceptable_password_digest", f"The password digest is not accepted: {reason}.")


def _changes_credentials(user: User, changed: User) -> bool:
    """Return whether another person may be able to sign in as the user after this change."""
    is_lifted = user.is_suspended and not changed.is_suspended
    is_allowed = changed.allows_password and not user.allows_password
    return (
        is_lifted
        or is_allowed
        or any(getattr(user, name) != getattr(changed, name) for name in (*IDENTIFIERS, "is_email_verified"))
    )


def _person_name(name: str | None, *, stored: str | None = None) -> str | None:
    """Return the given name of a user as it is stored; a blank one is none, and an unchanged one is kept."""
    if name is None or not (name == stored or canonical_name(name)):
        return None
    return accepted_name(name, stored=stored)


class Users:
    """Users, each a separate aggregate on the bus."""

    def __init__(
        self,
        reader: AsyncEngine,
        lookups: Lookups,
        changes: Changes,
        passwords: Passwords,
        attempts: SignInAttempts,
        administrators: Administrators,
        attainable: AttainableScopes,
        *,
        searcher: AsyncEngine,
        record_default_roles: RecordDefaultRoles,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._searcher = searcher  # its database cancels statements after SEARCH_TIMEOUT_S
        self._changes = changes
        self._passwords = passwords
        self._attempts = attempts
        self._administrators = administrators
        self._attainable = attainable
        self._record_default_roles = record_default_roles
        self._tenant_id = tenant_id
        self._clock = clock

    async def create(self, creation: rules.UserCreation) -> User:
        """Create a user with the default roles.

        Raises:
            Conflict: A user name, e-mail address or telephone number is in use; or the number or the name is not valid.
        """
        user, password = self.new_user(creation), creation.password
        digest = creation.password_digest if password is None else await self._passwords.hash(password)
        await self._create(user, digest)
        return user

    def new_user(self, creation: rules.UserCreation | rules.MovedUser) -> User:
        """Return a new user, who is not stored yet.

        Raises:
            Conflict: The telephone number or the name is not valid.
        """
        members = _checked(creation)
        members["name"] = _person_name(creation.name)
        members["is_email_verified"] = creation.is_email_verified and creation.primary_email is not None
        now = self._clock()
        return User(
            tenant_id=self._tenant_id,
            id=new_short_id(),
            has_password=creation.has_password,
            created_at=now,
            updated_at=now,
            **members,
        )

    @retry_on_conflict
    async def _create(self, user: User, password_hash: str | None) -> None:
        async with self._changes.transaction() as transaction:
            await self.store_new(transaction, user, password_hash)

    async def store_new(self, transaction: Transaction, user: User, password_hash: str | None) -> None:
        """Store and record a new user with the default roles.

        Raises:
            Conflict: A user name, e-mail address or telephone number is in use.
        """
        if await store.has_legacy_phone(transaction.connection, user):
            raise phone_in_use()
        with refusals(REFUSALS):
            role_ids = await store.insert_user(transaction.connection, user, password_hash=password_hash)
        transaction.record("user", (user.id,), "created", user_state(user))
        await self._record_default_roles(transaction, [user.id], role_ids)

    async def store_all(self, transaction: Transaction, moved: Sequence[tuple[User, str | None]]) -> set[str]:
        """Store and record new users with the default roles, except those with a key that is in use.

        Args:
            transaction: The transaction.
            moved: The users, and the digests of their passwords.

        Returns:
            The ids of those that were stored.
        """
        added, role_ids = await store.insert_users(transaction.connection, moved)
        stored = [user for user, _ in moved if user.id in added]
        for user in stored:
            transaction.record("user", (user.id,), "created", user_state(user))
        await self._record_default_roles(transaction, [user.id for user in stored], role_ids)
        return added

    async def get(self, user_id: str) -> User:
        """Return a user."""
        user = await store.look_up_user(self._lookups, self._tenant_id, user_id)
        if user is None:
            raise missing_by_id()
        return user

    async def list_users(
        self, page: Page, search: rules.UserSearch, *, without: Sequence[str]
    ) -> tuple[list[User], int]:
        """Return a page of the users that match a search, except the ids in ``without``, and the total of matches.

        Raises:
            Conflict: The search takes too long.
        """
        async with self.listing(is_search=bool(search.text or search.fields)) as connection:
            return await store.list_users(connection, self._tenant_id, page, search, without=without)

    @asynccontextmanager
    async def listing(self, *, is_search: bool) -> AsyncGenerator[AsyncConnection, None]:
        """Provide a connection for a list; a search in users takes none of those of other requests, and not long.

        Raises:
            Conflict: The search takes too long.
        """
        reader = self._searcher if is_search else self._reader
        with cancelled(_search_too_slow):
            async with reader.connect() as connection:
                yield connection

    @retry_on_conflict
    async def update(self, user_id: str, update: rules.UserUpdate, *, keeps_identifier: bool = False) -> User:
        """Change the given members of a user.

        Args:
            user_id: The user.
            update: The changes.
            keeps_identifier: Whether the user must keep something to sign in with.

        Raises:
            Conflict: A name, address or number is in use or not valid; or this would end the last administrator, or
                leave nothing to sign in with.
        """
        members = _checked(update)
        async with self._changes.transaction() as transaction, self._kept(transaction, members):
            user = await self._lock(transaction, user_id, otherwise="entity.not_exists")
            if update.name is not UNSET:
                members["name"] = _person_name(update.name, stored=user.name)
            members["is_email_verified"] = rules.is_email_verified(
                before=user.primary_email,
                after=members.get("primary_email", user.primary_email),
                was_verified=user.is_email_verified,
                given=update.is_email_verified,
            )
            changed = await self._store_change(transaction, user, members)
            if keeps_identifier and user.identifier is not None and changed.identifier is None:
                raise _last_identifier()
            return changed

    async def merge_custom_data(self, user_id: str, members: FreeForm) -> User:
        """Change members of a user's custom data; null removes one."""
        return await self._merge(user_id, "custom_data", members)

    async def merge_profile(self, user_id: str, members: FreeForm) -> User:
        """Change members of a user's profile; null removes one."""
        return await self._merge(user_id, "profile", members)

    @retry_on_conflict
    async def _merge(self, user_id: str, name: Literal["custom_data", "profile"], members: FreeForm) -> User:
        async with self._changes.transaction() as transaction:
            user = await self._lock(transaction, user_id)
            text = free_form_text(merged(getattr(user, name), members))
            if is_too_large(text):
                raise body_too_large()
            return await self._store_change(transaction, user, {name: text})

    @retry_on_conflict
    async def set_suspended(self, user_id: str, *, is_suspended: bool) -> User:
        """Suspend a user, which permanently invalidates its earlier tokens, or lift the suspension.

        Raises:
            Conflict: This would end the last administrator.
        """
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            user = await self._lock(transaction, user_id)
            if user.is_suspended != is_suspended:
                # Lifting invalidates tokens too: those minted while the suspension was being committed.
                members = {"is_suspended": is_suspended, "tokens_valid_after": self._next_tokens_valid_after(user)}
                user = await self._store_change(transaction, user, members)
        return user

    async def set_password(self, user_id: str, password: str) -> User:
        """Set a user's password, which invalidates earlier tokens."""
        return await self._set_password_hash(user_id, await self._passwords.hash(password))

    @retry_on_conflict
    async def _set_password_hash(self, user_id: str, password_hash: str) -> User:
        async with self._changes.transaction() as transaction:
            return await self.store_password(transaction, await self._lock(transaction, user_id), password_hash)

    async def store_password(self, transaction: Transaction, user: User, password_hash: str) -> User:
        """Store and record a new password of a locked user, which invalidates earlier tokens.

        Raises:
            Conflict: The user signs in at a provider.
        """
        if await signs_in_at_provider(transaction.connection, self._tenant_id, user.id):
            raise _without_effect()
        members = {"has_password": True, "tokens_valid_after": self._next_tokens_valid_after(user)}
        return await self._store_change(transaction, user, members, password_hash=password_hash, cause="password")

    async def invalidate_tokens(self, transaction: Transaction, user: User, *, cause: Cause) -> User:
        """Invalidate the earlier tokens of a locked user, and end its sessions, for another reason than a password."""
        members = {"tokens_valid_after": self._next_tokens_valid_after(user)}
        return await self._store_change(transaction, user, members, cause=cause)

    async def store_verified_email(self, transaction: Transaction, user: User, address: str) -> User:
        """Store and record the e-mail address of a locked user, which has proved that it receives mail there.

        Raises:
            Conflict: Another user has the address; or it would end the last administrator, whose password a connector
                closes.
        """
        members = {"primary_email": rules.canonical(address), "is_email_verified": True}
        async with self._administrators.kept(transaction.connection):
            return await self._store_change(transaction, user, members)

    async def store_profile(
        self, transaction: Transaction, user: User, *, name: str | None, avatar: str | None, verified_email: str | None
    ) -> User:
        """Store and record what a provider says about a locked user; None keeps a member.

        Raises:
            Conflict: Another user has the address.
        """
        members: dict[str, Any] = {"name": name, "avatar": avatar, "primary_email": verified_email}
        members = {member: value for member, value in members.items() if value is not None}
        if verified_email is not None:
            members["is_email_verified"] = True
        return await self._store_change(transaction, user, members)

    async def store_second_factors(self, transaction: Transaction, user: User, kinds: Sequence[FactorKind]) -> User:
        """Store and record which kinds of second factors a locked user has, sorted."""
        return await self._store_change(transaction, user, {"second_factors": list(kinds)})

    async def clear_sign_in_attempts(self, user_id: str) -> None:
        """Reset the count of wrong passwords, so that the user may sign in again at once."""
        user = await self.get(user_id)
        await self.require_attainable(user_id)
        await self._changes.record_action("sign-in-attempts", (user_id,), "clear")
        await self._attempts.clear(user_id, tokens_valid_after=user.tokens_valid_after)

    async def require_attainable(self, user_id: str) -> None:
        """Refuse a caller that lacks what the user holds, before a write that may lead to the user's password."""
        async with self._reader.connect() as connection:
            await self._attainable.require_holder(connection, "user", user_id)

    @retry_on_conflict
    async def delete(self, user_id: str) -> None:
        """Delete a user with its relations.

        Raises:
            Conflict: This would end the last administrator.
        """
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            identity_ids = await store.signed_in_identities(transaction.connection, self._tenant_id, user_id)
            if not await store.delete_user(transaction.connection, self._tenant_id, user_id):
                raise missing_by_id("entity.not_found")
            await self._record_end(transaction, user_id, "deleted")
            transaction.record("user", (user_id,), "deleted", UserState(id=user_id, deleted=True))
            assignment = AssignmentState(id=user_id, deleted=True, holder_kind="user")
            transaction.record("assignment", ("user", user_id), "deleted", assignment)
            for each in identity_ids:
                transaction.record("provider-groups", (each,), "deleted", ProviderGroupsState(id=each, deleted=True))

    def _kept(self, transaction: Transaction, members: dict[str, Any]) -> AbstractAsyncContextManager[None]:
        """Keep the last administrator where these members clear something to sign in with, or may close a password."""
        is_cleared = any(members.get(name, "") is None for name in IDENTIFIERS)
        may_close = "primary_email" in members or members.get("allows_password") is False
        return self._administrators.kept(transaction.connection) if is_cleared or may_close else nullcontext()

    def _next_tokens_valid_after(self, user: User) -> int:
        return rules.next_tokens_valid_after(now=self._clock(), tokens_valid_after=user.tokens_valid_after)

    async def _record_end(self, transaction: Transaction, user_id: str, cause: Cause) -> None:
        party = user_party(user_id)
        await put_party_end(transaction.connection, self._tenant_id, party, cause, now=self._clock())

    async def _lock(
        self, transaction: Transaction, user_id: str, *, otherwise: str = "entity.not_exists_with_id"
    ) -> User:
        user = await store.lock_user(transaction.connection, self._tenant_id, user_id)
        if user is None:
            raise missing_by_id(otherwise)
        return user

    async def _store_change(
        self,
        transaction: Transaction,
        user: User,
        members: dict[str, Any],
        *,
        password_hash: str | None = None,
        cause: Cause = "suspended",
    ) -> User:
        """Store and record the user with these members; a no-op if nothing changes."""
        changed = msgspec.structs.replace(user, **members)
        if changed == user and password_hash is None:
            return user
        if password_hash is not None or _changes_credentials(user, changed):
            await self._attainable.require_holder(transaction.connection, "user", user.id)
        changed = msgspec.structs.replace(changed, updated_at=max(self._clock(), user.updated_at))
        is_new_phone = changed.primary_phone != user.primary_phone
        if is_new_phone and await store.has_legacy_phone(transaction.connection, changed):
            raise phone_in_use()
        with refusals(REFUSALS):
            await store.update_user(transaction.connection, changed, password_hash=password_hash)
        if changed.tokens_valid_after != user.tokens_valid_after:
            await self._record_end(transaction, user.id, cause)
        transaction.record("user", (user.id,), "updated", user_state(changed))
        return changed
