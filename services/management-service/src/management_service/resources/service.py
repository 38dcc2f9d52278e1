"""Creates, reads, changes and deletes API resources and their scopes."""

from typing import Final

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms, whole_second
from identity_common.failures import Conflict, Invalid, duplicate, invalid_scope_name, missing_by_id
from identity_common.identifiers import new_id
from identity_common.names import accepted_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.rights.scopes import MANAGEMENT_SCOPES
from identity_common.scope_names import is_scope_name
from identity_common.stores.database import refusals, retry_on_conflict
from identity_common.stores.lookups import Lookups
from identity_common.uris import is_resource_indicator
from identity_common.wire.events import ResourceState, ScopeState
from management_service.party_ends import find_party_ends, put_party_end, resource_party
from management_service.resources import rules, store
from management_service.resources.narrowing import NamedScope, record_lost_scopes
from management_service.resources.store import Resource, Scope
from management_service.token_lifetimes import note_lifetime

_REFUSALS = {
    "resources_indicator_unique": lambda: duplicate(
        "resource.resource_identifier_in_use", "A resource with this indicator already exists."
    ),
    "scopes_name_unique": lambda: duplicate("scope.name_exists", "The resource already has a scope with this name."),
}
_INVALID_INDICATOR: Final = (
    "The indicator must be an absolute URI with complete escapes and a port that exists, without fragment and user"
    " information, outside of this service's namespaces."
)


def resource_state(resource: Resource) -> ResourceState:
    """Return the state of a resource for its event."""
    return ResourceState(
        id=resource.id,
        name=resource.name,
        indicator=resource.indicator,
        access_token_ttl_s=resource.access_token_ttl_s,
        tokens_valid_after=resource.tokens_valid_after,
        is_default=resource.is_default,
    )


def scope_state(scope: Scope) -> ScopeState:
    """Return the state of a scope for its event."""
    return ScopeState(id=scope.id, resource_id=scope.resource_id, name=scope.name, description=scope.description)


