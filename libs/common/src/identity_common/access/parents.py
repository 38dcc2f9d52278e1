"""Existence of the parents in a path: 404 takes precedence over errors of the body."""

from collections.abc import Mapping
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard
from sqlalchemy import Table

from identity_common.failures import missing_by_id
from identity_common.stores.lookups import KeyLookup, Lookups


class Parents:
    """Looks up whether a parent exists.

    Args:
        lookups: Runs the lookups.
        tables: Kind of parent → table.
        tenant_id: The tenant.
    """

    def __init__(self, lookups: Lookups, tables: Mapping[str, Table], *, tenant_id: str) -> None:
        self._lookups = lookups
        self._exists = {
            kind: KeyLookup(f"SELECT FROM {table.name} WHERE tenant_id = $1 AND id = $2")
            for kind, table in tables.items()
        }
        self._tenant_id = tenant_id

    async def require(self, kind: str, parent_id: str) -> None:
        """Require that a parent exists.

        Raises:
            NotFound: It does not.
            StoreUnavailable: The database does not answer.
        """
        if not await self._lookups.fetch(self._exists[kind], self._tenant_id, parent_id):
            raise missing_by_id()


def parent_exists(kind: str) -> Guard:
    """Return the guard of routes below ``/{<kind>_id}/``."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        parents: Parents = connection.app.state.parents
        await parents.require(kind, connection.path_params[f"{kind}_id"])

    return guard
