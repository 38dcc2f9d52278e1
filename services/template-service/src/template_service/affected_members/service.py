"""Listing and exporting the members that a new template would affect."""

from collections.abc import AsyncGenerator, Collection
from typing import Any, Final, NamedTuple

from msgspec import UNSET, UnsetType
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.spreadsheets import csv_rows
from stead.event_types import MemberType
from template_service.affected_members import rules, store
from template_service.affected_members.rules import AffectedMember, AffectedMembers, Comparison
from template_service.affected_members.store import Position
from template_service.document.rules import TemplateDocument
from template_service.document.service import OrganizationTemplate
from template_service.members.store import decode_application, decode_user
from template_service.roles.store import Named

LOOKED_AT: Final = 5_000
"""Holders of changed roles among which the first affected members are sought, at most."""

_AT_ONCE: Final = 500


class _Batch(NamedTuple):
    """The affected members among some holders of changed roles; whether no holders follow."""

    affected: list[AffectedMember]
    is_last: bool


class TemplatePreview:
    """The members that a document would affect, as they are now.

    Args:
        reader: For reads without a transaction; no connection is held between batches, so a slow client blocks nothing.
        template: Compares the document with the template, and refuses what it would refuse to apply.
        tenant_id: The tenant.
    """

    def __init__(self, reader: AsyncEngine, template: OrganizationTemplate, *, tenant_id: str) -> None:
        self._reader = reader
        self._template = template
        self._tenant_id = tenant_id

    async def first(self, document: TemplateDocument, *, limit: int, named: Collection[MemberType]) -> AffectedMembers:
        """Return the first members that a document affects, sought among the first ``LOOKED_AT`` holders.

        Args:
            document: The whole template.
            limit: How many members, at most.
            named: Kinds of members whose names are shown.

        Raises:
            Conflict, Invalid, TooLarge: As ``OrganizationTemplate.put``.
        """
        found: list[AffectedMember] = []
        looked_at, is_complete = 0, True
        async for batch in self._batches(await self._compared(document), named):
            found += batch.affected
            looked_at, is_complete = looked_at + _AT_ONCE, batch.is_last
            if len(found) > limit or looked_at >= LOOKED_AT:
                break
        return AffectedMembers(members=tuple(found[:limit]), has_more=len(found) > limit or not is_complete)

    async def export(self, document: TemplateDocument, *, named: Collection[MemberType]) -> AsyncGenerator[bytes, None]:
        """Return the table of all members that a document affects, a row for each permission that one gains or loses.

        Raises:
            Conflict, Invalid, TooLarge: As ``OrganizationTemplate.put``.
        """
        return self._table(await self._compared(document), named)

    async def _compared(self, document: TemplateDocument) -> Comparison:
        before, after = await self._template.compare(document)
        return Comparison(before.template, before.role_ids, after)

    async def _table(self, comparison: Comparison, named: Collection[MemberType]) -> AsyncGenerator[bytes, None]:
        yield csv_rows([rules.COLUMNS])
        async for batch in self._batches(comparison, named):
            if batch.affected:
                yield csv_rows(row for member in batch.affected for row in rules.table_rows(member))

    async def _batches(self, comparison: Comparison, named: Collection[MemberType]) -> AsyncGenerator[_Batch, None]:
        """Yield the affected ones of each batch of holders."""
        after, is_complete = Position(), False
        while comparison.changed_roles and not is_complete:
            async with self._reader.connect() as connection:
                rows = await store.holders(
                    connection, self._tenant_id, comparison.changed_roles, after=after, limit=_AT_ONCE
                )
            is_complete = len(rows) < _AT_ONCE
            yield _Batch([member for row in rows if (member := _affected(row, comparison, named))], is_complete)
            if rows:
                after = Position(rows[-1].organization_id, rows[-1].member_id)


def _affected(row: Any, comparison: Comparison, named: Collection[MemberType]) -> AffectedMember | None:
    """Return a member; None if nothing changes for it, or its organization was deleted."""
    if row.organization is None or row.member_type is None:
        return None
    change = comparison.of_holder(tuple(row.role_ids))
    if not (change.gaining or change.losing):
        return None
    return AffectedMember(
        type=row.member_type,
        id=row.member_id,
        name=_name(row) if row.member_type in named else UNSET,
        organization=Named(row.organization_id, row.organization),
        gaining=change.gaining,
        losing=change.losing,
    )


def _name(row: Any) -> str | UnsetType:
    if row.state is None:
        return UNSET
    if row.member_type == "application":
        return decode_application(row.state).name
    user = decode_user(row.state)
    return user.name or user.username or user.primary_email or user.primary_phone or UNSET