class Resources:
    """API resources and scopes, each a separate aggregate on the bus.

    Args:
        management_api: Indicator of the Management API, whose resource is read-only.
        issuer: The issuer; no indicator may be one of its URLs.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        lookups: Lookups,
        changes: Changes,
        *,
        tenant_id: str,
        management_api: str,
        urn_namespace: str,
        issuer: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._changes = changes
        self._tenant_id = tenant_id
        self._management_api = management_api
        self._urn_namespace = urn_namespace
        self._issuer = issuer
        self._clock = clock

    @retry_on_conflict
    async def create(self, creation: rules.ResourceCreation) -> Resource:
        """Create a resource.

        Raises:
            Conflict: The indicator is not valid, or in use; or the name is not valid.
        """
        if not is_resource_indicator(creation.indicator, urn_namespace=self._urn_namespace, issuer=self._issuer):
            raise Conflict("resource.invalid_indicator", _INVALID_INDICATOR)
        name = accepted_name(creation.name)
        async with self._changes.transaction() as transaction:
            return await self._insert(transaction, name, creation.indicator, creation.access_token_ttl)

    async def get(self, resource_id: str) -> Resource:
        """Return a resource."""
        resource = await store.find_resource(self._lookups, self._tenant_id, resource_id)
        if resource is None:
            raise missing_by_id()
        return resource

    async def management_api_id(self) -> str:
        """Return the id of the Management API's resource; until that exists, an id that no resource has."""
        async with self._reader.connect() as connection:
            resource = await store.find_resource_by_indicator(connection, self._tenant_id, self._management_api)
        return rules.MANAGEMENT_API_ID if resource is None else resource.id

    async def list_resources(self, page: Page) -> tuple[list[Resource], int]:
        """Return a page of the resources, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_resources(connection, self._tenant_id, page)

    @retry_on_conflict
    async def update(self, resource_id: str, update: rules.ResourceUpdate) -> Resource:
        """Change the given members of a resource.

        Raises:
            Invalid: It is the resource of the Management API.
            Conflict: The name is not valid.
        """
        async with self._changes.transaction() as transaction:
            resource = await self._lock_editable(transaction, resource_id, otherwise="entity.not_exists")
            changed = resource
            if update.name is not UNSET:
                changed = msgspec.structs.replace(changed, name=accepted_name(update.name, stored=resource.name))
            if update.access_token_ttl is not UNSET:
                ttl = update.access_token_ttl or rules.DEFAULT_ACCESS_TOKEN_TTL_S
                changed = msgspec.structs.replace(changed, access_token_ttl_s=ttl)
            if changed != resource:
                await store.update_resource(transaction.connection, changed)
                await note_lifetime(transaction.connection, self._tenant_id, changed.access_token_ttl_s)
                transaction.record("resource", (resource_id,), "updated", resource_state(changed))
        return changed

    @retry_on_conflict
    async def set_default(self, resource_id: str, *, is_default: bool) -> Resource:
        """Make a resource the only default, or no longer the default.

        Raises:
            Invalid: It is the resource of the Management API.
        """
        async with self._changes.transaction() as transaction:
            # Lock all: otherwise two requests could each make a different resource the default.
            found = await store.lock_resources(transaction.connection, self._tenant_id)
            changed = await self._lock_editable(transaction, resource_id)
            for resource in found:
                new = is_default if resource.id == resource_id else resource.is_default and not is_default
                if new != resource.is_default:
                    changed_one = msgspec.structs.replace(resource, is_default=new)
                    await store.update_resource(transaction.connection, changed_one)
                    transaction.record("resource", (resource.id,), "updated", resource_state(changed_one))
        return msgspec.structs.replace(changed, is_default=is_default)

    @retry_on_conflict
    async def delete(self, resource_id: str) -> None:
        """Delete a resource with its scopes.

        Raises:
            Invalid: It is the resource of the Management API.
        """
        async with self._changes.transaction() as transaction:
            resource = await self._lock_editable(transaction, resource_id, otherwise="entity.not_found")
            scope_ids = await store.delete_resource(transaction.connection, self._tenant_id, resource_id)
            party = resource_party(resource.indicator)
            await put_party_end(transaction.connection, self._tenant_id, party, "deleted", now=self._clock())
            # With the indicator: verifiers do not know the resource's id.
            state = ResourceState(id=resource_id, deleted=True, indicator=resource.indicator)
            transaction.record("resource", (resource_id,), "deleted", state)
            for scope_id in scope_ids:
                self._record_scope_deletion(transaction, resource_id, scope_id)

    @retry_on_conflict
    async def create_scope(self, resource_id: str, creation: rules.ScopeCreation) -> Scope:
        """Create a scope of a resource.

        Raises:
            Invalid: It is the resource of the Management API.
            Conflict: The name is not valid, or in use.
        """
        async with self._changes.transaction() as transaction:
            await self._lock_editable(transaction, resource_id)
            self._require_scope_name(creation.name)
            return await self._insert_scope(transaction, resource_id, creation.name, creation.description)

    async def list_scopes(self, resource_id: str, page: Page) -> tuple[list[Scope], int]:
        """Return a page of a resource's scopes, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_scopes(connection, self._tenant_id, resource_id, page)

    @retry_on_conflict
    async def update_scope(self, resource_id: str, scope_id: str, update: rules.ScopeUpdate) -> Scope:
        """Change the given members of a scope.

        Raises:
            Invalid: It is the resource of the Management API.
            Conflict: The name is not valid, or in use.
        """
        async with self._changes.transaction() as transaction:
            resource = await self._lock_editable(transaction, resource_id)
            scope = await store.lock_scope(transaction.connection, self._tenant_id, resource_id, scope_id)
            if scope is None:
                raise missing_by_id("entity.not_exists")
            changed = scope
            if update.name is not UNSET:
                self._require_scope_name(update.name)
                changed = msgspec.structs.replace(changed, name=update.name)
            if update.description is not UNSET:
                changed = msgspec.structs.replace(changed, description=update.description)
            if changed != scope:
                with refusals(_REFUSALS):
                    await store.update_scope(transaction.connection, changed)
                transaction.record("scope", (resource_id, scope_id), "updated", scope_state(changed))
                if changed.name != scope.name:
                    record_lost_scopes(transaction, [NamedScope(resource.indicator, scope.name)])
        return changed

    @retry_on_conflict
    async def delete_scope(self, resource_id: str, scope_id: str) -> None:
        """Delete a scope of a resource; roles no longer grant it.

        Raises:
            Invalid: It is the resource of the Management API.
        """
        async with self._changes.transaction() as transaction:
            resource = await self._lock_editable(transaction, resource_id)
            scope = await store.lock_scope(transaction.connection, self._tenant_id, resource_id, scope_id)
            if scope is None:
                raise missing_by_id("entity.not_found")
            await store.delete_scope(transaction.connection, self._tenant_id, resource_id, scope_id)
            self._record_scope_deletion(transaction, resource_id, scope_id)
            record_lost_scopes(transaction, [NamedScope(resource.indicator, scope.name)])

    @retry_on_conflict
    async def ensure_management_api(self, name: str) -> dict[str, Scope]:
        """Create the Management API's resource and its scopes if missing; return the scopes by name.

        Scopes of earlier releases have no description, and get theirs.
        """
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            resource = await store.find_resource_by_indicator(connection, self._tenant_id, self._management_api)
            if resource is None:
                ttl = rules.DEFAULT_ACCESS_TOKEN_TTL_S
                resource = await self._insert(transaction, name, self._management_api, ttl)
            await store.lock_resource(connection, self._tenant_id, resource.id)
            found, _ = await store.list_scopes(connection, self._tenant_id, resource.id, Page(size=None))
            scopes = {scope.name: scope for scope in found}
            for scope_name, description in MANAGEMENT_SCOPES.items():
                scope = scopes.get(scope_name)
                if scope is None:
                    scopes[scope_name] = await self._insert_scope(transaction, resource.id, scope_name, description)
                elif not scope.description:
                    described = msgspec.structs.replace(scope, description=description)
                    await store.update_scope(connection, described)
                    transaction.record("scope", (resource.id, scope.id), "updated", scope_state(described))
        return scopes

    def _require_scope_name(self, name: str) -> None:
        if not is_scope_name(name, urn_namespace=self._urn_namespace):
            raise invalid_scope_name()

    async def _lock_editable(
        self, transaction: Transaction, resource_id: str, *, otherwise: str = "entity.not_exists_with_id"
    ) -> Resource:
        resource = await store.lock_resource(transaction.connection, self._tenant_id, resource_id)
        if resource is None:
            raise missing_by_id(otherwise)
        if resource.indicator == self._management_api:
            raise Invalid("resource.cannot_modify_management_api", "The resource of the Management API is read-only.")
        return resource

    async def _insert(self, transaction: Transaction, name: str, indicator: str, access_token_ttl_s: int) -> Resource:
        now, party = self._clock(), resource_party(indicator)
        existed_before = await find_party_ends(transaction.connection, self._tenant_id, [party])
        resource = Resource(
            tenant_id=self._tenant_id,
            id=new_id(),
            name=name,
            indicator=indicator,
            access_token_ttl_s=access_token_ttl_s,
            tokens_valid_after=whole_second(now) if existed_before else 0,
            created_at=now,
        )
        with refusals(_REFUSALS):
            await store.insert_resource(transaction.connection, resource)
        await note_lifetime(transaction.connection, self._tenant_id, access_token_ttl_s)
        transaction.record("resource", (resource.id,), "created", resource_state(resource))
        return resource

    async def _insert_scope(
        self, transaction: Transaction, resource_id: str, name: str, description: str | None
    ) -> Scope:
        scope = Scope(
            tenant_id=self._tenant_id,
            id=new_id(),
            resource_id=resource_id,
            name=name,
            description=description,
            created_at=self._clock(),
        )
        with refusals(_REFUSALS):
            await store.insert_scope(transaction.connection, scope)
        transaction.record("scope", (resource_id, scope.id), "created", scope_state(scope))
        return scope

    @staticmethod
    def _record_scope_deletion(transaction: Transaction, resource_id: str, scope_id: str) -> None:
        state = ScopeState(id=scope_id, deleted=True, resource_id=resource_id)
        transaction.record("scope", (resource_id, scope_id), "deleted", state)
