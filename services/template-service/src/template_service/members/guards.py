"""The guard of routes below a user or an application: 404 unless it is known."""

from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from identity_common.access.management_api import Connection
from identity_common.access.parents import Parents
from identity_common.failures import NotFound
from identity_common.projection.fresh_reads import FreshReads


def known_parent_exists(kind: str) -> Guard:
    """Return the guard of routes below ``/{<kind>_id}/``, of a kind that management-service owns.

    An unknown id may be new: it is looked up once more after catching up.
    """

    async def guard(connection: Connection, _: BaseRouteHandler) -> None:
        parents: Parents = connection.app.state.parents
        fresh_reads: FreshReads = connection.app.state.fresh_reads
        parent_id = connection.path_params[f"{kind}_id"]
        try:
            await parents.require(kind, parent_id)
        except NotFound:
            await fresh_reads.catch_up()
            await parents.require(kind, parent_id)

    return guard
