"""Consents in PostgreSQL: a row for every name that a user has consented to, for each application.

A row is *implicit* if it was recorded at a sign-in to a first-party application, without a page. Implicit rows never
count for a third-party application; every read goes by what the application is now.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import ARRAY, Text, TextClause, any_, bindparam, delete, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.stores.database import database_answers
from identity_common.wire.events import ApplicationState
from token_service.authorizations.consented import Consented
from token_service.schema import consents

Kind = Literal["scope", "resource-scope", "organization-permission", "organization"]
Name = tuple[Kind, str, str]
"""Kind, indicator of the resource (empty for other kinds), name or id."""

Holder = tuple[str, str]
"""A user and an application that the user has consented to."""

_OF_USER: Final = (
    select(
        consents.c.application_id,
        consents.c.kind,
        consents.c.resource,
        consents.c.name,
        consents.c.consented_at,
        consents.c.implicit,
    )
    .where(consents.c.tenant_id == bindparam("tenant"), consents.c.user_id == bindparam("user"))
    .order_by(consents.c.application_id)
)
_HOLDERS: Final = (
    select(consents.c.user_id, consents.c.application_id)
    .distinct()
    .where(
        consents.c.tenant_id == bindparam("tenant"),
        tuple_(consents.c.user_id, consents.c.application_id) > tuple_(bindparam("user"), bindparam("application")),
    )
    .order_by(consents.c.user_id, consents.c.application_id)
    .limit(1000)
)
_WHOSE: Final = (
    consents.c.tenant_id == bindparam("tenant"),
    consents.c.user_id == bindparam("user"),
    consents.c.application_id == bindparam("application"),
)
_FIND: Final = select(consents.c.kind, consents.c.resource, consents.c.name, consents.c.implicit).where(*_WHOSE)
_new = insert(consents)
_RECORD: Final = _new.on_conflict_do_nothing()
_GIVE: Final = _new.on_conflict_do_update(
    index_elements=["tenant_id", "user_id", "application_id", "kind", "resource", "name"],
    set_={"implicit": False, "consented_at": _new.excluded.consented_at},
)
_DELETE: Final = delete(consents).where(*_WHOSE)
_DROP: Final = _DELETE.where(
    consents.c.kind == "organization", consents.c.name == any_(bindparam("dropped", type_=ARRAY(Text)))
)


def _lock(function: str) -> TextClause:
    whose = [bindparam(name, type_=Text) for name in ("tenant", "user", "application")]
    key = "hashtext('consents'), hashtext(concat_ws(' ', :tenant, :user, :application))"
    return text(f"SELECT {function}({key})").bindparams(*whose)


_LOCK_SHARED: Final = _lock("pg_advisory_xact_lock_shared")
_LOCK_EXCLUSIVE: Final = _lock("pg_advisory_xact_lock")


class Consent(msgspec.Struct, frozen=True):
    """The consent of a user to one application.

    Attributes:
        consented_at: When it was last extended, milliseconds since the epoch.
        implicit: Whether any of it was recorded without a page.
    """

    application_id: str
    consented: Consented
    consented_at: int
    implicit: bool


class KnownConsent(msgspec.Struct, frozen=True):
    """A user's consent to one application: ``recorded`` with its implicit part, ``given`` without it."""

    recorded: Consented
    given: Consented


