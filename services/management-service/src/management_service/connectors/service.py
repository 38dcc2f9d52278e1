"""Creates, reads, changes, checks and deletes connectors, and the identities of users."""

from typing import Final

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.failures import UNKNOWN_RELATION, Conflict, Issue, duplicate, invalid_input, missing_by_id
from identity_common.identifiers import new_id
from identity_common.names import accepted_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.stores.database import refusals, retry_on_conflict
from management_service.attainable_scopes import AttainableScopes
from management_service.connectors import rules, store
from management_service.connectors.providers import ProviderError, Providers
from management_service.connectors.store import Connector, Identity
from management_service.users.store import lock_user

_KIND: Final = "connector"
_IDENTITY: Final = "identity"
_REFUSALS: Final = {
    "connectors_name_unique": lambda: duplicate("connector.name_in_use", "A connector with this name already exists."),
    "connectors_issuer_unique": lambda: duplicate(
        "connector.issuer_in_use", "A connector to this provider already exists."
    ),
    "identities_value_unique": lambda: duplicate("identity.in_use", "A user has this identity already."),
}


class Connectors:
    """Connectors and identities.

    Args:
        reader: Reads.
        changes: Writes.
        providers: Checks that a provider can be used before it is stored.
        attainable: Refuses callers who lack what the user of an identity holds.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        providers: Providers,
        attainable: AttainableScopes,
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._providers = providers
        self._attainable = attainable
        self._tenant_id = tenant_id
        self._clock = clock

    async def create(self, creation: rules.ConnectorCreation) -> Connector:
        """Create a connector.

        Raises:
            Invalid: The issuer or the claim is not acceptable.
            Conflict: The name is not valid, or in use; the provider has a connector, or cannot be used.
        """
        issuer = creation.config.issuer
        _require_acceptable(issuer, creation.match_claim)
        connector = Connector(
            tenant_id=self._tenant_id,
            id=new_id(),
            name=accepted_name(creation.connector_name),
            issuer=issuer,
            match_claim=creation.match_claim,
            is_enabled=creation.is_enabled,
            actor_clients=(),
            trusted_factors=(),
            created_at=self._clock(),
        )
        await self._require_usable(issuer)
        return await self._insert(_trusting(connector, creation.trusts))

    @retry_on_conflict
    async def _insert(self, connector: Connector) -> Connector:
        async with self._changes.transaction() as transaction:
            with refusals(_REFUSALS):
                await store.insert_connector(transaction.connection, connector)
            transaction.record_action(_KIND, (connector.id,), "create")
        return connector

    async def get(self, connector_id: str) -> Connector:
        """Return a connector."""
        async with self._reader.connect() as connection:
            connector = await store.find_connector(connection, self._tenant_id, connector_id)
        if connector is None:
            raise missing_by_id()
        return connector

    async def list_connectors(self, page: Page) -> tuple[list[Connector], int]:
        """Return a page of the connectors by name, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_connectors(connection, self._tenant_id, page)

    async def test(self, connector_id: str) -> None:
        """Read the provider's metadata and keys now.

        Raises:
            Conflict: They cannot be used.
        """
        connector = await self.get(connector_id)
        await self._changes.record_action(_KIND, (connector_id,), "test")
        await self._require_usable(connector.issuer)

    async def update(self, connector_id: str, update: rules.ConnectorUpdate) -> Connector:
        """Change the given members of a connector.

        Raises:
            Invalid: The issuer or the claim is not acceptable.
            Conflict: The name is not valid, or in use; the provider has a connector, or cannot be used; or users are
                known by the present issuer and claim.
        """
        issuer = None if update.config is UNSET else update.config.issuer
        _require_acceptable(issuer, None if update.match_claim is UNSET else update.match_claim)
        if issuer is not None and issuer != (await self.get(connector_id)).issuer:
            await self._require_usable(issuer)
        return await self._update(connector_id, update)

    @retry_on_conflict
    async def _update(self, connector_id: str, update: rules.ConnectorUpdate) -> Connector:
        async with self._changes.transaction() as transaction:
            connector = await self._lock(transaction, connector_id)
            changed = _changed(connector, update)
            if changed == connector:
                return connector
            if (changed.issuer, changed.match_claim) != (connector.issuer, connector.match_claim):
                await self._require_no_identities(transaction, connector)
            with refusals(_REFUSALS):
                await store.update_connector(transaction.connection, changed)
            transaction.record_action(_KIND, (connector_id,), "update")
        return changed

    @retry_on_conflict
    async def delete(self, connector_id: str) -> None:
        """Delete a connector with the identities of its users."""
        async with self._changes.transaction() as transaction:
            if not await store.delete_connector(transaction.connection, self._tenant_id, connector_id):
                raise missing_by_id("entity.not_found")
            transaction.record_action(_KIND, (connector_id,), "delete")

    @retry_on_conflict
    async def add_identity(self, user_id: str, creation: rules.IdentityCreation) -> Identity:
        """Let a user be known by an identity.

        Raises:
            Conflict: The connector does not exist, or a user has the identity.
            Refused: The caller lacks scopes that the user holds.
        """
        async with self._changes.transaction() as transaction:
            await self._lock_user(transaction, user_id)
            connector = await store.lock_connector(
                transaction.connection, self._tenant_id, creation.connector_id, shared=True
            )
            if connector is None:
                raise Conflict(UNKNOWN_RELATION, "The connector does not exist.")
            identity = Identity(
                tenant_id=self._tenant_id,
                id=new_id(),
                user_id=user_id,
                connector_id=connector.id,
                value=creation.value,
                created_at=self._clock(),
            )
            with refusals(_REFUSALS):
                await store.insert_identity(transaction.connection, identity)
            transaction.record_action(_IDENTITY, (user_id, identity.id), "create")
        return identity

    async def list_identities(self, user_id: str, page: Page) -> tuple[list[Identity], int]:
        """Return a page of a user's identities, in the order of their creation, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_identities(connection, self._tenant_id, user_id, page)

    @retry_on_conflict
    async def remove_identity(self, user_id: str, identity_id: str) -> None:
        """Let a user no longer be known by an identity.

        Raises:
            Refused: The caller lacks scopes that the user holds.
        """
        async with self._changes.transaction() as transaction:
            await self._lock_user(transaction, user_id)
            if not await store.delete_identity(transaction.connection, self._tenant_id, user_id, identity_id):
                raise missing_by_id("entity.not_found")
            transaction.record_action(_IDENTITY, (user_id, identity_id), "delete")

    async def _require_usable(self, issuer: str) -> None:
        try:
            await self._providers.check(issuer)
        except ProviderError as error:
            raise Conflict("connector.provider_unusable", str(error)) from error

    async def _require_no_identities(self, transaction: Transaction, connector: Connector) -> None:
        if await store.has_identities(transaction.connection, self._tenant_id, connector.id):
            message = "Users are known by the issuer and the claim: remove their identities before these change."
            raise Conflict("connector.has_identities", message)

    async def _lock(self, transaction: Transaction, connector_id: str) -> Connector:
        connector = await store.lock_connector(transaction.connection, self._tenant_id, connector_id)
        if connector is None:
            raise missing_by_id("entity.not_exists")
        return connector

    async def _lock_user(self, transaction: Transaction, user_id: str) -> None:
        if await lock_user(transaction.connection, self._tenant_id, user_id) is None:
            raise missing_by_id()
        await self._attainable.require_holder(transaction.connection, "user", user_id)


def _require_acceptable(issuer: str | None, match_claim: str | None) -> None:
    issues = [Issue(path, problem) for path, problem in rules.problems(issuer=issuer, match_claim=match_claim)]
    if issues:
        raise invalid_input(*issues)


def _changed(connector: Connector, update: rules.ConnectorUpdate) -> Connector:
    given = {
        "name": UNSET
        if update.connector_name is UNSET
        else accepted_name(update.connector_name, stored=connector.name),
        "issuer": UNSET if update.config is UNSET else update.config.issuer,
        "match_claim": update.match_claim,
        "is_enabled": update.is_enabled,
    }
    members = {name: value for name, value in given.items() if value is not UNSET}
    changed = msgspec.structs.replace(connector, **members)
    return changed if update.trusts is UNSET else _trusting(changed, update.trusts or _NOTHING)


_NOTHING: Final = rules.ConnectorTrusts(actors=None, factors=None)


def _trusting(connector: Connector, trusts: rules.ConnectorTrusts | None) -> Connector:
    if trusts is None:
        return connector
    return msgspec.structs.replace(
        connector,
        actor_clients=connector.actor_clients if trusts.actors is UNSET else trusts.actors or (),
        trusted_factors=connector.trusted_factors if trusts.factors is UNSET else trusts.factors or (),
    )
