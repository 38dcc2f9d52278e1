"""Consents in PostgreSQL: a row for every name that a person agreed to, for each application."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, Literal

import msgspec
from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from token_service.authorizations.consented import Consented
from token_service.authorizations.tables import consents
from token_service.database import database_answers

Kind = Literal["scope", "resource-scope", "organization-permission", "organization"]
Name = tuple[Kind, str, str]
"""Kind, indicator of the resource (empty for other kinds), name or id."""

_OF_USER: Final = (
    select(consents.c.application_id, consents.c.kind, consents.c.resource, consents.c.name, consents.c.consented_at)
    .where(consents.c.tenant_id == bindparam("tenant"), consents.c.user_id == bindparam("user"))
    .order_by(consents.c.application_id)
)
_FIND: Final = select(consents.c.kind, consents.c.resource, consents.c.name).where(
    consents.c.tenant_id == bindparam("tenant"),
    consents.c.user_id == bindparam("user"),
    consents.c.application_id == bindparam("application"),
)
_INSERT: Final = insert(consents).on_conflict_do_nothing()


class Consent(msgspec.Struct, frozen=True):
    """What a user has agreed to for one application.

    Attributes:
        consented_at: The last time that something was added, milliseconds.
    """

    application_id: str
    consented: Consented
    consented_at: int


class Consents:
    """The consents of one tenant; what ends them ends authorizations too (``Authorizations.withdraw_consent``)."""

    def __init__(self, engine: AsyncEngine, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._engine = engine
        self._tenant_id = tenant_id
        self._clock = clock

    async def find(self, user_id: str, application_id: str) -> Consented:
        """Return everything that a user has agreed to for an application; empty for nothing.

        ``organizations`` holds those that were picked, and is never none here.

        Raises:
            OAuthError: ``temporarily_unavailable``.
        """
        values = {"tenant": self._tenant_id, "user": user_id, "application": application_id}
        with database_answers():
            async with self._engine.connect() as connection:
                rows = (await connection.execute(_FIND, values)).all()
        return _consented((row.kind, row.resource, row.name) for row in rows)

    async def of_user(self, user_id: str) -> list[Consent]:
        """Return what a user has agreed to, by the id of the application.

        Raises:
            OAuthError: ``temporarily_unavailable``.
        """
        with database_answers():
            async with self._engine.connect() as connection:
                rows = (await connection.execute(_OF_USER, {"tenant": self._tenant_id, "user": user_id})).all()
        found = []
        for application_id, group in groupby(rows, lambda row: row.application_id):
            its = list(group)
            consented = _consented((row.kind, row.resource, row.name) for row in its)
            found.append(Consent(application_id, consented, max(row.consented_at for row in its)))
        return found

    async def add(self, user_id: str, application_id: str, consented: Consented) -> None:
        """Remember what a user has agreed to, in addition to what is remembered already.

        Raises:
            OAuthError: ``temporarily_unavailable``.
        """
        whose = {"tenant_id": self._tenant_id, "user_id": user_id, "application_id": application_id}
        now = self._clock()
        rows = [
            {**whose, "kind": kind, "resource": resource, "name": name, "consented_at": now}
            for kind, resource, name in sorted(_names(consented))
        ]
        if not rows:
            return
        with database_answers():
            async with self._engine.begin() as connection:
                await connection.execute(_INSERT, rows)


def _names(consented: Consented) -> Iterator[Name]:
    yield from (("scope", "", name) for name in consented.scopes)
    for indicator, names in consented.resource_scopes.items():
        yield from (("resource-scope", indicator, name) for name in names)
    yield from (("organization-permission", "", name) for name in consented.organization_permissions)
    yield from (("organization", "", organization_id) for organization_id in consented.organizations or ())


def _consented(names: Iterable[Name]) -> Consented:
    found: dict[Kind, set[str]] = {"scope": set(), "organization-permission": set(), "organization": set()}
    resource_scopes: dict[str, set[str]] = {}
    for kind, resource, name in names:
        if kind == "resource-scope":
            resource_scopes.setdefault(resource, set()).add(name)
        else:
            found[kind].add(name)
    return Consented(
        scopes=frozenset(found["scope"]),
        resource_scopes={indicator: frozenset(scopes) for indicator, scopes in resource_scopes.items()},
        organization_permissions=frozenset(found["organization-permission"]),
        organizations=frozenset(found["organization"]),
    )