class Consents:
    """Reads the consents of one tenant; ``Authorizations`` writes them."""

    def __init__(self, engine: AsyncEngine, *, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def find(self, user_id: str, application_id: str) -> Consented:
        """Return what a user has consented to for one application, on a page; empty without a consent.

        ``organizations`` is never None here.
        """
        with database_answers():
            async with self._engine.connect() as connection:
                return (await _find(connection, _whose(self._tenant_id, user_id, application_id))).given

    async def picked(self, user_id: str, application: ApplicationState) -> frozenset[str] | None:
        """Return the organizations that an application gets tokens and claims for; None for all of the user's.

        The current choice applies to earlier authorizations too: an organization that is unpicked is withheld at once.
        """
        return (await self.find(user_id, application.id)).organizations if application.is_third_party else None

    async def of_user(self, user_id: str) -> list[Consent]:
        """Return all consents of a user, by the id of the application."""
        with database_answers():
            async with self._engine.connect() as connection:
                rows = (await connection.execute(_OF_USER, {"tenant": self._tenant_id, "user": user_id})).all()
        found = []
        for application_id, group in groupby(rows, lambda row: row.application_id):
            its = list(group)
            consented_at = max(row.consented_at for row in its)
            found.append(Consent(application_id, _consented(its), consented_at, any(row.implicit for row in its)))
        return found

    async def holders(self, *, after: Holder = ("", "")) -> list[Holder]:
        """Return the next page of users and applications with consents, in order.

        Args:
            after: The last entry of the previous page.
        """
        with database_answers():
            async with self._engine.connect() as connection:
                rows = (await connection.execute(_HOLDERS, _whose(self._tenant_id, *after))).all()
        return [(row.user_id, row.application_id) for row in rows]


async def lock(
    connection: AsyncConnection, tenant_id: str, user_id: str, application_id: str, *, exclusive: bool = False
) -> KnownConsent:
    """Return a user's consent to an application, and prevent its withdrawal until the transaction ends.

    Takes an advisory lock, because a consent that does not exist yet has no row. Others may add to it meanwhile,
    unless ``exclusive``.
    """
    whose = _whose(tenant_id, user_id, application_id)
    await connection.execute(_LOCK_EXCLUSIVE if exclusive else _LOCK_SHARED, whose)
    return await _find(connection, whose)


async def add(
    connection: AsyncConnection,
    tenant_id: str,
    user_id: str,
    application_id: str,
    *,
    consented: Consented,
    known: KnownConsent,
    implicit: bool,
    now: int,
) -> bool:
    """Store what is new in a consent; return whether anything changed. Picked organizations replace earlier ones.

    Consent given on a page replaces implicit consent, and stays given.
    """
    picked, known_picks = consented.organizations, known.recorded.organizations or frozenset()
    dropped = sorted(known_picks - picked) if picked is not None else []
    if dropped:
        await connection.execute(_DROP, _whose(tenant_id, user_id, application_id) | {"dropped": dropped})
    whose = {"tenant_id": tenant_id, "user_id": user_id, "application_id": application_id}
    new = sorted({*_names(consented)} - {*_names(known.recorded if implicit else known.given)})
    if new:
        stated = {**whose, "consented_at": now, "implicit": implicit}
        rows = [{**stated, "kind": kind, "resource": resource, "name": name} for kind, resource, name in new]
        await connection.execute(_RECORD if implicit else _GIVE, rows)
    return bool(new or dropped)


async def withdraw(connection: AsyncConnection, tenant_id: str, user_id: str, application_id: str) -> bool:
    """Delete a consent; return whether there was one. Waits for transactions that called ``keep``."""
    whose = _whose(tenant_id, user_id, application_id)
    await connection.execute(_LOCK_EXCLUSIVE, whose)
    return (await connection.execute(_DELETE, whose)).rowcount > 0


def _whose(tenant_id: str, user_id: str, application_id: str) -> dict[str, str]:
    return {"tenant": tenant_id, "user": user_id, "application": application_id}


async def _find(connection: AsyncConnection, whose: dict[str, str]) -> KnownConsent:
    rows = (await connection.execute(_FIND, whose)).all()
    return KnownConsent(recorded=_consented(rows), given=_consented([row for row in rows if not row.implicit]))


def _names(consented: Consented) -> Iterator[Name]:
    yield from (("scope", "", name) for name in consented.scopes)
    for indicator, names in consented.resource_scopes.items():
        yield from (("resource-scope", indicator, name) for name in names)
    yield from (("organization-permission", "", name) for name in consented.organization_permissions)
    yield from (("organization", "", organization_id) for organization_id in consented.organizations or ())


def _consented(rows: Sequence[Any]) -> Consented:
    found: dict[Kind, set[str]] = {"scope": set(), "organization-permission": set(), "organization": set()}
    resource_scopes: dict[str, set[str]] = {}
    for row in rows:
        if row.kind == "resource-scope":
            resource_scopes.setdefault(row.resource, set()).add(row.name)
        else:
            found[row.kind].add(row.name)
    return Consented(
        scopes=frozenset(found["scope"]),
        resource_scopes={indicator: frozenset(scopes) for indicator, scopes in resource_scopes.items()},
        organization_permissions=frozenset(found["organization-permission"]),
        organizations=frozenset(found["organization"]),
    )
