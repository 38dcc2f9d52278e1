"""Creating, reading, changing and deleting organizations."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.failures import Conflict, body_too_large, missing_by_id
from identity_common.fields import free_form_text, is_too_large
from identity_common.identifiers import new_short_id
from identity_common.names import accepted_name
from identity_common.outbox.changes import Changes
from identity_common.paging import Page
from identity_common.stores.database import retry_on_conflict
from identity_common.stores.lookups import Lookups
from stead.event_types import MemberType, OrganizationState
from template_service.fan_out.requests import request_organization_fan_out
from template_service.organizations import rules, store
from template_service.organizations.store import Featured, Organization

_FREE_FORM = ("custom_data", "color", "branding")


def organization_state(organization: Organization) -> OrganizationState:
    """Return the state of an organization for its event."""
    return OrganizationState(id=organization.id, name=organization.name, is_mfa_required=organization.is_mfa_required)


def _fields(body: rules.OrganizationCreation | rules.OrganizationUpdate) -> dict[str, Any]:
    """Return the given fields as they are stored; null becomes the default.

    Raises:
        TooLarge: A free-form object exceeds its limit.
    """
    given = {name: getattr(body, name) for name in body.__struct_fields__}
    given = {name: value for name, value in given.items() if value is not UNSET}
    for name in _FREE_FORM:
        if name in given:
            given[name] = free_form_text(given[name])
    if "is_mfa_required" in given:
        given["is_mfa_required"] = bool(given["is_mfa_required"])
    if any(is_too_large(given[name]) for name in _FREE_FORM if name in given):
        raise body_too_large()
    return given


def _require_supported(body: rules.OrganizationCreation | rules.OrganizationUpdate) -> None:
    """Refuse fields that are not supported: storing them would suggest that sign-in honours them."""
    if unsupported := rules.unsupported_fields(body):
        message = f"Not supported: {', '.join(unsupported)}. Leave out, or keep your own settings in customData."
        raise Conflict("entity.not_supported", message)


class Organizations:
    """Organizations; each is an aggregate on the bus.

    Args:
        reader: For reads without a transaction.
        lookups: For reads by id.
        changes: Opens the transactions of changes.
        tenant_id: The tenant.
        clock: Gives the time of creation.
    """

    def __init__(
        self, reader: AsyncEngine, lookups: Lookups, changes: Changes, *, tenant_id: str, clock: Clock = now_ms
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._changes = changes
        self._tenant_id = tenant_id
        self._clock = clock

    @retry_on_conflict
    async def create(self, creation: rules.OrganizationCreation) -> Organization:
        """Create an organization without members.

        Raises:
            TooLarge: A free-form object exceeds its limit.
            Conflict: A field is not supported, or the name is not valid.
        """
        fields = _fields(creation)
        _require_supported(creation)
        fields["name"] = accepted_name(creation.name)
        organization = Organization(tenant_id=self._tenant_id, id=new_short_id(), created_at=self._clock(), **fields)
        async with self._changes.transaction() as transaction:
            await store.insert_organization(transaction.connection, organization)
            transaction.record("organization", (organization.id,), "created", organization_state(organization))
        return organization

    async def get(self, organization_id: str) -> Organization:
        """Return an organization."""
        organization = await store.find_organization(self._lookups, self._tenant_id, organization_id)
        if organization is None:
            raise missing_by_id()
        return organization

    async def list_organizations(
        self, page: Page, *, with_featured: bool, without: Mapping[MemberType, str | None]
    ) -> tuple[list[tuple[Organization, Featured | None]], int]:
        """Return a page of the organizations, with featured users on request, and their total.

        Args:
            page: The page.
            with_featured: Include the number of users of each, and some of them.
            without: Only organizations that this user or application is not a member of; None does not filter.
        """
        async with self._reader.connect() as connection:
            return await store.list_organizations(
                connection, self._tenant_id, page, with_featured=with_featured, without=without
            )

    @retry_on_conflict
    async def update(self, organization_id: str, update: rules.OrganizationUpdate) -> Organization:
        """Change the given fields of an organization.

        Raises:
            TooLarge: A free-form object exceeds its limit.
            Conflict: A field is not supported, or the name is not valid.
        """
        fields = _fields(update)
        async with self._changes.transaction() as transaction:
            organization = await store.lock_organization(transaction.connection, self._tenant_id, organization_id)
            if organization is None:
                raise missing_by_id("entity.not_exists")
            _require_supported(update)
            if update.name is not UNSET:
                fields["name"] = accepted_name(update.name, stored=organization.name)
            changed = msgspec.structs.replace(organization, **fields)
            if changed != organization:
                await store.update_organization(transaction.connection, changed)
                transaction.record("organization", (organization_id,), "updated", organization_state(changed))
        return changed

    @retry_on_conflict
    async def delete(self, organization_id: str) -> None:
        """Delete an organization. Its memberships end at once; the fan-out deletes their rows."""
        async with self._changes.transaction() as transaction:
            if not await store.delete_organization(transaction.connection, self._tenant_id, organization_id):
                raise missing_by_id("entity.not_found")
            state = OrganizationState(id=organization_id, deleted=True)
            transaction.record("organization", (organization_id,), "deleted", state)
            await request_organization_fan_out(transaction, self._tenant_id, organization_id, "organization-deleted")
