"""Names in questions to the trail, which has ids only, and names beside its entries.

Names are those of today: they are in no entry, and no leaf commits to them. A deleted object has none.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import (
    ARRAY,
    CompoundSelect,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    case,
    func,
    literal,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.access.callers import Caller
from identity_common.failures import Conflict, ErrorData, Issue
from identity_common.names import canonical_name
from identity_common.search import identity_key
from management_service.audit.reading.store import (
    Concern,
    TrailFilters,
    impersonations_of_ticket,
    newest_first,
    of_application,
    of_organization,
    of_person,
    parties_of_impersonations,
)
from management_service.organization_names import OrganizationNames
from management_service.phone_numbers import phone_key
from management_service.schema import applications, resources, roles, scopes, users

MAX_MATCHES: Final = 10
"""Objects of one name that a filter can mean."""
MAX_IMPERSONATIONS: Final = 100
"""Impersonations of one ticket that a filter can mean: their entries are all read."""

_PHONE: Final = re.compile(r"\+?[0-9]+")
_tenant: Final = bindparam("tenant", type_=Text)
_id: Final = bindparam("id", type_=Text)
_name: Final = bindparam("name", type_=Text)
_key: Final = bindparam("key", type_=Text)
_phone: Final = bindparam("phone", type_=Text)
_ids: Final = bindparam("ids", type_=ARRAY(Text))

# An id, an address and a phone number each belong to one object, whatever others are called.
_UNIQUE, _NAMED = 0, 1
_USERS: Final = (
    select(
        literal("user").label("kind"),
        users.c.id,
        case(
            (or_(users.c.id == _id, users.c.primary_email_key == _key, users.c.primary_phone_key == _phone), _UNIQUE),
            else_=_NAMED,
        ).label("rank"),
    )
    .where(
        users.c.tenant_id == _tenant,
        or_(
            users.c.id == _id,
            users.c.primary_email_key == _key,
            users.c.primary_phone_key == _phone,
            users.c.username_key == _key,
            (users.c.sort_key == func.name_sort_key(_name)) & (users.c.name == _name),
        ),
    )
    .order_by("rank")
    .limit(MAX_MATCHES + 1)
)
_APPLICATIONS: Final = (
    select(
        literal("application").label("kind"),
        applications.c.id,
        case((applications.c.id == _id, _UNIQUE), else_=_NAMED).label("rank"),
    )
    .where(
        applications.c.tenant_id == _tenant,
        or_(
            applications.c.id == _id,
            (applications.c.sort_key == func.name_sort_key(_name)) & (applications.c.name == _name),
        ),
    )
    .order_by("rank")
    .limit(MAX_MATCHES + 1)
)
_MATCHES: Final = union_all(_USERS.subquery().select(), _APPLICATIONS.subquery().select())


def _names_in(table: Table) -> Select[Any]:
    return select(table.c.id, table.c.name).where(table.c.tenant_id == _tenant, table.c.id == any_(_ids))


_NAMES: Final[Mapping[str, Select[Any] | CompoundSelect[Any]]] = {
    "users:read": select(
        users.c.id,
        func.coalesce(
            func.nullif(users.c.name, ""), users.c.username, users.c.primary_email, users.c.primary_phone
        ).label("name"),
    ).where(users.c.tenant_id == _tenant, users.c.id == any_(_ids)),
    "applications:read": _names_in(applications),
    "roles:read": _names_in(roles),
    "resources:read": union_all(_names_in(resources), _names_in(scopes)),
}
"""Scope → the names that it lets a caller read."""


class _Match(NamedTuple):
    kind: str
    id: str
    rank: int

    @property
    def concerns(self) -> list[Concern]:
        return of_person(self.id) if self.kind == "user" else of_application(self.id)


class Parties(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who is the subject, and who acts, in the impersonation that an entry is about.

    Attributes:
        user_id: The subject.
        actor_id: The user who acts for the subject; absent before the subject token is exchanged.
    """

    user_id: str | None = None
    actor_id: str | None = None


class Beside(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is not in an entry, and is found when it is read.

    Attributes:
        names: Names of today, by id.
        impersonation: The parties of the impersonation that the entry ends or refuses without naming them.
    """

    names: dict[str, str] = {}
    impersonation: Parties | None = None


class _Named(msgspec.Struct, rename="camel"):
    """The members of an entry with ids of objects that have names."""

    user_id: str | None = None
    actor_id: str | None = None
    requested_by: str | None = None
    application_id: str | None = None
    ids: dict[str, str] = {}
    given: dict[str, tuple[str, ...]] = {}
    aggregates: tuple[str, ...] = ()

    @property
    def all_ids(self) -> list[str]:
        named = (self.user_id, self.actor_id, self.requested_by, self.application_id, *self.ids.values())
        created = self.aggregates[0].split("/")[1:] if self.aggregates else ()  # what a write creates is in no path
        given = (each for some in self.given.values() for each in some)
        return [*(each for each in named if each is not None), *given, *created]

    @property
    def ended(self) -> str | None:
        """The impersonation in the path of the request, whose parties the entry does not name."""
        return self.ids.get("impersonation_id")


_decode: Final = msgspec.json.Decoder(_Named).decode


class TrailNames:
    """Finds objects by name, and names by id."""

    def __init__(self, organization_names: OrganizationNames, *, tenant_id: str) -> None:
        self._organization_names = organization_names
        self._tenant_id = tenant_id

    async def person(self, reader: AsyncEngine, text: str) -> list[Concern]:
        """Return the concerns of the user with this id, address or phone number, or else of all with this name.

        Raises:
            Conflict: There are none, and the trail has no entry about a deleted user with this id; or too many.
        """
        return [concern for each in await self.person_ids(reader, text) for concern in of_person(each)]

    async def person_ids(self, reader: AsyncEngine, text: str) -> list[str]:
        """Return the user with this id, address or phone number, or else all with this name.

        Raises:
            Conflict: As of a person.
        """
        return await self._ids(reader, "user", text, of_person(text), parameter="person", subject="No user has")

    async def application(self, reader: AsyncEngine, text: str) -> list[Concern]:
        """Return the concerns of the application with this id, or else of all with this name.

        Raises:
            Conflict: As of a person.
        """
        subject = "No application has"
        found = await self._ids(
            reader, "application", text, of_application(text), parameter="application", subject=subject
        )
        return [concern for each in found for concern in of_application(each)]

    async def organization(self, reader: AsyncEngine, text: str) -> list[Concern]:
        """Return the concerns of the organization with this id, or else of all with this name.

        Raises:
            Conflict: As of a person.
            TemporarilyUnavailable: It is not known whether an organization has this name.
        """
        async with reader.connect() as connection:
            is_recorded = await self._has_entry(connection, of_organization(text))
        # An id that the trail knows belongs to that organization, deleted or not: template-service need not be asked.
        found = (text,) if is_recorded else await self._organization_names.ids(text)
        _require("organization", "No organization has", len(found))
        return [concern for each in found for concern in of_organization(each)]

    async def ticket(self, reader: AsyncEngine, text: str) -> Sequence[str]:
        """Return the impersonations for a ticket.

        Raises:
            Conflict: There are none, or too many.
        """
        async with reader.connect() as connection:
            found = await impersonations_of_ticket(connection, self._tenant_id, text, limit=MAX_IMPERSONATIONS + 1)
        if not found:
            raise _refused("log.unknown_name", "ticketId", "No impersonation has this ticket.")
        if len(found) > MAX_IMPERSONATIONS:
            message = f"More than {MAX_IMPERSONATIONS} impersonations have this ticket. Give a person instead."
            raise _refused("log.ambiguous_name", "ticketId", message)
        return found

    async def anything(self, reader: AsyncEngine, text: str) -> list[Concern]:
        """Return the concerns of the object with this id, address or phone number, or else of all with this name.

        Raises:
            Conflict: There are none, and the trail has no entry about a deleted object with this id; or too many.
            TemporarilyUnavailable: It is not known whether an organization has this name.
        """
        async with reader.connect() as connection:
            found = await self._matches(connection, text)
        organizations: Sequence[str] = ()
        if not any(each.rank == _UNIQUE for each in found):  # no connection is held meanwhile
            organizations = await self._organization_names.ids(text)
        concerns = [concern for each in found for concern in each.concerns]
        concerns += [concern for each in organizations for concern in of_organization(each)]
        count = len(found) + len(organizations)
        if not concerns:
            of_deleted = [*dict.fromkeys((*of_person(text), *of_application(text), *of_organization(text)))]
            async with reader.connect() as connection:
                if await self._has_entry(connection, of_deleted):
                    concerns, count = of_deleted, 1
        _require("q", "No user, application or organization has", count)
        return concerns

    async def beside(self, connection: AsyncConnection, entries: Sequence[str], caller: Caller) -> list[Beside]:
        """Return what is found for each entry: names, and whose impersonation it is about where it does not say so.

        The names are those that the caller may read.
        """
        named = [_decode(entry) for entry in entries]
        parties = await self._parties(connection, {each.ended for each in named if each.ended is not None})
        about = [parties.get(each.ended or "") for each in named]
        ids = [
            [*each.all_ids, *(party for party in (of.user_id, of.actor_id) if party)] if of else each.all_ids
            for each, of in zip(named, about, strict=True)
        ]
        names = await self._names(connection, {each for several in ids for each in several}, caller)
        return [
            Beside({each: names[each] for each in several if each in names}, of)
            for several, of in zip(ids, about, strict=True)
        ]

    async def _names(self, connection: AsyncConnection, ids: Collection[str], caller: Caller) -> dict[str, str]:
        readable = [statement for scope, statement in _NAMES.items() if caller.may(scope)]
        if not ids or not readable:
            return {}
        rows = await connection.execute(union_all(*readable), {"tenant": self._tenant_id, "ids": sorted(ids)})
        return {row.id: row.name for row in rows if row.name is not None}

    async def _parties(self, connection: AsyncConnection, impersonations: Collection[str]) -> dict[str, Parties]:
        if not impersonations:
            return {}
        found: dict[str, Parties] = {}
        for row in await parties_of_impersonations(connection, self._tenant_id, sorted(impersonations)):
            known = found.get(row.subject_token_id, Parties())
            found[row.subject_token_id] = Parties(known.user_id or row.user_id, known.actor_id or row.actor_id)
        return found

    async def _ids(
        self, reader: AsyncEngine, kind: str, text: str, of_deleted: list[Concern], *, parameter: str, subject: str
    ) -> list[str]:
        async with reader.connect() as connection:
            found = [each.id for each in await self._matches(connection, text) if each.kind == kind]
            if not found and await self._has_entry(connection, of_deleted):
                return [text]
        _require(parameter, subject, len(found))
        return found

    async def _matches(self, connection: AsyncConnection, text: str) -> list[_Match]:
        """Return the object with this id, address or phone number, or else all with this name."""
        values = {
            "tenant": self._tenant_id,
            "id": text,
            "key": identity_key(text),
            "name": canonical_name(text),
            "phone": phone_key(text) if _PHONE.fullmatch(text) else None,
        }
        found = [_Match(*row) for row in await connection.execute(_MATCHES, values)]
        return [each for each in found if each.rank == _UNIQUE] or found

    async def _has_entry(self, connection: AsyncConnection, concerns: Sequence[Concern]) -> bool:
        """Return whether the trail has an entry about an object; it may be deleted."""
        filters = TrailFilters(concerning=(concerns,))
        return bool(await newest_first(connection, self._tenant_id, filters, after=None, limit=1))


def _require(parameter: str, subject: str, count: int) -> None:
    if count == 0:
        raise _refused("log.unknown_name", parameter, f"{subject} this id or name. Names are compared with case.")
    if count > MAX_MATCHES:
        raise _refused("log.ambiguous_name", parameter, f"More than {MAX_MATCHES} have this name. Give an id instead.")


def _refused(code: str, parameter: str, message: str) -> Conflict:
    return Conflict(code, f"{parameter}: {message}", data=ErrorData(issues=[Issue(parameter, message)]))
